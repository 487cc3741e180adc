// SPDX-License-Identifier: Apache-2.0

// The events of a sample belong to whoever measures a batch, then to whoever reads the times, then
// to the next batch. The instant runtime notes each record of an event, and each question for its
// time.

#include "replace_std.hpp"
//
#include <penstock/detail/observe/device_samples.hpp>

#include "instant_cuda.hpp"

using penstock::Stream;
using penstock::detail::DeviceSamples;
using penstock::detail::DeviceSums;
using penstock::detail::Ticks;
using penstock::detail::Timeline;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using Kind = DeviceSamples::Kind;

namespace {

DeviceSamples::Copy begin(DeviceSamples& samples, cudaStream_t stream, Ticks now) {
  DeviceSamples::Copy copy = samples.want(stream, now);
  samples.begin(copy);
  return copy;
}

constexpr Ticks kLong = 1'000'000'000'000;  // The budget is full again.

bool stage(DeviceSamples& samples, const Stream& stream, std::uint64_t order) {
  const Ticks now = penstock::detail::ticks() + static_cast<Ticks>(order + 1) * kLong;
  DeviceSamples::Copy copy = begin(samples, stream.get(), now);
  const bool is_measured = copy != nullptr;
  samples.arrive(copy);
  samples.end(copy);
  samples.hand_in(std::move(copy), order, now);
  return is_measured;
}

void take(DeviceSamples& samples, const Stream& stream, std::uint64_t order) {
  samples.ask(stream.get(), order);
  samples.find(stream.get());
  samples.take(stream.get(), order);
}

}  // namespace

TEST_CASE("weak: a sample of a copy is used again when its times were read", "[device_samples]") {
  explore([] {
    Timeline timeline(1);
    DeviceSamples samples(timeline, Kind::on_device, 1, false);
    const Stream stream, other;
    std::array<DeviceSamples::Copy, 15> held;  // One is left.
    for (DeviceSamples::Copy& copy : held)
      copy = begin(samples, stream.get(), penstock::detail::ticks());
    expect(held.back() != nullptr, "it is measured");
    expect(stage(samples, stream, 1), "so is the last one");
    std::thread reader([&] { samples.collect(); });
    std::thread worker([&] { stage(samples, other, 2); });
    stage(samples, stream, 3);
    worker.join();
    reader.join();
    samples.collect();
    const DeviceSums sums = samples.sums();
    expect(sums.copy.timed >= 1 && sums.copy.timed <= 3, "each is read once");
  });
}

TEST_CASE("weak: a sample that is dropped is another worker's", "[device_samples]") {
  explore([] {
    Timeline timeline(1);
    DeviceSamples samples(timeline, Kind::on_device, 1, false);
    const Stream stream, other;
    std::array<DeviceSamples::Copy, 15> held;  // One is left.
    for (DeviceSamples::Copy& copy : held)
      copy = begin(samples, stream.get(), penstock::detail::ticks());
    std::thread worker([&] {
      begin(samples, other.get(), penstock::detail::ticks() + kLong).reset();  // Its batch fails.
    });
    begin(samples, stream.get(), penstock::detail::ticks() + 2 * kLong).reset();
    worker.join();
    expect(begin(samples, stream.get(), penstock::detail::ticks() + 3 * kLong) != nullptr,
           "it is free again");
  });
}

TEST_CASE("weak: a sample of a take is used again when it begins no other one's step",
          "[device_samples]") {
  explore([] {
    Timeline timeline(1);
    DeviceSamples samples(timeline, Kind::copies, 1, false);
    const Stream stream;
    std::uint64_t order = 0;
    for (; order < 24; ++order) {  // All of them are in use.
      expect(stage(samples, stream, order) || order >= 16, "takes are measured");
      take(samples, stream, order);
    }
    std::thread reader([&] { samples.collect(); });
    for (; order < 26; ++order) take(samples, stream, order);
    reader.join();
    samples.collect();
    const DeviceSums sums = samples.sums();
    expect(sums.times.batches >= 23 && sums.times.batches <= sums.waits.batches &&
               sums.waits.batches <= 25,
           "each is read once");
  });
}
