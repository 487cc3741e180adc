// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files of a web server, and objects of Amazon S3, Google Cloud Storage and servers that speak
// their protocol. A Client makes penstock::Files of them, which the stores read like files of this
// machine.
//
//   const penstock::remote::Client client;
//   const penstock::PackedFile images(client.file("s3://bucket/train.pack"));
//
//   client.save_list("s3://bucket/imagenet/train/", "train.list");   // once
//   const auto photos = penstock::FileFolder::from_list(client.folder("s3://bucket/imagenet/train/"),
//                                                       "train.list");
//
// What happens to a read:
//
// - Bytes that will_need() has fetched, or is fetching, are copied from there. The rest is asked
//   for in requests of a range each, of at most Options::part_bytes, which run at the same time.
//   The bytes are received in the memory that they are read into.
// - All reads of a client share one limit of requests. It starts at 16, and is at most this rank's
//   part of Options::max_requests. After each period of at least half a second and as many answers
//   as the limit, in which the limit was reached, it doubles. Where that has not brought 5 % more
//   bytes a second it goes back, stays for 8 periods, and rises by an eighth from then on. An answer
//   429 or 503 halves it, at most once a second. Reads go before will_need().
// - Asked for again are: 408, 429, 5xx, connections that fail or end early, and time-outs; from the
//   first byte that is missing, after a random time of at most Options::backoff, which doubles with
//   each attempt, and not before the time that Retry-After says. Not asked for again are other
//   statuses, certificates that cannot be verified, wrong ranges, and an object that has changed.
// - A request that takes longer than 95 % of those of its size is asked for again on another
//   connection (a hedge), or a little earlier if its due time is near. The first whole answer
//   counts. Hedges are at most 5 % of the requests, and there are none within a second of a 429 or
//   503.
// - Each answer must have the ETag and the size of the first one.
// - An object that comes whole must have the CRC32C that the store says, if it says one: Google's
//   always does, and S3's for objects that were uploaded with one. Another one is asked for again.
// - With Options::cache, bytes that are there are read from there, and those that were asked for
//   are written there, while there is room.
//
// TLS, proxies (http_proxy, https_proxy, no_proxy) and name resolution are libcurl's. Certificates
// are verified.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <penstock/file.hpp>
#include <penstock/file_folder.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::remote {

/// A request as it will be sent.
struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  ///< "Name: value"
};

/// Signs a request, by adding headers or changing the URL. Is called for each attempt, with its
/// time, by the client's threads, several at the same time. It must not block: no request moves on
/// meanwhile. What it throws ends the read.
using Authorizer = std::function<void(HttpRequest&, std::chrono::system_clock::time_point)>;

/// Where the name of a bucket is in a URL. automatic: in the path for an endpoint that was given,
/// for GCS, and for names that are no part of a host's name; else in the host.
enum class Addressing { automatic, path, virtual_host };

/// Where s3:// and gs:// lead, and whose key signs the requests for them.
///
/// Keys for s3:// come from the first place that has some: key_id and secret_key; the variables
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; a web identity
/// (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN); the profile, in ~/.aws/credentials and
/// ~/.aws/config; the metadata of the EC2 instance. Keys that expire are renewed before, by a
/// thread that reads. gs:// takes key_id and secret_key, an HMAC key, or goes without: Amazon's
/// keys in the environment are not shown to Google.
struct StoreOptions {
  /// "https://minio.example:9000", and perhaps a path. Empty: for s3:// AWS_ENDPOINT_URL_S3 or
  /// AWS_ENDPOINT_URL; else the endpoint of the service.
  std::string endpoint = {};
  /// Empty: for s3:// AWS_REGION, AWS_DEFAULT_REGION, or the profile's, or us-east-1.
  std::string region = {};
  Addressing addressing = Addressing::automatic;
  bool anonymous = false;   ///< requests are not signed
  std::string key_id = {};  ///< with secret_key: this key
  std::string secret_key = {};
  std::string session_token = {};
  std::string profile = {};        ///< named: the keys of the environment are not looked at
  bool instance_metadata = false;  ///< also asks the EC2 instance for its role
};

