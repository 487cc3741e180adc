// SPDX-License-Identifier: Apache-2.0
#pragma once

// Makes a whole data directory in the format of CIFAR-10's binary version, filled with shapes:
// data_batch_1.bin .. data_batch_5.bin, test_batch.bin and batches.meta.txt.
//
//   synthetic::make(directory, {.seed = 7});
//   const auto directory = synthetic::ensure(cache, {.train = 5000});   // makes it the first time

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>

namespace synthetic {

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t train = 50'000;  ///< records over the five training files, at least one for each
  std::uint64_t test = 10'000;   ///< at least one
};

/// Called on the calling thread after each piece of work with the records that are done, of train +
/// test. Returning false gives up.
using Progress = std::function<bool(std::uint64_t done)>;

/// What `make` throws when its progress function returned false.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// Writes the data set to `directory`, which is made when it is missing. Each file appears whole or
/// not at all (penstock::programs::OutputFile), so that two programs may do this at once. The bytes
/// depend on `options` alone. Uses all cores. Throws std::runtime_error, naming the file, when
/// writing fails.
void make(const std::filesystem::path& directory, const Options& options,
          const Progress& progress = {});

/// The directory below `cache` that holds the data set of `options`: its name says which one. Makes
/// the set the first time, and whenever a file is missing or of another size; of several processes
/// that call it, one makes the set and the others wait. An empty `cache` is
/// examples::cache_directory(). Throws examples::CacheError unless the directory is the user's own.
std::filesystem::path ensure(const std::filesystem::path& cache, const Options& options,
                             const Progress& progress = {});

/// Is there any file in `directory` that `make` would replace?
bool would_replace(const std::filesystem::path& directory);

/// Writes a picture for people: a row for each class, examples from the training records, as a
/// binary PPM
/// ("P6") file.
void write_picture(const std::filesystem::path& file, std::uint64_t seed);

}  // namespace synthetic
