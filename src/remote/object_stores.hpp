// SPDX-License-Identifier: Apache-2.0
#pragma once

// ObjectStores: where the URLs of a client lead, and who signs the requests for them.

#include <memory>
#include <mutex>
#include <penstock/remote.hpp>
#include <string>
#include <string_view>

#include "http_call.hpp"
#include "location.hpp"
#include "profile.hpp"
#include "secret.hpp"
#include "signatures.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// Any number of threads may call the members.
class ObjectStores {
 public:
  /// Takes the secrets out of `options`, and wipes them there. `http` makes the calls for
  /// credentials and listings.
  ObjectStores(StoreOptions& options, const HttpFunction& http);

  /// Throws std::invalid_argument for what is no URL of an object; std::runtime_error for a profile
  /// that cannot be read.
  Location locate(std::string_view url) const;

  /// Who signs requests for `location`, with credentials that are valid now; nullptr for http. May
  /// wait for a server. Throws CredentialsError.
  std::shared_ptr<Signatures> signatures(const Location& location);

  /// Makes a signed call, which is tried again a few times where that may help.
  HttpAnswer call(const Location& location, HttpCall& call);

 private:
  std::string s3_endpoint() const;
  std::string s3_region() const;

  const Secret secret_key_, session_token_;
  StoreOptions options_;  // without secrets
  const HttpFunction list_, get_credentials_;
  std::mutex mutex_;
  std::shared_ptr<Signatures> s3_, gcs_;  // made when they are first needed
};

}  // namespace penstock::remote
