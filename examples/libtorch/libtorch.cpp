// SPDX-License-Identifier: Apache-2.0

// libtorch: JPEG files in folders train a small network of libtorch's. Its tensors are the fields
// of leases; a lease ends when the last tensor over it is gone. The same file is compiled as C++
// over the emulated runtime and, by way of libtorch.cu, with a kernel that resizes. Exit codes: 0
// done, 1 an exception, 2 wrong arguments.

#include <torch/torch.h>
// Behind it: abi_cast needs DLPack's types as PyTorch has them.
#include <ATen/DLConvertor.h>
#ifndef PENSTOCK_ON_CPU
#include <c10/cuda/CUDAStream.h>
#endif

#include <cstdint>
#include <cstdio>
#include <exception>
#include <penstock/dlpack.hpp>
#include <penstock/file_folder.hpp>
#include <penstock/images/crop.hpp>
#include <penstock/images/image_source.hpp>
#include <penstock/prefetcher.hpp>
#include <utility>
#include <vector>

namespace images = penstock::images;
namespace dlpack = penstock::dlpack;

using Crops = images::Images<float>;
using SharedCrops = dlpack::SharedLease<Crops>;

constexpr std::int32_t kSize = 32;

#ifdef PENSTOCK_ON_CPU
// Over the emulated runtime, device memory is the CPU's.
const torch::Device kDevice = torch::kCPU;
constexpr dlpack::Device kMemory{dlpack::DeviceType::cpu, 0};

/// libtorch's work on the CPU is behind no stream: the batch has to be there.
void make_ready(const SharedCrops&, cudaStream_t stream) {
  cudaStreamSynchronize(stream);
}
#else
const torch::Device kDevice = torch::kCUDA;
constexpr dlpack::Device kMemory{dlpack::DeviceType::cuda, 0};

/// libtorch's stream waits for the batch, and the slot waits for what that stream does with it.
void make_ready(const SharedCrops& batch, cudaStream_t) {
  batch.use_on(c10::cuda::getCurrentCUDAStream());
}
#endif

/// A field as a tensor of libtorch's that keeps the lease: the deleter holds a copy of it.
template <class T, class Extents>
torch::Tensor tensor_of(const SharedCrops& batch, cuda::std::mdspan<T, Extents> Crops::*member) {
  const auto& field = (*batch).*member;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < Extents::rank(); ++i) sizes.push_back(field.extent(i));
  const auto options =
      torch::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value).device(kDevice);
  return torch::from_blob(
      field.data_handle(), sizes, [batch](void*) {}, options);
}

/// The same through DLPack, which knows the type and the device.
template <class T, class Extents>
torch::Tensor tensor_by_dlpack(const SharedCrops& batch,
                               cuda::std::mdspan<T, Extents> Crops::*member) {
  return at::fromDLPackVersioned(
      dlpack::abi_cast<DLManagedTensorVersioned>(batch.tensor(member).release()));
}

void run(const penstock::FileFolder& files) {
  const images::OutputFormat format{.size = {kSize, kSize}};
  penstock::Prefetcher<Crops, images::DecodedImages> prefetcher{
      images::decoded_images_layout(16, format.size),  // batch size
      {.samples = files.size(), .shuffle = true, .seed = 1},
      images::image_source(files,
                           images::RandomResizedCrop{.output = format.size, .min_area = 0.5}),
      images::resize_images<float>(format),
      {.device_depth = 3, .epochs = 5}};

  const auto classes = static_cast<std::int64_t>(files.classes().size());
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 5).stride(2)),
                              torch::nn::BatchNorm2d(16), torch::nn::ReLU(),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 5).stride(2)),
                              torch::nn::BatchNorm2d(32), torch::nn::ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(32 * 5 * 5, classes));
  model->to(kDevice);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(3e-3));

  const penstock::Stream stream;
  std::int64_t count = 0;
  double loss_sum = 0;
  while (penstock::Lease<Crops> lease = prefetcher.next(stream.get())) {
    const std::uint64_t epoch = lease.ticket().epoch;
    const SharedCrops batch(std::move(lease), kMemory);
    make_ready(batch, stream.get());
    const torch::Tensor pixels = tensor_of(batch, &Crops::pixels).permute({0, 3, 1, 2});
    const torch::Tensor labels = tensor_by_dlpack(batch, &Crops::labels).to(torch::kLong);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(model->forward(pixels), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    count += pixels.size(0);
    loss_sum += loss.item<double>() * static_cast<double>(pixels.size(0));
    if (prefetcher.state().epoch == epoch) continue;
    std::printf("epoch %llu: %lld images, loss %.3f\n", static_cast<unsigned long long>(epoch + 1),
                static_cast<long long>(count), loss_sum / static_cast<double>(count));
    count = 0;
    loss_sum = 0;
  }
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "libtorch FOLDER: a directory of JPEG files for each class\n");
    return 2;
  }
  try {
    run(penstock::FileFolder(argv[1]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "libtorch: %s\n", error.what());
    return 1;
  }
}
