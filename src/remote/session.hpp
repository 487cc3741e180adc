// SPDX-License-Identifier: Apache-2.0
#pragma once

// Session: what the copies of a Client and its files share.

#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/remote.hpp>
#include <stdexcept>
#include <utility>

#include "ahead.hpp"
#include "object_stores.hpp"
#include "small_call.hpp"
#include "transfers.hpp"

namespace penstock::remote {

class Session {
 public:
  /// Wipes the secrets of `with`.
  explicit Session(Options&& with)
      : stores(with.stores, small_calls(with.ca_file)),
        options(std::move(with)),
        transfers(options),
        ahead(transfers, options.ahead_bytes) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { transfers.stop(); }  // Blocks of `ahead` are still there for parts that end.

  void require_own_process() const {
    if (!owner.is_this())
      throw std::runtime_error("a remote::Client is not for a child process of fork()");
  }

  ObjectStores stores;
  const Options options;
  Transfers transfers;
  Ahead ahead;
  const penstock::detail::OwnerProcess owner{};
};

}  // namespace penstock::remote
