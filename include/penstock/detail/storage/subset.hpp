// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/subset_format.hpp>
#include <penstock/detail/sync/in_parts.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/detail/whole_file.hpp>
#include <penstock/subset.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// Whether numbers below `samples` fit into 4 bytes.
inline bool fit_into_four(std::uint64_t samples) {
  return samples <= std::uint64_t{1} << 32;
}

/// Throws std::invalid_argument unless the numbers ascend and are below `samples`.
template <class Number>
void require_ascending(std::span<const Number> numbers, std::uint64_t samples) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint64_t number = numbers[i];
    if (number >= samples)
      throw std::invalid_argument("number " + std::to_string(i) + " of the subset is sample " +
                                  std::to_string(number) + " of " + std::to_string(samples));
    if (i > 0 && numbers[i - 1] >= numbers[i])
      throw std::invalid_argument("the numbers do not ascend: " + std::to_string(number) +
                                  " comes behind " + std::to_string(numbers[i - 1]));
  }
}

/// The numbers from `begin` to before `end` that are kept.
template <class Number>
void keep_some(std::uint64_t begin, std::uint64_t end,
               const std::function<bool(std::uint64_t)>& keep, std::vector<Number>& kept) {
  for (std::uint64_t i = begin; i < end; ++i)
    if (keep(i)) kept.push_back(static_cast<Number>(i));
}

template <class Number>
std::vector<Number> kept_of(std::uint64_t samples, const std::function<bool(std::uint64_t)>& keep,
                            std::uint64_t threads) {
  std::vector<std::vector<Number>> parts(static_cast<std::size_t>(threads));
  in_parts(samples, parts.size(), [&](std::size_t part, std::uint64_t begin, std::uint64_t end) {
    keep_some(begin, end, keep, parts[part]);
  });
  if (parts.size() == 1) {
    parts[0].shrink_to_fit();
    return std::move(parts[0]);
  }
  std::size_t size = 0;
  for (const std::vector<Number>& part : parts) size += part.size();
  std::vector<Number> all;
  all.reserve(size);
  for (std::vector<Number>& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
    part = {};
  }
  return all;
}

}  // namespace detail

PENSTOCK_INLINE Subset::Subset(Numbers&& numbers, std::uint64_t samples)
    : samples_(samples), numbers_(std::make_shared<const Numbers>(std::move(numbers))) {}

PENSTOCK_INLINE Subset::Subset(std::uint64_t samples, std::span<const std::uint64_t> numbers)
    : samples_(samples) {
  try {
    detail::require_ascending(numbers, samples);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string("Subset: ") + error.what());
  }
  Numbers own;
  if (detail::fit_into_four(samples))
    for (const std::uint64_t number : numbers)
      own.four.push_back(static_cast<std::uint32_t>(number));
  else
    own.eight.assign(numbers.begin(), numbers.end());
  own.four.shrink_to_fit();
  numbers_ = std::make_shared<const Numbers>(std::move(own));
}

PENSTOCK_INLINE Subset Subset::where(std::uint64_t samples,
                                     const std::function<bool(std::uint64_t)>& keep, int threads) {
  if (!keep) throw std::invalid_argument("Subset::where: there is no function to call");
  if (threads < 1)
    throw std::invalid_argument("Subset::where: threads is " + std::to_string(threads) +
                                ", must be at least 1");
  const auto number = static_cast<std::uint64_t>(threads);
  Numbers numbers;
  if (detail::fit_into_four(samples))
    numbers.four = detail::kept_of<std::uint32_t>(samples, keep, number);
  else
    numbers.eight = detail::kept_of<std::uint64_t>(samples, keep, number);
  return {std::move(numbers), samples};
}

PENSTOCK_INLINE std::uint64_t Subset::operator[](std::uint64_t index) const {
  detail::require_index(index, size(), "Subset: there is no sample ");
  const auto place = static_cast<std::size_t>(index);
  return numbers_->four.empty() ? numbers_->eight[place] : numbers_->four[place];
}

