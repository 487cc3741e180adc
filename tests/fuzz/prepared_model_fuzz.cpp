// SPDX-License-Identifier: Apache-2.0

// model_of: a prepared model's notes and tensors. The input is its notes; the file has no tensors,
// or those of the input where it is a whole file.

#include <string>
#include <string_view>
#include <vector>

#include "fuzz.hpp"
#include "resnet/infer/model.hpp"

namespace safetensors = resnet::safetensors;
using penstock::test::require;

namespace {

void look_at(const safetensors::File& file) {
  try {
    const resnet::Model model = resnet::model_of(file);
    require(!model.convolutions.empty(), "a model has convolutions");
  } catch (const safetensors::FormatError& error) {
    require(std::string_view(error.what()).size() < 2000, "a message is short");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  safetensors::File notes;
  notes.path = "input";
  notes.metadata["penstock.inference"] = std::string(reinterpret_cast<const char*>(data), size);
  look_at(notes);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  try {
    look_at(safetensors::parse({bytes, bytes + size}, "input"));
  } catch (const safetensors::FormatError&) {
  }
  return 0;
}
