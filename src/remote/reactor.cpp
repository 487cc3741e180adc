// SPDX-License-Identifier: Apache-2.0
#include "reactor.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "receive_heap.hpp"
#include "transfers.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr std::chrono::seconds kLongestSleep{1};
constexpr double kLate = 0.95;  // this share of the requests is not

std::string seconds(Clock::duration duration) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
  return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " s";
}

}  // namespace

Reactor::Reactor(Transfers& transfers, std::size_t number)
    : transfers_(transfers),
      number_(number),
      multi_(::curl_multi_init()),
      random_(std::random_device{}()) {
  if (!multi_) throw std::runtime_error("libcurl: there is no multi handle");
  ::curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS,
                      static_cast<long>(transfers.options.max_requests) + 1);
}

Reactor::~Reactor() {
  join();
}

void Reactor::start() {
  thread_ = std::thread([this] { run(); });
}

void Reactor::join() noexcept {
  if (thread_.joinable()) thread_.join();
}

void Reactor::run() noexcept try {
  constexpr std::size_t kMostBuffers = 64;
  const auto requests = static_cast<std::size_t>(transfers_.options.max_requests);
  const ReceiveHeap heap(std::min(kMostBuffers, (requests - 1) / transfers_.reactors() + 1));
  work();
} catch (const std::bad_alloc&) {
  work();
}

void Reactor::work() noexcept {
  while (!transfers_.stopping()) {
    start_ready();
    int running = 0;
    const CURLMcode code = ::curl_multi_perform(multi_.get(), &running);
    if (code != CURLM_OK) end_all(::curl_multi_strerror(code));
    take_ended();
    const std::uint64_t cancellations = transfers_.cancellations();
    if (cancellations != cancellations_seen_) {
      cancellations_seen_ = cancellations;
      transfers_.sweep_queue();
      next_look_ = {};
    }
    if (const Time now = Clock::now(); now >= next_look_) look_at_times(now);
    // What comes from here on ends the sleep, and what came before is seen now.
    asleep_.exchange(true);
    start_ready();
    if (transfers_.stopping()) break;
    const bool has_news = transfers_.cancellations() != cancellations_seen_;
    ::curl_multi_poll(multi_.get(), nullptr, 0, has_news ? 0 : poll_milliseconds(Clock::now()),
                      nullptr);
    asleep_ = false;
  }
  end_all("the client was cancelled");
}

int Reactor::poll_milliseconds(Time now) const noexcept {
  if (next_look_ <= now) return 0;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(
                              std::min<Clock::duration>(next_look_ - now, kLongestSleep))
                              .count());
}

/// Takes no more than its share of the requests, as long as other reactors have less.
void Reactor::start_ready() noexcept {
  const auto reactors = static_cast<int>(transfers_.reactors());
  for (;;) {
    if (running_ >= (transfers_.limit.limit() + reactors - 1) / reactors) {
      transfers_.pass_on(number_);
      return;
    }
    Part* const part = transfers_.next_ready();
    if (part == nullptr) return;
    if (part->cancelled->load(std::memory_order_acquire)) {
      transfers_.limit.end(Clock::now(), 0, false);
      fail(*part, "cancelled", 0);
      continue;
    }
    active_.push_back(*part);
    if (part->begun == Time{}) part->begun = Clock::now();
    if (part->opening) part->received = 0;  // Its size is not known.
    ++part->attempts;
    send(*part, part->received, false);
  }
}

Attempt& Reactor::free_attempt() {
  for (const auto& attempt : attempts_)
    if (!attempt->active) return *attempt;
  attempts_.push_back(std::make_unique<Attempt>(transfers_.options));
  return *attempts_.back();
}

