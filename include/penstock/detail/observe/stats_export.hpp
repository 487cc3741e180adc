// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <penstock/detail/observe/json.hpp>
#include <penstock/ranks.hpp>
#include <penstock/stats_export.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

/// Writes metrics by family: the samples of a family follow its HELP and TYPE lines.
class PrometheusText {
 public:
  explicit PrometheusText(const Labels& labels) {
    for (const auto& [name, value] : labels) add_label(common_, name, value);
  }

  /// Begins a family. It is a counter if its name ends in _total, otherwise a gauge.
  void family(std::string_view name, std::string_view help) {
    name_ = "penstock_" + std::string(name);
    const char* const type = name_.ends_with("_total") ? " counter\n" : " gauge\n";
    text_ += "# HELP " + name_ + ' ' + std::string(help) + "\n# TYPE " + name_ + type;
  }
  template <class Number>
  void sample(const Labels& labels, Number number) {
    std::string all = common_;
    for (const auto& [name, value] : labels) add_label(all, name, value);
    text_ += name_ + (all.empty() ? "" : '{' + all + '}') + ' ';
    append_number(text_, number);
    text_ += '\n';
  }
  template <class Number>
  void single(std::string_view name, std::string_view help, Number number) {
    family(name, help);
    sample({}, number);
  }
  /// Writes a sample for each enumerator up to `last`: 1 for `value`, 0 for the others.
  template <class Enum>
  void choice(const char* label, Enum value, Enum last) {
    for (int i = 0; i <= static_cast<int>(last); ++i)
      sample({{label, to_string(static_cast<Enum>(i))}}, int{i == static_cast<int>(value)});
  }

  std::string take() { return std::move(text_); }

 private:
  static void add_label(std::string& labels, const std::string& name, const std::string& value) {
    labels += (labels.empty() ? "" : ",") + name + "=\"";
    for (const char c : value) {
      if (c == '\n')
        labels += "\\n";
      else if (c == '"' || c == '\\')
        labels.append({'\\', c});
      else
        labels += c;
    }
    labels += '"';
  }

  std::string text_, name_, common_;
};

struct NamedStage {
  const char* name;
  const StageStats& stage;
};

inline std::vector<NamedStage> stages(const Stats& stats) {
  std::vector<NamedStage> stages{{"source", stats.source}, {"copy", stats.copy}};
  if (stats.setup.transforms) stages.push_back({"transform", stats.transform});
  stages.push_back({"consumer", stats.consumer});
  return stages;
}

inline void add_stages(PrometheusText& text, const Stats& stats) {
  const auto all = stages(stats);
  const auto each = [&](const char* family, auto StageStats::*member, const char* help) {
    text.family(family, help);
    for (const auto& [name, stage] : all) text.sample({{"stage", name}}, stage.*member);
  };
  each("busy_seconds_total", &StageStats::busy,
       "Time that a stage worked; of all workers together");
  text.family("waiting_seconds_total", "Time that a stage waited, and for what");
  for (const auto& [name, stage] : all) {
    text.sample({{"stage", name}, {"for", "input"}}, stage.waiting_for_input);
    text.sample({{"stage", name}, {"for", "room"}}, stage.waiting_for_room);
  }
  each("batches_total", &StageStats::batches, "Batches that went through a stage");
  each("bytes_total", &StageStats::bytes, "Bytes that went through a stage");
  text.family("queued_batches", "Batches ready for the next stage, on average");
  for (const auto& [name, stage] : all)
    if (stage.capacity > 0) text.sample({{"stage", name}}, stage.queued);
}

inline void add_device(PrometheusText& text, const DeviceTimes& device) {
  text.single("device_copies_total", "Copies that were timed on the device", device.copies);
  text.single("device_batches_total", "Batches that the consumer's times are of", device.batches);
  text.single("device_consuming_seconds_total", "Time that the consumer's stream had a batch",
              device.consuming);
  text.family("device_waiting_seconds_total",
              "Time that the consumer's stream was out of work, and for what");
  text.sample({{"for", "batch"}}, device.awaiting_batch);
  text.sample({{"for", "copy"}}, device.awaiting_copy);
  text.single("device_longest_wait_seconds",
              "Longest time that the consumer's stream was out of work", device.longest_wait);
}

inline void add_waits(PrometheusText& text, const SampledWaits& waits) {
  text.single("sampled_batches_total", "Batches whose waits were sampled", waits.batches);
  text.single("sampled_waiting_seconds_total",
              "Time that the consumer's stream was out of work before these batches",
              waits.waiting);
}

inline void add_pipeline(PrometheusText& text, const Stats& stats) {
  text.single("first_batch_seconds", "From construction until the first batch was there",
              stats.first_batch);
  text.single("longest_wait_seconds", "Longest call of next, after the first", stats.longest_wait);
  text.single("worker_cpu_seconds_total", "CPU time of the workers", stats.worker_cpu);
  if (stats.source_reads) {
    text.single("source_reads_total", "Calls of read and the like by the workers",
                stats.source_reads->calls);
    text.single("source_read_bytes_total", "Bytes that these brought", stats.source_reads->bytes);
  }
  text.single("longest_fill_seconds", "Longest time of a worker in the source", stats.longest_fill);
  text.family("failed_batches_total", "Batches that the failure policy dealt with");
  text.sample({{"action", "skipped"}}, stats.skipped);
  text.sample({{"action", "replaced"}}, stats.replaced);
  text.single("workers", "Threads that run the source", stats.workers);
  text.family("depth_batches", "Batches that there is memory for");
  text.sample({{"memory", "host"}}, stats.host_depth);
  text.sample({{"memory", "device"}}, stats.device_depth);
  text.family("memory_bytes", "Memory that batches take");
  text.sample({{"memory", "host"}}, stats.host_bytes);
  text.sample({{"memory", "device"}}, stats.device_bytes);
  if (!stats.placement) return;
  text.family("placement", "1; the label says which cores were chosen, and why");
  text.sample({{"chosen", *stats.placement}}, 1);
}

