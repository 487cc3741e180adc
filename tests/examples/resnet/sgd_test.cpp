// SPDX-License-Identifier: Apache-2.0

// The reference optimizer: schedules, the update, and the rules of the loss scale.

#include "../../../examples/resnet/ops/reference/sgd.hpp"

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "matchers.hpp"
#include "random.hpp"

namespace resnet::test {
namespace {

using reference::learning_rate;

TEST_CASE("learning rate: warm-up, cosine, steps") {
  const double base = 0.25;
  const Schedule cosine{Decay::cosine, 0.25f, 5, 105};
  CHECK(learning_rate(cosine, 0) == Approx(base / 5));
  CHECK(learning_rate(cosine, 4) == Approx(base));
  CHECK(learning_rate(cosine, 5) == Approx(base));
  CHECK(learning_rate(cosine, 30) == Approx(base * (1 + std::sqrt(0.5)) / 2));
  CHECK(learning_rate(cosine, 55) == Approx(base / 2));
  CHECK(learning_rate(cosine, 105) == Approx(0).margin(1e-12));
  CHECK(learning_rate(cosine, 1000) == Approx(0).margin(1e-12));

  const Schedule steps{Decay::steps, 0.25f, 2, 90};
  CHECK(learning_rate(steps, 0) == Approx(base / 2));
  CHECK(learning_rate(steps, 29) == Approx(base));
  CHECK(learning_rate(steps, 30) == Approx(base / 10));
  CHECK(learning_rate(steps, 59) == Approx(base / 10));
  CHECK(learning_rate(steps, 60) == Approx(base / 100));
  CHECK(learning_rate(steps, 500) == Approx(base / 100));

  const Schedule constant{Decay::constant, 0.25f, 0, 10};
  CHECK(learning_rate(constant, 0) == Approx(base));
  CHECK(learning_rate(constant, 500) == Approx(base));
}

TEST_CASE("sgd: momentum and decay, by hand, and for any number of threads") {
  constexpr std::int64_t count = 40'000;
  const std::vector<double> first = random_values(1, count), second = random_values(2, count);
  for (const int threads : {1, 2, 3}) {
    std::vector<double> w = random_values(3, count), v(w.size());
    const std::vector<double> start = w;
    const reference::Update<double> by{0.1, 0.9, 0.01, 0.5};
    reference::update(by, count, first.data(), v.data(), w.data(), threads);
    reference::update(by, count, second.data(), v.data(), w.data(), threads);
    for (std::size_t i = 0; i < w.size(); i += 997) {
      const double v1 = 0.5 * first[i] + 0.01 * start[i], w1 = start[i] - 0.1 * v1;
      const double v2 = 0.9 * v1 + 0.5 * second[i] + 0.01 * w1;
      CHECK(v[i] == Approx(v2));
      CHECK(w[i] == Approx(w1 - 0.1 * v2));
    }
  }
}

TEST_CASE("loss scale: an overflow halves it, good steps double it, and it stays finite") {
  LossScale state{1024, 0, 0, 0};
  CHECK_FALSE(reference::accept(state, false, 3));
  CHECK(state.scale == 512);
  CHECK(state.overflow == 1);
  CHECK(state.skipped == 1);
  CHECK(reference::accept(state, true, 3));
  CHECK(state.overflow == 0);
  CHECK(reference::accept(state, true, 3));
  CHECK(state.scale == 512);
  CHECK_FALSE(reference::accept(state, false, 3));  // the row begins again
  for (int i = 0; i < 2; ++i) CHECK(reference::accept(state, true, 3));
  CHECK(state.scale == 256);
  CHECK(reference::accept(state, true, 3));
  CHECK(state.scale == 512);
  CHECK(state.good_steps == 0);
  CHECK(state.skipped == 2);

  state.scale = 0x1p127f;
  for (int i = 0; i < 3; ++i) CHECK(reference::accept(state, true, 3));
  CHECK(state.scale == 0x1p127f);
}

TEST_CASE("all_finite: one infinity or NaN anywhere is found") {
  std::vector<float> values(1000, 1);
  CHECK(reference::all_finite(1000, values.data()));
  for (const std::size_t place : {0u, 500u, 999u})
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      values[place] = bad;
      CHECK_FALSE(reference::all_finite(1000, values.data()));
      values[place] = 1;
    }
}

}  // namespace
}  // namespace resnet::test
