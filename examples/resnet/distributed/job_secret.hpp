// SPDX-License-Identifier: Apache-2.0
#pragma once

// JobSecret: what the ranks of a job have and nobody else, by which they know each other. It is
// never sent: a rank proves that it has it by an HMAC over random numbers of both sides.

#include <cstddef>
#include <string>
#include <string_view>

namespace resnet {

class JobSecret {
 public:
  static constexpr std::size_t kShortest = 16;
  static constexpr std::size_t kProof = 32;  ///< bytes of a proof: HMAC-SHA256

  /// None: then every proof is one of an empty secret, which anybody can make.
  JobSecret() = default;
  /// Throws std::invalid_argument where it has fewer than kShortest characters.
  explicit JobSecret(std::string text);
  JobSecret(const JobSecret&) = default;
  JobSecret(JobSecret&&) = default;
  JobSecret& operator=(const JobSecret&) = default;
  JobSecret& operator=(JobSecret&&) = default;
  ~JobSecret();

  /// PENSTOCK_JOB_SECRET, or the text of the file that PENSTOCK_JOB_SECRET_FILE names, without its
  /// last line break; none where neither is set. Throws std::invalid_argument where both are, where
  /// the file cannot be read or others than its owner may read or write it, and where the secret is
  /// too short. No message has the secret.
  static JobSecret from_environment();

  bool empty() const noexcept { return text_.empty(); }
  /// kProof bytes that only who has the secret can make. `role` is a word of the code's own,
  /// `nonces` are those of both sides. Throws std::runtime_error where OpenSSL fails.
  std::string proof(std::string_view role, std::string_view nonces, std::string_view text) const;
  /// Whether `proof` is that of these. It takes the same time wherever they differ.
  bool accepts(std::string_view proof, std::string_view role, std::string_view nonces,
               std::string_view text) const;

 private:
  std::string text_;
};

inline constexpr std::size_t kNonce = 32;
/// So many random bytes. Throws std::runtime_error where the system has none.
std::string nonce();

}  // namespace resnet
