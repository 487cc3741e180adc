// SPDX-License-Identifier: Apache-2.0

#include <penstock/gds/gds_file.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <penstock/emulation.hpp>
#include <penstock/error.hpp>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "cufile_machine.hpp"
#include "gds/compatibility.hpp"
#include "support/catch.hpp"
#include "support/memory_files.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {
namespace {

using namespace penstock::test;

static_assert(std::is_copy_constructible_v<GdsFile>);

constexpr std::size_t kBytes = 100'000;

TEST_CASE("GdsFile reads any bytes of a file to device memory", "[gds]") {
  CufileMachine machine;
  machine.settings.most_bytes = GENERATE(SIZE_MAX, 4096, 700);  // short reads are continued
  machine.settings.interruptions = 2;
  const RandomFile random(kBytes);
  const GdsFile file(File::open(random.path), emulated_library());
  CHECK(file.mode() == GdsMode::direct);
  CHECK(file.why_compatible().empty());
  CHECK(file.name() == random.path.string());
  CHECK(file.size() == kBytes);
  const DeviceMemory<char> memory(kBytes);
  CHECK(file.read(0, memory.data(), kBytes) == kBytes);
  CHECK((text_of(memory) == random.bytes));
  CHECK(file.read(4097, memory.data() + 3, 5000) == 5000);
  CHECK((text_of(memory).substr(3, 5000) == random.bytes.substr(4097, 5000)));
}

TEST_CASE("GdsFile reads fewer bytes only where the file ends", "[gds]") {
  const CufileMachine machine;
  const RandomFile random(10'000);
  const GdsFile file(File::open(random.path), emulated_library());
  const DeviceMemory<char> memory(4096);
  CHECK(file.read(9000, memory.data(), 4096) == 1000);
  CHECK((text_of(memory).substr(0, 1000) == random.bytes.substr(9000)));
  const int reads = machine.counts.reads;
  CHECK(file.read(10'000, memory.data(), 4096) == 0);
  CHECK(file.read(~std::uint64_t{0}, memory.data(), 4096) == 0);
  CHECK(file.read(0, nullptr, 0) == 0);
  CHECK(machine.counts.reads == reads);
  std::filesystem::resize_file(random.path, 2000);
  CHECK(file.read(1000, memory.data(), 4096) == 1000);
  CHECK(file.read(3000, memory.data(), 4096) == 0);
  std::filesystem::resize_file(random.path, 20'000);
  CHECK(file.read(9000, memory.data(), 4096) == 1000);  // as when it was opened
}

TEST_CASE("GdsFile: errors name the file, the place and what to do", "[gds]") {
  CufileMachine machine;
  const RandomFile random(kBytes);
  const GdsFile file(File::open(random.path), emulated_library());
  const DeviceMemory<char> memory(4096);
  const auto failure = [&] {
    return thrown<GdsError>([&] { file.read(4096, memory.data(), 4096); });
  };
  machine.settings.bad_byte = 5000;
  CHECK_THAT(failure(), Mentions("random.bin: cuFile cannot read 4096 bytes at byte 4096: "
                                 "Input/output error"));
  machine.settings.read_error = 5011;
  CHECK_THAT(failure(), Mentions("error 5011 of cuFile: a call of the CUDA driver failed"));
  machine.settings.read_error = 5030;
  CHECK_THAT(failure(), Mentions("error 5030 of cuFile: cufile.h and the log"));
  // What it brings until the error is not lost.
  machine.settings.most_bytes = 900;
  machine.settings.read_error = 5;
  CHECK_THAT(failure(), Mentions("3196 bytes at byte 4996: Input/output error"));
  machine.settings = {};
  machine.settings.lies = true;
  CHECK_THAT(failure(), Mentions("cannot read 4096 bytes at byte 4096"));
  machine.settings = {};
  CHECK(file.read(4096, memory.data(), 4096) == 4096);
}

TEST_CASE("GdsFile: the compatibility mode is told, and has to be allowed", "[gds]") {
  CufileMachine machine;
  machine.settings.has_module = false;
  const RandomFile random(kBytes);
  const File file = File::open(random.path);
  const std::string refused = thrown<GdsError>([&] { GdsFile(file, emulated_library()); });
  CHECK_THAT(refused, Mentions("random.bin: cuFile would read it in its compatibility mode"));
  CHECK_THAT(refused, Mentions("nvidia-fs is not loaded"));
  CHECK_THAT(refused, Mentions("RecordFile::read_many_into"));
  CHECK_THAT(refused, Mentions("GdsOptions::allow_compatibility_mode"));
  CHECK(machine.counts.registered == 0);
  CHECK(machine.counts.open == 0);

  const GdsFile allowed(file, emulated_library(true));
  CHECK(allowed.mode() == GdsMode::compatibility);
  CHECK_THAT(allowed.why_compatible(), Mentions("nvidia-fs is not loaded"));
  const DeviceMemory<char> memory(kBytes);
  CHECK(allowed.read(0, memory.data(), kBytes) == kBytes);
  CHECK((text_of(memory) == random.bytes));
}

TEST_CASE("why_compatible: what each file system needs of cuFile", "[gds]") {
  CufileMachine machine;
  constexpr long kExt4 = 0xEF53, kXfs = 0x58465342, kNfs = 0x6969, kLustre = 0x0BD00BD0,
                 kTmpfs = 0x01021994;
  const auto why = [&](long file_system, unsigned supported, bool is_past_cache = true) {
    machine.settings.file_systems = supported;
    return why_compatible(CufileDriver(PENSTOCK_EMULATED_CUFILE), file_system, is_past_cache);
  };
  CHECK(why(kExt4, cufile::kNvme).empty());
  CHECK(why(kXfs, cufile::kScsi).empty());
  CHECK(why(kNfs, cufile::kNfs).empty());
  CHECK(why(kLustre, cufile::kLustre).empty());
  CHECK(why(0x12345, cufile::kWeka).empty());
  CHECK_THAT(why(kExt4, cufile::kNfs), Mentions("does not support the file's file system here (of "
                                                "kind 0xef53"));
  CHECK_THAT(why(kNfs, cufile::kNvme), Mentions("0x6969"));
  CHECK_THAT(why(kTmpfs, cufile::kNvme | cufile::kNfs), Mentions("0x1021994"));
  CHECK_THAT(why(kExt4, cufile::kNvme, false), Mentions("no direct reads (O_DIRECT)"));
  machine.settings.has_module = false;
  CHECK_THAT(why(kExt4, cufile::kNvme), Mentions("nvidia-fs is not loaded"));
  machine.settings.has_p2p = true;
  CHECK(why(kExt4, cufile::kNvme).empty());
  machine.settings.forces_compatibility = true;
  CHECK_THAT(why(kExt4, cufile::kNvme), Mentions("configuration demands it"));
}

TEST_CASE("GdsFile: what cuFile refuses is an error, and nothing stays open", "[gds]") {
  CufileMachine machine;
  const RandomFile random(kBytes);
  const File file = File::open(random.path);
  const auto refused = [&] { return thrown<GdsError>([&] { GdsFile(file, emulated_library()); }); };
  machine.settings.open_error = 5001;
  CHECK_THAT(refused(), Mentions("cuFile cannot be opened: error 5001 of cuFile"));
  CHECK_THAT(refused(), Mentions("properties.allow_compat_mode"));
  CHECK(machine.counts.open == 0);
  machine.settings = {};
  machine.settings.properties_error = 5022;
  CHECK_THAT(refused(), Mentions("does not tell its properties: error 5022"));
  CHECK(machine.counts.open == 0);
  machine.settings = {};
  machine.settings.register_error = 5008;
  CHECK_THAT(refused(), Mentions("random.bin: cuFile does not take it: error 5008"));
  CHECK(machine.counts.open == 0);
  machine.settings = {};
  CHECK_THAT(thrown<GdsError>([&] { GdsFile(file, {.library = "/nowhere/libcufile.so.0"}); }),
             Mentions("cuFile cannot be loaded: /nowhere/libcufile.so.0"));
  CHECK_THAT(thrown<GdsError>([&] { GdsFile(file, {.library = "libm.so.6"}); }),
             Mentions("libm.so.6 has no cuFileDriverOpen: install cuFile"));
  CHECK_THAT(
      thrown<GdsError>([] { GdsFile(File(std::make_shared<MemoryFile>("https://a/b", "bytes"))); }),
      Mentions("https://a/b: it is not a file of this machine"));
}

TEST_CASE("GdsFile: without a GPU cuFile is not opened", "[gds]") {
  const CufileMachine machine;
  const RandomFile random(kBytes);
  const File file = File::open(random.path);
  const emulation::Options before = emulation::options();
  emulation::Options none = before;
  none.machine.devices = 0;
  emulation::reset(none);
  CHECK_THROWS_AS(GdsFile(file, emulated_library()), CudaError);
  CHECK(machine.counts.opened == 0);
  emulation::reset(before);
  CHECK(GdsFile(file, emulated_library()).mode() == GdsMode::direct);
}

TEST_CASE("GdsFile: cuFile is open as long as there is a file", "[gds]") {
  CufileMachine machine;
  const RandomFile random(kBytes);
  const File file = File::open(random.path);
  {
    std::optional<GdsFile> first(std::in_place, file, emulated_library());
    const GdsFile second(file, emulated_library());
    CHECK(machine.counts.opened == 1);
    CHECK(machine.counts.registered == 2);
    const GdsFile copy = *first;
    first.reset();
    CHECK(machine.counts.registered == 2);
    CHECK(machine.counts.open == 1);
    const DeviceMemory<char> memory(10);
    CHECK(copy.read(5, memory.data(), 10) == 10);
    CHECK((text_of(memory) == random.bytes.substr(5, 10)));
  }
  CHECK(machine.counts.open == 0);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) GdsFile(file, emulated_library());
    });
  threads.clear();
  CHECK(machine.counts.open == 0);
  // What the program itself has opened, it closes itself.
  machine.settings.open_error = 5026;
  { const GdsFile once(file, emulated_library()); }
  CHECK(machine.counts.open == 0);
}

TEST_CASE("GdsFile: a child of fork() gets an error, and leaves cuFile alone", "[gds]") {
  const CufileMachine machine;
  const RandomFile random(kBytes);
  const File file = File::open(random.path);
  std::optional<GdsFile> on_gpu(std::in_place, file, emulated_library());
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int wrong = 0;
    const auto is_refused = [](auto&& call) {
      return thrown<GdsError>(call).find("before fork()") != std::string::npos;
    };
    if (!is_refused([&] { on_gpu->read(0, nullptr, 10); })) wrong |= 1;
    if (!is_refused([&] { GdsFile(file, emulated_library()); })) wrong |= 2;
    on_gpu.reset();
    if (cufile_counts().registered != 1 || cufile_counts().open != 1) wrong |= 4;
    ::_exit(wrong);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace penstock::gds
