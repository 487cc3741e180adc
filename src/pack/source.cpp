// SPDX-License-Identifier: Apache-2.0

#include "source.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace pack {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kClass = "class ";

bool ends_in(const fs::path& path, std::string_view extension) {
  return path.extension() == extension;
}

}  // namespace

Source::Source(const std::vector<fs::path>& paths)
    : store_(open(paths)), has_labels_(find_labels()), classes_(find_classes()) {}

Source::Any Source::open(const std::vector<fs::path>& paths) {
  const fs::path& first = paths.front();
  const bool all_tar =
      std::all_of(paths.begin(), paths.end(), [](const auto& p) { return ends_in(p, ".tar"); });
  if (all_tar) return penstock::TarShards(paths);
  if (paths.size() > 1)
    throw UsageError(
        "several sources must be tar files, whose names end in .tar; there is one "
        "output, and one directory or pack can be its source");
  std::error_code none;
  if (fs::is_directory(first, none)) return penstock::FileFolder(first);
  if (ends_in(first, ".tar")) return penstock::TarShards({first});
  return penstock::PackedFile(first);
}

bool Source::find_labels() const {
  const auto* const shards = std::get_if<penstock::TarShards>(&store_);
  if (shards == nullptr) return true;
  return shards->has(0, ".cls");
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
  return std::visit([&](const auto& store) { return store.read(index, scratch); }, store_);
}

std::string Source::name(std::uint64_t index) const {
  return std::visit([&](const auto& store) { return store.name(index); }, store_);
}

void Source::will_need(std::span<const std::uint64_t> indices) const noexcept {
  std::visit([&](const auto& store) { store.will_need(indices); }, store_);
}

std::int32_t Source::label(std::uint64_t index) const {
  if (!has_labels_) return -1;
  return std::visit([&](const auto& store) { return store.label(index); }, store_);
}

const char* Source::kind() const noexcept {
  constexpr const char* kKinds[] = {"a folder", "tar files", "a pack"};
  return kKinds[store_.index()];
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
