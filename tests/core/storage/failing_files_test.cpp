// SPDX-License-Identifier: Apache-2.0

// Files whose disk fails: the error names file and reason, and nothing is lost or left behind.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <penstock/record_file.hpp>
#include <penstock/state.hpp>
#include <penstock/tar_shards.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "support/catch.hpp"
#include "support/failing_call.hpp"
#include "support/files.hpp"
#include "support/packs.hpp"
#include "support/tar_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::append_records;
using test::FailingCall;
using test::Mentions;
using test::read_file;
using test::TarWriter;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;
using test::write_pack;

constexpr const char* kNothing = "(nothing was thrown)";
constexpr std::uint64_t kRecords = 20;

/// What `work` throws where call `number` of `function` fails in it. It has to close what it opens.
template <class Error = StoreError, class Work>
std::string failure(std::string_view function, int error, int number, const Work& work) {
  const auto next_descriptor = [] {
    const int opened = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(opened);
    return opened;
  };
  const int before = next_descriptor();
  const std::string text = [&] {
    const FailingCall failing(function, error, number);
    return thrown<Error>(work);
  }();
  CHECK(next_descriptor() == before);
  return text;
}

// ---- Reading

TEST_CASE("FileFolder: a directory that cannot be listed to its end is an error",
          "[failing_files]") {
  const TemporaryDirectory directory;
  const auto folder = directory / "images";
  write_file(folder / "cat/a.jpg", "a");
  write_file(folder / "dog/b.jpg", "b");
  const auto list = [&] { FileFolder{folder}; };
  CHECK_THAT(failure("fstat", EIO, 1, list), Mentions("images: cannot list: Input/output error"));
  CHECK_THAT(failure("fstat", EIO, 2, list), Mentions("images/cat: cannot list: Input/output"));
  for (const int entry : {1, 4})  // of ., .., cat and dog
    CHECK_THAT(failure("readdir", EIO, entry, list), Mentions("images: cannot list: Input/output"));
  CHECK_THAT(failure("readdir", EIO, 5 + 3, list), Mentions("images/cat: cannot list: Input"));
  CHECK(FileFolder(folder).size() == 2);
}

TEST_CASE("a file whose size cannot be read is an error of its store", "[failing_files]") {
  const int number = GENERATE(1, 2);  // Is it a regular file? How large is it?
  const TemporaryDirectory directory;
  const auto records = directory.records("a.bin", 0, 4, 10);
  const auto pack = directory / "a.pack", tar = directory / "a.tar";
  write_pack(pack, 3);
  TarWriter().add("0.txt", "zero").save(tar);
  write_file(directory / "f/c/a.jpg", "a");
  const FileFolder files(directory / "f");
  std::vector<std::byte> scratch;
  const auto check = [&](const char* file, const auto& open) {
    CHECK_THAT(failure("fstat", EIO, number, open),
               Mentions(file) && Mentions(": cannot read the size: Input/output error"));
    CHECK(thrown<StoreError>(open) == kNothing);
  };
  check("a.bin", [&] { RecordFile({records}, 10); });
  check("a.pack", [&] { PackedFile{pack}; });
  check("a.tar", [&] { TarShards({tar}); });
  check("f/c/a.jpg", [&] { files.read(0, scratch); });
}

TEST_CASE("TarShards: a tar that is cut between two reads of a header is an error",
          "[failing_files]") {
  const TemporaryDirectory directory;
  const auto tar = directory / "a.tar";
  const std::string name = std::string(120, 'x') + ".txt";
  TarWriter().add_gnu(name, "text").content(std::string(4096, '\0')).save(tar);
  // Headers are read 8 at a time, in one call where there are as many bytes.
  CHECK_THAT(failure("pread", 0, 2, [&] { TarShards({tar}); }),
             Mentions("a.tar: the file has become shorter while it was read"));
  CHECK(TarShards({tar}).name(0) == "a.tar/" + name);
}

TEST_CASE("TarShards: to open a shard by its index takes few reads of headers", "[failing_files]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tar";
  TarWriter tar;
  for (int i = 0; i < 5000; ++i)
    tar.add_pax(TarWriter::pax_record("mtime", "1.5"),
                TarWriter::header(std::to_string(i) + ".jpg", 5), "bytes");
  tar.save(path);
  const auto takes = [&](int reads) {
    const FailingCall last("pread", EINTR, reads);  // which is done again
    CHECK(TarShards({path}).size() == 5000);
    return last.has_failed();
  };
  CHECK(takes(2000));  // 4 blocks a sample, 8 by each read
  TarShards({path}).save_indexes();
  CHECK(takes(128));
  CHECK_FALSE(takes(128 + 12));  // 128 headers, the index, the start and the end
}

