// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <penstock/detail/local_rank.hpp>
#include <penstock/remote.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "listing.hpp"
#include "location.hpp"
#include "remote_file.hpp"
#include "remote_folder.hpp"
#include "session.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

void require(bool is_right, const char* what) {
  if (!is_right) throw std::invalid_argument(std::string("remote::Options: ") + what);
}

void check(const Options& options) {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  constexpr std::chrono::milliseconds kLongest{std::chrono::hours(24 * 7)};
  require(options.reactors >= 1 && options.reactors <= 64, "reactors must be 1 to 64");
  require(options.part_bytes >= 4096 && options.part_bytes <= kGiB,
          "part_bytes must be 4 KiB to 1 GiB");
  require(options.head_bytes >= 1 && options.head_bytes <= kGiB,
          "head_bytes must be 1 byte to 1 GiB");
  require(options.max_requests >= 1 && options.max_requests <= 100'000,
          "max_requests must be 1 to 100,000");
  require(options.local_ranks >= 0, "local_ranks must be at least 0");
  require(options.attempts >= 1, "attempts must be at least 1");
  for (const auto time : {options.time_budget, options.connect_timeout, options.stall_timeout})
    require(time.count() >= 1 && time <= kLongest, "times must be 1 ms to 7 days");
  if (!options.cache.directory.empty()) {
    require(options.cache.slot_bytes >= 4096 && options.cache.slot_bytes <= kGiB,
            "cache.slot_bytes must be 4 KiB to 1 GiB");
    const std::uint64_t slots = options.cache.bytes / options.cache.slot_bytes;
    require(slots >= 1 && slots < std::uint64_t{1} << 31,
            "cache.bytes must be 1 to 2^31 times cache.slot_bytes");
  }
  for (const auto time : {options.backoff, options.most_backoff})
    require(time.count() >= 0 && time <= kLongest, "backoff must be 0 to 7 days");
}

/// The requests of this rank, if all ranks of the machine have as many.
int share_of_requests(const Options& options) {
  const int ranks = options.local_ranks > 0 ? options.local_ranks
                                            : penstock::detail::LocalRank::of_environment().size;
  return std::max(1, options.max_requests / ranks);
}

std::shared_ptr<Session> make_session(Options&& options) {
  check(options);
  options.max_requests = share_of_requests(options);
  // A child process of fork() has no threads to join.
  return {new Session(std::move(options)), [](Session* session) {
            if (session->owner.is_this()) delete session;
          }};
}

}  // namespace

Client::Client(Options options) : session_(make_session(std::move(options))) {}

std::shared_ptr<const FileReader> Client::open(const std::string& url) const {
  const Location location = session_->stores.locate(url);
  RemoteObject object;
  object.name = location.printable();
  std::shared_ptr<Signatures> signatures = session_->stores.signatures(location);
  if (location.service() == Service::http) {
    object.url = url;
    object.authorizer = session_->options.authorizer;
  } else {
    object.url = location.url();
    object.at_s3 = location.service() == Service::s3;
    object.authorizer = authorizer_of(signatures);
  }
  return std::make_shared<const RemoteFile>(session_, std::move(object), std::move(signatures));
}

std::shared_ptr<const FolderReader> Client::folder(const std::string& url) const {
  return std::make_shared<const RemoteFolder>(session_, folder_at(url), url);
}

std::uint64_t Client::save_list(const std::string& url, const std::filesystem::path& list,
                                const std::vector<std::string>& extensions) const {
  const Location prefix = folder_at(url);
  if (prefix.service() == Service::http)
    throw std::invalid_argument("remote::Client: only s3:// and gs:// have listings, not " +
                                prefix.printable());
  ObjectList found(prefix.key(), ObjectList::Labels::by_directory, extensions);
  list_objects(
      prefix, [&](HttpCall& call) { return session_->stores.call(prefix, call); },
      [&](const ListingPage& page) { found.add(page); });
  found.save(list);
  return found.size();
}

Location Client::folder_at(const std::string& url) const {
  Location location = session_->stores.locate(url);
  if (!location.printable().ends_with('/'))
    throw std::invalid_argument(
        "remote::Client: the URL of a folder ends in a slash, and this one "
        "does not: " +
        location.printable());
  return location;
}

Stats Client::stats() const {
  const Counters& counters = session_->transfers.counters;
  const Histogram& latencies = session_->transfers.latencies.all();
  const auto get = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  const Time now = Clock::now();
  const RequestLimit::Times times = session_->transfers.limit.times(now);
  return {.requests = get(counters.requests),
          .bytes = get(counters.bytes),
          .retries = get(counters.retries),
          .hedges = get(counters.hedges),
          .hedges_won = get(counters.hedges_won),
          .from_ahead = get(counters.from_ahead),
          .throttled = get(counters.throttled),
          .throttled_time = std::chrono::nanoseconds(get(counters.throttled_nanoseconds)),
          .verified = get(counters.verified),
          .damaged = get(counters.damaged),
          .cache_hits = get(counters.cache_hits),
          .cache_misses = get(counters.cache_misses),
          .from_cache = get(counters.from_cache),
          .cache_damaged = get(counters.cache_damaged),
          .to_cache = get(counters.to_cache),
          .cache_full = session_->cache && session_->cache->is_full(),
          .cache_errors = get(counters.cache_errors),
          .limit = session_->transfers.limit.limit(),
          .most_limit = session_->transfers.limit.most(),
          .reactors = session_->transfers.options.reactors,
          .request_time = times.running,
          .limited_time = times.full,
          .processor_time = std::chrono::nanoseconds(get(counters.processor_nanoseconds)),
          .time = now,
          .latency_p50 = latencies.quantile(0.5).value_or(Clock::duration{}),
          .latency_p99 = latencies.quantile(0.99).value_or(Clock::duration{})};
}

void Client::cancel() noexcept {
  session_->transfers.stop();
}

}  // namespace penstock::remote
