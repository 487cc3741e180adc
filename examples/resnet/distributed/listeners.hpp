// SPDX-License-Identifier: Apache-2.0
#pragma once

// Listeners: the sockets at which rank 0 waits for the others.

#include <penstock/ranks.hpp>
#include <string>
#include <vector>

#include "connection.hpp"

namespace resnet {

struct Listeners {
  std::vector<Socket> sockets;  ///< that do not block, all at one port
  int port = 0;
  std::string where;  ///< "127.0.0.1", "10.0.0.5 and fd00::5", "all addresses"
};

/// Listens at the first of these ports that is free. Where all ranks are on this machine, others
/// cannot connect. Else it listens at those addresses of this machine that ranks.host leads to. A
/// name may lead to none here, as that of a service does, or to a loopback address, as a machine's
/// own name often does on the machine itself: then at all addresses. Throws RankError where no port
/// is free.
Listeners listen(const penstock::Ranks& ranks, const std::vector<int>& ports);

}  // namespace resnet
