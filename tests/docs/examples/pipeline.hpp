// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of the headers and of the pages take for granted: a data set of two small files
// in the working directory, a batch of images and what fills it, a pipeline over it, memory,
// kernels that do nothing. An example is a member function of a Pipeline, which is made anew for
// each; its own variables hide the members of the same names.

#include <penstock/emulation.hpp>
#include <penstock/penstock.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../../support/mds_files.hpp"
#include "../../support/tar_writer.hpp"
#include "../../support/tf_records.hpp"
#include "../../support/token_files.hpp"

namespace {

namespace emulation = penstock::emulation;

struct Images {
  penstock::Tensor<std::uint8_t, 4> pixels;
  penstock::Tensor<std::int32_t, 1> labels;
};
struct Records {
  penstock::Tensor<std::uint8_t, 2> bytes;
};

void decode(std::span<const std::byte> record, Images& batch, std::size_t sample) {
  batch.labels(static_cast<std::int64_t>(sample)) = static_cast<std::int32_t>(record[0]);
}

struct Decoder {
  std::unique_ptr<std::byte[]> memory = std::make_unique<std::byte[]>(4096);
  std::vector<std::byte> scratch;
  void decode(std::span<const std::byte> record, Images& batch, std::int64_t row) {
    batch.labels(row) = static_cast<std::int32_t>(record[0]);
  }
};

/// In place of <<<...>>>, which no C++ compiler takes: a kernel<<<a, b>>>(x) of an example is
/// (configured(a, b), kernel)(x).
template <class... Configuration>
void configured(Configuration...) {}

const auto train_step = [](const Images&, float*) {};
const auto augment = [](const Records&, const Images&, std::uint64_t) {};
const int blocks = 132;
const auto generate = [](const penstock::Ticket&, const Images&, cudaStream_t) {};

const auto fill = [](std::byte* memory) { *memory = {}; };
const auto use = [](auto&&) {};
const auto add_workers = [] {};
const auto step = [] {};
const auto run_my_loop = [] {};
struct {
  void reply(const std::string&) {}
} http;

struct WriteFiles {
  WriteFiles() {
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin"})
      std::ofstream(name, std::ios::binary) << std::string(300 * 3073, '\7');
    write_stores();
    write_tables();
  }

  /// The data sets of the stores' examples: a folder of two classes, two tar shards, a packed file,
  /// files of tokens.
  static void write_stores() {
    for (const std::string name : {"imagenet/train/cat/1.jpg", "imagenet/train/dog/2.jpg"}) {
      std::filesystem::create_directories(std::filesystem::path(name).parent_path());
      std::ofstream(name, std::ios::binary) << "a picture";
    }
    for (const char* shard : {"train-0000.tar", "train-0001.tar"})
      penstock::test::TarWriter()
          .add("000017.jpg", "a picture")
          .add("000017.cls", "3")
          .add("000017.json", "{}")
          .save(shard);
    const penstock::FileFolder images("imagenet/train");
    std::vector<std::byte> scratch;
    penstock::PackedFileWriter pack("imagenet-train.pack");
    for (std::uint64_t i = pack.size(); i < images.size(); ++i)
      pack.append(images.read(i, scratch), images.label(i), images.name(i));
    pack.finish();
    using namespace penstock::test;
    const MadeTexts texts(1, 100, 20, 1);
    write_file("./books_0.bin", llmc_file(20240520, 1, texts.tokens));
    write_file("./books_1.bin", llmc_file(20240520, 1, texts.tokens));
    write_file("./web_text_document.bin", packed(texts.tokens));
    std::vector<std::int32_t> lengths;
    std::vector<std::int64_t> entries{0};
    for (std::size_t d = 0; d + 1 < texts.begins.size(); ++d) {
      lengths.push_back(static_cast<std::int32_t>(texts.begins[d + 1] - texts.begins[d]));
      entries.push_back(static_cast<std::int64_t>(d) + 1);
    }
    write_file("./web_text_document.idx", megatron_index(8, 2, lengths, entries));
  }

  /// An array of NumPy of 600 rows, TFRecord files, MDS shards.
  static void write_tables() {
    using namespace penstock::test;
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (600, 64), }";
    header.resize(117, ' ');
    write_file("./features.npy", std::string("\x93NUMPY\x01\0\x76\0", 10) + header + '\n' +
                                     std::string(600 * 64 * sizeof(float), '\0'));
    const std::string record = tf_record(example(feature("image/encoded", 1, bytes_list({"jpeg"})) +
                                                 feature("ids", 3, int64_list({1, 2, 3}))));
    for (const char* file : {"./train-00000-of-00002", "./train-00001-of-00002"})
      write_file(file, record + record);
    std::filesystem::create_directories("c4/train");
    const std::string shard = mds::shard(0, 20);
    write_file("c4/train/a.mds", shard);
    write_file("c4/train/index.json", mds::index_of(mds::entry("a.mds", shard.size(), 20)));
  }
} const files_are_there;

/// Of an example that needs nothing, or starts the runtime anew.
struct Bare {
  std::uint64_t n = 1;
};

/// Memory of the device for values of any type.
struct DeviceMemory {
  std::byte* at;
  operator void*() const { return at; }
  operator std::byte*() const { return at; }
  operator float*() const { return reinterpret_cast<float*>(at); }
};

struct Pipeline : Bare {
  penstock::Ranks ranks;
  penstock::RecordFile records{{"data_batch_1.bin", "data_batch_2.bin"}, 3073};
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(600);
  penstock::Layout<Images> layout =
      penstock::Layout<Images>{256}.field(&Images::pixels, {32, 32, 3}).field(&Images::labels, {});
  penstock::Layout<Images> images_layout = layout;
  penstock::Layout<Records> records_layout =
      penstock::Layout<Records>{256}.field(&Records::bytes, {3073});
  penstock::Sampler sampler{{.samples = 600, .batch_size = 256}};

  penstock::Source<Images> source = [this, memory = std::vector<std::byte>()](
                                        const penstock::Ticket& ticket, Images& batch) mutable {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i)
      decode(records.read(ticket.samples[i], memory), batch, i);
  };
  penstock::Source<Images> decode_batch = source;
  penstock::Source<Records> read_records = [](const penstock::Ticket&, Records&) {};

  std::size_t bytes = layout.bytes();
  penstock::PinnedPool pool;
  penstock::PinnedBlock host_block = pool.acquire(bytes);
  std::byte* host = host_block.data();
  std::byte* block = host;
  penstock::Stream owned_stream, owned_copy_stream, owned_compute_stream;
  cudaStream_t stream = owned_stream.get();
  cudaStream_t copy_stream = owned_copy_stream.get();
  cudaStream_t compute_stream = owned_compute_stream.get();
  penstock::DeviceArena arena_of_one{2, bytes};
  penstock::DeviceSlot slot_of_one = arena_of_one.acquire(owned_stream.get());
  DeviceMemory device{slot_of_one.data()};
  float* loss = device;

  penstock::Prefetcher<Images> prefetcher{layout, sampler, source, {.workers = 1, .epochs = 3}};
  penstock::Lease<Images> batch = prefetcher.next(stream);
  const penstock::Ticket& ticket = batch.ticket();

  std::string file = "state.txt", line;
  std::vector<std::byte> scratch;
  std::size_t samples = 8, classes = 10, images = 4;
  float values[80] = {};
  float* pointer = values;
  std::size_t i = 1;
  std::int64_t j = 2;

  ~Pipeline() { cudaDeviceSynchronize(); }  // Work of the example reads members.
};

/// After each example.
void clean_up() {
  emulation::reset();
}

}  // namespace