/// Where a Client keeps bytes on a disk of this machine, for all processes of the node and for
/// later runs. A directory belongs to clients with the same settings: another size empties it, and
/// clients with the old one go on without a cache.
struct CacheOptions {
  /// Empty: there is no cache. A directory that is not there is made, for this user alone.
  std::filesystem::path directory = {};
  /// For the slots, at least one. An index comes to it, of at most 64 KiB and 128 bytes for a slot,
  /// twice while it is rewritten.
  std::uint64_t bytes = 0;
  /// 4 KiB to 1 GiB. A range that is read takes a slot for each `slot_bytes` of it; one below a
  /// 64th of a slot is not kept.
  std::size_t slot_bytes = std::size_t{128} << 10;
  /// A read returns when what it has brought is in the cache, or is not kept: to fill it ahead.
  /// Else it is written later, and what waits is bounded; the rest, and what waits at the end of
  /// the client, is dropped.
  bool wait = false;
};

/// A time for will_need() of stores and files: too late for bytes to be fetched, but the cache is
/// told that these reads come, behind those of the calls before.
inline constexpr std::chrono::steady_clock::time_point later =
    std::chrono::steady_clock::time_point::max();

/// The settings of a Client.
struct Options {
  int reactors = 1;  ///< threads that send and receive, 1 to 64
  /// Most bytes of a request, 4 KiB to 1 GiB. Larger reads are cut into parts of at least half.
  std::size_t part_bytes = std::size_t{8} << 20;
  /// Opening a file brings its first bytes, and keeps them; up to 1 GiB, and at least 1.
  std::size_t head_bytes = std::size_t{64} << 10;
  /// Most requests at the same time, without hedges, of all ranks of this machine together: each
  /// has an equal part, and at least one.
  int max_requests = 256;
  /// The ranks of this machine that have such clients. 0: as many as the launcher's variables say,
  /// as Ranks::from_environment() reads them.
  int local_ranks = 0;
  /// Memory of will_need() for all files together.
  std::size_t ahead_bytes = std::size_t{256} << 20;

