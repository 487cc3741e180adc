// SPDX-License-Identifier: Apache-2.0

// Every CUDA call fails once: each scenario is run again and again, with the first call of each
// function failing, then the second, until the run comes to its end without a failure; and this for
// each kind of error. Each run: at most one CudaError, which names the call; no hang; no leak;
// every batch that is delivered is whole and at its place; and unless the error is sticky, the
// process makes the next pipeline as if nothing had been.

#include <penstock/emulation.hpp>
#include <penstock/prefetcher.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/sanitized.hpp"

namespace emulation = penstock::emulation;
using namespace std::chrono_literals;
using penstock::CudaError;
using penstock::Lease;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::Stream;
using penstock::test::kPayload;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::payload_of;
using penstock::test::write_numbers;

namespace {

/// Which calls fail: from `first` on every `stride`-th. Every one where the schedule has no seed;
/// of neighbouring seeds each has its own third; under sanitizers, which take their time, a fifth.
struct Share {
  std::uint64_t first = 1, stride = 1;
};
Share share_of(const emulation::Options& options) {
  const bool random = options.schedule == emulation::Schedule::random;
  const std::uint64_t stride = PENSTOCK_TEST_SANITIZED ? 5 : random ? 3 : 1;
  return {1 + (random ? options.seed % stride : 0), stride};
}

/// Ends the program, with a word on what hung, when nobody has called `tell` for too long.
class Watchdog {
 public:
  Watchdog()
      : thread_([this](const std::stop_token& stop) {
          for (int idle = 0; !stop.stop_requested(); ++idle) {
            const std::uint64_t seen = told_;
            std::this_thread::sleep_for(100ms);
            if (told_ != seen) idle = 0;
            if (idle < kPatience) continue;
            const std::lock_guard lock(mutex_);
            std::fprintf(stderr, "hangs: %s\n", doing_.c_str());
            std::_Exit(1);
          }
        }) {}
  void tell(std::string doing) {
    const std::lock_guard lock(mutex_);
    doing_ = std::move(doing);
    ++told_;
  }

 private:
  static constexpr int kPatience = 600;  // times 100 ms
  std::mutex mutex_;
  std::string doing_;
  std::atomic<std::uint64_t> told_{0};
  std::jthread thread_;
};

/// A look at a batch on the device, in stream order.
struct Check {
  Numbers batch;
  std::vector<std::uint64_t> wanted;
  std::atomic<int>& torn;

  static void CUDART_CB run(void* data) {
    const auto& [batch, wanted, torn] = *static_cast<const Check*>(data);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(wanted.size()); ++i) {
      bool whole = batch.sample(i) == wanted[static_cast<std::size_t>(i)];
      for (std::int64_t j = 0; j < kPayload; ++j)
        whole = whole && batch.payload(i, j) == payload_of(batch.sample(i), j);
      if (!whole) torn.fetch_add(1, std::memory_order_relaxed);
    }
  }
};

/// Stay for good: of a dead device nobody can say when it is through with them.
std::deque<Check>& checks() {
  static auto& all = *new std::deque<Check>;
  return all;
}

/// What came of one run.
struct Outcome {
  int errors = 0;
  std::string what;
  std::atomic<int> torn{0};  // samples that are not what the ticket says
  std::uint64_t misplaced = 0;
};

