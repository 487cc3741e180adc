// SPDX-License-Identifier: Apache-2.0

#include "report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace resnet::latency {
namespace {

template <class... Values>
std::string text(const char* format, Values... values) {
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), format, values...);
  return buffer;
}

double in_ms(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

unsigned long long count(std::uint64_t number) {
  return number;
}

const char* name_of(ArrivalKind kind) {
  return kind == ArrivalKind::poisson ? "poisson" : "uniform";
}

}  // namespace

std::string name_of(const Load& load) {
  if (load.clients == 1) return "1 client";
  if (load.clients > 1) return std::to_string(load.clients) + " clients";
  return text("%g/s %s", load.rate, name_of(load.arrivals));
}

std::string table_head() {
  return text("%-20s%12s%10s%10s%10s%10s%8s  %s\n", "load", "answers/s", "p50 ms", "p99 ms",
              "p99.9 ms", "max ms", "batch", "batches: how many of which size");
}

std::string table_row(const Result& result, int contexts) {
  const Latencies& latencies = result.latencies;
  std::string row =
      text("%-20s%12.1f%10.3f%10.3f%10.3f%10.3f%8.1f ", name_of(result.load).c_str(),
           result.throughput(), in_ms(latencies.percentile(50)), in_ms(latencies.percentile(99)),
           in_ms(latencies.percentile(99.9)), in_ms(latencies.longest()), result.mean_batch());
  for (const auto& [size, batches] : result.batches) row += text(" %llux%zu", count(batches), size);
  row += '\n';
  if (result.wrong > 0)
    row += text("  WRONG: %llu answers are not those of their images\n", count(result.wrong));
  if (queue_grows(result, contexts))
    row += text(
        "  BEYOND what is reached here: %g requests a second were sent and %.1f answered; when the "
        "last was sent,\n  %llu had no answer (%llu half-way): the queue grows, and so do the "
        "latencies with the length of the run.\n",
        result.load.rate, result.throughput(), count(result.backlog_end),
        count(result.backlog_half));
  return row;
}

nlohmann::json json_of(const Result& result, int contexts) {
  const Load& load = result.load;
  const Latencies& latencies = result.latencies;
  nlohmann::json batches = nlohmann::json::object();
  for (const auto& [size, number] : result.batches) batches[std::to_string(size)] = number;
  nlohmann::json json{{"load", name_of(load)},
                      {"contexts", contexts},
                      {"max_batch", load.max_batch},
                      {"deadline_ms", in_ms(load.deadline)},
                      {"requests", latencies.count()},
                      {"answers_per_second", result.throughput()},
                      {"p50_ms", in_ms(latencies.percentile(50))},
                      {"p99_ms", in_ms(latencies.percentile(99))},
                      {"p99_9_ms", in_ms(latencies.percentile(99.9))},
                      {"max_ms", in_ms(latencies.longest())},
                      {"mean_ms", in_ms(latencies.mean())},
                      {"mean_batch", result.mean_batch()},
                      {"batches", batches},
                      {"wrong", result.wrong}};
  if (load.clients > 0)
    json.update({{"loop", "closed"}, {"clients", load.clients}});
  else
    json.update({{"loop", "open"},
                 {"rate", load.rate},
                 {"arrivals", name_of(load.arrivals)},
                 {"seed", load.seed},
                 {"backlog_half", result.backlog_half},
                 {"backlog_end", result.backlog_end},
                 {"sent_late_ms", in_ms(result.late)},
                 {"beyond", queue_grows(result, contexts)}});
  return json;
}

}  // namespace resnet::latency
