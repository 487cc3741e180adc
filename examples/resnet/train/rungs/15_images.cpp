// SPDX-License-Identifier: Apache-2.0

// T15: JPEG files. All workers decode samples of the oldest batch (per_sample), of each the part
// that its crop needs, at a reduced scale; one kernel in the copy stream resizes, flips, normalises
// and packs. The files of later batches are announced to the system.

#include "../../data/image_input.hpp"
#include "packed_loop.hpp"

namespace {

using resnet::DecodedImages;
using resnet::Format;
using resnet::Fusion;
using resnet::Packed;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Run;

void train(Run& run) {
  penstock::Prefetcher<Packed, DecodedImages> prefetcher(
      resnet::decoded_layout(run.batch(), run.options().image_size), run.sampler(),
      resnet::decode_on_workers(run.data().images(), run.augmentation()),
      resnet::pack_on_device(run.input_format()),
      {.workers = run.options().workers,
       .host_depth = 3,  // To page-lock 77 MB takes 25 ms, and the first batch waits for all.
       .device_depth = run.device_depth(2),
       .epochs = run.epochs(),
       .copy_priority = resnet::kUrgent,
       .device_times = run.options().watch,
       .read_ahead = penstock::read_ahead(run.data().images(), 4)});
  train_packed(run, prefetcher);
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung(
      {.number = "T15",
       .name = "images",
       .change = "JPEG files, decoded a sample at a time by all workers; resized on the device",
       .settings = {.precision = Precision::fp16,
                    .format = Format::nhwc,
                    .fusion = Fusion::full,
                    .plans = PlanChoice::timed},
       .batch = 512,
       .graph = true,
       .prefetcher = true,
       .special = {"--device-depth", "--input-apart"},
       .train = train},
      argc, argv);
}
