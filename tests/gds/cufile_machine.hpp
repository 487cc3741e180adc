// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests of penstock::gds share: an emulated cuFile that is as new for each test, and of which
// nothing is left at its end; and a file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <penstock/file.hpp>
#include <penstock/gds/gds_file.hpp>
#include <random>
#include <string>
#include <vector>

#include "emulated_cufile.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/memory.hpp"
#include "support/temporary_directory.hpp"

namespace penstock::test {

/// Declare it before what uses cuFile.
struct CufileMachine {
  CufileMachine() {
    settings = {};
    for (auto* const count : {&counts.opened, &counts.reads, &counts.submitted, &counts.cancelled})
      *count = 0;
  }
  CufileMachine(const CufileMachine&) = delete;
  CufileMachine& operator=(const CufileMachine&) = delete;
  ~CufileMachine() {
    CHECK(counts.open == 0);
    CHECK(counts.registered == 0);
    CHECK(counts.batches == 0);
    CHECK(counts.in_flight == 0);
  }

  CufileSettings& settings = cufile_settings();
  CufileCounts& counts = cufile_counts();
};

inline gds::GdsOptions emulated_library(bool allow_compatibility_mode = false) {
  return {.allow_compatibility_mode = allow_compatibility_mode,
          .library = PENSTOCK_EMULATED_CUFILE};
}

/// A file of random bytes, and what they are.
struct RandomFile {
  explicit RandomFile(std::size_t size, const char* name = "random.bin")
      : path(directory / name), bytes(size, '\0') {
    std::mt19937_64 random(size);
    for (char& byte : bytes) byte = static_cast<char>(random());
    write_file(path, bytes);
  }

  const TemporaryDirectory directory;
  const std::filesystem::path path;
  std::string bytes;
};

/// The bytes of device memory.
inline std::string text_of(const DeviceMemory<char>& memory) {
  const std::vector<char> bytes = memory.read();
  return {bytes.begin(), bytes.end()};
}

}  // namespace penstock::test
