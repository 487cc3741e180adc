// SPDX-License-Identifier: Apache-2.0

// The smallest whole program: two files of records, a kernel, ten epochs. It reads data_batch_1.bin
// and data_batch_2.bin (examples/data/make_cifar10 makes them) in the working directory, and prints
// the pipeline's statistics and then the loss: over all samples of all epochs, how far the
// brightness of an image (0 ... 1) is from its label / 9, squared.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>

// ---- What the program is given: decode and train_step are at the end of the file

struct Images;
void decode(std::span<const std::byte> record, Images& batch, std::size_t sample);

/// A float in device memory. Made at its first use, thus after the CUDA runtime came up, and
/// printed when the program ends, thus before the runtime goes down.
struct Loss {
  struct Memory {
    Memory() {
      cudaMalloc(&device, sizeof(float));
      cudaMemset(device, 0, sizeof(float));
    }
    ~Memory() {
      float host = 0;
      const cudaError_t copied = cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost);
      cudaFree(device);
      if (copied == cudaSuccess) std::cout << "loss: " << host << '\n';
    }
    void* device = nullptr;
  };
  operator float*() const {  // NOLINT(google-explicit-constructor): stands for a pointer
    static const Memory memory;
    return static_cast<float*>(memory.device);
  }
};
inline const Loss loss;

// ---- The program

// clang-format off
#include <penstock/penstock.hpp>
#include <iostream>

struct Images {                                  // one type: on the host, on the device, as a kernel argument
  penstock::Tensor<std::uint8_t, 4> pixels;      // sample x height x width x channel
  penstock::Tensor<std::int32_t, 1> labels;      // sample
};

__global__ void train_step(Images batch, float* loss);

int main() {
  penstock::RecordFile records{{"data_batch_1.bin", "data_batch_2.bin"}, 3073};   // fixed-size records
  auto layout = penstock::Layout<Images>{256}                    // batch size
                    .field(&Images::pixels, {32, 32, 3})         // shape of one sample
                    .field(&Images::labels, {});

  penstock::Prefetcher<Images> prefetcher{
      layout,
      {.samples = records.size(), .shuffle = true, .seed = 7},
      [&, scratch = std::vector<std::byte>()](const penstock::Ticket& ticket, Images& batch) mutable {
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)  // runs on the workers, fills pinned memory
          decode(records.read(ticket.samples[i], scratch), batch, i);
      },
      {.workers = 8, .epochs = 10}};

  cudaStream_t stream;
  cudaStreamCreate(&stream);
  while (auto batch = prefetcher.next(stream))                   // Lease<Images>
    train_step<<<132, 256, 0, stream>>>(*batch, loss);           // memory is safe until the lease ends
  cudaStreamSynchronize(stream);
  std::cout << prefetcher.stats() << '\n';                       // where the time went, and what bounds it
}
// clang-format on

// ---- What the program is given

/// Planes to height x width x channel; the label is the first byte.
void decode(std::span<const std::byte> record, Images& batch, std::size_t sample) {
  const auto row = static_cast<std::int64_t>(sample);
  batch.labels(row) = std::to_integer<std::int32_t>(record[0]);
  std::uint8_t* pixel = &batch.pixels(row, 0, 0, 0);
  for (std::size_t place = 1; place <= 32 * 32; ++place)
    for (std::size_t plane = 0; plane < 3; ++plane)
      *pixel++ = std::to_integer<std::uint8_t>(record[place + plane * 32 * 32]);
}

__global__ void train_step(Images batch, float* total) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  float sum = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < batch.labels.extent(0); i += threads) {
    std::uint32_t brightness = 0;
    for (std::int64_t value = 0; value < 32 * 32 * 3; ++value)
      brightness += (&batch.pixels(i, 0, 0, 0))[value];
    const float error = static_cast<float>(brightness) / (32 * 32 * 3 * 255) -
                        static_cast<float>(batch.labels(i)) / 9;
    sum += error * error;
  }
  if (sum > 0) atomicAdd(total, sum);
}
