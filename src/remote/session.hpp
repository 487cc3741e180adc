// SPDX-License-Identifier: Apache-2.0
#pragma once

// Session: what the copies of a Client and its files share.

#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/remote.hpp>
#include <utility>

#include "ahead.hpp"
#include "transfers.hpp"

namespace penstock::remote {

class Session {
 public:
  explicit Session(Options with)
      : options(std::move(with)), transfers(options), ahead(transfers, options.ahead_bytes) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { transfers.stop(); }  // Blocks of `ahead` are still there for parts that end.

  const Options options;
  Transfers transfers;
  Ahead ahead;
  const penstock::detail::OwnerProcess owner{};
};

}  // namespace penstock::remote
