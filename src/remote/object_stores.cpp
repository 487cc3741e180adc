// SPDX-License-Identifier: Apache-2.0
#include "object_stores.hpp"

#include <chrono>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "credentials.hpp"
#include "service_error.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

struct ListRange {
  static constexpr const char* message = "remote list";
  static constexpr MarkerCategory category = markers::category::wait;
};
struct CredentialsRange {
  static constexpr const char* message = "remote credentials";
  static constexpr MarkerCategory category = markers::category::wait;
};

/// The same calls, each in a range of its own on a profiler's timeline.
template <class Range>
HttpFunction in_ranges(const HttpFunction& http) {
  return [http](const HttpCall& call) {
    const ScopedRange range(Range{}, 0);
    return http(call);
  };
}

std::string variable(const char* name) {
  return process_environment(name).value_or(std::string());
}

}  // namespace

ObjectStores::ObjectStores(StoreOptions& options, const HttpFunction& http)
    : secret_key_(options.secret_key),
      session_token_(options.session_token),
      list_(in_ranges<ListRange>(http)),
      get_credentials_(in_ranges<CredentialsRange>(http)) {
  wipe(options.secret_key);
  wipe(options.session_token);
  options_ = options;
}

std::string ObjectStores::s3_endpoint() const {
  if (!options_.endpoint.empty()) return options_.endpoint;
  const std::string endpoint = variable("AWS_ENDPOINT_URL_S3");
  return endpoint.empty() ? variable("AWS_ENDPOINT_URL") : endpoint;
}

std::string ObjectStores::s3_region() const {
  if (!options_.region.empty()) return options_.region;
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (std::string region = variable(name); !region.empty()) return region;
  return Profile(process_environment, options_.profile).text("region");
}

Location ObjectStores::locate(std::string_view url) const {
  LocationOptions options{.addressing = options_.addressing};
  if (url.starts_with("s3://")) {
    options.endpoint = s3_endpoint();
    options.region = s3_region();
  } else {
    options.endpoint = options_.endpoint;
    options.region = options_.region;
  }
  return Location::parse(url, options);
}

std::shared_ptr<Signatures> ObjectStores::signatures(const Location& location) {
  if (location.service() == Service::http) return nullptr;
  std::shared_ptr<Signatures> found;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Signatures>& kept = location.service() == Service::s3 ? s3_ : gcs_;
    if (!kept) {
      std::vector<std::unique_ptr<CredentialProvider>> providers;
      if (location.service() == Service::gcs)
        // The keys of the environment are Amazon's: they do not go to Google.
        providers.push_back(given_credentials(options_.anonymous
                                                  ? Credentials{}
                                                  : Credentials{.key_id = options_.key_id,
                                                                .secret_key = secret_key_,
                                                                .session_token = session_token_}));
      else
        providers = credential_providers({.anonymous = options_.anonymous,
                                          .key_id = options_.key_id,
                                          .secret_key = secret_key_,
                                          .session_token = session_token_,
                                          .profile = options_.profile,
                                          .region = location.region(),
                                          .instance_metadata = options_.instance_metadata},
                                         process_environment, get_credentials_);
      kept = std::make_shared<Signatures>(std::move(providers), location.region());
    }
    found = kept;
  }
  found->refresh();
  return found;
}

HttpAnswer ObjectStores::call(const Location& location, HttpCall& call) {
  constexpr int kAttempts = 5;
  bool renewed = false;
  for (int attempt = 1;; ++attempt) {
    const auto by = signatures(location);
    const auto used = by ? by->refresh() : nullptr;
    if (by) by->sign(call, std::chrono::system_clock::now());
    try {
      HttpAnswer answer = list_(call);
      if (by && !renewed && (answer.status == 400 || answer.status == 403) &&
          read_service_fault(answer.body).expired()) {
        renewed = true;
        by->refused(used);
        continue;
      }
      const bool may_pass = answer.status == 429 || answer.status >= 500;
      if (!may_pass || attempt == kAttempts) return answer;
    } catch (const std::runtime_error&) {
      if (attempt == kAttempts) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100) * (1 << attempt));
  }
}

}  // namespace penstock::remote
