// SPDX-License-Identifier: Apache-2.0
#pragma once

// cpu_seconds(): the time that all threads of this process have computed.

#include <sys/resource.h>

inline double cpu_seconds() {
  ::rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const ::timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}
