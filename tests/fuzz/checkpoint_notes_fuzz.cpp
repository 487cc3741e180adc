// SPDX-License-Identifier: Apache-2.0

// A checkpoint's notes: refused with a message, or in their ranges.

#include <cmath>
#include <string>
#include <string_view>

#include "fuzz.hpp"
#include "resnet/model/checkpoint.hpp"
#include "resnet/model/safetensors.hpp"

using penstock::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  resnet::safetensors::File file;
  file.path = "input";
  file.metadata["penstock"] = std::string(reinterpret_cast<const char*>(data), size);
  resnet::NetworkState state;
  try {
    const resnet::CheckpointNotes notes = resnet::read_notes(file, state);
    require(state.step >= 0 && state.loss_scale.good_steps >= 0 && state.loss_scale.skipped >= 0,
            "counters are none below 0");
    require(state.loss_scale.scale > 0 && std::isfinite(state.loss_scale.scale),
            "a scale is positive");
    if (notes.sgd)
      require(std::isfinite(notes.sgd->schedule.base) && notes.sgd->momentum >= 0 &&
                  notes.sgd->momentum <= 1 && notes.sgd->growth_interval > 0 &&
                  notes.sgd->schedule.decay <= resnet::Decay::constant,
              "options are in their ranges");
  } catch (const resnet::safetensors::FormatError& error) {
    require(std::string_view(error.what()).starts_with("input: "), "a message names the file");
    require(std::string_view(error.what()).size() < 2000, "a message is short");
  }
  return 0;
}
