// SPDX-License-Identifier: Apache-2.0

#include "source.hpp"

#include <algorithm>
#include <array>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/sample_names.hpp>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#ifdef PENSTOCK_PACK_WITH_REMOTE
#include "remote.hpp"
#endif

namespace pack {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kClass = "class ";

/// Recognises a tar file by its name or by its first bytes.
bool is_tar(const fs::path& path) {
  if (is_tar_name(path)) return true;
  try {
    std::array<std::byte, penstock::detail::kKnownBytes> start;
    const std::size_t count = penstock::detail::ReadOnlyFile(path).read(0, start);
    const auto known = penstock::detail::known_bytes(std::span(start).first(count));
    return known && known->what == penstock::detail::kTarBytes;
  } catch (const std::system_error&) {  // The code that opens the file reports the error.
    return false;
  }
}

}  // namespace

bool is_url(const fs::path& source) {
  const std::string& text = source.native();
  return text.starts_with("s3://") || text.starts_with("gs://") || text.starts_with("http://") ||
         text.starts_with("https://");
}

bool is_tar_name(const fs::path& path) {
  const std::string name = penstock::detail::lower_case(path.filename().string());
  for (const std::string_view extension : {".tar", ".tgz", ".tbz2", ".txz", ".tzst"})
    if (name.ends_with(extension)) return true;
  return name.find(".tar.") != std::string::npos;
}

Source::Source(const std::vector<fs::path>& paths, const SourceOptions& options)
    : options_(options), store_(open(paths, options)), classes_(find_classes()) {}

Source::Any Source::open(const std::vector<fs::path>& paths, const SourceOptions& options) {
  const fs::path& first = paths.front();
  if (std::ranges::any_of(paths, is_url)) {
    if (!std::ranges::all_of(paths, is_url))
      throw UsageError("a source is on this machine, and another one at a server");
#ifdef PENSTOCK_PACK_WITH_REMOTE
    const auto remote = std::make_shared<const Remote>(options.cache);
    remote_ = remote;
    return remote->open({paths.begin(), paths.end()}, options);
#else
    throw UsageError(first.string() + ": this penstock-pack was built without penstock::remote");
#endif
  }
  if (!options.cache.directory.empty())
    throw UsageError("--fill-cache is for URLs, and " + first.string() + " is none");
  std::error_code none;
  const bool is_folder = paths.size() == 1 && fs::is_directory(first, none);
  if (!is_folder && std::all_of(paths.begin(), paths.end(), is_tar))
    return penstock::TarShards(paths, {.use_indexes = !options.ignore_index,
                                       .allow_empty = true,
                                       .allow_missing_end = options.allow_missing_end});
  if (paths.size() > 1)
    throw UsageError(
        "several sources must be tar files; there is one output, and one directory or pack can be "
        "its source");
  if (options.ignore_index || options.allow_missing_end)
    throw UsageError("--ignore-index and --allow-missing-end are for tar files, and " +
                     first.string() + " is none");
  if (is_folder) return penstock::FileFolder(first, {}, {.allow_empty = true});
  return penstock::PackedFile(first);
}

std::vector<std::string> Source::find_classes() const {
  if (const auto* const folder = std::get_if<penstock::FileFolder>(&store_))
    return folder->classes();
  if (const auto* const other = std::get_if<penstock::PackedFile>(&store_))
    return classes_of(other->info().note);
  return {};
}

std::uint64_t Source::size() const {
  return std::visit([](const auto& store) { return store.size(); }, store_);
}

std::span<const std::byte> Source::read(std::uint64_t index,
                                        std::vector<std::byte>& scratch) const {
  const std::span<const std::byte> bytes =
      std::visit([&](const auto& store) { return store.read(index, scratch); }, store_);
  const auto fail = [&](const std::string& why) {
    throw penstock::StoreError(store_name(), name(index),
                               "sample " + std::to_string(index) + " is lost: " + why, index);
  };
  if (bytes.empty() && !options_.allow_empty && !is_pack())
    fail("the file is empty. Keep empty files with --allow-empty, or leave them out with --skip");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (penstock::detail::is_lfs_pointer(text))
    fail("it is a Git-LFS pointer in place of the file: fetch the file (git lfs pull)");
  return bytes;
}

std::string Source::name(std::uint64_t index) const {
  return std::visit([&](const auto& store) { return store.name(index); }, store_);
}

void Source::will_need(std::span<const std::uint64_t> indices) const noexcept {
  std::visit([&](const auto& store) { store.will_need(indices); }, store_);
}

std::int32_t Source::label(std::uint64_t index) const {
  const auto* const shards = std::get_if<penstock::TarShards>(&store_);
  if (shards != nullptr && !shards->has(index, ".cls")) return -1;
  return std::visit([&](const auto& store) { return store.label(index); }, store_);
}

std::uint64_t Source::unlabelled() const {
  const auto* const shards = std::get_if<penstock::TarShards>(&store_);
  if (shards == nullptr) return 0;
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < shards->size(); ++i)
    if (!shards->has(i, ".cls")) ++count;
  return count;
}

std::uint64_t Source::ignored() const noexcept {
  if (const auto* const folder = std::get_if<penstock::FileFolder>(&store_))
    return folder->ignored();
  if (const auto* const shards = std::get_if<penstock::TarShards>(&store_))
    return shards->ignored();
  return 0;
}

const char* Source::store_name() const noexcept {
  constexpr const char* kNames[] = {"FileFolder", "TarShards", "PackedFile"};
  return kNames[store_.index()];
}

const char* Source::kind() const noexcept {
  constexpr const char* kKinds[] = {"a folder", "tar files", "a pack"};
  return kKinds[store_.index()];
}

CacheProgress Source::cache_progress() const {
#ifdef PENSTOCK_PACK_WITH_REMOTE
  if (remote_) return remote_->cache_progress();
#endif
  return {};
}

std::string make_note(const Source& source, const std::string& how) {
  std::string note =
      "penstock-pack 1\n" + how + '\n' + std::to_string(source.size()) + " samples\n";
  for (const std::string& name : source.classes()) {
    if (name.find('\n') != std::string::npos)
      throw UsageError(
          "a class has a line break in its name, which a pack cannot keep: rename the "
          "directory");
    ((note += kClass) += name) += '\n';
  }
  return note;
}

std::vector<std::string> classes_of(const std::string& note) {
  std::vector<std::string> classes;
  std::istringstream lines(note);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kClass)) classes.push_back(line.substr(kClass.size()));
  return classes;
}

}  // namespace pack
