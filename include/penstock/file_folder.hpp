// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileFolder: a file for each sample, a directory for each class, by the rules of torchvision's
// ImageFolder; or the files of a list.
//
//   const penstock::FileFolder images("imagenet/train");       // n01440764/x.JPEG, ...
//   std::vector<std::byte> scratch;                            // one for each thread
//   for (std::uint64_t i = 0; i < images.size(); ++i) {
//     std::span<const std::byte> jpeg = images.read(i, scratch);
//     std::int32_t label = images.label(i);                    // an index into images.classes()
//   }

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/detail/inline.hpp>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
struct FileList;
}
class ReadQueue;  // read_queue.hpp

/// The interface through which a FileFolder reads files that are not on this machine, such as
/// objects of a server. Files have the names that the list has. Any number of threads may call the
/// members at the same time.
class FolderReader {
 public:
  FolderReader() = default;
  FolderReader(const FolderReader&) = delete;
  FolderReader& operator=(const FolderReader&) = delete;
  virtual ~FolderReader() = default;

  /// What is before the names in messages: a path, or a URL without secrets, with its last slash.
  /// Is the same during the reader's life.
  virtual const std::string& name() const noexcept = 0;
  /// Reads a whole file, of whatever size, into `scratch`, which grows if it is too small, and
  /// returns its bytes; valid until `scratch` changes. Waits for the bytes. Throws
  /// std::runtime_error, whose text says why but does not name the file.
  virtual std::span<const std::byte> read(std::string_view file,
                                          std::vector<std::byte>& scratch) const = 0;
  /// Fetches these files ahead, without waiting. They will be read at about `due`, as
  /// FileReader::will_need() has it. A hint: it has no errors. The names are valid during the call.
  virtual void will_need(std::span<const std::string_view> files,
                         std::chrono::steady_clock::time_point due) const noexcept = 0;
};

/// How FileFolder reads its files.
struct FileFolderOptions {
  /// A file of 0 bytes is a sample of 0 bytes; false: reading it throws StoreError.
  bool allow_empty = false;
};

/// A file for each sample, a directory for each class. Any number of threads may use one object.
/// Copies share the list of files, which takes 16 bytes for each sample and the last part of its
/// name. A file is opened when it is read, so a folder of any size takes no descriptors.
///
/// Names of files are bytes, and need not be UTF-8. Messages show other bytes as `\xNN`.
class FileFolder {
 public:
  /// Lists `folder`. Its directories are the classes, numbered in the order of their names. The
  /// files of a class lie at any depth below its directory, and are those whose names end in one of
  /// `extensions`, in letters of either case. None given: those of ImageFolder (.jpg, .jpeg, .png,
  /// .ppm, .bmp, .pgm, .tif, .tiff, .webp). Samples are numbered as ImageFolder numbers them: by
  /// class, then by directory, then by name. Names are compared byte by byte. Links are followed.
  /// Unlike ImageFolder, this leaves out directories .ipynb_checkpoints and __MACOSX, and files
  /// whose names begin with `._`: Jupyter and macOS leave them behind; ignored() counts them.
  ///
  /// Takes a system call for each directory and each link, not for each file; to list 10^7 files
  /// once and not at every start, see save_list(). Throws StoreError that names what is wrong: a
  /// directory that is missing or unreadable, links that form a loop, a link to nothing where a
  /// directory may have been, a folder without directories, a class without files.
  explicit FileFolder(const std::filesystem::path& folder,
                      const std::vector<std::string>& extensions = {},
                      FileFolderOptions options = {});

  /// The files that a text file names, in its order. A line is `path`, or `path`, a tab and the
  /// label, a number. Paths are relative to `folder`, or to the list's own directory if it is
  /// empty. Lines that begin with # and empty ones are skipped; but for `#class`, a tab and a name,
  /// which is the name of the next class. The text is UTF-8 with or without a byte order mark, or
  /// any bytes. The files are not looked at, so they need not be there yet. Throws StoreError, with
  /// the number of the line, for what is no such line, a list that cannot be read, and one without
  /// files.
  static FileFolder from_list(const std::filesystem::path& list, std::filesystem::path folder = {},
                              FileFolderOptions options = {});

