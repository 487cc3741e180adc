// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of the rungs, and what they and `train` make of mistakes. Exit statuses: 2 for
// what the user can put right (an option, the data, a checkpoint), 1 for what went wrong besides,
// 128 + the signal's number after Ctrl-C.

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../distributed/data_parallel.hpp"
#include "../ops/ops.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace resnet {

/// Of the rungs, which keep times and a loss of each.
inline constexpr std::int64_t most_steps = 1'000'000;

struct Options {
  std::string model;            ///< empty: resnet18, or resnet8 on the reference operations
  std::int32_t image_size = 0;  ///< 0: 224, or 32 on the reference operations
  std::int64_t batch = 0;       ///< 0: the rung's own
  std::int64_t steps = 20, warmup = 5;
  std::int64_t epochs = 0;  ///< not 0: so many are measured, whatever `steps` says
  std::uint64_t seed = 1;
  int workers = 0;      ///< 0: the rung's own
  int cpu_threads = 1;  ///< T16: for each worker
  /// T16: of the images that the engines take, 0 to 1; nullopt: it is found
  std::optional<double> cpu_share = 0;
  int nvjpeg_decoders = 0;             ///< T16: 0: as many as the library thinks
  float rate = 0;                      ///< behind the warm-up; 0: the usual one (schedule.hpp)
  std::optional<Precision> precision;  ///< none: the rung's own
  bool exhaustive = false;             ///< rungs that time plans (T6 and on) time all there are
  bool synthetic = false;              ///< one batch, on the device from the start
  bool layers = false;                 ///< each layer is a range in a profiler
  std::size_t device_depth = 0;        ///< T14 to T16: batches on the device; 0: as usual
  bool input_apart = false;            ///< T14 to T16: train on one batch, beside the input
  bool watch = false;                  ///< what the pipeline waits for, in place of the progress
  std::filesystem::path data, cache;
  std::filesystem::path images;           ///< JPEG files, in place of CIFAR-10
  std::filesystem::path videos;           ///< T17: folder of video files
  std::int32_t classes = 0;               ///< of these; 0: as their labels say
  std::int64_t frames = 16;               ///< T17: of a clip
  std::int64_t clips_per_file = 1;        ///< T17: in an epoch
  std::string video_engines = "if_free";  ///< T17: the name of a penstock::video::EngineUse
  std::uint64_t broken = 0;               ///< T17: batches that may be replaced
  std::uint64_t records = 50'000;         ///< of the made-up set, without `data`
  std::filesystem::path save, load, json;
  std::filesystem::path plans;       ///< read from and kept in: a second start is fast
  std::vector<std::string> special;  ///< what was given of the options that few rungs have
  std::int64_t profile_start = -1, profile_count = 0;  ///< -1: the measured steps
  DistributedOptions distributed = {};
};

/// Fills in what the command line says. Returns the exit status where the program is to end now:
/// after --help, or a mistake, which is told.
std::optional<int> parse(int argc, char** argv, const std::string& about, Options& options);

/// What a launcher's ranks take.
void add_options(CLI::App& app, DistributedOptions& options);

/// After Ctrl-C, here or on another rank.
int interrupted_exit_code();

/// Tells the error, unless it is an interrupt. Returns the exit status.
int report(const std::string& program, const std::exception& error);

std::string to_string(Precision precision);
std::string to_string(PlanChoice plans);

}  // namespace resnet
