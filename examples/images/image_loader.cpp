// SPDX-License-Identifier: Apache-2.0

// image_loader: how many images a second a pipeline delivers of your JPEG files, with nothing
// behind it: batches of decoded, cropped, resized and normalised images in device memory, which are
// dropped.
//
//   image_loader imagenet/train --decoder engines --workers 3
//
// benchmarks/peers/dali_images.py measures NVIDIA DALI in the same way. The same file is compiled
// as C++ over the emulated runtime and, by way of image_loader.cu, as CUDA C++. Exit codes: 0 done,
// 1 an exception, 2 wrong arguments.

#include <cuda_runtime_api.h>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/images/crop.hpp>
#include <penstock/images/decoded_images.hpp>
#include <penstock/images/hardware_decoder.hpp>
#include <penstock/images/image_source.hpp>
#include <penstock/penstock.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../../src/programs/command_line.hpp"
#include "../../src/programs/output_file.hpp"
#include "../common/check.hpp"
#include "../common/image_files.hpp"
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace images = penstock::images;

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::filesystem::path files, json;
  std::string decoder = "engines";
  std::string precision;
  std::string order = "nhwc";
  std::int64_t batch = 512;
  std::int32_t size = 224;
  int workers = 0;          ///< 0: 3 that feed the engines; one for each core on the CPU
  int cpu_threads = -1;     ///< of each worker; -1: the cores that the workers leave
  std::string cpu_share;    ///< empty: found while it runs
  int nvjpeg_decoders = 0;  ///< 0: the default
  int chunk = 0;            ///< images of a call; 0: the default
  int lanes = 2;
  std::size_t depth = 0;  ///< slots on the device; 0: one for each worker, one leased, one ready
  double seconds = 3, warmup = 1.5;
  bool blocking = false;
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// What the workers spend on one part of their work: time, and CPU time of it.
class Part {
 public:
  template <class F>
  decltype(auto) measure(F&& f) {
    struct Spent {
      Part& part;
      Clock::time_point begin = Clock::now();
      std::int64_t cpu_begin = thread_nanoseconds();
      ~Spent() {
        part.wall_.fetch_add((Clock::now() - begin).count(), std::memory_order_relaxed);
        part.cpu_.fetch_add(thread_nanoseconds() - cpu_begin, std::memory_order_relaxed);
      }
    };
    const Spent spent{*this};
    return f();
  }
  /// Without the CPU time, which is a system call: for what is short.
  template <class F>
  decltype(auto) measure_short(F&& f) {
    struct Spent {
      Part& part;
      Clock::time_point begin = Clock::now();
      ~Spent() { part.wall_.fetch_add((Clock::now() - begin).count(), std::memory_order_relaxed); }
    };
    const Spent spent{*this};
    return f();
  }
  /// Wall time, and CPU time.
  std::pair<double, double> seconds() const {
    return {1e-9 * static_cast<double>(wall_), 1e-9 * static_cast<double>(cpu_)};
  }

 private:
  static std::int64_t thread_nanoseconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
  }

  std::atomic<std::int64_t> wall_{0}, cpu_{0};
};

struct Parts {
  Part reading;         ///< of files
  Part source;          ///< all that a worker does for a batch
  Part headers;         ///< that the engine reads, among it
  Part engine;          ///< the engine's calls that decode, among it
  std::once_flag told;  ///< that there is no engine
};

/// Another engine, whose calls are timed.
class TimedEngine final : public images::JpegEngine {
 public:
  TimedEngine(std::unique_ptr<images::JpegEngine> engine, Parts& parts)
      : engine_(std::move(engine)), parts_(parts) {}
  std::string name() const override { return engine_->name(); }
  bool takes(std::span<const std::byte> file) override {
    return parts_.headers.measure_short([&] { return engine_->takes(file); });
  }
  bool decode(std::span<const Image> batch, cudaStream_t stream) override {
    return parts_.engine.measure([&] { return engine_->decode(batch, stream); });
  }

 private:
  std::unique_ptr<images::JpegEngine> engine_;
  Parts& parts_;
};

template <class T>
images::OutputFormat format_of(const Options& options) {
  images::OutputFormat format{
      .size = {options.size, options.size},
      .order = options.order == "nhwc" ? images::PixelOrder::nhwc : images::PixelOrder::nchw};
  if constexpr (!std::is_same_v<T, std::uint8_t>) {
    format.mean = {0.485f, 0.456f, 0.406f};
    format.standard_deviation = {0.229f, 0.224f, 0.225f};
  }
  return format;
}

