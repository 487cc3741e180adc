// SPDX-License-Identifier: Apache-2.0

// What requests cost, as docs/remote.md has it in a table.

#include <cstdint>
#include <filesystem>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/packed_file_writer.hpp>
#include <penstock/remote.hpp>
#include <penstock/sampler.hpp>
#include <penstock/tar_shards.hpp>
#include <string>
#include <vector>

#include "server.hpp"
#include "support/tar_writer.hpp"
#include "support/temporary_directory.hpp"

namespace penstock::test {
namespace {

using penstock::remote::Client;

constexpr std::uint64_t kEpochSamples = 200, kEpochBatch = 20;
constexpr std::size_t kSampleBytes = 70'000;  // neighbours but one are not one request

/// Reads an epoch, each batch announced. Returns how many requests it took.
template <class AnyStore>
std::uint64_t epoch(const Client& client, const AnyStore& store, const SamplerOptions& order) {
  const Sampler sampler(order);
  const auto before = client.stats().requests;
  std::vector<std::uint64_t> samples;
  std::vector<std::byte> scratch;
  for (std::uint64_t batch = 0; batch < sampler.batches(); ++batch) {
    samples.clear();
    sampler.samples(0, batch, samples);
    store.will_need(samples, {});
    for (const std::uint64_t sample : samples)
      CHECK(store.read(sample, scratch).size() == kSampleBytes);
  }
  return client.stats().requests - before;
}

}  // namespace

TEST_CASE("Client: the requests of an epoch", "[remote]") {
  const Server server;
  PackedFileWriter pack(server.files() / "a.pack");
  TarWriter tar;
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < kEpochSamples; ++i) {
    const std::vector<std::byte> bytes = random_bytes(kSampleBytes, i + 1);
    names.push_back(std::to_string(1000 + i) + ".jpg");
    pack.append(bytes);
    tar.add(names.back(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    server.put(names.back().c_str(), bytes);
  }
  pack.finish();
  tar.save(server.files() / "a.tar");
  const TemporaryDirectory indexes;
  TarShards(std::vector<std::filesystem::path>{server.files() / "a.tar"},
            {.index_folder = indexes / "."})
      .save_indexes();

  const Client client({.hedging = false});
  const SamplerOptions in_order{.samples = kEpochSamples, .batch_size = kEpochBatch};
  SamplerOptions shuffled = in_order, blocks = in_order;
  shuffled.shuffle = blocks.shuffle = true;
  blocks.block = kEpochBatch;
  blocks.window = 1;

  const FileFolder files = FileFolder::from_files(client.folder(server.url("/files/")), names);
  CHECK(client.stats().requests == 0);
  CHECK(epoch(client, files, shuffled) == kEpochSamples);
  CHECK(epoch(client, files, in_order) == kEpochSamples);

  auto before = client.stats().requests;
  const PackedFile packed(client.file(server.url("/files/a.pack")));
  CHECK(client.stats().requests - before <= 2);
  CHECK(epoch(client, packed, in_order) == kEpochSamples / kEpochBatch);
  CHECK(epoch(client, packed, blocks) == kEpochSamples / kEpochBatch);
  const auto of_shuffled = epoch(client, packed, shuffled);
  CHECK(of_shuffled <= kEpochSamples);
  CHECK(of_shuffled > kEpochSamples * 3 / 4);  // Some are neighbours in a batch.

  before = client.stats().requests;
  const TarShards shards(std::vector{client.file(server.url("/files/a.tar"))},
                         {.index_folder = indexes / "."});
  CHECK(client.stats().requests - before <= 130);
  CHECK(epoch(client, shards, in_order) == kEpochSamples / kEpochBatch);
  CHECK(epoch(client, shards, blocks) == kEpochSamples / kEpochBatch);
  before = client.stats().requests;
  const TarShards by_headers(std::vector{client.file(server.url("/files/a.tar"))});
  CHECK(client.stats().requests - before >= kEpochSamples);
}

}  // namespace penstock::test
