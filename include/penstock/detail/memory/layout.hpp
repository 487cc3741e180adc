// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/layout.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace penstock::detail {

[[noreturn]] PENSTOCK_INLINE void reject_field(std::size_t index, const std::string& why) {
  throw std::invalid_argument("Layout: field " + std::to_string(index) + " " + why);
}

/// a * b, sizes of field `index`.
PENSTOCK_INLINE std::int64_t checked_product(std::size_t index, std::int64_t a, std::int64_t b) {
  if (a != 0 && b > std::numeric_limits<std::int64_t>::max() / a)
    reject_field(index, "overflows: " + std::to_string(a) + " bytes times " + std::to_string(b));
  return a * b;
}

PENSTOCK_INLINE BlockLayout::BlockLayout(std::int64_t batch_size, const void* defaults,
                                         std::size_t batch_bytes, std::size_t batch_alignment)
    : batch_size_(batch_size),
      guard_(checks() ? field_guard : 0),
      batch_alignment_(batch_alignment),
      defaults_(batch_bytes) {
  if (batch_size < 1)
    throw std::invalid_argument("Layout: batch_size is " + std::to_string(batch_size) +
                                ", must be at least 1");
  std::memcpy(defaults_.data(), defaults, batch_bytes);
}

PENSTOCK_INLINE void BlockLayout::add(Field field) {
  const std::size_t index = fields_.size();
  for (const Field& earlier : fields_)
    if (earlier.member == field.member) reject_field(index, "is a member that was added before");
  auto sample_bytes = static_cast<std::int64_t>(field.sample_bytes);
  for (const std::int64_t extent : field.shape) {
    if (extent < 0) reject_field(index, "has a negative extent " + std::to_string(extent));
    sample_bytes = checked_product(index, sample_bytes, extent);
  }
  checked_product(index, sample_bytes, batch_size_);
  field.sample_bytes = static_cast<std::size_t>(sample_bytes);
  const std::size_t before = std::max(bytes(), guard_);
  field.offset = (before + field_alignment - 1) / field_alignment * field_alignment;
  if (end(field) > std::size_t{std::numeric_limits<std::int64_t>::max()})
    reject_field(index, "ends at byte " + std::to_string(end(field)) + ", beyond 63 bits");
  fields_.push_back(std::move(field));
}

PENSTOCK_INLINE std::size_t BlockLayout::bytes() const noexcept {
  return fields_.empty() ? 0 : end(fields_.back()) + guard_;
}

PENSTOCK_INLINE void BlockLayout::bind(void* batch, std::byte* block, std::int64_t samples) const {
  std::memcpy(batch, defaults_.data(), defaults_.size());
  rebind(batch, block, samples);
}

PENSTOCK_INLINE void BlockLayout::rebind(void* batch, std::byte* block,
                                         std::int64_t samples) const {
  check_samples(samples);
  for (const Field& field : fields_)
    field.write(static_cast<std::byte*>(batch) + field.member, block + field.offset, samples,
                field.shape.data());
}

PENSTOCK_INLINE void BlockLayout::resize(void* batch, std::int64_t samples) const {
  check_samples(samples);
  for (const Field& field : fields_)
    field.write(static_cast<std::byte*>(batch) + field.member, nullptr, samples,
                field.shape.data());
}

PENSTOCK_INLINE std::int64_t BlockLayout::samples(const void* batch, const std::byte* block) const {
  if (fields_.empty()) throw std::invalid_argument("Layout: there are no fields");
  const std::int64_t first = read(batch, 0).samples;
  check_samples(first);
  for (std::size_t index = 0; index < fields_.size(); ++index) {
    const View view = read(batch, index);
    if (view.memory != block + fields_[index].offset)
      reject_field(index,
                   "points elsewhere: sources write through a tensor, never replace its pointer");
    if (view.odd != 0)
      reject_field(index, "has " + std::to_string(view.odd_extent) + " as extent " +
                              std::to_string(view.odd) + ", the layout has " +
                              std::to_string(fields_[index].shape[view.odd - 1]));
    if (view.samples != first)
      reject_field(index, "has " + std::to_string(view.samples) + " samples, field 0 has " +
                              std::to_string(first));
  }
  return first;
}

PENSTOCK_INLINE void BlockLayout::check_samples(std::int64_t samples) const {
  if (samples < 0 || samples > batch_size_)
    throw std::invalid_argument("Layout: " + std::to_string(samples) +
                                " samples in a batch of at most " + std::to_string(batch_size_));
}

PENSTOCK_INLINE BlockLayout::View BlockLayout::read(const void* batch, std::size_t index) const {
  const Field& field = fields_[index];
  return field.read(static_cast<const std::byte*>(batch) + field.member, field.shape.data());
}

PENSTOCK_INLINE std::size_t BlockLayout::end(const Field& field) const noexcept {
  return field.offset + static_cast<std::size_t>(batch_size_) * field.sample_bytes;
}

}  // namespace penstock::detail
