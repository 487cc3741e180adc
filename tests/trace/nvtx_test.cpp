// SPDX-License-Identifier: Apache-2.0

// NVTX calls as programs make them, through NVTX's own headers.

#include <malloc.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <penstock/markers.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/trace/session.hpp>
#include <string>
#include <thread>

#include "function_name.hpp"
#include "nvtx_attributes.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"
#include "timelines.hpp"

using namespace penstock::trace;
using namespace penstock::test;

namespace {

const Event& only(const Timeline& timeline, const char* name) {
  const Event* found = nullptr;
  for (const Event& event : timeline.events)
    if (timeline.name(event) == name) {
      INFO(name);
      REQUIRE(found == nullptr);
      found = &event;
    }
  INFO(name);
  REQUIRE(found != nullptr);
  return *found;
}

}  // namespace

TEST_CASE("NVTX: ranges nest, in the default domain and in domains of their own", "[trace]") {
  nvtxInitialize(nullptr);
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("loader");
  Session session;
  CHECK(nvtxRangePushA("outer") == 0);
  auto inner = attributes("inner");
  inner.payloadType = NVTX_PAYLOAD_TYPE_INT32;
  inner.payload.iValue = 17;
  nvtxDomainRangePushEx(domain, &inner);
  nvtxRangePushW(L"wide \u00e9");
  nvtxRangePop();  // of the default domain: not `inner`
  nvtxDomainRangePop(domain);
  nvtxRangePop();
  CHECK(nvtxRangePop() < 0);
  const Timeline timeline = session.stop();
  nvtxDomainDestroy(domain);

  REQUIRE(timeline.events.size() == 3);
  const Event &outer = only(timeline, "outer"), &middle = only(timeline, "inner"),
              &wide = only(timeline, "wide ?");
  CHECK(timeline.domain(outer).empty());
  CHECK(timeline.domain(middle) == "loader");
  CHECK(middle.value == 17);
  for (const auto& [within, around] : {std::pair{&wide, &middle}, {&middle, &outer}}) {
    CHECK(within->begin >= around->begin);
    CHECK(within->end <= around->end);
    CHECK(within->track == around->track);
  }
  CHECK(timeline.track(outer).id == thread_id());
}

TEST_CASE("NVTX: registered names and payloads of every type", "[trace]") {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("loader");
  const nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "fill");
  for (int round = 0; round < 2; ++round) {  // a name has another number in each session
    Session session;
    if (round == 1) nvtxRangePushA("first"), nvtxRangePop();
    auto range = attributes(nullptr);
    range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    range.message.registered = name;
    const auto record = [&](nvtxPayloadType_t type, auto set) {
      range.payloadType = type;
      set(range.payload);
      nvtxDomainRangePushEx(domain, &range);
      nvtxDomainRangePop(domain);
    };
    record(NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, [](auto& payload) { payload.ullValue = 1ULL << 60; });
    record(NVTX_PAYLOAD_TYPE_INT64, [](auto& payload) { payload.llValue = -1; });
    record(NVTX_PAYLOAD_TYPE_DOUBLE, [](auto& payload) { payload.dValue = 3.5; });
    record(NVTX_PAYLOAD_TYPE_UNSIGNED_INT32, [](auto& payload) { payload.uiValue = 4; });
    record(NVTX_PAYLOAD_TYPE_FLOAT, [](auto& payload) { payload.fValue = 5.5F; });
    record(NVTX_PAYLOAD_UNKNOWN, [](auto& payload) { payload.ullValue = 6; });
    const Timeline timeline = session.stop();
    std::vector<std::uint64_t> values;
    for (const Event& event : events_named(timeline, "fill")) {
      CHECK(timeline.domain(event) == "loader");
      values.push_back(event.value);
    }
    std::sort(values.begin(), values.end());
    CHECK(values == std::vector<std::uint64_t>{0, 0, 3, 4, 5, 1ULL << 60});
  }
  nvtxDomainDestroy(domain);
}