inline void add_verdict(PrometheusText& text, const Verdict& verdict) {
  text.family("bottleneck", "1 for the stage that bounds the rate");
  text.choice("stage", verdict.stage, Bottleneck::balanced);
  text.family("verdict", "1 for what is to be changed");
  text.choice("kind", verdict.kind, VerdictKind::faster_copy);
  text.single("starved_ratio", "Part of its time that the consumer waits for input",
              verdict.starved);
}

inline void add(JsonText& json, const std::string& text) {
  json.value(text);
}
inline void add(JsonText& json, const ReadCounts& reads) {
  json.begin_object().member("calls", reads.calls).member("bytes", reads.bytes).end_object();
}
inline void add(JsonText& json, const StageStats& stage) {
  json.begin_object()
      .member("busy_seconds", stage.busy)
      .member("waiting_for_input_seconds", stage.waiting_for_input)
      .member("waiting_for_room_seconds", stage.waiting_for_room)
      .member("batches", stage.batches)
      .member("bytes", stage.bytes)
      .member("queued", stage.queued)
      .member("capacity", stage.capacity)
      .end_object();
}
inline void add(JsonText& json, const DeviceTimes& device) {
  json.begin_object()
      .member("copies", device.copies)
      .member("batches", device.batches)
      .member("consuming_seconds", device.consuming)
      .member("awaiting_batch_seconds", device.awaiting_batch)
      .member("awaiting_copy_seconds", device.awaiting_copy)
      .member("longest_wait_seconds", device.longest_wait)
      .end_object();
}
inline void add(JsonText& json, const Gain& gain) {
  json.begin_object()
      .member("kind", to_string(gain.kind))
      .member("workers", gain.workers)
      .member("host_depth", gain.host_depth)
      .member("device_depth", gain.device_depth)
      .member("more_bytes", gain.more_bytes)
      .member("times_faster", gain.times_faster)
      .end_object();
}
inline void add(JsonText& json, const Verdict& verdict) {
  json.begin_object()
      .member("stage", to_string(verdict.stage))
      .member("kind", to_string(verdict.kind))
      .member("sentence", verdict.sentence)
      .member("period_seconds", verdict.period)
      .member("source_seconds", verdict.source)
      .member("copy_seconds", verdict.copy)
      .member("transform_seconds", verdict.transform)
      .member("consumer_seconds", verdict.consumer)
      .member("starved", verdict.starved)
      .member("enough_workers", verdict.enough_workers)
      .member("enough_host_depth", verdict.enough_host_depth)
      .member("enough_device_depth", verdict.enough_device_depth)
      .member("more_bytes", verdict.more_bytes)
      .member("times_smaller", verdict.times_smaller)
      .member("times_faster", verdict.times_faster);
  json.key("gains").begin_array();
  for (const Gain& gain : verdict.gains) add(json, gain);
  json.end_array().end_object();
}
/// Adds the value, or null if there is none.
template <class Maybe>
void add_maybe(JsonText& json, const Maybe& maybe) {
  if (maybe)
    add(json, *maybe);
  else
    json.value(nullptr);
}

}  // namespace detail

PENSTOCK_INLINE Labels::value_type rank_label(const Ranks& ranks) {
  return {"rank", std::to_string(ranks.rank)};
}

PENSTOCK_INLINE std::string to_prometheus(const Stats& stats, const Labels& labels) {
  detail::PrometheusText text(labels);
  detail::add_stages(text, stats);
  if (stats.device)
    detail::add_device(text, *stats.device);
  else
    detail::add_waits(text, stats.waits);
  detail::add_pipeline(text, stats);
  detail::add_verdict(text, stats.verdict());
  return text.take();
}

PENSTOCK_INLINE std::string to_json(const Stats& stats) {
  detail::JsonText json;
  json.begin_object();
  for (const auto& [name, stage] : detail::stages(stats)) add(json.key(name), stage);
  add_maybe(json.key("device"), stats.device);
  json.member("sampled_batches", stats.waits.batches)
      .member("sampled_waiting_seconds", stats.waits.waiting)
      .member("first_batch_seconds", stats.first_batch)
      .member("longest_wait_seconds", stats.longest_wait)
      .member("worker_cpu_seconds", stats.worker_cpu)
      .member("longest_fill_seconds", stats.longest_fill);
  add_maybe(json.key("source_reads"), stats.source_reads);
  json.member("skipped", stats.skipped)
      .member("replaced", stats.replaced)
      .member("workers", stats.workers)
      .member("host_depth", stats.host_depth)
      .member("device_depth", stats.device_depth)
      .member("host_bytes", stats.host_bytes)
      .member("device_bytes", stats.device_bytes);
  add_maybe(json.key("placement"), stats.placement);
  add(json.key("verdict"), stats.verdict());
  return json.end_object().text();
}

}  // namespace penstock
