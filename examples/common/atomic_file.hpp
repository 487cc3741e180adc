// SPDX-License-Identifier: Apache-2.0
#pragma once

// AtomicFile: a file that appears under its name whole or not at all, whoever else writes it at the
// same time. The bytes go into a file of a name of its own beside it, which is synchronised with
// the disk and renamed.
//
//   examples::AtomicFile file("weights.safetensors");
//   file.write(bytes.data(), bytes.size());
//   file.commit();                                         // without this, nothing is changed
//
//   examples::write_file("result.json", text);
//   examples::require_writable("result.json");             // at the start: can it be written later?
//
// The partial file is called <name>.partial-<16 hexadecimal digits>. Its writer holds a lock
// (flock) on it: one that a dead process has left is removed by the next writer of the same name.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "partial_files.hpp"

namespace examples {

/// A name for a file beside `target` that no other process or thread gets.
std::filesystem::path partial_name(const std::filesystem::path& target);

/// One thread at a time; any number of objects, threads and processes may write the same file: the
/// last commit() wins. All functions throw std::system_error, which names the file.
class AtomicFile {
 public:
  /// Makes the partial file. A link at `target` is not followed: commit() replaces the link.
  explicit AtomicFile(const std::filesystem::path& target);
  /// Removes the partial file unless commit() has renamed it.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Call it once. When it returns, bytes and name are on the disk.
  void commit();

 private:
  void open();

  const std::filesystem::path target_, partial_;
  const PartialName name_;
  int descriptor_ = -1;
};

/// `text` becomes the content of `target`: by an AtomicFile where that is a regular file, or none
/// yet; devices, pipes and whatever a link leads to (/dev/stdout) are opened and written. Throws
/// std::system_error.
void write_file(const std::filesystem::path& target, std::string_view text);

/// Before work that would be lost: throws the std::system_error that writing `target` would, where
/// its folder does not exist, takes no files, or `target` is a folder. Changes nothing.
void require_writable(const std::filesystem::path& target);

}  // namespace examples