/// The limit has counted the request. False: it cannot be sent; then the part has failed, unless
/// this was a hedge.
bool Reactor::send(Part& part, std::size_t from, bool is_hedge) noexcept {
  const Time now = Clock::now();
  std::string why;
  try {
    Attempt& attempt = free_attempt();
    std::span<std::byte> into = part.target.subspan(from);
    if (is_hedge) {
      attempt.buffer = transfers_.hedge_buffers.take(into.size());
      if (!attempt.buffer) throw std::bad_alloc();
      into = {attempt.buffer.data(), into.size()};
    }
    attempt.prepare(part, from, into, is_hedge || part.fresh_connection, now);
    const CURLMcode code = ::curl_multi_add_handle(multi_.get(), attempt.easy());
    if (code != CURLM_OK) throw std::runtime_error(::curl_multi_strerror(code));
    attempt.active = true;
    attempt.nvtx_range = ranges_.begin(part, from, into.size(), is_hedge);
    ++running_;
    (is_hedge ? part.hedge : part.primary) = &attempt;
    count(transfers_.counters.requests);
    if (!is_hedge && !part.hedged) attempt.hedge_at = hedge_time(part, now);
    next_look_ = std::min(next_look_, attempt.next_look(transfers_.options.stall_timeout));
    if (attempt.hedge_at != Time{}) next_look_ = std::min(next_look_, attempt.hedge_at);
    return true;
  } catch (const std::exception& error) {
    try {
      why = error.what();
    } catch (const std::bad_alloc&) {  // It stays empty.
    }
  } catch (...) {
    why = "an error";  // short enough for no allocation
  }
  transfers_.limit.end(now, 0, false);
  if (is_hedge) return false;
  active_.remove(part);
  fail(part, why, 0);
  return false;
}

/// When the request is late: later than most of its size, or too late for its due time. The epoch:
/// nobody can tell yet.
Time Reactor::hedge_time(const Part& part, Time now) const noexcept {
  if (!transfers_.options.hedging) return {};
  const std::size_t bytes = part.target.size() - part.received;
  const auto late = transfers_.latencies.quantile(bytes, kLate);
  const auto usual = transfers_.latencies.quantile(bytes, 0.5);
  if (!late || !usual) return {};
  Time at = now + *late;
  // A second request takes as long as usual, and is of no use before the first one should be done.
  if (part.due != Time{}) at = std::min(at, std::max(part.due - *usual, now + *usual));
  return at;
}

void Reactor::send_hedge(Attempt& late, Time now) noexcept {
  Part& part = late.part();
  late.hedge_at = {};
  if (transfers_.limit.throttled_lately(now)) return;
  if (!transfers_.try_hedge()) {  // Perhaps later.
    const auto again = transfers_.latencies.quantile(part.target.size(), kLate);
    if (again) late.hedge_at = now + *again;
    return;
  }
  part.hedged = true;
  transfers_.limit.begin_anyway(now);
  send(part, part.opening ? 0 : late.from() + late.received(), true);
}

void Reactor::take_ended() noexcept {
  int left = 0;
  while (const CURLMsg* const message = ::curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    char* self = nullptr;
    ::curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &self);
    auto& attempt = *reinterpret_cast<Attempt*>(self);
    try {
      ended(attempt, attempt.judge(code));
    } catch (const std::exception&) {  // There is no memory for the message.
      ended(attempt, {});
    }
  }
}

/// Takes the attempt from libcurl: it writes nothing any more, and is free for another part. Sets
/// the pointer to null.
void Reactor::let_go(Attempt*& attempt, bool throttled) noexcept {
  if (attempt == nullptr) return;
  ::curl_multi_remove_handle(multi_.get(), attempt->easy());
  ranges_.end(attempt->nvtx_range);
  count(transfers_.counters.bytes, attempt->received());
  transfers_.limit.end(Clock::now(), attempt->received(), throttled);
  attempt->active = false;
  attempt->buffer = {};
  attempt = nullptr;
  --running_;
}

