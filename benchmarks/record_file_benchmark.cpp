// SPDX-License-Identifier: Apache-2.0

// A batch of records out of the page cache, by RecordFile, by MappedRecords, and by nothing but
// pread or mmap: records of 3073 bytes as CIFAR-10 has them, and a table's rows of 16 bytes. In a
// random order, in one that keeps blocks together (SamplerOptions::block), and in that of the file.
// And a shuffled epoch of rows by a pipeline of two workers, beside two threads with a mapping and
// a list of rows that was shuffled before.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <penstock/batch_producer.hpp>
#include <penstock/mapped_records.hpp>
#include <penstock/record_file.hpp>
#include <penstock/sampler.hpp>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace penstock;

constexpr std::size_t kFileBytes = 160'000'000;  // as CIFAR-10
constexpr std::size_t kBatch = 1024;

/// A file of its own, removed at exit.
struct DataFile {
  DataFile() : path(std::filesystem::temp_directory_path() / "penstock_record_file_benchmark.bin") {
    std::ofstream file(path, std::ios::binary);
    const std::string block(1'000'000, 'x');
    for (std::size_t i = 0; i < kFileBytes / block.size(); ++i) file << block;
  }
  ~DataFile() { std::filesystem::remove(path); }
  const std::filesystem::path path;
};
const std::filesystem::path& data_file() {
  static const DataFile file;
  return file.path;
}

/// The whole records of the data file.
struct Table {
  explicit Table(std::size_t bytes) : record_bytes(bytes) {
    std::filesystem::resize_file(data_file(), kFileBytes / bytes * bytes);
  }
  std::uint64_t records() const { return kFileBytes / record_bytes; }
  const std::size_t record_bytes;
};

using Indices = std::span<const std::uint64_t>;
using Target = std::span<std::byte>;

// ---- Ways to read: each fills a batch -----------------------------------------------------------

struct BarePread {
  explicit BarePread(const Table& all) : table(all) {}
  BarePread(const BarePread&) = delete;
  BarePread& operator=(const BarePread&) = delete;
  ~BarePread() { ::close(file); }
  void operator()(Indices indices, Target target) const {
    for (std::size_t i = 0; i < indices.size(); ++i)
      benchmark::DoNotOptimize(::pread(file, target.data() + i * table.record_bytes,
                                       table.record_bytes,
                                       static_cast<off_t>(indices[i] * table.record_bytes)));
  }
  const Table table;
  const int file = ::open(data_file().c_str(), O_RDONLY | O_CLOEXEC);
};
struct BareMapping {
  explicit BareMapping(const Table& all) : table(all) {
    const int file = ::open(data_file().c_str(), O_RDONLY | O_CLOEXEC);
    data =
        static_cast<const std::byte*>(::mmap(nullptr, kFileBytes, PROT_READ, MAP_SHARED, file, 0));
    ::close(file);
  }
  BareMapping(const BareMapping&) = delete;
  BareMapping& operator=(const BareMapping&) = delete;
  ~BareMapping() { ::munmap(const_cast<std::byte*>(data), kFileBytes); }
  void operator()(Indices indices, Target target) const {
    for (std::size_t i = 0; i < indices.size(); ++i)
      std::memcpy(target.data() + i * table.record_bytes, data + indices[i] * table.record_bytes,
                  table.record_bytes);
  }
  const Table table;
  const std::byte* data;
};
struct OfRecords {
  explicit OfRecords(const Table& table) : records({data_file()}, table.record_bytes) {}
  Target place(Target target, std::size_t i) const {
    return target.subspan(i * records.record_bytes(), records.record_bytes());
  }
  const RecordFile records;
};
struct ReadInto : OfRecords {
  using OfRecords::OfRecords;
  void operator()(Indices indices, Target target) const {
    for (std::size_t i = 0; i < indices.size(); ++i)
      records.read_into(indices[i], place(target, i));
  }
};
/// By way of scratch memory, as a decoder reads.
struct Read : OfRecords {
  using OfRecords::OfRecords;
  void operator()(Indices indices, Target target) {
    for (std::size_t i = 0; i < indices.size(); ++i)
      std::ranges::copy(records.read(indices[i], scratch), place(target, i).begin());
  }
  std::vector<std::byte> scratch;
};
struct Subscript : OfRecords {
  using OfRecords::OfRecords;
  void operator()(Indices indices, Target target) const {
    for (std::size_t i = 0; i < indices.size(); ++i)
      std::ranges::copy(records[indices[i]], place(target, i).begin());
  }
};
struct ReadMany : OfRecords {
  using OfRecords::OfRecords;
  void operator()(Indices indices, Target target) const { records.read_many(indices, target); }
};
struct MappedSubscript : OfRecords {
  using OfRecords::OfRecords;
  void operator()(Indices indices, Target target) const {
    for (std::size_t i = 0; i < indices.size(); ++i)
      std::memcpy(place(target, i).data(), rows[indices[i]].data(), records.record_bytes());
  }
  const MappedRecords rows{records};
};
struct MappedMany : OfRecords {
  using OfRecords::OfRecords;
  void operator()(Indices indices, Target target) const { rows.read_many(indices, target); }
  const MappedRecords rows{records};
};

