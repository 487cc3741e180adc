// SPDX-License-Identifier: Apache-2.0
#pragma once

// Signer: AWS Signature Version 4 in the header Authorization. Google Cloud Storage takes it too,
// with HMAC keys.

#include <array>
#include <cstddef>
#include <memory>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "credentials.hpp"
#include "http_call.hpp"
#include "secret.hpp"
#include "url.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// Signs the calls of one service in one region. One thread at a time uses one object, which keeps
/// the key that it has derived for the day, and memory for the texts that are signed.
class Signer {
 public:
  /// `service`: "s3" for S3, GCS and what speaks their protocol; "sts". Throws std::runtime_error
  /// where OpenSSL has no SHA-256 or HMAC.
  explicit Signer(std::string region, std::string service = "s3");
  Signer(Signer&&) noexcept;
  Signer& operator=(Signer&&) noexcept;
  ~Signer();

  /// Puts the headers of a signature into the call, in place of those of an earlier one:
  /// x-amz-date, x-amz-content-sha256 (s3 alone), x-amz-security-token, authorization. Signed are
  /// the method, the path and query of the URL, the host, and all headers of the call but those
  /// that a proxy may change; so none may be added or changed afterwards. Over https an s3 call's
  /// body is not signed (UNSIGNED-PAYLOAD), since TLS protects it. Anonymous credentials: takes
  /// such headers away. `now`: servers refuse what is more than 15 minutes from their clock. Throws
  /// std::invalid_argument for a URL that is none, or that is not encoded.
  void sign(HttpCall& call, const Credentials& credentials, WallTime now) {
    sign(call.method, call.url, call.body, call.headers, credentials, now);
  }
  /// The same for a call that is no HttpCall: changes its headers, "name: value".
  void sign(std::string_view method, std::string_view url, std::string_view body,
            std::vector<std::string>& headers, const Credentials& credentials, WallTime now);

  /// The texts of the last signature, to compare with what a server says that it has calculated.
  /// They hold the session token.
  const std::string& canonical_request() const noexcept { return canonical_; }
  const std::string& string_to_sign() const noexcept { return to_sign_; }

 private:
  struct Hashes;
  struct Pair {
    std::string name, value;
    std::size_t order = 0;
  };

  void write_canonical(std::string_view method, const std::vector<std::string>& headers,
                       const UrlParts& parts);
  void write_query(std::string_view query);
  void write_headers(const std::vector<std::string>& headers, std::string_view authority);
  Pair& next_pair(std::size_t order);
  void sort_pairs();
  void derive_key(const Credentials& credentials, std::string_view date);

  std::string region_, service_;
  std::unique_ptr<Hashes> hashes_;
  std::array<char, 17> time_{};    // 20261127T010203Z
  std::string key_id_, key_date_;  // of the derived key
  Secret key_secret_;
  std::string payload_, canonical_, signed_headers_, scope_, to_sign_, header_;
  std::vector<Pair> pairs_;  // the first pairs_used_; their memory is used again
  std::size_t pairs_used_ = 0;
};

/// Puts "authorization: Bearer <token>" into the call, in place of an earlier authorization. For
/// GCS with a token of OAuth 2.0.
void set_bearer_token(HttpCall& call, const Secret& token);

}  // namespace penstock::remote
