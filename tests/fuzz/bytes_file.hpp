// SPDX-License-Identifier: Apache-2.0
#pragma once

// A File whose bytes are in memory.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <penstock/file.hpp>
#include <span>
#include <string>
#include <utility>

namespace penstock::test {

class BytesFile final : public FileReader {
 public:
  explicit BytesFile(std::string bytes) : bytes_(std::move(bytes)) {}

  const std::string& name() const noexcept override { return name_; }
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const override {
    if (offset >= bytes_.size() || target.empty()) return 0;
    const std::size_t count = std::min<std::size_t>(target.size(), bytes_.size() - offset);
    std::memcpy(target.data(), bytes_.data() + offset, count);
    return count;
  }
  void will_need(std::span<const FileRange>,
                 std::chrono::steady_clock::time_point) const noexcept override {}

 private:
  std::string bytes_, name_ = "input";
};

inline File file_of(std::string bytes) {
  return File(std::make_shared<const BytesFile>(std::move(bytes)));
}

}  // namespace penstock::test
