// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/npy_format.hpp>
#include <penstock/detail/storage/number_at.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/zip_directory.hpp>
#include <penstock/npy_file.hpp>
#include <stdexcept>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// An array, and where its numbers lie.
struct NpyArray {
  NpyHeader header;
  FileRange numbers;
  std::size_t row_bytes = 0;
};

inline std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

/// Reads the header of the array that takes the bytes `all` of a file. Throws StoreError, and
/// std::runtime_error whose text says what is wrong with the array.
inline NpyArray npy_array(const StoreFile& file, FileRange all) {
  constexpr std::size_t kMostText = std::size_t{1} << 20;
  std::array<std::byte, kKnownBytes> room;
  const auto start = std::span(room).first(
      static_cast<std::size_t>(std::min<std::uint64_t>(all.bytes, room.size())));
  file.read_or_fail(all.offset, start);
  const std::string_view magic(reinterpret_cast<const char*>(start.data()),
                               std::min(start.size(), kNpyMagic.size()));
  if (magic != kNpyMagic)
    throw std::runtime_error("it is no array: it does not begin with \\x93NUMPY; " +
                             what_they_are(start));
  const int version = start.size() < 12 ? 0 : static_cast<int>(start[6]);
  if (start.size() >= 12 && (version < 1 || version > 3))
    throw std::runtime_error("it has version " + std::to_string(version) +
                             " of the format, of which 1 to 3 are known");
  const std::size_t begin = version == 1 ? 10 : 12;
  const std::size_t length = start.size() < 12 ? 0
                             : version == 1    ? number_at<std::uint16_t>(start, 8)
                                               : number_at<std::uint32_t>(start, 8);
  if (start.size() < 12 || length > all.bytes - begin)
    throw std::runtime_error("it is cut: " + std::to_string(all.bytes) +
                             " bytes are too few for its header");
  if (length > kMostText)
    throw std::runtime_error("its header has " + std::to_string(length) + " bytes, more than 2^20");
  std::string text(length, '\0');
  file.read_or_fail(all.offset + begin, std::as_writable_bytes(std::span(text)));

  NpyText parser(text);
  NpyArray array{.header = parser.parse(), .numbers = {all.offset + begin + length, 0}};
  const std::vector<std::uint64_t>& shape = array.header.shape;
  std::uint64_t row = array.header.item_bytes, axes = 0;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) row = product(row, shape[axis]);
  for (const std::uint64_t extent : shape) axes += extent > 1 ? 1 : 0;
  array.numbers.bytes = shape.empty() ? row : product(row, shape[0]);
  const std::string shaped = "its shape is " + shape_text(shape);
  if (shape.empty() || array.numbers.bytes == 0)
    throw std::runtime_error(shaped + ": it has no rows, or rows of no numbers");
  if (parser.is_fortran() && axes > 1)
    throw std::runtime_error("it is in Fortran order: save numpy.ascontiguousarray(array)");
  const std::uint64_t there = all.bytes - begin - length;
  if (there != array.numbers.bytes)
    throw std::runtime_error(shaped + ", of " + array.header.dtype() + ", which takes " +
                             std::to_string(array.numbers.bytes) + " bytes, and " +
                             std::to_string(there) + " are there" +
                             (there < array.numbers.bytes ? ": it is cut" : ""));
  array.row_bytes = static_cast<std::size_t>(row);
  return array;
}

/// Returns the member of a .npz that is asked for.
inline const ZipDirectory::Entry& npz_member(const StoreFile& file, const ZipDirectory& archive,
                                             std::string_view member) {
  const ZipDirectory::Entry* found = nullptr;
  std::string names;
  for (const ZipDirectory::Entry& entry : archive.entries()) {
    if (names.size() < 500)
      names += (names.empty() ? "" : ", ") + escaped(entry.name.substr(0, 100));
    const bool is_same =
        entry.name == member ||
        (entry.name.ends_with(".npy") && entry.name.substr(0, entry.name.size() - 4) == member);
    if (!member.empty() && !is_same) continue;
    if (found != nullptr)
      file.fail(member.empty() ? "it has several arrays: name one of them: " + names
                               : "it has several members of the name " + escaped(member));
    found = &entry;
  }
  if (found == nullptr)
    file.fail("there is no member " + escaped(member) + ", but " +
              (names.empty() ? "none at all" : names));
  return *found;
}

inline NpyArray find_npy(const File& open_file, std::string_view member) {
  const StoreFile file("NpyFile", open_file);
  std::array<std::byte, 4> room;
  const std::span<const std::byte> start = file.read_start(room);
  const std::string_view magic(reinterpret_cast<const char*>(start.data()), start.size());
  std::string where;
  try {
    if (magic != "PK\x03\x04" && magic != "PK\x05\x06") {
      if (!member.empty())
        file.fail("it is no .npz archive, so it has no member " + escaped(member));
      return npy_array(file, {0, file.bytes});
    }
    const ZipDirectory archive(file);
    const ZipDirectory::Entry& entry = npz_member(file, archive, member);
    where = "member " + escaped(entry.name) + ": ";
    return npy_array(file, archive.bytes_of(entry));
  } catch (const StoreError&) {
    throw;
  } catch (const std::runtime_error& error) {
    file.fail(where + error.what());
  }
}

}  // namespace detail

PENSTOCK_INLINE NpyFile::NpyFile(const std::filesystem::path& file, std::string_view member)
    : NpyFile(detail::opened("NpyFile", file), member) {}

PENSTOCK_INLINE NpyFile::NpyFile(const File& file, std::string_view member)
    : NpyFile(file, detail::find_npy(file, member)) {}

PENSTOCK_INLINE NpyFile::NpyFile(const File& file, detail::NpyArray&& array)
    : RecordFile(file, array.numbers, array.row_bytes),
      file_(file.name()),
      dtype_(array.header.dtype()),
      item_bytes_(array.header.item_bytes),
      shape_(std::move(array.header.shape)) {}

PENSTOCK_INLINE void NpyFile::require(const std::string& dtype,
                                      std::initializer_list<std::uint64_t> row) const {
  std::vector<std::uint64_t> wanted{size()};
  wanted.insert(wanted.end(), row);
  if (dtype == dtype_ && wanted == shape_) return;
  throw StoreError("NpyFile", file_,
                   "it is an array of " + dtype_ + " of shape " + detail::shape_text(shape_) +
                       ", and " + dtype + " of shape " + detail::shape_text(wanted) +
                       " is asked for");
}

}  // namespace penstock
