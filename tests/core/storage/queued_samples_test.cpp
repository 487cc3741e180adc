// SPDX-License-Identifier: Apache-2.0

// The stores by way of a ReadQueue: the bytes and the errors of read(), and a pipeline of workers
// that have queues.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <penstock/batch_producer.hpp>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <penstock/read_queue.hpp>
#include <penstock/record_file.hpp>
#include <penstock/sampler.hpp>
#include <penstock/source.hpp>
#include <penstock/tar_shards.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/memory_files.hpp"
#include "support/packs.hpp"
#include "support/tar_writer.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::as_text;
using test::drop_from_cache;
using test::is_record;
using test::MemoryFolder;
using test::Mentions;
using test::read_file;
using test::TarWriter;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

using Indices = std::vector<std::uint64_t>;

constexpr std::uint64_t kStoreSamples = 200;

std::string sample(std::uint64_t i) {
  return std::string(37 * (i % 11) + 1, static_cast<char>('a' + i % 26)) + std::to_string(i);
}

/// A store of kStoreSamples samples, all of which are sample(i), and its files.
struct Pack {
  explicit Pack(const TemporaryDirectory& directory) : path(directory / "a.pack") {
    PackedFileWriter writer(path, "");
    for (std::uint64_t i = 0; i < kStoreSamples; ++i) {
      const std::string bytes = sample(i);
      writer.append(std::as_bytes(std::span(bytes)), 0, std::to_string(i));
    }
    writer.finish();
  }
  PackedFile open() const { return PackedFile(path); }
  std::vector<std::filesystem::path> files() const { return {path}; }
  const std::filesystem::path path;
};
struct Tars {
  explicit Tars(const TemporaryDirectory& directory) {
    for (std::uint64_t shard = 0; shard < 3; ++shard) {
      TarWriter tar;
      for (std::uint64_t i = shard * kStoreSamples / 3; i < (shard + 1) * kStoreSamples / 3; ++i)
        tar.add(std::to_string(i) + ".jpg", sample(i)).add(std::to_string(i) + ".cls", "7");
      paths.push_back(directory / (std::to_string(shard) + ".tar").c_str());
      tar.save(paths.back());
    }
  }
  TarShards open() const { return TarShards(paths); }
  std::vector<std::filesystem::path> files() const { return paths; }
  std::vector<std::filesystem::path> paths;
};
struct Folder {
  explicit Folder(const TemporaryDirectory& directory) : folder(directory / "f") {
    for (std::uint64_t i = 0; i < kStoreSamples; ++i)
      write_file(folder / (i % 2 == 0 ? "a" : "b") / (std::to_string(i) + ".jpg"), sample(i));
  }
  FileFolder open() const { return FileFolder::from_files(files()); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (std::uint64_t i = 0; i < kStoreSamples; ++i)
      all.push_back(folder / (i % 2 == 0 ? "a" : "b") / (std::to_string(i) + ".jpg"));
    return all;
  }
  const std::filesystem::path folder;
};

ReadQueueOptions any_options() {
  ReadQueueOptions options{.depth = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{64})};
  options.method = GENERATE(ReadMethod::automatic, ReadMethod::pread);
  options.direct = GENERATE(DirectReads::automatic, DirectReads::always);
  return options;
}

/// Some of them twice, in no order.
Indices mixed_indices(std::uint64_t count) {
  Indices indices;
  for (std::uint64_t i = 0; i < 2 * count; ++i) indices.push_back(i * 7919 % count);
  return indices;
}

template <class AnyStore>
std::vector<std::string> texts(const AnyStore& store, const Indices& indices, ReadQueue& queue) {
  std::vector<std::optional<std::string>> found(indices.size());
  store.read_many(indices, queue, [&](std::size_t k, std::span<const std::byte> bytes) {
    CHECK_FALSE(found.at(k).has_value());
    found[k] = as_text(bytes);
  });
  std::vector<std::string> all;
  for (const auto& text : found) all.push_back(text.value_or("(not read)"));
  return all;
}

TEMPLATE_TEST_CASE("a store reads the same samples by a queue as without", "[queued_samples]", Pack,
                   Tars, Folder) {
  const TemporaryDirectory directory;
  const TestType data(directory);
  const auto store = data.open();
  REQUIRE(store.size() == kStoreSamples);
  ReadQueue queue(any_options());
  const Indices indices = mixed_indices(kStoreSamples);
  for (const bool is_cold : {true, false, false}) {
    if (is_cold)
      for (const auto& file : data.files()) drop_from_cache(file);
    const std::vector<std::string> found = texts(store, indices, queue);
    for (std::size_t k = 0; k < indices.size(); ++k) REQUIRE(found[k] == sample(indices[k]));
  }
  CHECK(texts(store, {}, queue).empty());
  int calls = 0;
  CHECK_THAT(thrown<std::out_of_range>([&] {
               const Indices wrong{0, kStoreSamples};
               store.read_many(wrong, queue, [&](auto...) { ++calls; });
             }),
             Mentions(std::to_string(kStoreSamples)));
  CHECK(calls == 0);
}

