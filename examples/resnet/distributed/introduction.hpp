// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a rank and rank 0 introduce themselves to each other, by messages in turn:
//
//   hello      the rank's nonce
//   challenge  rank 0's proof that it has the secret, and its nonce. A stranger gets no further.
//   proof      the rank's proof, of a claim; and the claim
//   welcome    rank 0's proof that it has agreed to this claim; or `refused`, and why
//
// Each proof is over both nonces, so that one that was recorded is worth nothing later, and over a
// word for who makes it, so that none can be sent back to its maker.

#include <optional>
#include <string>
#include <string_view>

namespace resnet {

inline constexpr std::string_view kOfRank0 = "penstock: rank 0", kOfRank = "penstock: rank",
                                  kOfWelcome = "penstock: welcome";
/// The refusal of who may be anybody.
inline constexpr const char* kUnproven =
    "refused: has this rank the same secret (PENSTOCK_JOB_SECRET) as rank 0?";

/// What a rank says of itself.
struct Claim {
  int world_size = 0, rank = -1, channel = -1;
  std::string host, job;
};

std::string text_of(const Claim& claim);
std::optional<Claim> read_claim(const std::string& text);

}  // namespace resnet
