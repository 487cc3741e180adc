// SPDX-License-Identifier: Apache-2.0
#include "cifar10.hpp"

#include <sstream>
#include <system_error>

#include "../common/read_file.hpp"

namespace cifar10 {
namespace {

namespace fs = std::filesystem;

void require_directory(const fs::path& directory) {
  std::error_code error;
  const fs::file_type type = fs::status(directory, error).type();
  if (type == fs::file_type::not_found) throw DataError("no such directory: " + directory.string());
  if (type != fs::file_type::directory && !error)
    throw DataError("not a directory: " + directory.string());
  const fs::directory_iterator readable(directory, error);
  if (error)
    throw DataError("cannot read directory " + directory.string() + ": " + error.message());
}

fs::path required_file(const fs::path& directory, const char* name) {
  std::error_code error;
  fs::path file = directory / name;
  if (!fs::is_regular_file(file, error)) throw DataError("no such file: " + file.string());
  return file;
}

}  // namespace

std::vector<fs::path> train_files(const fs::path& directory) {
  require_directory(directory);
  std::vector<fs::path> files;
  for (const char* name : train_names) files.push_back(required_file(directory, name));
  return files;
}

fs::path test_file(const fs::path& directory) {
  require_directory(directory);
  return required_file(directory, test_name);
}

std::vector<std::string> class_names(const fs::path& directory) {
  require_directory(directory);
  const fs::path file = required_file(directory, class_names_name);
  constexpr std::uint64_t longest = 1 << 16;  // bytes: more are no ten names
  std::istringstream in;
  try {
    in.str(std::string(examples::text_of(examples::read_file(file, longest))));
  } catch (const examples::ReadError& error) {
    throw DataError(file.string() + ": " + error.what());
  }
  std::vector<std::string> names;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) names.push_back(line);  // the public set ends with an empty line
  if (names.size() != classes)
    throw DataError(file.string() + " has " + std::to_string(names.size()) + " class names, not " +
                    std::to_string(classes));
  return names;
}

int label_of(std::span<const std::byte> record) {
  const int label = std::to_integer<int>(record[0]);
  if (label >= classes)
    throw DataError("label " + std::to_string(label) + " is not in 0.." +
                    std::to_string(classes - 1));
  return label;
}

void decode(std::span<const std::byte> record, std::uint8_t* pixels) {
  const std::byte* red = record.data() + 1;
  const std::byte* green = red + plane_bytes;
  const std::byte* blue = green + plane_bytes;
  for (std::size_t i = 0; i < plane_bytes; ++i) {
    pixels[channels * i + 0] = std::to_integer<std::uint8_t>(red[i]);
    pixels[channels * i + 1] = std::to_integer<std::uint8_t>(green[i]);
    pixels[channels * i + 2] = std::to_integer<std::uint8_t>(blue[i]);
  }
}

}  // namespace cifar10