/// A transform that copies.
void copy_on_device(const penstock::Ticket&, const Numbers& from, Numbers& to,
                    cudaStream_t stream) {
  const auto copy = [&](const auto& in, const auto& out) {
    penstock::detail::check(
        cudaMemcpyAsync(out.data_handle(), in.data_handle(), in.size() * sizeof(*in.data_handle()),
                        cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
  };
  copy(from.sample, to.sample);
  copy(from.payload, to.payload);
}

void write_row(const penstock::Sample& sample, Numbers& batch) {
  batch.sample(sample.row) = sample.index;
  for (std::int64_t j = 0; j < kPayload; ++j)
    batch.payload(sample.row, j) = payload_of(sample.index, j);
}

/// A kernel that writes a batch. Not by for_each, and they stay for good, as Checks do.
struct Write {
  Numbers batch;
  std::vector<std::uint64_t> samples;

  static void CUDART_CB run(void* data) {
    auto& [batch, samples] = *static_cast<Write*>(data);
    for (std::size_t i = 0; i < samples.size(); ++i)
      write_row({.index = samples[i], .row = static_cast<std::int64_t>(i)}, batch);
  }
};

void write_on_device(const penstock::Ticket& ticket, Numbers& batch, cudaStream_t stream) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::deque<Write>;
  const std::lock_guard lock(mutex);
  all.push_back({batch, {ticket.samples.begin(), ticket.samples.end()}});
  penstock::detail::check(cudaLaunchHostFunc(stream, &Write::run, &all.back()),
                          "cudaLaunchHostFunc");
}

enum class Way { plain, transformed, timed, by_sample, on_device };

/// A consumer that checks what it gets on the device, in stream order.
class Run {
 public:
  Run(int workers, std::uint64_t epochs, Outcome& outcome, Way way = Way::plain)
      : outcome_(outcome),
        sampler_({.samples = 11, .batch_size = 4, .shuffle = true, .seed = 9}),
        prefetcher_(make(way, {.workers = workers,
                               .host_depth = 3,
                               .epochs = epochs,
                               .stall_timeout = std::chrono::minutes(2),
                               .device_times = way == Way::timed})) {}

  /// Takes up to `batches` batches; goes on after an error, as a program may.
  void take(int batches) {
    for (int i = 0; i < batches; ++i) {
      try {
        if (!take_one()) return;
      } catch (const CudaError& error) {
        ++outcome_.errors;
        outcome_.what = error.what();
      } catch (const penstock::SourceError& error) {  // A call of the transform's own.
        CHECK_THROWS_AS(std::rethrow_if_nested(error), CudaError);
        ++outcome_.errors;
        outcome_.what = error.what();
      }
    }
  }
  void hold_one() { held_ = prefetcher_.next(stream_.get()); }
  void rewind() { prefetcher_.restore(penstock::State{prefetcher_.state()}); }

 private:
  Prefetcher<Numbers> make(Way way, const penstock::PrefetcherOptions& options) const {
    if (way == Way::by_sample)
      return Prefetcher<Numbers>(numbers_layout(4), sampler_, penstock::per_sample(write_row),
                                 options);
    if (way == Way::on_device)
      return Prefetcher<Numbers>(numbers_layout(4), sampler_, penstock::on_device(write_on_device),
                                 options);
    if (way != Way::transformed)
      return Prefetcher<Numbers>(numbers_layout(4), sampler_, write_numbers, options);
    return Prefetcher<Numbers>(numbers_layout(4), sampler_, write_numbers,
                               {numbers_layout(4), copy_on_device}, options);
  }

  bool take_one() {
    Lease<Numbers> batch = prefetcher_.next(stream_.get());
    if (!batch) return false;
    const std::uint64_t number = batch.ticket().epoch * sampler_.batches() + batch.ticket().batch;
    outcome_.misplaced += number < next_;  // An error may have taken a batch's place.
    next_ = number + 1;
    sampler_.samples(batch.ticket().epoch, batch.ticket().batch, expected_);
    check(*batch, stream_.get());
    batch.also_used_on(second_.get());
    check(*batch, second_.get());
    return true;
  }

  void check(const Numbers& batch, cudaStream_t stream) {
    const auto count = static_cast<std::int64_t>(expected_.size());
    outcome_.misplaced += batch.sample.extent(0) != count;
    // Not by for_each: on a dead device nobody would ever free the functor.
    checks().push_back({batch, expected_, outcome_.torn});
    penstock::detail::check(cudaLaunchHostFunc(stream, &Check::run, &checks().back()),
                            "cudaLaunchHostFunc");
  }

  Outcome& outcome_;
  const Sampler sampler_;
  std::vector<std::uint64_t> expected_;
  std::uint64_t next_ = 0;
  const Stream stream_, second_;
  Prefetcher<Numbers> prefetcher_;
  Lease<Numbers> held_;
};

struct Scenario {
  const char* name;
  void (*run)(int workers, Outcome& outcome);
};

// An epoch has three batches, the last of them short.
const Scenario scenarios[] = {
    {"fill, and gone", [](int workers, Outcome& outcome) { Run(workers, 2, outcome); }},
    {"steady state", [](int workers, Outcome& outcome) { Run(workers, 4, outcome).take(14); }},
    {"epoch edge and short batch",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome).take(4); }},
    {"a lease outlives the rest",
     [](int workers, Outcome& outcome) {
       Run run(workers, 2, outcome);
       run.take(1);
       run.hold_one();
       run.take(1);
     }},
    {"a transform on the device",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome, Way::transformed).take(4); }},
    {"a sample at a time",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome, Way::by_sample).take(4); }},
    {"a source on the device",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome, Way::on_device).take(4); }},
    {"device times",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome, Way::timed).take(3); }},
    {"a rewind",
     [](int workers, Outcome& outcome) {
       Run run(workers, 2, outcome);
       run.take(2);
       run.rewind();
       run.take(2);
     }},
};

