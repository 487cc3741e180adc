// SPDX-License-Identifier: Apache-2.0

// safetensors::parse: the bytes are refused with a message, or each tensor lies within them and has
// the bytes that its shape needs; floats are finite.

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "fuzz.hpp"
#include "resnet/model/safetensors.hpp"

namespace safetensors = resnet::safetensors;
using penstock::test::require;

namespace {

void check_floats(const safetensors::File& file, const safetensors::Tensor& tensor) {
  try {
    const std::vector<float> values = file.floats(tensor);
    std::size_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= static_cast<std::size_t>(extent);
    require(values.size() == count, "a tensor has as many values as its shape says");
    require(
        std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }),
        "values are finite");
  } catch (const safetensors::FormatError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  try {
    const safetensors::File file = safetensors::parse({bytes, bytes + size}, "input");
    for (const auto& [name, tensor] : file.tensors) {
      require(name == tensor.name, "a tensor is found by its name");
      require(tensor.bytes.empty() || (tensor.bytes.data() >= file.data.data() &&
                                       tensor.bytes.data() + tensor.bytes.size() <=
                                           file.data.data() + file.data.size()),
              "a tensor is within the file");
      check_floats(file, tensor);
    }
  } catch (const safetensors::FormatError& error) {
    require(std::string_view(error.what()).starts_with("input: "), "a message names the file");
    require(std::string_view(error.what()).size() < 2000, "a message is short");
  }
  return 0;
}
