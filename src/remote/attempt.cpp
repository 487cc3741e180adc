// SPDX-License-Identifier: Apache-2.0
#include "attempt.hpp"

#include <algorithm>
#include <cstring>
#include <penstock/detail/storage/crc32c.hpp>
#include <stdexcept>
#include <utility>

#include "origin.hpp"
#include "receive_heap.hpp"
#include "service_error.hpp"
#include "wrong_checksum.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr long kRedirects = 5;
/// Of the body of an error; a longer one ends the connection.
constexpr std::size_t kDiscard = std::size_t{64} << 10;
/// Of these the first ones are read.
constexpr std::size_t kErrorBody = std::size_t{8} << 10;
constexpr std::uint64_t kLeastBytesPerSecond = 1024;

template <class Value>
void set(const Easy& easy, CURLoption option, Value value) {
  const CURLcode code = ::curl_easy_setopt(easy.get(), option, value);
  if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLE_OK)
    throw std::runtime_error(std::string("libcurl: ") + ::curl_easy_strerror(code));
}

bool is_https(std::string_view url) {
  return url.starts_with("https:");
}

/// Before 8.1.1 a handle keeps a pointer to a header of its last answer, which is freed, and an
/// answer whose head begins with a folded line makes libcurl write there (its pull request 11103).
/// A handle for each request costs little beside the request.
bool handles_are_for_one_request() {
  static const unsigned version = ::curl_version_info(CURLVERSION_NOW)->version_num;
  return version >= 0x075300 && version <= 0x080100;
}

/// Whether another attempt may succeed where libcurl has failed like this.
bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PROXY:
      return true;
    default:
      return false;
  }
}

std::string shown_etag(std::string_view etag) {
  return etag.empty() ? "none" : std::string(etag);
}

/// Whether a server's message has the last word of a header, or a value of the URL's query: they
/// may be secrets.
bool repeats_secret(std::string_view message, const HttpRequest& request) {
  constexpr std::size_t kShortest = 8;
  const auto has = [&](std::string_view part) {
    return part.size() >= kShortest && message.find(part) != std::string_view::npos;
  };
  std::string_view query = request.url;
  query.remove_prefix(std::min(query.size(), query.find('?')));
  while (!query.empty()) {
    query.remove_prefix(1);
    const std::string_view field = query.substr(0, query.find('&'));
    if (has(field.substr(field.find('=') + 1))) return true;
    query.remove_prefix(field.size());
  }
  return std::ranges::any_of(request.headers, [&](std::string_view header) {
    return !header.starts_with("Range:") && has(header.substr(header.rfind(' ') + 1));
  });
}

}  // namespace

Attempt::Attempt(const Options& options) : options_(options) {
  make_handle();
}

