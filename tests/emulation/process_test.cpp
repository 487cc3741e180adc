// SPDX-License-Identifier: Apache-2.0

// What a whole process shows: this program is run again, with another environment.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "support/catch.hpp"

namespace {

struct Outcome {
  int status;          ///< of the process; -1: a signal ended it
  std::string output;  ///< both streams
};

/// Runs this program, after `setting` in a shell: which only lists its tests.
Outcome run_again(const std::string& setting) {
  std::array<char, 4096> path{};
  REQUIRE(readlink("/proc/self/exe", path.data(), path.size() - 1) > 0);
  const std::string command =
      setting + " timeout 20 " + path.data() + " --list-tests '[no such tag]' 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");  // NOLINT(cert-env33-c)
  REQUIRE(pipe != nullptr);
  Outcome outcome{};
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) outcome.output += static_cast<char>(c);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// ---- What is done in a process that ends with work in a stream

std::atomic<bool> ending{false};

void tell_that_it_ends() {
  ending = true;
}

void call_at_exit() {
  std::printf("at exit: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
}

void run_until_the_end(void*) {
  while (!ending) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

void run_behind_it(void*) {
  std::printf("this has begun\n");
}

/// Before main, where the environment asks for it. Handlers of exit run in reverse: `call_at_exit`
/// is the last one, behind that of the runtime.
const bool left_work_behind = [] {
  if (std::getenv("PENSTOCK_TEST_LEAVES_WORK") == nullptr) return false;
  return std::atexit(call_at_exit) == 0 &&
         cudaLaunchHostFunc(cudaStreamPerThread, run_until_the_end, nullptr) == cudaSuccess &&
         cudaLaunchHostFunc(cudaStreamPerThread, run_behind_it, nullptr) == cudaSuccess &&
         std::atexit(tell_that_it_ends) == 0;
}();

}  // namespace

TEST_CASE("a number of the environment that makes no sense ends the program", "[emulation]") {
  struct Setting {
    std::string text, message;
  };
  const auto setting = GENERATE(values<Setting>({
      {"copy_engines=1000000000", "copy_engines=1000000000: a whole number from 1 to 64"},
      {"copy_engines=65", "copy_engines=65: a whole number from 1 to 64"},
      {"copy_engines=0", "copy_engines=0: a whole number from 1 to 64"},
      {"copy_engines=0e3", "copy_engines=0e3: a whole number from 1 to 64"},
      {"copy_engines=1.5", "copy_engines=1.5: a whole number from 1 to 64"},
      {"devices=65", "devices=65: a whole number from 0 to 64"},
      {"devices=-1", "devices=-1: a whole number from 0 to 64"},
      {"devices=4294967297", "devices=4294967297: a whole number from 0 to 64"},
      {"seed=-1", "seed=-1: a whole number from 0 to 18446744073709551615"},
      {"seed=18446744073709551616", "seed=18446744073709551616: a whole number from 0 to"},
      {"seed=0.5", "seed=0.5: a whole number"},
      {"seed=", "seed=: not a number"},
      {"device_bytes=1e30", "device_bytes=1e30: a whole number from 0 to 17592186044416"},
      {"pinned_bytes=20000G", "pinned_bytes=20000G: a whole number from 0 to 17592186044416"},
      {"pinned_bytes=4T", "pinned_bytes=4T: not a number"},
      {"host_to_device=1e99", "host_to_device"},
      {"device_to_host=-1",
       "device_to_host=-1.000000: 0 (no delay), or 1 to 1e15 bytes per second"},
      {"device_to_device=1e-300", "device_to_device"},
      {"host_to_device=nan", "host_to_device=nan: not a number"},
      {"host_to_device=1e999", "host_to_device=1e999: not a number"},
      {"pageable_share=0", "pageable_share=0.000000: 0.000001 to 1"},
      {"pageable_share=2", "pageable_share=2.000000: 0.000001 to 1"},
      {"launch_latency_ns=1e18", "launch_latency_ns=1e18: a whole number from 0 to 60000000000"},
      {"report_after_ms=1e18", "report_after_ms=1e18: a whole number from 0 to 86400000"},
  }));
  const Outcome outcome = run_again("PENSTOCK_EMULATION='" + setting.text + "'");
  INFO(setting.text << ": " << outcome.output);
  CHECK(outcome.status == 1);
  CHECK(outcome.output.find("penstock: PENSTOCK_EMULATION: " + setting.message) !=
        std::string::npos);
}

TEST_CASE("numbers of the environment may be as large as they may", "[emulation]") {
  const auto setting =
      GENERATE(values<std::string>({"copy_engines=64", "seed=18446744073709551615", "seed=25e9",
                                    "device_bytes=16G,pinned_bytes=1G", "host_to_device=25e9",
                                    "devices=0", "launch_latency_ns=1000", "report_after_ms=0"}));
  const Outcome outcome = run_again("PENSTOCK_EMULATION='" + setting + "'");
  INFO(setting << ": " << outcome.output);
  CHECK(outcome.status == 0);
}

TEST_CASE("at the end of a process, work that has not begun is dropped, and calls fail",
          "[emulation][stream][held]") {
  REQUIRE_FALSE(left_work_behind);  // in this process
  const Outcome outcome = run_again("PENSTOCK_TEST_LEAVES_WORK=yes");
  INFO(outcome.output);
  CHECK(outcome.status == 0);
  CHECK(outcome.output.find("at exit: cudaErrorCudartUnloading") != std::string::npos);
  CHECK(outcome.output.find("this has begun") == std::string::npos);
}
