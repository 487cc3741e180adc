// SPDX-License-Identifier: Apache-2.0

// Recordings that were made to cost the reader dearly. What penstock-trace does with one takes time
// and memory, and writes files, in proportion to its size. Each is read in a process of its own,
// whose limits are ten times and more of what it needs, and far below what a quadratic loop needs.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <fstream>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/recording.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/trace/views.hpp>
#include <sstream>

#include "kernel_names.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"
#include "timeline_builder.hpp"

using namespace penstock::trace;
using penstock::test::Mentions;
using penstock::test::TemporaryDirectory;
using penstock::test::thrown;
using penstock::test::TimelineBuilder;

namespace {

constexpr rlim_t kSeconds = PENSTOCK_TEST_SANITIZED ? 300 : 30;
constexpr rlim_t kAddresses = rlim_t{4} << 30, kFile = rlim_t{1} << 30;
/// Sanitizers make everything slower, and are not what finds a quadratic loop.
constexpr int kScale = PENSTOCK_TEST_SANITIZED ? 10 : 1;

void limit(int resource, rlim_t most) {
  const rlimit both{most, most};
  if (::setrlimit(static_cast<__rlimit_resource_t>(resource), &both) != 0) ::_exit(2);
}

/// As penstock-trace report does it.
void read_and_write(const std::filesystem::path& recording, const std::filesystem::path& out) {
  const Timeline timeline = load(recording);
  const Report report(timeline);
  const std::vector<Finding> findings = find(timeline);
  write_chrome_trace(timeline, out / "trace.json");
  write_page(timeline, report, findings, out / "trace.html");
  std::ostringstream text, json;
  text << report;
  for (const Finding& finding : findings) text << finding;
  if (text.str().size() > 100'000) throw std::runtime_error("the report is too long to be read");
  write_json(report, json);
  write_json(findings, json);
}

/// Of this process: the emulated runtime reserves many.
rlim_t addresses() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

struct Used {
  int status = -1;     // 0: well; a signal's number as waitpid has it
  long kilobytes = 0;  // of memory, at most
};

template <class Work>
Used in_process_of_its_own(const Work& work) {
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, kSeconds);
    limit(RLIMIT_FSIZE, kFile);
    if (!PENSTOCK_TEST_SANITIZED) limit(RLIMIT_AS, addresses() + kAddresses);
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  Used used;
  rusage usage{};
  REQUIRE(::wait4(child, &used.status, 0, &usage) == child);
  used.kilobytes = usage.ru_maxrss;
  return used;
}

Used report_on(TimelineBuilder& builder) {
  const TemporaryDirectory directory;
  save(builder.timeline(), directory / "run.trace");
  builder = {};
  return in_process_of_its_own([&] { read_and_write(directory / "run.trace", directory / "."); });
}

std::string number_36(int number) {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string text(1, kDigits[static_cast<std::size_t>(number % 36)]);
  return number < 36 ? text : number_36(number / 36) + text;
}

/// A mangled name, each level of which has the one before twice.
std::string doubling(int levels) {
  std::string name = "_Z1f1AIiE";
  for (int i = 0; i < levels; ++i) {
    const std::string before = "S" + number_36(i) + "_";
    name += "S_I" + before + before + "E";
  }
  return name;
}

/// A conversion operator's template arguments, which the C++ library's demangler parses twice at
/// each level.
std::string converting(int levels) {
  std::string name = "_ZN1AcvT_";
  for (int i = 0; i < levels; ++i) name += "IT_";
  return name + std::string(static_cast<std::size_t>(levels), 'E') + "Ev";
}

/// `count` ranges, each of which begins and ends a microsecond after the one before; all overlap.
void add_overlapping(TimelineBuilder& builder, std::uint32_t thread, int count, bool own_names) {
  for (int i = 0; i < count; ++i)
    builder.range(thread, own_names ? "range " + std::to_string(i) : "range", {i, count + i});
}

}  // namespace

TEST_CASE("foreign recording: names that grow when they are demangled", "[trace]") {
  using detail::readable_within_bounds;
  CHECK(readable_within_bounds(doubling(24)) == doubling(24));
  CHECK(readable_within_bounds(converting(40)) == converting(40));
  CHECK(readable_within_bounds("_Z1fIJiiEEvDp1AIDp1AIT_EE").size() < 1000);

  TimelineBuilder builder;
  const auto stream = builder.stream(0, 7), thread = builder.thread(1);
  builder.launch(thread, stream, doubling(24), {0, 1}, {1, 2});
  builder.launch(thread, stream, converting(40), {1, 2}, {2, 3});
  const Used used = report_on(builder);
  CHECK(used.status == 0);
  if (!PENSTOCK_TEST_SANITIZED) CHECK(used.kilobytes < 200 * 1024);
}

TEST_CASE("foreign recording: names of programs are demangled as ever", "[trace]") {
  using detail::readable;
  using detail::readable_within_bounds;
  for (const std::string name :
       {"_Z5scalePfi", "_ZN3net4convIfLi3EEEvPKT_PS1_", "_ZN12_GLOBAL__N_14packIhEEvPKT_",
        "_ZN6thrust8cuda_cub4core13_kernel_agentINS1_14__parallel_for16ParallelForAgentINS0_20__"
        "uninitialized_"
        "fill7functorINS_10device_ptrIfEEfEEmEES9_mEEvT0_T1_",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEENS_"
        "6detail5ArrayIPcLi3EEEEE"
        "viT0_T1_",
        "_Z8variadicIJifN2ns7BLOCKSTEEEvDpT_", "_Z4enumILN2ns4ModeE2EN2ns1SES1_EvS1_",
        "_ZZ4mainENKUlvE_clEv", "_Z3runIZ4mainEUlvE0_EvT_", "_Z5tableILPKiXadL_Z3oneEEEvv",
        "_Z1gIA16_iM1AFvvEDnLDn0EDv4_fEvv", "_ZN1AIiEC1Ev", "_Z3__fIL_Z1gvEEvv", "_Znonsense",
        "train"}) {
    INFO(name);
    CHECK(readable_within_bounds(name) == readable(name));
  }
}

