// SPDX-License-Identifier: Apache-2.0
#pragma once

// ImageFiles: the image files that a command line names, in a folder for each class, in tar shards
// or in a packed file, on this machine or at a server.
//
//   const examples::ImageFiles files = examples::open_image_files({"s3://bucket/imagenet/train/"});
//   std::visit([](const auto& store) { train(store); }, files);

#include <filesystem>
#include <optional>
#include <penstock/file_folder.hpp>
#include <penstock/packed_file.hpp>
#include <penstock/tar_shards.hpp>
#include <string>
#include <variant>
#include <vector>

namespace examples {

using ImageFiles = std::variant<penstock::FileFolder, penstock::TarShards, penstock::PackedFile>;

/// Whether the path is a URL: s3://, gs://, https:// or http://.
bool is_url(const std::filesystem::path& path);

/// Opens one folder or URL that ends in a slash (FileFolder), several files .tar (TarShards), or
/// one other file (PackedFile). URLs are read as image_urls.hpp has it. Throws
/// std::invalid_argument for other paths, and for URLs without penstock::remote; StoreError; and
/// for URLs what penstock::remote throws.
ImageFiles open_image_files(const std::vector<std::filesystem::path>& paths);

/// Opens a part of a data set, such as "train": of a directory, the folder `part`, the file
/// `part`.pack, or the shards `part`-*.tar; of a URL that ends in a slash, the first two. nullopt:
/// there is none of them. Throws as open_image_files().
std::optional<ImageFiles> open_part(const std::filesystem::path& data_set, const std::string& part);

}  // namespace examples
