// SPDX-License-Identifier: Apache-2.0

#include "answers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "../agreement.hpp"

namespace resnet::rungs {
namespace {

std::uint64_t word_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
std::uint64_t word_of(std::uint64_t value) {
  return value;
}
std::uint64_t word_of(std::int32_t value) {
  return static_cast<std::uint64_t>(value);
}

/// FNV-1a (Fowler, Noll, Vo), by words in place of bytes.
template <class Values>
std::uint64_t digest_of(const Values& values) {
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const auto value : values) digest = (digest ^ word_of(value)) * 0x100000001b3;
  return digest;
}

std::string in_hex(std::uint64_t digest) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

}  // namespace

Answers::Answers(const Requests& requests, std::int64_t classes, const std::filesystem::path& file)
    : requests_(requests),
      width_(classes),
      classes_(requests.images(), -1),
      digests_(requests.images()),
      progress_("requests", requests.count) {
  for (std::uint64_t request = 0; request < requests_.count; ++request)
    missing_.push_back(requests_.size(request));
  if (!file.empty()) file_.emplace(file);
}

void Answers::tell(std::uint64_t request, std::int64_t first, std::span<const float> logits) {
  const auto width = static_cast<std::size_t>(width_);
  const auto count = static_cast<std::int64_t>(logits.size() / width);
  const std::lock_guard lock(mutex_);
  if (first + count > requests_.size(request) || count > missing_[request])
    throw std::logic_error("images " + std::to_string(first) + " to " +
                           std::to_string(first + count - 1) + " of request " +
                           std::to_string(request) + ", of which " +
                           std::to_string(missing_[request]) + " are not answered");
  const std::uint64_t start = requests_.first_image(request) + static_cast<std::uint64_t>(first);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    tell_image(start + i, logits.subspan(i * width, width));
  missing_[request] -= count;
  while (next_ < requests_.count && missing_[next_] == 0) write_next();
}

void Answers::tell_image(std::size_t image, std::span<const float> logits) {
  if (classes_[image] >= 0)
    throw std::logic_error("image " + std::to_string(image) + " is answered twice");
  if (!std::all_of(logits.begin(), logits.end(), [](float value) { return std::isfinite(value); }))
    throw std::runtime_error("the logits of image " + std::to_string(image) + " are no numbers");
  digests_[image] = digest_of(logits);
  classes_[image] = static_cast<std::int32_t>(top_1(logits));
}

void Answers::write_next() {
  const std::uint64_t first = requests_.first_image(next_++);
  if (file_)
    for (std::uint64_t image = first; image < requests_.first_image(next_); ++image)
      file_->write(std::to_string(image) + ' ' + std::to_string(classes_[image]) + '\n');
  progress_.to(next_);
}

void Answers::close() {
  if (file_) file_->commit();
}

std::string Answers::logits_digest() const {
  return in_hex(digest_of(digests_));
}

std::string Answers::classes_digest() const {
  return in_hex(digest_of(classes_));
}

}  // namespace resnet::rungs
