// SPDX-License-Identifier: Apache-2.0

#include <chrono>
#include <cstdint>
#include <exception>
#include <penstock/emulation.hpp>
#include <penstock/error.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::Mentions;
using test::thrown;

// A program may keep any of them (std::exception_ptr) and catch all as one.
static_assert(std::is_base_of_v<std::runtime_error, CudaError>);
static_assert(std::is_base_of_v<std::runtime_error, SourceError>);
static_assert(std::is_base_of_v<std::runtime_error, PoolExhausted>);
static_assert(std::is_base_of_v<std::runtime_error, StallError>);
static_assert(std::is_nothrow_copy_constructible_v<CudaError>);
static_assert(std::is_nothrow_copy_constructible_v<PoolExhausted>);

TEST_CASE("check lets success pass", "[error]") {
  CHECK_NOTHROW(detail::check(cudaSuccess, "cudaMalloc", 4096));
}

TEST_CASE("check throws a CudaError that says what was called, with which numbers, where",
          "[error]") {
  const int line = __LINE__ + 2;
  const std::string text =
      thrown<CudaError>([] { detail::check(cudaErrorMemoryAllocation, "cudaMalloc", 4096, 3); });
  CHECK_THAT(text, Mentions("cudaMalloc(4096, 3) failed: cudaErrorMemoryAllocation, "));
  CHECK_THAT(text, Mentions(cudaGetErrorString(cudaErrorMemoryAllocation)));
  CHECK_THAT(text, Mentions("error_test.cpp:" + std::to_string(line)));
}

TEST_CASE("check without numbers, and the code of the error", "[error]") {
  try {
    detail::check(cudaErrorInvalidValue, "cudaStreamSynchronize");
    FAIL("nothing was thrown");
  } catch (const CudaError& error) {
    CHECK(error.code() == cudaErrorInvalidValue);
    CHECK_THAT(error.what(), Mentions("cudaStreamSynchronize() failed"));
  }
}

TEST_CASE("where there is no GPU, the message looks at the facts and says what to do", "[error]") {
  const std::string emulated = "link penstock::emulated in place of penstock::penstock";
  const auto says = [](const detail::CudaFacts& facts, const std::string& cause) {
    const std::string text = detail::remedy_without_device(facts);
    CHECK_THAT(text, Mentions(cause));
    return text;
  };
  CHECK_THAT(says({.driver = 0, .runtime = 13000}, "there is no NVIDIA driver"),
             Mentions(emulated));
  CHECK_THAT(says({.driver = 12040, .runtime = 13010},
                  "the driver is for CUDA 12.4 and the program for CUDA 13.1: install a newer"),
             Mentions(emulated));
  CHECK_THAT(
      says({.driver = 13010, .runtime = 13000, .visible = "-1"}, "CUDA_VISIBLE_DEVICES is \"-1\""),
      Mentions(emulated));
  CHECK_THAT(says({.driver = 13010, .runtime = 13000}, "`nvidia-smi -L`"), Mentions(emulated));
  CHECK_THAT(says({.driver = 13000, .runtime = 13000, .emulated = true}, "devices=1"),
             !Mentions("link"));
  CHECK(detail::remedy_without_device({.devices = 1, .driver = 13000, .runtime = 13000}).empty());
}

TEST_CASE("a call that finds no device says so, and says nothing of it where there is one",
          "[error]") {
  const auto text_of = [](cudaError_t status) {
    return thrown<CudaError>([&] { detail::check(status, "cudaGetDevice"); });
  };
  for (const cudaError_t status : {cudaErrorNoDevice, cudaErrorInsufficientDriver}) {
    CHECK_THAT(text_of(status), !Mentions("devices=1"));
    const emulation::Options before = emulation::options();
    emulation::Options none = before;
    none.machine.devices = 0;
    emulation::reset(none);
    CHECK_THAT(text_of(status), Mentions("(the emulated machine has no device: "
                                         "PENSTOCK_EMULATION=devices=1"));
    emulation::reset(before);
  }
}

TEST_CASE("check leaves no error behind for the user's next check", "[error]") {
  const cudaError_t status = cudaSetDevice(1'000'000);
  REQUIRE(status != cudaSuccess);
  REQUIRE(cudaPeekAtLastError() == status);
  CHECK_THROWS_AS(detail::check(status, "cudaSetDevice", 1'000'000), CudaError);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("SourceError nests what the source threw", "[error]") {
  try {
    try {
      throw std::out_of_range("record 7 of 5");
    } catch (const std::exception& error) {
      throw SourceError(2, 31, error.what());
    }
  } catch (const SourceError& error) {
    CHECK(error.epoch() == 2);
    CHECK(error.batch() == 31);
    CHECK(error.what() == std::string("source failed at epoch 2, batch 31: record 7 of 5"));
    CHECK(thrown<std::out_of_range>([&] { std::rethrow_if_nested(error); }) == "record 7 of 5");
  }
}

// std::rethrow_if_nested ends the program where a std::nested_exception has none.
TEST_CASE("an error that no other exception caused nests one that says why", "[error]") {
  const auto nested_in = [](const auto& error) {
    return thrown<std::runtime_error>([&] { std::rethrow_if_nested(error); });
  };
  CHECK(nested_in(SourceError(2, 31, "no row")) == "no row");
  CHECK(nested_in(penstock::WorkerError(3, "no file")) == "no file");
  CHECK(nested_in(penstock::MemoryError("no page", 256)) == "no page");
}

TEST_CASE("PoolExhausted says how much was asked, is used, and may be used", "[error]") {
  const PoolExhausted error("no block came back", 100, 950, 1000);
  CHECK(error.asked() == 100);
  CHECK(error.in_use() == 950);
  CHECK(error.cap() == 1000);
  CHECK_THAT(error.what(),
             Mentions("no block came back (bytes asked: 100, in use: 950, cap: 1000)"));
}

TEST_CASE("StallError says where nothing moves, and for how long", "[error]") {
  const StallError error("source", 1, 17, std::chrono::seconds(30), "inside the source");
  CHECK(error.stage() == "source");
  CHECK(error.epoch() == 1);
  CHECK(error.batch() == 17);
  CHECK(error.waited() == std::chrono::milliseconds(30000));
  CHECK_THAT(error.what(), Mentions("stalled for 30000 ms at epoch 1, batch 17") &&
                               Mentions("source: inside the source"));
}

}  // namespace
}  // namespace penstock
