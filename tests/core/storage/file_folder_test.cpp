// SPDX-License-Identifier: Apache-2.0

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <penstock/file_folder.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/sanitized.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using test::as_text;
using test::Mentions;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

std::string content(const FileFolder& files, std::uint64_t index) {
  std::vector<std::byte> scratch;
  return as_text(files.read(index, scratch));
}

std::vector<std::string> names(const FileFolder& files) {
  std::vector<std::string> all;
  for (std::uint64_t i = 0; i < files.size(); ++i) all.push_back(files.name(i));
  return all;
}

std::vector<std::int32_t> labels(const FileFolder& files) {
  std::vector<std::int32_t> all;
  for (std::uint64_t i = 0; i < files.size(); ++i) all.push_back(files.label(i));
  return all;
}

/// A folder of two classes, each file of which contains its name.
struct ImageFolder {
  ImageFolder() {
    for (const char* name : {"cat/b.jpg", "cat/a.JPEG", "bird/9.png", "bird/10.png"})
      write_file(folder / name, fs::path(name).filename().string());
    write_file(folder / "cat/notes.txt", "no image");
    write_file(folder / "labels.csv", "no class");
  }
  const TemporaryDirectory directory;
  const fs::path folder = directory / "images";
};

TEST_CASE("FileFolder has a class for each directory, and a sample for each image in it",
          "[file_folder]") {
  const ImageFolder images;
  const FileFolder files(images.folder);
  CHECK(files.size() == 4);
  CHECK(files.classes() == std::vector<std::string>{"bird", "cat"});
  CHECK(names(files) == std::vector<std::string>{"images/bird/10.png", "images/bird/9.png",
                                                 "images/cat/a.JPEG", "images/cat/b.jpg"});
  CHECK(labels(files) == std::vector<std::int32_t>{0, 0, 1, 1});
  for (std::uint64_t i = 0; i < files.size(); ++i)
    CHECK(content(files, i) == fs::path(files.name(i)).filename());
  CHECK(names(FileFolder(images.folder / "")) == names(files));  // a slash at its end
}

TEST_CASE("FileFolder numbers files below a class as ImageFolder does: by directory, then by name",
          "[file_folder]") {
  const TemporaryDirectory directory;
  const fs::path folder = directory / "f";
  for (const char* name : {"c/z.jpg", "c/a/x.jpg", "c/a-b/x.jpg", "c/a/b/x.jpg", "c/b.jpg"})
    write_file(folder / name, "x");
  CHECK(names(FileFolder(folder)) == std::vector<std::string>{"f/c/b.jpg", "f/c/z.jpg",
                                                              "f/c/a/x.jpg", "f/c/a-b/x.jpg",
                                                              "f/c/a/b/x.jpg"});
}

TEST_CASE("FileFolder takes the extensions that it is told, in letters of either case",
          "[file_folder]") {
  const ImageFolder images;
  write_file(images.folder / "bird/a.TXT", "x");
  CHECK(names(FileFolder(images.folder, {".Txt"})) ==
        std::vector<std::string>{"images/bird/a.TXT", "images/cat/notes.txt"});
  CHECK(FileFolder(images.folder, {""}).size() == 6);
  for (const char* name : {"a.ppm", "a.bmp", "a.pgm", "a.tif", "a.tiff", "a.webp", ".jpg"})
    write_file(images.folder / "cat" / name, "x");
  CHECK(FileFolder(images.folder).size() == 4 + 7);
}

TEST_CASE("FileFolder reads into scratch memory, which only grows", "[file_folder]") {
  const TemporaryDirectory directory;
  write_file(directory / "f/c/a.jpg", std::string(5000, 'a'));
  write_file(directory / "f/c/b.jpg", "bb");
  const FileFolder files(directory / "f");
  std::vector<std::byte> scratch;
  CHECK(as_text(files.read(0, scratch)) == std::string(5000, 'a'));
  const std::byte* const memory = scratch.data();
  const std::uint64_t before = test::allocations_of_this_thread();
  const std::span<const std::byte> read = files.read(1, scratch);
  const std::uint64_t allocated = test::allocations_of_this_thread() - before;
  CHECK(as_text(read) == "bb");
  CHECK(read.data() == memory);
  CHECK(scratch.size() == 5000);
  CHECK(allocated == 0);
}

