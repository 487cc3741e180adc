// SPDX-License-Identifier: Apache-2.0
#pragma once

// A profile of the files that AWS's tools share: ~/.aws/credentials and ~/.aws/config.

#include <functional>
#include <map>
#include <optional>
#include <penstock/version.hpp>
#include <string>
#include <string_view>

#include "secret.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// A variable of the environment; nullopt where it is not set or empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// Of this process.
std::optional<std::string> process_environment(const char* name);

/// What both files say about one profile. Any value may be a secret.
class Profile {
 public:
  /// The profile `name`, or if that is empty the one of AWS_PROFILE, or else "default". The files
  /// are ~/.aws/credentials and ~/.aws/config, or those of AWS_SHARED_CREDENTIALS_FILE and
  /// AWS_CONFIG_FILE; the first one goes before the second. A file that is not there has nothing.
  /// Throws std::runtime_error for a file that cannot be read, for a line that is none of such a
  /// file, by its number and without its text, and for a profile that was named and is in neither.
  explicit Profile(const Environment& environment, const std::string& name = {});

  const std::string& name() const noexcept { return name_; }
  /// nullptr: the profile does not say.
  const Secret* find(std::string_view key) const;
  /// The same as a text, for what is no secret, such as a region; empty: it does not say.
  std::string text(std::string_view key) const;

 private:
  bool read(const std::string& path, bool is_config);

  std::string name_;
  std::map<std::string, Secret, std::less<>> values_;
};

}  // namespace penstock::remote
