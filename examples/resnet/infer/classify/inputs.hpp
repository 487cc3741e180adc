// SPDX-License-Identifier: Apache-2.0
#pragma once

// Inputs: what is to be classified, batch by batch. Files and directories are listed before the
// first is read; paths on a stream come when they come, and a batch takes those that are there.
//
//   const auto inputs = list_files({"cat.jpg", "photos"});
//   const std::vector<Input> images = inputs->take(0, 32, stop);   // of batch 0; none: the end

#include <penstock/record_file.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include "../../../data/cifar10.hpp"

namespace resnet::classify {

using Clock = std::chrono::steady_clock;

/// One image that is to be classified.
struct Input {
  std::string path;          ///< of the image, or of a record's file
  std::int64_t record = -1;  ///< in that file; -1: the file is an image
  std::uint64_t number = 0;  ///< of records: among those of all files
  std::string error = {};    ///< why it is no image: of a folder that cannot be listed
};

class Inputs {
 public:
  Inputs() = default;
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
  virtual ~Inputs() = default;

  /// The images of batch `batch`, at most `most` of them, always the same number; none: there are
  /// no more. Each batch is asked for once, from any thread. Waits where images are yet to come,
  /// until `stop` is requested or somebody interrupts.
  virtual std::vector<Input> take(std::uint64_t batch, std::size_t most,
                                  const std::stop_token& stop) = 0;
  /// How many there are, where that is known.
  virtual std::optional<std::uint64_t> count() const = 0;
  /// Where `input` is a record.
  virtual std::vector<std::byte> record(const Input&) const { throw std::logic_error("no record"); }
};

/// Files as they are named, whatever they are; of directories, and those inside them, the files
/// that begin as JPEG or PNG do or are called so, in the order of their paths. A directory inside
/// another that cannot be listed is among them, with an error. Throws std::invalid_argument for
/// what does not exist, for a directory of `paths` that cannot be listed, and when nothing is
/// found.
std::unique_ptr<Inputs> list_files(const std::vector<std::filesystem::path>& paths);

/// All records of files in CIFAR-10's format. Throws penstock::StoreError.
std::unique_ptr<Inputs> list_records(const std::vector<std::filesystem::path>& files);

/// Paths, one a line, that are read from a file descriptor, which outlives this; empty lines are
/// none. Throws (take) std::system_error.
std::unique_ptr<Inputs> read_paths(int descriptor);

}  // namespace resnet::classify
