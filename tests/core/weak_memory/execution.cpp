// SPDX-License-Identifier: Apache-2.0

#include "execution.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "support/catch.hpp"

namespace penstock::test::weak {

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

/// Stacks are used again by the next execution: most of the time goes into their page faults
/// otherwise.
std::vector<std::unique_ptr<std::byte[]>>& free_stacks() {
  static std::vector<std::unique_ptr<std::byte[]>> stacks;
  return stacks;
}

/// The exceptions that a thread is handling. The C++ runtime keeps them for each thread of the
/// system; here each fiber has its own.
struct Exceptions {
  void* caught = nullptr;
  unsigned uncaught = 0;

  static void exchange(Exceptions& from, const Exceptions& to) {
    void* globals = abi::__cxa_get_globals();
    std::memcpy(&from, globals, sizeof from);
    std::memcpy(globals, &to, sizeof to);
  }
};

}  // namespace

void VectorClock::join(const VectorClock& other) {
  for (std::size_t i = 0; i < kMostThreads; ++i) at[i] = std::max(at[i], other.at[i]);
}

struct Execution::Fiber {
  State state = State::runnable;
  bool timed_out = false;
  VectorClock clock;
  std::function<void()> body;
  std::vector<std::size_t> joiners;
  std::unique_ptr<std::byte[]> stack;
  ucontext_t context{};
  Exceptions exceptions;
};

Execution* Execution::current_ = nullptr;

Execution::Execution(std::uint32_t seed, std::size_t most_steps)
    : random_(seed), steps_left_(most_steps) {
  // Some executions switch all the time, some hardly ever: each finds other mistakes.
  switch_once_in_ = std::array<std::size_t, 4>{2, 4, 12, 40}[choose(4)];
}

Execution::~Execution() {
  if (failure_.empty())
    for (auto& fiber : fibers_) free_stacks().push_back(std::move(fiber->stack));
  else  // The objects on their stacks are never destroyed; what they refer to stays.
    for (auto& fiber : fibers_) static_cast<void>(fiber.release());
}

std::string Execution::run(const std::function<void()>& body) {
  current_ = this;
  start(body);
  running_ = 0;
  swapcontext(&outside_, &fibers_[0]->context);
  current_ = nullptr;
  return failure_;
}

std::size_t Execution::choose(std::size_t count) {
  return count <= 1 ? 0 : random_() % count;
}

void Execution::note(Accesses& accesses, Access access) {
  bool ordered = clock().has_seen(accesses.writer, accesses.written);
  const std::uint32_t now = tick();
  if (access == Access::read) {
    accesses.reads[running_] = now;
  } else {
    for (std::size_t i = 0; i < kMostThreads; ++i)
      ordered &= clock().has_seen(i, accesses.reads[i]);
    accesses.writer = running_;
    accesses.written = now;
  }
  if (!ordered) fail("data race");
}

VectorClock& Execution::clock() {
  return fibers_[running_]->clock;
}

void Execution::step() {
  if (steps_left_-- == 0) fail("livelock: too many steps");
  if (once_in(switch_once_in_)) yield();
}

void Execution::yield() {
  std::vector<std::size_t> runnable;
  for (std::size_t i = 0; i < fibers_.size(); ++i)
    if (i != running_ && fibers_[i]->state == State::runnable) runnable.push_back(i);
  if (!runnable.empty()) switch_to(runnable[choose(runnable.size())]);
}

bool Execution::block(bool timed) {
  Fiber& self = *fibers_[running_];
  self.state = timed ? State::blocked_timed : State::blocked;
  self.timed_out = false;
  switch_away();
  return !self.timed_out;
}

void Execution::wake(std::size_t thread) {
  fibers_[thread]->state = State::runnable;
}

/// This thread cannot go on.
void Execution::switch_away() {
  yield();
  if (fibers_[running_]->state == State::runnable) return;  // Somebody woke it meanwhile.
  // Nobody can go on. Time passes, for one of those that wait for it.
  std::vector<std::size_t> timed;
  for (std::size_t i = 0; i < fibers_.size(); ++i)
    if (fibers_[i]->state == State::blocked_timed) timed.push_back(i);
  if (timed.empty()) {
    const bool all_finished = std::all_of(fibers_.begin(), fibers_.end(), [](const auto& fiber) {
      return fiber->state == State::finished;
    });
    if (!all_finished) fail("deadlock: every thread waits");
    setcontext(&outside_);
  }
  const std::size_t next = timed[choose(timed.size())];
  fibers_[next]->state = State::runnable;
  fibers_[next]->timed_out = true;
  if (next != running_) switch_to(next);
}

void Execution::switch_to(std::size_t thread) {
  Fiber& from = *fibers_[running_];
  Fiber& to = *fibers_[thread];
  Exceptions::exchange(from.exceptions, to.exceptions);
  running_ = thread;
  swapcontext(&from.context, &to.context);
}

std::size_t Execution::start(std::function<void()> body) {
  const std::size_t thread = fibers_.size();
  if (thread == kMostThreads) fail("too many threads: raise kMostThreads");
  if (--starts_until_failure_ == 0)
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  auto fiber = std::make_unique<Fiber>();
  if (thread > 0) {
    tick();
    fiber->clock = clock();
  }
  fiber->body = std::move(body);
  if (free_stacks().empty()) free_stacks().push_back(std::make_unique<std::byte[]>(kStackBytes));
  fiber->stack = std::move(free_stacks().back());
  free_stacks().pop_back();
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber->context, &Execution::enter, 0);
  fibers_.push_back(std::move(fiber));
  return thread;
}

void Execution::enter() {
  Execution& execution = *current_;
  Fiber& self = *execution.fibers_[execution.running_];
  try {
    self.body();
  } catch (const std::exception& error) {
    execution.fail(std::string("an exception left a thread: ") + error.what());
  } catch (...) {
    execution.fail("an exception left a thread");
  }
  self.body = nullptr;  // What it captured goes now, as with a real thread.
  execution.tick();
  self.state = State::finished;
  for (const std::size_t joiner : self.joiners) execution.wake(joiner);
  execution.switch_away();
  std::abort();  // A finished thread is never switched to.
}

bool Execution::finished(std::size_t thread) const {
  return fibers_[thread]->state == State::finished;
}

void Execution::join(std::size_t thread) {
  while (!finished(thread)) {
    fibers_[thread]->joiners.push_back(running_);
    block();
  }
  clock().join(fibers_[thread]->clock);
}

void Execution::fail(const std::string& what) {
  failure_ = what;
  setcontext(&outside_);
  std::abort();
}

void wait_until_others_wait() {
  while (Execution::current()->block(true)) {
  }
}

void fail_start(int nth) {
  Execution::current()->fail_start(nth);
}

void expect(bool holds, const char* what) {
  if (!holds) Execution::current()->fail(what);
}

void explore(const std::function<void()>& body, ExploreOptions options) {
  for (int i = 0; i < options.executions; ++i) {
    const std::uint32_t seed = options.first_seed + static_cast<std::uint32_t>(i);
    const std::string failure = Execution(seed, options.most_steps).run(body);
    if (!failure.empty()) FAIL(failure << " (seed " << seed << ')');
  }
  SUCCEED();
}

}  // namespace penstock::test::weak
