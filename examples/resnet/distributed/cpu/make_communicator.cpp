// SPDX-License-Identifier: Apache-2.0

#include <stdexcept>

#include "../alone.hpp"
#include "../communicator.hpp"

namespace resnet {

std::unique_ptr<Communicator> make_communicator(const penstock::Ranks& ranks,
                                                const CommunicatorOptions&) {
  if (ranks.world_size == 1) return std::make_unique<Alone>();
  throw std::invalid_argument("make_communicator: more than one rank is not possible yet");
}

}  // namespace resnet
