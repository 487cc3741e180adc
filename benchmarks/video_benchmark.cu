// SPDX-License-Identifier: Apache-2.0

// Clips of video files in batches of device memory, decoded by the CPU (engine 0), by the video
// engines of the GPU (engine 1) and by both (engine 2): clips of 16 and 64 frames that begin
// anywhere, and single frames. The files have 320 x 256 pixels, 300 frames, and a key frame after
// each 30 of them. The program ffmpeg makes them, unless the folder PENSTOCK_VIDEO_CLIPS has them.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <penstock/images/crop.hpp>
#include <penstock/penstock.hpp>
#include <penstock/video/clip_source.hpp>
#include <penstock/video/clip_verdict.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace video = penstock::video;

constexpr int kFiles = 8;
constexpr std::int64_t kClips = 8;
constexpr penstock::images::ImageSize kOutput{112, 112};

std::filesystem::path clip_folder() {
  const char* const given = std::getenv("PENSTOCK_VIDEO_CLIPS");
  return given != nullptr ? given
                          : std::filesystem::temp_directory_path() / "penstock-video-benchmark";
}

/// The files, which are made at the first call.
std::vector<std::filesystem::path> make_files() {
  const std::filesystem::path folder = clip_folder();
  std::filesystem::create_directories(folder);
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < kFiles; ++i) {
    files.push_back(folder / ("benchmark_" + std::to_string(i) + ".mp4"));
    if (std::filesystem::exists(files.back())) continue;
    const std::string command =
        "ffmpeg -nostdin -v error -f lavfi -i testsrc2=size=320x256:rate=30:duration=" +
        std::to_string(10 + i) +
        " -t 10 -vf noise=alls=8:allf=t -pix_fmt yuv420p -c:v libx264 -g 30 -bf 2 -x264-params "
        "scenecut=0 '" +
        files.back().string() + "'";
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command + " fails");
  }
  return files;
}

const video::VideoFiles& files() {
  static const video::VideoFiles all(make_files());
  return all;
}

video::ClipReaderOptions reader_options(const benchmark::State& state) {
  constexpr video::EngineUse kUses[] = {video::EngineUse::none, video::EngineUse::required,
                                        video::EngineUse::if_free};
  return {.engine = kUses[state.range(0)]};
}

