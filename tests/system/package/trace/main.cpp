// SPDX-License-Identifier: Apache-2.0

// A program of somebody else's that looks at itself: no copy of its loop is to be synchronous.

#include <cstdio>
#include <iostream>
#include <penstock/cuda.hpp>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/trace/session.hpp>

int main() {
  int unused = 0;  // On purpose: the warnings of penstock's own builds must not reach its users.

  const penstock::Stream stream;
  void* device = nullptr;
  void* pinned = nullptr;
  if (cudaMalloc(&device, 4096) != cudaSuccess || cudaMallocHost(&pinned, 4096) != cudaSuccess)
    return 1;
  penstock::trace::Session session;
  for (int i = 0; i < 4; ++i)
    cudaMemcpyAsync(device, pinned, 4096, cudaMemcpyHostToDevice, stream.get());
  const penstock::trace::Timeline timeline = session.stop();
  std::cout << penstock::trace::Report(timeline) << '\n';
  cudaFree(device);
  cudaFreeHost(pinned);

  const auto findings = penstock::trace::find(timeline);
  const bool good = timeline.events.size() == 8 &&
                    penstock::trace::none_of(findings, penstock::trace::Rule::synchronous_copy);
  std::printf("%zu events\n", timeline.events.size());
  return good ? 0 : 1;
}
