// SPDX-License-Identifier: Apache-2.0

// docs/recipes/tables.md: a table of rows of 16 bytes, read in a random order, in three ways: a row
// at a time, the rows of a batch by one call, and from a mapping of the files; and the same table
// as an array of NumPy, and as columns in memory. Writes the table to the working directory. Each
// way has to bring every row; the program prints its statistics.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <penstock/penstock.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::uint64_t kRows = 200'000;
constexpr std::int64_t kBatch = 1024;

/// As the files have it, and the device gets it.
struct Row {
  std::int32_t id;
  float x, y, z;
};

struct Rows {
  penstock::Tensor<Row, 1> rows;  // sample
};

/// The bytes of the batch's rows, for functions that read.
std::span<std::byte> bytes_of(Rows& batch, std::size_t samples) {
  return std::as_writable_bytes(std::span(batch.rows.data_handle(), samples));
}

std::vector<std::filesystem::path> write_table() {
  std::vector<std::filesystem::path> files;
  for (std::uint64_t part = 0; part < 2; ++part) {
    std::vector<Row> rows;
    for (std::uint64_t i = part * kRows / 2; i < (part + 1) * kRows / 2; ++i)
      rows.push_back({static_cast<std::int32_t>(i), static_cast<float>(i % 7), 1, 2});
    files.emplace_back("table-" + std::to_string(part) + ".bin");
    std::ofstream(files.back(), std::ios::binary)
        .write(reinterpret_cast<const char*>(rows.data()),
               static_cast<std::streamsize>(rows.size() * sizeof(Row)));
  }
  return files;
}

/// As numpy.save() writes an array of float32 of shape (200000, 3).
void write_array() {
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (200000, 3), }";
  text.resize(117, ' ');  // The numbers begin at byte 128.
  text += '\n';
  std::ofstream file("features.npy", std::ios::binary);
  file << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(text.size()) << '\0' << text;
  for (std::uint64_t i = 0; i < kRows; ++i) {
    const std::array<float, 3> row{static_cast<float>(i % 7), 1, 2};
    file.write(reinterpret_cast<const char*>(row.data()), sizeof(row));
  }
}

/// Columns that somebody else holds, such as an arrow::RecordBatch.
struct Columns {
  std::span<const std::int32_t> id;
  std::span<const float> x, y, z;
};

/// Stands for a model: what it computes of each row goes to the row's own place.
struct Sum {
  Rows batch;
  float* sums;

  __host__ __device__ void operator()(std::int64_t i) const {
    const Row row = batch.rows(i);
    sums[row.id] += row.x + row.y + row.z;
  }
};

/// Two epochs. False: a row is missing.
bool train(const char* way, penstock::Source<Rows> source) {
  const auto layout = penstock::Layout<Rows>{kBatch}.field(&Rows::rows, {});
  penstock::Prefetcher<Rows> prefetcher{layout,
                                        {.samples = kRows, .shuffle = true, .seed = 7},
                                        std::move(source),
                                        {.workers = 2, .epochs = 2}};

  const penstock::Stream stream;
  float* sums = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&sums), kRows * sizeof(float));
  cudaMemsetAsync(sums, 0, kRows * sizeof(float), stream.get());
  while (const auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), batch.samples(), Sum{*batch, sums});
  std::vector<float> found(kRows);
  cudaMemcpyAsync(found.data(), sums, kRows * sizeof(float), cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(sums);

  std::cout << way << ":\n" << prefetcher.stats() << "\n\n";
  for (std::uint64_t i = 0; i < kRows; ++i) {
    if (found[i] == 2 * (static_cast<float>(i % 7) + 3)) continue;
    std::fprintf(stderr, "tables: row %d is wrong\n", static_cast<int>(i));
    return false;
  }
  return true;
}

}  // namespace

int main() {
  const penstock::RecordFile table{write_table(), sizeof(Row)};

  const auto one_by_one = [&table](const penstock::Ticket& ticket, Rows& batch) {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i)
      table.read_into(ticket.samples[i],
                      bytes_of(batch, ticket.samples.size()).subspan(i * sizeof(Row), sizeof(Row)));
  };
  bool right = train("a row at a time", one_by_one);

  const auto many = [&table](const penstock::Ticket& ticket, Rows& batch) {
    table.read_many(ticket.samples, bytes_of(batch, ticket.samples.size()));
  };
  right = train("read_many", many) && right;

  const penstock::MappedRecords mapped(table);
  const auto from_memory = [&mapped](const penstock::Ticket& ticket, Rows& batch) {
    mapped.read_many(ticket.samples, bytes_of(batch, ticket.samples.size()));
  };
  right = train("MappedRecords", from_memory) && right;

  write_array();
  const penstock::NpyFile features("features.npy");
  features.require<float>({3});  // Otherwise an error says what the array is.
  const auto from_array = [&features, floats = std::vector<std::array<float, 3>>()](
                              const penstock::Ticket& ticket, Rows& batch) mutable {
    floats.resize(ticket.samples.size());
    features.read_many(ticket.samples, std::as_writable_bytes(std::span(floats)));
    for (std::size_t i = 0; i < floats.size(); ++i)
      batch.rows(static_cast<std::int64_t>(i)) = {static_cast<std::int32_t>(ticket.samples[i]),
                                                  floats[i][0], floats[i][1], floats[i][2]};
  };
  right = train("NpyFile", from_array) && right;

  std::vector<std::int32_t> id(kRows);
  std::vector<float> x(kRows), y(kRows, 1), z(kRows, 2);
  for (std::uint64_t i = 0; i < kRows; ++i) {
    id[i] = static_cast<std::int32_t>(i);
    x[i] = static_cast<float>(i % 7);
  }
  const Columns columns{id, x, y, z};
  const auto from_columns = [&columns](const penstock::Ticket& ticket, Rows& batch) {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      const std::uint64_t row = ticket.samples[i];
      batch.rows(static_cast<std::int64_t>(i)) = {columns.id[row], columns.x[row], columns.y[row],
                                                  columns.z[row]};
    }
  };
  right = train("columns", from_columns) && right;
  return right ? 0 : 1;
}
