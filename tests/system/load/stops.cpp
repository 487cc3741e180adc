// SPDX-License-Identifier: Apache-2.0

// SIGSTOP and SIGCONT, as Ctrl-Z and `fg` send them, for longer than the time-outs: a process that
// does not run does not stall. A child runs a pipeline whose consumer waits for nearly every batch,
// and a pool whose block is nearly always held; this process stops it again and again. Neither may
// time out, and a source that does stall must still be named.

#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher.hpp>

#include <poll.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <stop_token>
#include <system_error>
#include <thread>

#include "audit.hpp"
#include "machine.hpp"
#include "scenarios.hpp"

namespace penstock::test {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kTimeOut = 2s, kStop = 5s, kRun = 700ms;

/// The other end of the pipe, which is closed when there are no more stops.
bool is_over(int pipe) {
  pollfd end{.fd = pipe, .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, 0) != 0;
}

/// Two threads and one block, which is nearly always held.
void share_a_block(int pipe) {
  PinnedPool pool{{.max_bytes = 4096, .timeout = kTimeOut}};
  const auto hold = [&] {
    while (!is_over(pipe)) {
      {
        const PinnedBlock block = pool.acquire(4096);
        std::this_thread::sleep_for(5ms);
      }
      std::this_thread::sleep_for(1ms);  // Who takes it back at once is before all who wait.
    }
  };
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      hold();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  hold();
  other.join();
  if (failure) std::rethrow_exception(failure);
}

void deliver_slowly(int pipe) {
  const Sampler sampler = rows_sampler(1000, 4, 9);
  const auto take_long = [](std::uint64_t) { std::this_thread::sleep_for(5ms); };
  const Stream stream;
  Audit audit(sampler);
  Prefetcher<Rows> prefetcher(
      rows_layout(4, 2), sampler, batch_source(sampler.batches(), take_long),
      {.workers = 1, .epochs = std::uint64_t{1} << 40, .stall_timeout = kTimeOut});
  while (!is_over(pipe)) audit.take(prefetcher.next(stream.get()), stream.get());
  audit.finish();
  std::cout << audit.next() << " batches, stopped now and then\n";
}

/// A source that never comes back is named all the same.
void stall() {
  const Stream stream;
  const Sampler sampler = rows_sampler(1000, 4, 9);
  Prefetcher<Rows> prefetcher(rows_layout(4, 2), sampler,
                              [](const Ticket&, Rows&, const std::stop_token& stop) {
                                while (!stop.stop_requested()) std::this_thread::sleep_for(5ms);
                              },
                              {.workers = 1, .stall_timeout = kTimeOut});
  try {
    prefetcher.next(stream.get());
  } catch (const StallError& error) {
    if (error.stage() == "source") return;
  }
  throw std::runtime_error("a source that stalls was not named");
}

/// Each on a thread of its own.
void be_stopped(int pipe) {
  fresh_machine();
  std::exception_ptr failures[3];
  const auto run = [](auto load, std::exception_ptr& failure) {
    return std::thread([&failure, load] {
      try {
        load();
      } catch (...) {
        failure = std::current_exception();
      }
    });
  };
  std::thread threads[] = {run([pipe] { share_a_block(pipe); }, failures[0]),
                           run([pipe] { deliver_slowly(pipe); }, failures[1]),
                           run([] { stall(); }, failures[2])};
  for (std::thread& thread : threads) thread.join();
  bool failed = false;
  for (const std::exception_ptr& failure : failures) try {
      if (failure) std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      std::cerr << "stopped for " << kStop.count() << " ms at a time: " << error.what() << '\n';
      failed = true;
    }
  if (failed) throw std::runtime_error("a stop of the process was taken for a stall");
}

int child(int pipe) noexcept {
  try {
    be_stopped(pipe);
    std::cout.flush();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

}  // namespace

void stopped(std::uint64_t stops) {
  int pipe[2];
  if (::pipe(pipe) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const ::pid_t process = ::fork();  // No thread yet, and no CUDA.
  if (process < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (process == 0) {
    ::close(pipe[1]);
    ::_exit(child(pipe[0]));
  }
  ::close(pipe[0]);
  int status = 0;
  bool ended = false;
  for (std::uint64_t i = 0; i < stops && !ended; ++i) {
    std::this_thread::sleep_for(kRun + std::chrono::milliseconds(scrambled(i) % 100));
    ::kill(process, SIGSTOP);
    std::this_thread::sleep_for(kStop);
    ::kill(process, SIGCONT);
    ended = ::waitpid(process, &status, WNOHANG) == process;
    std::cout << "stop " << i + 1 << " of " << stops << std::endl;
  }
  ::close(pipe[1]);
  if (!ended) ::waitpid(process, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error("the process that was stopped failed");
}

}  // namespace penstock::test
