// SPDX-License-Identifier: Apache-2.0

// Subset::load of any bytes, as the subset of a data set of the size that they name. If the first
// byte of an input is odd, the others get the right checksums.

#include <cstring>
#include <fstream>
#include <penstock/subset.hpp>
#include <string>
#include <string_view>

#include "directory.hpp"
#include "fuzz.hpp"

namespace {

using namespace penstock;
using test::require;

/// Returns the size of the data set.
std::uint64_t mend(std::string& bytes, bool with_checksums) {
  detail::SubsetHeader header;
  if (bytes.size() < sizeof(header)) return 1000;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::uint64_t samples = header.samples;
  if (!with_checksums) return samples;
  header.magic = detail::SubsetHeader().magic;
  header.numbers_checksum = detail::crc32c(std::as_bytes(std::span(bytes)).subspan(sizeof(header)));
  header.checksum = detail::checksum_of(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return samples;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::Directory directory;
  static const std::filesystem::path path = directory / "a.subset";
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::uint64_t samples = mend(bytes, data[0] % 2 == 1);
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    const Subset subset = Subset::load(path, samples);
    require(subset.dataset_size() == samples, "the size of the data set is what was asked for");
    require(subset.size() <= bytes.size() / 4, "numbers take bytes");
    for (std::uint64_t i = 0; i < subset.size(); ++i) {
      require(subset[i] < samples, "a number is below the size of the data set");
      require(i == 0 || subset[i - 1] < subset[i], "numbers ascend");
    }
  } catch (const StoreError& error) {
    require(error.file() == path, "an error names the file");
    require(std::string_view(error.what()).size() < 2000, "a message is short");
  }
  return 0;
}
