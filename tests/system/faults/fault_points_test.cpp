// SPDX-License-Identifier: Apache-2.0

// Every CUDA call fails once: each scenario is run again and again, with the first call of each
// function failing, then the second, until the run comes to its end without a failure; and this for
// each kind of error. Each run: at most one CudaError, which names the call; no hang; no leak;
// every batch that is delivered is whole and at its place; and unless the error is sticky, the
// process makes the next pipeline as if nothing had been. A run that goes on to its end accounts
// for every batch: it was delivered, or an error came in its place; and a failure of a call whose
// success something depends on is always reported.

#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/emulation.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
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
  Outcome() = default;
  Outcome(std::string failing_call, std::uint64_t which)
      : function(std::move(failing_call)), nth(which) {}

  /// Call where nothing more will come, and be it an error.
  void end(std::uint64_t wanted) {
    ended = true;
    expected = wanted;
    calls = function.empty() ? 0 : emulation::calls(function);
  }

  int errors = 0;
  std::string what;
  std::atomic<int> torn{0};  // samples that are not what the ticket says
  std::uint64_t misplaced = 0;
  std::uint64_t delivered = 0;

  const std::string function;  // whose nth call fails
  const std::uint64_t nth = 0;
  bool ended = false;
  std::uint64_t expected = 0, calls = 0;  // if it has ended: deliveries, calls of the function
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

void queue_check(const Numbers& batch, const std::vector<std::uint64_t>& wanted,
                 cudaStream_t stream, Outcome& outcome) {
  // Not by for_each: on a dead device nobody would ever free the functor.
  checks().push_back({batch, wanted, outcome.torn});
  penstock::detail::check(cudaLaunchHostFunc(stream, &Check::run, &checks().back()),
                          "cudaLaunchHostFunc");
}

enum class Way { plain, transformed, timed, by_sample, on_device, by_graph };

/// A consumer that checks what it gets on the device, in stream order.
class Run {
 public:
  Run(int workers, std::uint64_t epochs, Outcome& outcome, Way way = Way::plain)
      : outcome_(outcome),
        batches_(3 * epochs),
        graphs_(way == Way::by_graph),
        sampler_({.samples = 11, .batch_size = 4, .shuffle = true, .seed = 9}),
        prefetcher_(make(way, {.workers = workers,
                               .host_depth = 3,
                               .epochs = epochs,
                               .stall_timeout = std::chrono::minutes(2),
                               .device_times = way == Way::timed})) {}

  /// Calls next() `times` times; goes on after an error, as a program may. False: the end came.
  bool take(int times) {
    for (int i = 0; i < times; ++i) try {
        if (!take_one()) return false;
      } catch (const CudaError& error) {
        ++outcome_.errors;
        outcome_.what = error.what();
      } catch (const penstock::SourceError& error) {  // A call of the transform's own.
        CHECK_THROWS_AS(std::rethrow_if_nested(error), CudaError);
        ++outcome_.errors;
        outcome_.what = error.what();
      }
    return true;
  }
  /// To the end.
  void take_all() {
    constexpr int kMost = 100;
    if (!take(kMost)) outcome_.end(batches_);
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
    ++outcome_.delivered;
    sampler_.samples(batch.ticket().epoch, batch.ticket().batch, expected_);
    if (graphs_)
      replay(batch);
    else
      check(*batch, stream_.get());
    batch.also_used_on(second_.get());
    check(*batch, second_.get());
    return true;
  }

  void check(const Numbers& batch, cudaStream_t stream) {
    const auto count = static_cast<std::int64_t>(expected_.size());
    outcome_.misplaced += batch.sample.extent(0) != count;
    queue_check(batch, expected_, stream, outcome_);
  }

  /// A step that copies the batch to a place of its own: there it is checked.
  void replay(const Lease<Numbers>& batch) {
    const Numbers copy = numbers_layout(4).bind(copy_.data(), batch->sample.extent(0));
    graph_.launch(batch, stream_.get(), [&](const Numbers& leased, cudaStream_t stream) {
      copy_on_device({}, leased, const_cast<Numbers&>(copy), stream);
    });
    check(copy, stream_.get());
  }