void Reactor::ended(Attempt& attempt, const Outcome& outcome) noexcept {
  Part& part = attempt.part();
  const bool is_hedge = part.hedge == &attempt;
  if (outcome.throttled) count(transfers_.counters.throttled);
  if (outcome.damaged) count(transfers_.counters.damaged);
  if (outcome.kind == Outcome::Kind::whole) {
    succeeded(part, attempt, is_hedge);
    return;
  }
  if (!is_hedge && !part.opening) part.received = attempt.from() + attempt.received();
  let_go(is_hedge ? part.hedge : part.primary, outcome.throttled);
  switch (outcome.kind) {
    case Outcome::Kind::whole:
      break;
    case Outcome::Kind::again:
      // The other request may still bring the bytes.
      if (part.primary == nullptr && part.hedge == nullptr) try_again(part, outcome);
      break;
    case Outcome::Kind::redirected:
      if (part.primary != nullptr || part.hedge != nullptr) break;
      try {
        part.redirected = outcome.why;
      } catch (const std::bad_alloc&) {  // The same redirect comes again, and is counted.
      }
      ++part.redirects;
      --part.attempts;
      active_.remove(part);
      transfers_.submit_again(part);
      break;
    case Outcome::Kind::failed:
      if (is_hedge && part.primary != nullptr) break;
      let_go(part.hedge);
      active_.remove(part);
      fail(part, outcome.why, outcome.status, outcome.expired);
      break;
  }
}

void Reactor::succeeded(Part& part, Attempt& attempt, bool by_hedge) noexcept {
  // The time of the request that was made first: the late ones would be missing otherwise.
  const Attempt& first = part.primary != nullptr ? *part.primary : attempt;
  // By the bytes that were asked for, as hedge_time(): how many there are is not known before.
  if (!attempt.unchanged())
    transfers_.latencies.add(part.target.size() - attempt.from(), Clock::now() - first.started());
  if (part.opening) {
    try {
      part.etag = attempt.head().etag();
    } catch (const std::bad_alloc&) {
      let_go(part.primary);
      let_go(part.hedge);
      active_.remove(part);
      fail(part, {}, 0);
      return;
    }
    part.total = attempt.total();
    part.unchanged = attempt.unchanged();
    if (attempt.verified())
      count(transfers_.counters.verified);
    else
      part.checksum = attempt.head().crc32c();
  }
  const std::size_t from = attempt.from();
  if (by_hedge) {
    count(transfers_.counters.hedges_won);
    let_go(part.primary);  // From here on nothing else writes to the target.
    const auto bytes = attempt.bytes();
    if (!bytes.empty()) std::memcpy(part.target.data() + from, bytes.data(), bytes.size());
  }
  part.received = from + attempt.received();
  let_go(part.primary);
  let_go(part.hedge);
  active_.remove(part);
  transfers_.end(part);
}

void Reactor::try_again(Part& part, const Outcome& outcome) noexcept {
  const Options& options = transfers_.options;
  const Time now = Clock::now();
  active_.remove(part);
  const double most = std::min(
      static_cast<double>(options.most_backoff.count()),
      static_cast<double>(options.backoff.count()) * std::exp2(std::min(part.attempts - 1, 60)));
  Clock::duration delay =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(
          std::uniform_real_distribution<double>(0, std::max(most, 1e-3))(random_)));
  delay = std::max<Clock::duration>(delay, outcome.retry_after);
  if (part.attempts >= options.attempts) {
    fail(part, outcome.why, outcome.status);
    return;
  }
  if (now + delay >= part.begun + options.time_budget) {
    try {
      fail(part, outcome.why + "; the next attempt would be in " + seconds(delay), outcome.status);
    } catch (const std::bad_alloc&) {
      fail(part, {}, outcome.status);
    }
    return;
  }
  count(transfers_.counters.retries);
  if (outcome.throttled)
    count(transfers_.counters.throttled_nanoseconds,
          static_cast<std::uint64_t>(std::chrono::nanoseconds(delay).count()));
  part.hedged = false;
  part.fresh_connection = outcome.connection_lost;
  part.retry_at = now + delay;
  delayed_.push_back(part);
  next_look_ = std::min(next_look_, part.retry_at);
}

