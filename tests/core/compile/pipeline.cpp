// SPDX-License-Identifier: Apache-2.0

// What a Prefetcher and a BatchProducer are given: each case is one mistake, and the message says
// what to change. Case 0 is what compiles, in the same places.

#include <cstdint>
#include <memory>
#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>
#include <vector>

#ifndef PENSTOCK_TEST_CASE
#define PENSTOCK_TEST_CASE 0
#endif

struct Batch {
  penstock::Tensor<float, 1> values;
};
struct Other {
  penstock::Tensor<float, 1> values;
};

using penstock::Sample;
using penstock::Ticket;

/// The right one, or the wrong one of case `number`.
template <int number, class Right, class Wrong>
auto pick(Right right, Wrong wrong) {
  if constexpr (number == PENSTOCK_TEST_CASE)
    return wrong;
  else
    return right;
}

const auto by_batch = [](const Ticket&, Batch&) {};
const auto by_sample = [](const Sample&, Batch&) {};
const auto by_device = [](const Ticket&, Batch&, cudaStream_t) {};

struct NotConst {
  std::uint64_t batches() { return 1; }
  void samples(std::uint64_t, std::uint64_t, std::vector<std::uint64_t>&) {}
};

const auto source_1 = pick<1>(penstock::per_sample(by_sample), by_sample);
const auto source_2 = pick<2>(penstock::on_device(by_device), by_device);
const auto source_3 = pick<3>(by_batch, penstock::per_sample(by_batch));
const auto source_4 = pick<4>(by_batch, penstock::on_device(by_batch));
const auto source_5 = pick<5>(by_batch, [](const Ticket&, Other&) {});
const auto source_6 =
    pick<6>(penstock::per_sample(by_sample), penstock::per_sample([](const Sample&, Other&) {}));
const auto source_7 = pick<7>(penstock::on_device(by_device),
                              penstock::on_device([](const Ticket&, Other&, cudaStream_t) {}));
const auto source_8 = pick<8>(by_batch, [](Batch&) {});
const auto source_9 = pick<9>(penstock::per_sample(by_sample), penstock::per_sample([](Batch&) {}));
const auto source_10 = pick<10>(penstock::on_device(by_device), penstock::on_device([](Batch&) {}));
const auto source_11 = pick<11>(by_batch, 7);
const auto source_12 = pick<12>(penstock::AnySource<Batch>(by_batch),
                                penstock::AnySource<Other>([](const Ticket&, Other&) {}));
const auto source_13 = [] {
#if PENSTOCK_TEST_CASE == 13
  return [owned = std::unique_ptr<int>()](const Ticket&, Batch&) {};
#else
  return by_batch;
#endif
};
const auto make = [] { return by_batch; };
const auto sampler_14 = pick<14>(penstock::Unbounded(4), NotConst());
const auto sampler_15 = pick<15>(penstock::SamplerOptions(), 4);
const auto fill_18 = pick<18>([](int&, const Ticket&, Batch&) {}, by_batch);
const auto fill_19 = pick<19>([](int&, const Sample&, Batch&) {}, by_sample);
const auto fill_20 = pick<20>([](int&, const Ticket&, Batch&, cudaStream_t) {}, [](Batch&, int) {});
const auto state = [] { return 1; };
const auto state_21 = pick<21>(state, [] {});
const auto state_22 = pick<22>(state, [](int) { return 1; });
/// It can be neither copied nor moved.
struct Fixed {
  Fixed() = default;
  Fixed(const Fixed&) = delete;
};
const auto state_23 = [] {
#if PENSTOCK_TEST_CASE == 23
  return Fixed();
#else
  return std::make_unique<Fixed>();
#endif
};
const auto move_only = [owned = std::unique_ptr<int>()](auto&&...) {};

void run(penstock::PinnedPool& pool) {
  const auto layout = penstock::Layout<Batch>{4}.field(&Batch::values, {});
  const penstock::Unbounded sampler(4);
  penstock::Prefetcher<Batch>(layout, sampler, source_1);
  penstock::Prefetcher<Batch>(layout, sampler, source_2, {.workers = 1});
  penstock::BatchProducer<Batch>(layout, sampler, source_3, pool);
  penstock::Prefetcher<Batch>(layout, sampler, source_4);
  penstock::BatchProducer<Batch>(layout, sampler, source_5, pool, {.workers = 1});
  penstock::Prefetcher<Batch>(layout, sampler, source_6);
  penstock::Prefetcher<Batch>(layout, sampler, source_7);
  penstock::Prefetcher<Batch>(layout, sampler, source_8);
  penstock::Prefetcher<Batch>(layout, sampler, source_9);
  penstock::Prefetcher<Batch>(layout, sampler, source_10);
  penstock::Prefetcher<Batch>(layout, sampler, source_11);
  penstock::Prefetcher<Batch>(layout, sampler, source_12);
  penstock::Prefetcher<Batch>(layout, sampler, source_13());
  penstock::Prefetcher<Batch>(layout, {.samples = 8}, by_batch, {.workers = 1});
  penstock::BatchProducer<Batch>(layout, {.samples = 8}, by_batch, pool, {.workers = 1});
  penstock::BatchProducer<Batch>(layout, sampler_14, by_batch, pool);
  penstock::Prefetcher<Batch>(layout, sampler_15, by_batch);
#if PENSTOCK_TEST_CASE == 16
  penstock::Prefetcher<Batch>(layout, sampler, penstock::per_worker(by_batch));
#else
  penstock::Prefetcher<Batch>(layout, sampler, penstock::per_worker(make));
#endif
#if PENSTOCK_TEST_CASE == 17
  penstock::Prefetcher<Batch>(layout, sampler, penstock::per_worker(penstock::per_sample(make)));
#else
  penstock::Prefetcher<Batch>(layout, sampler,
                              penstock::per_sample(penstock::per_worker([] { return by_sample; })));
#endif
  penstock::Prefetcher<Batch>(layout, sampler, penstock::per_worker(state, fill_18));
  penstock::Prefetcher<Batch>(layout, sampler,
                              penstock::per_sample(penstock::per_worker(state, fill_19)));
  penstock::Prefetcher<Batch>(layout, sampler,
                              penstock::on_device(penstock::per_worker(state, fill_20)));
  penstock::Prefetcher<Batch>(layout, sampler,
                              penstock::per_worker(state_21, [](auto&, const Ticket&, Batch&) {}));
  penstock::Prefetcher<Batch>(layout, sampler,
                              penstock::per_worker(state_22, [](int, const Ticket&, Batch&) {}));
  penstock::Prefetcher<Batch>(layout, sampler,
                              penstock::per_worker(state_23, [](auto&, const Ticket&, Batch&) {}));
#if PENSTOCK_TEST_CASE == 24
  penstock::Prefetcher<Batch>(layout, sampler, move_only);
#elif PENSTOCK_TEST_CASE == 25
  penstock::AnySource<Batch> source = by_sample;
#elif PENSTOCK_TEST_CASE == 26
  penstock::AnySampler any = by_sample;
#else
  penstock::AnySource<Batch> source = by_batch;
  penstock::AnySampler any = sampler;
#endif
}
