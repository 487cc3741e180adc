// SPDX-License-Identifier: Apache-2.0
#pragma once

// A File of any descriptor: of a pipe, of /proc, or of a file that was opened in another way.

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/file.hpp>
#include <span>
#include <string>
#include <system_error>

namespace penstock::test {

class DescriptorFile final : public FileReader {
 public:
  /// Closes the descriptor at its end.
  explicit DescriptorFile(int descriptor) : descriptor_(descriptor) {}
  ~DescriptorFile() override { ::close(descriptor_); }

  const std::string& name() const noexcept override { return name_; }
  std::uint64_t size() const noexcept override { return 1 << 20; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const override {
    ++reads;
    std::size_t done = 0;
    while (done < target.size()) {
      const ::ssize_t count = ::pread(descriptor_, target.data() + done, target.size() - done,
                                      static_cast<::off_t>(offset + done));
      if (count < 0) throw std::system_error(errno, std::generic_category(), "cannot read");
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }
  void will_need(std::span<const FileRange>,
                 std::chrono::steady_clock::time_point) const noexcept override {}
  int descriptor() const noexcept override { return descriptor_; }

  mutable std::uint64_t reads = 0;

 private:
  const int descriptor_;
  const std::string name_ = "descriptor";
};

}  // namespace penstock::test
