// SPDX-License-Identifier: Apache-2.0

// penstock-pack: makes a PackedFile from a folder, from tar files or from another pack; or fills a
// cache with what is at a server; or makes the indexes of video files.
//
//   penstock-pack imagenet/train -o train.pack
//   penstock-pack train-0000.tar train-0001.tar -o train.pack
//   penstock-pack imagenet/train -o small.pack --max-side 256 --quality 90
//   penstock-pack imagenet/train -o raw.pack --max-side 256 --raw
//   penstock-pack s3://bucket/imagenet/train/ -o train.pack
//   penstock-pack s3://bucket/train.pack --fill-cache /nvme/cache --cache-bytes 500000000000
//   penstock-pack --verify train.pack
//   penstock-pack --index-videos clips/
//
// Exit status: 0: done; 1: something cannot be read or written, or is damaged; 2: wrong arguments;
// 130: interrupted by Ctrl-C (143 by SIGTERM); the same command then continues.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>

#include "packing.hpp"
#include "programs/command_line.hpp"
#include "programs/version_flag.hpp"
#include "source.hpp"
#ifdef PENSTOCK_PACK_WITH_VIDEO
#include "index_videos.hpp"
#endif

namespace {

struct Arguments {
  pack::PackOptions options;
  bool verify = false;
  bool index_videos = false;
  std::filesystem::path index_folder;
};

/// Returns -1, or the exit status if there is nothing more to do.
int parse(int argc, char** argv, Arguments& arguments) {
  CLI::App app(
      "Makes a pack, one file with an index and checksums, of the samples of a folder (a "
      "directory for each class), of tar files (WebDataset's rules) or of another pack; "
      "or verifies packs. Interrupted, the same command continues.",
      "penstock-pack");
  penstock::programs::add_version_flag(app);
  app.add_option("source", arguments.options.sources,
                 "a directory, tar files or a pack, also as URLs; with --verify, packs")
      ->required();
  auto* const output = app.add_option("-o,--output", arguments.options.output, "the pack to make");
  app.add_flag("--verify", arguments.verify,
               "read all records of packs and compare their checksums")
      ->excludes(output);
  app.add_option(
         "--skip", arguments.options.skip,
         "at most this many samples that cannot be read, or are empty, are left out; each is "
         "named, and all are counted")
      ->transform(penstock::programs::whole_number())
      ->capture_default_str()
      ->excludes("--verify");
  app.add_flag("--allow-empty", arguments.options.source.allow_empty,
               "an empty file is a record without bytes, not an error")
      ->excludes("--verify");
  app.add_flag("--ignore-index", arguments.options.source.ignore_index,
               "the headers of tar files are read, and not the indexes beside them")
      ->excludes("--verify");
  app.add_flag(
         "--allow-missing-end", arguments.options.source.allow_missing_end,
         "a tar may end without the zeros that end one; it may then be cut between two members")
      ->excludes("--verify");
#ifdef PENSTOCK_PACK_WITH_REMOTE
  auto& cache = arguments.options.source.cache;
  auto* const fill =
      app.add_option("--fill-cache", cache.directory,
                     "makes no pack: reads URLs, until the cache in this directory is full")
          ->excludes("--verify")
          ->excludes(output);
  auto* const bytes =
      app.add_option("--cache-bytes", cache.bytes, "CacheOptions::bytes of who reads it")
          ->transform(penstock::programs::whole_number(1))
          ->needs(fill);
  fill->needs(bytes);
  app.add_option("--slot-bytes", cache.slot_bytes, "CacheOptions::slot_bytes of who reads it")
      ->transform(penstock::programs::whole_number(4096, std::uint64_t{1} << 30))
      ->capture_default_str()
      ->needs(fill);
#endif
#ifdef PENSTOCK_PACK_WITH_VIDEO
  auto* const videos =
      app.add_flag("--index-videos", arguments.index_videos,
                   "makes no pack, but the indexes of video files that penstock::video makes at "
                   "first use, of these files and directories")
          ->excludes("--verify")
          ->excludes(output);
  app.add_option("--index-folder", arguments.index_folder,
                 "VideoFilesOptions::index_folder of who reads them; else the indexes are beside "
                 "the files")
      ->needs(videos);
#endif
#ifdef PENSTOCK_PACK_WITH_IMAGES
  auto* const side =
      app.add_option("--max-side", arguments.options.recode.max_side,
                     "JPEG files whose longer side has more pixels are made smaller, and encoded "
                     "again; what cannot be decoded is kept as it is, and named")
          ->check(CLI::Range(1, 65500))
          ->excludes("--verify");
  auto* const raw =
      app.add_flag(
             "--raw", arguments.options.recode.raw,
             "JPEG files are decoded, and their pixels stored, 3 bytes each: nothing is left to "
             "decode")
          ->excludes("--verify");
  app.add_option("--quality", arguments.options.recode.quality, "of what is encoded again")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->needs(side)
      ->excludes(raw);
#endif
  app.add_option("--threads", arguments.options.threads,
                 "threads that read and encode; for URLs 32, if there are fewer processors")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.footer(
      "Exit status: 0 done; 1 something cannot be read or written, or is damaged; 2 wrong "
      "arguments; 130 interrupted.");
  if (const auto status = penstock::programs::parse(app, argc, argv)) return *status;
  pack::PackOptions& options = arguments.options;
  if (app.count("--threads") == 0 && std::ranges::any_of(options.sources, pack::is_url))
    options.threads = std::max<std::size_t>(options.threads, 32);
  if (!options.recode.keeps_files() && !options.source.cache.directory.empty())
    throw pack::UsageError("--fill-cache reads the files as they are");
  if (arguments.verify || arguments.index_videos || !options.output.empty() ||
      !options.source.cache.directory.empty())
    return -1;
  app.exit(CLI::RequiredError("--output, or --verify,"));
  return 2;
}

}  // namespace

int main(int argc, char** argv) try {
  Arguments arguments;
  arguments.options.threads = std::max(1u, std::thread::hardware_concurrency());
  if (const int status = parse(argc, argv, arguments); status >= 0) return status;
  if (arguments.verify)
    return pack::verify_packs(arguments.options.sources, arguments.options.threads);
#ifdef PENSTOCK_PACK_WITH_VIDEO
  if (arguments.index_videos)
    return pack::index_videos(arguments.options.sources, arguments.index_folder,
                              arguments.options.threads);
#endif
  return arguments.options.source.cache.directory.empty() ? pack::make_pack(arguments.options)
                                                          : pack::fill_cache(arguments.options);
} catch (const pack::UsageError& error) {
  std::fprintf(stderr, "penstock-pack: %s\n", error.what());
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "penstock-pack: %s\n", error.what());
  return 1;
}
