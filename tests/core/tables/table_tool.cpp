// SPDX-License-Identifier: Apache-2.0

// Prints what the readers of tables make of a file, for tables_test.py: numbers and bytes as
// hexadecimal digits, a value a line.
//
//   penstock_table_tool npy FILE [MEMBER]      dtype, shape, then each row
//   penstock_table_tool tfrecord FILE...       of each record each feature: its name, then each value
//   penstock_table_tool mds FOLDER             each column, then of each sample each field

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <penstock/mds_shards.hpp>
#include <penstock/npy_file.hpp>
#include <penstock/tf_example.hpp>
#include <penstock/tf_record_file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

void print_bytes(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) std::printf("%02x", static_cast<unsigned>(byte));
  std::printf("\n");
}
void print(std::string_view text) {
  std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
}

void print_array(const penstock::NpyFile& array) {
  print(array.dtype());
  std::string shape;
  for (const std::uint64_t extent : array.shape()) shape += std::to_string(extent) + " ";
  print(shape);
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 0; i < array.size(); ++i) print_bytes(array.read(i, scratch));
}

template <class T>
void print_numbers(const penstock::TfFeature& feature) {
  std::vector<T> values(static_cast<std::size_t>(feature.size()));
  feature.copy(std::span<T>(values));
  for (const T& value : values) print_bytes(std::as_bytes(std::span(&value, 1)));
}

void print_feature(const penstock::TfFeature& feature) {
  using Kind = penstock::TfFeature::Kind;
  print(feature.name());
  if (feature.kind() == Kind::int64s) print_numbers<std::int64_t>(feature);
  if (feature.kind() == Kind::floats) print_numbers<float>(feature);
  if (feature.kind() != Kind::bytes) return;
  for (std::int64_t i = 0; i < feature.size(); ++i) print_bytes(feature.bytes(i));
}

void print_records(const penstock::TfRecordFile& records) {
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 0; i < records.size(); ++i) {
    print("record");
    penstock::TfExample(records.read(i, scratch)).for_each(print_feature);
  }
}

void print_samples(const penstock::MdsShards& shards) {
  for (const penstock::MdsColumn& column : shards.columns())
    print(column.name + " " + column.encoding + " " + std::to_string(column.bytes));
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    print("sample");
    const std::span<const std::byte> sample = shards.read(i, scratch);
    for (std::size_t column = 0; column < shards.columns().size(); ++column)
      print_bytes(shards.field(sample, column));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) return 2;
  if (arguments[0] == "npy")
    print_array(penstock::NpyFile(arguments[1], arguments.size() > 2 ? arguments[2] : ""));
  else if (arguments[0] == "tfrecord")
    print_records(penstock::TfRecordFile({arguments.begin() + 1, arguments.end()}));
  else if (arguments[0] == "mds")
    print_samples(penstock::MdsShards(std::filesystem::path(arguments[1])));
  else
    return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
