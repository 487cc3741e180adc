// SPDX-License-Identifier: Apache-2.0
#pragma once

// RegisteredFile: a file that cuFile knows, with a descriptor of its own.

#include <cstddef>
#include <cstdint>
#include <penstock/detail/open_file.hpp>
#include <penstock/file.hpp>
#include <penstock/gds/gds_file.hpp>
#include <string>

#include "cufile_driver.hpp"

namespace penstock::inline PENSTOCK_ABI::gds::detail {

class RegisteredFile {
 public:
  /// Throws GdsError.
  RegisteredFile(const File& file, const GdsOptions& options);
  RegisteredFile(const RegisteredFile&) = delete;
  RegisteredFile& operator=(const RegisteredFile&) = delete;
  ~RegisteredFile();

  const std::string& name() const noexcept { return name_; }
  std::uint64_t size() const noexcept { return size_; }
  const std::string& why_compatible() const noexcept { return why_compatible_; }
  const CufileDriver& driver() const noexcept { return driver_; }
  cufile::Handle handle() const noexcept { return handle_; }

  /// As many of `bytes` from `offset` on as the file had when it was opened.
  std::size_t available(std::uint64_t offset, std::size_t bytes) const noexcept {
    return offset >= size_
               ? 0
               : static_cast<std::size_t>(std::min<std::uint64_t>(bytes, size_ - offset));
  }
  /// Throws GdsError in a child of fork().
  void require_own() const;
  /// See GdsFile::read().
  std::size_t read(std::uint64_t offset, void* target, std::size_t bytes) const;

 private:
  [[noreturn]] void fail(const std::string& why) const { throw GdsError(name_ + ": " + why); }
  void open(const File& file);
  void register_handle();

  const std::string name_;
  const std::uint64_t size_;
  const CufileDriver driver_;
  penstock::detail::OpenFile file_;
  bool is_past_cache_ = true;
  std::string why_compatible_;
  cufile::Handle handle_ = nullptr;
};

}  // namespace penstock::gds::detail