TEST_CASE("foreign recording: long names", "[trace]") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 7), thread = builder.thread(1);
  for (int i = 0; i < 40; ++i) {
    const std::string name = std::to_string(i) + std::string(std::size_t{400'000} / kScale, 'x');
    builder.range(thread, name, {2.0 * i, 2.0 * i + 2});
    builder.launch(thread, stream, name, {2.0 * i, 2.0 * i + 1}, {2.0 * i + 1, 2.0 * i + 1.5});
  }
  CHECK(report_on(builder).status == 0);
}

TEST_CASE("foreign recording: names that stand in many lines", "[trace]") {
  const std::string name(1'000'000 / kScale, 'M');
  TimelineBuilder builder;
  SECTION("of events, and of calls that are looked into") {
    const auto stream = builder.stream(0, 7), thread = builder.thread(1);
    for (int i = 0; i < 40'000; ++i)
      builder.copy(thread, stream, 4, {2.0 * i, 2.0 * i + 1}, {2.0 * i, 2.0 * i + 0.5},
                   Direction::host_to_device, name);
  }
  SECTION("of domains") {
    const auto thread = builder.thread(1);
    for (int i = 0; i < 20'000; ++i)
      builder.range(thread, std::to_string(i), {2.0 * i, 2.0 * i + 1}, name);
  }
  SECTION("of threads") {
    add_overlapping(builder, builder.thread(1, name), 5'000, false);
  }
  CHECK(report_on(builder).status == 0);
}

TEST_CASE("foreign recording: ranges that overlap", "[trace]") {
  TimelineBuilder builder;
  const bool own_names = GENERATE(false, true);
  add_overlapping(builder, builder.thread(1), 300'000 / kScale, own_names);
  CHECK(report_on(builder).status == 0);
}

TEST_CASE("foreign recording: launches within very many ranges", "[trace]") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 7), thread = builder.thread(1);
  const int ranges = 5'000 / kScale, launches = 60'000 / kScale;
  for (int i = 0; i < ranges; ++i)
    builder.range(thread, "range " + std::to_string(i), {i / 1e3, 1e6 - i / 1e3});
  for (int i = 0; i < launches; ++i)
    builder.launch(thread, stream, "kernel", {10 + i, 10.5 + i}, {11 + i, 11.5 + i});
  CHECK(report_on(builder).status == 0);
}

TEST_CASE("foreign recording: a thread has no device", "[trace]") {
  const TemporaryDirectory directory;
  Timeline timeline;
  timeline.names = {""};
  timeline.tracks = {{Track::Kind::thread, INT_MAX - 1, 1, ""}};
  save(timeline, directory / "run.trace");
  const Used used =
      in_process_of_its_own([&] { read_and_write(directory / "run.trace", directory / "."); });
  CHECK(used.status == 0);
}

TEST_CASE("foreign recording: times whose sums are no times", "[trace]") {
  const TemporaryDirectory directory;
  const auto refused = [&](const Timeline& timeline) {
    save(timeline, directory / "run.trace");
    return thrown<std::runtime_error>([&] { load(directory / "run.trace"); });
  };
  Timeline timeline;
  timeline.names = {""};
  timeline.tracks = {{Track::Kind::stream, 0, 7, ""}, {Track::Kind::stream, 1, 7, ""}};
  timeline.begin = LLONG_MIN;
  timeline.end = LLONG_MAX;
  CHECK_THAT(refused(timeline), Mentions("times that no clock shows"));
  timeline.begin = 0;
  CHECK_THAT(refused(timeline), Mentions("times that no clock shows"));
  timeline.end = LLONG_MAX / 4;
  timeline.begin = -timeline.end;
  CHECK_THAT(refused(timeline), Mentions("for centuries"));
  timeline.begin = 0;
  timeline.events.assign(5, {0, timeline.end, 0, 0, 0, 0, 0, Kind::kernel, Direction::none, 0});
  CHECK_THAT(refused(timeline), Mentions("for centuries"));
}

TEST_CASE("foreign recording: a file without an end is no recording", "[trace]") {
  const Used used = in_process_of_its_own([] {
    try {
      load("/dev/zero");
    } catch (const std::runtime_error&) {
      return;
    }
    ::_exit(3);
  });
  CHECK(used.status == 0);
  CHECK(used.kilobytes < 1024 * 1024);
}

TEST_CASE("foreign recording: a terminal gets text of valid UTF-8 alone", "[trace]") {
  using detail::on_one_line;
  CHECK(on_one_line("a\nb\x1B[31m\x7F") == "a b [31m ");
  CHECK(on_one_line("\xC2\x9B"
                    "31m\xC3\xA4") == " 31m\xC3\xA4");
  CHECK(on_one_line("\x9B"
                    "31m") ==
        "\xEF\xBF\xBD"
        "31m");
  // Bytes that continue no character have a width too.
  CHECK(detail::shortened(std::string(1'000'000, '\x80'), 20).size() < 100);
  CHECK(detail::limited(std::string(1'000'000, '\x80'), 20) == "..");
  CHECK(detail::limited("\xC3\xA4\xC3\xB6\xC3\xBC", 3) == "\xC3\xA4\xC3\xB6\xC3\xBC");
  CHECK(detail::limited("\xC3\xA4\xC3\xB6\xC3\xBCx", 3) == "\xC3\xA4..");
}