/// Runs it, with whatever failures are planned.
void run(const Scenario& scenario, int workers, Outcome& outcome) {
  try {
    scenario.run(workers, outcome);
  } catch (const CudaError& error) {
    ++outcome.errors;
    outcome.what = error.what();
  } catch (const penstock::PoolExhausted& error) {  // What "no memory" becomes, in the pool.
    ++outcome.errors;
    outcome.what = std::string("cudaHostAlloc ") + error.what();
  }
}

struct Error {
  cudaError_t code;
  bool sticky;
};
const Error errors[] = {
    {cudaErrorMemoryAllocation, false},   {cudaErrorInvalidResourceHandle, false},
    {cudaErrorDevicesUnavailable, false}, {cudaErrorLaunchFailure, true},
    {cudaErrorECCUncorrectable, true},  // The device is lost.
};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

void check_outcome(const Outcome& outcome, const std::string& function, const Error& error) {
  CHECK(outcome.misplaced == 0);
  if (error.sticky) {
    CHECK((outcome.errors == 0 || contains(outcome.what, "cuda")));
    return;  // Each later call returns it again; nothing that runs on the device counts.
  }
  CHECK(outcome.torn == 0);
  CHECK(outcome.errors <= 1);
  if (outcome.errors == 1) CHECK(contains(outcome.what, function.c_str()));
}

/// An object whose own release fails is lost: that is the one leak that nobody can prevent.
bool releases(const std::string& function) {
  return contains(function, "Free") || contains(function, "Destroy");
}

void check_aftermath(const std::string& function, const Error& error) {
  if (error.sticky) return emulation::reset(emulation::options());
  REQUIRE_CUDA(cudaDeviceSynchronize());
  if (!releases(function)) CHECK(emulation::live() == emulation::Live{});
  Outcome next;
  run(scenarios[2], 1, next);
  CHECK(next.errors == 0);
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(next.torn == 0);
}

}  // namespace

TEST_CASE("every CUDA call fails once", "[faults]") {
  const Scenario scenario = GENERATE(from_range(std::begin(scenarios), std::end(scenarios)));
  const int workers = GENERATE(1, 2);
  Watchdog watchdog;
  Outcome clean;
  emulation::reset(emulation::options());
  run(scenario, workers, clean);
  REQUIRE(clean.errors == 0);
  REQUIRE_CUDA(cudaDeviceSynchronize());
  REQUIRE(clean.torn == 0);
  const Share share = share_of(emulation::options());
  std::uint64_t runs = 0, failures = 0, told = 0;
  for (const emulation::CallCount& function : emulation::calls()) {
    if (contains(function.function, "LastError")) continue;              // These cannot fail.
    if (contains(function.function, "cudaDeviceSynchronize")) continue;  // The test's own.
    for (const Error& error : errors) {
      bool happened = true;
      for (std::uint64_t nth = share.first; happened; nth += share.stride) {
        const std::string doing = std::string(scenario.name) + ", " + std::to_string(workers) +
                                  " workers: " + function.function + ", call " +
                                  std::to_string(nth) + ", " + cudaGetErrorName(error.code);
        watchdog.tell(doing);
        INFO(doing);
        Outcome outcome;
        emulation::reset(emulation::options());
        emulation::fail_call(function.function, error.code, nth);
        run(scenario, workers, outcome);
        happened = !emulation::clear_failures();
        if (!error.sticky) cudaDeviceSynchronize();
        check_outcome(outcome, function.function, error);
        check_aftermath(function.function, error);
        ++runs, failures += happened, told += outcome.errors > 0;
      }
    }
  }
  emulation::reset(emulation::options());
  std::printf("%s, %d workers: %llu runs, %llu with a failure, %llu of them told\n", scenario.name,
              workers, static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(failures), static_cast<unsigned long long>(told));
  CHECK(failures > 200 / share.stride);
}
