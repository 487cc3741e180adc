// SPDX-License-Identifier: Apache-2.0

// T1: one thread loads each batch, into pageable memory that it reuses; it is copied while
// everybody waits, into device memory that is fresh for each batch; and the loss is read after each
// step.

#include <vector>

#include "../../../common/check.hpp"
#include "../run.hpp"

namespace {

using examples::check;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  std::vector<std::uint64_t> samples;
  std::vector<float> pixels(run.pixel_bytes() / sizeof(float));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(run.batch()));

  run.for_each_step([&](Step& step) {
    step.load([&] {
      run.sampler().samples(step.epoch(), step.batch(), samples);
      run.image_source().fill(step.epoch(), samples, pixels.data(), labels.data());
    });

    void *device_pixels = nullptr, *device_labels = nullptr;
    check(cudaMalloc(&device_pixels, run.pixel_bytes()), "cudaMalloc");
    check(cudaMalloc(&device_labels, run.label_bytes()), "cudaMalloc");
    step.copy(run.stream(), [&] {
      run.copy_and_wait(device_pixels, pixels.data(), run.pixel_bytes());
      run.copy_and_wait(device_labels, labels.data(), run.label_bytes());
    });

    step.compute(static_cast<float*>(device_pixels), static_cast<std::int32_t*>(device_labels),
                 run.stream());
    run.tell(step.number(), run.read_metrics());
    check(cudaFree(device_pixels), "cudaFree");
    check(cudaFree(device_labels), "cudaFree");
  });
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T1",
                           .name = "baseline",
                           .after = "T0",
                           .change = "host memory is reused",
                           .train = train},
                          argc, argv);
}
