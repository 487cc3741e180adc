// SPDX-License-Identifier: Apache-2.0
#pragma once

// The modes that the linked operations compute differently in, for tests that run over either:
//
//   for (const Settings& settings : every_mode()) {
//     INFO(describe(settings));
//     Training training(options, settings);
//   }

#include <string>
#include <vector>

#include "../../../examples/resnet/ops/ops.hpp"

namespace resnet::test {

/// The reference computes in float, and has fewer modes.
inline bool on_reference() {
  return operations_name().starts_with("reference");
}

inline std::string describe(const Settings& settings) {
  const char* const precisions[] = {"fp32", "tf32", "fp16", "bf16"};
  const char* const fusions[] = {"", ", elementwise fusion", ", full fusion"};
  return std::string(precisions[static_cast<int>(settings.precision)]) +
         (settings.format == Format::nhwc ? ", nhwc" : ", nchw") +
         fusions[static_cast<int>(settings.fusion)];
}

/// Deterministic where that leaves something of the fusion: two runs have the same bits.
inline std::vector<Settings> every_mode() {
  std::vector<Precision> precisions{Precision::fp32};
  if (!on_reference())
    precisions.insert(precisions.end(), {Precision::tf32, Precision::fp16, Precision::bf16});
  std::vector<Settings> modes;
  for (const Precision precision : precisions)
    for (const Format format : {Format::nchw, Format::nhwc})
      for (const Fusion fusion : {Fusion::none, Fusion::full})
        modes.push_back({.precision = precision,
                         .format = format,
                         .fusion = fusion,
                         .deterministic = fusion != Fusion::full});
  return modes;
}

}  // namespace resnet::test