TEST_CASE("NVTX: a range has the colour that the program gave it", "[trace]") {
  Session session;
  auto coloured = attributes("coloured");
  coloured.colorType = NVTX_COLOR_ARGB;
  coloured.color = 0xff112233;
  nvtxRangePushEx(&coloured);
  nvtxRangePop();
  auto plain = attributes("plain");
  plain.color = 0xff112233;  // of no type
  nvtxRangePushEx(&plain);
  nvtxRangePop();
  { const penstock::ScopedRange ours(penstock::markers::copy, 1); }
  const penstock::RangeName name("epoch 3", penstock::markers::category::loop, "my trainer");
  { const penstock::ScopedRange epoch(name, 3); }
  const Timeline timeline = session.stop();
  CHECK(only(timeline, "coloured").color == 0xff112233);
  CHECK(only(timeline, "plain").color == 0);
  CHECK(only(timeline, "copy").color == penstock::markers::category::copy.color);
  const Event& epoch = only(timeline, "epoch 3");
  CHECK(epoch.color == penstock::markers::category::loop.color);
  CHECK(timeline.domain(epoch) == "my trainer");
  CHECK(epoch.value == 3);
}

TEST_CASE("NVTX: a started range is the thread's that started it, wherever it ends", "[trace]") {
  Session session;
  nvtxRangeId_t id = 0;
  std::uint64_t starter = 0;
  std::thread([&] {
    id = nvtxRangeStartA("request");
    starter = thread_id();
  }).join();
  nvtxRangeEnd(id);
  nvtxRangeEnd(id);  // once is enough
  nvtxRangeEnd(4711);
  const Timeline timeline = session.stop();
  CHECK(timeline.track(only(timeline, "request")).id == starter);
}

TEST_CASE("NVTX: ranges that penstock starts are in lanes, one at a time in each", "[trace]") {
  const nvtxDomainHandle_t penstock = nvtxDomainCreateA("penstock"),
                           other = nvtxDomainCreateA("other");
  const auto start = [](nvtxDomainHandle_t domain, const char* name) {
    const nvtxEventAttributes_t named = attributes(name);
    return nvtxDomainRangeStartEx(domain, &named);
  };
  const nvtxRangeId_t before = start(penstock, "GET /before");
  Session session;
  const nvtxRangeId_t first = start(penstock, "GET /first 0-9"),
                      second = start(penstock, "GET /second 10-19"),
                      elsewhere = start(other, "GET /elsewhere");
  nvtxDomainRangeEnd(penstock, before);
  nvtxDomainRangeEnd(penstock, first);
  nvtxRangeId_t third = 0;
  std::thread([&] { third = start(penstock, "GET retry /third"); }).join();
  const nvtxRangeId_t open = start(penstock, "GET /open");
  nvtxDomainRangeEnd(penstock, second);
  nvtxDomainRangeEnd(penstock, third);
  nvtxDomainRangeEnd(other, elsewhere);
  const Timeline timeline = session.stop();
  nvtxDomainRangeEnd(penstock, open);

  const auto lane = [&](const char* name) {
    const Track& track = timeline.track(only(timeline, name));
    CHECK(track.kind == Track::Kind::lane);
    return track.id;
  };
  CHECK(lane("GET /before") == 0);
  CHECK(lane("GET /first 0-9") == 1);
  CHECK(lane("GET /second 10-19") == 2);
  CHECK(lane("GET retry /third") == 0);
  CHECK(lane("GET /open") == 1);
  CHECK(title(timeline.track(only(timeline, "GET /open"))) == "requests 2");
  CHECK(timeline.track(only(timeline, "GET /elsewhere")).kind == Track::Kind::thread);
  CHECK(std::is_sorted(timeline.tracks.begin(), timeline.tracks.end(),
                       [](const Track& a, const Track& b) { return a.kind < b.kind; }));

  std::map<std::string, std::uint64_t> counts;
  for (const RangeTimes& range : Report(timeline).ranges) counts[range.name] += range.count;
  CHECK(counts ==
        std::map<std::string, std::uint64_t>{{"GET", 4}, {"GET retry", 1}, {"GET /elsewhere", 1}});
}

TEST_CASE("NVTX: what is open when recording begins or ends is cut to it", "[trace]") {
  nvtxRangePushA("open at both ends");
  const nvtxRangeId_t early = nvtxRangeStartA("started before");
  Session session;
  nvtxRangeEnd(early);
  nvtxRangePushA("open at the end");
  const nvtxRangeId_t late = nvtxRangeStartA("never ended");
  const Timeline timeline = session.stop();
  nvtxRangePop();
  nvtxRangePop();
  nvtxRangeEnd(late);

  CHECK(only(timeline, "open at both ends").begin == timeline.begin);
  CHECK(only(timeline, "open at both ends").end == timeline.end);
  CHECK(only(timeline, "started before").begin == timeline.begin);
  CHECK(only(timeline, "started before").end < timeline.end);
  CHECK(only(timeline, "open at the end").begin > timeline.begin);
  CHECK(only(timeline, "open at the end").end == timeline.end);
  CHECK(only(timeline, "never ended").end == timeline.end);

  Session next;
  CHECK(next.stop().events.empty());
}

