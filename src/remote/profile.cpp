// SPDX-License-Identifier: Apache-2.0

#include "profile.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <penstock/detail/words.hpp>
#include <stdexcept>
#include <system_error>

namespace penstock::inline PENSTOCK_ABI::remote {

namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error(path + ": " + why);
}

/// nullopt: there is no such file.
std::optional<Secret> content(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail(path, std::generic_category().message(errno));
  }
  std::setvbuf(file.get(), nullptr, _IONBF, 0);  // A buffer would not be wiped.
  std::string text(kLargestFile + 1, '\0');
  const WipedAtEnd wiped(text);
  const std::size_t size = std::fread(text.data(), 1, text.size(), file.get());
  if (std::ferror(file.get()) != 0) fail(path, std::generic_category().message(errno));
  if (size > kLargestFile) fail(path, "it has more than 1 MiB");
  return Secret(std::string_view(text).substr(0, size));
}

std::string path_of(const Environment& environment, const char* variable, const char* name) {
  if (const auto path = environment(variable)) return *path;
  const auto home = environment("HOME");
  return home ? *home + "/.aws/" + name : std::string();
}

/// "[profile work]" and "[default]" in a config file, "[work]" in one of credentials.
std::string_view section_name(std::string_view line, bool is_config) {
  std::string_view name = detail::trimmed(line.substr(1, line.size() - 2));
  if (!is_config || name == "default") return name;
  if (!detail::take(name, "profile ") && !detail::take(name, "profile\t"))
    return {};  // another kind
  return detail::trimmed(name);
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any.
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Profile::Profile(const Environment& environment, const std::string& name) : name_(name) {
  if (name_.empty()) name_ = environment("AWS_PROFILE").value_or("");
  const bool named = !name_.empty();
  if (!named) name_ = "default";
  const std::string credentials =
      path_of(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const std::string config = path_of(environment, "AWS_CONFIG_FILE", "config");
  const bool in_credentials = read(credentials, false);
  const bool in_config = read(config, true);
  if (named && !in_credentials && !in_config)
    throw std::runtime_error("the profile \"" + name_ + "\" is neither in " + credentials +
                             " nor in " + config);
}

bool Profile::read(const std::string& path, bool is_config) {
  if (path.empty()) return false;
  const std::optional<Secret> file = content(path);
  if (!file) return false;
  std::string_view rest = file->reveal();
  detail::take(rest, "\xEF\xBB\xBF");
  bool found = false, in_section = false, in_profile = false;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view whole = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(whole.size() == rest.size() ? whole.size() : whole.size() + 1);
    const std::string_view line = detail::trimmed(whole);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      // A comment may follow.
      const std::size_t end = line.find(']');
      if (end == std::string_view::npos)
        fail(path, "line " + std::to_string(number) + " begins with \"[\" and has no \"]\"");
      in_section = true;
      in_profile = section_name(line.substr(0, end + 1), is_config) == name_;
      found = found || in_profile;
      continue;
    }
    if (whole.front() == ' ' || whole.front() == '\t') continue;  // It belongs to the value before.
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || !in_section)
      fail(path, "line " + std::to_string(number) +
                     " is neither a section in brackets nor a name, \"=\" and a value below one");
    const std::string_view value = detail::trimmed(line.substr(equals + 1));
    if (in_profile && !value.empty())
      values_.try_emplace(detail::lower_case(detail::trimmed(line.substr(0, equals))), value);
  }
  return found;
}

const Secret* Profile::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::string Profile::text(std::string_view key) const {
  const Secret* const value = find(key);
  return value == nullptr ? std::string() : std::string(value->reveal());
}

}  // namespace penstock::remote
