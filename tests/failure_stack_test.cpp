// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/failure_stack.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::FailureNode;
using penstock::detail::FailureStack;

namespace {

FailureNode failed_row(std::int64_t row, std::string why = "") {
  return {nullptr, nullptr, row, std::move(why)};
}

std::vector<std::pair<std::int64_t, std::string>> rows_with_words(const FailureStack& failures) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const FailureNode* node = failures.first(); node != nullptr; node = node->next)
    found.emplace_back(node->row, node->why_not_replaced);
  return found;
}

}  // namespace

TEST_CASE("failures are sorted by row, and of one row stay in their order", "[failure_stack]") {
  FailureStack failures;
  CHECK(failures.empty());
  failures.sort_by_row();
  CHECK(failures.empty());
  for (const std::int64_t row : {4, 1, 3}) failures.push(failed_row(row, "first"));
  failures.push(failed_row(1, "second"));
  failures.push(failed_row(-1));
  failures.push(failed_row(1, "third"));
  CHECK_FALSE(failures.empty());
  failures.sort_by_row();
  using Found = std::vector<std::pair<std::int64_t, std::string>>;
  CHECK(rows_with_words(failures) ==
        Found{{-1, ""}, {1, "first"}, {1, "second"}, {1, "third"}, {3, "first"}, {4, "first"}});

  SECTION("one of them is kept") {
    failures.keep_only(*failures.first()->next->next);
    CHECK(rows_with_words(failures) == Found{{1, "second"}});
    failures.keep_only(*failures.first());
    CHECK(rows_with_words(failures) == Found{{1, "second"}});
    failures.push(failed_row(2));
    failures.keep_only(*failures.first());
    CHECK(rows_with_words(failures) == Found{{2, ""}});
  }
  SECTION("they are forgotten, and others come") {
    failures.clear();
    CHECK(failures.empty());
    failures.push(failed_row(7));
    CHECK(rows_with_words(failures) == Found{{7, ""}});
  }
}

TEST_CASE("many threads push failures, and none is lost", "[failure_stack]") {
  constexpr int kThreads = 4, kEach = 500;
  FailureStack failures;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) failures.push(failed_row(kEach * t + i));
    });
  for (std::thread& thread : threads) thread.join();
  failures.sort_by_row();
  std::int64_t row = 0;
  for (const FailureNode* node = failures.first(); node != nullptr; node = node->next)
    REQUIRE(node->row == row++);
  CHECK(row == kThreads * kEach);
}
