// SPDX-License-Identifier: Apache-2.0
#pragma once

// The format of CIFAR-10's binary version: files of fixed-size records, each one label byte and
// then the 32 x 32 image as three planes (all red bytes, all green, all blue), rows from the top.
//
//   for (const auto& file : cifar10::train_files(directory)) ...   // there, and of whole records
//   const int label = cifar10::label_of(record);                   // throws DataError unless 0..9
//   cifar10::decode(record, pixels);                  // planes -> height x width x channel

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace cifar10 {

inline constexpr int classes = 10;
inline constexpr int height = 32;
inline constexpr int width = 32;
inline constexpr int channels = 3;
inline constexpr std::size_t plane_bytes = std::size_t{height} * width;
inline constexpr std::size_t pixel_bytes = channels * plane_bytes;
inline constexpr std::size_t record_bytes = 1 + pixel_bytes;

/// The names of the files in a data directory.
inline constexpr std::array<const char*, 5> train_names = {"data_batch_1.bin", "data_batch_2.bin",
                                                           "data_batch_3.bin", "data_batch_4.bin",
                                                           "data_batch_5.bin"};
inline constexpr const char* test_name = "test_batch.bin";
inline constexpr const char* class_names_name = "batches.meta.txt";

/// The data cannot be used as it is: something is missing, damaged or out of range. `what()` names
/// it.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The five training files of `directory`, in order. Throws DataError when the directory or a file
/// is missing or cannot be read. Sizes are not looked at: penstock::RecordFile does that.
std::vector<std::filesystem::path> train_files(const std::filesystem::path& directory);

/// The test file of `directory`, checked like the training files.
std::filesystem::path test_file(const std::filesystem::path& directory);

/// The ten class names of `directory`, in label order.
std::vector<std::string> class_names(const std::filesystem::path& directory);

/// The label of one record. Throws DataError unless it is 0 .. classes-1.
int label_of(std::span<const std::byte> record);

/// Writes the image of one record, height x width x channel, to `pixels` (pixel_bytes long).
void decode(std::span<const std::byte> record, std::uint8_t* pixels);

}  // namespace cifar10
