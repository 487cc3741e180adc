// SPDX-License-Identifier: Apache-2.0

// penstock's side of benchmarks/peers/run: each task is one pipeline, written as a user would write
// it. As the peers do, they end in host memory, with batches that are ready to be copied:
// BatchProducer over the emulated runtime, so that a machine needs no GPU.
//
//   penstock_peer TASK DATA          commands on the standard input: beside/peer.hpp

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <penstock/images/crop.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>
#include <penstock/penstock.hpp>
#include <span>

#include "beside/peer.hpp"

namespace {

namespace fs = std::filesystem;
using namespace penstock;
using peers::Digest;
using peers::Json;

/// `look` adds a batch to the digest, if there is one, and returns its units.
template <class Batch, class Look>
void consume(const peers::Consumer& consumer, const Layout<Batch>& layout,
             const AnySampler& sampler, AnySource<Batch> source, const ProducerOptions& options,
             Look look) {
  PinnedPool pool;
  BatchProducer<Batch> producer(layout, sampler, std::move(source), pool, options);
  while (const auto batch = producer.next())
    if (!consumer.batch(look(*batch, consumer.digest))) return;
}

ProducerOptions options(const Json& setting, std::uint64_t epochs) {
  return {.workers = setting.at("workers"),
          .depth = setting.value("depth", std::size_t{0}),
          .epochs = epochs};
}

Sampler sampler(std::uint64_t samples, std::int64_t batch, bool shuffle) {
  return Sampler{{.samples = samples, .batch_size = batch, .shuffle = shuffle, .seed = 7}};
}

/// A sample's number, which stands in its first eight bytes.
std::uint64_t number_in(const std::uint8_t* bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

// ---- JPEG files in a folder: decoded, a random part of them resized to 224 x 224
// -------------------

struct Crops {
  Tensor<std::uint8_t, 4> pixels;  // sample x height x width x channel
  Tensor<std::int32_t, 1> labels;
};

void add_crops(const Crops& crops, Digest& digest) {
  for (std::int64_t row = 0; row < crops.labels.extent(0); ++row) {
    ++digest.samples;
    ++digest.labels[crops.labels(row)];
  }
  for (const std::uint8_t value : std::span(crops.pixels.data_handle(), crops.pixels.size())) {
    digest.sum += value;
    digest.sum_of_squares += static_cast<double>(value * value);
  }
  digest.values += crops.pixels.size();
}

/// The state of a worker that turns files into crops.
class Cropper {
 public:
  explicit Cropper(std::size_t depth) : queue({.depth = depth}) {}

  void operator()(std::span<const std::byte> file, std::uint64_t seed, std::int64_t row,
                  Crops& batch) {
    static constexpr images::ImageSize kSize{224, 224};
    const images::ImageSize size = decoder_.open(file);
    const images::View view = images::RandomResizedCrop{.output = kSize}(seed, size);
    resize_(decoder_.decode(view), std::span(&batch.pixels(row, 0, 0, 0), 224 * 224 * 3));
  }

  ReadQueue queue;
  std::vector<std::byte> scratch;

 private:
  images::JpegDecoder decoder_;
  images::Resizer resize_;
};

/// The source. It reads sample by sample; if `queue` is not 0, it reads whole batches, with so many
/// files in flight.
AnySource<Crops> crops_of(const FileFolder& files, std::size_t queue) {
  const auto cropper = [depth = std::max<std::size_t>(1, queue)] { return Cropper(depth); };
  if (queue == 0)
    return per_sample(
        per_worker(cropper, [&files](Cropper& crop, const Sample& sample, Crops& batch) {
          crop(files.read(sample.index, crop.scratch), sample.seed, sample.row, batch);
          batch.labels(sample.row) = files.label(sample.index);
        }));
  return per_worker(cropper, [&files](Cropper& crop, const Ticket& ticket, Crops& batch) {
    files.read_many(ticket.samples, crop.queue,
                    [&](std::size_t k, std::span<const std::byte> file) {
                      const auto row = static_cast<std::int64_t>(k);
                      crop(file, ticket.sample_seed(k), row, batch);
                      batch.labels(row) = files.label(ticket.samples[k]);
                    });
  });
}

peers::Run jpeg_folder(const fs::path& data) {
  return [files = FileFolder(data / "jpeg/train")](const Json& setting, std::uint64_t epochs,
                                                   const peers::Consumer& consumer) {
    constexpr std::int64_t kBatch = 64;
    const auto layout =
        Layout<Crops>{kBatch}.field(&Crops::pixels, {224, 224, 3}).field(&Crops::labels, {});
    ProducerOptions producer = options(setting, epochs);
    producer.read_ahead = read_ahead(files, setting.value("ahead", std::uint64_t{0}));
    consume(consumer, layout, sampler(files.size(), kBatch, true),
            crops_of(files, setting.value("queue", std::size_t{0})), producer,
            [](const HostBatch<Crops>& batch, Digest* digest) {
              if (digest != nullptr) add_crops(*batch, *digest);
              return batch.samples();
            });
  };
}

// ---- Tar shards: the bytes of each file and its label
// ------------------------------------------------

struct Files {
  Ragged<std::byte> bytes;
  Tensor<std::int32_t, 1> labels;
};

void add_files(const Files& files, Digest& digest) {
  for (std::int64_t row = 0; row < files.bytes.size(); ++row) {
    ++digest.samples;
    ++digest.labels[files.labels(row)];
    for (const std::byte byte : files.bytes.values(row))
      digest.numbers += std::to_integer<std::uint64_t>(byte);
    digest.bytes += files.bytes.values(row).size();
  }
}

peers::Run tar_shards(const fs::path& data, bool shuffle) {
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(data / "tar"))
    if (entry.path().extension() == ".tar") shards.push_back(entry.path());
  std::sort(shards.begin(), shards.end());
  return [files = TarShards(shards), shuffle](const Json& setting, std::uint64_t epochs,
                                              const peers::Consumer& consumer) {
    constexpr std::int64_t kBatch = 64, kMeanBytes = 160 * 1024;
    const auto layout = Layout<Files>{kBatch}
                            .field(&Files::bytes, Capacity{kBatch * kMeanBytes})
                            .field(&Files::labels, {});
    const auto source = [&files, scratch = std::vector<std::byte>()](const Ticket& ticket,
                                                                     Files& batch) mutable {
      for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i);
        batch.bytes.assign(row, files.read(ticket.samples[i], scratch));
        batch.labels(row) = files.label(ticket.samples[i]);
      }
    };
    consume(consumer, layout, sampler(files.size(), kBatch, shuffle), AnySource<Files>(source),
            options(setting, epochs), [](const HostBatch<Files>& batch, Digest* digest) {
              if (digest != nullptr) add_files(*batch, *digest);
              return batch.samples();
            });
  };
}

