// SPDX-License-Identifier: Apache-2.0

// penstock_device_soak soak [SECONDS]: several pipelines of one GPU at full speed, for so long.
// Each has a consumer's thread, which does at random what users do: takes batches, captures its
// step into graphs and replays them, captures beside the pipeline, stalls on the host and on the
// stream, goes back to an earlier State. A kernel checks every byte of every batch against its
// sample's number.
//
// As device_soak.cu it runs on a GPU; as it stands, over the emulated runtime.

#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/step_graph.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "audit.hpp"
#include "flat.hpp"
#include "scenario.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;

#ifdef __CUDACC__
constexpr std::int64_t kBatchSize = 256, kWidth = 1024;  // batches of 1 MiB
constexpr int kWorkers = 4;
// The driver takes memory as it goes.
constexpr Chance kChance{.resident_bytes = 64 << 20, .heap_bytes = 16 << 20};
#else
constexpr std::int64_t kBatchSize = 16, kWidth = 32;
constexpr int kWorkers = 2;
// What may be queued on the streams of all pipelines.
constexpr Chance kChance{.resident_bytes = 8 << 20, .heap_bytes = 2 << 20};
#endif
constexpr std::uint64_t kSamples = 4096;  // whole batches: each slot has one graph
constexpr std::uint64_t kEpochs = std::uint64_t{1} << 40;

Sampler soak_sampler(std::uint64_t seed) {
  return rows_sampler(kSamples, kBatchSize, seed);
}

/// The words of all samples, so that a source costs no more than a copy.
using Table = std::vector<std::uint32_t>;
std::shared_ptr<const Table> make_table() {
  auto table = std::make_shared<Table>();
  table->reserve(kSamples * kWidth);
  for (std::uint64_t sample = 0; sample < kSamples; ++sample)
    for (std::int64_t column = 0; column < kWidth; ++column)
      table->push_back(word_of(sample, column));
  return table;
}

