// SPDX-License-Identifier: Apache-2.0
#pragma once

// RemoteFolder: whole objects below a prefix, for penstock::FileFolder.

#include <chrono>
#include <cstddef>
#include <memory>
#include <penstock/file_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  void will_need(std::span<const std::string_view>,
                 std::chrono::steady_clock::time_point) const noexcept override {}

 private:
  std::span<const std::byte> read_object(RemoteObject opened,
                                         std::vector<std::byte>& scratch) const;
  RemoteObject object_of(std::string_view file) const;

  const std::shared_ptr<Session> session_;
  const Location prefix_;
  const std::string url_;  // of http, without its query
  const std::string name_;
  const std::shared_ptr<Signatures> signatures_;
};

}  // namespace penstock::remote
