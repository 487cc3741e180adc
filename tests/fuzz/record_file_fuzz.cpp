// SPDX-License-Identifier: Apache-2.0

// RecordFile over files that change while they are open, against a model of them. The input is a
// little program; whatever is no command is skipped, and a missing number is 0:
//
//   f<bytes>          one more file                o<bytes>         open all, in such records
//   r<record>         read() and read_into()       i<record>        operator[]
//   t<file>,<bytes>   set the size of a file       w<file>,<byte>   write to it in place
//   p<record>         will_need                    c                copy

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <penstock/record_file.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz.hpp"

namespace {

using penstock::RecordFile;
using penstock::StoreError;
using penstock::test::require;

constexpr std::size_t kFiles = 4, kMostBytes = 40'000, kMostCommands = 100;

/// A file in memory, and what is known of it.
struct File {
  File() : descriptor(::memfd_create("penstock_fuzz", MFD_CLOEXEC)) {
    require(descriptor >= 0, "there is a file");
    path = "/proc/self/fd/" + std::to_string(descriptor);
  }

  void resize(std::size_t bytes) {
    const std::size_t before = contents.size();
    require(::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0, "a size is set");
    contents.resize(bytes);
    for (std::size_t i = before; i < bytes; ++i) contents[i] = static_cast<char>(1 + i % 251);
    if (bytes > before) write(before, bytes - before);
  }
  void write(std::size_t offset, std::size_t bytes) const {
    const auto written =
        ::pwrite(descriptor, contents.data() + offset, bytes, static_cast<off_t>(offset));
    require(written == static_cast<ssize_t>(bytes), "bytes are written");
  }

  const int descriptor;
  std::filesystem::path path;
  std::string contents;
  std::size_t opened = 0;  // its size when it was opened
};

class Program {
 public:
  explicit Program(std::string_view text) : text_(text) {}

  void run() {
    for (std::size_t i = 0; i < kMostCommands && !text_.empty(); ++i) step();
  }

 private:
  struct Place {
    const File* file = nullptr;
    std::size_t begin = 0, end = 0;
  };

  void step() {
    const char command = text_.front();
    text_.remove_prefix(1);
    switch (command) {
      case 'f':
        return add_file(number());
      case 'o':
        return open(number());
      case 't':
        return resize();
      case 'w':
        return write();
      default:
        break;
    }
    if (!records_) return;
    switch (command) {
      case 'r':
        return read(number());
      case 'i':
        return read_own(number());
      case 'p':
        return will_need(number());
      case 'c':
        records_ = std::make_unique<RecordFile>(*records_);
        break;
      default:
        break;
    }
  }

  /// A decimal number, modulo 2^64, and a comma behind it.
  std::size_t number() {
    std::size_t value = 0;
    while (!text_.empty() && text_.front() >= '0' && text_.front() <= '9') {
      value = value * 10 + static_cast<std::size_t>(text_.front() - '0');
      text_.remove_prefix(1);
    }
    if (!text_.empty() && text_.front() == ',') text_.remove_prefix(1);
    return value;
  }

  void add_file(std::size_t bytes) {
    if (used_ == kFiles || records_) return;
    File& file = files()[used_++];
    file.contents.clear();
    file.resize(0);
    file.resize(bytes % kMostBytes);
  }

  void open(std::size_t record_bytes) {
    std::vector<std::filesystem::path> paths;
    bool usable = record_bytes != 0 && used_ != 0;
    for (std::size_t i = 0; i < used_; ++i) {
      File& file = files()[i];
      paths.push_back(file.path);
      usable = usable && !file.contents.empty() && file.contents.size() % record_bytes == 0;
      file.opened = file.contents.size();
    }
    records_.reset();
    try {
      records_ = std::make_unique<RecordFile>(paths, record_bytes);
      require(usable, "files that are no whole numbers of records are refused");
      require(records_->record_bytes() == record_bytes, "records have the size asked for");
      std::size_t all = 0;
      for (std::size_t i = 0; i < used_; ++i) all += files()[i].opened / record_bytes;
      require(records_->size() == all, "all records are there");
    } catch (const StoreError&) {
      require(!usable && record_bytes != 0 && used_ != 0, "good files are not refused");
    } catch (const std::invalid_argument&) {
      require(record_bytes == 0 || used_ == 0, "the arguments were wrong");
    }
  }

  void resize() {
    const std::size_t file = number(), bytes = number();
    if (used_ != 0) files()[file % used_].resize(bytes % kMostBytes);
  }

  void write() {
    const std::size_t index = number(), place = number();
    if (used_ == 0 || files()[index % used_].contents.empty()) return;
    File& file = files()[index % used_];
    char& byte = file.contents[place % file.contents.size()];
    byte = static_cast<char>(byte + 1);
    file.write(place % file.contents.size(), 1);
  }

  Place place_of(std::size_t record) const {
    const std::size_t bytes = records_->record_bytes();
    std::size_t begin = record * bytes;
    for (std::size_t i = 0; i < used_; begin -= files()[i++].opened)
      if (begin < files()[i].opened) return {&files()[i], begin, begin + bytes};
    require(false, "every record is in a file");
    return {};
  }

  /// Calls read_record, which returns bytes, and checks them, or what it throws.
  template <class Read>
  void check(std::size_t record, const Read& read_record) const {
    const bool there = record < records_->size();
    const Place place = there ? place_of(record) : Place{};
    const bool whole = there && place.end <= place.file->contents.size();
    try {
      const auto bytes = read_record();
      require(whole, "what is lost, or was never there, is an error");
      require(bytes.size() == place.end - place.begin, "a record has its size");
      require(
          std::memcmp(bytes.data(), place.file->contents.data() + place.begin, bytes.size()) == 0,
          "a record has the file's bytes");
    } catch (const std::out_of_range&) {
      require(!there, "a record that is there is found");
    } catch (const StoreError& error) {
      require(there && !whole, "what is not lost is no error");
      require(error.sample() == record && error.file() == place.file->path,
              "an error names record and file");
    }
  }

  void read(std::size_t record) const {
    std::vector<std::byte> scratch(record % 100);
    check(record, [&] { return records_->read(record, scratch); });
    check(record, [&] {
      std::vector<std::byte> target(records_->record_bytes());
      records_->read_into(record, target);
      return target;
    });
  }
  void read_own(std::size_t record) const {
    check(record, [&] { return (*records_)[record]; });
  }

  void will_need(std::size_t record) const {
    const std::array<std::uint64_t, 3> records{record, record + 1, record % records_->size()};
    records_->will_need(records);
  }

  /// Of all programs of the process, one after the other.
  static std::array<File, kFiles>& files() {
    static std::array<File, kFiles> files;
    return files;
  }

  std::string_view text_;
  std::size_t used_ = 0;  // of the files
  std::unique_ptr<RecordFile> records_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Program({reinterpret_cast<const char*>(data), size}).run();
  return 0;
}
