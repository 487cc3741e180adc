// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cstdio>
#include <cstdlib>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

void report(const std::string& text) noexcept {
  std::fprintf(stderr, "penstock: %s\n", text.c_str());
  std::fflush(stderr);
}

void give_up(const std::string& text) noexcept {
  report(text);
  std::abort();
}

}  // namespace penstock::emulation::detail
