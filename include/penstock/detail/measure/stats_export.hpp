// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/stats_export.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {
namespace detail {

/// The shortest text that reads as the same number, whatever the locale.
template <class Number>
std::string in_digits(Number number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), number);
  return {text, end.ptr};
}
inline std::string in_digits(std::chrono::nanoseconds time) {
  return in_digits(std::chrono::duration<double>(time).count());
}

/// Metrics by family: a family's samples stand together, below its HELP and TYPE.
class PrometheusText {
 public:
  explicit PrometheusText(const Labels& labels) {
    for (const auto& [name, value] : labels) add_label(common_, name, value);
  }

  void family(std::string_view name, const char* type, std::string_view help) {
    name_ = "penstock_" + std::string(name);
    text_ += "# HELP " + name_ + ' ' + std::string(help) + "\n# TYPE " + name_ + ' ' + type + '\n';
  }
  template <class Number>
  void sample(const Labels& labels, Number number) {
    std::string all = common_;
    for (const auto& [name, value] : labels) add_label(all, name, value);
    text_ += name_ + (all.empty() ? "" : '{' + all + '}') + ' ' + in_digits(number) + '\n';
  }
  template <class Number>
  void single(std::string_view name, const char* type, std::string_view help, Number number) {
    family(name, type, help);
    sample({}, number);
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
  return {{"source", stats.source}, {"copy", stats.copy}, {"consumer", stats.consumer}};
}

inline void add_stages(PrometheusText& text, const Stats& stats) {
  const auto all = stages(stats);
  text.family("busy_seconds_total", "counter", "Time that a stage worked; of all workers together");
  for (const auto& [name, stage] : all) text.sample({{"stage", name}}, stage.busy);
  text.family("waiting_seconds_total", "counter", "Time that a stage waited, and for what");
  for (const auto& [name, stage] : all) {
    text.sample({{"stage", name}, {"for", "input"}}, stage.waiting_for_input);
    text.sample({{"stage", name}, {"for", "room"}}, stage.waiting_for_room);
  }
  text.family("batches_total", "counter", "Batches that went through a stage");
  for (const auto& [name, stage] : all) text.sample({{"stage", name}}, stage.batches);
  text.family("bytes_total", "counter", "Bytes that went through a stage");
  for (const auto& [name, stage] : all) text.sample({{"stage", name}}, stage.bytes);
  text.family("queued_batches", "gauge", "Batches ready for the next stage, on average");
  for (const auto& [name, stage] : all)
    if (stage.capacity > 0) text.sample({{"stage", name}}, stage.queued);
}

inline void add_device(PrometheusText& text, const DeviceTimes& device) {
  text.single("device_copies_total", "counter", "Copies that were timed on the device",
              device.copies);
  text.single("device_batches_total", "counter", "Batches that the consumer's times are of",
              device.batches);
  text.single("device_consuming_seconds_total", "counter",
              "Time that the consumer's stream had a batch", device.consuming);
  text.family("device_waiting_seconds_total", "counter",
              "Time that the consumer's stream was out of work, and for what");
  text.sample({{"for", "batch"}}, device.awaiting_batch);
  text.sample({{"for", "copy"}}, device.awaiting_copy);
  text.single("device_longest_wait_seconds", "gauge",
              "Longest time that the consumer's stream was out of work", device.longest_wait);
}

inline void add_pipeline(PrometheusText& text, const Stats& stats) {
  text.single("first_batch_seconds", "gauge", "From construction until the first batch was there",
              stats.first_batch);
  text.single("longest_wait_seconds", "gauge", "Longest call of next, after the first",
              stats.longest_wait);
  text.family("failed_batches_total", "counter", "Batches that the failure policy dealt with");
  text.sample({{"action", "skipped"}}, stats.skipped);
  text.sample({{"action", "replaced"}}, stats.replaced);
  text.single("workers", "gauge", "Threads that run the source", stats.workers);
  text.family("depth_batches", "gauge", "Batches that there is memory for");
  text.sample({{"memory", "host"}}, stats.host_depth);
  text.sample({{"memory", "device"}}, stats.device_depth);
  text.family("memory_bytes", "gauge", "Memory that batches take");
  text.sample({{"memory", "host"}}, stats.host_bytes);
  text.sample({{"memory", "device"}}, stats.device_bytes);
}

inline constexpr VerdictKind kVerdictKinds[] = {
    VerdictKind::too_early,     VerdictKind::more_workers, VerdictKind::deeper_ring,
    VerdictKind::smaller_bytes, VerdictKind::bus_bound,    VerdictKind::compute_bound,
    VerdictKind::balanced};

inline void add_verdict(PrometheusText& text, const Verdict& verdict) {
  text.family("bottleneck", "gauge", "1 for the stage that bounds the rate");
  for (const Bottleneck stage :
       {Bottleneck::source, Bottleneck::copy, Bottleneck::consumer, Bottleneck::balanced})
    text.sample({{"stage", to_string(stage)}}, int{stage == verdict.stage});
  text.family("verdict", "gauge", "1 for what is to be changed");
  for (const VerdictKind kind : kVerdictKinds)
    text.sample({{"kind", to_string(kind)}}, int{kind == verdict.kind});
  text.single("starved_ratio", "gauge", "Part of its time that the consumer waits for input",
              verdict.starved);
}

/// An object of fixed fields: names are not escaped, texts are.
class JsonObject {
 public:
  template <class Number>
  JsonObject& number(std::string_view name, Number value) {
    return raw(name, in_digits(value));
  }
  JsonObject& text(std::string_view name, std::string_view value) {
    return raw(name, '"' + escaped(value) + '"');
  }
  JsonObject& boolean(std::string_view name, bool value) {
    return raw(name, value ? "true" : "false");
  }
  JsonObject& raw(std::string_view name, const std::string& value) {
    if (!text_.empty()) text_ += ',';
    ((text_ += '"') += name) += "\":";
    text_ += value;
    return *this;
  }
  std::string str() const { return '{' + text_ + '}'; }

