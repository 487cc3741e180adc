// SPDX-License-Identifier: Apache-2.0
#pragma once

// The work of penstock-pack.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "source.hpp"

namespace pack {

struct RecodeOptions {
  std::int32_t max_side = 0;  ///< maximum length of the longer side in pixels; 0: no limit
  int quality = 90;           ///< quality of libjpeg, 1 to 100
  bool raw = false;           ///< writes pixels, as a binary PPM file, instead of a JPEG file

  bool keeps_files() const { return max_side == 0 && !raw; }
};

struct PackOptions {
  std::vector<std::filesystem::path> sources;
  std::filesystem::path output;
  SourceOptions source = {};
  std::uint64_t skip = 0;  ///< maximum number of unreadable samples that are left out
  std::size_t threads = 1;
  RecodeOptions recode = {};  ///< used only in a program that was built with penstock::images
};

/// Makes `output` from the sources, or continues it, and prints a summary. Returns the exit status.
/// Throws UsageError and penstock::StoreError.
int make_pack(const PackOptions& options);

/// Reads the samples of a source at a server, until the cache of the options is full, and prints a
/// summary. Returns the exit status. Throws UsageError, penstock::StoreError and
/// std::runtime_error.
int fill_cache(const PackOptions& options);

/// Reads all records of the packs and compares their checksums. Prints the damaged records and a
/// summary. Returns the exit status: 1 if any record is damaged.
int verify_packs(const std::vector<std::filesystem::path>& packs, std::size_t threads);

}  // namespace pack