/// A file of numbers, mapped.
template <class T>
std::span<const T> mapped(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::size_t bytes = fs::file_size(path);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path.string());
  ::close(file);
  return {static_cast<const T*>(memory), bytes / sizeof(T)};
}

// ---- Records of one size
// -----------------------------------------------------------------------------

struct Records {
  Tensor<std::uint8_t, 2> bytes;  // sample x bytes of a record
};

/// With "queue", so many reads in flight for each worker; with "map" out of the mapped file, as the
/// peers read theirs; else by pread, which a file that another process cuts does not end.
peers::Run records(const fs::path& file, std::size_t size, std::int64_t batch_size) {
  return [records = RecordFile({file}, size), all = mapped<std::uint8_t>(file), size, batch_size](
             const Json& setting, std::uint64_t epochs, const peers::Consumer& consumer) {
    const auto layout =
        Layout<Records>{batch_size}.field(&Records::bytes, {static_cast<std::int64_t>(size)});
    const auto depth = setting.value("queue", std::size_t{0});
    const ReadQueueOptions reads{
        .depth = std::max<std::size_t>(1, depth),
        .method = setting.value("pread", false) ? ReadMethod::pread : ReadMethod::automatic,
        .read_around = setting.value("around", std::size_t{0})};
    const auto fill = [&records, all, size, depth, map = setting.value("map", false)](
                          ReadQueue& queue, const Ticket& ticket, Records& batch) {
      const std::span rows(batch.bytes.data_handle(), ticket.samples.size() * size);
      if (depth > 0)
        return records.read_many_into(ticket.samples, std::as_writable_bytes(rows), queue);
      for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
        const std::span row(&batch.bytes(static_cast<std::int64_t>(i), 0), size);
        if (map)
          std::memcpy(row.data(), &all[ticket.samples[i] * size], size);
        else
          records.read_into(ticket.samples[i], std::as_writable_bytes(row));
      }
    };
    ProducerOptions producer = options(setting, epochs);
    producer.read_ahead = read_ahead(records, setting.value("ahead", std::uint64_t{0}));
    SamplerOptions order{
        .samples = records.size(), .batch_size = batch_size, .shuffle = true, .seed = 7};
    order.block = setting.value("block", std::uint64_t{0});
    order.window = setting.value("window", std::uint64_t{0});
    const auto source = per_worker([reads] { return ReadQueue(reads); }, fill);
    consume(consumer, layout, Sampler(order), AnySource<Records>(source), producer,
            [size](const HostBatch<Records>& batch, Digest* digest) {
              for (std::int64_t row = 0; digest != nullptr && row < batch.samples(); ++row) {
                const std::uint8_t* const record = &batch->bytes(row, 0);
                digest->number(number_in(record));
                for (std::size_t i = 8; i < size; ++i) digest->bytes += record[i];
              }
              return batch.samples();
            });
  };
}

