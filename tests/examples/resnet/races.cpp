// SPDX-License-Identifier: Apache-2.0

// resnet_races <scenario> right|wrong
//
// Mistakes in the order of the reference operations. As in tests/emulation/races: under
// ThreadSanitizer the wrong version must be reported as a data race, under every schedule, and the
// right one, which makes the second stream wait for the first, must not. The loops of the
// operations are not instrumented: what is reported is what the operations tell.

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <penstock/cuda.hpp>
#include <string_view>
#include <vector>

#include "../../../examples/resnet/model/device_array.hpp"
#include "../../../examples/resnet/ops/inference.hpp"
#include "../../../examples/resnet/ops/ops.hpp"

namespace {

using resnet::DeviceArray;

constexpr resnet::ConvolutionShape shape{
    .in = {.n = 2, .c = 8, .h = 6, .w = 6}, .k = 8, .kernel = 3, .padding = 1};

enum class Version { right, wrong };

/// Two streams, and a convolution's operands.
struct Problem {
  penstock::Stream first, second;
  penstock::Event done;
  DeviceArray<float> x{shape.in.count()}, weights{shape.weights()}, y{shape.out().count()};

  ~Problem() { cudaDeviceSynchronize(); }

  /// What `first` holds now comes before what `second` is given next; or does not.
  void hand_over(Version version) {
    done.record(first.get());
    if (version == Version::right) done.make_wait(second.get());
  }
};

/// by a copy, while a convolution may still read it.
void overwrite_input(Version version) {
  Problem at;
  const std::vector<float> next(at.x.size());
  const auto ops = resnet::make_operations({});
  ops->convolution(shape, at.x.data(), at.weights.data(), at.y.data(), at.first.get());
  at.hand_over(version);
  at.x.set(next, at.second.get());
}

/// by a pooling, while a convolution may still write it.
void read_output(Version version) {
  Problem at;
  DeviceArray<float> means{shape.in.n * shape.k};
  const auto ops = resnet::make_operations({}), others = resnet::make_operations({});
  ops->convolution(shape, at.x.data(), at.weights.data(), at.y.data(), at.first.get());
  at.hand_over(version);
  others->average_pool(shape.out(), at.y.data(), means.data(), at.second.get());
}

/// of one object, by convolutions that have nothing else in common.
void share_workspace(Version version) {
  Problem at, other;
  const auto ops = resnet::make_operations({});
  ops->convolution(shape, at.x.data(), at.weights.data(), at.y.data(), at.first.get());
  at.hand_over(version);
  ops->convolution(shape, other.x.data(), other.weights.data(), other.y.data(), at.second.get());
}

/// by the conversion of the next images, while an inference's convolution may still read it.
void overwrite_images(Version version) {
  Problem at;
  DeviceArray<std::uint8_t> images{shape.in.count() / 2};
  DeviceArray<float> bias{shape.k};
  const resnet::InferenceConvolution convolution{.shape = shape};
  const auto plans = resnet::make_inference_plans({});
  plans->prepare(convolution);
  const auto ops = plans->make_operations(), others = plans->make_operations();
  ops->convolution(convolution, at.x.data(), {.weights = at.weights.data(), .bias = bias.data()},
                   nullptr, at.y.data(), at.first.get());
  at.hand_over(version);
  others->convert({.images = {.n = 2, .c = 4, .h = 6, .w = 6}}, images.data(), at.x.data(),
                  at.second.get());
}

struct Scenario {
  std::string_view name;
  void (*run)(Version);
};

constexpr std::array scenarios{
    Scenario{"overwrite_input", overwrite_input},
    Scenario{"read_output", read_output},
    Scenario{"share_workspace", share_workspace},
    Scenario{"overwrite_images", overwrite_images},
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view name = argc == 3 ? argv[1] : "", version = argc == 3 ? argv[2] : "";
  for (const Scenario& scenario : scenarios) {
    if (scenario.name != name) continue;
    scenario.run(version == "wrong" ? Version::wrong : Version::right);
    std::puts("ran to its end");
    return 0;
  }
  std::fputs("usage: resnet_races <scenario> right|wrong\n", stderr);
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
