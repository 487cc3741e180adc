// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/layout.hpp>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/ragged.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

[[noreturn]] PENSTOCK_INLINE void reject_field(const std::string& name, const std::string& why) {
  throw std::invalid_argument("Layout: field " + name + " " + why);
}

/// Returns a * b. Throws if it overflows.
PENSTOCK_INLINE std::int64_t checked_product(const std::string& name, std::int64_t a,
                                             std::int64_t b) {
  if (a != 0 && b > std::numeric_limits<std::int64_t>::max() / a)
    reject_field(name, "overflows: " + std::to_string(a) + " bytes times " + std::to_string(b));
  return a * b;
}

/// Returns the last name in the compiler's text for a member: "labels" in "... &specimen.labels}]".
PENSTOCK_INLINE std::string member_name(std::string_view text) {
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  while (!text.empty() && !in_name(text.back())) text.remove_suffix(1);
  std::size_t begin = text.size();
  while (begin > 0 && in_name(text[begin - 1])) --begin;
  return std::string(text.substr(begin));
}

PENSTOCK_INLINE BlockLayout::BlockLayout(std::int64_t batch_size, const void* defaults,
                                         std::size_t batch_bytes, std::size_t batch_alignment,
                                         std::vector<BatchMember> members)
    : batch_size_(batch_size == no_batch_size ? 0 : batch_size),
      guard_(checks() ? field_guard : 0),
      batch_alignment_(batch_alignment),
      defaults_(batch_bytes),
      members_(std::move(members)) {
  // The limit leaves room for the numbers of the samples and the rows of ragged fields.
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  if (batch_size != no_batch_size && (batch_size < 1 || batch_size > kMost))
    throw std::invalid_argument("Layout: batch_size is " + std::to_string(batch_size) +
                                " samples, must be at least 1" +
                                (batch_size < 1 ? "" : ", and at most 2^48"));
  std::memcpy(defaults_.data(), defaults, batch_bytes);
}

PENSTOCK_INLINE void BlockLayout::add(Field field) {
  const auto known = std::find_if(members_.begin(), members_.end(), [&](const BatchMember& member) {
    return member.offset == field.member && member.is_view;
  });
  field.name = known == members_.end() ? std::to_string(fields_.size()) : member_name(known->text);
  for (const Field& earlier : fields_)
    if (earlier.member == field.member)
      reject_field(field.name, "is a member that was added before");

  field.element_bytes = field.sample_bytes;
  // The other extents are checked for overflow even if one extent is 0, since the strides of a
  // tensor are computed from them.
  auto sample_bytes = static_cast<std::int64_t>(field.sample_bytes);
  bool is_empty = false;
  for (const std::int64_t extent : field.shape) {
    if (extent < 0) reject_field(field.name, "has a negative extent " + std::to_string(extent));
    is_empty |= extent == 0;
    if (extent != 0) sample_bytes = checked_product(field.name, sample_bytes, extent);
  }
  if (is_empty) sample_bytes = 0;
  if (field.capacity < 0)
    reject_field(field.name, "has a negative capacity " + std::to_string(field.capacity));
  checked_product(field.name, sample_bytes, field.is_ragged() ? field.capacity : batch_size_);
  field.sample_bytes = static_cast<std::size_t>(sample_bytes);
  field.offset = next_offset(fields_.empty() ? 0 : end(fields_.back()));
  if (field.is_ragged()) {
    checked_product(field.name, sizeof(std::int64_t), batch_size_);
    field.values = next_offset(field.offset + offset_bytes(batch_size_));
  }
  if (end(field) > std::size_t{std::numeric_limits<std::int64_t>::max()})
    reject_field(field.name, "ends at byte " + std::to_string(end(field)) + ", beyond 63 bits");
  fields_.push_back(std::move(field));
}

PENSTOCK_INLINE const BlockLayout& BlockLayout::for_source() const {
  if (batch_size_ != 0) return *this;
  throw std::invalid_argument(
      "Layout: it has no batch size, and describes what a source fills: write "
      "penstock::Layout<Batch>{256}. The batch size may be left out of the layout of a "
      "DeviceTransform alone, which takes that of the host layout");
}

PENSTOCK_INLINE BlockLayout BlockLayout::for_slots(std::int64_t batch_size) const {
  if (batch_size_ != 0) return *this;
  BlockLayout layout = *this;
  layout.batch_size_ = batch_size;
  layout.fields_.clear();
  for (Field field : fields_) {
    field.sample_bytes = field.element_bytes;
    layout.add(std::move(field));
  }
  return layout;
}

PENSTOCK_INLINE void BlockLayout::reserve_samples(std::vector<std::uint64_t>& numbers) const try {
  numbers.reserve(static_cast<std::size_t>(batch_size_));
} catch (const std::exception& error) {
  throw std::runtime_error(
      "Layout: there is no memory for the numbers of the samples of a batch: " +
      std::to_string(batch_size_) + " samples (batch_size), 8 bytes each (" + error.what() + ")");
}

