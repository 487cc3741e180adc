// SPDX-License-Identifier: Apache-2.0

// A function that a pipeline calls ends the process, or destroys the pipeline, into which it then
// returns. The thread of main waits for a batch meanwhile. Each scenario runs in a child process:
// after std::exit its status has to be that of the call, whatever main would do if it came back;
// after a destruction main gets an empty lease, and stderr says what was wrong.

#include <sys/wait.h>
#include <unistd.h>
#include <penstock/batch_producer.hpp>
#include <penstock/device_transform.hpp>
#include <penstock/launch.hpp>
#include <penstock/readback.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline.hpp"
#include "support/asleep.hpp"

namespace {

using endings::Prefetcher;
using endings::Values;
using penstock::AnySource;
using penstock::Ticket;
using Producer = penstock::BatchProducer<Values>;

constexpr int kStatus = 7, kBatchCame = 8;
constexpr std::uint64_t kActs = 3;  // the batch at which something happens

penstock::test::Waiter in_main;  // asks for that batch

/// What the child does in the place of a scenario: `act` is called there.
using Act = std::function<void()>;

/// Takes batches up to the one that does not come.
template <class Take>
int consume(Take take) {
  for (std::uint64_t i = 0; i < kActs; ++i) endings::require(take(), "there is a batch");
  in_main.enter();
  return take() ? kBatchCame : EXIT_SUCCESS;
}

template <class T>
struct Owner {
  // Made behind the runtime's own objects, so destroyed before these.
  static std::unique_ptr<T>& object() {
    static const cudaError_t initialised = cudaFree(nullptr);
    static_cast<void>(initialised);
    static std::unique_ptr<T> owner;
    return owner;
  }
  static int consume(std::unique_ptr<T> made) {
    T* const pipeline = made.get();
    object() = std::move(made);
    if constexpr (std::is_same_v<T, Producer>)
      return ::consume([&] { return pipeline->next().has_value(); });
    else
      return ::consume([&] { return bool(pipeline->next(nullptr)); });
  }
};

void act_at(std::uint64_t batch, const Act& act) {
  if (batch != kActs) return;
  in_main.wait_until_asleep();
  act();
}

penstock::PrefetcherOptions options() {
  return {.workers = 2, .host_depth = 1, .device_depth = 2};
}

AnySource<Values> batch_source(const Act& act) {
  return [act](const Ticket& ticket, Values& batch) {
    act_at(ticket.batch, act);
    endings::fill(ticket, batch);
  };
}

int run(AnySource<Values> source, penstock::AnySampler sampler = endings::sampler(),
        penstock::PrefetcherOptions settings = options()) {
  return Owner<Prefetcher>::consume(std::make_unique<Prefetcher>(
      endings::layout(), std::move(sampler), std::move(source), std::move(settings)));
}

int in_source(const Act& act) {
  return run(batch_source(act));
}

int in_per_sample_source(const Act& act) {
  return run(penstock::per_sample([act](const penstock::Sample& sample, Values& batch) {
    if (sample.row == 5) act_at(sample.batch, act);
    batch.value(sample.row) = sample.index;
  }));
}

int in_on_device_source(const Act& act) {
  penstock::PrefetcherOptions settings = options();
  settings.host_depth = 0;
  return run(penstock::on_device(
                 [act](const Ticket& ticket, Values&, cudaStream_t) { act_at(ticket.batch, act); }),
             endings::sampler(), settings);
}

/// The second worker's source is being made while the first one works.
int in_make(const Act& act) {
  const auto made = std::make_shared<std::atomic<int>>(0);
  return run(penstock::per_worker([act, made] {
    if (++*made == 2) {
      in_main.wait_until_asleep();
      act();
    }
    return [](const Ticket& ticket, Values& batch, const std::stop_token& stop) {
      while (ticket.batch == kActs && !stop.stop_requested()) std::this_thread::yield();
      endings::fill(ticket, batch);
      return true;
    };
  }));
}

int in_sampler(const Act& act) {
  struct Acting {
    Act act;
    penstock::Sampler sampler = endings::sampler();
    std::uint64_t batches() const { return sampler.batches(); }
    void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
      act_at(batch, act);
      sampler.samples(epoch, batch, out);
    }
  };
  return run(endings::fill, Acting{act});
}

int in_will_need(const Act& act) {
  penstock::PrefetcherOptions settings = options();
  settings.workers = 1;
  settings.read_ahead = {[act, calls = std::make_shared<std::atomic<std::uint64_t>>(0)](
                             std::span<const std::uint64_t>) { act_at((*calls)++, act); },
                         1};
  return run(endings::fill, endings::sampler(), settings);
}

std::unique_ptr<Prefetcher> transforming(penstock::PrefetcherOptions settings, const Act& act,
                                         void (*wait)()) {
  const auto acts = [act, wait](const Ticket& ticket, const Values&, Values&, cudaStream_t) {
    if (ticket.batch != kActs) return;
    wait();
    act();
  };
  return std::make_unique<Prefetcher>(
      endings::layout(), endings::sampler(), endings::fill,
      penstock::DeviceTransform<Values, Values>{endings::layout(), acts}, settings);
}

/// On the thread that stages the batch: a worker's, since there is always a slot. The batch is
/// asked for before it is filled.
int in_workers_transform(const Act& act) {
  penstock::PrefetcherOptions settings = options();
  settings.device_depth = kActs + 2;
  return Owner<Prefetcher>::consume(
      transforming(settings, act, [] { in_main.wait_until_asleep(); }));
}