 private:
  static std::string escaped(std::string_view text) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string result;
    for (const char c : text) {
      const auto code = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\')
        result.append({'\\', c});
      else if (code < 0x20)
        result += std::string("\\u00") + kDigits[code >> 4] + kDigits[code & 15];
      else
        result += c;
    }
    return result;
  }

  std::string text_;
};

inline std::string to_json(const StageStats& stage) {
  return JsonObject()
      .number("busy_seconds", stage.busy)
      .number("waiting_for_input_seconds", stage.waiting_for_input)
      .number("waiting_for_room_seconds", stage.waiting_for_room)
      .number("batches", stage.batches)
      .number("bytes", stage.bytes)
      .number("queued", stage.queued)
      .number("capacity", stage.capacity)
      .str();
}

inline std::string to_json(const DeviceTimes& device) {
  return JsonObject()
      .number("copies", device.copies)
      .number("batches", device.batches)
      .number("consuming_seconds", device.consuming)
      .number("awaiting_batch_seconds", device.awaiting_batch)
      .number("awaiting_copy_seconds", device.awaiting_copy)
      .number("longest_wait_seconds", device.longest_wait)
      .str();
}

inline std::string to_json(const Verdict& verdict) {
  return JsonObject()
      .text("stage", to_string(verdict.stage))
      .text("kind", to_string(verdict.kind))
      .text("sentence", verdict.sentence)
      .number("period_seconds", verdict.period)
      .number("source_seconds", verdict.source)
      .number("copy_seconds", verdict.copy)
      .number("consumer_seconds", verdict.consumer)
      .number("starved", verdict.starved)
      .number("enough_workers", verdict.enough_workers)
      .number("enough_host_depth", verdict.enough_host_depth)
      .number("enough_device_depth", verdict.enough_device_depth)
      .number("times_smaller", verdict.times_smaller)
      .str();
}

}  // namespace detail

PENSTOCK_INLINE std::string to_prometheus(const Stats& stats, const Labels& labels) {
  detail::PrometheusText text(labels);
  detail::add_stages(text, stats);
  if (stats.device) detail::add_device(text, *stats.device);
  detail::add_pipeline(text, stats);
  detail::add_verdict(text, stats.verdict());
  return text.take();
}

PENSTOCK_INLINE std::string to_json(const Stats& stats) {
  detail::JsonObject json;
  for (const auto& [name, stage] : detail::stages(stats)) json.raw(name, detail::to_json(stage));
  return json.raw("device", stats.device ? detail::to_json(*stats.device) : "null")
      .number("first_batch_seconds", stats.first_batch)
      .number("longest_wait_seconds", stats.longest_wait)
      .number("skipped", stats.skipped)
      .number("replaced", stats.replaced)
      .number("workers", stats.workers)
      .number("host_depth", stats.host_depth)
      .number("device_depth", stats.device_depth)
      .number("host_bytes", stats.host_bytes)
      .number("device_bytes", stats.device_bytes)
      .raw("verdict", detail::to_json(stats.verdict()))
      .str();
}

}  // namespace penstock
