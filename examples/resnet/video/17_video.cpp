// SPDX-License-Identifier: Apache-2.0

// T17: clips of video files, decoded by the GPU's video engines and the CPU into device memory
// (on_device) as bytes. Each frame is an image of the batch, with the label of its clip. A kernel
// normalises and packs them into memory that stays the same, so that all steps are the same graph.

#include <cstdio>
#include <cstdlib>
#include <penstock/failure.hpp>
#include <penstock/video/clip_verdict.hpp>

#include "../../common/watch.hpp"
#include "../data/clip_input.hpp"
#include "../data/image_input.hpp"
#include "../train/rungs/input_apart.hpp"

namespace {

using resnet::Clips;
using resnet::Format;
using resnet::Fusion;
using resnet::Metrics;
using resnet::Options;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Run;
using resnet::Step;

penstock::PrefetcherOptions prefetcher_options(const Run& run) {
  const Options& options = run.options();
  // One batch is enough for --synthetic, and nothing is decoded beside the steps.
  const int workers = options.synthetic ? 1 : options.workers;
  return {.workers = workers,
          // A slot for each worker, one that is leased, and one that is ready.
          .device_depth = run.device_depth(static_cast<std::size_t>(workers) + 2),
          // No worker ends before the steps do, since it frees page-locked memory then, for which
          // the device has to be idle.
          .epochs = 3 * static_cast<std::uint64_t>(resnet::most_steps),
          .on_failure = options.broken > 0 ? penstock::FailurePolicy::replace(options.broken)
                                           : penstock::FailurePolicy::abort(),
          .copy_priority = resnet::kUrgent,
          .device_times = options.watch};
}

void train(Run& run) {
  const Options& options = run.options();
  const resnet::ClipSet& clips = run.data().clips();
  const penstock::video::VideoFiles files(clips.files, clips.labels);
  penstock::video::ClipTotals totals;
  penstock::Prefetcher<Clips> prefetcher(
      resnet::clips_layout(run.batch() / clips.frames, clips.frames, options.image_size),
      run.sampler(),
      resnet::random_clips(files, clips, options.image_size, options.video_engines, totals),
      prefetcher_options(run));
  resnet::DeviceArray<std::int32_t> labels(run.batch());
  const auto train_step = [&](const penstock::Lease<Clips>& batch, const Step& step,
                              penstock::StepGraph& graphs) {
    resnet::repeat_labels(*batch, labels.data(), run.stream());
    run.pack(batch->pixels.data_handle(), run.stream());
    const auto compute = [&] { run.train_step(run.packed(), labels.data(), run.stream()); };
    if (run.captures(step))
      graphs.launch_numbered(0, run.stream(), compute);
    else
      compute();
  };
  if (options.synthetic)
    return train_on_one(run, prefetcher.next(run.stream()), train_step, [](const Step&) {});
  if (options.input_apart) return train_beside_input(run, prefetcher, train_step);

  const auto watch = examples::watch_if(options.watch, prefetcher);
  penstock::Readback<Metrics> losses(resnet::kStepsAhead);
  penstock::StepGraph graphs;
  run.for_each_step([&](Step& step) {
    penstock::Lease<Clips> batch;
    step.load([&] { batch = prefetcher.next(run.stream()); });
    step.compute(run.stream(), [&] { train_step(batch, step, graphs); });
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
  run.set_stats(prefetcher.stats());
  if (!run.ranks().is_first()) return;
  const penstock::video::ClipTimes decoded = totals.read();
  std::printf("clips decoded by the engines: %llu, by the CPU: %llu. %s\n",
              static_cast<unsigned long long>(decoded.by_engine),
              static_cast<unsigned long long>(decoded.by_cpu),
              penstock::video::clip_verdict(prefetcher.stats(), totals).sentence.c_str());
  for (const penstock::Failure& failure : prefetcher.failures())
    std::printf("another batch took the place of one: %s\n", failure.what.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  // Each worker has a stream, see T16.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // NOLINT(concurrency-mt-unsafe): one thread yet
  return resnet::run_rung(
      {.number = "T17",
       .name = "video",
       .change = "clips of video files, decoded by the GPU's engines and the CPU",
       .settings = {.precision = Precision::fp16,
                    .format = Format::nhwc,
                    .fusion = Fusion::full,
                    .plans = PlanChoice::timed},
       .batch = 256,
       .workers = 16,
       .graph = true,
       .prefetcher = true,
       .own_synthetic = true,
       .special = {"--device-depth", "--input-apart", "--videos", "--frames", "--clips-per-file",
                   "--video-engines", "--broken"},
       .train = train},
      argc, argv);
}
