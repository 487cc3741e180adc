// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stats for other programs: Prometheus' text exposition format, and JSON, of the same numbers.
//
//   http.reply(penstock::to_prometheus(prefetcher.stats(), {{"job", "train"}, {"rank", "0"}}));
//   std::ofstream("stats.json") << penstock::to_json(prefetcher.stats()) << '\n';
//
// Both are pure functions; times are seconds, sizes bytes, batches batches.

#include <penstock/detail/inline.hpp>
#include <penstock/stats.hpp>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

/// Names and values. A name is of [a-zA-Z_][a-zA-Z0-9_]*, a value any UTF-8.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// All numbers as metrics `penstock_...`, each sample with `labels`: the body of a scrape, of type
/// "text/plain; version=0.0.4". Counters only grow; without device times, that of the copy's times
/// is an estimate.
std::string to_prometheus(const Stats& stats, const Labels& labels = {});

/// One JSON object on one line, verdict included. `device` is null without device times.
std::string to_json(const Stats& stats);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/measure/stats_export.hpp>
#endif
