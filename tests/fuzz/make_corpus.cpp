// SPDX-License-Identifier: Apache-2.0

// Writes what the fuzz targets begin with: small files by the project's own writers.
//
//   penstock_make_fuzz_corpus DIRECTORY      a directory in it for each target: see `scripts/fuzz --keep`

#include <array>
#include <cstring>
#include <data/cifar10.hpp>
#include <filesystem>
#include <fstream>
#include <image_files.hpp>
#include <penstock/packed_file_writer.hpp>
#include <penstock/trace/recording.hpp>
#include <resnet/infer/model.hpp>
#include <resnet/model/safetensors.hpp>
#include <resnet/ops/cudnn/plan_file.hpp>
#include <string>
#include <string_view>
#include <vector>

#ifdef PENSTOCK_HAS_VIDEO
#include <penstock/video/frame_index.hpp>
#endif

#include "support/token_files.hpp"
#include "timeline_builder.hpp"

namespace {

namespace fs = std::filesystem;
using namespace penstock::trace;

class Corpus {
 public:
  explicit Corpus(fs::path root) : root_(std::move(root)) {}

  fs::path path(const char* target, const char* name) const {
    fs::create_directories(root_ / target);
    return root_ / target / name;
  }
  void write(const char* target, const char* name, std::string_view bytes) const {
    std::ofstream(path(target, name), std::ios::binary) << bytes;
  }