PENSTOCK_INLINE void BlockLayout::require_fields() const {
  if (fields_.empty()) throw std::invalid_argument("the layout has no field: call field()");
  const auto is_known = [this](std::size_t offset) {
    return std::any_of(fields_.begin(), fields_.end(),
                       [=](const Field& field) { return field.member == offset; }) ||
           std::find(plain_views_.begin(), plain_views_.end(), offset) != plain_views_.end();
  };
  for (const BatchMember& member : members_) {
    if ((!member.is_view && !member.holds_view) || is_known(member.offset)) continue;
    throw std::invalid_argument(
        "Layout: " + member_name(member.text) +
        (member.is_view ? " is a Tensor or a Ragged, and no field: add it with field(), or "
                        : " is a struct with a Tensor or a Ragged in it, which can be no field: "
                          "make it a member of the batch itself, or ") +
        "say with value() that the source points it at something");
  }
}

/// Returns the offset of the part of a block that follows the part that ends at `end`.
PENSTOCK_INLINE std::size_t BlockLayout::next_offset(std::size_t end) const noexcept {
  return (end + guard_ + field_alignment - 1) / field_alignment * field_alignment;
}

/// The size includes at least one byte of the last field, even if that has 0 bytes: so the field's
/// address lies within the block, and its owner can be queried.
PENSTOCK_INLINE std::size_t BlockLayout::bytes() const noexcept {
  if (fields_.empty() || batch_size_ == 0) return 0;
  const Field& last = fields_.back();
  return std::max(end(last), (last.is_ragged() ? last.values : last.offset) + 1) + guard_;
}

PENSTOCK_INLINE void BlockLayout::bind(void* batch, std::byte* block, std::int64_t samples) const {
  std::memcpy(batch, defaults_.data(), defaults_.size());
  rebind(batch, block, samples);
  for (const Field& field : fields_)
    if (field.is_ragged()) ragged(field, batch).total = field.capacity;
}

PENSTOCK_INLINE void BlockLayout::rebind(void* batch, std::byte* block,
                                         std::int64_t samples) const {
  check_samples(samples);
  for (const Field& field : fields_) {
    if (field.is_ragged())
      ragged(field, batch) = {.values = block + field.values,
                              .offsets = reinterpret_cast<std::int64_t*>(block + field.offset),
                              .rows = samples,
                              .total = ragged(field, batch).total,
                              .capacity = field.capacity};
    else
      field.write(static_cast<std::byte*>(batch) + field.member, block + field.offset, samples,
                  field.shape.data());
  }
}

PENSTOCK_INLINE void BlockLayout::resize(void* batch, std::int64_t samples) const {
  check_samples(samples);
  for (const Field& field : fields_) {
    if (field.is_ragged())
      ragged(field, batch).rows = samples;
    else
      field.write(static_cast<std::byte*>(batch) + field.member, nullptr, samples,
                  field.shape.data());
  }
}

PENSTOCK_INLINE std::int64_t BlockLayout::samples(const void* batch, const std::byte* block) const {
  if (fields_.empty()) throw std::invalid_argument("Layout: there are no fields");
  const std::int64_t first = read(batch, 0).samples;
  check_samples(first);
  for (std::size_t index = 0; index < fields_.size(); ++index) {
    const Field& field = fields_[index];
    const View view = read(batch, index);
    if (view.memory != block + field.offset)
      reject_field(field.name,
                   "points elsewhere: sources write through a tensor, never replace its pointer");
    if (view.odd != 0)
      reject_field(field.name, "has " + std::to_string(view.odd_extent) + " as extent " +
                                   std::to_string(view.odd) + ", the layout has " +
                                   std::to_string(field.shape[view.odd - 1]));
    if (view.samples != first)
      reject_field(field.name, "has " + std::to_string(view.samples) + " samples, field " +
                                   fields_[0].name + " has " + std::to_string(first));
    if (!field.is_ragged()) continue;
    const RaggedParts& parts = ragged(field, batch);
    if (parts.values != block + field.values || parts.capacity != field.capacity)
      reject_field(field.name,
                   "is a view of other memory: sources assign() to a Ragged, they do not "
                   "replace it");
    if (parts.total < 0 || parts.total > field.capacity)
      reject_field(field.name, "has " + std::to_string(parts.total) +
                                   " values in all, and a batch has room for " +
                                   std::to_string(field.capacity));
  }
  return first;
}

PENSTOCK_INLINE void BlockLayout::check_samples(std::int64_t samples) const {
  if (batch_size_ == 0)
    throw std::invalid_argument(
        "Layout: it has no batch size, and gets one only within a Prefetcher, as the layout of a "
        "DeviceTransform: write penstock::Layout<Batch>{256}");
  if (samples < 0 || samples > batch_size_)
    throw std::invalid_argument("Layout: " + std::to_string(samples) +
                                " samples in a batch of at most " + std::to_string(batch_size_));
}

