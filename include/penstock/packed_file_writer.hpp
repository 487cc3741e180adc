// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedFileWriter: makes the file that PackedFile reads.
//
//   const penstock::FileFolder images("imagenet/train");
//   penstock::PackedFileWriter pack("imagenet-train.pack");
//   for (std::uint64_t i = pack.size(); i < images.size(); ++i)     // from where it was interrupted
//     pack.append(images.read(i, scratch), images.label(i), images.name(i));
//   pack.finish();
//
// Until finish() the records are in <file>.partial. If the writer does not come so far, because it
// was interrupted or the disk is full, the next writer of the same file continues: size() is then
// the number of records that are whole. Each record has a frame with its number, size, label, name
// and checksum, and all that is kept is compared with its checksum.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/detail/inline.hpp>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
class PackOutput;
}

/// Makes the file that PackedFile reads. One thread at a time. While one writer has a file, another
/// of the same file is refused. A moved-from one can only be assigned to or destroyed.
class PackedFileWriter {
 public:
  /// Begins `<file>.partial`, or continues it: then its records are read once, and a damaged or cut
  /// record is dropped with all behind it. `note` says something about the records, such as how
  /// they were made; at most 16 MiB. Throws StoreError if the file cannot be written, if another
  /// writer has it, and if what is there is no partial pack, or one with another note: the records
  /// would not belong together.
  explicit PackedFileWriter(const std::filesystem::path& file, std::string_view note = {});
  /// Writes what append() was given, if it can, and leaves the partial file.
  ~PackedFileWriter();
  PackedFileWriter(PackedFileWriter&&) noexcept;
  PackedFileWriter& operator=(PackedFileWriter&&) noexcept;

  /// Records so far; at the start those of the partial file.
  std::uint64_t size() const noexcept;
  /// Bytes of these records.
  std::uint64_t record_bytes() const noexcept;
  /// Label and name of a record so far, to compare them with what would be appended in its place.
  /// Throws std::out_of_range.
  std::int32_t label(std::uint64_t index) const;
  /// The same for the name.
  std::string_view name(std::uint64_t index) const;

  /// Adds a record; `name` has at most 64 KiB. Throws StoreError where the system cannot write; the
  /// writer is of no further use then. Takes 32 bytes of memory and the name.
  void append(std::span<const std::byte> bytes, std::int32_t label = -1,
              std::string_view name = {});

  /// Writes the index, has everything on the disk, and gives the file its name in place of one that
  /// has it. Call it once, and nothing behind it. Throws StoreError.
  void finish();

 private:
  std::unique_ptr<detail::PackOutput> output_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/packed_file_writer.hpp>
#endif