  Outcome& outcome_;
  const std::uint64_t batches_;
  const bool graphs_;
  const Sampler sampler_;
  std::vector<std::uint64_t> expected_;
  std::uint64_t next_ = 0;
  const Stream stream_, second_;
  const penstock::DeviceSlot copy_ =
      penstock::DeviceArena(1, numbers_layout(4).bytes()).acquire(stream_.get());
  penstock::StepGraph graph_;
  Prefetcher<Numbers> prefetcher_;
  Lease<Numbers> held_;
};

/// Calls it, and notes what it throws; true: nothing.
template <class Call>
bool attempt(Outcome& outcome, Call call) {
  try {
    call();
    return true;
  } catch (const CudaError& error) {
    ++outcome.errors;
    outcome.what = error.what();
    return false;
  }
}

/// Blocks and slots without a pipeline: a round comes to its end, or throws.
void copy_by_hand(int depth, Outcome& outcome) {
  constexpr std::uint64_t kRounds = 6;
  const auto layout = numbers_layout(1);
  const Stream stream;
  penstock::PinnedPool pool({.max_bytes = 512 * static_cast<std::size_t>(depth)});
  penstock::DeviceArena arena(static_cast<std::size_t>(depth), layout.bytes());
  for (std::uint64_t i = 0; i < kRounds; ++i)
    outcome.delivered += attempt(outcome, [&] {
      penstock::PinnedBlock block = pool.acquire(layout.bytes());
      Numbers on_host = layout.bind(block.data(), 1);
      write_row({.index = i, .row = 0}, on_host);
      penstock::DeviceSlot slot = arena.acquire(stream.get());
      block.copy_to(slot.data(), layout.bytes(), stream.get());
      queue_check(layout.bind(slot.data(), 1), {i}, stream.get(), outcome);
      slot.release_after(stream.get());
    });
  outcome.end(kRounds);
}

/// Batches on the host, which the consumer copies.
void copy_from_producer(int workers, Outcome& outcome) {
  const auto layout = numbers_layout(4);
  const Sampler sampler({.samples = 11, .batch_size = 4});
  const Stream stream;
  const penstock::DeviceSlot slot = penstock::DeviceArena(1, layout.bytes()).acquire(stream.get());
  penstock::PinnedPool pool;
  penstock::BatchProducer<Numbers> producer(layout, sampler, write_numbers, pool,
                                            {.workers = workers, .epochs = 2});
  for (bool more = true; more;)
    attempt(outcome, [&] {
      auto batch = producer.next();
      more = batch.has_value();
      if (!more) return;
      const std::vector<std::uint64_t> wanted(batch->ticket().samples.begin(),
                                              batch->ticket().samples.end());
      batch->copy_to(slot.data(), stream.get());
      const auto rows = static_cast<std::int64_t>(wanted.size());
      queue_check(layout.bind(slot.data(), rows), wanted, stream.get(), outcome);
      ++outcome.delivered;
    });
  outcome.end(2 * sampler.batches());
}

/// Values that come back from the device, each by a callback or as an error.
void read_back(int slots, Outcome& outcome) {
  constexpr std::uint64_t kValues = 6;
  const Stream stream;
  const penstock::DeviceSlot device = penstock::DeviceArena(1, 8 * kValues).acquire(stream.get());
  auto* const values = reinterpret_cast<std::uint64_t*>(device.data());
  std::vector<std::uint64_t> seen;  // before the thread that calls back
  std::uint64_t pushed = 0;
  {
    penstock::Readback<std::uint64_t> readback(static_cast<std::size_t>(slots));
    for (std::uint64_t i = 0; i < kValues; ++i)
      pushed += attempt(outcome, [&] {
        penstock::detail::check(cudaMemsetAsync(values + i, static_cast<int>(i), 8, stream.get()),
                                "cudaMemsetAsync");
        readback.push(values + i, stream.get(),
                      [&](std::uint64_t value) { seen.push_back(value & 0xFF); });
      });
    attempt(outcome, [&] { readback.drain(); });
    attempt(outcome, [&] { readback.drain(); });  // What was thrown is thrown once.
    outcome.end(pushed);
  }
  outcome.delivered = seen.size();
  outcome.misplaced += !std::is_sorted(seen.begin(), seen.end(), std::less_equal<>());
}

struct Scenario {
  const char* name;
  void (*run)(int workers, Outcome& outcome);
  bool drops = false;  // Batches that nobody will read; their failures need not be told.
};