// ---- While a source fills a batch ---------------------------------------------------------------

PENSTOCK_INLINE std::size_t BlockLayout::scratch_bytes() const noexcept {
  const auto number = std::count_if(fields_.begin(), fields_.end(),
                                    [](const Field& field) { return field.is_ragged(); });
  return static_cast<std::size_t>(number) * RaggedFill::bytes(batch_size_);
}

PENSTOCK_INLINE std::size_t BlockLayout::spare_bytes() const noexcept {
  std::size_t most = 0;
  for (const Field& field : fields_)
    if (field.is_ragged())
      most = std::max(most, static_cast<std::size_t>(field.capacity) * field.sample_bytes);
  return most;
}

PENSTOCK_INLINE void BlockLayout::bind_for_source(void* batch, std::byte* block, std::byte* scratch,
                                                  std::int64_t samples) const {
  bind(batch, block, samples);
  for (const Field& field : fields_) {
    if (!field.is_ragged()) continue;
    ragged(field, batch).fill = begin_fill(scratch, batch_size_, field.name.c_str());
    ragged(field, batch).total = 0;
    scratch += RaggedFill::bytes(batch_size_);
  }
}

PENSTOCK_INLINE void BlockLayout::clear_row(void* batch, std::int64_t row) const {
  for (const Field& field : fields_)
    if (field.is_ragged()) clear_filled_row(ragged(field, batch), row);
}

PENSTOCK_INLINE const char* BlockLayout::refused_room(const void* batch) const {
  for (const Field& field : fields_)
    if (field.is_ragged() && ragged(field, batch).fill->refused != 0) return field.name.c_str();
  return nullptr;
}

/// Removes the rows in `dropped` from a tensor by moving the later rows forward.
PENSTOCK_INLINE void drop_rows(const BlockLayout::Field& field, std::byte* block,
                               std::int64_t samples, std::span<const std::int64_t> dropped) {
  const auto row = [&](std::int64_t i) {
    return block + field.offset + static_cast<std::size_t>(i) * field.sample_bytes;
  };
  std::int64_t to = dropped.empty() ? samples : dropped.front();
  for (std::size_t i = 0; i < dropped.size(); ++i) {
    const std::int64_t from = dropped[i] + 1;
    const std::int64_t until = i + 1 < dropped.size() ? dropped[i + 1] : samples;
    std::memmove(row(to), row(from), static_cast<std::size_t>(row(until) - row(from)));
    to += until - from;
  }
}

PENSTOCK_INLINE std::int64_t BlockLayout::finish(void* batch, std::byte* block,
                                                 std::span<const std::int64_t> dropped,
                                                 std::vector<std::byte>& spare) const {
  const std::int64_t all = samples(batch, block);
  for (const Field& field : fields_) {
    if (!field.is_ragged())
      drop_rows(field, block, all, dropped);
    else if (RaggedParts& parts = ragged(field, batch); parts.fill != nullptr)
      finish_fill(parts, field.sample_bytes, dropped, spare);
  }
  const std::int64_t kept = all - static_cast<std::int64_t>(dropped.size());
  if (kept != all) resize(batch, kept);
  return kept;
}

// ---- The parts of a batch -----------------------------------------------------------------------

PENSTOCK_INLINE BlockLayout::View BlockLayout::read(const void* batch, std::size_t index) const {
  const Field& field = fields_[index];
  if (!field.is_ragged())
    return field.read(static_cast<const std::byte*>(batch) + field.member, field.shape.data());
  const RaggedParts& parts = ragged(field, batch);
  return {reinterpret_cast<const std::byte*>(parts.offsets), parts.rows, 0, 0};
}

PENSTOCK_INLINE const RaggedParts& BlockLayout::ragged(const Field& field,
                                                       const void* batch) const {
  if (batch == nullptr)
    throw std::logic_error("Layout: how much of the ragged field " + field.name +
                           " is in use depends on the batch: call for_each_range with it");
  return *reinterpret_cast<const RaggedParts*>(static_cast<const std::byte*>(batch) + field.member);
}
PENSTOCK_INLINE RaggedParts& BlockLayout::ragged(const Field& field, void* batch) {
  return *reinterpret_cast<RaggedParts*>(static_cast<std::byte*>(batch) + field.member);
}

PENSTOCK_INLINE std::size_t BlockLayout::end(const Field& field) const noexcept {
  if (field.is_ragged())
    return field.values + static_cast<std::size_t>(field.capacity) * field.sample_bytes;
  return field.offset + static_cast<std::size_t>(batch_size_) * field.sample_bytes;
}

}  // namespace penstock::detail
