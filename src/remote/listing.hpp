// SPDX-License-Identifier: Apache-2.0
#pragma once

// Listings: what objects there are below a prefix of a bucket, by ListObjectsV2 of S3, which the
// XML API of Google Cloud Storage has too; and lists of them for FileFolder::from_list.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <penstock/detail/storage/name_arena.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "http_call.hpp"
#include "location.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// A listing cannot be had. `what()` names the prefix, and the page and the place in it.
class ListingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ListedObject {
  std::string key;  ///< not encoded; it may be any bytes
  std::uint64_t bytes = 0;
  std::string etag;  ///< without quotes; empty: the server gives none
};

struct ListingPage {
  std::vector<ListedObject> objects;
  std::vector<std::string> prefixes;  ///< common ones, with ListingQuery::delimiter
  std::string next;                   ///< the token of the page after this; empty: it is the last
};

/// The page that a server's answer is. Throws XmlError, with the place, for a text that is no such
/// page, and for an object without a key or size.
ListingPage read_listing_page(std::string_view xml);

struct ListingLimits {
  std::uint64_t objects = 100'000'000;  ///< a listing with more is an error
  std::size_t page_bytes = std::size_t{16} << 20;
};

/// Lists all objects whose keys begin with `prefix.key()`: gets page after page, and calls `take`
/// for each. `get` signs the call and makes it, and tries again what is worth it. Throws
/// ListingError for a page that cannot be read, a key without the prefix, a token that comes twice,
/// and for a listing beyond `limits`; ServiceError for an answer that is not 200; what `get` and
/// `take` throw.
void list_objects(const Location& prefix, const std::function<HttpAnswer(HttpCall&)>& get,
                  const std::function<void(const ListingPage&)>& take,
                  const ListingLimits& limits = {});

/// Collects keys, and writes them as a list that FileFolder::from_list reads. Takes the bytes of
/// the keys and 8 for each, and save() 8 more.
class ObjectList {
 public:
  /// A label for each directory below the prefix, by the rules of FileFolder and ImageFolder; or
  /// no labels.
  enum class Labels { by_directory, none };

  /// `prefix`: what is cut off the keys; it ends in a slash or is empty. `extensions`: of the keys
  /// to take, in letters of either case; none given: those of images. Throws
  /// std::invalid_argument for another prefix.
  explicit ObjectList(std::string prefix, Labels labels = Labels::by_directory,
                      const std::vector<std::string>& extensions = {});

  /// Takes a key, or leaves it out: a directory's own (it ends in a slash), one that has another
  /// extension, one in no directory where labels are by directory, and what Jupyter and macOS leave
  /// behind. Throws ListingError for a key that no list can name: with a line break, and one that
  /// begins with "/" or "./" behind the prefix.
  void add(std::string_view key);
  void add(const ListingPage& page) {
    for (const ListedObject& object : page.objects) add(object.key);
  }

  /// Keys that were taken.
  std::uint64_t size() const noexcept { return keys_.size(); }

  /// Writes the list, whole or not at all: classes in the order of their names; samples by class,
  /// then by directory, then by name; without labels in the order of the keys. Throws NothingListed
  /// where no key was taken; ListingError where a class has none, and where the file cannot be
  /// written.
  void save(const std::filesystem::path& list) const;

 private:
  [[noreturn]] void fail(const std::string& why) const;

  const std::string prefix_;
  const Labels labels_;
  std::vector<std::string> extensions_;  // in lower case
  detail::NameArena keys_;               // without the prefix
  std::vector<std::string> seen_;        // directories below the prefix, as they came
};

}  // namespace penstock::remote
