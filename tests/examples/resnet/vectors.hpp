// SPDX-License-Identifier: Apache-2.0
#pragma once

// What PyTorch computed (vectors/), and how far we may be from it. The truth is PyTorch in float64;
// the error allowed is twice that of PyTorch in float32, which is a straightforward computation in
// our precision, and three times for fewer digits; half as much again behind ten steps, each of
// which magnifies what the one before left.
//
// With fewer digits the measure is the largest error of the precisions that have at least as many:
// where rounding moves an input of ReLU across 0, which costs the gradients about as much whatever
// the precision, is luck, and a precision that was lucky would be no measure.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../../support/catch.hpp"
#include "training.hpp"

namespace resnet::test {

using Json = nlohmann::json;
using Values = std::vector<double>;
using Digests = std::vector<Values>;  // of each tensor: norm, mean, elements

inline Json read_vectors(const std::string& name) {
  std::ifstream file(std::string(RESNET_VECTORS) + "/" + name + ".json");
  REQUIRE(file);
  return Json::parse(file);
}

/// Of a tensor with elements at(0), at(1), ...
template <class At>
Values digest(std::size_t tensor, std::int64_t count, const At& at) {
  double squares = 0, sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    squares += at(i) * at(i);
    sum += at(i);
  }
  Values values{std::sqrt(squares), sum / static_cast<double>(count)};
  for (std::uint64_t i = 0; i < 4; ++i)
    values.push_back(at(static_cast<std::int64_t>(mix(mix(5000 + tensor) ^ i) %
                                                  static_cast<std::uint64_t>(count))));
  return values;
}

inline Digests digests(const ParameterTable& table, const std::vector<float>& block) {
  Digests all;
  for (const Parameter& parameter : table.parameters())
    all.push_back(digest(all.size(), parameter.count(), [&](std::int64_t i) {
      return static_cast<double>(block[size(table.place(parameter, i))]);
    }));
  return all;
}

inline Digests statistic_digests(const ParameterTable& table, const std::vector<float>& block) {
  Digests all;
  for (const Statistic& statistic : table.statistics())
    all.push_back(digest(all.size(), statistic.channels, [&](std::int64_t i) {
      return static_cast<double>(block[size(statistic.offset + i)]);
    }));
  return all;
}

/// Root mean square of the differences, relative to that of the truth.
inline double error(const Values& values, const Values& truth) {
  REQUIRE(values.size() == truth.size());
  double wrong = 0, all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += (values[i] - truth[i]) * (values[i] - truth[i]);
    all += truth[i] * truth[i];
  }
  return std::sqrt(wrong / all);
}

/// Of all tensors, each relative to its own size (a gradient that is 0 but for rounding: relative
/// to a thousandth of what they are on the average).
inline double error(const Digests& values, const Digests& truth,
                    const std::vector<std::int64_t>& counts) {
  REQUIRE(values.size() == truth.size());
  Values sizes;  // root mean squares
  double average = 0;
  for (std::size_t tensor = 0; tensor < truth.size(); ++tensor) {
    sizes.push_back(truth[tensor][0] / std::sqrt(static_cast<double>(counts[tensor])));
    average += sizes.back() / static_cast<double>(truth.size());
  }
  double wrong = 0;
  for (std::size_t tensor = 0; tensor < truth.size(); ++tensor)
    for (std::size_t i = 0; i < truth[tensor].size(); ++i) {
      const double unit = i == 0 ? std::sqrt(static_cast<double>(counts[tensor])) : 1;  // the norm
      const double relative =
          (values[tensor][i] - truth[tensor][i]) / unit / std::max(sizes[tensor], 1e-3 * average);
      wrong += relative * relative;
    }
  return std::sqrt(wrong / static_cast<double>(truth.size() * truth[0].size()));
}

class Comparison {
 public:
  Comparison(const std::string& name, Precision precision)
      : vectors_(read_vectors(name)), precision_(precision) {}

  std::uint64_t batch_seed() const { return vectors_["batch_seed"]; }
  float rate() const { return vectors_["rate"]; }

  void check(const char* what, const Values& ours, bool after_ten_steps) const {
    check_errors(what, after_ten_steps, ours,
                 [](const Values& a, const Values& truth) { return error(a, truth); });
  }
  void check(const char* what, const Digests& ours, const std::vector<std::int64_t>& counts,
             bool after_ten_steps) const {
    check_errors(what, after_ten_steps, ours,
                 [&](const Digests& a, const Digests& truth) { return error(a, truth, counts); });
  }

 private:
  /// Of the straightforward computations that are our measure.
  std::vector<std::string> measures() const {
    if (precision_ == Precision::fp32) return {"float32"};
    if (precision_ == Precision::bf16) return {"tfloat32", "float16", "bfloat16"};
    return {"tfloat32", "float16"};
  }

  template <class Numbers, class Error>
  void check_errors(const char* what, bool after_ten_steps, const Numbers& ours,
                    const Error& error_of) const {
    const Numbers truth = vectors_["float64"][what];
    const double our_error = error_of(ours, truth);
    double theirs = 0;
    for (const std::string& precision : measures())
      theirs = std::max(theirs, error_of(vectors_[precision][what].get<Numbers>(), truth));
    const double factor = (precision_ == Precision::fp32 ? 2 : 3) * (after_ten_steps ? 1.5 : 1);
    INFO(what << ": our error " << our_error << ", PyTorch's " << theirs);
    CHECK(our_error <= factor * theirs);
    CHECK(theirs < (precision_ == Precision::fp32 ? 1e-4 : 0.2));  // else it would be no measure
  }

  Json vectors_;
  Precision precision_;
};

inline Values in_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace resnet::test
