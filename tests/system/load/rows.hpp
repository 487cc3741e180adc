// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows: a batch in which every byte follows from the sample's number, and the three kinds of source
// that write it. Compiled by a C++ compiler and by nvcc.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <penstock/launch.hpp>
#include <penstock/layout.hpp>
#include <penstock/sampler.hpp>
#include <penstock/source.hpp>
#include <penstock/tensor.hpp>

#ifdef __CUDACC__
#define PENSTOCK_LOAD_HOST_DEVICE __host__ __device__
#else
#define PENSTOCK_LOAD_HOST_DEVICE
#endif

namespace penstock::test {

struct Rows {
  Tensor<std::uint64_t, 1> sample;  // its number in the data set
  Tensor<std::uint64_t, 1> place;   // number of its batch, over all epochs
  Tensor<std::uint32_t, 2> words;   // sample x width: word_of(sample, column)
};

PENSTOCK_LOAD_HOST_DEVICE inline std::uint64_t scrambled(std::uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

PENSTOCK_LOAD_HOST_DEVICE inline std::uint32_t word_of(std::uint64_t sample, std::int64_t column) {
  return static_cast<std::uint32_t>(
      scrambled(sample * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(column) + 1));
}

inline Layout<Rows> rows_layout(std::int64_t batch_size, std::int64_t width) {
  return Layout<Rows>{batch_size}
      .field(&Rows::sample, {})
      .field(&Rows::place, {})
      .field(&Rows::words, {width});
}

/// Shuffled, and not a whole number of batches.
inline Sampler rows_sampler(std::uint64_t samples, std::int64_t batch_size, std::uint64_t seed) {
  return Sampler{{.samples = samples, .batch_size = batch_size, .shuffle = true, .seed = seed}};
}

inline void write_row(Rows& rows, std::int64_t row, std::uint64_t sample, std::uint64_t place) {
  rows.sample(row) = sample;
  rows.place(row) = place;
  for (std::int64_t i = 0; i < rows.words.extent(1); ++i) rows.words(row, i) = word_of(sample, i);
}

/// Sources. `before(sample)` is called before a sample is written: it may sleep, or throw.
template <class Before>
auto batch_source(std::uint64_t batches, Before before) {
  return [=](const Ticket& ticket, Rows& rows) {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      before(ticket.samples[i]);
      write_row(rows, static_cast<std::int64_t>(i), ticket.samples[i],
                ticket.epoch * batches + ticket.batch);
    }
  };
}

template <class Before>
auto sample_source(std::uint64_t batches, Before before) {
  return per_sample([=](const Sample& sample, Rows& rows) {
    before(sample.index);
    write_row(rows, sample.row, sample.index, sample.epoch * batches + sample.batch);
  });
}

/// Writes rows on the device; their samples have been copied there.
struct WriteRows {
  Rows rows;
  std::uint64_t place;
  PENSTOCK_LOAD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t width = rows.words.extent(1), row = i / width, column = i % width;
    rows.words(row, column) = word_of(rows.sample(row), column);
    if (column == 0) rows.place(row) = place;
  }
};

/// The numbers of the samples come from pageable memory: their copy is staged, so that they may
/// change when the call returns.
template <class Before>
auto device_source(std::uint64_t batches, Before before) {
  return on_device([=](const Ticket& ticket, Rows& rows, cudaStream_t stream) {
    for (const std::uint64_t sample : ticket.samples) before(sample);
    detail::check(
        cudaMemcpyAsync(rows.sample.data_handle(), ticket.samples.data(),
                        ticket.samples.size() * sizeof(std::uint64_t), cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
    for_each(stream, rows.words.extent(0) * rows.words.extent(1),
             WriteRows{rows, ticket.epoch * batches + ticket.batch});
  });
}

}  // namespace penstock::test
