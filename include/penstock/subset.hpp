// SPDX-License-Identifier: Apache-2.0
#pragma once

// Subset: the samples of a data set that a filter keeps. The filter is evaluated once; later runs
// read its result from a file.
//
//   const auto keep = [&](std::uint64_t i) { return records.read(i, scratch)[0] == std::byte{7}; };
//   penstock::Subset::where(records.size(), keep).save("kept.subset");
//
//   const auto kept = penstock::Subset::load("kept.subset", records.size());
//   const penstock::Sampler sampler{{.samples = kept.size(), .batch_size = 256}};
//   records.read(kept[ticket.samples[i]], scratch);                  // in the source
//
// A MixedDataSet has `.samples = kept.size()` in the same way.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <penstock/detail/inline.hpp>
#include <span>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

/// Some of the samples of a data set, in the order of their numbers. Copies share the numbers,
/// which take 4 bytes each, or 8 of a data set of more than 2^32 samples. Any number of threads may
/// use one object.
class Subset {
 public:
  /// The samples `i` of 0, ..., samples - 1 for which keep(i) is true. `threads`, at least 1, call
  /// `keep` at the same time, each for a part of the samples in their order; the result does not
  /// depend on their number. Throws what `keep` throws: of the parts that fail, the first one's.
  /// Throws std::invalid_argument for an empty function and for no threads.
  static Subset where(std::uint64_t samples, const std::function<bool(std::uint64_t)>& keep,
                      int threads = 1);
  /// The samples of a list, which must ascend and be below `samples`; otherwise it throws
  /// std::invalid_argument.
  Subset(std::uint64_t samples, std::span<const std::uint64_t> numbers);

  /// Reads what save() wrote. `samples`: the size that the data set has now. Throws StoreError if
  /// the subset is of a data set of another size, which is named, and for a file that is missing,
  /// unreadable, cut, damaged, of a newer version or of another format.
  static Subset load(const std::filesystem::path& file, std::uint64_t samples);
  /// Writes the file whole or not at all, with checksums. Throws StoreError.
  void save(const std::filesystem::path& file) const;

  /// Number of samples in the subset; it may be 0, and a Sampler needs one.
  std::uint64_t size() const noexcept { return numbers_->size(); }
  /// Number of samples in the data set.
  std::uint64_t dataset_size() const noexcept { return samples_; }
  /// The number that sample `index` of the subset has in the data set. Takes constant time. Throws
  /// std::out_of_range for index >= size().
  std::uint64_t operator[](std::uint64_t index) const;

 private:
  /// Numbers of 4 or of 8 bytes; one of the lists is empty.
  struct Numbers {
    std::uint64_t size() const noexcept { return four.size() + eight.size(); }
    std::vector<std::uint32_t> four;
    std::vector<std::uint64_t> eight;
  };
  Subset(Numbers&& numbers, std::uint64_t samples);

  std::uint64_t samples_;
  std::shared_ptr<const Numbers> numbers_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/subset.hpp>
#endif
