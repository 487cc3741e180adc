// SPDX-License-Identifier: Apache-2.0
#pragma once

// Session: what the copies of a Client and its files share.

#include <optional>
#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/remote.hpp>
#include <stdexcept>
#include <utility>

#include "ahead.hpp"
#include "cache.hpp"
#include "object_stores.hpp"
#include "small_call.hpp"
#include "transfers.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

class Session {
 public:
  /// Wipes the secrets of `with`.
  explicit Session(Options&& with)
      : stores(with.stores, small_calls(with.ca_file)),
        options(std::move(with)),
        transfers(options),
        ahead(transfers, options.ahead_bytes) {
    if (!options.cache.directory.empty()) cache.emplace(options.cache, transfers.counters);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { transfers.stop(); }  // Blocks of `ahead` are still there for parts that end.

  void require_own_process() const {
    if (!owner.is_this())
      throw std::runtime_error("a remote::Client is not for a child process of fork()");
  }

  /// The cache, for a read; nullptr: there is none, or the client was cancelled.
  Cache* cache_of_reads() noexcept { return cache && !transfers.stopping() ? &*cache : nullptr; }

  ObjectStores stores;
  const Options options;
  Transfers transfers;
  Ahead ahead;
  std::optional<Cache> cache;
  const penstock::detail::OwnerProcess owner{};
};

}  // namespace penstock::remote