TEST_CASE("FileFolder may be read by many threads", "[file_folder]") {
  const TemporaryDirectory directory;
  for (int i = 0; i < 50; ++i)
    write_file(directory / "f/c" / (std::to_string(i) + ".jpg"),
               std::string(100, static_cast<char>(i)));
  const FileFolder files(directory / "f");
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::byte> scratch;
      for (std::uint64_t i = 0; i < files.size(); ++i) {
        const auto number = static_cast<std::byte>(std::stoi(fs::path(files.name(i)).stem()));
        const auto bytes = files.read(i, scratch);
        wrong[t] += std::count(bytes.begin(), bytes.end(), number) == 100 ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("FileFolder is still read after the current directory has changed", "[file_folder]") {
  const ImageFolder images;
  const fs::path before = fs::current_path();
  fs::current_path(images.folder.parent_path());
  const FileFolder files("images"), listed = FileFolder::from_files({"images/cat/b.jpg"});
  fs::current_path(before);
  CHECK(names(files).front() == "images/bird/10.png");
  CHECK(content(files, 3) == "b.jpg");
  CHECK(content(listed, 0) == "b.jpg");
}

// ---- Lists --------------------------------------------------------------------------------------

TEST_CASE("FileFolder reads a list of files and labels", "[file_folder]") {
  const ImageFolder images;
  const fs::path list = images.folder / "list.txt";
  const std::string absolute = (images.folder / "cat/a.JPEG").string();
  write_file(list,
             "# a comment\ncat/b.jpg\t7\r\n\nbird/9.png\n" + absolute + "\t-3\n./labels.csv\t0");
  const FileFolder files = FileFolder::from_list(list);
  CHECK(names(files) == std::vector<std::string>{"images/cat/b.jpg", "images/bird/9.png", absolute,
                                                 "images/labels.csv"});
  CHECK(labels(files) == std::vector<std::int32_t>{7, -1, -3, 0});
  CHECK(files.classes().empty());
  CHECK(content(files, 0) == "b.jpg");
  CHECK(content(files, 2) == "a.JPEG");
  CHECK(content(files, 3) == "no class");
}

TEST_CASE("FileFolder takes files in the order in which they are given", "[file_folder]") {
  const ImageFolder images;
  const fs::path a = images.folder / "cat/b.jpg", b = images.folder / "bird/9.png";
  const FileFolder files = FileFolder::from_files({b, a, b}, {5, 6, 7});
  CHECK(names(files) == std::vector<std::string>{b, a, b});
  CHECK(labels(files) == std::vector<std::int32_t>{5, 6, 7});
  CHECK(content(files, 1) == "b.jpg");
  CHECK(FileFolder::from_files({a}).label(0) == -1);
  const auto failure = [](const std::vector<fs::path>& paths, const std::vector<std::int32_t>& of) {
    return thrown<std::invalid_argument>([&] { FileFolder::from_files(paths, of); });
  };
  CHECK_THAT(failure({}, {}), Mentions("list of files is empty"));
  CHECK_THAT(failure({a, b}, {1}), Mentions("1 labels for 2 files"));
  CHECK_THAT(failure({a, "x/"}, {}), Mentions("\"x/\" is no path of a file"));
  CHECK_THAT(failure({std::string("a\0b", 3)}, {}), Mentions("\"a\\x00b\" is no path"));
}

TEST_CASE("a list that FileFolder saves brings the same folder back", "[file_folder]") {
  const ImageFolder images;
  write_file(images.folder / "#odd/#1\t2.jpg", "odd");
  write_file(images.folder / "cat/\xFF.jpg", "no UTF-8");
  const FileFolder files(images.folder);
  const fs::path list = images.directory / "index.txt";
  files.save_list(list);
  const FileFolder again = FileFolder::from_list(list, images.folder);
  CHECK(names(again) == names(files));
  CHECK(labels(again) == labels(files));
  CHECK(again.classes() == files.classes());
  CHECK(content(again, 0) == "odd");
  for (const auto& entry : fs::directory_iterator(images.directory / ""))
    CHECK((entry.path() == list || entry.path() == images.folder));  // and no partial file
}

TEST_CASE("a list that cannot be saved is an error, and leaves nothing", "[file_folder]") {
  const ImageFolder images;
  const auto failure = [&](const fs::path& list) {
    return thrown<StoreError>([&] { FileFolder(images.folder).save_list(list); });
  };
  CHECK_THAT(failure(images.directory / "missing/list"), Mentions("missing/list: cannot create"));
  write_file(images.folder / "cat/a\nb.jpg", "x");
  CHECK_THAT(failure(images.directory / "list"),
             Mentions("cat/a\\x0Ab.jpg: a name with a line break"));
  CHECK(std::distance(fs::directory_iterator(images.directory / ""), {}) == 1);
}

TEST_CASE("FileFolder names the line of a list that is none", "[file_folder]") {
  const TemporaryDirectory directory;
  const auto failure = [&](std::string_view list) {
    write_file(directory / "list", list);
    return thrown<StoreError>([&] { FileFolder::from_list(directory / "list"); });
  };
  CHECK_THAT(failure("a.jpg\t1\nb.jpg\tdog\n"), Mentions("list: line 2, \"b.jpg\\x09dog\", must"));
  CHECK_THAT(failure("a.jpg\t1x"), Mentions("line 1"));
  CHECK_THAT(failure("a.jpg\t99999999999"), Mentions("line 1"));
  CHECK_THAT(failure("a.jpg\t"), Mentions("line 1"));
  CHECK_THAT(failure("a/\t1"), Mentions("line 1"));
  CHECK_THAT(failure("\t1"), Mentions("line 1"));
  CHECK_THAT(failure(std::string("a\0b", 3)), Mentions("line 1, \"a\\x00b\""));
  CHECK_THAT(failure("# nothing\n"), Mentions("the list names no file"));
  CHECK_THAT(failure(""), Mentions("the list names no file"));
  CHECK_THAT(failure(std::string(std::size_t{1} << 25, 'x')), Mentions("more than 16 MiB"));
  CHECK_THAT(thrown<StoreError>([&] { FileFolder::from_list(directory / "none"); }),
             Mentions("none: cannot open"));
}

TEST_CASE("lines of a list may be longer than the buffer that they are read into",
          "[file_folder]") {
  const TemporaryDirectory directory;
  const std::string longest(3 << 20, 'x');
  write_file(directory / "list", "a\n" + longest + "\nb\n" + longest);
  const FileFolder files = FileFolder::from_list(directory / "list", "/f");
  REQUIRE(files.size() == 4);
  CHECK(files.name(1) == "f/" + longest);
  CHECK(files.name(2) == "f/b");
  CHECK(files.name(3) == "f/" + longest);
  std::vector<std::byte> scratch;
  CHECK_THAT(thrown<StoreError>([&] { files.read(1, scratch); }), Mentions("name too long"));
}

TEST_CASE("a sample of FileFolder takes 40 bytes and its name at most", "[file_folder]") {
  constexpr std::size_t kFiles = 100'000, kOfDirectory = 1000, kNameBytes = 12;
  const TemporaryDirectory directory;
  {
    std::ofstream list(directory / "list");
    for (std::size_t i = 0; i < kFiles; ++i)
      list << "class_" << i / kOfDirectory << "/" << 10'000'000 + i << ".jpg\t" << i << '\n';
  }
  const std::int64_t before = test::bytes_of_this_thread();
  const FileFolder files = FileFolder::from_list(directory / "list");
  const std::int64_t bytes = test::bytes_of_this_thread() - before;
  CHECK(files.name(54'321).ends_with("/class_54/10054321.jpg"));
  CHECK(files.label(54'321) == 54'321);
  if (PENSTOCK_TEST_SANITIZED == 0) CHECK(bytes > static_cast<std::int64_t>(kFiles * kNameBytes));
  CHECK(bytes <= static_cast<std::int64_t>(kFiles * (20 + kNameBytes)));  // half of what may be
}

TEST_CASE("a path that begins with ./ and slashes is relative", "[file_folder]") {
  // Below the folder there is another file with the path of `absolute`.
  const TemporaryDirectory directory, other;
  const fs::path absolute = other / "x.jpg";
  write_file(absolute, "absolute");
  write_file(directory / absolute.relative_path().c_str(), "relative");
  const std::string path = absolute.string();
  const fs::path before = fs::current_path();
  fs::current_path(directory / "");
  for (const std::string start : {"./", ".//", ".///", "././/", "././/", ".//./"}) {
    CAPTURE(start);
    write_file(directory / "list", start + path.substr(1) + "\t3\n" + path + "\n");
    for (const FileFolder& files :
         {FileFolder::from_files({start + path.substr(1), path}, {3, -1}),
          FileFolder::from_list("list"), FileFolder::from_list(directory / "list")}) {
      CHECK(content(files, 0) == "relative");
      CHECK(content(files, 1) == "absolute");
      CHECK(files.name(0) == (directory / "").parent_path().filename().string() + path);
      CHECK(files.label(0) == 3);
    }
  }
  fs::current_path(before);
  for (const char* path_of_nothing : {"./", ".//", "././/"})
    CHECK_THAT(thrown<std::invalid_argument>([&] { FileFolder::from_files({path_of_nothing}); }),
               Mentions("is no path of a file"));
}

TEST_CASE("a list may begin with a byte order mark", "[file_folder]") {
  const ImageFolder images;
  const fs::path list = images.folder / "list.txt";
  const std::string mark = "\xEF\xBB\xBF";
  write_file(list, mark + "cat/b.jpg\t7\r\ncat/a.JPEG\t8\r\n");
  const FileFolder files = FileFolder::from_list(list);
  CHECK(names(files) == std::vector<std::string>{"images/cat/b.jpg", "images/cat/a.JPEG"});
  CHECK(content(files, 0) == "b.jpg");
  write_file(list, mark + "#class\tcat\ncat/b.jpg\t0\n");
  CHECK(FileFolder::from_list(list).classes() == std::vector<std::string>{"cat"});
  write_file(list, mark + "# a comment\n" + mark + "cat/b.jpg\n");
  CHECK(FileFolder::from_list(list).name(0) == "images/" + mark + "cat/b.jpg");  // not the first
  write_file(list, mark);
  CHECK_THAT(thrown<StoreError>([&] { FileFolder::from_list(list); }),
             Mentions("the list names no file"));
}

TEST_CASE("a saved list may begin with names that look like something else", "[file_folder]") {
  const TemporaryDirectory directory;
  for (const std::string name : {"\xEF\xBB\xBF.jpg", "<html>.jpg", "\x1F\x8B.jpg", "#.jpg",
                                 "PK\x03\x04", "/annex/objects/1.jpg"}) {
    const FileFolder files = FileFolder::from_files({(directory / name.c_str())});
    const FileFolder saved = FileFolder::from_files({name});
    for (const FileFolder& one : {files, saved}) {
      one.save_list(directory / "list");
      CHECK(names(FileFolder::from_list(directory / "list", fs::current_path())) == names(one));
    }
  }
}

TEST_CASE("a list that is something else is an error that says what", "[file_folder]") {
  const TemporaryDirectory directory;
  const auto failure = [&](std::string_view bytes) {
    write_file(directory / "list", bytes);
    return thrown<StoreError>([&] { FileFolder::from_list(directory / "list"); });
  };
  CHECK_THAT(failure("\x1F\x8B\x08 gzip\n"),
             Mentions("list: it is no list: it is compressed with gzip: decompress it (gunzip)"));
  CHECK_THAT(failure("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
             Mentions("it is no list: it is a Git-LFS pointer"));
  CHECK_THAT(failure("<!DOCTYPE html>\n<html>\n"), Mentions("it is no list: it is a page in HTML"));
  CHECK_THAT(failure(std::string("\xFF\xFE"
                                 "a\0.\0j\0p\0g\0\n\0",
                                 14)),
             Mentions("it is no list: it is text in UTF-16: save it in UTF-8"));
  CHECK(failure("\xFF\xFE.jpg\n") == "(nothing was thrown)");  // a name need not be UTF-8
}

TEST_CASE("a file of no bytes is a sample where the options say so", "[file_folder]") {
  const TemporaryDirectory directory;
  write_file(directory / "f/c/a.jpg", "");
  write_file(directory / "f/c/b.jpg", "b");
  write_file(directory / "list", "f/c/a.jpg\nf/c/b.jpg\n");
  const std::vector<fs::path> paths{directory / "f/c/a.jpg", directory / "f/c/b.jpg"};
  for (const FileFolder& files : {FileFolder(directory / "f"), FileFolder::from_files(paths),
                                  FileFolder::from_list(directory / "list")}) {
    CHECK_THAT(thrown<StoreError>([&] { content(files, 0); }),
               Mentions("a.jpg: sample 0 is lost: the file is empty") &&
                   Mentions("set FileFolderOptions::allow_empty"));
    CHECK(content(files, 1) == "b");
  }
  constexpr FileFolderOptions kEmptyToo{.allow_empty = true};
  for (const FileFolder& files :
       {FileFolder(directory / "f", {}, kEmptyToo), FileFolder::from_files(paths, {}, kEmptyToo),
        FileFolder::from_list(directory / "list", {}, kEmptyToo)}) {
    CHECK(content(files, 0).empty());
    CHECK(content(files, 1) == "b");
  }
}

TEST_CASE("what Jupyter and macOS leave in a folder is no sample and no class", "[file_folder]") {
  const ImageFolder images;
  const std::vector<std::string> right = names(FileFolder(images.folder));
  CHECK(FileFolder(images.folder).ignored() == 0);
  write_file(images.folder / "cat/._b.jpg", "of macOS");
  write_file(images.folder / "cat/._notes.txt", "no image anyway");
  write_file(images.folder / "cat/.ipynb_checkpoints/b-checkpoint.jpg", "of Jupyter");
  write_file(images.folder / ".ipynb_checkpoints/b-checkpoint.jpg", "of Jupyter");
  write_file(images.folder / "__MACOSX/cat/._b.jpg", "of macOS");
  const FileFolder files(images.folder);
  CHECK(names(files) == right);
  CHECK(files.classes() == std::vector<std::string>{"bird", "cat"});
  CHECK(files.ignored() == 4);
  // A list has what it names.
  const FileFolder listed = FileFolder::from_files({images.folder / "cat/._b.jpg"});
  CHECK(listed.size() == 1);
  CHECK(listed.ignored() == 0);
  fs::remove_all(images.folder / "bird");
  fs::remove_all(images.folder / "cat");
  CHECK_THAT(thrown<StoreError>([&] { FileFolder{images.folder}; }),
             Mentions("there is no directory in it"));
}

// ---- What is wrong ------------------------------------------------------------------------------

std::string folder_failure(const fs::path& folder) {
  return thrown<StoreError>([&] { FileFolder{folder}; });
}

TEST_CASE("FileFolder names what it cannot list", "[file_folder]") {
  const TemporaryDirectory directory;
  const fs::path folder = directory / "f";
  SECTION("a folder that is missing") {
    CHECK_THAT(folder_failure(folder), Mentions("f: cannot list: No such file"));
    CHECK_THAT(folder_failure(""), Mentions("cannot list: No such file"));
  }
  SECTION("a file") {
    write_file(folder, "x");
    CHECK_THAT(folder_failure(folder), Mentions("f: cannot list: Not a directory"));
  }
  SECTION("an empty folder, and one of files alone") {
    fs::create_directories(folder);
    CHECK_THAT(folder_failure(folder), Mentions("no directory in it"));
    write_file(folder / "a.jpg", "x");
    CHECK_THAT(folder_failure(folder), Mentions("no directory in it") && Mentions("from_list"));
  }
  SECTION("a class without files") {
    write_file(folder / "a/a.jpg", "x");
    write_file(folder / "b/deep/b.txt", "x");
    CHECK_THAT(folder_failure(folder),
               Mentions("f/b: a class without files") && Mentions(".jpg, .jpeg"));
  }
  SECTION("a directory that may not be read") {
    write_file(folder / "a/a.jpg", "x");
    write_file(folder / "a/closed/b.jpg", "x");
    REQUIRE(::chmod((folder / "a/closed").c_str(), 0) == 0);
    if (::geteuid() != 0)  // Root may read everything.
      CHECK_THAT(folder_failure(folder), Mentions("a/closed: cannot list: Permission denied"));
    REQUIRE(::chmod((folder / "a/closed").c_str(), 0700) == 0);
  }
}

TEST_CASE("FileFolder follows links, and names one that leads back", "[file_folder]") {
  const ImageFolder images;
  SECTION("to a class, a directory and a file") {
    fs::create_directory_symlink("cat", images.folder / "dog");
    fs::create_directory_symlink("../bird", images.folder / "cat/below");
    fs::create_symlink("../bird/9.png", images.folder / "bird/link.png");
    const FileFolder files(images.folder);
    CHECK(files.classes() == std::vector<std::string>{"bird", "cat", "dog"});
    CHECK(files.size() == 3 + 2 * (2 + 3));
    CHECK(content(files, 2) == "9.png");
  }
  SECTION("to the directory above") {
    fs::create_directory_symlink("..", images.folder / "cat/up");
    CHECK_THAT(folder_failure(images.folder), Mentions("images/cat/up: a loop of links"));
  }
  SECTION("to itself") {
    fs::create_directory_symlink(".", images.folder / "cat/here");
    CHECK_THAT(folder_failure(images.folder), Mentions("images/cat/here: a loop of links"));
    fs::remove(images.folder / "cat/here");
    fs::create_symlink("own", images.folder / "cat/own");
    CHECK_THAT(folder_failure(images.folder),
               Mentions("images/cat/own: cannot list: Too many levels"));
  }
  SECTION("two classes to each other") {
    fs::create_directory_symlink("../bird", images.folder / "cat/to");
    fs::create_directory_symlink("../cat", images.folder / "bird/fro");
    CHECK_THAT(folder_failure(images.folder), Mentions("images/bird/fro/to: a loop of links"));
  }
  SECTION("to nothing: the sample is an error") {
    fs::create_symlink("nowhere", images.folder / "bird/a.jpg");
    const FileFolder files(images.folder);
    CHECK(files.size() == 5);
    CHECK_THAT(thrown<StoreError>([&] { content(files, 2); }),
               Mentions("bird/a.jpg: sample 2 is lost: cannot open: No such file"));
  }
  SECTION("to nothing, in place of a class") {
    fs::create_directory_symlink("nowhere", images.folder / "ape");
    CHECK_THAT(folder_failure(images.folder),
               Mentions("images/ape: is a link to nothing: remove it or mend it"));
  }
  SECTION("to nothing, below a class: it may have been a directory") {
    fs::create_symlink("nowhere", images.folder / "cat/notes.md");
    CHECK(FileFolder(images.folder).size() == 4);
    fs::create_directory_symlink("nowhere", images.folder / "cat/more");
    CHECK_THAT(folder_failure(images.folder),
               Mentions("images/cat/more: is a link to nothing: remove it or mend it"));
  }
  SECTION("to what cannot be looked at") {
    fs::create_directory_symlink("cat/b.jpg/in", images.folder / "ape");
    CHECK_THAT(folder_failure(images.folder), Mentions("images/ape: cannot list: Not a directory"));
    fs::remove(images.folder / "ape");
    fs::create_directory_symlink("a.JPEG/in", images.folder / "cat/more");
    CHECK_THAT(folder_failure(images.folder),
               Mentions("images/cat/more: cannot list: Not a directory"));
  }
}

TEST_CASE("FileFolder takes names that are no UTF-8; messages show their bytes", "[file_folder]") {
  const TemporaryDirectory directory;
  const std::string name = "f/c\xC3\xA4t/\xFF\x01.jpg";
  write_file(directory / name.c_str(), "bytes");
  const FileFolder files(directory / "f");
  CHECK(files.name(0) == name);
  CHECK(content(files, 0) == "bytes");
  fs::remove(directory / name.c_str());
  try {
    content(files, 0);
    FAIL("nothing was thrown");
  } catch (const StoreError& error) {
    CHECK_THAT(error.what(), Mentions("f/c\xC3\xA4t/\\xFF\\x01.jpg: sample 0 is lost"));
    CHECK(error.file() == directory / name.c_str());
    CHECK(error.sample() == 0u);
  }
}

TEST_CASE("a file that cannot be read is an error that names it and its sample", "[file_folder]") {
  const ImageFolder images;
  const fs::path path = images.folder / "cat/b.jpg";  // sample 3
  const FileFolder files(images.folder);
  std::string why;
  SECTION("gone") {
    fs::remove(path);
    why = "cannot open: No such file";
  }
  SECTION("empty") {
    fs::resize_file(path, 0);
    why = "the file is empty";
  }
  SECTION("a pipe") {
    fs::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    why = "not a regular file";
  }
  SECTION("a directory") {
    fs::remove(path);
    fs::create_directory(path);
    why = "not a regular file: Is a directory";
  }
  SECTION("larger than memory") {
    fs::resize_file(path, std::uintmax_t{1} << 43);  // of holes
    why = "8796093022208 bytes are more than half of the memory";
  }
  if (why.empty()) return;
  CHECK_THAT(thrown<StoreError>([&] { content(files, 3); }),
             Mentions("FileFolder: " + path.string() + ": sample 3 is lost: " + why));
  CHECK(content(files, 2) == "a.JPEG");
  files.will_need(std::vector<std::uint64_t>{3, 2});  // A hint has no errors.
}

TEST_CASE("FileFolder has no samples but its own", "[file_folder]") {
  const ImageFolder images;
  const FileFolder files(images.folder);
  std::vector<std::byte> scratch;
  for (const std::uint64_t i : {std::uint64_t{4}, std::numeric_limits<std::uint64_t>::max()}) {
    CHECK_THROWS_AS(files.read(i, scratch), std::out_of_range);
    CHECK_THROWS_AS(files.label(i), std::out_of_range);
    CHECK_THAT(thrown<std::out_of_range>([&] { files.name(i); }),
               Mentions("no sample " + std::to_string(i) + ", but 4"));
  }
  files.will_need(std::vector<std::uint64_t>{4, 0, ~0ull});
  files.will_need({});
}

}  // namespace
}  // namespace penstock
