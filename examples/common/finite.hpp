// SPDX-License-Identifier: Apache-2.0
#pragma once

// A check for numbers on command lines: CLI::Range lets nan pass, which is neither below nor above.
//
//   app.add_option("--rate", rate)->check(examples::finite(1e-3, 1e3));

#include <CLI/CLI.hpp>
#include <cmath>
#include <sstream>
#include <string>

namespace examples {

/// `lowest` <= number <= `highest`, and a number at all.
inline CLI::Validator finite(double lowest, double highest) {
  std::ostringstream range;
  range << "in [" << lowest << " - " << highest << "]";
  return {[lowest, highest, text = range.str()](const std::string& input) {
            double value = 0;
            const bool good = CLI::detail::lexical_cast(input, value) && std::isfinite(value) &&
                              value >= lowest && value <= highest;
            return good ? std::string() : "Value " + input + " is not " + text;
          },
          "FLOAT " + range.str()};
}

}  // namespace examples
