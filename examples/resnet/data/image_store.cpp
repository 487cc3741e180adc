// SPDX-License-Identifier: Apache-2.0

#include "image_store.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace resnet {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> shards_in(const fs::path& directory, const std::string& prefix) {
  std::vector<fs::path> shards;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".tar" && entry.path().filename().string().starts_with(prefix))
      shards.push_back(entry.path());
  std::sort(shards.begin(), shards.end());
  return shards;
}

ImageStore::Store open_file(const fs::path& file) {
  if (file.extension() == ".tar") return penstock::TarShards({file});
  return penstock::PackedFile(file);
}

}  // namespace

ImageStore::ImageStore(Store store, std::int32_t classes)
    : store_(std::move(store)), classes_(classes) {
  if (classes > 0) return;
  for (std::uint64_t i = 0; i < size(); ++i) classes_ = std::max(classes_, any_label(i) + 1);
  if (classes_ == 0) throw std::invalid_argument(name(0) + " has no label");
}

std::uint64_t ImageStore::size() const {
  return std::visit([](const auto& store) { return store.size(); }, store_);
}
std::int32_t ImageStore::any_label(std::uint64_t index) const {
  return std::visit([&](const auto& store) { return store.label(index); }, store_);
}
std::int32_t ImageStore::label(std::uint64_t index) const {
  const std::int32_t label = any_label(index);
  if (label < 0 || label >= classes_)
    throw std::invalid_argument(name(index) + " has the label " + std::to_string(label) +
                                ": not one of 0 to " + std::to_string(classes_ - 1));
  return label;
}
std::string ImageStore::name(std::uint64_t index) const {
  return std::visit([&](const auto& store) { return store.name(index); }, store_);
}
std::span<const std::byte> ImageStore::read(std::uint64_t index,
                                            std::vector<std::byte>& scratch) const {
  return std::visit([&](const auto& store) { return store.read(index, scratch); }, store_);
}
void ImageStore::will_need(std::span<const std::uint64_t> indices) const noexcept {
  std::visit([&](const auto& store) { store.will_need(indices); }, store_);
}

ImageStore open_images(const fs::path& path, Split split, std::int32_t classes) {
  const std::string part = split == Split::train ? "train" : "val";
  if (fs::is_directory(path)) {
    if (fs::is_directory(path / part))
      return ImageStore(penstock::FileFolder(path / part), classes);
    if (const fs::path pack = path / (part + ".pack"); fs::exists(pack))
      return ImageStore(penstock::PackedFile(pack), classes);
    if (const auto shards = shards_in(path, part + "-"); !shards.empty())
      return ImageStore(penstock::TarShards(shards), classes);
  }
  if (split == Split::validation)
    throw std::invalid_argument(
        path.string() +
        " has no val, no val.pack and no val-*.tar: there is nothing to evaluate with");
  if (fs::is_directory(path)) return ImageStore(penstock::FileFolder(path), classes);
  return ImageStore(open_file(path), classes);
}

}  // namespace resnet
