// SPDX-License-Identifier: Apache-2.0
#pragma once

// Answers: what is printed. For each image a line, in the order of the inputs, on the standard
// output; what could not be read, on the standard error output too; and counts and latencies.
//
//   Answers answers({.top = 5, .json = true, .names = class_names("imagenet.txt")}, 1000, start);
//   answers.tell(notes, logits);
//   std::fputs(answers.summary().c_str(), stderr);
//
// Text:   cat.jpg: tabby 92.31 %, tiger cat 5.02 %
// JSON:   {"path":"cat.jpg","top":[{"class":281,"name":"tabby","probability":0.9231}, ...]}
//         {"path":"dog.jpg","error":"broken JPEG: Premature end of JPEG file"}
// Of a record also "record" (its number in the file) and "label".

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../../../common/progress.hpp"
#include "../latencies.hpp"
#include "picture_source.hpp"

namespace resnet::classify {

/// A line, a name. Throws std::invalid_argument for a file that cannot be read.
std::vector<std::string> class_names(const std::filesystem::path& file);

struct Guess {
  std::size_t index;  ///< of the class
  double probability;
};
/// The `count` most probable classes, of the softmax of `logits`, the most probable first; of equal
/// ones the first. Empty for logits that are no numbers.
std::vector<Guess> best_guesses(std::span<const float> logits, std::size_t count);

struct AnswerOptions {
  std::size_t top = 5;
  bool json = false;
  std::vector<std::string> names;      ///< of all classes, or empty
  std::optional<std::uint64_t> total;  ///< progress is shown, where there is a terminal for it
};

/// One thread at a time.
class Answers {
 public:
  /// `start`: when the program was asked. The images/s count from now on.
  Answers(AnswerOptions options, std::int64_t classes, Clock::time_point start);

  /// A batch, with the logits of its rows. Throws std::runtime_error when nothing can be written.
  void tell(const Notes& notes, std::span<const float> logits);

  std::uint64_t answered() const { return images_.count(); }
  std::uint64_t skipped() const { return skipped_; }
  /// Some lines for people.
  std::string summary() const;

 private:
  /// False: there is no answer, and that is told.
  bool answer(const Note& note, std::span<const float> logits);
  void skip(const Note& note, const std::string& why);
  void write();

  const AnswerOptions options_;
  const std::size_t classes_;
  const Clock::time_point start_, begin_ = Clock::now();
  std::string lines_;  // that are yet to be written
  std::uint64_t skipped_ = 0, labelled_ = 0, right_ = 0;
  Latencies images_, batches_;
  Clock::time_point first_answer_, last_answer_;
  std::unique_ptr<examples::Progress> progress_;
};

}  // namespace resnet::classify
