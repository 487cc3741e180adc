// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/observe/worker_trace.hpp>

using penstock::detail::WorkerActivity;
using penstock::detail::WorkerState;
using penstock::detail::WorkerTrace;
using penstock::test::weak::expect;
using penstock::test::weak::explore;

TEST_CASE("weak: a worker that is seen at work is seen with its number", "[worker_trace]") {
  explore([] {
    WorkerTrace trace;
    std::thread worker([&] { trace.work_on(7, 1); });
    const WorkerActivity activity = trace.activity();
    expect(activity.state == WorkerState::idle || activity.number == 7, "the number is there");
    worker.join();
  });
}

TEST_CASE("weak: a worker that announces later batches is seen with the number of its batch",
          "[worker_trace]") {
  const bool works = GENERATE(false, true);
  explore([works] {
    WorkerTrace trace;
    std::thread worker([&] {
      if (works) trace.work_on(7, 1);
      const WorkerTrace::Announcing announcing(trace, 7);
    });
    const WorkerActivity activity = trace.activity();
    expect(activity.state == WorkerState::idle || activity.number == 7, "the number is there");
    worker.join();
  });
}
