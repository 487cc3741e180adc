// SPDX-License-Identifier: Apache-2.0

// penstock_clock NAME [SIZE]: pipelines while the clocks are set. What users and NTP set is
// CLOCK_REALTIME: nothing of the library may read it or wait for it. CLOCK_MONOTONIC is never set,
// but it goes on while a process is stopped, and some virtual machines let it stand still: then a
// time-out may come late, and never early.

#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>

#include "audit.hpp"
#include "flat.hpp"
#include "machine.hpp"
#include "scenario.hpp"
#include "wild_clock.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;

Sampler clock_sampler() {
  return rows_sampler(1000, 4, 9);
}

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

/// The interposed functions are the ones that the C++ library calls.
void check_the_means() {
  wild_clock::make_realtime_jump();
  const auto before = std::chrono::system_clock::now(), after = std::chrono::system_clock::now();
  require(after - before > 24h * 300 || before - after > 24h * 300, "CLOCK_REALTIME does not jump");
  const std::uint64_t waits = wild_clock::realtime_waits();
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  condition.wait_until(lock, std::chrono::system_clock::time_point(1s));
  require(wild_clock::realtime_waits() == waits + 1, "a wait for CLOCK_REALTIME is not seen");
  const auto now = std::chrono::steady_clock::now();
  wild_clock::leap(10h);
  require(std::chrono::steady_clock::now() - now >= 10h, "CLOCK_MONOTONIC does not leap");
}

/// Sets the clock on a thread of its own, again and again.
template <class Set>
class Meddler {
 public:
  /// What waits gives up only where 16 of these pauses fall into one wait.
  Meddler(std::chrono::milliseconds pause, Set set)
      : thread_([this, pause, set] {
          while (!over_) {
            std::this_thread::sleep_for(pause);  // by the system's clock
            set();
          }
        }) {}
  ~Meddler() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// A pipeline whose consumer waits for nearly each batch, with all that reads clocks: device times,
/// statistics, results that come back, a pool with one block for two threads.
void deliver(const char* name, std::uint64_t batches) {
  const Sampler sampler = clock_sampler();
  const auto take_a_while = [](std::uint64_t) { std::this_thread::sleep_for(200us); };
  const Stream stream;
  Audit audit(sampler);
  Flat flat(name, batches);
  Prefetcher<Rows> prefetcher(rows_layout(4, 2), sampler,
                              batch_source(sampler.batches(), take_a_while),
                              {.workers = 2,
                               .epochs = std::uint64_t{1} << 40,
                               .stall_timeout = 5min,
                               .device_times = true});
  Readback<std::uint64_t> readback(2);
  std::uint64_t results = 0;
  PinnedPool pool{{.max_bytes = 4096, .timeout = 1min}};
  std::atomic<bool> over{false};
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      while (!over) {
        {
          const PinnedBlock block = pool.acquire(4096);
          std::this_thread::sleep_for(100us);
        }
        std::this_thread::sleep_for(100us);  // Who takes it back at once is before all who wait.
      }
    } catch (...) {
      failure = std::current_exception();
    }
  });
  try {
    for (std::uint64_t i = 0; i < batches; ++i) {
      const auto batch = prefetcher.next(stream.get());
      audit.take(batch, stream.get());
      readback.push(batch->place.data_handle(), stream.get(),
                    [&results, i](std::uint64_t place) { results += place == i ? 1 : 0; });
      const PinnedBlock block = pool.acquire(4096);
      flat.reach(i + 1);
    }
    readback.drain();
  } catch (...) {
    over = true;
    other.join();
    throw;
  }
  over = true;
  other.join();
  if (failure) std::rethrow_exception(failure);
  audit.finish();
  require(results == batches, "results are missing");
  flat.finish();  // before the snapshot, which holds the records of the last batches
  const Stats stats = prefetcher.stats();
  require(stats.source.busy >= 0ns && stats.source.waiting_for_room >= 0ns &&
              stats.consumer.waiting_for_input >= 0ns && stats.copy.busy >= 0ns,
          "a time of the statistics is negative");
}

void realtime_jumps(std::uint64_t batches) {
  fresh_machine();
  check_the_means();
  const std::uint64_t reads = wild_clock::realtime_reads(), waits = wild_clock::realtime_waits();
  deliver("realtime", batches);
  require(wild_clock::realtime_reads() == reads, "something reads CLOCK_REALTIME");
  require(wild_clock::realtime_waits() == waits, "something waits for CLOCK_REALTIME");
}

void monotonic_leaps(std::uint64_t batches) {
  fresh_machine();
  check_the_means();
  const Meddler meddler(50ms, [] { wild_clock::leap(1h); });
  deliver("leaps", batches);
}

void monotonic_stands(std::uint64_t batches) {
  fresh_machine();
  check_the_means();
  const Meddler meddler(3ms, [] {
    wild_clock::stand_still(true);
    std::this_thread::sleep_for(10ms);
    wild_clock::stand_still(false);
  });
  deliver("stands still", batches);
}

/// What does stall is named, however the clock leaps meanwhile.
void stalls_are_told(std::uint64_t times) {
  fresh_machine();
  const Meddler meddler(3ms, [] { wild_clock::leap(1h); });
  const Stream stream;
  for (std::uint64_t i = 0; i < times; ++i) {
    Prefetcher<Rows> prefetcher(rows_layout(4, 2), clock_sampler(),
                                [](const Ticket&, Rows&, const std::stop_token& stop) {
                                  while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
                                },
                                {.workers = 1, .stall_timeout = 100ms});
    bool told = false;
    try {
      prefetcher.next(stream.get());
    } catch (const StallError& error) {
      told = error.stage() == "source";
    }
    require(told, "a source that stalls was not named");
    PinnedPool pool{{.max_bytes = 4096, .timeout = 100ms}};
    const PinnedBlock block = pool.acquire(4096);
    told = false;
    try {
      const PinnedBlock none = pool.acquire(4096);
    } catch (const PoolExhausted&) {
      told = true;
    }
    require(told, "a pool that is exhausted did not say so");
  }
}

}  // namespace
}  // namespace penstock::test

int main(int argc, char** argv) {
  using namespace penstock::test;
  return run_scenario(
      argc, argv,
      {{"realtime", "batches while CLOCK_REALTIME jumps by years", 30'000, realtime_jumps},
       {"leaps", "batches while CLOCK_MONOTONIC leaps by hours", 30'000, monotonic_leaps},
       {"stands", "batches while CLOCK_MONOTONIC stands still now and then", 30'000,
        monotonic_stands},
       {"stalls", "stalls while CLOCK_MONOTONIC leaps by hours", 50, stalls_are_told}});
}
