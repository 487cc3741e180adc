// SPDX-License-Identifier: Apache-2.0
#pragma once

// A batch whose contents tell whether they are right, and a sink that brings batches back from the
// device:
//
//   penstock::Prefetcher<Numbers> prefetcher{numbers_layout(16), sampler, write_numbers, {...}};
//   NumbersSink sink(16, batches);
//   while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
//   sink.wait(stream);
//   CHECK(sink.sample_numbers(0) == ...);         // and every payload was checked

#include <cstdint>
#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>
#include <vector>

#include "catch.hpp"
#include "memory.hpp"

namespace penstock::test {

inline constexpr std::int64_t kPayload = 7;  // odd, so that fields need padding

struct Numbers {
  Tensor<std::uint64_t, 1> sample;   // its number in the data set
  Tensor<std::uint32_t, 2> payload;  // sample x kPayload: a hash of number and place
  std::uint64_t seed = 0;            // a plain value that travels with the batch
};

inline std::uint32_t payload_of(std::uint64_t sample, std::int64_t place) {
  std::uint64_t x =
      (sample + 1) * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(place) * 0xD1B54A32D192ED03u;
  x ^= x >> 29;
  return static_cast<std::uint32_t>(x * 0xBF58476D1CE4E5B9u >> 32);
}

inline Layout<Numbers> numbers_layout(std::int64_t batch_size) {
  return Layout<Numbers>{batch_size}
      .field(&Numbers::sample, {})
      .field(&Numbers::payload, {kPayload});
}

inline Sampler sequential(std::uint64_t samples, std::int64_t batch_size) {
  return Sampler{{.samples = samples, .batch_size = batch_size}};
}

inline Sampler shuffled(std::uint64_t samples, std::int64_t batch_size) {
  return Sampler{{.samples = samples, .batch_size = batch_size, .shuffle = true, .seed = 11}};
}

inline void write_numbers(const Ticket& ticket, Numbers& batch) {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    batch.sample(row) = ticket.samples[i];
    for (std::int64_t j = 0; j < kPayload; ++j)
      batch.payload(row, j) = payload_of(ticket.samples[i], j);
  }
  batch.seed = ticket.seed;
}

/// Copies every batch that it takes to a place of its own in host memory, in stream order.
class NumbersSink {
 public:
  NumbersSink(std::int64_t batch_size, std::size_t batches)
      : batch_size_(batch_size),
        samples_(batches * static_cast<std::size_t>(batch_size)),
        payload_(samples_.bytes() / sizeof(std::uint64_t) * static_cast<std::size_t>(kPayload)) {
    counts_.reserve(batches);
  }

  /// Queues the copies on `stream`, on which the lease was got.
  void take(const Lease<Numbers>& batch, cudaStream_t stream) {
    const auto count = static_cast<std::size_t>(batch->sample.extent(0));
    const std::size_t first = counts_.size() * static_cast<std::size_t>(batch_size_);
    REQUIRE_CUDA(cudaMemcpyAsync(&samples_[first], batch->sample.data_handle(),
                                 count * sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream));
    REQUIRE_CUDA(cudaMemcpyAsync(&payload_[first * static_cast<std::size_t>(kPayload)],
                                 batch->payload.data_handle(),
                                 count * static_cast<std::size_t>(kPayload) * sizeof(std::uint32_t),
                                 cudaMemcpyDeviceToHost, stream));
    counts_.push_back(count);
  }

  /// Waits for `stream`, and checks every payload against its sample's number.
  void wait(cudaStream_t stream) {
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    std::size_t torn = 0;
    for (std::size_t batch = 0; batch < counts_.size(); ++batch)
      for (std::size_t i = 0; i < counts_[batch]; ++i)
        torn += !intact(batch * static_cast<std::size_t>(batch_size_) + i);
    CHECK(torn == 0);
  }

  std::size_t batches() const { return counts_.size(); }

  std::vector<std::uint64_t> sample_numbers(std::size_t batch) const {
    const std::uint64_t* first = &samples_[batch * static_cast<std::size_t>(batch_size_)];
    return {first, first + counts_[batch]};
  }

  std::vector<std::uint64_t> all_sample_numbers() const {
    std::vector<std::uint64_t> all;
    for (std::size_t batch = 0; batch < counts_.size(); ++batch)
      for (const std::uint64_t number : sample_numbers(batch)) all.push_back(number);
    return all;
  }

 private:
  bool intact(std::size_t i) const {
    for (std::int64_t j = 0; j < kPayload; ++j)
      if (payload_[i * static_cast<std::size_t>(kPayload) + static_cast<std::size_t>(j)] !=
          payload_of(samples_[i], j))
        return false;
    return true;
  }

  std::int64_t batch_size_;
  PinnedMemory<std::uint64_t> samples_;
  PinnedMemory<std::uint32_t> payload_;
  std::vector<std::size_t> counts_;  // samples of each batch
};

/// The samples of a batch on the host; every payload is checked.
inline std::vector<std::uint64_t> read_numbers(const HostBatch<Numbers>& batch) {
  std::vector<std::uint64_t> samples;
  for (std::int64_t i = 0; i < batch.samples(); ++i) {
    samples.push_back(batch->sample(i));
    for (std::int64_t j = 0; j < kPayload; ++j)
      if (batch->payload(i, j) != payload_of(samples.back(), j)) FAIL("a torn batch");
  }
  return samples;
}

/// The samples of all batches that are left.
inline std::vector<std::uint64_t> read_all(BatchProducer<Numbers>& producer) {
  std::vector<std::uint64_t> all;
  while (auto batch = producer.next())
    for (const std::uint64_t sample : read_numbers(*batch)) all.push_back(sample);
  return all;
}

/// What a plain loop over `sampler` would deliver.
template <class S>
std::vector<std::uint64_t> serial_sample_numbers(const S& sampler, std::uint64_t epochs) {
  std::vector<std::uint64_t> all, batch;
  for (std::uint64_t e = 0; e < epochs; ++e)
    for (std::uint64_t b = 0; b < sampler.batches(); ++b) {
      sampler.samples(e, b, batch);
      all.insert(all.end(), batch.begin(), batch.end());
    }
  return all;
}

}  // namespace penstock::test
