// SPDX-License-Identifier: Apache-2.0
#pragma once

// Answers: each image's class, and a digest of its logits. Whoever has results tells them, in any
// order and from any thread; they are written in the order of the requests.
//
//   Answers answers(requests, 10, "answers.txt");       // lines "<image> <class>"; "": no file
//   answers.tell(request, 0, logits);                    // of its images from the first on
//   answers.close();
//   std::cout << answers.logits_digest();                // equal bits, equal digest

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../../../common/progress.hpp"
#include "programs/output_file.hpp"
#include "requests.hpp"

namespace resnet::rungs {

class Answers {
 public:
  /// Throws std::system_error when the file cannot be written, as close() does.
  Answers(const Requests& requests, std::int64_t classes, const std::filesystem::path& file);

  /// `logits`: whole images of `request`, from its `first`-th on. Each image is told once. Throws
  /// std::runtime_error for logits that are no numbers, and std::logic_error for images that were
  /// told before or are not the request's.
  void tell(std::uint64_t request, std::int64_t first, std::span<const float> logits);

  /// The file is there now. Call it once.
  void close();
  bool complete() const { return next_ == requests_.count; }

  /// Of all images, in their order. Call when nobody tells any more.
  std::string logits_digest() const;
  std::string classes_digest() const;
  const std::vector<std::int32_t>& classes() const { return classes_; }

 private:
  void tell_image(std::size_t image, std::span<const float> logits);
  void write_next();

  const Requests requests_;
  const std::int64_t width_;  // logits of an image
  std::mutex mutex_;
  std::vector<std::int32_t> classes_;   // by image; -1: not told
  std::vector<std::uint64_t> digests_;  // the same
  std::vector<std::int64_t> missing_;   // images, by request
  std::uint64_t next_ = 0;              // the first request that is not written
  std::optional<penstock::programs::OutputFile> file_;
  examples::Progress progress_;
};

}  // namespace resnet::rungs
