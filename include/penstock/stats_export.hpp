// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stats for other programs: the same numbers in Prometheus' text exposition format, and as JSON.
//
//   http.reply(penstock::to_prometheus(prefetcher.stats(), {{"job", "train"}, rank_label(ranks)}));
//   std::ofstream("stats.json") << penstock::to_json(prefetcher.stats()) << '\n';
//
// Both are pure functions. Times are in seconds, sizes in bytes.

#include <penstock/detail/inline.hpp>
#include <penstock/stats.hpp>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

struct Ranks;  // ranks.hpp

/// Names and values. A name matches [a-zA-Z_][a-zA-Z0-9_]*, a value is any UTF-8 text.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// {"rank", "3"}: the same name on all ranks of a job, so that a query can compare them.
Labels::value_type rank_label(const Ranks& ranks);

/// All numbers as metrics `penstock_...`, each sample with `labels`: the body of a scrape, of type
/// "text/plain; version=0.0.4". Without device times, the times of the copy are estimates.
std::string to_prometheus(const Stats& stats, const Labels& labels = {});

/// One JSON object on one line, verdict included. `device` is null without device times,
/// `placement` where there was nothing to choose, `source_reads` where they are unknown.
std::string to_json(const Stats& stats);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/observe/stats_export.hpp>
#endif