// ---- Texts of different lengths: their tokens one behind the other, and where each begins
// --------------

struct Texts {
  Ragged<std::int32_t> tokens;
};

peers::Run tokens(const fs::path& data) {
  const auto values = mapped<std::int32_t>(data / "tokens.bin");
  const auto offsets = mapped<std::int64_t>(data / "offsets.bin");
  return [values, offsets](const Json& setting, std::uint64_t epochs,
                           const peers::Consumer& consumer) {
    constexpr std::int64_t kBatch = 256, kMeanTokens = 600;
    const auto layout = Layout<Texts>{kBatch}.field(&Texts::tokens, Capacity{kBatch * kMeanTokens});
    const auto source = [values, offsets](const Ticket& ticket, Texts& batch) {
      for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
        const auto begin = static_cast<std::size_t>(offsets[ticket.samples[i]]);
        const auto end = static_cast<std::size_t>(offsets[ticket.samples[i] + 1]);
        batch.tokens.assign(static_cast<std::int64_t>(i), values.subspan(begin, end - begin));
      }
    };
    consume(consumer, layout, sampler(offsets.size() - 1, kBatch, true), AnySource<Texts>(source),
            options(setting, epochs), [](const HostBatch<Texts>& batch, Digest* digest) {
              const Ragged<std::int32_t>& texts = batch->tokens;
              for (std::int64_t row = 0; digest != nullptr && row < texts.size(); ++row) {
                const auto length = static_cast<std::uint64_t>(texts.length(row));
                ++digest->samples;
                digest->squares += length * length;
                for (const std::int32_t token : texts.values(row))
                  digest->values += static_cast<std::uint64_t>(token);
              }
              return texts.total();
            });
  };
}

// ---- One sample in 500 is slow; and nothing but the loop
// ------------------------------------------------

struct Numbers {
  Tensor<std::int64_t, 1> numbers;
};

std::int64_t add_numbers(const HostBatch<Numbers>& batch, Digest* digest) {
  for (std::int64_t row = 0; digest != nullptr && row < batch.samples(); ++row)
    digest->number(static_cast<std::uint64_t>(batch->numbers(row)));
  return batch.samples();
}

peers::Run slow_sample(std::uint64_t samples) {
  return [samples](const Json& setting, std::uint64_t epochs, const peers::Consumer& consumer) {
    constexpr std::int64_t kBatch = 64;
    const auto source = per_sample([](const Sample& sample, Numbers& batch) {
      std::this_thread::sleep_for(std::chrono::milliseconds(sample.index % 500 == 499 ? 100 : 1));
      batch.numbers(sample.row) = static_cast<std::int64_t>(sample.index);
    });
    consume(consumer, Layout<Numbers>{kBatch}.field(&Numbers::numbers, {}),
            sampler(samples, kBatch, true), AnySource<Numbers>(source), options(setting, epochs),
            add_numbers);
  };
}

peers::Run loop(std::uint64_t samples) {
  return [samples](const Json& setting, std::uint64_t epochs, const peers::Consumer& consumer) {
    const auto source = [](const Ticket& ticket, Numbers& batch) {
      batch.numbers(0) = static_cast<std::int64_t>(ticket.samples[0]);
    };
    consume(consumer, Layout<Numbers>{1}.field(&Numbers::numbers, {}), sampler(samples, 1, false),
            AnySource<Numbers>(source), options(setting, epochs), add_numbers);
  };
}

peers::Run task(const std::string& name, const fs::path& data, const Json& sizes) {
  if (name == "jpeg_folder") return jpeg_folder(data);
  if (name == "tar_sequential") return tar_shards(data, false);
  if (name == "tar_shuffled") return tar_shards(data, true);
  if (name == "records_cached" || name == "records_cold")
    return records(data / "records.bin", sizes.at("record_bytes"), 256);
  if (name == "storage") return records(data / "storage.bin", sizes.at("storage_bytes"), 400);
  if (name == "tokens") return tokens(data);
  if (name == "slow_sample") return slow_sample(sizes.at("slow_samples"));
  if (name == "loop") return loop(sizes.at("loop_samples"));
  throw std::invalid_argument("no such task: " + name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "penstock_peer TASK DATA, of which benchmarks/peers/run made the data\n");
    return 2;
  }
  try {
    const fs::path data = argv[2];
    std::ifstream about(data / "data.json");
    if (!about) throw std::runtime_error("there is no data.json in " + data.string());
    return peers::serve(task(argv[1], data, Json::parse(about).at("sizes")));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "penstock_peer: %s\n", error.what());
    return 1;
  }
}
