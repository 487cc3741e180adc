// SPDX-License-Identifier: Apache-2.0
#include "origin.hpp"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <fstream>
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

}  // namespace

int this_rank() {
  for (const char* const variable : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}) {
    const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
    if (text == nullptr) continue;
    const std::string_view digits = text;
    int rank = -1;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error == std::errc() && stop == digits.data() + digits.size() && rank >= 0) return rank;
  }
  return -1;
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
  origin.rank = this_rank();
  origin.started = std::time(nullptr) - (now() - begin) / 1'000'000'000;
  return origin;
}

}  // namespace penstock::trace::detail