TEST_CASE("TarShards: a bad sector of a tar that has an index is an error of its sample alone",
          "[failing_files]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.tar";
  TarWriter().add("0.txt", "zero").add("1.txt", "one").save(path);
  TarShards({path}).save_indexes();
  bool has_failed = true;
  int opened = 0;
  for (int number = 1; has_failed; ++number) {
    CAPTURE(number);
    const FailingCall failing("pread", EIO, number);
    std::uint64_t samples = 0;
    const std::string why = thrown<StoreError>([&] { samples = TarShards({path}).size(); });
    if (why.find("a.idx: cannot read") == std::string::npos) CHECK(samples == 2);
    opened += samples == 2 ? 1 : 0;
    has_failed = failing.has_failed();
  }
  CHECK(opened > 4);
}

// ---- Packs

/// A pack of which all records are in its partial file.
struct Partial {
  Partial() {
    PackedFileWriter writer(path, "a note");
    append_records(writer, kRecords);
  }
  /// The next writer has all that was written, and makes the pack that it would be without errors.
  void check_continues() const {
    PackedFileWriter writer(path, "a note");
    CHECK(writer.size() == kRecords);
    writer.finish();
    check_whole();
    CHECK_FALSE(std::filesystem::exists(partial));
  }
  void check_whole() const {
    write_pack(directory / "whole.pack", kRecords);
    CHECK(read_file(path) == read_file(directory / "whole.pack"));
  }

  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "a.pack", partial = directory / "a.pack.partial";
};

TEST_CASE("PackedFileWriter: a partial file that cannot be read or cut is an error, and stays",
          "[failing_files]") {
  const Partial pack;
  const std::string before = read_file(pack.partial);
  const auto check = [&](const char* function, int number, const char* why) {
    CHECK_THAT(failure(function, EIO, number, [&] { PackedFileWriter(pack.path, "a note"); }),
               Mentions("a.pack.partial: ") && Mentions(why) && Mentions(": Input/output error"));
    CHECK(read_file(pack.partial) == before);
  };
  // Is it a regular file? Is it still the one of this name? How large is it?
  for (const int number : {1, 2, 3}) check("fstat", number, "cannot read the size");
  // The header; of the first record, frame, name and bytes.
  for (const int number : {1, 2, 3, 4}) check("pread", number, "cannot read it");
  check("ftruncate", 1, "cannot cut it");
  pack.check_continues();
}

TEST_CASE("PackedFileWriter: a new file that cannot be cut is an error", "[failing_files]") {
  const TemporaryDirectory directory;
  const auto path = directory / "a.pack";
  CHECK_THAT(failure("ftruncate", EIO, 1, [&] { PackedFileWriter{path}; }),
             Mentions("a.pack.partial: cannot cut it: Input/output error"));
  write_pack(path, kRecords);
  CHECK(PackedFile(path).size() == kRecords);
}

TEST_CASE("PackedFileWriter: a read that a signal interrupts is done again", "[failing_files]") {
  const Partial pack;
  const int number = GENERATE(1, 2, 3, 4);
  CHECK(failure("pread", EINTR, number, [&] {
          CHECK(PackedFileWriter(pack.path, "a note").size() == kRecords);
        }) == kNothing);
  pack.check_continues();
}

TEST_CASE("PackedFileWriter: a pack that cannot be written to the disk gets no name",
          "[failing_files]") {
  const Partial pack;
  write_file(pack.path, "old");
  const char* const function = GENERATE("pwrite", "fsync");
  CHECK_THAT(failure(function, EIO, 1,
                     [&] {
                       PackedFileWriter writer(pack.path, "a note");
                       writer.finish();
                     }),
             Mentions("a.pack.partial: cannot write: Input/output error"));
  CHECK(read_file(pack.path) == "old");
  pack.check_continues();
}

