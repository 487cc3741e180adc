// SPDX-License-Identifier: Apache-2.0
#pragma once

// OutputFile: a file that appears whole or not at all: written beside its place under another name,
// and renamed by commit(). Bytes pass through a buffer, so that files of any size take little
// memory.
//
//   OutputFile file(path);
//   file.write("...");
//   file.commit();   // without it, nothing appears

#include <filesystem>
#include <string>
#include <string_view>

namespace penstock::trace::detail {

class OutputFile {
 public:
  /// Throws std::system_error that names the file, as write() and commit() do.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);

  /// Replaces what was at the path. Not fsynced: after a power failure the file may be missing.
  void commit();

 private:
  void flush();
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_, partial_;
  std::string buffer_;
  int descriptor_ = -1;
};

/// A file with this text alone. Throws as OutputFile.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace penstock::trace::detail