  int attempts = 6;  ///< of each request, at least 1
  /// For all attempts of a request, from the first one on, with the times between them.
  std::chrono::milliseconds time_budget{300'000};
  std::chrono::milliseconds connect_timeout{10'000};
  /// An attempt ends that receives less than 1 KiB a second for this time.
  std::chrono::milliseconds stall_timeout{10'000};
  std::chrono::milliseconds backoff{100};          ///< most time before the second attempt
  std::chrono::milliseconds most_backoff{10'000};  ///< and before any
  bool hedging = true;

  std::string ca_file = {};  ///< PEM file of the CAs that are trusted; empty: those of libcurl
  Authorizer authorizer{};   ///< of http:// and https://; none: these requests are not signed
  StoreOptions stores{};     ///< of s3:// and gs://
  CacheOptions cache{};
};

/// Sums since the client was made. They are taken one after the other, while requests go on.
struct Stats {
  std::uint64_t requests = 0;    ///< attempts that were started, with retries and hedges
  std::uint64_t bytes = 0;       ///< of bodies that were received and asked for
  std::uint64_t retries = 0;     ///< attempts after one that failed
  std::uint64_t hedges = 0;      ///< requests that were sent a second time, as the first was late
  std::uint64_t hedges_won = 0;  ///< of them: those whose answer was first
  std::uint64_t from_ahead = 0;  ///< bytes of reads that will_need() had asked for
  std::uint64_t throttled = 0;   ///< answers 429 and 503
  std::chrono::nanoseconds
      throttled_time{};        ///< waited for after such answers, all requests together
  std::uint64_t verified = 0;  ///< objects that came whole, and had the CRC32C that the store says
  std::uint64_t damaged = 0;   ///< and those that had another one, and were asked for again
  std::uint64_t cache_hits = 0;    ///< ranges of at most a slot that were in the cache
  std::uint64_t cache_misses = 0;  ///< and those that were not
  std::uint64_t from_cache = 0;    ///< bytes of the hits
  /// Entries that were dropped since their bytes, or their records of the index, had another
  /// checksum.
  std::uint64_t cache_damaged = 0;
  std::uint64_t to_cache = 0;  ///< bytes that were written to it
  bool cache_full = false;     ///< each slot has a range
  /// Of files of the cache. After an error in writing, nothing is written for 10 seconds; without
  /// an index, the client goes on without the cache. Reads do not fail by it.
  std::uint64_t cache_errors = 0;
  int limit = 0;       ///< requests at the same time, as found so far
  int most_limit = 0;  ///< this rank's part of Options::max_requests
  int reactors = 0;    ///< Options::reactors
  std::chrono::nanoseconds
      request_time{};  ///< of all attempts together: over a time, how many run on average
  std::chrono::nanoseconds limited_time{};    ///< in which as many requests ran as the limit allows
  std::chrono::nanoseconds processor_time{};  ///< of the reactors; as of up to a second ago
  std::chrono::steady_clock::time_point time{};  ///< when this was taken
  /// Of requests that have brought their bytes, from the start of the last attempt but for its
  /// hedge; to within 19 %. 0: there was none.
  std::chrono::nanoseconds latency_p50{}, latency_p99{};
};

/// A file cannot be opened or read.
class RemoteError : public std::runtime_error {
 public:
  RemoteError(const std::string& text, std::string url, int status, int attempts)
      : std::runtime_error(text), url_(std::move(url)), status_(status), attempts_(attempts) {}

  /// Without the query and what comes before the host.
  const std::string& url() const noexcept { return url_; }
  /// Of the last answer; 0: there was none.
  int status() const noexcept { return status_; }
  int attempts() const noexcept { return attempts_; }

 private:
  std::string url_;
  int status_, attempts_;
};

/// There is no object for a list.
class NothingListed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Location;
class Session;

/// Connections, limits and counters: one for a process. Copies are the same client, and the files
/// that it has made keep it. Any number of threads may use it and its files. The end of the last
/// copy and file cancels what will_need() is fetching, and joins the threads. A child process of
/// fork() must not use it: reads throw there.
class Client {
 public:
  /// Starts the threads. Throws std::invalid_argument for options out of their range;
  /// std::runtime_error where libcurl cannot start.
  explicit Client(Options options = {});

  /// Opens `url`, http://, https://, s3:// or gs://, by a request for its first Options::head_bytes
  /// bytes. A key behind s3:// and gs:// is not encoded. The name of the file is the URL without
  /// its query and without what comes before the host. Throws std::invalid_argument for another
  /// URL; RemoteError, whose text names the URL, when the server does not serve it or serves no
  /// ranges; std::runtime_error where there are no credentials. What reads of the file throw is a
  /// RemoteError too, whose text has the status, the number of attempts and the time.
  File file(const std::string& url) const { return File(open(url)); }

  /// Reads whole files below `url`, which ends in a slash, for FileFolder: one request without
  /// a range for a file of up to 256 KiB or for which the scratch has room, and no request before;
  /// a larger file ends its connection, and the rest comes by ranges. What was announced is fetched
  /// ahead in the same way, of each file as much as 95 % of the files have had, 64 KiB to 8 MiB.
  /// FileFolderOptions and lists name the files, not encoded. Throws as file() does for a wrong URL
  /// and for credentials.
  std::shared_ptr<const FolderReader> folder(const std::string& url) const;

  /// Lists the objects below `url`, s3:// or gs://, which ends in a slash, and writes a list for
  /// FileFolder::from_list to `list`, whole or not at all: with classes and labels by directory, as
  /// FileFolder has them for a folder. `extensions`: of the names to take; none given: those of
  /// images. Takes a request for 1,000 objects. Returns how many the list has. Throws
  /// std::invalid_argument for another URL, NothingListed where it would have none, and
  /// std::runtime_error for what cannot be listed or written.
  std::uint64_t save_list(const std::string& url, const std::filesystem::path& list,
                          const std::vector<std::string>& extensions = {}) const;

  Stats stats() const;
  /// Ends all requests: reads under way throw RemoteError, and so do later ones. Returns when the
  /// threads have ended. Must not be called by an Authorizer.
  void cancel() noexcept;

 private:
  std::shared_ptr<const FileReader> open(const std::string& url) const;
  Location folder_at(const std::string& url) const;

  std::shared_ptr<Session> session_;
};

}  // namespace penstock::remote
