// SPDX-License-Identifier: Apache-2.0

// What a source returns: void; or bool, if it is asked for whole batches.

#include <penstock/source.hpp>

#ifndef PENSTOCK_TEST_CASE
#define PENSTOCK_TEST_CASE 0
#endif

struct Batch {
  int value;
};

/// What the source of case `number` returns: as the others do, or an int.
template <int number, class Result>
auto result() {
  if constexpr (number == PENSTOCK_TEST_CASE)
    return 1;
  else
    return Result();
}

using penstock::Sample;
using penstock::Ticket;
using Source = penstock::AnySource<Batch>;

const Source batch = [](const Ticket&, Batch&) { return result<1, bool>(); };
const Source batch_with_stop = [](const Ticket&, Batch&, std::stop_token) {
  return result<2, void>();
};
const Source batch_of_worker =
    penstock::per_worker([] { return [](const Ticket&, Batch&) { return result<3, bool>(); }; });

const Source sample = penstock::per_sample([](const Sample&, Batch&) { return result<4, void>(); });
const Source sample_of_worker = penstock::per_sample(penstock::per_worker(
    [] { return [](const Sample&, Batch&, std::stop_token) { return result<5, void>(); }; }));

const Source device =
    penstock::on_device([](const Ticket&, Batch&, cudaStream_t) { return result<6, bool>(); });
const Source device_of_worker = penstock::on_device(penstock::per_worker(
    [] { return [](const Ticket&, Batch&, cudaStream_t) { return result<7, void>(); }; }));

#if PENSTOCK_TEST_CASE == 8
const Source sample_that_ends = penstock::per_sample([](const Sample&, Batch&) { return true; });
#endif