struct View {
  images::RandomResizedCrop crop;
  images::View operator()(std::uint64_t seed, images::ImageSize size) const {
    return images::RandomHorizontalFlip()(seed, crop(seed, size));
  }
};

// ---- The two kinds of source
// ---------------------------------------------------------------------

images::HardwareOptions hardware_options(const Options& options, images::HardwareTotals& totals) {
  // Memory for a batch of images as ImageNet has them; a batch of larger ones is decoded in parts.
  constexpr std::size_t kFile = 128 << 10, kPixels = 640 << 10;
  images::HardwareOptions hardware{
      .cpu_threads = options.cpu_threads, .lanes = options.lanes, .totals = &totals};
  if (options.nvjpeg_decoders > 0) hardware.engine.decoders = options.nvjpeg_decoders;
  if (options.chunk > 0) hardware.engine.batch = options.chunk;
  const std::size_t room = 512 + 2 * 3 * static_cast<std::size_t>(options.size * options.size);
  const auto chunk = static_cast<std::size_t>(
      std::min<std::int64_t>(hardware.engine.batch, std::max<std::int64_t>(options.batch, 16)));
  hardware.device_bytes = chunk * std::max(kPixels, room);
  hardware.staging_bytes = chunk * std::max(kFile, room);
  hardware.cpu_share = 0;
  if (options.decoder == "both") {
    hardware.cpu_share.reset();
    if (!options.cpu_share.empty()) hardware.cpu_share = std::stod(options.cpu_share);
  }
  return hardware;
}

/// A worker of the engines.
template <class T, class Store>
class DecodeBatch {
 public:
  DecodeBatch(const Store& store, const Options& options, images::HardwareTotals& totals,
              Parts& parts)
      : store_(&store),
        parts_(&parts),
        format_(format_of<T>(options)),
        view_{{.output = format_.size}},
        decoder_(hardware_options(options, totals),
                 [&parts](const images::EngineOptions& wanted,
                          std::string& why_not) -> std::unique_ptr<images::JpegEngine> {
                   auto engine = images::make_nvjpeg_engine(wanted, why_not);
                   if (engine == nullptr) return nullptr;
                   return std::make_unique<TimedEngine>(std::move(engine), parts);
                 }),
        files_(static_cast<std::size_t>(options.batch)) {
    if (const std::string why = decoder_.why_no_engine(); !why.empty())
      std::call_once(parts.told, [&] {
        std::fprintf(stderr, "image_loader: the CPU decodes all, since there is no engine: %s\n",
                     why.c_str());
      });
  }

  void operator()(const penstock::Ticket& ticket, images::Images<T>& batch, cudaStream_t stream,
                  const std::stop_token& stop) {
    parts_->source.measure([&] { decode(ticket, batch, stream, stop); });
  }

 private:
  void decode(const penstock::Ticket& ticket, images::Images<T>& batch, cudaStream_t stream,
              const std::stop_token& stop) {
    parts_->reading.measure([&] {
      items_.clear();
      for (std::size_t row = 0; row < ticket.samples.size(); ++row)
        items_.push_back({store_->read(ticket.samples[row], files_[row]), ticket.sample_seed(row)});
    });
    penstock::PinnedBlock labels = pool_->acquire(items_.size() * sizeof(std::int32_t));
    for (std::size_t row = 0; row < items_.size(); ++row)
      reinterpret_cast<std::int32_t*>(labels.data())[row] = store_->label(ticket.samples[row]);
    labels.copy_to(reinterpret_cast<std::byte*>(batch.labels.data_handle()),
                   items_.size() * sizeof(std::int32_t), stream);
    const auto results =
        decoder_.decode(items_, view_, format_, batch.pixels.data_handle(), stream, stop);
    for (std::size_t row = 0; row < results.size(); ++row)
      if (results[row].by == images::DecodedBy::nobody)
        throw images::ImageError(store_->name(ticket.samples[row]) + ": " + results[row].error);
  }

  const Store* store_;
  Parts* parts_;
  images::OutputFormat format_;
  View view_;
  std::unique_ptr<penstock::PinnedPool> pool_ = std::make_unique<penstock::PinnedPool>();
  images::HardwareDecoder decoder_;
  std::vector<std::vector<std::byte>> files_;  // by row
  std::vector<images::JpegItem> items_;
};

// ---- The measurement
// -----------------------------------------------------------------------------