/// On the thread of main, which ends the lease of the only slot while the worker waits for memory.
int in_transform_of_a_leases_end(const Act& act) {
  auto& owner = Owner<Prefetcher>::object();
  owner = transforming({.workers = 1, .host_depth = 1, .device_depth = 1}, act, [] {});
  for (std::uint64_t i = 0; i + 1 < kActs; ++i)
    endings::require(bool(owner->next(nullptr)), "there is a batch");
  endings::Lease last = owner->next(nullptr);
  const auto waited = [&] { return owner->stats().source.waiting_for_room; };
  while (owner->stats().source.batches != kActs + 1) std::this_thread::yield();
  for (const auto before = waited(); waited() == before;) std::this_thread::yield();
  last.release();
  return owner == nullptr ? EXIT_SUCCESS : kBatchCame;
}

int in_producer(AnySource<Values> source, penstock::ProducerOptions settings) {
  static penstock::PinnedPool* const pool = new penstock::PinnedPool;
  return Owner<Producer>::consume(std::make_unique<Producer>(
      endings::layout(), endings::sampler(), std::move(source), *pool, std::move(settings)));
}

int in_producers_source(const Act& act) {
  const int status = in_producer(batch_source(act), {.workers = 2, .depth = 2});
  return status == kBatchCame ? EXIT_SUCCESS : status;  // What is ready still comes.
}

int in_on_ready(const Act& act) {
  penstock::ProducerOptions settings{.workers = 1, .depth = 1};
  settings.on_ready = [act, calls = std::make_shared<std::atomic<std::uint64_t>>(0)] {
    if ((*calls)++ == kActs - 1) act_at(kActs, act);  // It has the last batch before that.
  };
  return in_producer(
      [](const Ticket& ticket, Values& batch, const std::stop_token& stop) {
        while (ticket.batch == kActs && !stop.stop_requested()) std::this_thread::yield();
        endings::fill(ticket, batch);
        return true;
      },
      std::move(settings));
}

/// Main waits until all is called back; what was pushed before the end is.
int in_readback(const Act& act) {
  using Readback = penstock::Readback<int>;
  auto& owner = Owner<Readback>::object();
  owner = std::make_unique<Readback>(4);
  Readback* const readback = owner.get();
  void* memory = nullptr;
  endings::require(cudaMalloc(&memory, sizeof(int)) == cudaSuccess, "there is memory");
  const int* const value = static_cast<int*>(memory);
  static std::atomic<int> called{0};
  const penstock::Stream stream;
  std::atomic<bool> pushed{false};
  readback->push(value, stream, [&](int) {
    while (!pushed) std::this_thread::yield();
    in_main.wait_until_asleep();
    act();
    ++called;
  });
  for (int i = 0; i < 2; ++i) readback->push(value, stream, [](int) { ++called; });
  pushed = true;
  in_main.enter();
  readback->drain();
  endings::require(called == 3, "all was called back");
  return 0;
}

/// A functor of for_each, which runs on a thread of the emulated runtime.
int in_a_functor(const Act& act) {
  auto& owner = Owner<Prefetcher>::object();
  owner = std::make_unique<Prefetcher>(endings::layout(), endings::sampler(), endings::fill,
                                       endings::kOptions);
  const penstock::Stream stream;
  const endings::Lease lease = owner->next(stream);
  penstock::for_each(stream, 1, [act](std::int64_t) { act(); });
  for (;;) ::pause();
}

template <class T>
void destroy() {
  Owner<T>::object().reset();
}

struct Scenario {
  const char* name;
  int (*run)(const Act&);
  void (*destroys)();
};

const std::vector<Scenario> scenarios{
    {"source", in_source, destroy<Prefetcher>},
    {"per_sample_source", in_per_sample_source, destroy<Prefetcher>},
    {"on_device_source", in_on_device_source, destroy<Prefetcher>},
    {"make", in_make, destroy<Prefetcher>},
    {"sampler", in_sampler, destroy<Prefetcher>},
    {"will_need", in_will_need, destroy<Prefetcher>},
    {"workers_transform", in_workers_transform, destroy<Prefetcher>},
    {"transform_of_a_leases_end", in_transform_of_a_leases_end, destroy<Prefetcher>},
    {"producers_source", in_producers_source, destroy<Producer>},
    {"on_ready", in_on_ready, destroy<Producer>},
    {"readback", in_readback, destroy<penstock::Readback<int>>},
    {"functor", in_a_functor, nullptr},
};

/// The status of a child that runs `scenario`, and what it has written on stderr.
std::pair<int, std::string> in_child(const Scenario& scenario, const Act& act) {
  std::array<int, 2> ends{};
  endings::require(::pipe(ends.data()) == 0, "there is a pipe");
  const pid_t child = ::fork();
  endings::require(child >= 0, "there is a child");
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::alarm(60);  // A hang is a failure.
    std::_Exit(scenario.run(act));
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 256> buffer{};
  for (ssize_t got = 0; (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  endings::require(::waitpid(child, &status, 0) == child, "the child ends");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text};
}

void require_end(const Scenario& scenario, const Act& act, int status, std::string_view text) {
  const auto [its, says] = in_child(scenario, act);
  if (its == status && (text.empty() ? says.empty() : says.find(text) != std::string::npos)) return;
  std::fprintf(stderr, "endings: status %d, not %d; it says: %s\n", its, status, says.c_str());
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Scenario& scenario : scenarios)
    if (argc == 3 && std::string_view(scenario.name) == argv[1]) {
      if (std::string_view("exits") == argv[2])
        require_end(
            scenario, [] { std::exit(kStatus); }, kStatus, "");
      else
        require_end(scenario, scenario.destroys, 0, "was destroyed by a");
      return EXIT_SUCCESS;
    }
  std::fprintf(stderr, "no such scenario\n");
  return 2;
}
