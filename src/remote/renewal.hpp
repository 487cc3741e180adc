// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/remote.hpp>
#include <stdexcept>

#include "part_group.hpp"
#include "signatures.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// Calls `read`, with credentials that are valid now. Where the service says that they have
/// expired, gets others and calls it once more. `signatures`: nullptr where none are needed. Throws
/// CredentialsError, and what `read` throws.
template <class Read>
auto with_credentials(Signatures* signatures, const Read& read) {
  if (signatures == nullptr) return read();
  const auto used = signatures->refresh();
  try {
    return read();
  } catch (const ExpiredError& error) {
    signatures->refused(used);
    try {
      signatures->refresh();
    } catch (const CredentialsError& none) {
      throw RemoteError(std::string(error.what()) + "; " + none.what(), error.url(), error.status(),
                        error.attempts());
    }
  }
  return read();
}

}  // namespace penstock::remote
