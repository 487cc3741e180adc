// SPDX-License-Identifier: Apache-2.0
//
// Where CMake found no NCCL: one rank.

#include <stdexcept>

#include "../alone.hpp"
#include "../communicator.hpp"

namespace resnet {

std::unique_ptr<Communicator> make_communicator(const penstock::Ranks& ranks,
                                                const CommunicatorOptions&) {
  if (ranks.world_size == 1) return std::make_unique<Alone>();
  throw std::invalid_argument("this program was built without NCCL, and here are " +
                              std::to_string(ranks.world_size) +
                              " ranks: install NCCL (2.28 or later), and build it again");
}

}  // namespace resnet