  /// The same for files that `reader` reads. Their names are those of the list, without a leading
  /// "./". Throws std::invalid_argument for nullptr, and StoreError also for a name with a
  /// directory "..", and for a URL: they would lead out of the folder.
  static FileFolder from_list(std::shared_ptr<const FolderReader> reader,
                              const std::filesystem::path& list, FileFolderOptions options = {});

  /// These files, in this order; relative to the current directory of now. `labels`: one for each
  /// file, or none. Throws std::invalid_argument for another number, for no files, and for a path
  /// that ends in a slash or has a character 0.
  static FileFolder from_files(const std::vector<std::filesystem::path>& files,
                               const std::vector<std::int32_t>& labels = {},
                               FileFolderOptions options = {});
  /// The same for files that `reader` reads. Also throws std::invalid_argument for nullptr, for a
  /// name with a directory "..", and for a URL.
  static FileFolder from_files(std::shared_ptr<const FolderReader> reader,
                               const std::vector<std::string>& files,
                               const std::vector<std::int32_t>& labels = {},
                               FileFolderOptions options = {});

  /// Writes the list that from_list reads, for the same samples, labels and classes; whole, or not
  /// at all. Pass this folder to from_list if the list lies elsewhere. Throws StoreError, also
  /// for a name with a line break, which a list cannot have.
  void save_list(const std::filesystem::path& list) const;

  /// Number of samples.
  std::uint64_t size() const noexcept;

  /// How many directories .ipynb_checkpoints and __MACOSX, and files `._x.jpg`, were left out when
  /// the folder was listed; 0 for a list of files, which has what it names.
  std::uint64_t ignored() const noexcept;

  /// The class of a sample, or what the list says; -1 if that says nothing. Throws
  /// std::out_of_range.
  std::int32_t label(std::uint64_t index) const;

  /// Names of the classes; empty for a list that names none.
  const std::vector<std::string>& classes() const noexcept;

  /// The name of the folder and the path within it, such as "train/n01440764/x.JPEG", or the path
  /// if that is absolute. Throws std::out_of_range.
  std::string name(std::uint64_t index) const;

  /// Reads a file into `scratch`, which grows if it is too small, and returns its bytes; valid
  /// until `scratch` changes. Does not allocate if `scratch` is large enough. Throws
  /// std::out_of_range, and StoreError for a file that is gone, cannot be read, becomes shorter
  /// meanwhile, is larger than half of the memory, or is empty without
  /// FileFolderOptions::allow_empty.
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;

  /// Reads files, with many in flight that are opened or read, and calls `each(k, bytes)` as they
  /// arrive, in any order, on this thread; k is the place in `indices`, in which an index may occur
  /// more than once. The bytes are valid during the call. Blocks until all are done. Throws like
  /// read(), std::out_of_range before anything is read; and what `each` throws. After an exception
  /// nothing is in flight.
  void read_many(std::span<const std::uint64_t> indices, ReadQueue& queue, EachSample each) const;

  /// Asks for these files ahead; they will be read at about `due`, or nobody knows when. Does not
  /// wait for their bytes; but files of this machine are opened, and it waits for what the system
  /// has to read for that. Ignores errors, and indices that are not below size().
  void will_need(std::span<const std::uint64_t> indices,
                 std::chrono::steady_clock::time_point due) const noexcept;
  /// The same; nobody knows when they will be read.
  void will_need(std::span<const std::uint64_t> indices) const noexcept { will_need(indices, {}); }

 private:
  FileFolder(detail::FileList files, const FileFolderOptions& options);
  const detail::FileList& files_with(std::uint64_t index) const;

  std::shared_ptr<const detail::FileList> files_;
};

static_assert(Store<FileFolder>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/file_folder.hpp>
#endif
