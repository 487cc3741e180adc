// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is told of a run of `latency`: a row of a table, what there is to be said besides, and JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "load.hpp"

namespace resnet::latency {

/// "4 clients", "200/s poisson"
std::string name_of(const Load& load);
std::string table_head();
/// One line, and one more for wrong answers or a queue that grows.
std::string table_row(const Result& result, int contexts);
/// Times in milliseconds.
nlohmann::json json_of(const Result& result, int contexts);

}  // namespace resnet::latency
