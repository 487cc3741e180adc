// SPDX-License-Identifier: Apache-2.0

// TfRecordFile over any bytes, and TfExample over each of its records. If the first byte of an
// input is odd, the others get the right checksums, so that the fuzzer gets behind them.

#include <algorithm>
#include <cstring>
#include <penstock/tf_example.hpp>
#include <penstock/tf_record_file.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bytes_file.hpp"
#include "fuzz.hpp"

namespace {

using namespace penstock;
using test::require;

void mend(std::string& bytes) {
  const auto part = [&](std::size_t at, std::size_t count) {
    return std::as_bytes(std::span(bytes)).subspan(at, count);
  };
  const auto put = [&](std::size_t at, std::uint32_t sum) {
    std::memcpy(bytes.data() + at, &sum, sizeof(sum));
  };
  for (std::size_t at = 0; bytes.size() - at >= detail::kTfRecordFrame;) {
    const auto length = detail::number_at<std::uint64_t>(part(at, 8), 0);
    put(at + 8, detail::masked_crc32c(part(at, 8)));
    if (length > bytes.size() - at - detail::kTfRecordFrame) return;
    const auto size = static_cast<std::size_t>(length);
    put(at + 12 + size, detail::masked_crc32c(part(at + 12, size)));
    at += detail::kTfRecordFrame + size;
  }
}

template <class T>
void copy(const TfFeature& feature, std::int64_t size) {
  std::vector<T> values(static_cast<std::size_t>(size));
  try {
    feature.copy(std::span<T>(values));
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).find("32 bits") != std::string_view::npos,
            "a list that has a size can be copied, unless its values are too large");
  }
}

void check_feature(const TfFeature& feature, std::span<const std::byte> record) {
  const std::int64_t size = feature.size();
  require(size >= 0 && size <= static_cast<std::int64_t>(record.size()), "values take bytes");
  if (feature.kind() == TfFeature::Kind::floats) copy<float>(feature, size);
  if (feature.kind() == TfFeature::Kind::int64s) copy<std::int64_t>(feature, size);
  if (feature.kind() == TfFeature::Kind::int64s) copy<std::int32_t>(feature, size);
  if (feature.kind() != TfFeature::Kind::bytes) return;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(size, 100); ++i) {
    const std::span<const std::byte> value = feature.bytes(i);
    require(value.empty() || (value.data() >= record.data() &&
                              value.data() + value.size() <= record.data() + record.size()),
            "a value is within the record");
  }
}

void check_record(std::span<const std::byte> record) {
  try {
    const TfExample example(record);
    example.for_each([&](const TfFeature& feature) {
      require(example.find(feature.name()).has_value(), "a feature is found by its name");
      try {
        check_feature(feature, record);
      } catch (const std::runtime_error& error) {
        require(std::string_view(error.what()).starts_with("TfExample: feature \""),
                "an error names the feature");
      }
    });
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).size() < 2000, "a message is short");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) mend(bytes);
  check_record(std::as_bytes(std::span(bytes)));
  try {
    const TfRecordFile records(std::vector{test::file_of(bytes)});
    std::vector<std::byte> scratch;
    std::uint64_t all = 0;
    for (std::uint64_t i = 0; i < records.size(); ++i) try {
        const std::span<const std::byte> record = records.read(i, scratch);
        require(record.size() == records.bytes(i), "a record has its size");
        all += record.size() + detail::kTfRecordFrame;
        check_record(record);
      } catch (const StoreError& error) {
        require(error.sample() == i, "an error names the record");
        all += records.bytes(i) + detail::kTfRecordFrame;
      }
    require(all == bytes.size(), "the records are the file");
  } catch (const StoreError& error) {
    require(error.file() == "input", "an error names the file");
    require(std::string_view(error.what()).size() < 2000, "a message is short");
  }
  return 0;
}
