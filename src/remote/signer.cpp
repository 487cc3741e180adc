// SPDX-License-Identifier: Apache-2.0

#include "signer.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "url.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

namespace {

using Hash = std::array<unsigned char, 32>;

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::string_view kUnsigned = "UNSIGNED-PAYLOAD";
constexpr std::array<std::string_view, 4> kOwn = {"authorization", "x-amz-date",
                                                  "x-amz-content-sha256", "x-amz-security-token"};
/// Those that a client or a proxy may set or change on the way.
constexpr std::array<std::string_view, 9> kNotSigned = {
    "accept-encoding",   "authorization", "connection", "content-length", "expect", "te",
    "transfer-encoding", "user-agent",    "via"};

void append_hex(std::string& out, const Hash& hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const unsigned char byte : hash) out.append({kDigits[byte >> 4], kDigits[byte & 15]});
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view name_of(std::string_view header) {
  return header.substr(0, header.find(':'));
}

bool is_named(std::string_view header, std::string_view name) {
  const std::string_view own = name_of(header);
  return own.size() == name.size() && std::equal(own.begin(), own.end(), name.begin(),
                                                 [](char a, char b) { return lower(a) == b; });
}

template <class Names>
bool is_one_of(std::string_view header, const Names& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return is_named(header, name); });
}

/// The header of this name, in place: it takes no memory where the call is signed again.
void set_header(std::vector<std::string>& headers, std::string_view name, std::string_view value) {
  auto header = std::find_if(headers.begin(), headers.end(),
                             [&](const std::string& own) { return is_named(own, name); });
  if (header == headers.end()) header = headers.insert(header, std::string());
  header->assign(name).append(": ").append(value);
}

void remove_header(std::vector<std::string>& headers, std::string_view name) {
  std::erase_if(headers, [&](const std::string& header) { return is_named(header, name); });
}

/// Without spaces at the ends, and with one space in place of several.
void append_collapsed(std::string& out, std::string_view text) {
  bool between = false;
  const std::size_t begin = out.size();
  for (const char c : text) {
    if (c == ' ' || c == '\t') {
      between = out.size() > begin;
    } else {
      if (between) out += ' ';
      between = false;
      out += c;
    }
  }
}

/// As S3 encodes it, however it was encoded.
void append_canonical(std::string& out, std::string_view text, bool keep_slashes) {
  if (!append_normalised(out, text, keep_slashes))
    throw std::invalid_argument("to be signed, a URL must be percent-encoded");
}

}  // namespace

struct Signer::Hashes {
  Hashes()
      : sha256(EVP_MD_fetch(nullptr, "SHA256", nullptr), &EVP_MD_free),
        digest(EVP_MD_CTX_new(), &EVP_MD_CTX_free),
        hmac(EVP_MAC_fetch(nullptr, "HMAC", nullptr), &EVP_MAC_free),
        mac(hmac ? EVP_MAC_CTX_new(hmac.get()) : nullptr, &EVP_MAC_CTX_free) {
    char name[] = "SHA256";
    const std::array<OSSL_PARAM, 2> parameters = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
        OSSL_PARAM_construct_end()};
    require(sha256 && digest && hmac && mac);
    require(EVP_MAC_CTX_set_params(mac.get(), parameters.data()) == 1);
  }
  ~Hashes() { OPENSSL_cleanse(key.data(), key.size()); }
  Hashes(const Hashes&) = delete;
  Hashes& operator=(const Hashes&) = delete;

  static void require(bool done) {
    if (!done) throw std::runtime_error("OpenSSL cannot calculate a signature (SHA-256, HMAC)");
  }

  Hash hash(std::string_view text) const {
    Hash out;
    require(EVP_DigestInit_ex(digest.get(), sha256.get(), nullptr) == 1 &&
            EVP_DigestUpdate(digest.get(), text.data(), text.size()) == 1 &&
            EVP_DigestFinal_ex(digest.get(), out.data(), nullptr) == 1);
    return out;
  }

  Hash mac_of(std::string_view of_key, std::string_view text) const {
    Hash out;
    std::size_t size = 0;
    const auto bytes = [](std::string_view view) {
      return reinterpret_cast<const unsigned char*>(view.data());
    };
    require(EVP_MAC_init(mac.get(), bytes(of_key), of_key.size(), nullptr) == 1 &&
            EVP_MAC_update(mac.get(), bytes(text), text.size()) == 1 &&
            EVP_MAC_final(mac.get(), out.data(), &size, out.size()) == 1 && size == out.size());
    return out;
  }
  static std::string_view view(const Hash& hash) {
    return {reinterpret_cast<const char*>(hash.data()), hash.size()};
  }

  std::unique_ptr<EVP_MD, void (*)(EVP_MD*)> sha256;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> digest;
  std::unique_ptr<EVP_MAC, void (*)(EVP_MAC*)> hmac;
  std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)> mac;
  Hash key{};  // derived for the day
};

Signer::Signer(std::string region, std::string service)
    : region_(std::move(region)),
      service_(std::move(service)),
      hashes_(std::make_unique<Hashes>()) {}
Signer::Signer(Signer&&) noexcept = default;
Signer& Signer::operator=(Signer&&) noexcept = default;
Signer::~Signer() = default;