/// One sample of 20,000 takes two milliseconds.
void now_and_then_slow(std::uint64_t seed) {
  if (scrambled(seed) % 20'000 == 0) std::this_thread::sleep_for(2ms);
}

void copy_row(const Table& table, Rows& rows, std::int64_t row, std::uint64_t sample,
              std::uint64_t place) {
  now_and_then_slow(sample ^ place << 32);
  rows.sample(row) = sample;
  rows.place(row) = place;
  std::memcpy(&rows.words(row, 0), &table[sample * kWidth], kWidth * sizeof(std::uint32_t));
}

AnySource<Rows> source_of(int kind, std::shared_ptr<const Table> table) {
  const std::uint64_t batches = soak_sampler(0).batches();
  if (kind == 0)
    return [=](const Ticket& ticket, Rows& rows) {
      for (std::size_t i = 0; i < ticket.samples.size(); ++i)
        copy_row(*table, rows, static_cast<std::int64_t>(i), ticket.samples[i],
                 ticket.epoch * batches + ticket.batch);
    };
  if (kind == 1)
    return per_sample([=](const Sample& sample, Rows& rows) {
      copy_row(*table, rows, sample.row, sample.index, sample.epoch * batches + sample.batch);
    });
  return device_source(batches, [](std::uint64_t sample) { now_and_then_slow(sample); });
}
constexpr std::array kKinds{"batch", "per_sample", "on_device"};

/// Adds one.
struct Count {
  std::uint64_t* counter;
  PENSTOCK_LOAD_HOST_DEVICE void operator()(std::int64_t) const { *counter += 1; }
};

/// Global captures forbid some calls to every thread, such as making a graph: one thread at a time
/// captures, or looks what the process holds.
std::mutex capturing;

struct Done {
  std::atomic<std::uint64_t> batches{0}, captures{0}, replays{0}, stalls{0}, restores{0};
};

/// A pipeline and its consumer.
class Consumer {
 public:
  Consumer(std::uint64_t number, std::shared_ptr<const Table> table)
      : sampler_(soak_sampler(number)),
        kind_(static_cast<int>(number % kKinds.size())),
        audit_(sampler_),
        random_(number),
        prefetcher_(rows_layout(kBatchSize, kWidth), sampler_, source_of(kind_, std::move(table)),
                    {.workers = kWorkers,
                     .device_depth = 2 + number / kKinds.size(),
                     .epochs = kEpochs,
                     .stall_timeout = 60s,
                     .device_times = number % 2 == 0}) {
    detail::check(cudaMalloc(reinterpret_cast<void**>(&counter_), sizeof *counter_), "cudaMalloc");
    warm_up();
  }
  ~Consumer() {
    cudaDeviceSynchronize();
    cudaFree(counter_);
  }
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  void run(const std::atomic<bool>& over) noexcept {
    try {
      for (std::uint64_t i = 0; !over; ++i) {
        act();
        // With an on_device source nothing else keeps the host from running ahead of the device.
        paces_[i % 2].record(stream_.get());
        const CaptureModeGuard guard;  // Another consumer's capture forbids threads to wait.
        paces_[(i + 1) % 2].synchronize();
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  const Done& done() const { return done_; }
  const char* kind() const { return kKinds[static_cast<std::size_t>(kind_)]; }
  std::exception_ptr failure() const { return failure_; }

  /// After the run: are the sums what they should be?
  void finish() {
    audit_.finish();
    std::uint64_t count = 0;
    detail::check(cudaMemcpy(&count, counter_, sizeof count, cudaMemcpyDefault), "cudaMemcpy");
    if (count != 3 * done_.captures) throw std::runtime_error("captured work is lost");
  }

 private:
  void act() {
    switch (random_() % 32) {
      case 0:
        return stall_host();
      case 1:
        return stall_stream();
      case 2:
        return restore();
      case 3:
      case 4:
        return capture_beside();
      case 5:
      case 6:
      case 7:
      case 8:
        for (int i = 0; i < 64; ++i) take_with_graph();
        return;
      default:
        for (int i = 0; i < 64; ++i) take();
    }
  }

  /// All kernels are loaded, all graphs are made.
  void warm_up() {
    take();
    detail::check(cudaMemset(counter_, 0, sizeof *counter_), "cudaMemset");
    detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for_each(stream_.get(), 1, Count{counter_});
    stream_.synchronize();
    detail::check(cudaMemset(counter_, 0, sizeof *counter_), "cudaMemset");
    detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (int i = 0; i < 32; ++i) take_with_graph();
    capture_beside();
    stream_.synchronize();
  }

  Lease<Rows> next() {
    Lease<Rows> lease = prefetcher_.next(stream_.get());
    ++done_.batches;
    return lease;
  }
  void take() {
    const Lease<Rows> lease = next();
    audit_.take(lease, stream_.get());
  }
  void take_with_graph() {
    const Lease<Rows> lease = next();
    audit_.note(lease);
    std::unique_lock lock(capturing, std::defer_lock);
    if (!graphs_.captured(lease)) lock.lock();
    graphs_.launch(lease, stream_.get(), [&] { audit_.check_on(stream_.get(), lease); });
    ++done_.replays;
  }

  /// Work that has nothing to do with the pipeline is captured and replayed while the pipeline goes
  /// on.
  void capture_beside() {
    const std::lock_guard lock(capturing);
    Lease<Rows> lease = next();
    audit_.take(lease, stream_.get());
    detail::check(cudaStreamBeginCapture(captured_.get(), random_() % 2 == 0
                                                              ? cudaStreamCaptureModeGlobal
                                                              : cudaStreamCaptureModeThreadLocal),
                  "cudaStreamBeginCapture");
    for (int i = 0; i < 3; ++i) for_each(captured_.get(), 1, Count{counter_});
    lease.release();
    for (int i = 0; i < 3; ++i) take();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    detail::check(cudaStreamEndCapture(captured_.get(), &graph), "cudaStreamEndCapture");
    detail::check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    detail::check(cudaGraphLaunch(exec, captured_.get()), "cudaGraphLaunch");
    captured_.synchronize();
    detail::check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    detail::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    ++done_.captures;
  }

  void stall_host() {
    const Lease<Rows> lease = next();
    std::this_thread::sleep_for(random_() % 20 * 1ms);
    audit_.take(lease, stream_.get());
    ++done_.stalls;
  }
  void stall_stream() {
    detail::check(cudaLaunchHostFunc(
                      stream_.get(), [](void*) { std::this_thread::sleep_for(5ms); }, nullptr),
                  "cudaLaunchHostFunc");
    take();
    ++done_.stalls;
  }
  void restore() {
    const State state = prefetcher_.state();
    for (std::uint64_t i = random_() % 100; i > 0; --i) take();
    prefetcher_.restore(state);
    audit_.expect(state.epoch * sampler_.batches() + state.batch);
    ++done_.restores;
  }

  const Sampler sampler_;
  const int kind_;
  const Stream stream_, captured_;
  std::array<Event, 2> paces_;
  Audit audit_;
  std::mt19937_64 random_;
  std::uint64_t* counter_ = nullptr;
  StepGraph graphs_;
  Done done_;
  std::exception_ptr failure_;
  Prefetcher<Rows> prefetcher_;  // last: its leases use the streams
};

void print(const std::vector<std::unique_ptr<Consumer>>& consumers, double seconds) {
  const double bytes = static_cast<double>(kBatchSize) * (16 + 4 * kWidth);
  std::printf("%-12s %12s %8s %9s %9s %8s %9s\n", "source", "batches", "GB/s", "replays",
              "captures", "stalls", "restores");
  for (const auto& consumer : consumers) {
    const Done& done = consumer->done();
    const auto number = [](const auto& count) { return static_cast<unsigned long long>(count); };
    std::printf("%-12s %12llu %8.2f %9llu %9llu %8llu %9llu\n", consumer->kind(),
                number(done.batches), static_cast<double>(done.batches) * bytes / seconds / 1e9,
                number(done.replays), number(done.captures), number(done.stalls),
                number(done.restores));
  }
}

void device_soak(std::uint64_t seconds) {
  constexpr std::uint64_t kPipelines = 6;
  const auto table = make_table();
  std::vector<std::unique_ptr<Consumer>> consumers;
  for (std::uint64_t i = 0; i < kPipelines; ++i)
    consumers.push_back(std::make_unique<Consumer>(i, table));

  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (const auto& consumer : consumers)
    threads.emplace_back([&over, &consumer] { consumer->run(over); });
  const std::uint64_t tenths = 10 * seconds;
  Flat flat("device soak, tenths of a second", tenths, kChance);
  std::exception_ptr failure;
  const auto began = std::chrono::steady_clock::now();
  try {
    for (std::uint64_t i = 1; i <= tenths; ++i) {
      std::this_thread::sleep_until(began + i * 100ms);
      const std::lock_guard lock(capturing);
      flat.reach(i);
    }
    const std::lock_guard lock(capturing);
    flat.finish();
  } catch (...) {
    failure = std::current_exception();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  print(consumers, static_cast<double>(seconds));
  for (const auto& consumer : consumers)
    if (consumer->failure()) std::rethrow_exception(consumer->failure());
  if (failure) std::rethrow_exception(failure);
  for (const auto& consumer : consumers) consumer->finish();
}

}  // namespace
}  // namespace penstock::test

int main(int argc, char** argv) {
  using namespace penstock::test;
  return run_scenario(
      argc, argv,
      {{"soak", "seconds of 6 pipelines, every byte checked on the device", 300, device_soak}});
}
