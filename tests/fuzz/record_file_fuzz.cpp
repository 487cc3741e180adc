// SPDX-License-Identifier: Apache-2.0

// RecordFile over files that change while they are mapped, against a model of them. The input is a
// little program; whatever is no command is skipped, and a missing number is 0:
//
//   f<bytes>               one more file              o<bytes>            open all, in such records
//   r<record>              read, as a batch           b<record>           read, by itself
//   t<file>,<bytes>        set the size of a file     w<file>,<byte>      write to it in place
//   d<record>,<file>,<bytes>    read, and set a size between asking and reading
//   a<record>  at()        p<record>  prefetch        u  check_unchanged  m  move

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <penstock/record_file.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz.hpp"

namespace {

using penstock::RecordFile;
using penstock::RecordFileError;
using penstock::test::require;

constexpr std::size_t kFiles = 4, kMostBytes = 40'000, kMostCommands = 100;
const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

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
    smallest = std::min(smallest, bytes);
  }
  void write(std::size_t offset, std::size_t bytes) const {
    const auto written =
        ::pwrite(descriptor, contents.data() + offset, bytes, static_cast<off_t>(offset));
    require(written == static_cast<ssize_t>(bytes), "bytes are written");
  }

  const int descriptor;
  std::filesystem::path path;
  std::string contents;
  std::size_t smallest = 0, opened = 0;  // size since it was opened, and then
  bool changed = false;                  // since it was opened
};

class Program {
 public:
  explicit Program(std::string_view text) : text_(text) {}

  void run() {
    for (std::size_t i = 0; i < kMostCommands && !text_.empty(); ++i) step();
  }

 private:
  struct Place {
    const File* file;
    std::size_t begin, end;
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
    if (!records_ || records_->size() == 0) return;
    switch (command) {
      case 'r':
        return read_as_batch(number() % records_->size(), {}, 0);
      case 'b':
        return read_alone(number() % records_->size());
      case 'd': {
        const std::size_t record = number(), file = number(), bytes = number();
        return read_as_batch(record % records_->size(), file % used_, bytes % kMostBytes);
      }
      case 'a':
        return read_at(number());
      case 'p':
        return prefetch(number());
      case 'u':
        return check_unchanged();
      case 'm':
        records_ = std::make_unique<RecordFile>(std::move(*records_));
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
      file.smallest = file.opened = file.contents.size();
      file.changed = false;
    }
    records_.reset();
    try {
      records_ = std::make_unique<RecordFile>(paths, record_bytes);
      require(usable, "files that are no whole numbers of records are refused");
      require(records_->record_bytes() == record_bytes, "records have the size asked for");
      std::size_t all = 0;
      for (std::size_t i = 0; i < used_; ++i) all += files()[i].opened / record_bytes;
      require(records_->size() == all, "all records are there");
    } catch (const RecordFileError&) {
      require(!usable && record_bytes != 0 && used_ != 0, "good files are not refused");
    } catch (const std::invalid_argument&) {
      require(record_bytes == 0 || used_ == 0, "the arguments were wrong");
    }
  }

  void resize() {
    const std::size_t file = number(), bytes = number();
    if (used_ != 0) resize(files()[file % used_], bytes % kMostBytes);
  }
  static void resize(File& file, std::size_t bytes) {
    file.changed = true;  // Also with the size that it has.
    file.resize(bytes);
  }

  void write() {
    const std::size_t index = number(), place = number();
    if (used_ == 0 || files()[index % used_].contents.empty()) return;
    File& file = files()[index % used_];
    char& byte = file.contents[place % file.contents.size()];
    byte = static_cast<char>(byte + 1);
    file.write(place % file.contents.size(), 1);
    file.changed = true;
  }

  Place place_of(std::size_t record) const {
    const std::size_t bytes = records_->record_bytes();
    std::size_t begin = record * bytes;
    for (std::size_t i = 0; i < used_; begin -= files()[i++].opened)
      if (begin < files()[i].opened) return {&files()[i], begin, begin + bytes};
    require(false, "every record is in a file");
    return {};
  }

  /// The bytes are the file's, with zeros behind its end.
  static void check_bytes(std::span<const std::byte> bytes, const Place& place) {
    require(bytes.size() == place.end - place.begin, "a record has its size");
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::size_t offset = place.begin + i;
      const char expected = offset < place.file->contents.size() ? place.file->contents[offset] : 0;
      require(static_cast<char>(bytes[i]) == expected, "a record has the file's bytes");
    }
  }

  void read_as_batch(std::size_t record, std::optional<std::size_t> resized, std::size_t bytes) {
    const Place place = place_of(record);
    std::vector<std::byte> copy;
    bool lost = false;
    try {
      penstock::detail::with_whole_files([&] {
        const std::span<const std::byte> span = (*records_)[record];
        if (resized) resize(files()[*resized], bytes);
        copy.assign(span.begin(), span.end());
        return true;
      });
      check_bytes(copy, place);
    } catch (const RecordFileError& error) {
      check_error(error, record, place);
      lost = true;
    }
    if (place.end > place.file->contents.size()) require(lost, "what is lost is an error");
    if (place.end <= place.file->smallest) require(!lost, "what was never lost is no error");
  }

  void read_alone(std::size_t record) const {
    const Place place = place_of(record);
    const std::size_t pages_left = (place.file->contents.size() + page - 1) / page;
    try {
      const std::span<const std::byte> span = (*records_)[record];
      require(place.end <= pages_left * page, "a lost page is an error");
      check_bytes(span, place);
    } catch (const RecordFileError& error) {
      check_error(error, record, place);
      require(place.end > place.file->smallest, "what was never lost is no error");
    }
  }

  static void check_error(const RecordFileError& error, std::size_t record, const Place& place) {
    require(error.record() == record && error.file() == place.file->path,
            "an error names record and file");
  }

  void read_at(std::size_t record) const {
    if (record < records_->size()) return read_alone(record);
    try {
      static_cast<void>(records_->at(record));
      require(false, "at() knows the end");
    } catch (const std::out_of_range&) {
    }
  }

  void prefetch(std::size_t record) const {
    const std::array<std::uint64_t, 2> records{record % records_->size(),
                                               (record + 1) % records_->size()};
    records_->prefetch(records);
  }

  void check_unchanged() const {
    bool same = true, sizes = true;
    for (std::size_t i = 0; i < used_; ++i) {
      same = same && !files()[i].changed;
      sizes = sizes && files()[i].contents.size() == files()[i].opened;
    }
    try {
      records_->check_unchanged();
      require(sizes, "another size is a change");
    } catch (const RecordFileError&) {
      require(!same, "what did not change is unchanged");
    }
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
