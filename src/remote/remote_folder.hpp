// SPDX-License-Identifier: Apache-2.0
#pragma once

// RemoteFolder: whole objects below a prefix, for penstock::FileFolder.

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/file_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache.hpp"
#include "location.hpp"
#include "part.hpp"
#include "session.hpp"

namespace penstock::remote {

class RemoteFolder final : public FolderReader {
 public:
  /// As Client::folder(). `url` is that of `prefix`.
  RemoteFolder(std::shared_ptr<Session> session, Location prefix, const std::string& url);

  const std::string& name() const noexcept override { return name_; }
  std::span<const std::byte> read(std::string_view file,
                                  std::vector<std::byte>& scratch) const override;
  /// Fetches nothing; with the time `later` it tells the cache what is read.
  void will_need(std::span<const std::string_view> files,
                 std::chrono::steady_clock::time_point due) const noexcept override;

 private:
  /// What is known of an object, since it was read.
  struct Known {
    ObjectVersion version;
    std::uint64_t size = 0;
  };
  struct Hash {
    std::size_t operator()(const ObjectVersion& id) const noexcept { return id[0]; }
  };

  std::span<const std::byte> read_object(RemoteObject opened,
                                         std::vector<std::byte>& scratch) const;
  RemoteObject object_of(std::string_view file) const;
  std::optional<Known> known(const ObjectVersion& id) const;
  bool read_from(Cache& cache, const Known& object, std::vector<std::byte>& scratch) const;

  const std::shared_ptr<Session> session_;
  const Location prefix_;
  const std::string url_;  // of http, without its query
  const std::string name_;
  const std::shared_ptr<Signatures> signatures_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<ObjectVersion, Known, Hash> known_;  // by object_id()
};

}  // namespace penstock::remote