struct Result {
  double images_per_second = 0, cores = 0, first_batch = 0, images = 0;
};

template <class Prefetcher>
Result measure(Prefetcher& prefetcher, const Options& options) {
  const auto begin = Clock::now();
  penstock::Stream stream;
  const auto next = [&] {
    const auto batch = prefetcher.next(stream.get());
    if (!batch) throw std::runtime_error("the data have come to their end");
    return batch->pixels.extent(0);
  };
  Result result;
  next();
  stream.synchronize();
  result.first_batch = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto run_for = [&](double seconds) {
    const auto from = Clock::now();
    const auto so_far = [&] { return std::chrono::duration<double>(Clock::now() - from).count(); };
    std::int64_t count = 0;
    while (so_far() < seconds) count += next();
    stream.synchronize();
    return std::pair(count, so_far());
  };
  run_for(options.warmup);
  const double cpu = cpu_seconds();
  const auto [count, seconds] = run_for(options.seconds);
  result.cores = (cpu_seconds() - cpu) / seconds;
  result.images = static_cast<double>(count);
  result.images_per_second = result.images / seconds;
  return result;
}

void tell(const Options& options, const Result& result, const std::string& more) {
  std::printf("%.0f images/s, %.2f cores, %.1f us of CPU an image, first batch after %.2f s%s\n",
              result.images_per_second, result.cores, 1e6 * result.cores / result.images_per_second,
              result.first_batch, more.c_str());
  if (options.json.empty()) return;
  char text[256];
  std::snprintf(
      text, sizeof text,
      "{\"images_per_second\": %.1f, \"cpu_cores\": %.3f, \"first_batch_seconds\": %.3f}\n",
      result.images_per_second, result.cores, result.first_batch);
  penstock::programs::write_file(options.json, text);
}

template <class Store>
penstock::SamplerOptions order_of(const Store& store, const Options& options) {
  if (store.size() < static_cast<std::uint64_t>(options.batch))
    throw std::invalid_argument("a batch of " + std::to_string(options.batch) +
                                " is larger than the " + std::to_string(store.size()) +
                                " files that there are: lower --batch");
  return {.samples = store.size(), .shuffle = true, .seed = 1, .drop_last = true};
}

template <class T, class Store>
void run_engines(const Store& store, const Options& options) {
  images::HardwareTotals totals;
  Parts parts;
  const auto make = [&] { return DecodeBatch<T, Store>(store, options, totals, parts); };
  penstock::Prefetcher<images::Images<T>> prefetcher(
      images::images_layout<T>(options.batch, format_of<T>(options)), order_of(store, options),
      penstock::on_device(penstock::per_worker(make)),
      {.workers = options.workers,
       .device_depth = options.depth,
       .epochs = 1'000'000,
       .read_ahead = penstock::read_ahead(store, 4)});
  const Result result = measure(prefetcher, options);
  const double all = static_cast<double>(totals.hardware + totals.cpu);
  const auto a_image = [&](const char* name, const Part& part) {
    const auto [wall, cpu] = part.seconds();
    char text[96];
    if (cpu > 0)
      std::snprintf(text, sizeof text, "; %s %.1f us an image, %.1f of them CPU", name,
                    1e6 * wall / all, 1e6 * cpu / all);
    else
      std::snprintf(text, sizeof text, "; %s %.1f us", name, 1e6 * wall / all);
    return std::string(text);
  };
  char share[64];
  std::snprintf(share, sizeof share, "; by the CPU: %.3f",
                static_cast<double>(totals.cpu) / std::max(all, 1.0));
  tell(options, result,
       share + a_image("a worker", parts.source) + a_image("reading", parts.reading) +
           a_image("headers", parts.headers) + a_image("the engine's calls", parts.engine));
}

template <class T, class Store>
void run_cpu(const Store& store, const Options& options) {
  const images::OutputFormat format = format_of<T>(options);
  penstock::Prefetcher<images::Images<T>, images::DecodedImages> prefetcher(
      images::decoded_images_layout(options.batch, format.size), order_of(store, options),
      images::image_source(store, View{{.output = format.size}}), images::resize_images<T>(format),
      {.workers = options.workers,
       .epochs = 1'000'000,
       .read_ahead = penstock::read_ahead(store, 4)});
  tell(options, measure(prefetcher, options), "");
}

template <class T>
void run_as(const Options& options) {
  const auto with = [&](const auto& store) {
    if (options.decoder == "cpu") return run_cpu<T>(store, options);
    run_engines<T>(store, options);
  };
  std::visit(with, examples::open_image_files({options.files}));
}

