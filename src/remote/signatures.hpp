// SPDX-License-Identifier: Apache-2.0
#pragma once

// Signatures: signs the requests for the objects of one service, with credentials that are renewed
// in time.

#include <chrono>
#include <memory>
#include <mutex>
#include <penstock/remote.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "credentials.hpp"
#include "http_call.hpp"
#include "signer.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// Any number of threads may call the members.
class Signatures {
 public:
  Signatures(std::vector<std::unique_ptr<CredentialProvider>> providers, std::string region)
      : credentials_(std::move(providers)), signer_(std::move(region)) {}

  /// Gets the credentials, or new ones before the old ones expire. May wait for a server. Throws
  /// CredentialsError.
  std::shared_ptr<const Credentials> refresh() { return credentials_.get(); }
  /// A service has refused these: refresh() gets others.
  void refused(const std::shared_ptr<const Credentials>& these) { credentials_.refused(these); }

  /// Adds the headers of a signature. Does not wait for a server. Throws CredentialsError where the
  /// credentials have expired and nobody has called refresh() meanwhile.
  void sign(HttpRequest& request, std::chrono::system_clock::time_point now) {
    sign("GET", request.url, {}, request.headers, now);
  }
  void sign(HttpCall& call, std::chrono::system_clock::time_point now) {
    sign(call.method, call.url, call.body, call.headers, now);
  }

 private:
  void sign(std::string_view method, std::string_view url, std::string_view body,
            std::vector<std::string>& headers, std::chrono::system_clock::time_point now) {
    const std::shared_ptr<const Credentials> credentials = credentials_.ready();
    if (!credentials) throw CredentialsError("the credentials have expired");
    const std::lock_guard lock(mutex_);
    signer_.sign(method, url, body, headers, *credentials, now);
  }

  CredentialChain credentials_;
  std::mutex mutex_;  // of signer_, for the few microseconds of a signature
  Signer signer_;
};

/// Signs by `signatures`; none for nullptr.
inline Authorizer authorizer_of(std::shared_ptr<Signatures> signatures) {
  if (!signatures) return {};
  return [signatures = std::move(signatures)](HttpRequest& request,
                                              std::chrono::system_clock::time_point now) {
    signatures->sign(request, now);
  };
}

}  // namespace penstock::remote
