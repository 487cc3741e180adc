// SPDX-License-Identifier: Apache-2.0
#include "introduction.hpp"

#include <sstream>

namespace resnet {

std::string text_of(const Claim& claim) {
  std::ostringstream out;
  out << claim.world_size << ' ' << claim.rank << ' ' << claim.channel << ' ' << claim.host << ' '
      << claim.job;
  return out.str();
}

std::optional<Claim> read_claim(const std::string& text) {
  Claim claim;
  std::istringstream in(text);
  if (!(in >> claim.world_size >> claim.rank >> claim.channel >> claim.host)) return {};
  in.get();
  std::getline(in, claim.job);
  return claim;
}

}  // namespace resnet
