// SPDX-License-Identifier: Apache-2.0
#pragma once

// How often a network for inference names the same class as the network that it was made of, before
// folding and in fp32, and how often each is right.
//
//   Agreement agreement;
//   agreement.add(logits, wanted_logits, labels, classes);         // batch by batch
//   std::printf("%.2f %%", 100 * agreement.same_part());

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace resnet {

/// The place of the largest; the first of equals.
inline std::size_t top_1(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct Agreement {
  std::int64_t images = 0, same = 0;
  std::int64_t right = 0, wanted_right = 0;  ///< of this network, and of the one it was made of

  /// Both have labels.size() x classes logits. Throws std::runtime_error for one that is not
  /// finite.
  void add(std::span<const float> logits, std::span<const float> wanted,
           std::span<const std::int32_t> labels, std::int64_t classes) {
    const auto width = static_cast<std::size_t>(classes);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const std::size_t one = checked_top_1(logits.subspan(i * width, width), "");
      const std::size_t other =
          checked_top_1(wanted.subspan(i * width, width), "the network that it was made of: ");
      const auto label = static_cast<std::size_t>(labels[i]);
      ++images;
      same += one == other;
      right += one == label;
      wanted_right += other == label;
    }
  }

  double same_part() const { return part(same); }
  double accuracy() const { return part(right); }
  double wanted_accuracy() const { return part(wanted_right); }

 private:
  std::size_t checked_top_1(std::span<const float> logits, const std::string& whose) const {
    if (!std::all_of(logits.begin(), logits.end(),
                     [](float value) { return std::isfinite(value); }))
      throw std::runtime_error(whose + "the logits of image " + std::to_string(images) +
                               " are not finite");
    return top_1(logits);
  }
  double part(std::int64_t number) const {
    return images == 0 ? 0 : static_cast<double>(number) / static_cast<double>(images);
  }
};

}  // namespace resnet
