// SPDX-License-Identifier: Apache-2.0

#include <penstock/gds/gds_file.hpp>

#include "registered_file.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {

GdsFile::GdsFile(const File& file, const GdsOptions& options)
    : file_(std::make_shared<const detail::RegisteredFile>(file, options)) {}

const std::string& GdsFile::name() const noexcept {
  return file_->name();
}
std::uint64_t GdsFile::size() const noexcept {
  return file_->size();
}
GdsMode GdsFile::mode() const noexcept {
  return file_->why_compatible().empty() ? GdsMode::direct : GdsMode::compatibility;
}
const std::string& GdsFile::why_compatible() const noexcept {
  return file_->why_compatible();
}
std::size_t GdsFile::read(std::uint64_t offset, void* target, std::size_t bytes) const {
  return file_->read(offset, target, bytes);
}

}  // namespace penstock::gds