/// An option that the decoder does not use is a mistake.
void require_used(const CLI::App& app, const Options& options) {
  const auto require = [&](bool is_used, std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (app.count(name) > 0 && !is_used)
        throw std::invalid_argument(std::string(name) + ": --decoder " + options.decoder +
                                    " does not use it");
  };
  require(options.decoder == "both", {"--cpu-share"});
  require(options.decoder != "cpu",
          {"--cpu-threads", "--nvjpeg-decoders", "--chunk", "--lanes", "--device-depth"});
}

void run(Options options) {
  const int cores = penstock::PrefetcherOptions{}.workers + 1;  // The default leaves one of them.
  if (options.blocking)
    examples::check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "cudaSetDeviceFlags");
  if (options.workers == 0) options.workers = options.decoder == "cpu" ? cores : 3;
  if (options.cpu_threads < 0)
    options.cpu_threads =
        options.decoder == "both" ? std::max(1, (cores - 1) / options.workers - 1) : 1;
  if (options.depth == 0) options.depth = static_cast<std::size_t>(options.workers) + 2;
#ifdef __CUDACC__
  if (options.precision.empty() || options.precision == "fp16") return run_as<__half>(options);
#else
  if (options.precision == "fp16") throw std::invalid_argument("--precision: fp16 needs CUDA C++");
#endif
  if (options.precision == "uint8") return run_as<std::uint8_t>(options);
  run_as<float>(options);
}

}  // namespace

int main(int argc, char** argv) {
  // nvJPEG has many streams of its own, and CUDA opens 8 connections unless it is told otherwise.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // NOLINT(concurrency-mt-unsafe): one thread yet
  Options options;
  CLI::App app("images a second of JPEG files, delivered to device memory and dropped");
  app.add_option("files", options.files,
                 "A folder for each class, a tar file or a packed file; or its URL, a folder's "
                 "with a slash at "
                 "the end")
      ->required();
  app.add_option("--decoder", options.decoder, "engines (of the GPU), cpu or both")
      ->check(CLI::IsMember({"engines", "cpu", "both"}))
      ->capture_default_str();
  app.add_option("--precision", options.precision, "fp16 (the default on a GPU), fp32 or uint8")
      ->check(CLI::IsMember({"fp16", "fp32", "uint8"}));
  app.add_option("--order", options.order, "nhwc or nchw")
      ->check(CLI::IsMember({"nhwc", "nchw"}))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Samples in a batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--image-size", options.size, "Height and width of an output")
      ->check(CLI::Range(8, 4096))
      ->capture_default_str();
  app.add_option("--workers", options.workers, "Threads: 3, or one for each core on the CPU")
      ->check(CLI::Range(1, 1024));
  app.add_option(
         "--cpu-threads", options.cpu_threads,
         "Threads of each worker that decode what the engines do not; default: 1, or with both the "
         "cores that are left")
      ->check(CLI::Range(0, 1024));
  app.add_option("--cpu-share", options.cpu_share,
                 "both: the share that the CPU decodes, 0 to 1; default: found while it runs")
      ->check(penstock::programs::finite(0, 1));
  app.add_option("--nvjpeg-decoders", options.nvjpeg_decoders, "Decoders of nvJPEG")
      ->check(CLI::Range(1, 8));
  app.add_option("--chunk", options.chunk, "Images of a call of the engines")
      ->check(CLI::Range(1, 4096));
  app.add_option("--lanes", options.lanes, "Of each worker: memory to decode to")
      ->check(CLI::Range(2, 16))
      ->capture_default_str();
  app.add_option("--device-depth", options.depth, "Batches on the device; default: workers + 2")
      ->check(CLI::Range(1, 64));
  app.add_option("--seconds", options.seconds, "Measured time")
      ->check(penstock::programs::finite(1e-3, 1e5))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "Seconds before")
      ->check(penstock::programs::finite(0, 1e5))
      ->capture_default_str();
  app.add_flag("--blocking", options.blocking,
               "cudaDeviceScheduleBlockingSync: CUDA does not spin");
  app.add_option("--json", options.json, "Where the result goes, for programs");
  if (const auto status = penstock::programs::parse(app, argc, argv)) return *status;
  try {
    require_used(app, options);
    if (!options.json.empty()) penstock::programs::require_writable(options.json);
    run(options);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "image_loader: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "image_loader: %s\n", error.what());
    return 1;
  }
}