/// The part is in no list.
void Reactor::fail(Part& part, std::string_view why, int status, bool expired) noexcept {
  part.failure.emplace();
  part.failure->expired = expired;
  part.failure->status = status;
  part.failure->attempts = part.attempts;
  try {
    std::string text(why.empty() ? "out of memory" : why);
    if (part.attempts > 0)
      text += " (" + std::to_string(part.attempts) +
              (part.attempts == 1 ? " attempt, " : " attempts, ") +
              seconds(Clock::now() - part.begun) + ")";
    part.failure->text = std::move(text);
  } catch (const std::bad_alloc&) {  // It stays empty.
  }
  transfers_.end(part);
}

void Reactor::note_processor_time() noexcept {
  timespec time{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return;
  const auto now = std::uint64_t{1'000'000'000} * static_cast<std::uint64_t>(time.tv_sec) +
                   static_cast<std::uint64_t>(time.tv_nsec);
  count(transfers_.counters.processor_nanoseconds,
        now - std::exchange(processor_nanoseconds_, now));
}

/// Cancelled parts, time-outs, hedges, and parts whose next attempt is due.
void Reactor::look_at_times(Time now) noexcept {
  note_processor_time();
  const Options& options = transfers_.options;
  next_look_ = now + kLongestSleep;
  for (Part* next = active_.first(); next != nullptr;) {
    Part& part = *std::exchange(next, next->after);
    const bool cancelled = part.cancelled->load(std::memory_order_acquire);
    const Time deadline = part.begun + options.time_budget;
    if (cancelled || now >= deadline) {
      const int status = part.primary != nullptr ? part.primary->head().status() : 0;
      let_go(part.primary);
      let_go(part.hedge);
      active_.remove(part);
      fail(part, cancelled ? "cancelled" : "the time budget is spent", status);
      continue;
    }
    next_look_ = std::min(next_look_, deadline);
    for (Attempt* const attempt : {part.primary, part.hedge}) {
      if (attempt == nullptr) continue;
      if (attempt->stalled(now, options.stall_timeout)) {
        Outcome outcome{.kind = Outcome::Kind::again, .connection_lost = true};
        try {
          outcome.why = "less than 1 KiB a second for " + seconds(options.stall_timeout);
        } catch (const std::bad_alloc&) {  // It stays empty.
        }
        const bool was_last = part.primary == nullptr || part.hedge == nullptr;
        ended(*attempt, outcome);
        if (was_last) break;  // The part waits for its next attempt, or is gone.
        continue;
      }
      next_look_ = std::min(next_look_, attempt->next_look(options.stall_timeout));
      if (attempt->hedge_at == Time{}) continue;
      if (now >= attempt->hedge_at) {
        send_hedge(*attempt, now);
        break;  // A hedge is looked at when its time comes.
      }
      next_look_ = std::min(next_look_, attempt->hedge_at);
    }
  }
  for (Part* next = delayed_.first(); next != nullptr;) {
    Part& part = *std::exchange(next, next->after);
    if (part.cancelled->load(std::memory_order_acquire)) {
      delayed_.remove(part);
      fail(part, "cancelled", 0);
    } else if (now >= part.retry_at) {
      delayed_.remove(part);
      transfers_.submit_again(part);
    } else {
      next_look_ = std::min(next_look_, part.retry_at);
    }
  }
}

void Reactor::end_all(std::string_view why) noexcept {
  while (Part* const part = active_.pop_front()) {
    let_go(part->primary);
    let_go(part->hedge);
    fail(*part, why, 0);
  }
  while (Part* const part = delayed_.pop_front()) fail(*part, why, 0);
}

}  // namespace penstock::remote
