// SPDX-License-Identifier: Apache-2.0
#pragma once

// AnySampler: holds any sampler. Sampler is one; so is any type of yours with batches() and
// samples(epoch, batch, out) (see the concept BatchSampler); Unbounded is for data of unknown
// length.
//
//   struct Backwards {                        // the last samples first
//     std::uint64_t size;
//     std::uint64_t batches() const { return size / 256; }
//     void samples(std::uint64_t, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
//       out.resize(256);
//       for (std::uint64_t i = 0; i < 256; ++i) out[i] = size - 1 - 256 * batch - i;
//     }
//   };
//   penstock::Prefetcher<Images> prefetcher{layout, Backwards{records.size()}, source};
//
// A sampler may also have seed(), dataset_size(), batch_size(), world_size() and order(), all
// numbers. They become part of the run's State, and restore() rejects a state with other numbers.

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <penstock/detail/inline.hpp>
#include <penstock/sampler.hpp>
#include <penstock/state.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

/// A type that says which samples make up a batch. `batches()`: the number of batches of an epoch,
/// at least 1, always the same. `samples(epoch, batch, out)`: writes the samples of a batch below
/// that number to `out`. It must be a pure function: many threads call it, in any order, and again
/// after a resume.
template <class T>
concept BatchSampler = requires(const T& sampler, std::uint64_t number,
                                std::vector<std::uint64_t>& out) {
  { sampler.batches() } -> std::convertible_to<std::uint64_t>;
  sampler.samples(number, number, out);
};

/// Any BatchSampler. Copies are cheap: they share one immutable sampler. A moved-from object can
/// only be assigned to or destroyed.
class AnySampler {
 public:
  /// Copies or moves `sampler`, a BatchSampler, into this object. Allocates.
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, AnySampler> &&
           BatchSampler<std::remove_cvref_t<T>>)
      // NOLINTNEXTLINE(google-explicit-constructor): a sampler is an AnySampler.
      AnySampler(T&& sampler)
      : sampler_(std::make_shared<Model<std::remove_cvref_t<T>>>(std::forward<T>(sampler))) {
    static_assert(std::constructible_from<std::remove_cvref_t<T>, T>,
                  "the sampler cannot be copied: give it with std::move");
  }
  /// No other type is a sampler. The messages of Prefetcher and BatchProducer say why.
  template <class T>
  requires(!std::derived_from<std::remove_cvref_t<T>, AnySampler> &&
           !BatchSampler<std::remove_cvref_t<T>>)
      // clang-format off
      // NOLINTNEXTLINE(google-explicit-constructor): the same.
      AnySampler(T&&) = delete;  // a sampler has batches() and samples(epoch, batch, out), both const
  // clang-format on

  /// The sampler's batches(): batches of one epoch.
  std::uint64_t batches() const { return sampler_->batches(); }
  /// The sampler's samples(): replaces the contents of `out` by the samples of a batch. Any thread
  /// may call it. Throws what the sampler throws.
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
    sampler_->samples(epoch, batch, out);
  }
  /// The run's seed: that of the sampler, or 0 if it has none.
  std::uint64_t seed() const { return sampler_->start.seed; }
  /// The state of a run over this sampler before its first batch.
  const State& start() const { return sampler_->start; }
  /// Whether the data are a stream (see Unbounded): a single worker calls the source for the
  /// batches in their order.
  bool is_stream() const { return sampler_->is_stream; }

 private:
  struct Interface {
    Interface(const State& s, bool stream) : start(s), is_stream(stream) {}
    virtual ~Interface() = default;
    virtual std::uint64_t batches() const = 0;
    virtual void samples(std::uint64_t, std::uint64_t, std::vector<std::uint64_t>&) const = 0;
    const State start;
    const bool is_stream;
  };
  template <class T>
  struct Model final : Interface {
    explicit Model(T s) : Interface(start_of(s), stream(s)), sampler(std::move(s)) {}
    std::uint64_t batches() const override { return sampler.batches(); }
    void samples(std::uint64_t epoch, std::uint64_t batch,
                 std::vector<std::uint64_t>& out) const override {
      sampler.samples(epoch, batch, out);
    }
    const T sampler;
  };

  template <class T>
  static bool stream(const T& sampler) {
    if constexpr (requires { sampler.is_stream(); }) return sampler.is_stream();
    return false;
  }
  template <class T>
  static State start_of(const T& sampler) {
    if constexpr (requires { State(sampler.start()); }) return sampler.start();
    State start;
    start.batches = number(sampler.batches());
    if constexpr (requires { number(sampler.seed()); }) start.seed = number(sampler.seed());
    if constexpr (requires { number(sampler.dataset_size()); })
      start.samples = number(sampler.dataset_size());
    if constexpr (requires { number(sampler.order()); }) start.order = number(sampler.order());
    if constexpr (requires { number(sampler.batch_size()); })
      start.batch_size = number(sampler.batch_size());
    if constexpr (requires { number(sampler.world_size()); })
      start.world_size = number(sampler.world_size());
    return start;
  }
  template <class Number>
  requires std::convertible_to<Number, std::uint64_t>
  static std::uint64_t number(Number number) { return static_cast<std::uint64_t>(number); }

  std::shared_ptr<const Interface> sampler_;
};

/// Data of unknown length: one epoch of 2^64 - 1 batches, whose samples are numbered 0, 1, 2, and
/// so on. The source ends it by returning false.
///
/// By default the data are a stream, such as a socket, whose records come in the order in which
/// they are read. A single worker calls the source for the batches in their order, whatever
/// `workers` is. Prefetcher::restore asks again for batches that were read ahead but not taken: a
/// source that cannot go back to Ticket::batch loses what was in them.
class Unbounded {
 public:
  /// Throws std::invalid_argument unless `batch_size`, in samples, is at least 1.
  explicit Unbounded(std::int64_t batch_size, std::uint64_t seed = 0);
  /// For a source that only depends on its ticket (a generator): all workers call it, in any order.
  static Unbounded indexed(std::int64_t batch_size, std::uint64_t seed = 0);

  /// 2^64 - 1: there is no last batch.
  std::uint64_t batches() const noexcept { return UINT64_MAX; }
  /// Samples in a batch.
  std::int64_t batch_size() const noexcept { return batch_size_; }
  /// The run's seed, from which each Ticket::seed is made.
  std::uint64_t seed() const noexcept { return seed_; }
  /// Whether a single worker calls the source for the batches in their order; false for indexed().
  bool is_stream() const noexcept { return is_stream_; }

  /// The same samples in every epoch, modulo 2^64.
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const;

 private:
  std::int64_t batch_size_;
  std::uint64_t seed_;
  bool is_stream_ = true;
};

namespace detail {

/// Returns the Sampler of these options, with the given batch size if they have none.
AnySampler make_sampler(SamplerOptions options, std::int64_t batch_size);

/// Returns `sampler` for a pipeline. Another type does not compile, and the message says why.
template <class T>
AnySampler as_sampler(T&& sampler) {
  static_assert(std::is_convertible_v<T, AnySampler>,
                "a sampler has batches() and samples(epoch, batch, out), both const: the number of "
                "batches of an epoch, and the sample numbers of one of them, which it writes to a "
                "std::vector<std::uint64_t>&");
  if constexpr (std::is_convertible_v<T, AnySampler>)
    return AnySampler(std::forward<T>(sampler));
  else
    std::terminate();
}

}  // namespace detail

static_assert(BatchSampler<Sampler> && BatchSampler<Unbounded> && BatchSampler<AnySampler>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/order/any_sampler.hpp>
#endif
