// SPDX-License-Identifier: Apache-2.0
#include "latencies.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr double kFirstBound = 50e-6;  // seconds
constexpr double kBoundsForTwice = 4;
constexpr std::uint64_t kEnough = 20, kMany = 2048;

}  // namespace

void Histogram::add(Clock::duration duration) noexcept {
  const double seconds = std::chrono::duration<double>(duration).count();
  const double place =
      std::ceil(kBoundsForTwice * std::log2(std::max(seconds, kFirstBound) / kFirstBound));
  counts_[std::min(counts_.size() - 1, static_cast<std::size_t>(place))].fetch_add(
      1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
}

std::optional<Clock::duration> Histogram::quantile(double share) const noexcept {
  std::uint64_t total = 0;
  for (const auto& count : counts_) total += count.load(std::memory_order_relaxed);
  if (total == 0) return std::nullopt;
  const double wanted = share * static_cast<double>(total);
  std::uint64_t seen = 0;
  std::size_t place = 0;
  for (; place + 1 < counts_.size(); ++place) {
    seen += counts_[place].load(std::memory_order_relaxed);
    if (static_cast<double>(seen) >= wanted) break;
  }
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
      kFirstBound * std::exp2(static_cast<double>(place) / kBoundsForTwice)));
}

void Histogram::halve() noexcept {
  std::uint64_t forgotten = 0;
  for (auto& count : counts_) {
    const std::uint32_t half = count.load(std::memory_order_relaxed) / 2;
    count.fetch_sub(half, std::memory_order_relaxed);
    forgotten += half;
  }
  count_.fetch_sub(forgotten, std::memory_order_relaxed);
}

std::size_t Latencies::class_of(std::size_t bytes) noexcept {
  constexpr std::size_t kSmall = std::size_t{64} << 10;
  return std::min<std::size_t>(
      std::tuple_size_v<decltype(classes_)> - 1,
      static_cast<std::size_t>(std::bit_width((std::max<std::size_t>(bytes, 1) - 1) / kSmall)));
}

void Latencies::add(std::size_t bytes, Clock::duration duration) noexcept {
  all_.add(duration);
  Histogram& histogram = classes_[class_of(bytes)];
  histogram.add(duration);
  // Two threads that halve at the same time could forget more than there is.
  if (histogram.count() >= kMany) {
    const std::lock_guard lock(halving_);
    if (histogram.count() >= kMany) histogram.halve();
  }
}

std::optional<Clock::duration> Latencies::quantile(std::size_t bytes, double share) const noexcept {
  const Histogram& histogram = classes_[class_of(bytes)];
  if (histogram.count() < kEnough) return std::nullopt;
  return histogram.quantile(share);
}

}  // namespace penstock::remote
