// SPDX-License-Identifier: Apache-2.0
#include "origin.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <penstock/detail/launchers.hpp>
#include <stdexcept>
#include <string_view>

#include "event_sink.hpp"

namespace penstock::trace::detail {

namespace {

/// As a shell would take it.
std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char character : word) {
    if (character == '\'')
      text += "'\\''";
    else
      text += character;
  }
  return text + '\'';
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text;
  for (std::string word; std::getline(file, word, '\0');) {
    if (!text.empty()) text += ' ';
    text += shell_quoted(word);
  }
  return text;
}

int rank_alone(const penstock::detail::Lookup& value) {
  for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX"})
    try {
      const penstock::detail::Environment environment(value);
      if (environment.has(name)) return environment.number(name);
    } catch (const std::invalid_argument&) {
      continue;  // The next one may be a number.
    }
  return -1;
}

}  // namespace

Place this_place() {
  const auto value = [](const char* name) {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  };
  try {
    const Ranks ranks = penstock::detail::read_ranks(value);
    if (!ranks.source.empty()) return {.rank = ranks.rank, .world_size = ranks.world_size};
  } catch (const std::invalid_argument&) {
    return {.rank = rank_alone(value)};
  }
  return {};
}

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Origin this_origin(Time begin) {
  Origin origin;
  origin.program = command_line();
  origin.host = this_host();
  origin.process = ::getpid();
  const Place place = this_place();
  origin.rank = place.rank;
  origin.world_size = place.world_size;
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  origin.wall_clock = wall.tv_sec * Time{1'000'000'000} + wall.tv_nsec - now();
  origin.started = (origin.wall_clock + begin) / 1'000'000'000;
  return origin;
}

}  // namespace penstock::trace::detail
