// SPDX-License-Identifier: Apache-2.0

// T3b: the workers, and their page-locked memory, are the library's (BatchProducer, PinnedPool).

#include <penstock/batch_producer.hpp>

#include "../../../common/check.hpp"
#include "../run.hpp"

namespace {

using examples::check;
using resnet::Images;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  const auto layout = resnet::images_layout(run.batch(), run.options().image_size);
  penstock::PinnedPool pool;
  pool.reserve(run.host_blocks(), penstock::BatchProducer<Images>::block_bytes(layout));
  penstock::BatchProducer<Images> producer(
      layout, run.sampler(), run.image_source(), pool,
      {.workers = run.options().workers, .epochs = run.epochs()});

  run.for_each_step([&](Step& step) {
    std::optional<penstock::HostBatch<Images>> batch;
    step.load([&] { batch = producer.next(); });

    void *device_pixels = nullptr, *device_labels = nullptr;
    check(cudaMalloc(&device_pixels, run.pixel_bytes()), "cudaMalloc");
    check(cudaMalloc(&device_labels, run.label_bytes()), "cudaMalloc");
    step.copy(run.stream(), [&] {
      run.copy_and_wait(device_pixels, (*batch)->pixels.data_handle(), run.pixel_bytes());
      run.copy_and_wait(device_labels, (*batch)->labels.data_handle(), run.label_bytes());
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
  return resnet::run_rung({.number = "T3b",
                           .name = "producer",
                           .after = "T3",
                           .change = "the workers are the library's",
                           .train = train},
                          argc, argv);
}
