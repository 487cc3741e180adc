// SPDX-License-Identifier: Apache-2.0

// A program of somebody else's that reads a file of a server: here one that is not there.

#include <cstdio>
#include <penstock/remote.hpp>

int main() {
  penstock::remote::Options options;
  options.attempts = 1;
  const penstock::remote::Client client(options);
  try {
    static_cast<void>(client.file("http://127.0.0.1:1/train.pack"));
  } catch (const penstock::remote::RemoteError& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  return 1;
}
