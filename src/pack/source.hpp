// SPDX-License-Identifier: Apache-2.0
#pragma once

// Source: the store from which a pack is made. The arguments decide its type.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/tar_shards.hpp>
#include <string>
#include <variant>
#include <vector>

namespace pack {

/// Thrown for arguments that contradict each other.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Remote;

/// The cache of penstock::remote that is filled with what is read of a source at a server.
struct CacheToFill {
  std::filesystem::path directory;  ///< empty: none
  std::uint64_t bytes = 0;
  std::uint64_t slot_bytes = 128 << 10;
};

struct CacheProgress {
  std::uint64_t written = 0, found = 0;  ///< bytes that came to it, and that were there
  std::uint64_t errors = 0;
  bool is_full = false;
};

/// Options for opening and reading the source.
struct SourceOptions {
  bool allow_empty = false;        ///< an empty file or member is an empty record, not an error
  bool ignore_index = false;       ///< for tar files
  bool allow_missing_end = false;  ///< for tar files
  CacheToFill cache = {};          ///< for URLs
};

/// Whether a source is at a server.
bool is_url(const std::filesystem::path& source);
/// Whether a file of this name is a tar file, also a compressed one, which TarShards refuses.
bool is_tar_name(const std::filesystem::path& path);

class Source {
 public:
  using Any = std::variant<penstock::FileFolder, penstock::TarShards, penstock::PackedFile>;

  /// Opens a directory (FileFolder), one or more tar files, or a pack. Throws UsageError and
  /// StoreError; for URLs also std::runtime_error.
  Source(const std::vector<std::filesystem::path>& paths, const SourceOptions& options);

  std::uint64_t size() const;
  /// Also throws StoreError for a sample that is a Git LFS pointer, and for an empty one unless the
  /// options allow it or the source is a pack.
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;
  std::string name(std::uint64_t index) const;
  void will_need(std::span<const std::uint64_t> indices) const noexcept;

  /// Returns -1 for a sample of tar files without a member .cls. Throws StoreError if the member is
  /// not a number.
  std::int32_t label(std::uint64_t index) const;
  /// Counts the samples without a member .cls, in time proportional to the number of samples.
  std::uint64_t unlabelled() const;
  /// Counts the files of Jupyter and macOS, which are not samples.
  std::uint64_t ignored() const noexcept;
  /// Returns the names of the labels 0, 1, ...; empty if the source has none.
  const std::vector<std::string>& classes() const noexcept { return classes_; }
  /// Returns "a folder", "tar files" or "a pack", for messages.
  const char* kind() const noexcept;
  /// What has come of SourceOptions::cache so far.
  CacheProgress cache_progress() const;

 private:
  Any open(const std::vector<std::filesystem::path>& paths, const SourceOptions& options);
  std::vector<std::string> find_classes() const;
  bool is_pack() const noexcept { return std::holds_alternative<penstock::PackedFile>(store_); }
  const char* store_name() const noexcept;

  SourceOptions options_;
  std::shared_ptr<const Remote> remote_;  // nullptr: the source is on this machine
  Any store_;
  std::vector<std::string> classes_;
};

/// Returns the note of a pack: its first line, how the records were made, how many there will be,
/// and a line `class NAME` for each class. Throws UsageError for a class with a line break in its
/// name.
std::string make_note(const Source& source, const std::string& how);
/// Returns the classes that a note names.
std::vector<std::string> classes_of(const std::string& note);

}  // namespace pack
