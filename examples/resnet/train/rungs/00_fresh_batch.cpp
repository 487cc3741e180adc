// SPDX-License-Identifier: Apache-2.0

// T0: T1 with memory that is fresh for each batch on the host too, as a loader has it that returns
// new arrays. A large one comes from the system, and goes back to it: each of its pages is a fault
// when it is first written, and munmap takes them all away. (glibc does so from 32 MiB on, which 64
// images have. It keeps smaller ones.)

#include <memory>
#include <vector>

#include "../../../common/check.hpp"
#include "../run.hpp"

namespace {

using examples::check;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  std::vector<std::uint64_t> samples;

  run.for_each_step([&](Step& step) {
    std::unique_ptr<float[]> pixels;
    std::unique_ptr<std::int32_t[]> labels;
    step.load([&] {
      pixels = std::make_unique_for_overwrite<float[]>(run.pixel_bytes() / sizeof(float));
      labels =
          std::make_unique_for_overwrite<std::int32_t[]>(static_cast<std::size_t>(run.batch()));
      run.sampler().samples(step.epoch(), step.batch(), samples);
      run.image_source().fill(step.epoch(), samples, pixels.get(), labels.get());
    });

    void *device_pixels = nullptr, *device_labels = nullptr;
    check(cudaMalloc(&device_pixels, run.pixel_bytes()), "cudaMalloc");
    check(cudaMalloc(&device_labels, run.label_bytes()), "cudaMalloc");
    step.copy(run.stream(), [&] {
      run.copy_and_wait(device_pixels, pixels.get(), run.pixel_bytes());
      run.copy_and_wait(device_labels, labels.get(), run.label_bytes());
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
  return resnet::run_rung(
      {.number = "T0",
       .name = "fresh batch",
       .change = "one thread, memory that is fresh for each batch, blocking copies",
       .train = train},
      argc, argv);
}
