// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/version.hpp>

#include <CLI/CLI.hpp>
#include <string>

namespace penstock::programs {

/// Adds the option --version, which prints the program's name and the version of penstock.
inline void add_version_flag(CLI::App& app) {
  const auto number = [](int part) { return std::to_string(part); };
  app.set_version_flag("--version", app.get_name() + " " + number(PENSTOCK_VERSION_MAJOR) + "." +
                                        number(PENSTOCK_VERSION_MINOR) + "." +
                                        number(PENSTOCK_VERSION_PATCH));
}

}  // namespace penstock::programs
