// SPDX-License-Identifier: Apache-2.0

#include "cache_directory.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

namespace examples {
namespace {

namespace fs = std::filesystem;

std::string message(int error) {
  return std::generic_category().message(error);
}

fs::path home() {
  const char* const named = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe)
  if (named != nullptr && *named == '/') return named;
  const passwd* const user = getpwuid(geteuid());  // NOLINT(concurrency-mt-unsafe)
  if (user == nullptr || user->pw_dir == nullptr || *user->pw_dir != '/')
    throw CacheError("no folder for the cache: set HOME or XDG_CACHE_HOME, or name one (--cache)");
  return user->pw_dir;
}

fs::path cache_home() {
  const char* const named = std::getenv("XDG_CACHE_HOME");  // NOLINT(concurrency-mt-unsafe)
  return named != nullptr && *named == '/' ? fs::path(named) : home() / ".cache";
}

/// Makes the folder if nothing is there, and looks at what is: no link is followed.
struct stat own_directory(const fs::path& directory, mode_t mode) {
  const std::string name = directory.string();
  if (mkdir(directory.c_str(), mode) != 0 && errno != EEXIST)
    throw CacheError("cannot make the cache " + name + ": " + message(errno));
  const int opened = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0)
    throw CacheError(
        name +
        (errno == ENOTDIR || errno == ELOOP ? " is no folder, or a link" : ": " + message(errno)) +
        ": remove it, or name another cache (--cache)");
  struct stat status {};
  const int failed = fstat(opened, &status);
  close(opened);
  if (failed != 0) throw CacheError(name + ": cannot be looked at");
  if (status.st_uid != geteuid())
    throw CacheError(name + " belongs to user " + std::to_string(status.st_uid) +
                     ", not to you: name another cache (--cache), or a data set (--data)");
  return status;
}

}  // namespace

void make_own_directory(const fs::path& directory) {
  const struct stat status = own_directory(directory, 0755);
  if ((status.st_mode & S_IWOTH) != 0)
    throw CacheError(directory.string() + " can be written by anybody: chmod o-w " +
                     directory.string());
}

fs::path cache_directory() {
  const fs::path home = cache_home(), cache = home / "penstock";
  std::error_code error;
  fs::create_directories(home.parent_path(), error);
  if (mkdir(home.c_str(), 0700) != 0 && errno != EEXIST)
    throw CacheError("cannot make " + home.string() + ": " + message(errno) +
                     ": set XDG_CACHE_HOME, or name a cache (--cache)");
  const struct stat status = own_directory(cache, 0700);
  if ((status.st_mode & 0077) != 0)
    throw CacheError(cache.string() + " is open to other users: chmod 700 " + cache.string());
  return cache;
}

}  // namespace examples
