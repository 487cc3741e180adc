// SPDX-License-Identifier: Apache-2.0

// PackedFile over any bytes, and PackedFileWriter that continues them. The first byte of an input
// says what is done to the others, so that the fuzzer gets behind the checksums:
//
//   1  the header gets the right magic, size of the file and checksums
//   2  frames get the right checksums, as far as the index has them
//   4  what the writer has continued is finished and read

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <penstock/packed_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "directory.hpp"
#include "fuzz.hpp"

namespace {

using namespace penstock;
using namespace penstock::detail;
using test::require;

constexpr int kHeader = 1, kFrames = 2, kFinish = 4;

std::span<const std::byte> part(const std::string& bytes, std::uint64_t begin,
                                std::uint64_t count) {
  return std::as_bytes(std::span(bytes)).subspan(begin, count);
}

void mend_frames(std::string& pack, const PackHeader& header) {
  for (std::uint64_t i = 0; i < header.records; ++i) {
    PackEntry entry;
    const std::uint64_t place = header.index + i * sizeof(entry);
    if (header.index > pack.size() || pack.size() - header.index < (i + 1) * sizeof(entry)) return;
    std::memcpy(&entry, pack.data() + place, sizeof(entry));
    if (entry.offset > pack.size() || entry.bytes > pack.size() - entry.offset) return;
    entry.bytes_checksum = crc32c(part(pack, entry.offset, entry.bytes));
    std::memcpy(pack.data() + place, &entry, sizeof(entry));
    for (std::uint64_t name = 0; name <= 64; name += 8) {  // The frame is before the name.
      PackFrame frame;
      if (entry.offset < sizeof(frame) + name) break;
      const std::uint64_t begin = entry.offset - sizeof(frame) - name;
      std::memcpy(&frame, pack.data() + begin, sizeof(frame));
      if (frame.magic != kFrameMagic || frame.name_bytes > name) continue;
      frame.bytes_checksum = entry.bytes_checksum;
      frame.checksum = checksum_of(frame, part(pack, begin + sizeof(frame), frame.name_bytes));
      std::memcpy(pack.data() + begin, &frame, sizeof(frame));
    }
  }
}

void mend(std::string& pack, int how) {
  PackHeader header;
  if (pack.size() < sizeof(header)) return;
  std::memcpy(&header, pack.data(), sizeof(header));
  if ((how & kFrames) != 0) mend_frames(pack, header);
  if ((how & kHeader) == 0) return;
  header.magic = kPackMagic;
  header.file_bytes = pack.size();
  if (header.index <= pack.size())
    header.index_checksum = crc32c(part(pack, header.index, pack.size() - header.index));
  if (header.note_bytes <= pack.size() - sizeof(header))
    header.note_checksum = crc32c(part(pack, sizeof(header), header.note_bytes));
  header.checksum = checksum_of(header);
  std::memcpy(pack.data(), &header, sizeof(header));
}

void check_message(const StoreError& error, const std::filesystem::path& file) {
  require(error.file() == file, "an error names the file");
  require(std::string_view(error.what()).size() < 5000 + file.string().size(), "and is short");
}

/// Every record is a part of the file, and no two share a byte, nor one with a frame.
void check_records(const PackedFile& pack, const std::string& bytes) {
  std::vector<std::byte> scratch;
  PackHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::uint64_t end = sizeof(header) + header.note_bytes;
  for (std::uint64_t i = 0; i < pack.size(); ++i) {
    PackEntry entry;
    std::memcpy(&entry, bytes.data() + header.index + i * sizeof(entry), sizeof(entry));
    require(entry.offset >= end + sizeof(PackFrame), "a record has room for its frame");
    end = entry.offset + entry.bytes;
    require(end >= entry.offset && end <= header.index, "a record is before the index");
    require(pack.name(i).size() <= bytes.size() + 100, "a name is a part of the file");
    static_cast<void>(pack.label(i));
    try {
      const auto record = pack.read(i, scratch);
      require(record.size() == pack.bytes(i), "a record has its size");
      require(std::string_view(bytes).find(std::string_view(
                  reinterpret_cast<const char*>(record.data()), record.size())) != bytes.npos,
              "a record is a part of the file");
    } catch (const StoreError& error) {
      require(error.sample() == i, "an error names the record");
    }
  }
  const std::vector<std::uint64_t> indices{0, 1, 2, pack.size(), ~0ull};
  pack.will_need(indices);
  require(pack.info().records == pack.size(), "the header has as many records as the index");
}

void check_reader(const std::string& bytes) {
  static const int descriptor = ::memfd_create("penstock_fuzz", MFD_CLOEXEC);
  static const std::filesystem::path path = "/proc/self/fd/" + std::to_string(descriptor);
  require(::ftruncate(descriptor, 0) == 0, "the file is empty");
  require(
      ::pwrite(descriptor, bytes.data(), bytes.size(), 0) == static_cast<::ssize_t>(bytes.size()),
      "bytes are written");
  try {
    const PackedFile pack(path);
    check_records(pack, bytes);
    const PackedFile careless(path, {.verify = false});
    std::vector<std::byte> scratch;
    for (std::uint64_t i = 0; i < careless.size(); ++i) careless.read(i, scratch);
  } catch (const StoreError& error) {
    check_message(error, path);
  }
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The note that the writer has to be given to continue.
std::string note_of(const std::string& bytes) {
  PackHeader header;
  if (bytes.size() < sizeof(header)) return {};
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.note_bytes > bytes.size() - sizeof(header)) return {};
  return bytes.substr(sizeof(header), header.note_bytes);
}

void check_writer(const std::string& bytes, bool finish) {
  static const test::Directory directory;
  const auto path = directory / "a.pack", partial = directory / "a.pack.partial";
  std::ofstream(partial, std::ios::binary) << bytes;
  try {
    PackedFileWriter writer(path, note_of(bytes));
    const std::uint64_t size = writer.size();
    require(writer.record_bytes() <= bytes.size(), "records are a part of the file");
    for (std::uint64_t i = 0; i < size; ++i)
      require(bytes.find(writer.name(i)) != bytes.npos, "a name is a part of the file");
    if (!finish) return;
    writer.append({}, 5, "one more");
    writer.finish();
    const PackedFile pack(path);
    require(pack.size() == size + 1 && pack.name(size) == "one more", "it can be read");
    std::vector<std::byte> scratch;
    for (std::uint64_t i = 0; i < pack.size(); ++i) pack.read(i, scratch);
  } catch (const StoreError& error) {
    check_message(error, partial);
    require(content(partial) == bytes, "what is refused is left as it is");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  mend(bytes, data[0]);
  check_reader(bytes);
  check_writer(bytes, (data[0] & kFinish) != 0);
  return 0;
}