 private:
  fs::path root_;
};

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_recordings(const Corpus& corpus) {
  penstock::test::TimelineBuilder builder;
  save(builder.timeline(), corpus.path("recording", "empty"));
  const auto compute = builder.stream(0, 7), copies = builder.stream(1, 13, "copies");
  const auto main = builder.thread(815, "main");
  builder.origin().program = "./train --data <x>";
  builder.origin().device = "H200";
  for (int i = 0; i < 3; ++i) {
    const double at = 1000.0 * i;
    builder.range(main, "step", {at, at + 900}, "penstock").value = 7;
    builder.range(main, "next", {at, at + 100}, "penstock");
    builder.copy(main, copies, 1 << 20, {at + 110, at + 120}, {at + 130, at + 400}).flags =
        pageable;
    builder.launch(main, compute, "_ZN3net4convIfLi3EEEvPKT_PS1_", {at + 130, at + 135},
                   {at + 420, at + 600});
    builder.call(main, "cudaStreamSynchronize", {at + 140, at + 610});
  }
  builder.origin().excerpt = "the last 30 s; 1 event is cut to it";
  builder.drop(2);
  save(builder.timeline(), corpus.path("recording", "training"));
  penstock::test::TimelineBuilder overlapping;
  const auto thread = overlapping.thread(1);
  for (int i = 0; i < 8; ++i) overlapping.range(thread, "r" + std::to_string(i % 3), {i, 8 + i});
  save(overlapping.timeline(), corpus.path("recording", "overlapping"));
}

void write_frame_indexes([[maybe_unused]] const Corpus& corpus) {
#ifdef PENSTOCK_HAS_VIDEO
  using namespace penstock::video;
  VideoStream stream;
  stream.size = {48, 64};
  stream.time_base = {1, 25};
  const auto write = [&](const char* name, const FrameIndex& index) {
    const std::vector<std::byte> bytes = index.bytes(1000, 5);
    corpus.write("frame_index", name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  write("one_frame", FrameIndex(stream, {{0, 0, 0}}, {{0, 0, 0, 0, 1}}, 1));
  stream.orientation.transposed = true;
  stream.bits = 10;
  // The frame at 4 is decoded after the key frame at 5, and refers to frames before it.
  write("open_group",
        FrameIndex(stream, {{0, 0, 0}, {1, 2, 0}, {3, 1, 0}, {4, 4, 0}, {5, 3, 1}, {6, 5, 1}},
                   {{0, -2, 40, 0, 1}, {5, 1, 700, 3, 1}}, 7));
#endif
}

/// The first byte says what packed_file_fuzz.cpp does to the others.
void write_packs(const Corpus& corpus) {
  const fs::path path = corpus.path("packed_file", "whole");
  const auto make = [&](std::string_view note, bool names, int records) {
    penstock::PackedFileWriter writer(path, note);
    for (int i = 0; i < records; ++i) {
      const std::string bytes(static_cast<std::size_t>(i * 5), static_cast<char>('a' + i));
      writer.append(std::as_bytes(std::span(bytes)), i, names ? "n" + std::to_string(i) : "");
    }
    writer.finish();
    return content(path);
  };
  const std::string whole = make("a note", true, 4);
  corpus.write("packed_file", "no_names", "\3" + make("", false, 3));
  corpus.write("packed_file", "empty", "\1" + make("", false, 0));
  corpus.write("packed_file", "mended", "\7" + whole);
  corpus.write("packed_file", "cut", "\4" + whole.substr(0, 300));
  corpus.write("packed_file", "whole", std::string(1, '\0') + whole);
}

/// The first byte says what token_file_fuzz.cpp takes the others for.
void write_tokens(const Corpus& corpus) {
  using penstock::test::llmc_file, penstock::test::megatron_index, penstock::test::packed;
  const std::vector<std::uint16_t> tokens{7, 1, 2, 3, 7, 7, 900, 4, 5, 6, 1, 2, 3, 4, 5, 7, 8, 9};
  const std::vector<std::int32_t> lengths{5, 0, 12, 1};
  const auto write = [&](const char* name, char how, const std::string& bytes) {
    corpus.write("token_file", name, how + bytes);
  };
  for (const char how : {'\0', '\x08', '\x14'})
    write(("index_" + std::to_string(how)).c_str(), how,
          static_cast<char>(2 * tokens.size()) + megatron_index(8, 2, lengths, {0, 1, 3, 4}) +
              packed(tokens));
  write("llm.c", '\x09', llmc_file(20240520, 1, tokens));
  write("llm.c_mended", '\x15', llmc_file(20240801, 7, tokens));
  write("raw_bytes", '\x0A', packed(tokens));
  write("raw_words", '\x03', packed(std::vector<std::int64_t>(tokens.begin(), tokens.end())));
}

void write_names(const Corpus& corpus) {
  int number = 0;
  for (const char* name :
       {"_ZN3net4convIfLi3EEEvPKT_PS1_", "_ZN12_GLOBAL__N_14packIhEEvPKT_",
        "_Z1f1AIiES_IS0_S0_ES_IS1_S1_E", "_ZN1AcvT_IT_IT_EEEv",
        "_Z8variadicIJifN2ns7BLOCKSTEEEvDpT_", "_Z4enumILN2ns4ModeE2EN2ns1SES1_EvS1_",
        "_Z3runIZ4mainEUlvE0_EvT_", "_Z5tableILPKiXadL_Z3oneEEEvv",
        "_Z1gIA16_iM1AFvvEDnLDn0EDv4_fEvv", "a::b<c<d<int>, 4>, 5>\n\x1B[31m\xC2\x9B\xC3\xA4\xFF"})
    corpus.write("kernel_name", ("name_" + std::to_string(number++)).c_str(), name);
}

void write_tensors(const Corpus& corpus) {
  const std::vector<float> values{1, -2, 0.5f, 4};
  const auto bytes = std::as_bytes(std::span(values));
  using resnet::safetensors::write;
  write(corpus.path("safetensors", "floats"),
        {{"conv1.weight", "F32", {2, 2}, bytes}, {"half", "F16", {2}, bytes.first(4)}},
        {{"penstock", "{}"}});
  write(corpus.path("safetensors", "empty"), {}, {});
  write(
      corpus.path("safetensors", "types"),
      {{"a", "BF16", {}, bytes.first(2)}, {"b", "F64", {0}, {}}, {"c", "I64", {1}, bytes.first(8)}},
      {});
}

/// What is in the metadata of files that are too large to be kept here.
void write_notes(const Corpus& corpus) {
  const char* start =
      R"({"good_steps":7,"scale":65536.0,"skipped":0,"step":12,"texts":{"prefetcher":"penstock 1"})";
  corpus.write("checkpoint_notes", "plain", std::string(start) + "}");
  corpus.write("checkpoint_notes", "sgd",
               std::string(start) +
                   R"(,"sgd":{"base":0.1,"decay":0,"growth_interval":2000,"momentum":0.9,)"
                   R"("total_steps":100,"warmup_steps":4,"weight_decay":0.0001}})");
  const resnet::Model model =
      resnet::untrained(resnet::architecture_of("resnet18", 10), {1, 3, 32, 32}, 1);
  const fs::path path = corpus.path("prepared_model", "notes");
  resnet::save_model(path, model);
  corpus.write("prepared_model", "notes",
               resnet::safetensors::read(path).metadata.at("penstock.inference"));
}

void write_plans(const Corpus& corpus) {
  const fs::path path = corpus.path("plan_file", "plans");
  fs::remove(path);
  resnet::cudnn::PlanFile file(path, "cuDNN");
  file.put("convolution 64", {1, 2, 3});
  file.put("add", {});
  file.save();
  const std::string bytes = content(path);
  corpus.write("plan_file", "plans", bytes.substr(bytes.find('\n') + 1));  // what parse() gets
}

void write_images(const Corpus& corpus) {
  std::vector<std::uint8_t> pixels(17 * 9 * 4);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(i * 37 % 256);
  using resnet::classify::test::Bytes;
  const auto text = [](const Bytes& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const auto write_jpeg = [&](const char* name, const Bytes& bytes) {
    corpus.write("jpeg_decoder", name, '\x05' + text(bytes));
  };
  using resnet::classify::test::jpeg_file, resnet::classify::test::png_file;
  write_jpeg("jpeg", jpeg_file(pixels, 17, 9, {.quality = 50}));
  write_jpeg("jpeg_grey", jpeg_file(pixels, 17, 9, {.channels = 1, .quality = 50}));
  write_jpeg("jpeg_inks", jpeg_file(pixels, 17, 9, {.channels = 4, .quality = 50, .adobe = true}));
  write_jpeg("jpeg_progressive", jpeg_file(pixels, 17, 9, {.quality = 50, .progressive = true}));
  write_jpeg("jpeg_420", jpeg_file(pixels, 17, 9, {.quality = 50, .across = 2, .down = 2}));
  for (const int type : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA})
    corpus.write("png", ("png_" + std::to_string(type)).c_str(),
                 text(png_file(pixels, 17, 9, {.colour_type = type})));
}

void write_records(const Corpus& corpus) {
  std::string record(16, '\x01');
  record[0] = 9;
  corpus.write("cifar10", "record", record);
  corpus.write("cifar10", "names", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
}

void write_listings(const Corpus& corpus) {
  const std::string begin =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\""
      "http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>a/"
      "</Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys>";
  const std::string object =
      "<Contents><Key>a/b%20c.jpg</Key><LastModified>2026-11-27T00:00:00.000Z"
      "</LastModified><ETag>&quot;9e1&quot;</ETag><Size>17</Size></Contents>";
  corpus.write("listing_page", "encoded",
               begin + "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>" + object +
                   "<NextContinuationToken>1/+=</NextContinuationToken></ListBucketResult>");
  corpus.write("listing_page", "plain",
               begin + object + object +
                   "<IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>a/d/"
                   "</Prefix></CommonPrefixes></ListBucketResult>");
  corpus.write("listing_page", "error", "<Error><Code>SlowDown</Code><Message>m</Message></Error>");
  int number = 0;
  for (const char* text :
       {"\ns3://bucket/train/a b+c%20\xC3\xA4.jpg", "http://127.0.0.1:9000/path/\ns3://my.bucket/k",
        "https://[::1]:443\ngs://bucket/a//../b", "\nhttps://user:word@host:8443/a%20b?x=1&y=%2f",
        "\ngs://bucket", "user:word@host?x#y"})
    corpus.write("remote_location", ("url_" + std::to_string(number++)).c_str(), text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Corpus corpus(argv[1]);
  write_recordings(corpus);
  write_frame_indexes(corpus);
  write_packs(corpus);
  write_tokens(corpus);
  write_names(corpus);
  write_tensors(corpus);
  write_notes(corpus);
  write_plans(corpus);
  write_images(corpus);
  write_records(corpus);
  write_listings(corpus);
}
