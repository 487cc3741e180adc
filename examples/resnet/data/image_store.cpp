// SPDX-License-Identifier: Apache-2.0

#include "image_store.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace resnet {

ImageStore::ImageStore(examples::ImageFiles files, std::int32_t classes)
    : files_(std::move(files)), classes_(classes) {
  if (classes > 0) return;
  for (std::uint64_t i = 0; i < size(); ++i) classes_ = std::max(classes_, any_label(i) + 1);
  if (classes_ == 0) throw std::invalid_argument(name(0) + " has no label");
}

std::uint64_t ImageStore::size() const {
  return std::visit([](const auto& store) { return store.size(); }, files_);
}
std::int32_t ImageStore::any_label(std::uint64_t index) const {
  return std::visit([&](const auto& store) { return store.label(index); }, files_);
}
std::int32_t ImageStore::label(std::uint64_t index) const {
  const std::int32_t label = any_label(index);
  if (label < 0 || label >= classes_)
    throw std::invalid_argument(name(index) + " has the label " + std::to_string(label) +
                                ": not one of 0 to " + std::to_string(classes_ - 1));
  return label;
}
std::string ImageStore::name(std::uint64_t index) const {
  return std::visit([&](const auto& store) { return store.name(index); }, files_);
}
std::span<const std::byte> ImageStore::read(std::uint64_t index,
                                            std::vector<std::byte>& scratch) const {
  return std::visit([&](const auto& store) { return store.read(index, scratch); }, files_);
}
void ImageStore::will_need(std::span<const std::uint64_t> indices,
                           std::chrono::steady_clock::time_point due) const noexcept {
  std::visit([&](const auto& store) { store.will_need(indices, due); }, files_);
}

ImageStore open_images(const std::filesystem::path& path, Split split, std::int32_t classes) {
  const std::string part = split == Split::train ? "train" : "val";
  if (auto files = examples::open_part(path, part)) return ImageStore(*std::move(files), classes);
  if (split == Split::validation)
    throw std::invalid_argument(path.string() + " has no val, no val.pack" +
                                (examples::is_url(path) ? "" : " and no val-*.tar") +
                                ": there is nothing to evaluate with");
  return ImageStore(examples::open_image_files({path}), classes);
}

}  // namespace resnet
