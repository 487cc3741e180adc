// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/batch_failures.hpp>

#include <cstdint>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::BatchFailure;
using penstock::detail::BatchFailures;

namespace {

BatchFailure failed_row(std::int64_t row, std::string why = "") {
  return {nullptr, nullptr, row, std::move(why)};
}

std::vector<std::pair<std::int64_t, std::string>> rows_with_words(const BatchFailures& failures) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const BatchFailure& failed : failures.all())
    found.emplace_back(failed.row, failed.why_not_replaced);
  return found;
}

}  // namespace

TEST_CASE("failures are sorted by row, and of one row stay in their order", "[batch_failures]") {
  BatchFailures failures;
  CHECK(failures.empty());
  failures.sort_by_row();
  CHECK(failures.empty());
  for (const std::int64_t row : {4, 1, 3}) failures.add(failed_row(row, "first"));
  failures.add(failed_row(1, "second"));
  failures.add(failed_row(-1));
  failures.add(failed_row(1, "third"));
  CHECK_FALSE(failures.empty());
  failures.sort_by_row();
  using Found = std::vector<std::pair<std::int64_t, std::string>>;
  CHECK(rows_with_words(failures) ==
        Found{{-1, ""}, {1, "first"}, {1, "second"}, {1, "third"}, {3, "first"}, {4, "first"}});

  SECTION("one of them is kept") {
    failures.keep_only(failures.all()[2]);
    CHECK(rows_with_words(failures) == Found{{1, "second"}});
    failures.keep_only(failures.all().front());
    CHECK(rows_with_words(failures) == Found{{1, "second"}});
  }
  SECTION("they are forgotten, and others come") {
    failures.clear();
    CHECK(failures.empty());
    failures.add(failed_row(7));
    CHECK(rows_with_words(failures) == Found{{7, ""}});
  }
}

TEST_CASE("workers that fail in a batch at the same time lose no failure", "[batch_failures]") {
  constexpr int kThreads = 4, kEach = 500;
  struct Values {
    penstock::Tensor<std::int32_t, 2> value;
  };
  const auto layout = penstock::Layout<Values>{5}.field(&Values::value, {3});
  penstock::detail::BatchRecord record(layout.erased(), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) record.fail({nullptr, nullptr, kEach * t + i});
    });
  for (std::thread& thread : threads) thread.join();
  record.failures.sort_by_row();
  std::int64_t row = 0;
  for (const auto& failed : record.failures.all()) REQUIRE(failed.row == row++);
  CHECK(row == kThreads * kEach);
}
