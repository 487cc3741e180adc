// SPDX-License-Identifier: Apache-2.0
//
// This is compiled where CMake did not find what several ranks need: there is one rank then.

#include "alone.hpp"

#include <stdexcept>

#include "communicator.hpp"

namespace resnet {

std::unique_ptr<Communicator> make_communicator(const penstock::Ranks& ranks,
                                                const CommunicatorOptions&) {
  if (ranks.world_size == 1) return std::make_unique<Alone>();
  throw std::invalid_argument("this program was built without " RESNET_MISSING ", and here are " +
                              std::to_string(ranks.world_size) +
                              " ranks: install it, and build the program again");
}

}  // namespace resnet
