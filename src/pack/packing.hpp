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
  std::int32_t max_side = 0;  ///< pixels of the longer side; 0: as many as they have
  int quality = 90;           ///< of libjpeg, 1 to 100
  bool raw = false;           ///< pixels, as a binary PPM file, in place of a JPEG file

  bool keeps_files() const { return max_side == 0 && !raw; }
};

struct PackOptions {
  std::vector<std::filesystem::path> sources;
  std::filesystem::path output;
  SourceOptions source = {};
  std::uint64_t skip = 0;  ///< at most so many samples that cannot be read are left out
  std::size_t threads = 1;
  RecodeOptions recode = {};  ///< only in a program that was built with penstock::images
};

/// Makes `output` of the sources, or continues it. Prints what it has done. Returns the exit
/// status. Throws UsageError, and penstock::StoreError.
int make_pack(const PackOptions& options);

/// Reads all records of packs and compares their checksums. Prints which are damaged, and what was
/// read. Returns the exit status: 1 if any is damaged.
int verify_packs(const std::vector<std::filesystem::path>& packs, std::size_t threads);

}  // namespace pack
