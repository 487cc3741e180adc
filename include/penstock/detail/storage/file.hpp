// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <mutex>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/storage/reopened_direct.hpp>
#include <penstock/file.hpp>
#include <stdexcept>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// A regular file of this machine.
class LocalFile final : public FileReader {
 public:
  explicit LocalFile(const std::filesystem::path& path)
      : name_(path.string()), file_(path), size_(file_.size()) {
    // O_NONBLOCK was for the opening. With it, io_uring refuses to wait on some file systems.
    ::fcntl(file_.descriptor(), F_SETFL, 0);
  }

  const std::string& name() const noexcept override { return name_; }
  std::uint64_t size() const noexcept override { return size_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const override {
    return file_.read(offset, target);
  }
  void will_need(std::span<const FileRange> ranges,
                 std::chrono::steady_clock::time_point due) const noexcept override {
    if (due == std::chrono::steady_clock::time_point::max()) return;
    for (const FileRange& range : ranges)
      if (range.offset < size_)
        file_.will_need(range.offset, std::min(range.bytes, size_ - range.offset));
  }
  int descriptor() const noexcept override { return file_.descriptor(); }
  DirectFile direct() const noexcept override {
    std::call_once(direct_is_open_, [this] { direct_ = reopened_direct(file_, name_); });
    return {.descriptor = direct_.file.descriptor(),
            .offset_alignment = direct_.offset_alignment,
            .memory_alignment = direct_.memory_alignment};
  }

 private:
  mutable std::once_flag direct_is_open_;
  mutable ReopenedDirect direct_;
  std::string name_;
  ReadOnlyFile file_;
  std::uint64_t size_;
};

}  // namespace detail

PENSTOCK_INLINE File File::open(const std::filesystem::path& path) {
  return File(std::make_shared<const detail::LocalFile>(path));
}

PENSTOCK_INLINE File::File(std::shared_ptr<const FileReader> reader) : reader_(std::move(reader)) {
  if (!reader_) throw std::invalid_argument("File: there is no reader");
}

}  // namespace penstock