TEST_CASE("NVTX: a thread that ends closes what it left open", "[trace]") {
  Session session;
  std::thread([] { nvtxRangePushA("left open"); }).join();
  nvtxRangePushA("after");
  nvtxRangePop();
  const Timeline timeline = session.stop();
  CHECK(only(timeline, "left open").end <= only(timeline, "after").begin);
}

TEST_CASE("NVTX: names of threads and streams, given before and while recording", "[trace]") {
  cudaStream_t before = nullptr, meanwhile = nullptr, gone = nullptr;
  REQUIRE_CUDA(cudaStreamCreate(&before));
  REQUIRE_CUDA(cudaStreamCreate(&meanwhile));
  REQUIRE_CUDA(cudaStreamCreate(&gone));
  nvtxNameCudaStreamA(before, "copies");
  nvtxNameCudaStreamA(gone, "gone");
  REQUIRE_CUDA(cudaStreamDestroy(gone));
  std::thread([] { nvtxNameOsThreadA(thread_id(), "gone too"); }).join();
  std::promise<void> named, taken;
  std::thread worker([&] {
    nvtxNameOsThreadA(thread_id(), "worker 0");
    named.set_value();
    taken.get_future().wait();
  });
  named.get_future().wait();
  Session session;
  nvtxNameCudaStreamA(meanwhile, "kernels");
  nvtxNameOsThreadA(thread_id(), "consumer");
  const Timeline timeline = session.stop();
  taken.set_value();
  worker.join();
  REQUIRE_CUDA(cudaStreamDestroy(before));
  REQUIRE_CUDA(cudaStreamDestroy(meanwhile));

  std::vector<std::string> names;
  for (const Track& track : timeline.tracks) names.push_back(track.name);
  const auto has = [&](const char* name) {
    return std::count(names.begin(), names.end(), name) == 1;
  };
  CHECK(has("copies"));
  CHECK(has("kernels"));
  CHECK(has("worker 0"));
  CHECK(has("consumer"));
  CHECK_FALSE(has("gone"));
  CHECK_FALSE(has("gone too"));
  nvtxNameOsThreadA(thread_id(), "");
}

TEST_CASE("threads that NVTX has no name of have the system's", "[trace]") {
  Session session;
  static_cast<void>(cudaStreamQuery(cudaStreamLegacy));
  std::uint64_t unnamed = 0;
  std::thread([] {
    ::pthread_setname_np(::pthread_self(), "decoder");
    static_cast<void>(cudaStreamQuery(cudaStreamLegacy));
  }).join();
  std::thread([&unnamed] {
    unnamed = thread_id();
    static_cast<void>(cudaStreamQuery(cudaStreamLegacy));
  }).join();
  const Timeline timeline = session.stop();
  std::vector<std::string> titles;
  for (const Track& track : timeline.tracks)
    if (track.kind == Track::Kind::thread) titles.push_back(title(track));
  std::sort(titles.begin(), titles.end());
  CHECK(titles ==
        std::vector<std::string>{"decoder", "main thread", "thread " + std::to_string(unnamed)});
}

