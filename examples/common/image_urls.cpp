// SPDX-License-Identifier: Apache-2.0

#include "image_urls.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <penstock/file.hpp>
#include <penstock/remote.hpp>
#include <stdexcept>

#include "cache_directory.hpp"
#include "hash.hpp"
#include "programs/output_file.hpp"

namespace examples {
namespace {

namespace fs = std::filesystem;
using penstock::File;
using penstock::remote::Client;

const Client& client() {
  static const Client client;
  return client;
}

bool has_listings(const std::string& url) {
  return url.starts_with("s3://") || url.starts_with("gs://");
}

std::optional<File> open_if_there(const std::string& url) {
  try {
    return client().file(url);
  } catch (const penstock::remote::RemoteError& error) {
    // S3 answers 403 where an object is missing and the keys may not list the bucket.
    const bool is_missing = error.status() == 404 || (error.status() == 403 && has_listings(url));
    if (!is_missing) throw;
    return std::nullopt;
  }
}

/// Where the list of a folder is kept.
fs::path place_of_list(const std::string& folder) {
  const fs::path lists = cache_directory() / "lists";
  make_own_directory(lists);
  Hash hash;
  hash.add(folder);
  return lists / (hash.text() + ".list");
}

void copy(const File& file, const fs::path& to) {
  std::string text(file.size(), '\0');
  const std::size_t count = file.read(0, std::as_writable_bytes(std::span(text)));
  if (count < text.size()) throw std::runtime_error(file.name() + " has become shorter");
  penstock::programs::write_file(to, text, penstock::programs::can_be_made_again);
}

/// nullopt: there is no list, and no object that a list could name.
std::optional<penstock::FileFolder> open_folder(const std::string& folder) {
  const fs::path list = place_of_list(folder);
  if (const auto beside = open_if_there(folder.substr(0, folder.size() - 1) + ".list")) {
    copy(*beside, list);
  } else if (!has_listings(folder)) {
    return std::nullopt;
  } else if (fs::exists(list)) {
    std::fprintf(stderr, "%s: by the list %s; remove it to list the folder anew\n", folder.c_str(),
                 list.c_str());
  } else {
    try {
      const std::uint64_t count = client().save_list(folder, list);
      std::fprintf(stderr, "%s: %ju files, listed in %s\n", folder.c_str(),
                   static_cast<std::uintmax_t>(count), list.c_str());
    } catch (const penstock::remote::NothingListed&) {
      return std::nullopt;
    }
  }
  return penstock::FileFolder::from_list(client().folder(folder), list);
}

std::vector<File> open_all(const std::vector<std::string>& urls) {
  std::vector<File> files;
  for (const std::string& url : urls) files.push_back(client().file(url));
  return files;
}

}  // namespace

ImageFiles open_image_urls(const std::vector<std::string>& urls) {
  const std::string& first = urls.front();
  if (fs::path(first).extension() == ".tar") return penstock::TarShards(open_all(urls));
  if (!first.ends_with('/')) return penstock::PackedFile(client().file(first));
  if (auto folder = open_folder(first)) return *std::move(folder);
  throw std::invalid_argument(
      first + ": there are no image files, and no list " + first.substr(0, first.size() - 1) +
      ".list" +
      (has_listings(first) ? "" : ", without which only folders of s3:// and gs:// can be read"));
}

std::optional<ImageFiles> open_part_of_url(const std::string& url, const std::string& part) {
  if (!url.ends_with('/')) return std::nullopt;
  if (const auto pack = open_if_there(url + part + ".pack")) return penstock::PackedFile(*pack);
  if (auto folder = open_folder(url + part + "/")) return *std::move(folder);
  return std::nullopt;
}

}  // namespace examples