void clips(benchmark::State& state) try {
  const int workers = static_cast<int>(state.range(1));
  const std::int64_t frames = state.range(2);
  video::ClipTotals totals;
  const penstock::images::OutputFormat format{.size = kOutput};
  const penstock::images::RandomResizedCrop crop{.output = kOutput};
  penstock::Prefetcher<video::Clips<float>> prefetcher{
      video::clips_layout<float>(kClips, frames, format),
      {.samples = files().size() * 64, .batch_size = kClips, .shuffle = true, .seed = 1},
      video::clip_source<float>(
          files(), video::RandomClip{.frames = static_cast<std::uint64_t>(frames)}, crop, format,
          {.clips_per_file = 64, .reader = reader_options(state), .totals = &totals}),
      {.workers = workers,
       .device_depth = static_cast<std::size_t>(workers) + 2,
       .epochs = 1'000'000}};
  penstock::Stream stream;
  const auto take = [&] { benchmark::DoNotOptimize(prefetcher.next(stream.get())); };
  for (int i = 0; i < 4 * workers; ++i) take();
  const video::ClipTimes before = totals.read();
  for (auto _ : state) take();
  const video::ClipVerdict verdict = video::clip_verdict(prefetcher.stats(), totals);
  video::ClipTimes times = totals.read();
  times -= before;
  state.counters["frames/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * kClips * frames), benchmark::Counter::kIsRate);
  state.counters["pictures/frame"] =
      static_cast<double>(times.pictures) / static_cast<double>(times.frames);
  state.SetLabel(verdict.sentence);
} catch (const std::exception& error) {
  state.SkipWithError(error.what());
}

void first_frame(benchmark::State& state) try {
  const penstock::images::OutputFormat format{.size = kOutput};
  penstock::Stream stream;
  float* memory = nullptr;
  penstock::detail::check(
      cudaMalloc(&memory, static_cast<std::size_t>(format.values()) * sizeof(float)), "cudaMalloc");
  const std::unique_ptr<float, cudaError_t (*)(void*)> out(memory, cudaFree);
  video::ClipReader reader(reader_options(state));
  std::mt19937_64 random(1);
  std::vector<double> times;
  const auto read = [&] {
    const video::Video video = files().video(random() % files().size());
    const std::vector<std::uint64_t> frames{random() % video.index->frames().size()};
    const penstock::images::View view =
        video::WholePicture{kOutput}(0, video.index->stream().display());
    reader.read(video, frames, view, format, out.get(), stream.get());
    stream.synchronize();
  };
  for (int i = 0; i < 20; ++i) read();
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    read();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::sort(times.begin(), times.end());
  state.counters["median ms"] = times[times.size() / 2];
  state.counters["p99 ms"] = times[times.size() * 99 / 100];
} catch (const std::exception& error) {
  state.SkipWithError(error.what());
}

/// MiB of memory that this process has.
double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  double all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// One frame of each of many files, which are links to the same few, and whose indexes are made.
void many_files(benchmark::State& state) try {
  const std::filesystem::path folder = clip_folder() / ("links-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::vector<std::filesystem::path> targets = make_files();
  std::vector<std::filesystem::path> links;
  for (std::int64_t i = 0; i < state.range(1); ++i) {
    links.push_back(folder / (std::to_string(i) + ".mp4"));
    std::filesystem::create_hard_link(targets[static_cast<std::size_t>(i) % kFiles], links.back());
  }
  const video::VideoFiles all(links, {}, {.save_indexes = false, .index_bytes = 8 << 20});
  const penstock::images::OutputFormat format{.size = kOutput};
  constexpr int kWorkers = 16;
  penstock::Prefetcher<video::Clips<float>> prefetcher{
      video::clips_layout<float>(kClips, 1, format),
      {.samples = all.size(), .batch_size = kClips, .shuffle = true, .seed = 1},
      video::clip_source<float>(all, video::RandomClip{.frames = 1}, video::WholePicture{kOutput},
                                format, {.reader = reader_options(state)}),
      {.workers = kWorkers, .device_depth = kWorkers + 2, .ordered = false}};
  penstock::Stream stream;
  const std::uint64_t batches = all.size() / kClips;
  std::uint64_t taken = 0;
  for (auto _ : state)
    while (prefetcher.next(stream.get())) {
      ++taken;
      if (taken == batches / 10) state.counters["MiB after 10 %"] = resident_mib();
      if (taken == batches * 9 / 10) state.counters["MiB after 90 %"] = resident_mib();
    }
  state.counters["files/s"] =
      benchmark::Counter(static_cast<double>(taken) * kClips, benchmark::Counter::kIsRate);
  std::filesystem::remove_all(folder);
} catch (const std::exception& error) {
  state.SkipWithError(error.what());
}

BENCHMARK(clips)
    ->ArgNames({"engine", "workers", "frames"})
    ->ArgsProduct({{0}, {1, 16}, {16, 64}})
    ->ArgsProduct({{1}, {1, 7, 14, 16}, {16, 64}})
    ->ArgsProduct({{2}, {24, 30, 36}, {16, 64}})
    ->UseRealTime()
    ->MeasureProcessCPUTime()
    ->MinTime(1.5);
BENCHMARK(many_files)
    ->ArgNames({"engine", "files"})
    ->Args({1, 100'000})
    ->Iterations(1)
    ->UseRealTime();
BENCHMARK(first_frame)->ArgName("engine")->Arg(0)->Arg(1)->UseRealTime()->MinTime(1.0);

}  // namespace

BENCHMARK_MAIN();
