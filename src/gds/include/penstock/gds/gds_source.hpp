// SPDX-License-Identifier: Apache-2.0
#pragma once

// gds_source: a source that reads records from storage to the rows of a batch in device memory.
//
//   struct Rows {
//     penstock::Tensor<std::uint8_t, 2> bytes;
//   };
//   const penstock::RecordFile store({"records.bin"}, 12288);
//   penstock::Prefetcher<Rows> prefetcher{
//       penstock::Layout<Rows>{256}.field(&Rows::bytes, {12288}),
//       {.samples = store.size(), .shuffle = true, .seed = 7},
//       penstock::gds::gds_source(store, &Rows::bytes),
//       {.workers = 4}};

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <penstock/file.hpp>
#include <penstock/gds/gds_error.hpp>
#include <penstock/gds/gds_file.hpp>
#include <penstock/gds/gds_reader.hpp>
#include <penstock/source.hpp>
#include <penstock/store.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::gds {

/// A store that says where its samples are, such as RecordFile, NpyFile and PackedFile.
template <class T>
concept PlacedStore = requires(const T& store, std::uint64_t i) {
  { store.size() } -> std::convertible_to<std::uint64_t>;
  { store.place(i) } -> std::same_as<FilePlace>;
};

/// The settings of gds_source.
struct GdsSourceOptions {
  GdsOptions file{};          ///< how files are opened
  GdsReaderOptions reader{};  ///< how each worker reads
};

namespace detail {

/// The files of a store, each registered when it is first needed. Any number of threads may use it.
class GdsFiles {
 public:
  explicit GdsFiles(GdsOptions options) : options_(std::move(options)) {}
  /// Throws GdsError. What it returns lives as long as this.
  const GdsFile& of(const File& file);

 private:
  const GdsOptions options_;
  std::mutex mutex_;
  std::map<int, GdsFile> files_;  // by the descriptors of the store's files, which stay open
};

/// The state of a worker: the reads of a batch.
class RowReader {
 public:
  explicit RowReader(const GdsReaderOptions& options);

  /// Begins a batch whose rows of `row_bytes` bytes lie one behind the other at `rows`.
  void begin(void* rows, std::size_t row_bytes);
  /// Adds the next row. Throws StoreError for a record of another size than a row.
  void add(GdsFiles& files, const FilePlace& place, std::uint64_t sample);
  /// Waits until `stream` no longer uses the rows, and reads them. Throws StoreError.
  void read(cudaStream_t stream);

 private:
  GdsReader reader_;
  std::byte* rows_ = nullptr;
  std::size_t row_bytes_ = 0;
  std::vector<std::uint64_t> samples_;   // of the rows
  std::vector<GdsRequest> requests_;     // each of one row, or of neighbours
  std::vector<std::size_t> first_rows_;  // of the requests
};

template <class Batch, class Rows, class Store>
struct ReadRows {
  std::shared_ptr<const Store> store;
  std::shared_ptr<GdsFiles> files;
  Rows Batch::*rows;

  void operator()(RowReader& reader, const Ticket& ticket, Batch& batch, cudaStream_t stream) {
    const Rows& all = batch.*rows;
    const auto samples = static_cast<std::size_t>(all.extent(0));
    if (samples != ticket.samples.size())
      throw std::invalid_argument("gds_source: the batch has another number of rows than samples");
    if (samples == 0) return;
    reader.begin(all.data_handle(),
                 static_cast<std::size_t>(all.size()) / samples * sizeof(*all.data_handle()));
    for (const std::uint64_t sample : ticket.samples)
      reader.add(*files, store->place(sample), sample);
    reader.read(stream);
  }
};

}  // namespace detail

/// Returns an on_device source: row r of the field `rows` gets the bytes of sample
/// ticket.samples[r] of `store`, as they are, on the worker's thread, past the page cache and the
/// pipeline's pinned memory. All records have the size of a row. Other fields stay as they were.
/// Each source has a copy of the store, which for penstock's stores is a reference. Checksums of a
/// PackedFile are not compared, since the bytes never are in host memory.
///
/// Neighbours in the file that are neighbours in the batch are one read. A worker waits for its
/// stream, so that nobody reads the rows any more, and for its reads. Where the begin of a record,
/// its size, or that of a row is no multiple of 4096, cuFile reads to memory of its own on the
/// device and copies; the reads are right, but the way is not the shortest. The slots of the batch
/// are not registered with cuFile (cuFileBufRegister).
///
/// Throws GdsError for a first file that cuFile does not read directly, if
/// GdsOptions::allow_compatibility_mode does not allow it, and std::out_of_range for an empty
/// store. A read that fails is a StoreError with the number of the sample.
template <class Batch, class Rows, PlacedStore Store>
auto gds_source(Store store, Rows Batch::*rows, const GdsSourceOptions& options = {}) {
  auto files = std::make_shared<detail::GdsFiles>(options.file);
  files->of(store.place(0).file);
  using Read = detail::ReadRows<Batch, Rows, Store>;
  return on_device(
      per_worker([reader = options.reader] { return detail::RowReader(reader); },
                 Read{std::make_shared<const Store>(std::move(store)), std::move(files), rows}));
}

}  // namespace penstock::gds