TEST_CASE("NVTX: a stream that is a resource has its name until that ends", "[trace]") {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("loader");
  const auto name = [&](cudaStream_t stream, nvtxMessageType_t type, nvtxMessageValue_t message) {
    nvtxResourceAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
    attributes.identifierType = NVTX_RESOURCE_TYPE_CUDART_STREAM;
    attributes.identifier.pValue = stream;
    attributes.messageType = type;
    attributes.message = message;
    return nvtxDomainResourceCreate(domain, &attributes);
  };
  cudaStream_t before = nullptr, meanwhile = nullptr, ended = nullptr;
  REQUIRE_CUDA(cudaStreamCreate(&before));
  REQUIRE_CUDA(cudaStreamCreate(&meanwhile));
  REQUIRE_CUDA(cudaStreamCreate(&ended));
  nvtxMessageValue_t message{};
  message.registered = nvtxDomainRegisterStringA(domain, "copies");
  const auto first = name(before, NVTX_MESSAGE_TYPE_REGISTERED, message);
  message.ascii = "ended";
  nvtxDomainResourceDestroy(name(ended, NVTX_MESSAGE_TYPE_ASCII, message));
  nvtxResourceAttributes_t other{};
  other.version = NVTX_VERSION;
  other.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
  other.identifierType = NVTX_RESOURCE_TYPE_GENERIC_POINTER;
  CHECK(nvtxDomainResourceCreate(domain, &other) == nullptr);
  Session session;
  message.unicode = L"kernels";
  const auto second = name(meanwhile, NVTX_MESSAGE_TYPE_UNICODE, message);
  const Timeline timeline = session.stop();
  nvtxDomainResourceDestroy(first);
  nvtxDomainResourceDestroy(second);
  nvtxDomainResourceDestroy(second);  // once is enough
  for (const cudaStream_t stream : {before, meanwhile, ended})
    REQUIRE_CUDA(cudaStreamDestroy(stream));
  nvtxDomainDestroy(domain);

  std::vector<std::string> names;
  for (const Track& track : timeline.tracks)
    if (track.kind == Track::Kind::stream) names.push_back(track.name);
  CHECK(names == std::vector<std::string>{"copies", "kernels"});
}

#if !PENSTOCK_TEST_SANITIZED  // which count memory, and fork, in their own ways

TEST_CASE("NVTX: names of threads that have ended do not pile up", "[trace]") {
  constexpr std::uint32_t kNoThread = 1'000'000'000;
  const std::string name(1000, 'x');
  const auto used = ::mallinfo2().uordblks;
  for (std::uint32_t i = 0; i < 50'000; ++i) nvtxNameOsThreadA(kNoThread + i, name.c_str());
  CHECK(::mallinfo2().uordblks - used < 8 << 20);  // all of them are 50 MB
}

// Other threads are within locks of the recording when the process forks: nobody opens those in the
// child.
TEST_CASE("NVTX: a forked child has ranges and names, and is not held up by any", "[trace]") {
  Session session;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number)
    threads.emplace_back([&stop] {
      for (std::uint64_t i = 0; !stop; ++i) {
        nvtxRangePushA(std::to_string(i % 1000).c_str());
        nvtxRangeEnd(nvtxRangeStartA("started"));
        nvtxNameOsThreadA(thread_id(), "busy");
        nvtxDomainRegisterStringA(nullptr, "busy");
        nvtxRangePop();
      }
    });
  for (int round = 0; round < 200; ++round) {
    const ::pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);  // ends a child that hangs
      nvtxRangePushA("of the child");
      nvtxRangeEnd(nvtxRangeStartA("started by the child"));
      nvtxNameOsThreadA(thread_id(), "child");
      nvtxDomainRegisterStringA(nullptr, "child");
      nvtxRangePop();
      ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(events_named(session.stop(), "of the child").empty());
}

// What the parent's other threads are within stays locked in the child, and CUDA is not there.
TEST_CASE("Session: ends in a forked child as well", "[trace]") {
  std::atomic<bool> stop{false};
  std::thread other([&stop] {
    while (!stop) static_cast<void>(cudaStreamQuery(cudaStreamLegacy));
  });
  for (int round = 0; round < 100; ++round) {
    auto session = std::make_unique<Session>();
    const ::pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      session.reset();
      ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
  stop = true;
  other.join();
}

#endif

TEST_CASE("function_name: functors of for_each, lambdas and functions", "[trace]") {
  using penstock::trace::detail::shown_name;
  CHECK(shown_name("penstock::detail::HostTask<app::Normalise<float> >::run_once(void*)") ==
        "app::Normalise<float>");
  CHECK(shown_name("penstock::v1_20_without_nvtx::detail::HostTask<penstock::v0_1::Add>::run_again("
                   "void*)") == "penstock::Add");
  CHECK(shown_name("penstock::v1::run(penstock::v1)") == "penstock::run(penstock::v1)");
  CHECK(shown_name("penstock::values::run") == "penstock::values::run");
  CHECK(shown_name("app::step(int*)::{lambda(void*)#1}::_FUN(void*)") ==
        "app::step(int*)::{lambda(void*)#1}");
  CHECK(shown_name("app::$_0::__invoke(void*)") == "app::$_0");
  CHECK(shown_name("plain") == "plain");
}