// ---- Orders -------------------------------------------------------------------------------------

enum Order { shuffled, in_blocks, in_order };
constexpr std::array kOrderNames{"shuffled", "blocks of 64, windows of 16", "in order"};

/// The samples of an epoch, in the order of its batches.
std::vector<std::uint64_t> samples_of(const Table& table, Order order) {
  std::vector<std::uint64_t> samples(table.records());
  std::iota(samples.begin(), samples.end(), std::uint64_t{0});
  if (order == in_order) return samples;
  SamplerOptions options{.samples = table.records(),
                         .batch_size = static_cast<std::int64_t>(table.records()),
                         .shuffle = true,
                         .seed = 1};
  if (order == in_blocks) options.block = 64, options.window = 16;
  Sampler(options).samples(0, 0, samples);
  return samples;
}

template <class Reader>
void read_batch(benchmark::State& state) {
  const Table table(static_cast<std::size_t>(state.range(0)));
  const auto order = static_cast<Order>(state.range(1));
  Reader read(table);
  const std::vector<std::uint64_t> samples = samples_of(table, order);
  std::vector<std::byte> batch(kBatch * table.record_bytes);
  std::size_t first = 0;
  for (auto _ : state) {
    read(Indices(samples).subspan(first, kBatch), batch);
    first = first + 2 * kBatch > samples.size() ? 0 : first + kBatch;
    benchmark::ClobberMemory();
  }
  state.SetLabel(kOrderNames.at(static_cast<std::size_t>(order)));
  state.SetItemsProcessed(static_cast<std::int64_t>(kBatch) * state.iterations());
}

void sizes_and_orders(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bytes", "order"});
  for (const int bytes : {16, 3073})
    for (const Order order : {shuffled, in_blocks, in_order}) benchmark->Args({bytes, order});
}

BENCHMARK(read_batch<BarePread>)->Apply(sizes_and_orders);
BENCHMARK(read_batch<Subscript>)->Apply(sizes_and_orders);
BENCHMARK(read_batch<Read>)->Apply(sizes_and_orders);
BENCHMARK(read_batch<ReadInto>)->Apply(sizes_and_orders);
BENCHMARK(read_batch<ReadMany>)->Apply(sizes_and_orders);
BENCHMARK(read_batch<BareMapping>)->Apply(sizes_and_orders);
BENCHMARK(read_batch<MappedSubscript>)->Apply(sizes_and_orders);
BENCHMARK(read_batch<MappedMany>)->Apply(sizes_and_orders);

// ---- A pipeline of rows -------------------------------------------------------------------------

using Row = std::array<std::int32_t, 4>;
struct Rows {
  Tensor<Row, 1> rows;
};

void rows_by_two_workers(benchmark::State& state) {
  const Table table(sizeof(Row));
  const MappedRecords records{RecordFile({data_file()}, sizeof(Row))};
  const auto layout = Layout<Rows>{static_cast<std::int64_t>(kBatch)}.field(&Rows::rows, {});
  const Sampler sampler({.samples = table.records(),
                         .batch_size = static_cast<std::int64_t>(kBatch),
                         .shuffle = true,
                         .drop_last = true});
  const auto source = [&records](const Ticket& ticket, Rows& batch) {
    records.read_many(ticket.samples, std::as_writable_bytes(std::span(batch.rows.data_handle(),
                                                                       ticket.samples.size())));
  };
  PinnedPool pool;
  for (auto _ : state) {
    BatchProducer<Rows> producer{layout, sampler, source, pool, {.workers = 2, .depth = 16}};
    while (const auto batch = producer.next())
      benchmark::DoNotOptimize((*batch)->rows.data_handle()->front());
  }
  state.SetItemsProcessed(state.iterations() *
                          static_cast<std::int64_t>(sampler.batches() * kBatch));
}

void rows_by_two_threads_by_hand(benchmark::State& state) {
  const Table table(sizeof(Row));
  const BareMapping mapping(table);
  std::vector<std::uint64_t> order(table.records() / (2 * kBatch) * (2 * kBatch));
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  const auto read_half = [&](std::size_t half) {
    std::vector<Row> batch(kBatch);
    const std::size_t rows = order.size() / 2;
    for (std::size_t begin = half * rows; begin < (half + 1) * rows; begin += kBatch) {
      for (std::size_t i = 0; i < kBatch; ++i)
        std::memcpy(&batch[i], mapping.data + order[begin + i] * sizeof(Row), sizeof(Row));
      benchmark::DoNotOptimize(batch.data());
      benchmark::ClobberMemory();
    }
  };
  for (auto _ : state) {
    std::thread other(read_half, std::size_t{1});
    read_half(0);
    other.join();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(order.size()));
}

BENCHMARK(rows_by_two_workers)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(rows_by_two_threads_by_hand)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
