// SPDX-License-Identifier: Apache-2.0

// formats FOLDER          reads the files that a release wrote, and checks what is in them
// formats --write FOLDER  writes such files, for a release: three.tar and three.pack have to be
// there

#include <penstock/penstock.hpp>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const std::vector<std::uint64_t> kKept = {1, 4, 5, 90};
constexpr penstock::SamplerOptions kOptions{
    .samples = 1000, .batch_size = 10, .shuffle = true, .seed = 7};
constexpr std::uint64_t kEpoch = 3, kBatch = 12;
/// The samples of that batch, by the order of 0.1.
const std::vector<std::uint64_t> kSamples = {497, 74, 988, 156, 547, 348, 654, 891, 753, 768};

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + " is not what was written");
}

template <class Store>
void expect_texts(const Store& store) {
  std::vector<std::byte> scratch;
  const std::vector<std::string> texts = {"first", "the second", "3"};
  expect(store.size() == texts.size(), "the number of samples");
  for (std::uint64_t i = 0; i < texts.size(); ++i) {
    const auto bytes = store.read(i, scratch);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    expect(text == texts[i], "sample " + std::to_string(i));
  }
}

void write(const fs::path& folder) {
  penstock::TarShards({folder / "three.tar"}).save_indexes();
  penstock::Subset(100, kKept).save(folder / "kept.subset");
  penstock::State state = penstock::Sampler(kOptions).start();
  state.epoch = kEpoch;
  state.batch = kBatch;
  state.save(folder / "state.txt");
}

void read(const fs::path& folder) {
  const penstock::PackedFile pack(folder / "three.pack");
  expect_texts(pack);
  for (std::uint64_t i = 0; i < pack.size(); ++i)
    expect(pack.label(i) == (i == 2 ? 1 : 0), "a label of the pack");

  const penstock::TarShards shards({folder / "three.tar"});
  expect(fs::exists(penstock::TarShards::index_path(folder / "three.tar")), "the index");
  expect_texts(shards);

  const penstock::Subset kept = penstock::Subset::load(folder / "kept.subset", 100);
  expect(kept.size() == kKept.size(), "the size of the subset");
  for (std::size_t i = 0; i < kKept.size(); ++i) expect(kept[i] == kKept[i], "the subset");

  const penstock::State state = penstock::State::load(folder / "state.txt");
  expect(state.epoch == kEpoch && state.batch == kBatch, "the state");
  std::vector<std::uint64_t> samples;
  penstock::Sampler(kOptions, state).samples(state.epoch, state.batch, samples);
  std::string numbers;
  for (const std::uint64_t sample : samples) numbers += std::to_string(sample) + ", ";
  expect(samples == kSamples, "the batch " + numbers + "of the run that is continued");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3 && std::strcmp(argv[1], "--write") == 0) {
      write(argv[2]);
    } else if (argc == 2) {
      read(argv[1]);
      std::puts("all files are read");
    } else {
      std::fputs("use: formats [--write] FOLDER\n", stderr);
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "formats: %s\n", error.what());
    return 1;
  }
}