PENSTOCK_INLINE void Subset::save(const std::filesystem::path& file) const try {
  const bool is_four = detail::fit_into_four(samples_);
  const std::span<const std::byte> bytes = is_four ? std::as_bytes(std::span(numbers_->four))
                                                   : std::as_bytes(std::span(numbers_->eight));
  detail::SubsetHeader header;
  header.number_bytes = is_four ? 4 : 8;
  header.samples = samples_;
  header.size = size();
  header.numbers_checksum = detail::crc32c(bytes);
  header.checksum = detail::checksum_of(header);
  detail::WholeFile out(file);
  out.write({reinterpret_cast<const char*>(&header), sizeof(header)});
  constexpr std::size_t kAtOnce = std::size_t{1} << 20;  // WholeFile copies it.
  for (std::span<const std::byte> rest = bytes; !rest.empty();
       rest = rest.subspan(std::min(kAtOnce, rest.size())))
    out.write({reinterpret_cast<const char*>(rest.data()), std::min(kAtOnce, rest.size())});
  out.commit();
} catch (const std::system_error& error) {
  throw StoreError("Subset", file, error.what());
}

PENSTOCK_INLINE Subset Subset::load(const std::filesystem::path& path, std::uint64_t samples) {
  const detail::StoreFile file("Subset", detail::opened("Subset", path));
  std::array<std::byte, detail::kKnownBytes> room;
  const std::span<const std::byte> start = file.read_start(room);
  detail::SubsetHeader header;
  const std::string_view magic(header.magic.data(), header.magic.size());
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (!text.starts_with(magic.substr(0, text.size())) || text.empty())
    file.fail("the file is no subset: it does not begin with PNSTSUBS; " +
              detail::what_they_are(start));
  if (start.size() < sizeof(header)) file.fail("the file was cut: make it again");
  std::memcpy(&header, start.data(), sizeof(header));
  if (header.version > 1 && header.magic == detail::SubsetHeader().magic)
    file.fail("the file has version " + std::to_string(header.version) +
              " of the format, and this is a program for version 1: use a newer one");
  if (header.checksum != detail::checksum_of(header))
    file.fail("the header is damaged: its checksum is another. Make the file again");
  if (header.samples != samples)
    file.fail("it is a subset of a data set of " + std::to_string(header.samples) +
              " samples, and this one has " + std::to_string(samples) + ": make it again");
  const std::uint64_t each = detail::fit_into_four(samples) ? 4 : 8;
  const std::uint64_t bytes = file.bytes - sizeof(header);
  if (header.version != 1 || header.number_bytes != each || header.size > bytes / each ||
      header.size * each != bytes)
    file.fail("the file has " + std::to_string(file.bytes) + " bytes, and should have " +
              std::to_string(header.size) + " numbers of " + std::to_string(each) +
              " bytes behind its header: it was cut. Make it again");
  if (bytes > detail::usable_memory() / 2)
    file.fail("its " + std::to_string(bytes) + " bytes are more than half of the memory");
  Numbers numbers;
  const auto size = static_cast<std::size_t>(header.size);
  each == 4 ? numbers.four.resize(size) : numbers.eight.resize(size);
  const std::span<std::byte> target = each == 4 ? std::as_writable_bytes(std::span(numbers.four))
                                                : std::as_writable_bytes(std::span(numbers.eight));
  file.read_or_fail(sizeof(header), target);
  if (detail::crc32c(target) != header.numbers_checksum)
    file.fail("the numbers are damaged: their checksum is another. Make the file again");
  try {
    detail::require_ascending(std::span<const std::uint32_t>(numbers.four), samples);
    detail::require_ascending(std::span<const std::uint64_t>(numbers.eight), samples);
  } catch (const std::invalid_argument& error) {
    file.fail(std::string(error.what()) + ", though the checksums are right. Make the file again");
  }
  return {std::move(numbers), samples};
}

}  // namespace penstock
