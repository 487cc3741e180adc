// SPDX-License-Identifier: Apache-2.0

// docs/recipes/embedding-batches.md: samples of a recommendation model, of the shape of Criteo's:
// dense features, and several categorical ones with any number of values each. Writes a packed file
// to the working directory; the device sums the values of each field, as an embedding bag does.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <penstock/penstock.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kSamples = 10'000;
constexpr std::int64_t kBatch = 512, kDense = 13, kMostValues = 6;

struct Clicks {
  penstock::Tensor<float, 1> label;  // sample
  penstock::Tensor<float, 2> dense;  // sample x feature
  penstock::Ragged<std::int32_t> items, shops, words;
};

/// Value `i` of a categorical field of a sample, and how many there are.
std::int32_t value_of(std::uint64_t sample, std::uint64_t field, std::uint64_t i) {
  return static_cast<std::int32_t>((sample * 31 + field * 7 + i) % 1000);
}
std::uint64_t count_of(std::uint64_t sample, std::uint64_t field) {
  return field == 0 ? 1 : (sample + field) % (kMostValues + 1);
}

/// A record: the label, the dense features, and for each categorical field the number of its values
/// and these.
void write_data() {
  std::filesystem::remove("clicks.pack");
  penstock::PackedFileWriter pack("clicks.pack");
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    std::string record;
    const auto add = [&](auto value) {
      record.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    add(static_cast<float>(sample % 2));
    for (std::int64_t i = 0; i < kDense; ++i) add(static_cast<float>(i));
    for (std::uint64_t field = 0; field < 3; ++field) {
      add(static_cast<std::int32_t>(count_of(sample, field)));
      for (std::uint64_t i = 0; i < count_of(sample, field); ++i) add(value_of(sample, field, i));
    }
    pack.append(std::as_bytes(std::span(record)));
  }
  pack.finish();
}

/// Takes values from the beginning of a record.
class Record {
 public:
  explicit Record(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  void take(std::span<T> values) {
    if (values.size_bytes() > rest_.size()) throw std::runtime_error("the record is too short");
    if (!values.empty()) std::memcpy(values.data(), rest_.data(), values.size_bytes());
    rest_ = rest_.subspan(values.size_bytes());
  }
  void take(penstock::Ragged<std::int32_t>& field, std::int64_t row) {
    std::int32_t count = 0;
    take(std::span<std::int32_t>(&count, 1));
    if (count < 0 || count > kMostValues) throw std::runtime_error("too many values of a field");
    take(field.allocate(row, count));
  }

 private:
  std::span<const std::byte> rest_;
};

/// The sum of all values and dense features of each sample.
struct Sum {
  Clicks batch;
  float* sums;

  __host__ __device__ static float of(const penstock::Ragged<std::int32_t>& field,
                                      std::int64_t row) {
    float sum = 0;
    const std::int32_t* values = field.begin(row);
    for (std::int64_t i = 0; i < field.length(row); ++i) sum += static_cast<float>(values[i]);
    return sum;
  }
  __host__ __device__ void operator()(std::int64_t row) const {
    float sum = of(batch.items, row) + of(batch.shops, row) + of(batch.words, row);
    for (std::int64_t i = 0; i < kDense; ++i) sum += batch.dense(row, i);
    sums[row] = sum + batch.label(row);
  }
};

float expected(std::uint64_t sample) {
  float sum = static_cast<float>(kDense * (kDense - 1) / 2 + static_cast<std::int64_t>(sample % 2));
  for (std::uint64_t field = 0; field < 3; ++field)
    for (std::uint64_t i = 0; i < count_of(sample, field); ++i)
      sum += static_cast<float>(value_of(sample, field, i));
  return sum;
}

}  // namespace

int main() {
  write_data();
  const penstock::PackedFile clicks("clicks.pack");
  const penstock::Capacity room{kBatch * kMostValues};
  const auto layout = penstock::Layout<Clicks>{kBatch}
                          .field(&Clicks::label, {})
                          .field(&Clicks::dense, {kDense})
                          .field(&Clicks::items, penstock::Capacity{kBatch})
                          .field(&Clicks::shops, room)
                          .field(&Clicks::words, room);
  const auto source = [&clicks, scratch = std::vector<std::byte>()](const penstock::Ticket& ticket,
                                                                    Clicks& batch) mutable {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      Record record(clicks.read(ticket.samples[i], scratch));
      record.take(std::span<float>(&batch.label(row), 1));
      record.take(std::span<float>(&batch.dense(row, 0), kDense));
      for (auto* field : {&batch.items, &batch.shops, &batch.words}) record.take(*field, row);
    }
  };
  penstock::Prefetcher<Clicks> prefetcher{
      layout, {.samples = clicks.size(), .shuffle = true, .seed = 7}, source, {.workers = 2}};

  const penstock::Stream stream;
  void* memory = nullptr;
  cudaMalloc(&memory, kSamples * sizeof(float));
  float* next = static_cast<float*>(memory);
  std::vector<std::uint64_t> order;
  while (const auto batch = prefetcher.next(stream.get())) {
    penstock::for_each(stream.get(), batch.samples(), Sum{*batch, next});
    next += batch.samples();
    order.insert(order.end(), batch.ticket().samples.begin(), batch.ticket().samples.end());
  }
  std::vector<float> sums(kSamples);
  cudaMemcpyAsync(sums.data(), memory, kSamples * sizeof(float), cudaMemcpyDeviceToHost,
                  stream.get());
  stream.synchronize();
  cudaFree(memory);

  std::uint64_t wrong = order.size() == kSamples ? 0 : 1;
  for (std::size_t i = 0; i < order.size(); ++i) wrong += sums[i] == expected(order[i]) ? 0u : 1u;
  std::printf("embedding_batches: %d samples, %d wrong\n", static_cast<int>(order.size()),
              static_cast<int>(wrong));
  return wrong == 0 ? 0 : 1;
}
