// SPDX-License-Identifier: Apache-2.0

// penstock_disk NAME [SIZE]: pipelines over the records of a bad disk (slow_disk.hpp). Nothing may
// be torn, interruptions and short reads are nobody's business but the reader's, and what cannot be
// read is an error that names its file, goes by the failure policy, and is counted.

#include <penstock/prefetcher.hpp>
#include <penstock/record_file.hpp>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "audit.hpp"
#include "disk_stores.hpp"
#include "flat.hpp"
#include "machine.hpp"
#include "scenario.hpp"
#include "slow_disk.hpp"

namespace penstock::test {
namespace {

constexpr std::int64_t kBatchSize = 16, kWidth = 769;  // words: records lie across sectors
constexpr std::size_t kRecordBytes = kWidth * sizeof(std::uint32_t);
constexpr std::uint64_t kFiles = 3, kRecordsOfFile = 500, kRecords = kFiles * kRecordsOfFile;

/// Files of records in a folder of their own, each word of which follows from the record's number.
class Files {
 public:
  Files() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock_disk_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    folder_ = name;
    for (std::uint64_t file = 0; file < kFiles; ++file) {
      paths_.push_back(folder_ / ("part" + std::to_string(file) + ".records"));
      std::ofstream out(paths_.back(), std::ios::binary);
      for (std::uint64_t i = 0; i < kRecordsOfFile; ++i)
        for (std::int64_t column = 0; column < kWidth; ++column) {
          const std::uint32_t word = word_of(file * kRecordsOfFile + i, column);
          out.write(reinterpret_cast<const char*>(&word), sizeof word);
        }
    }
  }
  ~Files() { std::filesystem::remove_all(folder_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  RecordFile open() const { return RecordFile(paths_, kRecordBytes); }
  std::string file_of(std::uint64_t sample) const {
    return paths_[sample / kRecordsOfFile].string();
  }
  bool is_damaged(std::uint64_t sample) const {
    return slow_disk::is_damaged(file_of(sample), sample % kRecordsOfFile * kRecordBytes,
                                 kRecordBytes);
  }

 private:
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> paths_;
};

void use_disk(double damaged) {
  slow_disk::set({.match = ".records",
                  .seed = 11,
                  .shortened = 0.3,
                  .interrupted = 0.2,
                  .slow = 0.01,
                  .delay_us = 300,
                  .damaged = damaged});
}

void read_row(const RecordFile& records, Rows& rows, std::int64_t row, std::uint64_t sample,
              std::uint64_t place) {
  records.read_into(sample, std::as_writable_bytes(std::span(&rows.words(row, 0), kWidth)));
  rows.sample(row) = sample;
  rows.place(row) = place;
}

auto by_sample(const RecordFile& records, std::uint64_t batches) {
  return per_sample([records, batches](const Sample& sample, Rows& rows) {
    read_row(records, rows, sample.row, sample.index, sample.epoch * batches + sample.batch);
  });
}

auto by_batch(const RecordFile& records, std::uint64_t batches) {
  return [records, batches](const Ticket& ticket, Rows& rows) {
    records.will_need(ticket.samples);
    for (std::size_t i = 0; i < ticket.samples.size(); ++i)
      read_row(records, rows, static_cast<std::int64_t>(i), ticket.samples[i],
               ticket.epoch * batches + ticket.batch);
  };
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void require_names(const std::string& what, const std::string& file) {
  require(
      what.find(file) != std::string::npos && what.find("Input/output error") != std::string::npos,
      "the error does not name " + file + ": " + what);
}

/// So many whole epochs that there are `samples`.
struct Run {
  explicit Run(std::uint64_t samples) : epochs((samples + kRecords - 1) / kRecords) {}
  PrefetcherOptions options(FailurePolicy policy) const {
    return {.workers = 4, .epochs = epochs, .on_failure = policy};
  }
  std::uint64_t epochs;
  Sampler sampler = rows_sampler(kRecords, kBatchSize, 17);
  std::uint64_t batches = epochs * sampler.batches();
};

/// A sample that cannot be read is left out, or replaced by one that can.
void by_policy(std::uint64_t samples, FailurePolicy policy) {
  fresh_machine();
  const Files files;
  use_disk(0.02);
  const Run run(samples);
  const bool replaces = policy.action() == FailurePolicy::Action::replace;
  const Stream stream;
  Audit audit(run.sampler);
  Flat flat(replaces ? "disk: replaced" : "disk: skipped", run.batches);
  Prefetcher<Rows> prefetcher(rows_layout(kBatchSize, kWidth), run.sampler,
                              by_sample(files.open(), run.sampler.batches()), run.options(policy));
  std::uint64_t damaged = 0;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t i = 0; i < run.batches; ++i) {
    const auto batch = prefetcher.next(stream.get());
    require(static_cast<bool>(batch), "the pipeline ended early");
    run.sampler.samples(i / run.sampler.batches(), i % run.sampler.batches(), expected);
    for (std::size_t row = 0; row < expected.size();) {
      if (!files.is_damaged(expected[row])) {
        ++row;
        continue;
      }
      ++damaged;
      if (!replaces) {
        expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(row));
        continue;
      }
      expected[row] = batch.ticket().samples[row];
      require(!files.is_damaged(expected[row]), "a damaged record was delivered");
      ++row;
    }
    audit.note(batch, expected);
    audit.check_on(stream.get(), batch);
    flat.reach(i + 1);
  }
  require(!prefetcher.next(stream.get()), "a batch too many");
  audit.finish();
  flat.finish();  // before the snapshot, which holds the records of the last batches
  const Stats stats = prefetcher.stats();
  require(damaged > 0 && stats.skipped + stats.replaced == damaged,
          std::to_string(stats.skipped + stats.replaced) + " failures counted of " +
              std::to_string(damaged));
  for (const Failure& failure : prefetcher.failures())
    require_names(failure.what, files.file_of(failure.samples.front()));
  std::cout << damaged << " of " << run.epochs * kRecords << " records could not be read\n";
}

void skips(std::uint64_t samples) {
  by_policy(samples, FailurePolicy::skip());
}
void replaces(std::uint64_t samples) {
  by_policy(samples, FailurePolicy::replace());
}

/// Each batch with a damaged record is an error in its place, and only those are.
void throws(std::uint64_t samples) {
  fresh_machine();
  const Files files;
  use_disk(0.005);
  const Run run(samples);
  const Stream stream;
  Audit audit(run.sampler);
  Flat flat("disk: thrown", run.batches);
  Prefetcher<Rows> prefetcher(rows_layout(kBatchSize, kWidth), run.sampler,
                              by_batch(files.open(), run.sampler.batches()),
                              run.options(FailurePolicy::abort()));
  std::vector<std::uint64_t> named;
  std::uint64_t thrown = 0;
  for (std::uint64_t i = 0; i < run.batches; ++i) {
    run.sampler.samples(i / run.sampler.batches(), i % run.sampler.batches(), named);
    std::string file;  // of the first record that cannot be read
    for (auto sample = named.rbegin(); sample != named.rend(); ++sample)
      if (files.is_damaged(*sample)) file = files.file_of(*sample);
    try {
      const auto batch = prefetcher.next(stream.get());
      require(file.empty(), "a batch with a damaged record was delivered");
      audit.take(batch, stream.get());
    } catch (const SourceError& error) {
      require(!file.empty(), error.what());
      require_names(error.what(), file);
      audit.expect(i + 1);
      ++thrown;
    }
    flat.reach(i + 1);
  }
  audit.finish();
  require(thrown > 0, "no batch failed");
  std::cout << thrown << " of " << run.batches << " batches could not be read\n";
  flat.finish();
}

/// Nothing is damaged: nothing fails.
void bears(std::uint64_t samples) {
  fresh_machine();
  const Files files;
  use_disk(0);
  const Run run(samples);
  const Stream stream;
  Audit audit(run.sampler);
  Flat flat("disk: slow", run.batches);
  Prefetcher<Rows> prefetcher(rows_layout(kBatchSize, kWidth), run.sampler,
                              by_batch(files.open(), run.sampler.batches()),
                              run.options(FailurePolicy::abort()));
  while (const auto batch = prefetcher.next(stream.get())) {
    audit.take(batch, stream.get());
    flat.reach(audit.next());
  }
  require(audit.next() == run.batches, "the pipeline ended early");
  audit.finish();
  const slow_disk::Counts counts = slow_disk::counts();
  std::cout << counts.reads << " reads, " << counts.shortened << " short, " << counts.interrupted
            << " interrupted, " << counts.slow << " slow\n";
  require(counts.shortened > 0 && counts.interrupted > 0 && counts.slow > 0,
          "the disk was a good one");
  flat.finish();
}

/// Opening may be interrupted, too.
void opens(std::uint64_t times) {
  const Files files;
  use_disk(0);
  for (std::uint64_t i = 0; i < times; ++i) {
    const RecordFile records = files.open();
    require(records.size() == kRecords, "records are missing");
  }
  require(slow_disk::counts().interrupted > 0, "no call was interrupted");
}

}  // namespace
}  // namespace penstock::test

int main(int argc, char** argv) {
  using namespace penstock::test;
  return run_scenario(
      argc, argv,
      {{"bears", "records of a slow disk", 600'000, bears},
       {"opens", "times three files of a slow disk are opened", 20'000, opens},
       {"stores", "samples of files and of tars, of slow and damaged disks", 200'000, read_stores},
       {"skips", "records of a damaged disk, skipped", 600'000, skips},
       {"replaces", "records of a damaged disk, replaced", 600'000, replaces},
       {"throws", "records of a damaged disk, thrown", 600'000, throws}});
}
