// SPDX-License-Identifier: Apache-2.0

// A per_sample source that throws for one sample of a thousand, under both policies that go on: the
// counts are exact, each sample that does not fail is there, in its row, and the log keeps the
// first 256 failures and no more.

#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "audit.hpp"
#include "flat.hpp"
#include "machine.hpp"
#include "scenarios.hpp"

namespace penstock::test {
namespace {

constexpr std::int64_t kBatchSize = 64;
constexpr std::size_t kKept = 256;

bool fails(std::uint64_t sample) {
  return scrambled(sample ^ 0xbad) % 1000 == 0;
}
void fail_some(std::uint64_t sample) {
  if (fails(sample)) throw std::runtime_error("image " + std::to_string(sample) + " is damaged");
}

/// What a plain loop meets.
struct Expected {
  std::uint64_t failures = 0;
  std::vector<std::uint64_t> first;  // that failed, at most kKept

  void meet(std::uint64_t sample) {
    ++failures;
    if (first.size() < kKept) first.push_back(sample);
  }
};

/// The rows that a batch of `samples` has under the policy `skip`.
std::vector<std::uint64_t> without_failures(const std::vector<std::uint64_t>& samples,
                                            Expected& expected) {
  std::vector<std::uint64_t> left;
  for (const std::uint64_t sample : samples)
    if (fails(sample))
      expected.meet(sample);
    else
      left.push_back(sample);
  return left;
}

/// And under `replace`: what is in a failed row's place is the library's choice, which must not
/// fail.
std::vector<std::uint64_t> with_others(const std::vector<std::uint64_t>& samples,
                                       const Ticket& ticket, Expected& expected) {
  std::vector<std::uint64_t> rows = samples;
  if (ticket.samples.size() != rows.size()) throw std::runtime_error("a batch is short");
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!fails(rows[row])) continue;
    expected.meet(rows[row]);
    rows[row] = ticket.samples[row];
    if (fails(rows[row])) throw std::runtime_error("a sample that fails was delivered");
  }
  return rows;
}

void compare_log(const Prefetcher<Rows>& prefetcher, const Expected& expected, bool replaces) {
  const Stats stats = prefetcher.stats();
  const std::uint64_t counted = replaces ? stats.replaced : stats.skipped;
  if (counted != expected.failures || stats.skipped + stats.replaced != counted)
    throw std::runtime_error(std::to_string(counted) + " failures counted of " +
                             std::to_string(expected.failures));
  const std::vector<Failure> log = prefetcher.failures();
  if (log.size() != expected.first.size())
    throw std::runtime_error("the log has " + std::to_string(log.size()) + " failures");
  for (std::size_t i = 0; i < log.size(); ++i)
    if (log[i].samples != std::vector{expected.first[i]} || log[i].replaced != replaces ||
        log[i].what.find("is damaged") == std::string::npos)
      throw std::runtime_error("the log names another failure: " + log[i].what);
}

/// To the end of the last epoch: the counters run ahead of the consumer until then.
void run(bool replaces, int workers, std::uint64_t samples) {
  fresh_machine();
  const std::uint64_t data_set = std::min<std::uint64_t>(samples, 1'000'003);
  const std::uint64_t epochs = (samples + data_set - 1) / data_set;
  const Sampler sampler = rows_sampler(data_set, kBatchSize, 21);
  const Stream stream;
  Prefetcher<Rows> prefetcher(
      rows_layout(kBatchSize, 1), sampler, sample_source(sampler.batches(), fail_some),
      {.workers = workers,
       .epochs = epochs,
       .on_failure = replaces ? FailurePolicy::replace() : FailurePolicy::skip()});
  Flat flat(replaces ? "failures: replaced" : "failures: skipped", epochs * sampler.batches());
  Audit audit(sampler);
  Expected expected;
  std::vector<std::uint64_t> named;
  for (std::uint64_t i = 0; i < epochs * sampler.batches(); ++i) {
    const auto batch = prefetcher.next(stream.get());
    sampler.samples(i / sampler.batches(), i % sampler.batches(), named);
    audit.note(batch, replaces ? with_others(named, batch.ticket(), expected)
                               : without_failures(named, expected));
    audit.check_on(stream.get(), batch);
    flat.reach(i + 1);
  }
  if (prefetcher.next(stream.get())) throw std::runtime_error("a batch too many");
  audit.finish();
  compare_log(prefetcher, expected, replaces);
  std::cout << expected.failures << " of " << epochs * data_set << " samples failed, "
            << audit.rows() << " rows arrived\n";
  flat.finish();
}

}  // namespace

void failing_samples(std::uint64_t samples) {
  run(false, 3, samples / 2);
  run(true, 2, samples - samples / 2);
}

}  // namespace penstock::test
