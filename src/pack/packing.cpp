// SPDX-License-Identifier: Apache-2.0

#include "packing.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <optional>
#include <penstock/detail/escaped.hpp>
#include <penstock/packed_file_writer.hpp>
#include <string>

#include "in_order.hpp"
#include "programs/interrupt.hpp"
#include "progress.hpp"
#include "source.hpp"
#ifdef PENSTOCK_PACK_WITH_IMAGES
#include <penstock/images/image_error.hpp>

#include "recode.hpp"
#endif

namespace pack {
namespace {

namespace fs = std::filesystem;
using penstock::PackedFile;
using penstock::PackedFileWriter;
using penstock::StoreError;
using penstock::programs::interrupted;
using penstock::programs::interrupted_exit_code;
using penstock::programs::watch_interrupts;

/// Requests samples from a store some distance before they are read.
template <class Store>
class ReadAhead {
 public:
  ReadAhead(const Store& store, std::uint64_t first) : store_(store), told_(first) {}

  void reading(std::uint64_t number) {
    if (number + kAhead / 2 < told_) return;
    const std::uint64_t end = std::min<std::uint64_t>(store_.size(), number + kAhead);
    if (end <= told_) return;
    indices_.resize(static_cast<std::size_t>(end - told_));
    std::iota(indices_.begin(), indices_.end(), told_);
    store_.will_need(indices_);
    told_ = end;
  }

 private:
  static constexpr std::uint64_t kAhead = 256;
  const Store& store_;
  std::uint64_t told_;
  std::vector<std::uint64_t> indices_;
};

/// Returns a summary such as "1,000 records, 82.0 MB in 0.5 s: 2,000 records/s, 164 MB/s".
std::string account(std::uint64_t records, std::uint64_t bytes, double seconds) {
  const double time = std::max(seconds, 1e-9);
  char rounded[32];
  std::snprintf(rounded, sizeof(rounded), "%.1f s", seconds);
  return grouped(records) + " records, " + in_bytes(static_cast<double>(bytes)) + " in " + rounded +
         ": " + grouped(static_cast<std::uint64_t>(static_cast<double>(records) / time)) +
         " records/s, " + in_bytes(static_cast<double>(bytes) / time) + "/s";
}

std::string named(std::string_view name, std::int32_t label) {
  return std::string(name) + " with label " + std::to_string(label);
}

/// The progress of a run: how many samples of the source are done, and how many were left out.
struct Position {
  std::uint64_t samples = 0, left_out = 0;
};

/// Counts a sample that cannot be read as left out. Throws `failure` if there are too many of them.
void leave_out(const StoreError& failure, const std::string& name, std::uint64_t most,
               Position& position) {
  // NOLINTNEXTLINE(bugprone-exception-copy-constructor-throws): it holds the sample's name.
  if (!failure.sample() || most == 0) throw failure;
  if (position.left_out == most)
    throw StoreError("penstock-pack", name,
                     std::string("more than ") + grouped(most) +
                         " samples cannot be read, as --skip allows. This one: " + failure.what());
  ++position.left_out;
  std::fprintf(stderr, "%s is left out: %s\n", penstock::detail::escaped(name).c_str(),
               failure.what());
}

/// Returns why the sample cannot be read, or nothing.
std::optional<StoreError> failure_of(const Source& source, std::uint64_t sample,
                                     std::vector<std::byte>& scratch) {
  try {
    source.read(sample, scratch);
    source.label(sample);
  } catch (const StoreError& error) {
    return error;
  }
  return std::nullopt;
}

bool is_record_of(const PackedFileWriter& writer, std::uint64_t record, const Source& source,
                  std::uint64_t sample) {
  if (sample >= source.size() || writer.name(record) != source.name(sample)) return false;
  try {
    return writer.label(record) == source.label(sample);
  } catch (const StoreError&) {  // Its label cannot be read, so it was left out.
    return false;
  }
}

/// The partial file must contain the first samples of the source with their labels, except those
/// that cannot be read. Returns the position after them.
Position find_position(const PackedFileWriter& writer, const Source& source,
                       const PackOptions& options) {
  Position position;
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 0; i < writer.size(); ++i, ++position.samples)
    for (; !is_record_of(writer, i, source, position.samples); ++position.samples) {
      const std::uint64_t sample = position.samples;
      std::optional<StoreError> failure;
      if (options.skip > 0 && sample < source.size()) failure = failure_of(source, sample, scratch);
      if (failure) {
        leave_out(*failure, source.name(sample), options.skip, position);
        continue;
      }
      throw StoreError(
          "penstock-pack", options.output.string() + ".partial",
          "record " + std::to_string(i) + " is " + named(writer.name(i), writer.label(i)) +
              ", and the source has " +
              (sample < source.size() ? named(source.name(sample), source.label(sample))
                                      : "no such sample") +
              " in its place: the source has changed, or samples were left out with --skip that "
              "could not be read then. Give --skip again, or remove the partial file to begin "
              "again");
    }
  return position;
}

/// Returns a line for the note of a pack.
std::string described(const RecodeOptions& options) {
  if (options.keeps_files()) return "copy";
  std::string text = options.raw ? "raw" : "quality " + std::to_string(options.quality);
  if (options.max_side > 0) text = "max side " + std::to_string(options.max_side) + ", " + text;
  return text;
}

#ifdef PENSTOCK_PACK_WITH_IMAGES
using ConversionStopped = penstock::images::DecodeStopped;
#else
struct ConversionStopped {};
#endif

/// Converts the files on a thread that has read them.
class Converter {
 public:
#ifdef PENSTOCK_PACK_WITH_IMAGES
  explicit Converter(const RecodeOptions& options) {
    if (!options.keeps_files()) recode_.emplace(options);
  }
  /// Keeps a file that cannot be decoded, and adds a remark.
  void operator()(Made& made) try {
    if (!recode_) return;
    const std::span<const std::byte> smaller = (*recode_)(made.bytes);
    if (smaller.data() == made.bytes.data()) return;
    made.memory.assign(smaller.begin(), smaller.end());
    made.bytes = made.memory;
  } catch (const penstock::images::ImageError& error) {
    made.remark = error.what();
  }

