// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why bytes are refused, and that it took no memory to find out:
//
//   CHECK(refusal_in_little_memory([&] { decode(file); }) == "too large: ...");

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <stdexcept>
#include <string>

namespace penstock::test {

/// What `decode` throws, or "nothing"; and how much more memory the process had at some time than
/// before, if it was more than 64 MiB. In a process of its own: memory that others had before is
/// not seen.
template <class Decode>
std::string refusal_in_little_memory(Decode decode) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    const auto peak = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss / 1024;
    };
    const long before = peak();
    std::string told = "nothing";
    try {
      decode();
    } catch (const std::exception& error) {
      told = error.what();
    }
    if (peak() - before > 64) told += "; in " + std::to_string(peak() - before) + " MiB";
    const bool written = write(ends[1], told.data(), told.size()) > 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::array<char, 1000> told{};
  const ssize_t size = read(ends[0], told.data(), told.size());
  close(ends[0]);
  if (waitpid(child, nullptr, 0) != child) throw std::runtime_error("no child");
  return {told.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

}  // namespace penstock::test