// An epoch has three batches, the last of them short.
const Scenario scenarios[] = {
    {"fill, and gone", [](int workers, Outcome& outcome) { Run(workers, 2, outcome); }, true},
    {"to the end", [](int workers, Outcome& outcome) { Run(workers, 4, outcome).take_all(); }},
    {"epoch edge and short batch",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome).take(4); }, true},
    {"a lease outlives the rest",
     [](int workers, Outcome& outcome) {
       Run run(workers, 2, outcome);
       run.take(1);
       run.hold_one();
       run.take(1);
     },
     true},
    {"a transform on the device",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome, Way::transformed).take_all(); }},
    {"a sample at a time",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome, Way::by_sample).take_all(); }},
    {"a source on the device",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome, Way::on_device).take_all(); }},
    {"device times",
     [](int workers, Outcome& outcome) { Run(workers, 1, outcome, Way::timed).take_all(); }},
    {"a step as a graph",
     [](int workers, Outcome& outcome) { Run(workers, 2, outcome, Way::by_graph).take_all(); }},
    {"a rewind",
     [](int workers, Outcome& outcome) {
       Run run(workers, 2, outcome);
       run.take(2);
       run.rewind();
       run.take_all();
     },
     true},
    {"by hand", copy_by_hand},
    {"a producer alone", copy_from_producer},
    {"values that come back", read_back},
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

/// An object whose own release fails is lost: that is the one leak that nobody can prevent.
bool releases(const std::string& function) {
  return contains(function, "Free") || contains(function, "Destroy");
}

/// Calls that fail without a word, since no batch and no order depends on them: a copy's end is
/// polled again, and nothing but a measurement waits for it; a batch whose times are missing is not
/// counted; threads of this test's that capture nothing need no capture mode; the device of a
/// worker is the current one anyhow; without the free memory of the device, no advice is bounded by
/// it.
bool may_be_silent(const std::string& function) {
  for (const char* const silent : {"cudaEventQuery", "cudaEventElapsedTime", "cudaMemGetInfo",
                                   "cudaSetDevice", "cudaThreadExchangeStreamCaptureMode"})
    if (function == silent) return true;
  return releases(function);
}

void check_outcome(const Scenario& scenario, const Outcome& outcome, const Error& error) {
  CHECK(outcome.misplaced == 0);
  if (error.sticky) {
    CHECK((outcome.errors == 0 || contains(outcome.what, "cuda")));
    return;  // Each later call returns it again; nothing that runs on the device counts.
  }
  CHECK(outcome.torn == 0);
  CHECK(outcome.errors <= 1);
  if (outcome.errors == 1) CHECK(contains(outcome.what, outcome.function.c_str()));
  if (!outcome.ended) return;
  // An error is in the place of a batch, or beside it.
  CHECK(outcome.delivered <= outcome.expected);
  CHECK(outcome.delivered + static_cast<std::uint64_t>(outcome.errors) >= outcome.expected);
  const bool has_failed = outcome.calls >= outcome.nth;
  if (has_failed && !scenario.drops && !may_be_silent(outcome.function)) CHECK(outcome.errors == 1);
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

void every_call_fails(const Scenario& scenario, int workers) {
  Watchdog watchdog;
  Outcome clean;
  emulation::reset(emulation::options());
  run(scenario, workers, clean);
  REQUIRE(clean.errors == 0);
  if (clean.ended) REQUIRE(clean.delivered == clean.expected);
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
        Outcome outcome(function.function, nth);
        emulation::reset(emulation::options());
        emulation::fail_call(function.function, error.code, nth);
        run(scenario, workers, outcome);
        happened = !emulation::clear_failures();
        if (!error.sticky) cudaDeviceSynchronize();
        check_outcome(scenario, outcome, error);
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

}  // namespace

// A test case for each scenario: tests/CMakeLists.txt divides them among processes.
TEMPLATE_TEST_CASE_SIG("every CUDA call fails once", "[faults]", ((int number), number), 0, 1, 2, 3,
                       4, 5, 6, 7, 8, 9, 10, 11, 12) {
  static_assert(std::size(scenarios) == 13, "the test case above names each by its number");
  const int workers = GENERATE(1, 2);
  every_call_fails(scenarios[number], workers);
}
