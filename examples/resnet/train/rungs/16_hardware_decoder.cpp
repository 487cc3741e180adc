// SPDX-License-Identifier: Apache-2.0

// T16: JPEG files, decoded by the GPU's engines into device memory (on_device); what the engines
// refuse, and the share that --cpu-share gives it, is decoded by the CPU in the same batch.

#include <cstdlib>

#include "../../data/image_input.hpp"
#include "packed_loop.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Packed;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Run;

void train(Run& run) {
  penstock::images::HardwareTotals decoded;
  penstock::images::HardwareOptions hardware{.cpu_threads = run.options().cpu_threads,
                                             .cpu_share = run.options().cpu_share,
                                             .totals = &decoded};
  if (run.options().nvjpeg_decoders > 0) hardware.engine.decoders = run.options().nvjpeg_decoders;
  penstock::Prefetcher<Packed> prefetcher(
      resnet::packed_layout(run.input_format()), run.sampler(),
      resnet::decode_by_engines(run.data().images(), run.augmentation(), run.input_format(),
                                hardware),
      {.workers = run.options().workers,
       // A slot for each worker, one that is leased, and one that is ready.
       .device_depth = run.device_depth(static_cast<std::size_t>(run.options().workers) + 2),
       .epochs = run.epochs(),
       .copy_priority = resnet::kUrgent,
       .device_times = run.options().watch,
       .read_ahead = penstock::read_ahead(run.data().images(), 4)});
  train_packed(run, prefetcher);
  std::printf("decoded by the engines: %llu, by the CPU: %llu\n",
              static_cast<unsigned long long>(decoded.hardware),
              static_cast<unsigned long long>(decoded.cpu));
}

}  // namespace

int main(int argc, char** argv) {
  // nvJPEG has 14 streams. Those that share a connection with the training step's wait for whole
  // graphs, and CUDA opens 8 connections unless it is told otherwise.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // NOLINT(concurrency-mt-unsafe): one thread yet
  return resnet::run_rung({.number = "T16",
                           .name = "hardware decoder",
                           .after = "T15",
                           .change = "JPEG files, decoded by the GPU's engines and the CPU",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .workers = 3,
                           .graph = true,
                           .prefetcher = true,
                           .special = {"--cpu-share", "--cpu-threads", "--nvjpeg-decoders",
                                       "--device-depth", "--input-apart"},
                           .train = train},
                          argc, argv);
}
