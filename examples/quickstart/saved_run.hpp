// SPDX-License-Identifier: Apache-2.0
#pragma once

// SavedRun: where an interrupted run stopped, and what it had added up until then. The file has
// three lines: the pipeline's state, the sums, and the CRC-32C of these two.

#include <cstddef>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/state.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>

#include "../common/read_file.hpp"
#include "programs/output_file.hpp"
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

inline std::string checksum_line(const std::string& text) {
  std::ostringstream line;
  line << "crc32c " << std::hex << std::setw(8) << std::setfill('0')
       << penstock::detail::crc32c(std::as_bytes(std::span(text))) << '\n';
  return line.str();
}

inline void save(const std::filesystem::path& file, const SavedRun& run) {
  std::ostringstream text;
  text << run.state << '\n';
  for_each_number(run.summary, [&](std::uint64_t number) { text << number << ' '; });
  text << '\n';
  penstock::programs::write_file(file, text.str() + checksum_line(text.str()));
}

/// Nothing where there is no such file. Throws std::invalid_argument, which names the file.
inline std::optional<SavedRun> read_saved(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  try {
    const std::string whole(examples::text_of(examples::read_file(file, 4096)));
    const std::size_t end = whole.rfind("crc32c ");
    if (end == std::string::npos)
      throw std::invalid_argument(
          "it has no checksum: another version of this program may have written it");
    std::istringstream text(whole.substr(0, end));
    if (whole.substr(end) != checksum_line(text.str()))
      throw std::invalid_argument("it is damaged, as its checksum says");
    std::string line;
    std::getline(text, line);
    SavedRun run{.state = penstock::State::parse(line), .summary = {}};
    for_each_number(run.summary, [&](std::uint64_t& number) { text >> number; });
    if (!text || !(text >> std::ws).eof())
      throw std::invalid_argument("other sums than 16 numbers");
    return run;
  } catch (const std::exception& error) {
    throw std::invalid_argument(file.string() + " is no saved run: " + error.what() +
                                ". Without it the run begins anew");
  }
}

}  // namespace quickstart
