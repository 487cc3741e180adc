// SPDX-License-Identifier: Apache-2.0

#include "decode_share.hpp"

#include <chrono>
#include <cstdint>

#include "support/catch.hpp"

namespace penstock::images {
namespace {

using namespace std::chrono_literals;

int drawn(const DecodeShare& share) {
  int number = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) number += share.draws_cpu(seed) ? 1 : 0;
  return number;
}

TEST_CASE("DecodeShare draws its share of the seeds", "[images][decode_share]") {
  CHECK(drawn(DecodeShare(0)) == 0);
  CHECK(drawn(DecodeShare(1)) == 10'000);
  CHECK(drawn(DecodeShare(0.3)) == Approx(3000).margin(150));
  // Who is drawn with a smaller share is drawn with a larger one.
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    CHECK((!DecodeShare(0.3).draws_cpu(seed) || DecodeShare(0.4).draws_cpu(seed)));
}

TEST_CASE("DecodeShare adapts until both take the same time", "[images][decode_share]") {
  DecodeShare share(0.5);
  const double cpu_rate = 300, engine_rate = 1700;
  for (int batch = 0; batch < 60; ++batch) {
    const double images = 256 * share.value();
    share.adapt({static_cast<std::size_t>(images), images / cpu_rate * 1s},
                {static_cast<std::size_t>(256 - images), (256 - images) / engine_rate * 1s});
  }
  CHECK(share.value() == Approx(0.15).margin(0.005));
}

TEST_CASE("DecodeShare: a decoder that nothing is known of keeps some images",
          "[images][decode_share]") {
  DecodeShare none(0), all(1);
  for (int batch = 0; batch < 3; ++batch) {
    none.adapt({0, 0s}, {256, 1s});
    all.adapt({256, 1s}, {3, 1s});
  }
  CHECK(none.value() == 0.02);
  CHECK(all.value() == 0.98);
}

}  // namespace
}  // namespace penstock::images
