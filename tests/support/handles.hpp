// SPDX-License-Identifier: Apache-2.0
#pragma once

// Streams and events of every kind for tests, destroyed at the end of their scope. They turn into
// the bare handle, so a test reads like the CUDA calls that it is about. (penstock::Stream and
// Event are themselves under test, and know one kind each.)

#include "catch.hpp"

namespace penstock::test {

/// A stream of the current device: cudaStreamDefault synchronises with the legacy default stream,
/// cudaStreamNonBlocking does not.
class TestStream {
 public:
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) {
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~TestStream() { CHECK_CUDA(cudaStreamDestroy(stream_)); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  // NOLINTNEXTLINE(google-explicit-constructor): stands for the handle in CUDA calls.
  operator cudaStream_t() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = cudaEventDisableTiming) {
    REQUIRE_CUDA(cudaEventCreateWithFlags(&event_, flags));
  }
  ~TestEvent() { CHECK_CUDA(cudaEventDestroy(event_)); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;

  // NOLINTNEXTLINE(google-explicit-constructor): stands for the handle in CUDA calls.
  operator cudaEvent_t() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace penstock::test
