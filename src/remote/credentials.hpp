// SPDX-License-Identifier: Apache-2.0
#pragma once

// Credentials for S3 and what speaks its protocol, and where they come from: a chain of providers,
// of which the first one that has some is asked from then on.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/version.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "http_call.hpp"
#include "profile.hpp"
#include "secret.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

using WallTime = std::chrono::system_clock::time_point;
using WallClock = std::function<WallTime()>;

/// A key for signatures; or none, for data that anybody may read.
struct Credentials {
  std::string key_id = {};  ///< empty: requests are not signed
  Secret secret_key = {};
  Secret session_token = {};             ///< empty for keys that last
  std::optional<WallTime> expires = {};  ///< nullopt: never

  bool anonymous() const noexcept { return key_id.empty(); }
};

/// No credentials can be had. `what()` says where was looked and why not; it holds no secret.
class CredentialsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A place that may have credentials. A chain calls it from one thread at a time.
class CredentialProvider {
 public:
  CredentialProvider() = default;
  CredentialProvider(const CredentialProvider&) = delete;
  CredentialProvider& operator=(const CredentialProvider&) = delete;
  virtual ~CredentialProvider() = default;

  /// For messages: "the environment (AWS_ACCESS_KEY_ID)".
  virtual std::string name() const = 0;
  /// New ones at each call where they expire. nullopt: this place is not set up, so that another
  /// one is asked. Throws std::runtime_error where it is set up and wrong.
  virtual std::optional<Credentials> find() = 0;
};

/// These, whatever else there is; without a key ID, anonymous. Throws std::invalid_argument for one
/// half of a key.
std::unique_ptr<CredentialProvider> given_credentials(Credentials credentials);
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN.
std::unique_ptr<CredentialProvider> environment_credentials(Environment environment);
/// The keys of a profile (see Profile). Where that names a way to get keys that is not known here,
/// as a process or a single sign-on, find() says so.
std::unique_ptr<CredentialProvider> profile_credentials(Environment environment,
                                                        std::string profile = {});
/// A token of AWS_WEB_IDENTITY_TOKEN_FILE for keys of the role AWS_ROLE_ARN, by a call to STS of
/// `region`, or of that of the environment (AWS_ENDPOINT_URL_STS: another URL); as EKS sets it up.
/// Without these variables, those of the profile: web_identity_token_file and role_arn.
std::unique_ptr<CredentialProvider> web_identity_credentials(Environment environment,
                                                             HttpFunction http,
                                                             std::string region = {},
                                                             std::string profile = {});
/// The role of the EC2 instance, by version 2 of its metadata service (AWS_EC2_METADATA_SERVICE_
/// ENDPOINT: another URL). On another machine find() takes a time-out of 1 second.
std::unique_ptr<CredentialProvider> instance_credentials(Environment environment,
                                                         HttpFunction http);

struct CredentialOptions {
  bool anonymous = false;  ///< requests are not signed
  std::string key_id;      ///< with secret_key: this key
  Secret secret_key;
  Secret session_token;
  std::string profile;             ///< named: the environment's keys are not looked at
  std::string region;              ///< of STS
  bool instance_metadata = false;  ///< also ask the EC2 instance for its role
};

/// In this order: options, environment, web identity, profile, and, if wanted, instance metadata.
/// Throws std::invalid_argument for options that contradict each other.
std::vector<std::unique_ptr<CredentialProvider>> credential_providers(
    CredentialOptions options, const Environment& environment, const HttpFunction& http);

/// Credentials that are renewed before they expire. Any number of threads may use one object.
class CredentialChain {
 public:
  explicit CredentialChain(std::vector<std::unique_ptr<CredentialProvider>> providers,
                           WallClock clock = &std::chrono::system_clock::now);

  /// Credentials that are valid now. They are renewed 5 minutes before they expire, or when two
  /// thirds of a shorter life are over: one thread does it and waits for the server, and others go
  /// on with the old ones. Where that fails, the old ones serve until they expire, and there is
  /// another attempt every 30 seconds. Throws CredentialsError when there are none.
  std::shared_ptr<const Credentials> get();

  /// A service has refused `these` before they expire: get() asks for others. Does nothing if it
  /// has done so by now.
  void refused(const std::shared_ptr<const Credentials>& these);

  /// The last credentials, without waiting for a provider; nullptr: there are none that are valid
  /// now. For threads that must not wait, beside one that calls get() when renew_at() has come.
  std::shared_ptr<const Credentials> ready() const;
  /// When get() will ask a provider again; WallTime::max(): never, as these do not expire.
  WallTime renew_at() const;

 private:
  std::shared_ptr<const Credentials> ask();
  bool valid(WallTime now) const {
    return current_ && (!current_->expires || now < *current_->expires);
  }

  const std::vector<std::unique_ptr<CredentialProvider>> providers_;
  const WallClock clock_;
  CredentialProvider* chosen_ = nullptr;  // used by the thread that asks

  mutable std::mutex mutex_;
  std::condition_variable asked_;
  bool asking_ = false;
  std::uint64_t attempts_ = 0;  // that have ended
  std::exception_ptr failure_;  // of the last attempt
  WallTime renew_at_{};
  std::shared_ptr<const Credentials> current_, refused_;
};

}  // namespace penstock::remote
