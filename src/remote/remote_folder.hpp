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
#include "usual_size.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

class RemoteFolder final : public FolderReader {
 public:
  /// As Client::folder(). `url` is that of `prefix`.
  RemoteFolder(std::shared_ptr<Session> session, Location prefix, const std::string& url);

  ~RemoteFolder() override;

  const std::string& name() const noexcept override { return name_; }
  std::span<const std::byte> read(std::string_view file,
                                  std::vector<std::byte>& scratch) const override;
  /// Fetches each file that is not in the cache, whole, or as much as nearly all files have. With
  /// the time `later` it fetches nothing, and tells the cache what is read: of files of several
  /// slots only the first one, until they have been read once.
  void will_need(std::span<const std::string_view> files,
                 std::chrono::steady_clock::time_point due) const noexcept override;

 private:
  /// An object that is in the cache, or was; the server has confirmed it since the folder was made.
  struct Known {
    ObjectVersion version;
    std::uint64_t size = 0;
  };
  struct Fetched {
    std::span<std::byte> bytes;
    std::string etag;
  };
  struct Hash {
    std::size_t operator()(const ObjectVersion& id) const noexcept { return id[0]; }
  };
  using Object = std::shared_ptr<const RemoteObject>;

  RemoteObject object_of(std::string_view file) const;
  Object take_announced(std::string_view file) const;
  std::optional<Ahead::Block::Opened> open(const Object& object, std::size_t begin,
                                           std::vector<std::byte>& scratch) const;
  std::optional<Fetched> fetch(const Object& object, std::size_t begin,
                               std::vector<std::byte>& scratch) const;
  std::span<const std::byte> read_by_cache(Cache& cache, Object object,
                                           std::vector<std::byte>& scratch) const;
  void tell_cache(std::span<const std::string_view> files) const;
  void fetch_ahead(std::span<const std::string_view> files, Time due) const;
  std::optional<Known> known(const ObjectVersion& id) const;
  void remember(const ObjectVersion& id, const Known& object) const;

  const std::shared_ptr<Session> session_;
  const Location prefix_;
  const std::string url_;  // of http, without its query
  const std::string name_;
  const std::shared_ptr<Signatures> signatures_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<ObjectVersion, Known, Hash> known_;  // by object_id()
  mutable std::unordered_map<std::string, Object> announced_;     // files that are fetched ahead
  mutable std::size_t look_through_ = 1024;                       // announced_, when it has so many
  mutable UsualSize usual_size_;
};

}  // namespace penstock::remote