void Attempt::make_handle() {
  easy_.reset(::curl_easy_init());
  if (!easy_) throw std::bad_alloc();
  set(easy_, CURLOPT_PRIVATE, this);
  set(easy_, CURLOPT_ERRORBUFFER, error_.data());
  set(easy_, CURLOPT_NOSIGNAL, 1L);
  set(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(easy_, CURLOPT_BUFFERSIZE, kReceiveBuffer);
  set(easy_, CURLOPT_USERAGENT, "penstock");
  set(easy_, CURLOPT_HEADERFUNCTION, &Attempt::take_header);
  set(easy_, CURLOPT_HEADERDATA, this);
  set(easy_, CURLOPT_WRITEFUNCTION, &Attempt::take_bytes);
  set(easy_, CURLOPT_WRITEDATA, this);
  set(easy_, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(easy_, CURLOPT_TCP_KEEPALIVE, 1L);
  // Each new connection goes to any address of the name: libcurl would shuffle them only once for
  // all connections of a minute.
  set(easy_, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
  set(easy_, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
  set(easy_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout.count()));
  set(easy_, CURLOPT_MAXREDIRS, kRedirects);
  set(easy_, CURLOPT_PATH_AS_IS, 1L);  // Dots between slashes may be parts of a key.
  if (!options_.ca_file.empty()) set(easy_, CURLOPT_CAINFO, options_.ca_file.c_str());
#if CURL_AT_LEAST_VERSION(7, 85, 0)
  set(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  set(easy_, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

void Attempt::prepare(Part& part, std::size_t from, std::span<std::byte> into, bool new_connection,
                      Time now) {
  if (handles_are_for_one_request()) make_handle();
  part_ = &part;
  from_ = from;
  into_ = into;
  expected_ = received_ = discarded_ = received_then_ = 0;
  sums_ = false;
  sum_ = 0;
  error_body_.clear();
  total_ = 0;
  head_ = {};
  fault_ = Fault::not_seen;
  error_[0] = '\0';
  hedge_at = {};
  started_ = looked_ = now;

  request_.url = part.redirected.empty() ? part.object->url : part.redirected;
  std::size_t headers = 0;
  const auto next_header = [&]() -> std::string& {
    if (headers == request_.headers.size()) request_.headers.emplace_back();
    return request_.headers[headers++];
  };
  if (part.opening && part.object->at_s3) next_header() = "x-amz-checksum-mode: ENABLED";
  if (asks_for_changes()) {
    next_header().assign("If-None-Match: ").append(part.object->etag);
  } else if (!part.whole) {
    std::array<char, 64> range;
    const std::uint64_t begin = part.offset + from;
    const int length = std::snprintf(range.data(), range.size(), "Range: bytes=%llu-%llu",
                                     static_cast<unsigned long long>(begin),
                                     static_cast<unsigned long long>(begin + into.size() - 1));
    next_header().assign(range.data(), static_cast<std::size_t>(length));
  }
  request_.headers.resize(headers);
  const Authorizer& authorizer = part.object->authorizer;
  if (authorizer) authorizer(request_, std::chrono::system_clock::now());
  // A signature is for one host and one path: a redirect to the same host is signed anew.
  set(easy_, CURLOPT_FOLLOWLOCATION, authorizer ? 0L : 1L);

  header_list_.resize(request_.headers.size());
  for (std::size_t i = 0; i < header_list_.size(); ++i)
    header_list_[i] = {request_.headers[i].data(),
                       i + 1 < header_list_.size() ? &header_list_[i + 1] : nullptr};
  set(easy_, CURLOPT_HTTPHEADER, header_list_.empty() ? nullptr : header_list_.data());
  set(easy_, CURLOPT_URL, request_.url.c_str());
  set(easy_, CURLOPT_FRESH_CONNECT, new_connection ? 1L : 0L);
#if CURL_AT_LEAST_VERSION(7, 85, 0)
  set(easy_, CURLOPT_REDIR_PROTOCOLS_STR, is_https(request_.url) ? "https" : "http,https");
#else
  set(easy_, CURLOPT_REDIR_PROTOCOLS,
      static_cast<long>(is_https(request_.url) ? CURLPROTO_HTTPS
                                               : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

std::size_t Attempt::take_header(char* bytes, std::size_t size, std::size_t count,
                                 void* self) noexcept {
  static_cast<Attempt*>(self)->head_.take({bytes, size * count});
  return size * count;
}

std::size_t Attempt::take_bytes(char* bytes, std::size_t size, std::size_t count,
                                void* self) noexcept {
  return static_cast<Attempt*>(self)->take(bytes, size * count);
}

std::size_t Attempt::take(const char* bytes, std::size_t count) noexcept {
  if (fault_ == Fault::not_seen) {
    fault_ = look_at_head();
    sums_ = fault_ == Fault::none && part_->offset + from_ == 0 && expected_ == total_ &&
            head_.crc32c();
  }
  if (fault_ == Fault::status) {
    discarded_ += count;
    try {
      error_body_.append(bytes, std::min(count, kErrorBody - error_body_.size()));
    } catch (const std::bad_alloc&) {  // The status remains.
    }
    return discarded_ > kDiscard ? 0 : count;
  }
  std::size_t taken = count;
  if (fault_ == Fault::none && count > expected_ - received_) {
    if (total_ == expected_ || !part_->whole) fault_ = Fault::too_long;
    taken = expected_ - received_;  // The answer ends here: there is no room for more.
  }
  if (fault_ != Fault::none) return 0;
  std::memcpy(into_.data() + received_, bytes, taken);
  if (sums_)
    sum_ =
        penstock::detail::crc32c(std::as_bytes(std::span(into_.data() + received_, taken)), sum_);
  received_ += taken;
  return taken;
}

/// Sets expected_ and total_ of an answer that is right so far.
Attempt::Fault Attempt::look_at_head() noexcept {
  const RemoteObject& object = *part_->object;
  const auto& range = head_.range();
  const std::uint64_t begin = part_->offset + from_;
  const bool is_known = !part_->opening;
  const auto differs = [&](std::optional<std::uint64_t> total) {
    return is_known && (head_.etag() != object.etag || (total && *total != object.size));
  };

  if (head_.status() == 206) {
    if (part_->whole || !range || !range->has_bytes) return Fault::wrong_range;
    if (differs(range->total)) return Fault::changed;
    if (!is_known && !range->total) return Fault::wrong_range;
    total_ = is_known ? object.size : *range->total;
    const std::uint64_t end = std::min<std::uint64_t>(begin + into_.size(), total_);
    if (range->first != begin || range->last + 1 != end) return Fault::wrong_range;
    expected_ = end - begin;
    if (head_.length() && *head_.length() != expected_) return Fault::wrong_range;
    return Fault::none;
  }
  if (head_.status() == 200 && part_->whole) {
    if (!head_.length()) return Fault::no_length;
    total_ = *head_.length();
    expected_ = static_cast<std::size_t>(std::min<std::uint64_t>(total_, into_.size()));
    return Fault::none;
  }
  if (head_.status() == 200) {
    if (differs(head_.length())) return Fault::changed;
    // All bytes may be what was asked for.
    if (begin != 0 || !head_.length() || *head_.length() > into_.size()) return Fault::no_ranges;
    total_ = *head_.length();
    expected_ = total_;
    return Fault::none;
  }
  if (head_.status() == 304 && asks_for_changes() &&
      (head_.etag().empty() || head_.etag() == object.etag))
    return Fault::none;
  if (head_.status() == 416 && range && range->total) {
    if (is_known && *range->total != object.size) return Fault::changed;
    if (!is_known && *range->total == 0) return Fault::none;  // an empty object
  }
  return Fault::status;
}

/// Whether the object is known, and is asked for only if it has changed.
bool Attempt::asks_for_changes() const noexcept {
  return part_->whole && !part_->object->etag.empty();
}

/// Whether all has come that there is room for, of an object that is larger.
bool Attempt::has_enough() const noexcept {
  return fault_ == Fault::none && part_->whole && received_ == expected_ && total_ > expected_;
}

std::string Attempt::what_changed() const {
  const RemoteObject& object = *part_->object;
  std::string now = "ETag " + shown_etag(head_.etag());
  if (const auto& range = head_.range(); range && range->total)
    now += ", " + std::to_string(*range->total) + " bytes";
  else if (head_.status() == 200 && head_.length())
    now += ", " + std::to_string(*head_.length()) + " bytes";
  return "the object has changed: ETag " + shown_etag(object.etag) + ", " +
         std::to_string(object.size) + " bytes, when it was opened; now " + now;
}

Outcome Attempt::judge(CURLcode code) {
  Outcome outcome = end_of_answer(code);
  outcome.status = head_.status();
  return outcome;
}

Outcome Attempt::end_of_answer(CURLcode code) {
  using Kind = Outcome::Kind;
  if (fault_ == Fault::not_seen && code == CURLE_OK && head_.complete()) fault_ = look_at_head();
  switch (fault_) {
    case Fault::changed:
      return {.kind = Kind::failed, .why = what_changed()};
    case Fault::no_ranges:
      return {.kind = Kind::failed,
              .why = "the server does not serve ranges: it answers with the whole object"};
    case Fault::no_length:
      return {.kind = Kind::failed, .why = "the answer does not say how many bytes it has"};
    case Fault::wrong_range:
      return {.kind = Kind::failed, .why = "the answer is of another range than was asked for"};
    case Fault::too_long:
      return {.kind = Kind::failed, .why = "the answer has more bytes than were asked for"};
    case Fault::status:
      return refusal();
    case Fault::none:
    case Fault::not_seen:
      break;
  }
  if (has_enough()) return {.kind = Kind::whole};
  if (code == CURLE_OK) {
    if (fault_ == Fault::none && received_ == expected_) {
      if (!sums_ || sum_ == *head_.crc32c()) return {.kind = Kind::whole};
      return {.kind = Kind::again,
              .why = wrong_checksum(sum_, *head_.crc32c()),
              .connection_lost = true,
              .damaged = true};
    }
    return {.kind = Kind::again, .why = "the answer ends early", .connection_lost = true};
  }
  std::string why = error_[0] != '\0' ? error_.data() : ::curl_easy_strerror(code);
  if (code == CURLE_TOO_MANY_REDIRECTS) why = "too many redirects";
  return {.kind = may_pass(code) ? Kind::again : Kind::failed,
          .why = std::move(why),
          .connection_lost = true};
}

/// What an answer is worth that is no bytes of the object.
Outcome Attempt::refusal() {
  using Kind = Outcome::Kind;
  const int status = head_.status();
  Outcome outcome{.kind = Kind::failed, .why = "HTTP " + std::to_string(status)};
  if (status >= 300 && status < 400) {
    const char* to = nullptr;
    ::curl_easy_getinfo(easy(), CURLINFO_REDIRECT_URL, &to);
    if (to == nullptr) return outcome;
    if (origin_of(to) != origin_of(request_.url)) {
      outcome.why = "a signed request is not sent on to another host: " + origin_of(to);
      return outcome;
    }
    if (part_->redirects >= kRedirects) {
      outcome.why = "too many redirects";
      return outcome;
    }
    outcome.kind = Kind::redirected;
    outcome.why = to;
    return outcome;
  }
  ServiceFault said = read_service_fault(error_body_);
  if (repeats_secret(said.message, request_)) said.message.clear();
  outcome.why += said.text();
  if (status == 407) outcome.why += ": the proxy asks for a name and a password (http_proxy)";
  outcome.expired = (status == 400 || status == 403) && said.expired();
  if (status == 408 || status == 429 || status >= 500) outcome.kind = Kind::again;
  outcome.throttled = status == 429 || status == 503;
  curl_off_t seconds = 0;
  if (::curl_easy_getinfo(easy(), CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK && seconds > 0)
    outcome.retry_after = std::chrono::seconds(std::min<curl_off_t>(seconds, curl_off_t{1} << 30));
  return outcome;
}

bool Attempt::stalled(Time now, std::chrono::milliseconds stall) noexcept {
  if (now < next_look(stall)) return false;
  const auto least = kLeastBytesPerSecond *
                     static_cast<std::uint64_t>(std::max<std::int64_t>(stall.count(), 1000)) / 1000;
  const bool too_little = received_ - received_then_ < least;
  looked_ = now;
  received_then_ = received_;
  return too_little;
}

}  // namespace penstock::remote
