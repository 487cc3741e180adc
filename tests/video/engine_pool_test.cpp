// SPDX-License-Identifier: Apache-2.0

// EnginePool: how many engines there are, and who waits for one. The engines decode nothing.

#include "video/engine_pool.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <penstock/images/image_error.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

class NoEngine final : public FrameEngine {
 public:
  std::size_t surfaces() const noexcept override { return 2; }
  void decode(const Video&, std::span<const std::uint64_t>, cudaStream_t, EngineSink&,
              const std::stop_token&) override {}
  void give_back(const std::uint8_t*) noexcept override {}
};

class CountingMaker final : public EngineMaker {
 public:
  CountingMaker(int engines, std::atomic<int>& made) : engines_(engines), made_(made) {}
  std::string why_not(const VideoStream& stream) override {
    return stream.codec == Codec::av1 ? "no AV1" : "";
  }
  int engines(const VideoStream&) override { return engines_; }
  std::unique_ptr<FrameEngine> make() override {
    ++made_;
    return std::make_unique<NoEngine>();
  }

 private:
  const int engines_;
  std::atomic<int>& made_;
};

TEST_CASE("an EnginePool has two decoders for each engine, and makes them when they are needed",
          "[video]") {
  std::atomic<int> made = 0;
  EnginePool pool(std::make_unique<CountingMaker>(2, made));
  VideoStream stream;
  stream.codec = Codec::h264;
  CHECK(pool.why_not(stream).empty());
  stream.codec = Codec::av1;
  CHECK(pool.why_not(stream) == "no AV1");
  CHECK(made == 0);
  std::vector<EnginePool::Lease> leases;
  for (int i = 0; i < 4; ++i) leases.push_back(pool.take({}, false, {}));
  CHECK(std::ranges::none_of(leases, [](const auto& lease) { return lease == nullptr; }));
  CHECK(pool.take({}, false, {}) == nullptr);
  const FrameEngine* const given_back = leases.back().get();
  leases.pop_back();
  CHECK(pool.take({}, false, {}).get() == given_back);
  CHECK(made == 4);
}

TEST_CASE("whoever waits for an engine gets the next that is given back", "[video]") {
  std::atomic<int> made = 0, used = 0, most = 0;
  EnginePool pool(std::make_unique<CountingMaker>(1, made));
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i)
      threads.emplace_back([&] {
        for (int k = 0; k < 200; ++k) {
          const EnginePool::Lease lease = pool.take({}, true, {});
          const int now = ++used;
          for (int known = most; known < now && !most.compare_exchange_weak(known, now);) {
          }
          --used;
        }
      });
  }
  CHECK(most <= 2);
  CHECK(made <= 2);
}

TEST_CASE("a stop ends the wait for an engine", "[video]") {
  std::atomic<int> made = 0;
  EnginePool pool(std::make_unique<CountingMaker>(1, made));
  const EnginePool::Lease first = pool.take({}, true, {}), second = pool.take({}, true, {});
  std::stop_source stop;
  std::jthread stops([&] { stop.request_stop(); });
  CHECK_THROWS_AS(pool.take({}, true, stop.get_token()), images::DecodeStopped);
}

}  // namespace
}  // namespace penstock::video
