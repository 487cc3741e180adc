// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/file.h>

#include <algorithm>
#include <cstring>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/storage/name_arena.hpp>
#include <penstock/detail/storage/packed_format.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/whole_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// Opens the file for this program alone, as long as it is open. Throws std::system_error.
inline OpenFile open_locked(const std::filesystem::path& path) {
  while (true) {
    OpenFile file(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (!file.is_open()) OpenFile::fail("cannot open it for writing");
    file.require_regular();
    if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      OpenFile::fail("another program writes it");  // Some file systems have no locks.
    struct stat named {};
    const struct stat opened = file.status();
    if (::stat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
        named.st_dev == opened.st_dev)
      return file;  // Otherwise who had the lock before has renamed or removed the file.
  }
}

/// What a PackedFileWriter does.
class PackOutput {
 public:
  PackOutput(const std::filesystem::path& path, std::string_view note) try
      : path_(path), partial_(path.string() + ".partial"), file_(open_locked(partial_)) {
    if (note.size() > kMostNoteBytes)
      throw std::invalid_argument("PackedFileWriter: a note of " + std::to_string(note.size()) +
                                  " bytes, at most 16 MiB");
    header_.note_bytes = static_cast<std::uint32_t>(note.size());
    header_.note_checksum = crc32c(std::as_bytes(std::span(note)));
    header_.checksum = checksum_of(header_);
    if (!resume(note)) begin(note);
  } catch (const std::system_error& error) {
    throw StoreError("PackedFileWriter", path.string() + ".partial", error.what());
  }
  ~PackOutput() {
    if (state_ != State::open) return;
    try {
      flush();
    } catch (
        const std::system_error&) {  // The file ends with a whole record, or is cut there later.
    }
  }
  PackOutput(const PackOutput&) = delete;
  PackOutput& operator=(const PackOutput&) = delete;

  const std::vector<PackEntry>& entries() const noexcept { return entries_; }
  std::uint64_t record_bytes() const noexcept { return record_bytes_; }
  std::string_view name(std::uint64_t index) const { return names_[index]; }

  void append(std::span<const std::byte> bytes, std::int32_t label, std::string_view name) try {
    if (name.size() > kMostNameBytes)
      throw std::invalid_argument("PackedFileWriter: a name of " + std::to_string(name.size()) +
                                  " bytes, at most 65,536");
    require_open();
    PackFrame frame;
    frame.number = entries_.size();
    frame.bytes = bytes.size();
    frame.bytes_checksum = crc32c(bytes);
    frame.label = label;
    frame.name_bytes = static_cast<std::uint32_t>(name.size());
    frame.checksum = checksum_of(frame, std::as_bytes(std::span(name)));
    state_ = State::failed;  // unless it comes to the end
    put(bytes_of(frame));
    put(std::as_bytes(std::span(name)));
    pad();
    const std::uint64_t offset = end_;
    put(bytes);
    pad();
    enter(frame, offset, name);
    state_ = State::open;
  } catch (const std::system_error& error) {
    fail(error.what());
  }

  void finish() try {
    require_open();
    state_ = State::failed;
    header_.records = entries_.size();
    header_.index = end_;
    const bool has_names = !names_.bytes().empty();
    header_.flags = has_names ? kPackHasNames : 0;
    header_.name_bytes = names_.bytes().size();
    header_.index_checksum = 0;
    put_index(std::as_bytes(std::span(entries_)));
    if (has_names) put_index(std::as_bytes(names_.ends()));
    put_index(std::as_bytes(names_.bytes()));
    flush();
    header_.file_bytes = end_;
    header_.checksum = checksum_of(header_);
    file_.write(0, bytes_of(header_));
    file_.synchronise();
    std::filesystem::rename(partial_, path_);
    synchronise_folder_of(path_);
    state_ = State::finished;
  } catch (const std::system_error& error) {
    fail(error.what());
  }

 private:
  enum class State { open, failed, finished };
  static constexpr std::size_t kBuffer = std::size_t{1} << 20;

  [[noreturn]] void fail(const std::string& why) const {
    throw StoreError("PackedFileWriter", partial_, why);
  }
  void require_open() const {
    if (state_ == State::finished)
      throw std::logic_error("PackedFileWriter: " + path_.string() + " is finished");
    if (state_ == State::failed) fail("writing has failed before: continue with a new writer");
  }

  void begin(std::string_view note) {
    cut(0);
    put(bytes_of(header_));
    put(std::as_bytes(std::span(note)));
    pad();
  }

  /// Whether there were so many bytes.
  bool read(std::uint64_t offset, std::span<std::byte> target) const {
    return file_.read(offset, target, "cannot read it") == target.size();
  }
  void cut(std::uint64_t bytes) const {
    if (::ftruncate(file_.descriptor(), static_cast<::off_t>(bytes)) != 0)
      OpenFile::fail("cannot cut it");
  }

  /// Takes the records of the file that is there; false: there is none, or only its first bytes.
  bool resume(std::string_view note) {
    std::vector<std::byte> expected(sizeof(PackHeader) + padded(note.size()));
    std::memcpy(expected.data(), &header_, sizeof(PackHeader));
    std::ranges::copy(std::as_bytes(std::span(note)), expected.begin() + sizeof(PackHeader));
    const std::uint64_t size = file_.size();
    std::vector<std::byte> found(std::min<std::uint64_t>(size, expected.size()));
    read(0, found);
    if (found.size() < expected.size()) {
      if (std::equal(found.begin(), found.end(), expected.begin())) return false;
      refuse("is there, and is no partial pack of these records");
    }
    PackHeader header;
    std::memcpy(&header, found.data(), sizeof(header));
    if (header.magic != kPackMagic) refuse("is there, and is no partial pack");
    if (header.checksum != checksum_of(header)) refuse("has a damaged header");
    if (header.version != kPackVersion)
      refuse("has version " + std::to_string(header.version) + " of the format");
    if (header.note_bytes != note.size() || header.note_checksum != header_.note_checksum ||
        !std::equal(found.begin() + sizeof(header), found.end(), expected.begin() + sizeof(header)))
      refuse("was made in another way, as its note says");
    end_ = expected.size();
    while (take_record(size)) continue;
    cut(end_);
    file_.write(0, bytes_of(header_));  // Where finish() was interrupted, it is another.
    return true;
  }

  /// Takes the record at end_ if it is whole.
  bool take_record(std::uint64_t size) {
    PackFrame frame;
    if (size < end_ || size - end_ < sizeof(frame))
      return false;  // cut in the padding: size < end_
    if (!read(end_, std::as_writable_bytes(std::span(&frame, 1)))) return false;
    const std::uint64_t left = size - end_ - sizeof(frame);
    if (frame.magic != kFrameMagic || frame.number != entries_.size() || frame.zero != 0 ||
        frame.name_bytes > kMostNameBytes || padded(frame.name_bytes) > left)
      return false;
    std::string name(frame.name_bytes, '\0');
    if (!read(end_ + sizeof(frame), std::as_writable_bytes(std::span(name)))) return false;
    if (frame.checksum != checksum_of(frame, std::as_bytes(std::span(name)))) return false;
    const std::uint64_t offset = end_ + sizeof(frame) + padded(frame.name_bytes);
    if (frame.bytes > size - offset) return false;
    if (checksum_at(offset, frame.bytes) != frame.bytes_checksum) return false;
    enter(frame, offset, name);
    end_ = offset + padded(frame.bytes);
    return true;
  }

  std::uint32_t checksum_at(std::uint64_t offset, std::uint64_t bytes) {
    std::uint32_t sum = 0;
    buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kBuffer)));
    while (bytes > 0) {
      const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kBuffer));
      const auto part = std::span(buffer_).first(count);
      if (!read(offset, part)) break;
      sum = crc32c(part, sum);
      offset += count;
      bytes -= count;
    }
    buffer_.clear();
    return sum;
  }

  void enter(const PackFrame& frame, std::uint64_t offset, std::string_view name) {
    entries_.push_back({.offset = offset,
                        .bytes = frame.bytes,
                        .bytes_checksum = frame.bytes_checksum,
                        .label = frame.label});
    names_.add(name);
    record_bytes_ += frame.bytes;
  }

  void put(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kBuffer) flush();
    if (bytes.size() > kBuffer)
      file_.write(end_, bytes);
    else
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    end_ += bytes.size();
  }
  void pad() {
    constexpr std::array<std::byte, 8> zeros{};
    put(std::span(zeros).first(static_cast<std::size_t>(padded(end_) - end_)));
  }
  void put_index(std::span<const std::byte> bytes) {
    header_.index_checksum = crc32c(bytes, header_.index_checksum);
    put(bytes);
  }
  void flush() {
    file_.write(end_ - buffer_.size(), buffer_);
    buffer_.clear();
  }

  [[noreturn]] void refuse(const std::string& why) const {
    fail("this file " + why +
         ". Continue it with the command that began it, or remove it to begin again");
  }

  std::filesystem::path path_, partial_;
  OpenFile file_;
  PackHeader header_;  // of the file that is not finished, until it is
  State state_ = State::open;
  std::uint64_t end_ = 0;  // of the file and of what is in the buffer
  std::vector<std::byte> buffer_;
  std::vector<PackEntry> entries_;
  NameArena names_;
  std::uint64_t record_bytes_ = 0;
};

}  // namespace detail

