// SPDX-License-Identifier: Apache-2.0
#include "signal_names.hpp"

#include <charconv>
#include <csignal>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {
constexpr std::string_view kRealTime = "RTMIN+";
constexpr int kRealTimeSignals = 15;  // every system has at least this many
}  // namespace

std::string name_of_signal(int signal) {
  if (signal == SIGUSR1) return "SIGUSR1";
  if (signal == SIGUSR2) return "SIGUSR2";
  if (signal == SIGHUP) return "SIGHUP";
  return "SIG" + std::string(kRealTime) + std::to_string(signal - SIGRTMIN);
}

int signal_of_name(const std::string& name) {
  std::string_view text = name;
  if (text.starts_with("SIG")) text.remove_prefix(3);
  if (text == "USR1") return SIGUSR1;
  if (text == "USR2") return SIGUSR2;
  if (text == "HUP") return SIGHUP;
  if (!text.starts_with(kRealTime)) return 0;
  text.remove_prefix(kRealTime.size());
  int number = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && stop == text.data() + text.size();
  return is_number && number >= 1 && number <= kRealTimeSignals ? SIGRTMIN + number : 0;
}

}  // namespace penstock::trace::detail
