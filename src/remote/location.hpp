// SPDX-License-Identifier: Apache-2.0
#pragma once

// Location: where an object is, or where the objects below a prefix are.
//
//   s3://bucket/key       S3, or a server that speaks its protocol (LocationOptions::endpoint)
//   gs://bucket/key       Google Cloud Storage, by its XML API
//   https://host/path     a file of any server; http:// too
//
// A key behind s3:// or gs:// is taken as it is: "%20" and "?" are parts of its name. The path and
// the query behind https:// are taken as they are, too; there a space is "%20".

#include <penstock/remote.hpp>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::remote {

enum class Service { s3, gcs, http };

/// These concern s3:// and gs:// alone.
struct LocationOptions {
  /// "https://minio.example:9000", and perhaps a path. Empty: the endpoint of the service.
  std::string endpoint = {};
  /// Empty: us-east-1 for S3, auto for GCS. Requests are signed for it.
  std::string region = {};
  Addressing addressing = Addressing::automatic;
};

/// Which page of a listing is asked for.
struct ListingQuery {
  std::string_view token = {};      ///< what the page before has ended with; empty: the first page
  std::string_view delimiter = {};  ///< names that go on behind it are one entry; empty: all names
  unsigned most_keys = 1000;
};

class Location {
 public:
  /// Throws std::invalid_argument, which says what is wrong with which URL, and shows neither user
  /// info nor a query.
  static Location parse(std::string_view url, const LocationOptions& options = {});

  Service service() const noexcept { return service_; }
  /// Empty for http.
  const std::string& bucket() const noexcept { return bucket_; }
  /// The key of an object, or the prefix of several; not encoded; empty: the whole bucket. Empty
  /// for http.
  const std::string& key() const noexcept { return key_; }
  /// The region that requests are signed for; empty for http.
  const std::string& region() const noexcept { return region_; }
  /// Whether it is reached by https.
  bool is_encrypted() const noexcept { return root_.starts_with("https:"); }

  /// The object of this key in the same bucket. Throws std::invalid_argument for http, and for a
  /// key that no object has.
  Location object(std::string_view key) const;

  /// What to get. The path may have dots between slashes, which are parts of the key: they must
  /// reach the server as they are (CURLOPT_PATH_AS_IS). Throws std::invalid_argument without a key.
  std::string url() const;
  /// What to get for a page of the listing of all keys that begin with key(). Throws
  /// std::invalid_argument for http, which has no listings.
  std::string listing_url(const ListingQuery& query = {}) const;

  /// The URL for messages: without user info and query, and control characters as \xNN.
  std::string printable() const;

 private:
  Location() = default;
  void take_object(std::string_view rest, std::string_view url, const LocationOptions& options);
  void take_endpoint(std::string_view url, const LocationOptions& options);
  void take_page(std::string_view url);

  Service service_ = Service::http;
  std::string bucket_, key_, region_;
  std::string root_;  // all before the slash that the key follows; of http, all before the path
  std::string path_, query_;  // of http; with their "/" and "?"
  std::string host_;          // of http, for messages
  bool bucket_is_host_ = false;
};

}  // namespace penstock::remote