TEST_CASE(
    "PackedFileWriter: a folder that cannot be written to the disk is an error, one that "
    "needs not is none",
    "[failing_files]") {
  const Partial pack;
  const auto finish = [&](const char* function, int error, int number) {
    PackedFileWriter writer(pack.path, "a note");
    return failure(function, error, number, [&] { writer.finish(); });
  };
  const std::string error = "cannot write the directory: ";
  SECTION("it may not be read") {
    CHECK(finish("open", EACCES, 1) == kNothing);
  }
  SECTION("its file system writes names at once") {
    CHECK(finish("fsync", EINVAL, 2) == kNothing);
  }
  SECTION("it cannot be opened") {
    CHECK_THAT(finish("open", EMFILE, 1), Mentions("a.pack") && Mentions(error + "Too many open"));
  }
  SECTION("it cannot be written") {
    CHECK_THAT(finish("fsync", EIO, 2), Mentions("a.pack") && Mentions(error + "Input/output"));
  }
  pack.check_whole();
}

// ---- Lists and indexes

TEST_CASE("a list or an index that cannot be written is an error, and the old one stays",
          "[failing_files]") {
  const TemporaryDirectory directory;
  write_file(directory / "f/c/a.jpg", "a");
  write_file(directory / "t/a.idx", "old");
  write_file(directory / "l/a.list", "old");
  TarWriter().add("0.txt", "zero").save(directory / "t/a.tar");
  const FileFolder files(directory / "f");
  const TarShards shards({directory / "t/a.tar"}, {.use_indexes = false});
  const auto check = [](const std::filesystem::path& file, std::ptrdiff_t names, const auto& save) {
    const auto fails = [&](const char* function, int error, const char* why) {
      CHECK_THAT(failure(function, error, 1, save), Mentions(file.filename().string() + why));
      CHECK(read_file(file) == "old");
      const std::filesystem::directory_iterator all(file.parent_path());
      CHECK(std::distance(begin(all), end(all)) == names);
    };
    fails("pwrite", ENOSPC, ": cannot write: No space left on device");
    fails("fsync", EIO, ": cannot write: Input/output error");
    CHECK(failure("pwrite", EINTR, 1, save) == kNothing);
    CHECK(read_file(file) != "old");
    CHECK_THAT(failure("fsync", EIO, 2, save),
               Mentions(file.filename().string() + ": cannot write the directory: Input/output"));
    CHECK(failure("open", EACCES, 2, save) == kNothing);
  };
  check(directory / "l/a.list", 1, [&] { files.save_list(directory / "l/a.list"); });
  check(directory / "t/a.idx", 2, [&] { shards.save_indexes(); });
  CHECK(FileFolder::from_list(directory / "l/a.list", directory / "f").size() == 1);
  CHECK(TarShards({directory / "t/a.tar"}).size() == 1);
}

TEST_CASE("a list that would take the name of a directory is an error, and leaves nothing",
          "[failing_files]") {
  const TemporaryDirectory directory;
  write_file(directory / "f/c/a.jpg", "a");
  std::filesystem::create_directories(directory / "l/a.list");
  CHECK_THAT(
      thrown<StoreError>([&] { FileFolder(directory / "f").save_list(directory / "l/a.list"); }),
      Mentions("a.list: cannot give the file its name: Is a directory"));
  const std::filesystem::directory_iterator all(directory / "l");
  CHECK(std::distance(begin(all), end(all)) == 1);
}

// ---- States

TEST_CASE("a state that cannot be written to the disk is an error, and the old one stays",
          "[failing_files]") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "state.txt";
  const State before{.epoch = 1, .batch = 2}, after{.epoch = 1, .batch = 3};
  before.save(path);
  const auto check = [&](const char* function, int error, int number, const char* why) {
    CHECK(failure<std::system_error>(function, error, number, [&] { after.save(path); }) ==
          "State::save: " + path.string() + ": " + why);
  };
  check("open", EACCES, 1, "cannot create a file here: Permission denied");
  check("pwrite", ENOSPC, 1, "cannot write: No space left on device");
  check("fsync", EIO, 1, "cannot write: Input/output error");
  CHECK(State::load(path) == before);
  check("fsync", EIO, 2, "cannot write the directory: Input/output error");
  const std::filesystem::directory_iterator all(path.parent_path());
  CHECK(std::distance(begin(all), end(all)) == 1);
  for (const int number : {1, 2})
    CHECK(failure<std::system_error>("pread", EIO, number, [&] { State::load(path); }) ==
          "State::load: " + path.string() + ": cannot read: Input/output error");
}

}  // namespace
}  // namespace penstock
