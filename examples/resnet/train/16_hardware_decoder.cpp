// SPDX-License-Identifier: Apache-2.0

// T16: JPEG files, decoded by the GPU's engines into device memory (on_device); what the engines
// refuse, and the share that --cpu-share gives it, is decoded by the CPU in the same batch.

#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>

#include "../../common/watch.hpp"
#include "../data/image_input.hpp"
#include "run.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Packed;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  penstock::images::HardwareTotals decoded;
  penstock::Prefetcher<Packed> prefetcher(
      resnet::packed_layout(run.input_format()), run.sampler(),
      resnet::decode_by_engines(run.data().images(), run.augmentation(), run.input_format(),
                                {.cpu_threads = run.options().cpu_threads,
                                 .cpu_share = run.options().cpu_share,
                                 .totals = &decoded}),
      {.workers = run.options().workers,
       .epochs = run.epochs(),
       .read_ahead = penstock::read_ahead(run.data().images(), 4),
       .device_times = run.options().watch});
  const auto watch = examples::watch_if(run.options().watch, prefetcher);
  penstock::Readback<resnet::Metrics> losses(16);
  penstock::StepGraph graphs;

  run.for_each_step([&](Step& step) {
    penstock::Lease<Packed> batch;
    step.load([&] { batch = prefetcher.next(run.stream()); });
    step.compute(run.stream(), [&] {
      graphs.launch(batch, run.stream(), [&] {
        run.train_step(batch->input.data_handle(), batch->labels.data_handle(), run.stream());
      });
    });
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
  run.set_stats(prefetcher.stats());
  std::printf("decoded by the engines: %llu, by the CPU: %llu\n",
              static_cast<unsigned long long>(decoded.hardware),
              static_cast<unsigned long long>(decoded.cpu));
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T16",
                           .name = "hardware decoder",
                           .change = "JPEG files, decoded by the GPU's engines and the CPU",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .workers = 2,
                           .graph = true,
                           .prefetcher = true,
                           .train = train},
                          argc, argv);
}