PENSTOCK_INLINE PackedFileWriter::PackedFileWriter(const std::filesystem::path& file,
                                                   std::string_view note)
    : output_(std::make_unique<detail::PackOutput>(file, note)) {}
PENSTOCK_INLINE PackedFileWriter::~PackedFileWriter() = default;
PENSTOCK_INLINE PackedFileWriter::PackedFileWriter(PackedFileWriter&&) noexcept = default;
PENSTOCK_INLINE PackedFileWriter& PackedFileWriter::operator=(PackedFileWriter&&) noexcept =
    default;

PENSTOCK_INLINE std::uint64_t PackedFileWriter::size() const noexcept {
  return output_->entries().size();
}
PENSTOCK_INLINE std::uint64_t PackedFileWriter::record_bytes() const noexcept {
  return output_->record_bytes();
}
PENSTOCK_INLINE std::int32_t PackedFileWriter::label(std::uint64_t index) const {
  return output_->entries().at(index).label;
}
PENSTOCK_INLINE std::string_view PackedFileWriter::name(std::uint64_t index) const {
  static_cast<void>(output_->entries().at(index));
  return output_->name(index);
}

PENSTOCK_INLINE void PackedFileWriter::append(std::span<const std::byte> bytes, std::int32_t label,
                                              std::string_view name) {
  output_->append(bytes, label, name);
}

PENSTOCK_INLINE void PackedFileWriter::finish() {
  output_->finish();
}

}  // namespace penstock
