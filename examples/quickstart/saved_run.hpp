// SPDX-License-Identifier: Apache-2.0
#pragma once

// SavedRun: where an interrupted run stopped, and what it had added up until then. The file has two
// lines: the pipeline's state, and the sums.

#include <filesystem>
#include <optional>
#include <penstock/state.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "../common/atomic_file.hpp"
#include "../common/read_file.hpp"
#include "statistics.hpp"

namespace quickstart {

struct SavedRun {
  penstock::State state;
  Summary summary;
};

/// Calls `use` for each number of a summary.
template <class Summary, class Use>
void for_each_number(Summary& summary, Use use) {
  for (auto& number : summary.sum) use(number);
  for (auto& number : summary.sum_of_squares) use(number);
  for (auto& number : summary.classes) use(number);
}

inline void save(const std::filesystem::path& file, const SavedRun& run) {
  std::ostringstream text;
  text << run.state << '\n';
  for_each_number(run.summary, [&](std::uint64_t number) { text << number << ' '; });
  text << '\n';
  examples::write_file(file, text.str());
}

/// Nothing where there is no such file. Throws std::invalid_argument, which names the file.
inline std::optional<SavedRun> read_saved(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  try {
    std::istringstream text(std::string(examples::text_of(examples::read_file(file, 4096))));
    std::string line;
    std::getline(text, line);
    SavedRun run{.state = penstock::State::parse(line), .summary = {}};
    for_each_number(run.summary, [&](std::uint64_t& number) { text >> number; });
    if (!text || !(text >> std::ws).eof())
      throw std::invalid_argument("other sums than 16 numbers");
    return run;
  } catch (const std::exception& error) {
    throw std::invalid_argument(file.string() + " is no saved run: " + error.what());
  }
}

}  // namespace quickstart
