// SPDX-License-Identifier: Apache-2.0

// docs/recipes/memory-budgets.md: computes what a pipeline will allocate before it is made, and
// compares with what it says and with what it really allocates. Exit code 0: they agree.

#include <cstdint>
#include <iostream>
#include <memory>
#include <penstock/emulation.hpp>
#include <penstock/penstock.hpp>

namespace {

namespace emulation = penstock::emulation;

struct Images {
  penstock::Tensor<std::uint8_t, 4> pixels;  // sample x height x width x channel
  penstock::Tensor<std::int32_t, 1> labels;  // sample
};
struct Scaled {
  penstock::Tensor<float, 4> pixels;  // sample x channel x height x width
};

constexpr std::size_t up_to(std::size_t multiple, std::size_t bytes) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

int main() {
  constexpr std::int64_t kBatch = 64;
  constexpr std::size_t kWorkers = 6, kDeviceDepth = 3;
  const auto images = penstock::Layout<Images>{kBatch}
                          .field(&Images::pixels, {32, 32, 3})
                          .field(&Images::labels, {});
  const auto scaled = penstock::Layout<Scaled>{kBatch}.field(&Scaled::pixels, {3, 32, 32});
  const auto make = [&](std::size_t max_host_bytes) {
    return std::make_unique<penstock::Prefetcher<Scaled, Images>>(
        images, penstock::SamplerOptions{.samples = 10'000},
        [](const penstock::Ticket&, Images&) {},
        penstock::DeviceTransform<Images, Scaled>{
            scaled, [](const penstock::Ticket&, const Images&, Scaled&, cudaStream_t) {}},
        penstock::PrefetcherOptions{
            .workers = kWorkers, .device_depth = kDeviceDepth, .max_host_bytes = max_host_bytes});
  };

  // The fields of a batch. Each begins at a multiple of 256 bytes.
  constexpr std::size_t fields = up_to(256, kBatch * 32 * 32 * 3) + kBatch * sizeof(std::int32_t);
  // Pinned: host_depth blocks, each of the fields of a batch.
  constexpr std::size_t host_depth = kDeviceDepth + kWorkers;  // the default
  const std::size_t pinned = host_depth * images.bytes();
  // Device: device_depth slots, each a multiple of 512 bytes. With a transform, the slots hold what
  // it makes, and one more buffer holds what is copied.
  const std::size_t slots = kDeviceDepth * up_to(512, scaled.bytes());
  const std::size_t device = slots + up_to(512, images.bytes());

  const emulation::Live before = emulation::live();
  const auto prefetcher = make(pinned);
  const emulation::Live after = emulation::live();
  const penstock::Stats stats = prefetcher->stats();
  std::cout << "pinned: " << pinned << " bytes computed, " << stats.host_bytes << " in stats(), "
            << after.pinned_bytes - before.pinned_bytes << " allocated\ndevice: " << device
            << " bytes computed, " << stats.device_bytes << " in stats(), "
            << after.device_bytes - before.device_bytes << " allocated\n";
  if (fields != images.bytes() || pinned != stats.host_bytes ||
      pinned != after.pinned_bytes - before.pinned_bytes ||
      device != after.device_bytes - before.device_bytes) {
    std::cerr << "the formulas are wrong\n";
    return 1;
  }
  try {
    make(pinned - 1);
  } catch (const penstock::PoolExhausted& error) {  // at construction, before anything is allocated
    std::cout << error.what() << '\n';
    return 0;
  }
  std::cerr << "one byte less was enough\n";
  return 1;
}
