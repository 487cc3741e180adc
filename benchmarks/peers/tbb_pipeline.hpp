// SPDX-License-Identifier: Apache-2.0
#pragma once

// TbbPipeline: what BatchProducer does, by oneTBB's parallel_pipeline: numbers in order, batches
// filled in parallel into a fixed set of buffers, batches consumed in order, under the same bound.

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <cstddef>
#include <cstdint>
#include <penstock/any_sampler.hpp>
#include <penstock/layout.hpp>
#include <penstock/source.hpp>
#include <stop_token>
#include <vector>

namespace penstock::benchmarks {

template <class Batch>
class TbbPipeline {
 public:
  /// As many threads as a BatchProducer of `workers` has, its consumer among them.
  TbbPipeline(const Layout<Batch>& layout, AnySampler sampler, AnySource<Batch> source, int workers,
              std::size_t depth)
      : layout_(layout),
        sampler_(std::move(sampler)),
        source_(std::move(source).erased().make()),
        threads_(tbb::global_control::max_allowed_parallelism,
                 static_cast<std::size_t>(workers) + 1),
        arena_(workers + 1),
        buffers_(depth) {
    for (Buffer& buffer : buffers_) {
      buffer.memory.resize(layout.bytes());
      buffer.samples.reserve(static_cast<std::size_t>(layout.batch_size()));
    }
  }

  /// Calls `consume(batch, ticket)` for each batch of an epoch, in order, one at a time.
  template <class Consume>
  void run(Consume consume) {
    std::uint64_t next = 0;
    const auto number = tbb::make_filter<void, std::uint64_t>(tbb::filter_mode::serial_in_order,
                                                              [&](tbb::flow_control& control) {
                                                                if (next == sampler_.batches())
                                                                  control.stop();
                                                                return next++;
                                                              });
    // At most `depth` batches are inside and they leave in order, so buffer n % depth is free.
    const auto fill =
        tbb::make_filter<std::uint64_t, Buffer*>(tbb::filter_mode::parallel, [&](std::uint64_t n) {
          Buffer& buffer = buffers_[n % buffers_.size()];
          fill_buffer(n, buffer);
          return &buffer;
        });
    const auto take = tbb::make_filter<Buffer*, void>(
        tbb::filter_mode::serial_in_order,
        [&](const Buffer* buffer) { consume(buffer->batch, buffer->ticket); });
    arena_.execute([&] { tbb::parallel_pipeline(buffers_.size(), number & fill & take); });
  }

 private:
  struct alignas(64) Buffer {
    std::vector<std::byte> memory;
    std::vector<std::uint64_t> samples;
    Batch batch{};
    Ticket ticket;
  };

  void fill_buffer(std::uint64_t number, Buffer& buffer) {
    sampler_.samples(0, number, buffer.samples);
    buffer.ticket = {0, number, batch_seed(sampler_.seed(), 0, number), buffer.samples};
    buffer.batch =
        layout_.bind(buffer.memory.data(), static_cast<std::int64_t>(buffer.samples.size()));
    source_->fill_batch(buffer.ticket, &buffer.batch, nullptr, std::stop_token{});
  }

  Layout<Batch> layout_;
  AnySampler sampler_;
  std::unique_ptr<detail::WorkerSource> source_;
  tbb::global_control threads_;
  tbb::task_arena arena_;
  std::vector<Buffer> buffers_;
};

}  // namespace penstock::benchmarks
