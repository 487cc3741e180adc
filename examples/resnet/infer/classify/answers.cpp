// SPDX-License-Identifier: Apache-2.0

#include "answers.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <penstock/detail/escaped.hpp>
#include <sstream>
#include <stdexcept>

#include "../../../common/read_file.hpp"

namespace resnet::classify {
namespace {

template <class... Values>
std::string text(const char* format, Values... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof(buffer), format, values...);
  return buffer;
}

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// A name may have line breaks, and what a terminal obeys.
std::string describe(const Input& input) {
  const std::string path = penstock::detail::escaped(input.path);
  return input.record < 0 ? path : path + ", record " + std::to_string(input.record);
}

/// A name that is no UTF-8 gets marks in its place.
std::string line_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

nlohmann::ordered_json json_of(const Note& note) {
  nlohmann::ordered_json json{{"path", note.input.path}};
  if (note.input.record >= 0) json["record"] = note.input.record;
  if (note.label >= 0) json["label"] = note.label;
  return json;
}

std::string percentiles(const Latencies& latencies) {
  const auto ms = [](Latencies::Duration duration) { return 1000 * seconds(duration); };
  return text("p50 %.2f, p99 %.2f, p99.9 %.2f, at most %.2f ms\n", ms(latencies.percentile(50)),
              ms(latencies.percentile(99)), ms(latencies.percentile(99.9)),
              ms(latencies.longest()));
}

}  // namespace

std::vector<std::string> class_names(const std::filesystem::path& path) {
  constexpr std::uint64_t longest = 1 << 24;  // bytes: more are no names
  std::istringstream file;
  try {
    file.str(std::string(examples::text_of(examples::read_file(path, longest))));
  } catch (const examples::ReadError& error) {
    throw std::invalid_argument("cannot read class names from " + path.string() + ": " +
                                error.what());
  }
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line); names.push_back(line))
    if (line.ends_with('\r')) line.pop_back();
  while (!names.empty() && names.back().empty()) names.pop_back();
  return names;
}

std::vector<Guess> best_guesses(std::span<const float> logits, std::size_t count) {
  if (!std::all_of(logits.begin(), logits.end(), [](float value) { return std::isfinite(value); }))
    return {};
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                    });
  const double largest = logits[order.front()];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<Guess> guesses;
  for (std::size_t i = 0; i < count; ++i)
    guesses.push_back({order[i], std::exp(logits[order[i]] - largest) / sum});
  return guesses;
}

Answers::Answers(AnswerOptions options, std::int64_t classes, Clock::time_point start)
    : options_(std::move(options)), classes_(static_cast<std::size_t>(classes)), start_(start) {
  // Answers on a terminal tell how far it is.
  if (options_.total && isatty(STDERR_FILENO) == 1 && isatty(STDOUT_FILENO) == 0)
    progress_ = std::make_unique<examples::Progress>("images", *options_.total);
}

void Answers::tell(const Notes& notes, std::span<const float> logits) {
  std::size_t row = 0;
  std::uint64_t answers = 0;
  for (const Note& note : notes.images)
    if (note.error.empty())
      answers += answer(note, logits.subspan(row++ * classes_, classes_));
    else
      skip(note, note.error);
  write();
  if (answers > 0) {
    last_answer_ = Clock::now();
    if (answered() == 0) first_answer_ = last_answer_;
    for (; answers > 0; --answers) images_.add(last_answer_ - notes.known);
    batches_.add(last_answer_ - notes.decoded);
  }
  if (progress_) progress_->to(answered() + skipped_);
}

bool Answers::answer(const Note& note, std::span<const float> logits) {
  const std::vector<Guess> guesses = best_guesses(logits, options_.top);
  if (guesses.empty()) {
    skip(note, "the network's answer is no number");
    return false;
  }
  if (note.label >= 0) {
    ++labelled_;
    right_ += guesses.front().index == static_cast<std::size_t>(note.label);
  }
  nlohmann::ordered_json json = json_of(note);
  std::string line = describe(note.input);
  for (const auto& [index, probability] : guesses) {
    const std::string name =
        options_.names.empty() ? "class " + std::to_string(index) : options_.names[index];
    json["top"].push_back({{"class", index}, {"name", name}, {"probability", probability}});
    line += (index == guesses.front().index ? ": " : ", ") + penstock::detail::escaped(name) +
            text(" %.2f %%", 100 * probability);
  }
  lines_ += options_.json ? line_of(json) : line + '\n';
  return true;
}

void Answers::skip(const Note& note, const std::string& why) {
  ++skipped_;
  const char* const clear_bar = progress_ ? "\r\x1b[K" : "";
  std::fprintf(stderr, "%sskipped: %s: %s\n", clear_bar, describe(note.input).c_str(), why.c_str());
  if (!options_.json) return;
  nlohmann::ordered_json json = json_of(note);
  json["error"] = why;
  lines_ += line_of(json);
}

void Answers::write() {
  const bool written = std::fwrite(lines_.data(), 1, lines_.size(), stdout) == lines_.size();
  if (!written || std::fflush(stdout) != 0) throw std::runtime_error("cannot write the answers");
  lines_.clear();
}

std::string Answers::summary() const {
  std::string lines = std::to_string(answered()) + (answered() == 1 ? " image" : " images") + ", " +
                      std::to_string(skipped_) + " skipped";
  if (answered() == 0) return lines + '\n';
  lines += text("; %.1f images/s, the first answer after %.3f s\n",
                static_cast<double>(answered()) / seconds(last_answer_ - begin_),
                seconds(first_answer_ - start_));
  lines += "an image, from its path to its answer: " + percentiles(images_);
  lines += "a batch, from its last pixel to its answers: " + percentiles(batches_);
  if (labelled_ > 0)
    lines += text("accuracy: %.2f %% of %llu labels\n",
                  100 * static_cast<double>(right_) / static_cast<double>(labelled_),
                  static_cast<unsigned long long>(labelled_));
  return lines;
}

}  // namespace resnet::classify
