// SPDX-License-Identifier: Apache-2.0
#pragma once

// The safetensors format: a length (8 bytes, little-endian), a JSON header of that length that
// names every tensor with its type, shape and place, and the tensors' bytes, one behind the other.
//
//   const safetensors::File file = safetensors::read(path);          // checked from end to end
//   const std::vector<float> values = file.floats(file.tensor("conv1.weight"));
//   safetensors::write(path, {{"conv1.weight", "F32", {64, 3, 7, 7}, bytes}}, {{"key", "text"}});

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace resnet::safetensors {

/// A file that cannot be read, or is not what it must be. `what()` names file and tensor.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Metadata = std::map<std::string, std::string>;

struct Tensor {
  std::string name;
  std::string dtype;  ///< F32, F16, BF16, F64, I64, ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< row-major, little-endian
};

struct File {
  File() = default;
  File(File&&) = default;  // and no copy: the tensors' bytes are the original's
  File& operator=(File&&) = default;

  std::filesystem::path path;
  std::vector<std::byte> data;  ///< what the tensors' bytes are part of
  std::map<std::string, Tensor> tensors;
  Metadata metadata;  ///< without the checksum
  bool has_checksum = false;

  /// Throws FormatError when it is not there.
  const Tensor& tensor(const std::string& name) const;
  /// Of a tensor of F32, F16, BF16 or F64. Throws FormatError for another type, and for a value
  /// that is not finite.
  std::vector<float> floats(const Tensor& tensor) const;
  [[noreturn]] void fail(const std::string& why) const;
};

/// Throws FormatError for a file that is missing, cut short, breaks a rule of the format, or has
/// another checksum than write() gave it. Takes no memory for data before the header is checked
/// against the file's size.
File read(const std::filesystem::path& path);

/// The same of a file's bytes. `name` is for messages.
File parse(std::vector<std::byte> bytes, const std::filesystem::path& name);

/// The file appears whole or not at all, whoever else writes it at the same time
/// (penstock::programs::OutputFile). Among its metadata is a CRC-32C of all that is read back: the
/// other metadata, and each tensor's name, type, shape and bytes, in whatever order and places.
/// Throws std::system_error.
void write(const std::filesystem::path& path, const std::vector<Tensor>& tensors,
           const Metadata& metadata);

}  // namespace resnet::safetensors
