// SPDX-License-Identifier: Apache-2.0
#include "origin.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <penstock/detail/launchers.hpp>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "event_sink.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// Quotes a word for a shell.
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

/// Returns -1 if the variable is not a number.
int number_in(const penstock::detail::Lookup& value, const char* name) {
  try {
    return penstock::detail::Environment(value).number(name);
  } catch (const std::invalid_argument&) {
    return -1;
  }
}

/// Finds the place if the variables do not give everything that Ranks needs.
Place incomplete_place(const penstock::detail::Lookup& value) {
  using penstock::detail::by_hand, penstock::detail::open_mpi;
  struct Variables {
    const char *rank, *size;
  };
  for (const Variables& names : {Variables{by_hand.rank, by_hand.size},
                                 {"SLURM_PROCID", "SLURM_NTASKS"},
                                 {open_mpi.rank, open_mpi.size},
                                 {"JOB_COMPLETION_INDEX", "WORLD_SIZE"}}) {
    const int rank = number_in(value, names.rank), size = number_in(value, names.size);
    if (rank >= 0) return {.rank = rank, .world_size = size > rank ? size : 0};
  }
  return {};
}

/// Returns "2026-11-23 07:15:30 UTC", for example.
std::string in_utc(Time nanoseconds) {
  const std::time_t seconds = nanoseconds / 1'000'000'000;
  std::tm parts{};
  std::ostringstream text;
  if (::gmtime_r(&seconds, &parts) != nullptr) text << std::put_time(&parts, "%F %T UTC");
  return text.str();
}

}  // namespace

std::string excerpt(const Timeline& timeline, Time began, Time last) {
  const Time length = timeline.end - timeline.begin;
  std::string text =
      "the last " + in_time(length) + " until " + in_utc(timeline.origin.wall_clock + timeline.end);
  if (timeline.begin == began)
    text += ", since when it is recorded";
  else if (length < last - last / 100)
    text += ", not " + in_time(last) + ", since max_events leaves no room for more";
  const auto cuts = std::count_if(timeline.events.begin(), timeline.events.end(),
                                  [](const Event& event) { return event.has(cut); });
  if (cuts != 0)
    text += "; " + counted(static_cast<std::uint64_t>(cuts), "event", "events") +
            " began before and " + (cuts == 1 ? "is" : "are") + " cut to it";
  return text;
}

Place this_place() {
  const auto value = [](const char* name) {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  };
  try {
    const Ranks ranks = penstock::detail::read_ranks(value);
    if (!ranks.source.empty()) return {.rank = ranks.rank, .world_size = ranks.world_size};
  } catch (const std::invalid_argument&) {
    return incomplete_place(value);
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
