// SPDX-License-Identifier: Apache-2.0
#pragma once

// The index file of a tar, in the format of DALI's wds2idx: a line "v1.2 SAMPLES", then a line for
// each sample: for each of its members "EXTENSION OFFSET SIZE NAME", with a space between all. In
// v1.1 there are no names, which are read from the headers of the tar.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/line_reader.hpp>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/detail/storage/tar_file.hpp>
#include <penstock/detail/storage/tar_format.hpp>
#include <penstock/detail/storage/tar_samples.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

inline constexpr std::string_view kTarIndexVersion = "v1.2";
inline constexpr std::string_view kTarIndexWithoutNames = "v1.1";

[[noreturn]] inline void fail_tar_index(const std::filesystem::path& index,
                                        const std::string& why) {
  throw StoreError("TarShards", index,
                   why +
                       ". Remove the index, make it again, or set TarShardsOptions::use_indexes "
                       "to false (penstock-pack: --ignore-index)");
}

class TarIndexReader {
 public:
  /// `tar`: the one that it is the index of.
  TarIndexReader(std::filesystem::path path, const TarFile& tar, TarSamples& samples)
      : path_(std::move(path)), tar_(tar), samples_(samples), lines_(path_) {}

  /// Adds its samples. Throws StoreError, and std::system_error if the file cannot be read.
  void read() {
    const std::uint64_t all = read_first_line();
    std::uint64_t count = 0;
    while (const auto line = lines_.next()) {
      if (line->empty()) continue;
      read_sample(*line);
      ++count;
    }
    if (count != all)
      fail("it says that there are " + std::to_string(all) + " samples, and has " +
           std::to_string(count));
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    fail_tar_index(path_, "line " + std::to_string(lines_.number()) + ": " + why);
  }

  std::uint64_t read_first_line() {
    std::string_view line = lines_.next().value_or("");
    const std::optional<KnownBytes> known = known_bytes(std::as_bytes(std::span(line)));
    if (known) fail("it is no index: it is " + known->text());
    const std::string_view version = take_word(line);
    has_names_ = version == kTarIndexVersion;
    if (!has_names_ && version != kTarIndexWithoutNames)
      fail("the index must begin with \"" + std::string(kTarIndexVersion) + "\" or \"" +
           std::string(kTarIndexWithoutNames) + "\", and begins with \"" +
           std::string(version.substr(0, 20)) + "\"");
    const auto all = read_number<std::uint64_t>(take_word(line));
    if (!all) fail("there is no number of samples");
    return *all;
  }

  void read_sample(std::string_view line) {
    std::string base;
    while (!line.empty()) {
      const std::string_view extension = take_word(line);
      const auto offset = read_number<std::uint64_t>(take_word(line));
      const auto size = read_number<std::uint64_t>(take_word(line));
      const std::string_view given = has_names_ ? take_word(line) : extension;
      if (extension.empty() || !offset || !size || given.empty())
        fail(has_names_
                 ? "a sample is groups of \"extension offset size name\", without spaces in "
                   "them"
                 : "a sample is groups of \"extension offset size\", without spaces in them");
      const std::string name = has_names_ ? std::string(given) : name_at(extension, *offset, *size);
      require_inside(name, *offset, *size);
      end_ = *offset + in_tar_blocks(*size);
      const std::optional<TarName> parts = split_tar_name(name);
      if (is_left_by_tools(name)) ++samples_.ignored;
      if (!parts) continue;  // of no sample, though wds2idx lists it
      if (parts->extension != extension)
        fail("member " + name + " has not the extension " + std::string(extension));
      if (base.empty()) samples_.begin_sample(base = parts->base);
      if (parts->base != base)
        fail(std::string("members ").append(base) + " and " + name + " are of two samples");
      if (const char* why = samples_.add_member(extension, *offset, *size))
        fail("member " + name + ": " + why);
    }
  }

  /// What the tar says, where the index has no names.
  std::string name_at(std::string_view extension, std::uint64_t offset, std::uint64_t size) const {
    const std::string member = "of extension " + std::string(extension);
    require_inside(member, offset, size);
    const std::optional<std::string> name = tar_.name_at(offset - kTarBlock, size, end_);
    if (!name)
      fail("member " + member + ", " + std::to_string(size) + " bytes from byte " +
           std::to_string(offset) +
           " on, has no header there: it is not the index of this tar, or "
           "the program that made it did not know the headers of pax");
    return *name;
  }

  void require_inside(std::string_view name, std::uint64_t offset, std::uint64_t size) const {
    if (offset < kTarBlock || offset % kTarBlock != 0)
      fail("member " + std::string(name) + " cannot begin at byte " + std::to_string(offset));
    if (offset > tar_.bytes || size > tar_.bytes - offset)
      fail("member " + std::string(name) + ", " + std::to_string(size) + " bytes from byte " +
           std::to_string(offset) + " on, does not fit into the tar's " +
           std::to_string(tar_.bytes) + ": it is the index of another tar, or the tar is cut");
  }

  const std::filesystem::path path_;
  const TarFile& tar_;
  TarSamples& samples_;
  LineReader lines_;
  bool has_names_ = true;
  std::uint64_t end_ = 0;  // of the member that was read last
};

}  // namespace penstock::detail
