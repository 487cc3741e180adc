// SPDX-License-Identifier: Apache-2.0
#pragma once

// Remote: sources that are URLs. It is there with penstock::remote alone.

#include <cstdint>
#include <penstock/remote.hpp>
#include <string>
#include <vector>

#include "source.hpp"

namespace pack {

class Remote {
 public:
  /// Throws std::invalid_argument for a cache that cannot be, and std::runtime_error for one whose
  /// files cannot be used.
  explicit Remote(const CacheToFill& cache);

  /// Opens a folder of s3:// or gs://, one or more tar files, or a pack. Throws UsageError,
  /// StoreError, and what penstock::remote throws.
  Source::Any open(const std::vector<std::string>& urls, const SourceOptions& options) const;
  CacheProgress cache_progress() const;

 private:
  penstock::remote::Client client_;
};

}  // namespace pack
