// SPDX-License-Identifier: Apache-2.0
#include "transfers.hpp"

#include <utility>

#include "reactor.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr std::uint64_t kRequestsForHedge = 20;
constexpr std::size_t kHedgeBuffers = 8;

/// libcurl's own state, for the whole life of the process.
void start_libcurl() {
  static const CURLcode code = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK)
    throw std::runtime_error(std::string("libcurl: ") + ::curl_easy_strerror(code));
}

}  // namespace

Transfers::Transfers(const Options& with)
    : options(with),
      limit(with.max_requests),
      hedge_buffers(kHedgeBuffers * (with.part_bytes < (1 << 16) ? 1 << 16 : 2 * with.part_bytes)) {
  start_libcurl();
  for (int number = 0; number < options.reactors; ++number)
    reactors_.push_back(std::make_unique<Reactor>(*this, static_cast<std::size_t>(number)));
  for (const auto& reactor : reactors_) reactor->start();
}

Transfers::~Transfers() {
  stop();
}

Part& Transfers::take_part() {
  const std::lock_guard lock(mutex_);
  if (Part* const part = free_.pop_front()) return *part;
  parts_.push_back(std::make_unique<Part>());
  return *parts_.back();
}

void Transfers::give_back(Part& part) noexcept {
  part.object.reset();
  part.owner = nullptr;
  part.cancelled = nullptr;
  part.due = {};
  part.opening = part.whole = part.ahead = part.hedged = part.fresh_connection = part.unchanged =
      false;
  part.received = 0;
  part.attempts = part.redirects = 0;
  part.begun = part.retry_at = {};
  part.redirected.clear();
  part.failure.reset();
  part.etag.clear();
  part.total = 0;
  part.checksum.reset();
  const std::lock_guard lock(mutex_);
  free_.push_front(part);
}

bool Transfers::submit(Part& part) noexcept {
  bool taken = false;
  {
    const std::lock_guard lock(mutex_);
    taken = !stopped_;
    if (taken) {
      part.queued = true;
      (part.ahead ? aheads_ : reads_).push_back(part);
    }
  }
  if (taken)
    wake_one();
  else
    give_back(part);
  return taken;
}

void Transfers::submit_again(Part& part) noexcept {
  const std::lock_guard lock(mutex_);
  part.queued = true;
  reads_.push_front(part);
}

void Transfers::promote(Part& part) noexcept {
  const std::lock_guard lock(mutex_);
  if (!part.ahead) return;
  part.ahead = false;
  if (!part.queued) return;
  aheads_.remove(part);
  reads_.push_back(part);
}

Part* Transfers::next_ready() noexcept {
  const std::lock_guard lock(mutex_);
  PartList& list = reads_.empty() ? aheads_ : reads_;
  if (list.empty() || !limit.try_begin(Clock::now())) return nullptr;
  Part* const part = list.pop_front();
  part->queued = false;
  return part;
}

void Transfers::sweep_queue() noexcept {
  PartList cancelled;
  {
    const std::lock_guard lock(mutex_);
    for (PartList* const list : {&reads_, &aheads_})
      for (Part* part = list->first(); part != nullptr;) {
        Part& here = *std::exchange(part, part->after);
        if (!here.cancelled->load(std::memory_order_acquire)) continue;
        list->remove(here);
        here.queued = false;
        cancelled.push_back(here);
      }
  }
  while (Part* const part = cancelled.pop_front()) {
    part->failure.emplace(Failure{"cancelled", 0, part->attempts});
    end(*part);
  }
}

void Transfers::end(Part& part) noexcept {
  part.owner->part_ended(part);
  give_back(part);
}

void Transfers::wake_one() noexcept {
  reactors_[next_reactor_.fetch_add(1, std::memory_order_relaxed) % reactors_.size()]->wake();
}

void Transfers::pass_on(std::size_t number) noexcept {
  if (reactors_.size() == 1 || !limit.has_room()) return;
  {
    const std::lock_guard lock(mutex_);
    if (reads_.empty() && aheads_.empty()) return;
  }
  reactors_[(number + 1) % reactors_.size()]->wake();
}

void Transfers::look_for_cancelled() noexcept {
  cancellations_.fetch_add(1, std::memory_order_release);
  for (const auto& reactor : reactors_) reactor->wake();
}

bool Transfers::try_hedge() noexcept {
  auto hedges = counters.hedges.load(std::memory_order_relaxed);
  do
    if ((hedges + 1) * kRequestsForHedge > counters.requests.load(std::memory_order_relaxed))
      return false;
  while (!counters.hedges.compare_exchange_weak(hedges, hedges + 1, std::memory_order_relaxed));
  return true;
}

void Transfers::stop() noexcept {
  const std::lock_guard only_one(stop_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    stopping_.store(true, std::memory_order_release);
  }
  for (const auto& reactor : reactors_) reactor->wake();
  for (const auto& reactor : reactors_) reactor->join();
  // Nobody adds to the queue any more.
  PartList rest;
  {
    const std::lock_guard lock(mutex_);
    for (PartList* const list : {&reads_, &aheads_})
      while (Part* const part = list->pop_front()) rest.push_back(*part);
  }
  while (Part* const part = rest.pop_front()) {
    part->queued = false;
    part->failure.emplace(Failure{"the client was cancelled", 0, part->attempts});
    end(*part);
  }
}

}  // namespace penstock::remote
