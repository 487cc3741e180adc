// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <penstock/remote.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "remote_file.hpp"
#include "session.hpp"
#include "shown_url.hpp"

namespace penstock::remote {
namespace {

void require(bool is_right, const char* what) {
  if (!is_right) throw std::invalid_argument(std::string("remote::Options: ") + what);
}

const Options& checked(const Options& options) {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  constexpr std::chrono::milliseconds kLongest{std::chrono::hours(24 * 7)};
  require(options.reactors >= 1 && options.reactors <= 64, "reactors must be 1 to 64");
  require(options.part_bytes >= 4096 && options.part_bytes <= kGiB,
          "part_bytes must be 4 KiB to 1 GiB");
  require(options.head_bytes >= 1 && options.head_bytes <= kGiB,
          "head_bytes must be 1 byte to 1 GiB");
  require(options.max_requests >= 1 && options.max_requests <= 100'000,
          "max_requests must be 1 to 100,000");
  require(options.attempts >= 1, "attempts must be at least 1");
  for (const auto time : {options.time_budget, options.connect_timeout, options.stall_timeout})
    require(time.count() >= 1 && time <= kLongest, "times must be 1 ms to 7 days");
  for (const auto time : {options.backoff, options.most_backoff})
    require(time.count() >= 0 && time <= kLongest, "backoff must be 0 to 7 days");
  return options;
}

bool is_http(std::string_view url) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (url.starts_with(scheme) && url.size() > scheme.size()) return true;
  return false;
}

std::shared_ptr<Session> make_session(Options&& options) {
  checked(options);
  // A child process of fork() has no threads to join.
  return {new Session(std::move(options)), [](Session* session) {
            if (session->owner.is_this()) delete session;
          }};
}

}  // namespace

Client::Client(Options options) : session_(make_session(std::move(options))) {}

File Client::file(std::string url) const {
  if (!is_http(url))
    throw std::invalid_argument("remote::Client: no URL of http:// or https://: " + shown_url(url));
  return File(std::make_shared<const RemoteFile>(session_, std::move(url)));
}

Stats Client::stats() const {
  const Counters& counters = session_->transfers.counters;
  const Histogram& latencies = session_->transfers.latencies.all();
  const auto get = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  return {.requests = get(counters.requests),
          .bytes = get(counters.bytes),
          .retries = get(counters.retries),
          .hedges = get(counters.hedges),
          .hedges_won = get(counters.hedges_won),
          .from_ahead = get(counters.from_ahead),
          .throttled = get(counters.throttled),
          .throttled_time = std::chrono::nanoseconds(get(counters.throttled_nanoseconds)),
          .limit = session_->transfers.limit.limit(),
          .latency_p50 = latencies.quantile(0.5).value_or(Clock::duration{}),
          .latency_p99 = latencies.quantile(0.99).value_or(Clock::duration{})};
}

void Client::cancel() noexcept {
  session_->transfers.stop();
}

}  // namespace penstock::remote
