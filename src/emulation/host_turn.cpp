// SPDX-License-Identifier: Apache-2.0
#include "host_turn.hpp"

#include <algorithm>

#include "device.hpp"
#include "report.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

bool serialises_host_functions(const Options& options) {
  return options.schedule == Schedule::lazy ||
         (options.schedule == Schedule::random && options.seed % 2 == 0);
}

bool HostTurn::take(Stream& stream) {
  if (running_ == &stream || !serialises_host_functions(options_)) return true;
  if (running_ == nullptr) {
    running_ = &stream;
    since_ = Clock::now();
    reported_ = false;
    return true;
  }
  if (std::find(waiting_.begin(), waiting_.end(), &stream) == waiting_.end())
    waiting_.push_back(&stream);
  const Time now = Clock::now();
  const bool reports = options_.report_after.count() > 0;
  if (reports && !reported_ && now >= since_ + options_.report_after) report_wait(stream);
  stream.look_again =
      reports && !reported_ ? since_ + options_.report_after : now + std::chrono::hours(1);
  return false;
}

Stream* HostTurn::give_back(const Stream& stream, std::uint64_t draw) {
  if (running_ != &stream) return nullptr;
  running_ = nullptr;
  if (waiting_.empty()) return nullptr;
  const std::size_t next =
      options_.schedule == Schedule::random ? draw % waiting_.size() : std::size_t{0};
  running_ = waiting_[next];
  since_ = Clock::now();
  reported_ = false;
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(next));
  return running_;
}

void HostTurn::report_wait(const Stream& waiting) {
  reported_ = true;
  report("a host function of " + describe(*running_) + " has run for " +
         std::to_string(options_.report_after.count()) + " ms, and one of " + describe(waiting) +
         " waits for its turn. CUDA may run the host functions of different streams one at a time, "
         "and this schedule does: if the first waits for the second, it waits for ever. Let it not "
         "wait (docs/emulation.md, \"Host functions\").");
}

}  // namespace penstock::emulation::detail
