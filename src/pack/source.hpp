// SPDX-License-Identifier: Apache-2.0
#pragma once

// Source: the store that a pack is made of, found by what the arguments are.

#include <cstdint>
#include <filesystem>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/tar_shards.hpp>
#include <string>
#include <variant>
#include <vector>

namespace pack {

/// The arguments make no sense together.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Source {
 public:
  /// A directory (FileFolder), one or more tar files, or a pack. Throws UsageError and StoreError.
  explicit Source(const std::vector<std::filesystem::path>& paths);

  std::uint64_t size() const;
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;
  std::string name(std::uint64_t index) const;
  void will_need(std::span<const std::uint64_t> indices) const noexcept;

  /// -1 where has_labels() is false.
  std::int32_t label(std::uint64_t index) const;
  /// Tar files have labels if the first sample has one; each must have one then.
  bool has_labels() const noexcept { return has_labels_; }
  /// Names of the labels 0, 1, ...; empty if the source has none.
  const std::vector<std::string>& classes() const noexcept { return classes_; }
  /// For messages: "a folder", "tar files" or "a pack".
  const char* kind() const noexcept;

 private:
  using Any = std::variant<penstock::FileFolder, penstock::TarShards, penstock::PackedFile>;
  static Any open(const std::vector<std::filesystem::path>& paths);
  bool find_labels() const;
  std::vector<std::string> find_classes() const;

  Any store_;
  bool has_labels_;
  std::vector<std::string> classes_;
};

/// The note of a pack: its first line, how the records were made, how many there will be, and a
/// line `class NAME` for each class. Throws UsageError for a class with a line break in its name.
std::string make_note(const Source& source, const std::string& how);
/// The classes that a note names.
std::vector<std::string> classes_of(const std::string& note);

}  // namespace pack
