// SPDX-License-Identifier: Apache-2.0
#pragma once

// Audit: is everything delivered, once, and whole? The consumer's thread compares each ticket with
// what the sampler names; the device checks each byte of each batch, in the order of the consumer's
// stream, and adds up what it saw.
//
//   Audit audit(sampler);
//   while (auto batch = prefetcher.next(stream)) audit.take(batch, stream);
//   audit.finish();                                  // waits for the device; throws

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "rows.hpp"

namespace penstock::test {

/// Sums, in memory of the device.
struct Findings {
  std::uint64_t rows = 0;
  std::uint64_t torn = 0;    // words that are not what their sample has there
  std::uint64_t digest = 0;  // of (sample, place), whatever the order
};

PENSTOCK_LOAD_HOST_DEVICE inline std::uint64_t row_digest(std::uint64_t sample,
                                                          std::uint64_t place) {
  return scrambled(scrambled(place + 1) ^ sample);
}

/// For each word of a batch.
struct CheckRows {
  Rows rows;
  Findings* findings;

  PENSTOCK_LOAD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t width = rows.words.extent(1), row = i / width, column = i % width;
    const std::uint64_t sample = rows.sample(row);
    if (rows.words(row, column) != word_of(sample, column)) add(findings->torn, 1);
    if (column != 0) return;
    add(findings->rows, 1);
    add(findings->digest, row_digest(sample, rows.place(row)));
  }

  PENSTOCK_LOAD_HOST_DEVICE static void add(std::uint64_t& sum, std::uint64_t value) {
#ifdef __CUDA_ARCH__
    atomicAdd(reinterpret_cast<unsigned long long*>(&sum), value);
#else
    std::atomic_ref<std::uint64_t>(sum).fetch_add(value, std::memory_order_relaxed);
#endif
  }
};

/// For one consumer's thread. Belongs to the device that is current where it is made.
class Audit {
 public:
  explicit Audit(const Sampler& sampler) : sampler_(sampler) {
    detail::check(cudaMalloc(reinterpret_cast<void**>(&findings_), sizeof(Findings)), "cudaMalloc");
    detail::check(cudaMemset(findings_, 0, sizeof(Findings)), "cudaMemset");
    detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  ~Audit() { cudaFree(findings_); }
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  /// The next batch that is expected, over all epochs.
  std::uint64_t next() const noexcept { return next_; }
  /// After a restore, or where a batch failed.
  void expect(std::uint64_t next) noexcept { next_ = next; }
  std::uint64_t rows() const noexcept { return expected_.rows; }

  /// The lease holds the next batch, of the samples that the sampler names: throws
  /// std::runtime_error where it does not. Queues the check of its bytes.
  void take(const Lease<Rows>& lease, cudaStream_t stream) {
    note(lease);
    check_on(stream, lease);
  }
  /// The first half of it.
  void note(const Lease<Rows>& lease) {
    sampler_.samples(next_ / sampler_.batches(), next_ % sampler_.batches(), samples_);
    note(lease, samples_);
  }
  /// The samples are `expected` instead: some may have failed.
  void note(const Lease<Rows>& lease, const std::vector<std::uint64_t>& expected) {
    const Ticket& ticket = lease.ticket();
    const std::uint64_t place = ticket.epoch * sampler_.batches() + ticket.batch;
    if (place != next_)
      throw std::runtime_error("batch " + std::to_string(place) + " came where " +
                               std::to_string(next_) + " was expected");
    if (!std::equal(ticket.samples.begin(), ticket.samples.end(), expected.begin(), expected.end()))
      throw std::runtime_error("batch " + std::to_string(place) + " is not of its samples");
    add(lease);
    ++next_;
  }
  /// For batches that come in any order.
  void add(const Lease<Rows>& lease) {
    const Ticket& ticket = lease.ticket();
    const std::uint64_t place = ticket.epoch * sampler_.batches() + ticket.batch;
    if (lease->sample.extent(0) != static_cast<std::int64_t>(ticket.samples.size()))
      throw std::runtime_error("batch " + std::to_string(place) + " has " +
                               std::to_string(lease->sample.extent(0)) + " rows for " +
                               std::to_string(ticket.samples.size()) + " samples");
    expected_.rows += ticket.samples.size();
    for (const std::uint64_t sample : ticket.samples) expected_.digest += row_digest(sample, place);
  }
  /// The second half: no call but launches, so that it may be captured.
  void check_on(cudaStream_t stream, const Lease<Rows>& lease) const {
    for_each(stream, lease->words.extent(0) * lease->words.extent(1), check(*lease));
  }
  CheckRows check(const Rows& rows) const { return {rows, findings_}; }

  /// Waits for all streams of the device, which must be current. Throws std::runtime_error when the
  /// device saw other rows than the tickets named, or a torn one.
  void finish() const {
    Findings seen;
    detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    detail::check(cudaMemcpy(&seen, findings_, sizeof seen, cudaMemcpyDefault), "cudaMemcpy");
    if (seen.torn != 0) throw std::runtime_error(std::to_string(seen.torn) + " words are torn");
    if (seen.rows != expected_.rows)
      throw std::runtime_error("the device saw " + std::to_string(seen.rows) + " rows of " +
                               std::to_string(expected_.rows));
    if (seen.digest != expected_.digest)
      throw std::runtime_error("the device saw other rows than the tickets named");
  }

 private:
  const Sampler sampler_;
  Findings* findings_ = nullptr;
  Findings expected_;
  std::uint64_t next_ = 0;
  std::vector<std::uint64_t> samples_;
};

}  // namespace penstock::test