TEMPLATE_TEST_CASE("a store has the same errors by a queue as without", "[queued_samples]", Pack,
                   Tars, Folder) {
  const TemporaryDirectory directory;
  const TestType data(directory);
  const auto store = data.open();
  const auto last = data.files().back();
  std::filesystem::resize_file(last, std::filesystem::file_size(last) / 20);
  if constexpr (std::is_same_v<TestType, Folder>) std::filesystem::remove(last);
  ReadQueue queue(any_options());
  const std::uint64_t lost = kStoreSamples - 1;
  std::vector<std::byte> scratch;
  const std::string alone = thrown<StoreError>([&] { store.read(lost, scratch); });
  REQUIRE_THAT(alone, Mentions("is lost"));
  CHECK(thrown<StoreError>([&] { texts(store, {lost, 0, 1}, queue); }) == alone);
  CHECK(texts(store, {0, 1}, queue) == std::vector{sample(0), sample(1)});
}

TEST_CASE("RecordFile reads into a batch by a queue, and by read_many", "[queued_samples]") {
  const TemporaryDirectory directory;
  const std::size_t bytes = GENERATE(std::size_t{10}, std::size_t{4096}, std::size_t{12'296});
  const auto a = directory.records("a.bin", 0, 70, bytes),
             b = directory.records("b.bin", 70, 30, bytes);
  const RecordFile records{{a, b}, bytes};
  ReadQueue queue(any_options());
  for (const auto& file : {a, b}) drop_from_cache(file);
  const Indices indices = mixed_indices(100);
  std::vector<std::byte> batch(indices.size() * bytes);
  records.read_many_into(indices, batch, queue);
  for (std::size_t k = 0; k < indices.size(); ++k)
    REQUIRE(is_record(std::span(batch).subspan(k * bytes, bytes), indices[k]));
  std::size_t calls = 0;
  records.read_many(indices, queue, [&](std::size_t k, std::span<const std::byte> record) {
    ++calls;
    REQUIRE(record.size() == bytes);
    REQUIRE(is_record(record, indices[k]));
  });
  CHECK(calls == indices.size());

  CHECK_THAT(thrown<std::invalid_argument>(
                 [&] { records.read_many_into(indices, std::span(batch).subspan(1), queue); }),
             Mentions("RecordFile::read_many_into: a target of"));
  CHECK_THAT(thrown<std::out_of_range>([&] {
               records.read_many_into(Indices{0, 100}, std::span(batch).first(2 * bytes), queue);
             }),
             Mentions("there is no record 100"));
  std::filesystem::resize_file(b, 10 * bytes);
  const std::string alone = thrown<StoreError>([&] { static_cast<void>(records[85]); });
  CHECK_THAT(alone, Mentions("record 15 (of all files: 85) is lost: the file has"));
  const auto row = std::span(batch).first(2 * bytes);
  CHECK(thrown<StoreError>([&] { records.read_many_into(Indices{3, 85}, row, queue); }) == alone);
  CHECK(thrown<StoreError>([&] { texts(records, {85, 4}, queue); }) == alone);
}

TEST_CASE("PackedFile reads into targets by a queue, and compares checksums", "[queued_samples]") {
  const TemporaryDirectory directory;
  const Pack data(directory);
  const PackedFile pack = data.open();
  ReadQueue queue(any_options());
  const Indices indices{7, 3, 7, 199, 0};
  std::vector<std::string> rows;
  std::vector<std::span<std::byte>> targets;
  for (const std::uint64_t index : indices) rows.emplace_back(pack.bytes(index), '\0');
  for (std::string& row : rows) targets.push_back(std::as_writable_bytes(std::span(row)));
  pack.read_many_into(indices, targets, queue);
  for (std::size_t k = 0; k < indices.size(); ++k) CHECK(rows[k] == sample(indices[k]));

  CHECK_THAT(thrown<std::invalid_argument>(
                 [&] { pack.read_many_into(indices, std::span(targets).first(4), queue); }),
             Mentions("4 targets for 5 records"));
  std::string bytes = read_file(data.path);
  bytes[bytes.find(sample(7)) + 2] ^= 1;
  std::ofstream(data.path, std::ios::binary) << bytes;
  std::vector<std::byte> scratch;
  const std::string alone = thrown<StoreError>([&] { pack.read(7, scratch); });
  CHECK_THAT(alone, Mentions("its bytes have another checksum"));
  CHECK(thrown<StoreError>([&] { pack.read_many_into(indices, targets, queue); }) == alone);
  CHECK(thrown<StoreError>([&] { texts(pack, indices, queue); }) == alone);
  CHECK_NOTHROW(texts(PackedFile(data.path, {.verify = false}), indices, queue));
  targets[1] = targets[1].first(1);
  CHECK_THAT(thrown<std::invalid_argument>([&] { pack.read_many_into(indices, targets, queue); }),
             Mentions("a target of 1 bytes for record 3"));
}

TEST_CASE("FileFolder: empty files, other kinds of file and too long paths by a queue",
          "[queued_samples]") {
  const TemporaryDirectory directory;
  const auto empty = directory / "empty.jpg", good = directory / "good.jpg";
  write_file(empty, "");
  write_file(good, "good");
  std::filesystem::create_directories(directory / "folder.jpg");
  REQUIRE(::mkfifo((directory / "pipe.jpg").c_str(), 0666) == 0);
  const std::vector<std::filesystem::path> paths{good, empty, directory / "folder.jpg",
                                                 directory / "pipe.jpg", std::string(5000, 'x')};
  const FileFolder files = FileFolder::from_files(paths);
  ReadQueue queue(any_options());
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 1; i < paths.size(); ++i) {
    const std::string alone = thrown<StoreError>([&] { files.read(i, scratch); });
    CHECK(thrown<StoreError>([&] { texts(files, {0, i, 0}, queue); }) == alone);
  }
  const FileFolder allowed = FileFolder::from_files({good, empty}, {}, {.allow_empty = true});
  CHECK(texts(allowed, {1, 0, 1}, queue) == std::vector<std::string>{"", "good", ""});
}

TEST_CASE("a queue leaves no file of a folder open, whatever is thrown", "[queued_samples]") {
  const TemporaryDirectory directory;
  const Folder data(directory);
  const FileFolder files = data.open();
  ReadQueue queue(any_options());
  const auto next_descriptor = [] {
    const int opened = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(opened);
    return opened;
  };
  const int before = next_descriptor();
  for (const int number : {1, 20, 150}) {
    for (const auto& file : data.files()) drop_from_cache(file);
    int calls = 0;
    CHECK(thrown<std::runtime_error>([&] {
            files.read_many(mixed_indices(kStoreSamples), queue, [&](auto...) {
              if (++calls == number) throw std::runtime_error("enough");
            });
          }) == "enough");
    CHECK(next_descriptor() == before);
  }
}

TEST_CASE("stores of other machines are told first, and read one by one", "[queued_samples]") {
  const TemporaryDirectory directory;
  const Pack data(directory);
  const auto remote = test::in_memory("mem://a.pack", data.path);
  const PackedFile pack{File(remote)};
  ReadQueue queue;
  CHECK(texts(pack, {5, 3}, queue) == std::vector{sample(5), sample(3)});
  CHECK(remote->ranges.size() == 2);

  const auto folder = std::make_shared<MemoryFolder>();
  folder->files = {{"a.jpg", "aa"}, {"b.jpg", "bb"}};
  const FileFolder files = FileFolder::from_files(folder, {"a.jpg", "b.jpg"});
  CHECK(texts(files, {1, 0}, queue) == std::vector<std::string>{"bb", "aa"});
  CHECK(folder->wanted == std::vector<std::string>{"b.jpg", "a.jpg"});
  CHECK(queue.stats().alone == 4);
}

// ---- A pipeline

struct Records {
  Tensor<std::uint8_t, 2> bytes;
};

TEST_CASE("workers of a pipeline have queues, and read whole batches", "[queued_samples]") {
  constexpr std::int64_t kBatch = 16;
  constexpr std::size_t kBytes = 500;
  const TemporaryDirectory directory;
  const RecordFile records{{directory.records("a.bin", 0, 160, kBytes)}, kBytes};
  const auto layout = Layout<Records>{kBatch}.field(&Records::bytes, {std::int64_t{kBytes}});
  const auto source =
      per_worker([] { return ReadQueue(); },
                 [&](ReadQueue& queue, const Ticket& ticket, Records& batch) {
                   const std::span rows(batch.bytes.data_handle(), ticket.samples.size() * kBytes);
                   records.read_many_into(ticket.samples, std::as_writable_bytes(rows), queue);
                 });
  const Sampler sampler({.samples = 160, .batch_size = kBatch, .shuffle = true, .seed = 3});
  PinnedPool pool;
  BatchProducer<Records> producer{
      layout, sampler, source, pool, {.workers = 3, .depth = 5, .epochs = 2}};
  std::vector<int> seen(160);
  while (const auto batch = producer.next())
    for (std::int64_t row = 0; row < batch->samples(); ++row) {
      const std::uint64_t index = batch->ticket().samples[static_cast<std::size_t>(row)];
      ++seen[index];
      const std::span record(&(*batch)->bytes(row, 0), kBytes);
      REQUIRE(is_record(std::as_bytes(record), index));
    }
  CHECK(seen == std::vector<int>(160, 2));
}

}  // namespace
}  // namespace penstock
