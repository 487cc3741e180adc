// SPDX-License-Identifier: Apache-2.0

// T4b: pixels and labels lie one behind the other, on the host and on the device: one copy of both.

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

    void* allocated = nullptr;
    check(cudaMalloc(&allocated, layout.bytes()), "cudaMalloc");
    auto* memory = static_cast<std::byte*>(allocated);
    step.copy(run.stream(), [&] { batch->copy_to(memory, run.stream()); });

    const Images images = layout.bind(memory, run.batch());
    step.compute(images.pixels.data_handle(), images.labels.data_handle(), run.stream());
    run.tell(step.number(), run.read_metrics());
    check(cudaFree(memory), "cudaFree");
  });
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T4b",
                           .name = "one copy",
                           .after = "T4",
                           .change = "one copy of pixels and labels",
                           .train = train},
                          argc, argv);
}