 private:
  std::optional<Recoder> recode_;
#else
  explicit Converter(const RecodeOptions&) {}
  void operator()(Made&) {}
#endif
};

/// Appends the samples from `position` on, until all are done or a signal interrupts. Returns how
/// many files were kept because they cannot be decoded.
std::uint64_t append_samples(PackedFileWriter& writer, const Source& source,
                             const PackOptions& options, Position& position, Progress& progress) {
  const std::uint64_t before = writer.record_bytes();
  std::uint64_t remarks = 0;
  ReadAhead<Source> ahead(source, position.samples);
  const auto make_worker = [&] {
    return [&, convert = Converter(options.recode)](std::uint64_t number, Made& made) mutable {
      made.remark.clear();
      made.failure.reset();
      try {
        made.bytes = source.read(number, made.memory);
        made.label = source.label(number);
      } catch (const StoreError& error) {
        made.failure.emplace(error);
        return;
      }
      convert(made);
    };
  };
  const auto append = [&](std::uint64_t number, const Made& made) {
    const std::string name = source.name(number);
    if (made.failure)
      leave_out(*made.failure, name, options.skip, position);
    else
      writer.append(made.bytes, made.label, name);
    ++position.samples;
    if (!made.remark.empty()) {
      ++remarks;
      std::fprintf(stderr, "%s is kept as it is: %s\n", penstock::detail::escaped(name).c_str(),
                   made.remark.c_str());
    }
    ahead.reading(number);
    progress.to(position.samples, writer.record_bytes() - before);
    return !interrupted();
  };
  ahead.reading(position.samples);
  try {
    in_order(position.samples, source.size(), options.threads, make_worker, append);
  } catch (const ConversionStopped&) {  // interrupted
  }
  return remarks;
}

/// Returns remarks about the samples, each with "; " before it.
std::string notes(const Source& source, const Position& position, std::uint64_t remarks) {
  std::string text;
  if (const std::uint64_t none = source.unlabelled(); none == source.size())
    text += "; without labels: no sample has a .cls";
  else if (none > 0)
    text += "; label -1, as they have no .cls: " + grouped(none);
  if (remarks > 0) text += "; kept as they are: " + grouped(remarks);
  if (position.left_out > 0)
    text += "; left out, as they cannot be read: " + grouped(position.left_out);
  if (source.ignored() > 0)
    text += "; ignored, as Jupyter or macOS left them: " + grouped(source.ignored());
  return text;
}

}  // namespace

