// SPDX-License-Identifier: Apache-2.0
#include "process_identity.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "report.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

struct Status {
  char state = '?';
  long threads = 0;
  unsigned long long start = 0;
};

/// Reads /proc about a process. Returns nothing if there is no such process.
std::optional<Status> status_of(std::int32_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/stat";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char text[1024];
  const ssize_t bytes = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (bytes <= 0) return {};
  text[bytes] = '\0';
  const char* const after_name = std::strrchr(text, ')');  // A name may contain any character.
  Status status;
  if (after_name == nullptr ||
      std::sscanf(after_name,  // NOLINT(cert-err34-c): the kernel writes numbers
                  ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s "
                  "%llu",
                  &status.state, &status.threads, &status.start) != 3)
    return {};
  return status;
}

}  // namespace

const ProcessIdentity& this_process() {
  static const ProcessIdentity process = [] {
    const std::int32_t number = ::getpid();
    const std::optional<Status> status = status_of(number);
    return ProcessIdentity{number, status ? status->start : 0};
  }();
  return process;
}

bool runs(const ProcessIdentity& process) {
  const std::optional<Status> status = status_of(process.number);
  if (!status || status->start != process.start) return false;
  // The first thread of a process may end before the others.
  const bool ended = (status->state == 'Z' || status->state == 'X') && status->threads <= 1;
  return !ended;
}

std::uint64_t unique_number() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number)
    if (errno != EINTR) give_up("the system has no random numbers (getrandom)");
  return number;
}

std::uint64_t number_of_this_run() {
  static const std::uint64_t number = unique_number();
  return number;
}

}  // namespace penstock::emulation::detail
