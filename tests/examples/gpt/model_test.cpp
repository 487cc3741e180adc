// SPDX-License-Identifier: Apache-2.0

// The model of examples/gpt against PyTorch's vectors (make_vectors.py), on the host or on a GPU.

#include "../../../examples/gpt/model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <penstock/cuda.hpp>
#include <span>
#include <string>
#include <vector>

#include "../../../examples/gpt/arena.hpp"
#include "../../support/catch.hpp"

namespace gpt::test {
namespace {

using Json = nlohmann::json;
using Values = std::vector<double>;

Json read_vectors() {
  std::ifstream file(GPT_VECTORS);
  REQUIRE(file);
  return Json::parse(file);
}

ModelOptions options_of(const Json& vectors) {
  const Json& options = vectors["options"];
  return {options["layers"], options["heads"],      options["channels"],
          options["length"], options["vocabulary"], options["batch"]};
}

/// A batch on the device.
class Batch {
 public:
  explicit Batch(const ModelOptions& options) : options_(options) {
    const auto place = [&] {
      for (std::int32_t*& field : fields_)
        field = arena_.take<std::int32_t>(options.batch * options.length);
    };
    place();
    arena_.allocate();
    place();
  }

  Sequences copy(const Json& step, cudaStream_t stream) {
    const char* const names[] = {"tokens", "targets", "positions"};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::vector<std::int32_t> values = step[names[i]];
      REQUIRE_CUDA(cudaMemcpyAsync(fields_[i], values.data(), values.size() * sizeof(values[0]),
                                   cudaMemcpyHostToDevice, stream));
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
    }
    return {field(0), field(1), field(2)};
  }

 private:
  penstock::Tensor<std::int32_t, 2> field(std::size_t i) const {
    return penstock::Tensor<std::int32_t, 2>(fields_[i], options_.batch, options_.length);
  }

  ModelOptions options_;
  Arena arena_;
  std::int32_t* fields_[3] = {};
};

Metrics read(const Metrics* device, cudaStream_t stream) {
  Metrics metrics;
  REQUIRE_CUDA(cudaMemcpyAsync(&metrics, device, sizeof(metrics), cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  return metrics;
}

double norm(const Values& values, const Parameter& parameter) {
  double squares = 0;
  for (const double value : std::span(values).subspan(static_cast<std::size_t>(parameter.begin),
                                                      static_cast<std::size_t>(parameter.size())))
    squares += value * value;
  return std::sqrt(squares);
}

/// `numbers` has the norm of each parameter, by its name without ".weight".
void check_norms(const Values& values, const ModelOptions& options, const Json& numbers,
                 double error) {
  for (const Parameter& parameter : parameters_of(options)) {
    const std::string name = parameter.name.substr(0, parameter.name.rfind(".weight"));
    INFO(name);
    CHECK(norm(values, parameter) == Approx(numbers.at(name).get<double>()).epsilon(error));
  }
}

/// Trains as PyTorch did. The errors are relative.
void compare(Precision precision, double loss_error, double norm_error, double gradient_error) {
  const Json vectors = read_vectors();
  const ModelOptions options = options_of(vectors);
  const penstock::Stream stream;
  const auto model = make_model(options, precision, vectors["seed"]);
  Batch batch(options);
  std::int64_t number = 0;
  for (const Json& step : vectors["steps"]) {
    const Sequences sequences = batch.copy(step, stream.get());
    model->forward(sequences, stream.get());
    model->backward(sequences, stream.get());
    if (number == 0)
      check_norms(model->gradients(stream.get()), options, vectors["first_gradients"],
                  gradient_error);
    model->update({.step = ++number, .rate = vectors["rate"], .clip = vectors["clip"]},
                  stream.get());
    const Metrics metrics = read(model->metrics(), stream.get());
    INFO("step " << number);
    CHECK(metrics.loss == Approx(step["loss"].get<double>()).epsilon(loss_error));
    CHECK(metrics.gradient_norm == Approx(step["norm"].get<double>()).epsilon(norm_error));
    const std::vector<std::int32_t> targets = step["targets"];
    CHECK(metrics.targets ==
          static_cast<double>(targets.size()) -
              static_cast<double>(std::count(targets.begin(), targets.end(), -100)));
  }
  check_norms(model->weights(stream.get()), options, vectors["last_weights"], norm_error);
}

#ifndef GPT_ON_A_GPU
TEST_CASE("in float64 the model trains as PyTorch does") {
  compare(Precision::fp64, 1e-10, 1e-9, 1e-9);
}
#endif
TEST_CASE("in float32 the model trains as PyTorch does") {
  compare(Precision::fp32, 1e-4, 1e-3, 1e-4);
}
TEST_CASE("in bfloat16 the model trains about as PyTorch does in float64") {
  compare(Precision::bf16, 0.02, 0.1, 0.05);
}

TEST_CASE("sizes that do not fit together are refused by name") {
  CHECK_THROWS_WITH(make_model({.heads = 5, .channels = 12}, Precision::fp32, 1),
                    "12 channels cannot be shared by 5 heads");
  CHECK_THROWS_WITH(make_model({.layers = 0}, Precision::fp32, 1), "there are no layers");
  const ModelOptions small{1, 1, 8, 4, 10, 2};
  const auto model = make_model(small, Precision::fp32, 1);
  Batch batch(ModelOptions{1, 1, 8, 5, 10, 2});
  const Json step{{"tokens", Values(10, 1)}, {"targets", Values(10, 1)}, {"positions", Values(10)}};
  const penstock::Stream stream;
  CHECK_THROWS_WITH(model->forward(batch.copy(step, stream.get()), stream.get()),
                    "the batch is not one of 2 sequences of 4 tokens");
}

}  // namespace
}  // namespace gpt::test