int make_pack(const PackOptions& options) {
  std::error_code none;
  if (fs::exists(fs::symlink_status(options.output, none)))
    throw UsageError(options.output.string() +
                     " is there already: remove it, or choose another name");
  const Source source(options.sources, options.source);
  PackedFileWriter writer(options.output, make_note(source, described(options.recode)));
  Position position = find_position(writer, source, options);
  const std::uint64_t kept = writer.size(), kept_bytes = writer.record_bytes();
  watch_interrupts();  // If the program ends before this, nothing is lost.
  std::fprintf(stderr, "%s of %s: %s records%s\n",
               penstock::detail::escaped(options.output.string()).c_str(), source.kind(),
               grouped(source.size()).c_str(),
               kept == 0 ? "" : (", " + grouped(kept) + " of them from before").c_str());
  double seconds = 0;
  std::uint64_t remarks = 0;
  {
    Progress progress(position.samples, source.size());
    remarks = append_samples(writer, source, options, position, progress);
    if (position.samples == source.size() && writer.size() == 0)
      throw StoreError("penstock-pack", options.output, "no sample could be read");
    if (position.samples == source.size()) writer.finish();
    seconds = progress.seconds();
  }
  const std::string done =
      account(writer.size() - kept, writer.record_bytes() - kept_bytes, seconds);
  const std::string name = penstock::detail::escaped(options.output.string());
  if (position.samples < source.size()) {
    std::printf("%s.partial: interrupted with %s of %s records. The same command continues it\n",
                name.c_str(), grouped(writer.size()).c_str(), grouped(source.size()).c_str());
    return interrupted_exit_code();
  }
  std::printf("%s: %s%s%s\n", name.c_str(), done.c_str(),
              kept == 0 ? "" : (", and " + grouped(kept) + " from before").c_str(),
              notes(source, position, remarks).c_str());
  return 0;
}

int fill_cache(const PackOptions& options) {
  const Source source(options.sources, options.source);
  watch_interrupts();
  Position position;
  std::uint64_t bytes = 0;
  double seconds = 0;
  {
    Progress progress(0, source.size());
    ReadAhead<Source> ahead(source, 0);
    ahead.reading(0);
    const auto make_worker = [&] {
      return [&](std::uint64_t number, Made& made) {
        made.failure.reset();
        try {
          made.bytes = source.read(number, made.memory);
        } catch (const StoreError& error) {
          made.failure.emplace(error);
        }
      };
    };
    in_order(0, source.size(), options.threads, make_worker,
             [&](std::uint64_t number, const Made& made) {
               if (made.failure)
                 leave_out(*made.failure, source.name(number), options.skip, position);
               else
                 bytes += made.bytes.size();
               ahead.reading(number);
               progress.to(++position.samples, bytes);
               return !interrupted() && !source.cache_progress().is_full;
             });
    seconds = progress.seconds();
  }
  const CacheProgress cache = source.cache_progress();
  std::string remarks;
  if (cache.is_full) remarks += "; it is full";
  if (position.left_out > 0)
    remarks += "; left out, as they cannot be read: " + grouped(position.left_out);
  if (cache.errors > 0) remarks += "; errors of its files: " + grouped(cache.errors);
  std::printf("%s: %s of %s; written: %s; there before: %s%s\n",
              penstock::detail::escaped(options.source.cache.directory.string()).c_str(),
              account(position.samples - position.left_out, bytes, seconds).c_str(),
              grouped(source.size()).c_str(), in_bytes(static_cast<double>(cache.written)).c_str(),
              in_bytes(static_cast<double>(cache.found)).c_str(), remarks.c_str());
  if (interrupted()) return interrupted_exit_code();
  return cache.errors == 0 ? 0 : 1;
}

namespace {

/// Returns the number of damaged records, or 1 for a pack that cannot be opened.
std::uint64_t verify_pack(const fs::path& path, std::size_t threads) try {
  const PackedFile pack(path);
  std::uint64_t damaged = 0, bytes = 0, read = 0;
  double seconds = 0;
  {
    Progress progress(0, pack.size());
    ReadAhead<PackedFile> ahead(pack, 0);
    ahead.reading(0);
    const auto make_worker = [&] {
      return [&](std::uint64_t number, Made& made) {
        made.label = 1;  // damaged
        try {
          made.bytes = pack.read(number, made.memory);
          made.label = 0;
        } catch (const StoreError& error) {
          std::fprintf(stderr, "%s\n", error.what());
        }
      };
    };
    in_order(0, pack.size(), threads, make_worker, [&](std::uint64_t number, const Made& made) {
      damaged += static_cast<std::uint64_t>(made.label);
      bytes += pack.bytes(number);
      ahead.reading(number);
      progress.to(++read, bytes);
      return !interrupted();
    });
    seconds = progress.seconds();
  }
  std::printf("%s: %s; %s%s damaged\n", penstock::detail::escaped(path.string()).c_str(),
              account(read, bytes, seconds).c_str(), read == pack.size() ? "" : "interrupted; ",
              damaged == 0 ? "none" : grouped(damaged).c_str());
  return damaged;
} catch (const StoreError& error) {
  std::fprintf(stderr, "penstock-pack: %s\n", error.what());
  return 1;
}

}  // namespace

int verify_packs(const std::vector<fs::path>& packs, std::size_t threads) {
  watch_interrupts();
  std::uint64_t damaged = 0;
  for (const fs::path& path : packs) {
    if (!interrupted()) damaged += verify_pack(path, threads);
    if (interrupted()) return interrupted_exit_code();
  }
  return damaged == 0 ? 0 : 1;
}

}  // namespace pack
