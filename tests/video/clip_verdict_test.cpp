// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/clip_verdict.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "nvml/nvml_library.hpp"
#include "support/catch.hpp"
#include "support/thrown.hpp"
#include "video/clip_clock.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using penstock::test::Mentions;
using std::chrono::milliseconds;

Verdict source_bound() {
  Verdict verdict;
  verdict.stage = Bottleneck::source;
  verdict.kind = VerdictKind::more_workers;
  verdict.sentence = "the workers (14) cannot keep up";
  return verdict;
}

/// 100 clips of 16 frames, most of whose time belongs to a stage.
ClipTimes mostly(ClipStage stage) {
  ClipTimes times;
  times.by_engine = 100;
  times.frames = 1600;
  times.pictures = 2640;
  times[ClipStage::seek] = milliseconds(1000);
  times[ClipStage::other] = milliseconds(1000);
  times[stage] += milliseconds(8000);
  return times;
}

std::string sentence(const ClipTimes& times, std::optional<double> use) {
  return clip_verdict(source_bound(), times, use, "no library").sentence;
}

TEST_CASE("busy engines are the limit, whatever the replay says of more workers", "[video]") {
  const ClipVerdict verdict = clip_verdict(source_bound(), mostly(ClipStage::engine), 0.97, "");
  CHECK(verdict.stage == ClipStage::engine);
  CHECK(verdict.engine_use == 0.97);
  CHECK(verdict.sentence ==
        "the video engines are the limit, and more workers would wait for them. A clip takes a "
        "worker 100 ms: 80 % waiting for pictures of the video engines, 10 % seeking, 10 % all "
        "else. The video engines are busy 97 % of the time. To change: let the CPU decode beside "
        "them (EngineUse::if_free, and more workers).");
}

TEST_CASE("if the CPU decodes beside busy engines, fewer pictures help", "[video]") {
  ClipTimes times = mostly(ClipStage::wait_for_decoder);
  times.by_cpu = 30;
  CHECK_THAT(sentence(times, 0.95), Mentions("now 1.65 are decoded for each frame"));
}

TEST_CASE("engines with time left get more workers", "[video]") {
  CHECK_THAT(sentence(mostly(ClipStage::engine), 0.4), Mentions("(14) cannot keep up. A clip") &&
                                                           Mentions("busy 40 %") &&
                                                           Mentions("two for each engine"));
}

TEST_CASE("the verdict says why the use of the engines is not known", "[video]") {
  CHECK_THAT(sentence(mostly(ClipStage::engine), {}), Mentions("not known: no library."));
  ClipTimes cpu = mostly(ClipStage::libavcodec);
  cpu.by_cpu = cpu.by_engine;
  cpu.by_engine = 0;
  CHECK_THAT(sentence(cpu, {}), !Mentions("not known"));
  CHECK_THAT(sentence(cpu, {}), Mentions("EngineUse::if_free"));
}

TEST_CASE("each stage has its advice", "[video]") {
  CHECK_THAT(sentence(mostly(ClipStage::index), 0.1), Mentions("penstock-pack --index-videos"));
  CHECK_THAT(sentence(mostly(ClipStage::read_packets), 0.1), Mentions("faster storage"));
  CHECK_THAT(sentence(mostly(ClipStage::open_file), 0.1), Mentions("faster storage"));
  CHECK_THAT(sentence(mostly(ClipStage::libavcodec), 0.1), Mentions("one worker for each core"));
  CHECK_THAT(sentence(mostly(ClipStage::copy), 0.1), Mentions("one for each core"));
  CHECK_THAT(sentence(mostly(ClipStage::wait_for_device), 0.1), Mentions("the device is behind"));
}

TEST_CASE("a pipeline that another stage limits keeps its verdict", "[video]") {
  Verdict consumer = source_bound();
  consumer.stage = Bottleneck::consumer;
  const ClipVerdict verdict = clip_verdict(consumer, mostly(ClipStage::engine), 0.97, "");
  CHECK(!verdict.stage);
  CHECK(verdict.sentence == consumer.sentence);
  CHECK(!clip_verdict(source_bound(), {}, 0.97, "").stage);
}

TEST_CASE("each moment of a thread belongs to one stage of its innermost clock", "[video]") {
  ClipTimes outer, inner;
  const InStage nothing(ClipStage::seek);  // There is no clock yet.
  const auto pause = [] { std::this_thread::sleep_for(milliseconds(2)); };
  const auto begin = std::chrono::steady_clock::now();
  {
    const ClipClock clock(outer);
    pause();
    const InStage reading(ClipStage::read_packets);
    pause();
    {
      const InStage seeking(ClipStage::seek);
      pause();
    }
    const ClipClock index(inner, ClipStage::index);
    pause();
    ClipClock::count_picture();
  }
  const auto all = std::chrono::steady_clock::now() - begin;
  for (const ClipStage stage : {ClipStage::other, ClipStage::read_packets, ClipStage::seek})
    CHECK(outer[stage] >= milliseconds(2));
  CHECK(outer[ClipStage::index].count() == 0);
  CHECK(inner[ClipStage::index] == inner.total());
  CHECK(inner.total() >= milliseconds(2));
  CHECK(inner.pictures == 1);
  CHECK(outer.pictures == 0);
  CHECK(outer.total() + inner.total() <= all);
}

TEST_CASE("ClipTotals has the sum of what was added", "[video]") {
  ClipTotals totals;
  totals.add(mostly(ClipStage::engine));
  totals.add(mostly(ClipStage::index));
  ClipTimes sum = totals.read();
  CHECK(sum.by_engine == 200);
  CHECK(sum.total() == milliseconds(20'000));
  sum -= mostly(ClipStage::index);
  CHECK(sum[ClipStage::index].count() == 0);
  CHECK(sum[ClipStage::engine] == milliseconds(8000));
  CHECK(sum.frames == 1600);
  CHECK(to_string(ClipStage::wait_for_device) == std::string("wait_for_device"));
}

TEST_CASE("a library without NVML's functions is told by its name", "[video]") {
  nvml::Library library;
  std::string why_not;
  CHECK(!library.load_from("libpenstock-no-such-library.so.1", why_not));
  CHECK_THAT(why_not, Mentions("libpenstock-no-such-library.so.1"));
  CHECK(!library.load_from("libm.so.6", why_not));
  CHECK(why_not == "libm.so.6 has no nvmlInit_v2");
}

}  // namespace
}  // namespace penstock::video