void Signer::sign(std::string_view method, std::string_view url, std::string_view body,
                  std::vector<std::string>& headers, const Credentials& credentials, WallTime now) {
  if (credentials.anonymous()) {
    for (const std::string_view name : kOwn) remove_header(headers, name);
    return;
  }
  const std::optional<UrlParts> parts = split_url(url);
  if (!parts || parts->authority.empty())
    throw std::invalid_argument("\"" + printable_url(url) + "\": no URL that can be signed");

  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm fields{};
  ::gmtime_r(&seconds, &fields);
  std::strftime(time_.data(), time_.size(), "%Y%m%dT%H%M%SZ", &fields);
  const std::string_view time(time_.data()), date = time.substr(0, 8);

  payload_.clear();
  if (service_ == "s3" && parts->scheme == "https")
    payload_ = kUnsigned;
  else
    append_hex(payload_, hashes_->hash(body));
  if (service_ == "s3") set_header(headers, "x-amz-content-sha256", payload_);
  set_header(headers, "x-amz-date", time);
  if (credentials.session_token.empty())
    remove_header(headers, "x-amz-security-token");
  else
    set_header(headers, "x-amz-security-token", credentials.session_token.reveal());

  write_canonical(method, headers, *parts);
  scope_.assign(date).append("/").append(region_).append("/").append(service_);
  scope_ += "/aws4_request";
  to_sign_.assign(kAlgorithm).append("\n").append(time).append("\n").append(scope_).append("\n");
  append_hex(to_sign_, hashes_->hash(canonical_));
  derive_key(credentials, date);

  header_.assign(kAlgorithm).append(" Credential=").append(credentials.key_id).append("/");
  header_.append(scope_).append(",SignedHeaders=").append(signed_headers_).append(",Signature=");
  append_hex(header_, hashes_->mac_of(Hashes::view(hashes_->key), to_sign_));
  set_header(headers, "authorization", header_);
}

void Signer::write_canonical(std::string_view method, const std::vector<std::string>& headers,
                             const UrlParts& parts) {
  canonical_.assign(method).append("\n");
  append_canonical(canonical_, parts.path.empty() ? "/" : parts.path, true);
  canonical_ += '\n';
  write_query(parts.query);
  canonical_ += '\n';
  write_headers(headers, parts.authority);
  canonical_.append("\n").append(signed_headers_).append("\n").append(payload_);
}

void Signer::write_query(std::string_view query) {
  pairs_used_ = 0;
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(part.size() == query.size() ? part.size() : part.size() + 1);
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    Pair& pair = next_pair(0);
    append_canonical(pair.name, part.substr(0, equals), false);
    if (equals != std::string_view::npos)
      append_canonical(pair.value, part.substr(equals + 1), false);
  }
  sort_pairs();
  for (std::size_t i = 0; i < pairs_used_; ++i)
    canonical_.append(i == 0 ? "" : "&").append(pairs_[i].name).append("=").append(pairs_[i].value);
}

void Signer::write_headers(const std::vector<std::string>& headers, std::string_view authority) {
  pairs_used_ = 0;
  const auto is_host = [](const std::string& header) { return is_named(header, "host"); };
  if (std::none_of(headers.begin(), headers.end(), is_host)) {
    Pair& host = next_pair(0);
    host.name = "host";
    host.value = authority;
  }
  for (const std::string& header : headers) {
    if (is_one_of(header, kNotSigned)) continue;
    const std::string_view name = name_of(header);
    if (name.size() == header.size())
      throw std::invalid_argument("to be signed, a header must be a name, \":\" and a value");
    Pair& pair = next_pair(pairs_used_);
    for (const char c : name) pair.name += lower(c);
    append_collapsed(pair.value, std::string_view(header).substr(name.size() + 1));
  }
  sort_pairs();
  signed_headers_.clear();
  for (std::size_t i = 0; i < pairs_used_; ++i) {
    if (i > 0 && pairs_[i].name == pairs_[i - 1].name) {  // one header in several lines
      canonical_.back() = ',';
    } else {
      signed_headers_.append(i == 0 ? "" : ";").append(pairs_[i].name);
      canonical_.append(pairs_[i].name).append(":");
    }
    canonical_.append(pairs_[i].value).append("\n");
  }
}

Signer::Pair& Signer::next_pair(std::size_t order) {
  if (pairs_used_ == pairs_.size()) pairs_.emplace_back();
  Pair& pair = pairs_[pairs_used_++];
  pair.name.clear();
  pair.value.clear();
  pair.order = order;
  return pair;
}

/// Headers of one name stay in their order, and values of one parameter are sorted too.
void Signer::sort_pairs() {
  std::sort(pairs_.begin(), pairs_.begin() + static_cast<std::ptrdiff_t>(pairs_used_),
            [](const Pair& a, const Pair& b) {
              return std::tie(a.name, a.order, a.value) < std::tie(b.name, b.order, b.value);
            });
}

void Signer::derive_key(const Credentials& credentials, std::string_view date) {
  if (key_date_ == date && key_id_ == credentials.key_id &&
      key_secret_.reveal() == credentials.secret_key.reveal())
    return;
  std::string start = "AWS4";
  start.reserve(start.size() + credentials.secret_key.reveal().size());
  const WipedAtEnd wiped(start);
  start += credentials.secret_key.reveal();
  Hash& key = hashes_->key;
  key = hashes_->mac_of(start, date);
  key = hashes_->mac_of(Hashes::view(key), region_);
  key = hashes_->mac_of(Hashes::view(key), service_);
  key = hashes_->mac_of(Hashes::view(key), "aws4_request");
  key_date_ = date;
  key_id_ = credentials.key_id;
  key_secret_ = credentials.secret_key;
}

void set_bearer_token(HttpCall& call, const Secret& token) {
  set_header(call.headers, "authorization", std::string("Bearer ").append(token.reveal()));
}

}  // namespace penstock::remote
