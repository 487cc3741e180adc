// SPDX-License-Identifier: Apache-2.0
#pragma once

// RemoteFile: an object of a server as penstock::File reads it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/file.hpp>
#include <span>
#include <string>
#include <vector>

#include "cache.hpp"
#include "part.hpp"
#include "session.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

class RemoteFile final : public FileReader {
 public:
  /// As Client::file(). `object` has a URL and a name, and who signs its requests.
  RemoteFile(std::shared_ptr<Session> session, RemoteObject object,
             std::shared_ptr<Signatures> signatures);
  ~RemoteFile() override;

  const std::string& name() const noexcept override { return object_->name; }
  std::uint64_t size() const noexcept override { return object_->size; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const override;
  void will_need(std::span<const FileRange> ranges,
                 std::chrono::steady_clock::time_point due) const noexcept override;

 private:
  void open(RemoteObject& object, bool whole);
  void read_behind_head(std::uint64_t offset, std::span<std::byte> target) const;
  void read_by_cache(Cache& cache, const CachePieces& pieces, std::uint64_t first,
                     std::span<std::byte> target) const;

  const std::shared_ptr<Session> session_;
  std::shared_ptr<const RemoteObject> object_;
  const std::shared_ptr<Signatures> signatures_;  // nullptr: there are no credentials to renew
  std::vector<std::byte> head_;                   // the first bytes
  std::optional<ObjectVersion> version_;          // nullopt: nothing of it is in the cache
};

}  // namespace penstock::remote
