// SPDX-License-Identifier: Apache-2.0

// T2: worker threads load ahead, by hand (see hand_loader.hpp). Memory is still pageable.

#include "../../../common/check.hpp"
#include "../../data/hand_loader.hpp"
#include "../run.hpp"

namespace {

using examples::check;
using resnet::HandLoader;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  const auto layout = resnet::images_layout(run.batch(), run.options().image_size);
  HandLoader loader(
      layout, run.sampler(), run.image_source(),
      {.workers = run.options().workers, .slots = run.host_blocks(), .epochs = run.epochs()});

  run.for_each_step([&](Step& step) {
    const HandLoader::Batch* batch = nullptr;
    step.load([&] { batch = loader.next(); });

    void *device_pixels = nullptr, *device_labels = nullptr;
    check(cudaMalloc(&device_pixels, run.pixel_bytes()), "cudaMalloc");
    check(cudaMalloc(&device_labels, run.label_bytes()), "cudaMalloc");
    step.copy(run.stream(), [&] {
      run.copy_and_wait(device_pixels, batch->images.pixels.data_handle(), run.pixel_bytes());
      run.copy_and_wait(device_labels, batch->images.labels.data_handle(), run.label_bytes());
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
  return resnet::run_rung({.number = "T2",
                           .name = "workers",
                           .after = "T1",
                           .change = "worker threads load ahead",
                           .train = train},
                          argc, argv);
}
