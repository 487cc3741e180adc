// SPDX-License-Identifier: Apache-2.0

// Findings: every fault is found, and nothing is found where there is none.

#include <penstock/trace/findings.hpp>
#include <random>
#include <sstream>
#include <string>

#include "made_pipeline.hpp"
#include "support/catch.hpp"
#include "timeline_builder.hpp"

using namespace penstock::trace;
using penstock::test::MadePipeline;
using penstock::test::Rules;
using penstock::test::TimelineBuilder;
using penstock::test::us;

namespace {

Rules rules_of(const std::vector<Finding>& findings) {
  Rules rules;
  for (const Finding& finding : findings) CHECK(rules.insert(finding.rule).second);
  return rules;
}

/// For messages.
std::string names_of(const Rules& rules) {
  std::string names;
  for (const Rule rule : rules) names.append(" ").append(to_string(rule));
  return names;
}

Rule rule_at(int index) {
  return static_cast<Rule>(index);
}

std::vector<Finding> findings_of(const MadePipeline& pipeline, const RuleOptions& options = {}) {
  return find(MadePipeline(pipeline).timeline(), options);
}

}  // namespace

TEST_CASE("Every rule has a name, and a name its rule") {
  for (int i = 0; i < kRules; ++i) CHECK(rule_of(to_string(rule_at(i))) == rule_at(i));
  CHECK(to_string(Rule::pageable_copy) == "pageable-copy");
  CHECK_FALSE(rule_of("pageable copy"));
  CHECK_FALSE(rule_of(""));
}

TEST_CASE("Nothing is found in a pipeline without a fault") {
  for (const char* range : {"step", "request"}) {
    MadePipeline pipeline;
    pipeline.step_range = range;
    CHECK(names_of(rules_of(findings_of(pipeline))).empty());
  }
}

TEST_CASE("Each fault alone is found, and nothing else") {
  for (int i = 0; i < kRules; ++i) {
    MadePipeline pipeline;
    pipeline.faults = {rule_at(i)};
    const std::vector<Finding> findings = findings_of(pipeline);
    CHECK(names_of(rules_of(findings)) == names_of(pipeline.faults));
    for (const Finding& finding : findings) {
      INFO(finding);
      CHECK(finding.count > 0);
      CHECK(finding.cost > 0);
      CHECK(finding.share > 0);
      CHECK(finding.begin < finding.end);
      CHECK(finding.evidence.ends_with('.'));
      CHECK(finding.evidence.find_first_of("0123456789") != std::string::npos);
      CHECK(finding.remedy.ends_with('.'));
    }
    CHECK_FALSE(none_of(findings, rule_at(i)));
    CHECK(none_of(findings, rule_at((i + 1) % kRules)));
  }
}

TEST_CASE("One more fault in any pipeline is one more finding") {
  std::mt19937 random(7);
  const auto between = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    MadePipeline pipeline;
    pipeline.steps = between(5, 15);
    pipeline.kernels = between(6, 20);
    pipeline.kernel = between(500, 1500);
    // It fits beside the kernels of half a step.
    const int half = pipeline.kernels / 2;
    pipeline.copy = half * pipeline.kernel * between(5, 9) / 10.0;
    pipeline.pause = between(0, 40) / 10.0;
    for (int i = 0; i < kRules; ++i)
      if (between(0, 1) == 1) pipeline.faults.insert(rule_at(i));
    const Rule fault = rule_at(trial % kRules);
    pipeline.faults.erase(fault);
    INFO("steps " << pipeline.steps << ", kernels " << pipeline.kernels << " of " << pipeline.kernel
                  << " us, copy " << pipeline.copy << " us");
    CHECK(names_of(rules_of(findings_of(pipeline))) == names_of(pipeline.faults));
    pipeline.faults.insert(fault);
    CHECK(names_of(rules_of(findings_of(pipeline))) == names_of(pipeline.faults));
  }
}

TEST_CASE("The dearest finding comes first") {
  MadePipeline pipeline;
  pipeline.faults = {Rule::allocation, Rule::blocking_call, Rule::gap, Rule::synchronous_fill};
  const std::vector<Finding> findings = findings_of(pipeline);
  REQUIRE(findings.size() == 4);
  CHECK(findings.front().rule == Rule::gap);
  CHECK(findings.back().rule == Rule::synchronous_fill);
  for (std::size_t i = 1; i < findings.size(); ++i) CHECK(findings[i - 1].cost >= findings[i].cost);
}

TEST_CASE("The first step counts when it is told to") {
  const Rules rules = rules_of(findings_of({}, {.first_step = true}));
  CHECK(rules.count(Rule::allocation) == 1);
  CHECK(rules.count(Rule::blocking_call) == 1);
  CHECK(rules.count(Rule::synchronous_copy) == 1);
}

TEST_CASE("What is done outside of steps does not count") {
  MadePipeline pipeline;
  Timeline timeline = pipeline.timeline();
  TimelineBuilder after;
  const auto stream = after.stream(0, 13);
  after.stream(0, 14);
  after.stream(0, 15);
  const auto main = after.thread(4711);
  const double end = static_cast<double>(timeline.end) / 1000 + 50'000;
  after.call(main, "cudaMalloc", {end, end + 10});
  after.copy(main, stream, 1 << 20, {end + 20, end + 30}, {end + 30, end + 80}).flags =
      Flag::pageable;
  after.call(main, "cudaDeviceSynchronize", {end + 90, end + 9'000});
  const Timeline later = after.timeline();
  for (Event event : later.events) {
    timeline.names.push_back(later.name(event));
    event.name = static_cast<std::uint32_t>(timeline.names.size() - 1);
    event.correlation = event.correlation == 0 ? 0 : event.correlation + 1'000'000;
    timeline.events.push_back(event);
  }
  arrange(timeline);
  CHECK(names_of(rules_of(find(timeline))).empty());
}

TEST_CASE("Another thread may wait for the device, but not allocate") {
  TimelineBuilder builder;
  builder.stream(0, 13);
  const auto main = builder.thread(1), answers = builder.thread(2);
  for (int i = 0; i < 5; ++i) builder.range(main, "step", {i * 1000.0, i * 1000.0 + 990});
  builder.call(answers, "cudaEventSynchronize_v3020", {2'100, 2'900});
  CHECK(find(builder.timeline()).empty());
  builder.call(answers, "cudaHostAlloc_v3020", {3'100, 3'200});
  CHECK(names_of(rules_of(find(builder.timeline()))) == " allocation");
}

TEST_CASE("Without steps all of the timeline counts as one") {
  MadePipeline pipeline;
  pipeline.step_range = "my own";
  const Rules rules = rules_of(findings_of(pipeline));
  CHECK(names_of(rules) == " synchronous-copy blocking-call allocation");
  CHECK(findings_of(pipeline, {.step = "my own"}).empty());
  CHECK(findings_of(pipeline, {.step = "no such range"}).size() == 3);
}

TEST_CASE("Steps are from one next of penstock to the following where no range marks them") {
  TimelineBuilder builder;
  builder.stream(0, 13);
  const auto main = builder.thread(1);
  for (int i = 0; i <= 5; ++i)
    builder.range(main, "next", {i * 1000.0, i * 1000.0 + 10}, "penstock");
  builder.call(main, "cudaMalloc", {100, 110});      // in the first
  builder.call(main, "cudaMalloc", {5'100, 5'110});  // after the last
  CHECK(find(builder.timeline()).empty());
  builder.call(main, "cudaMalloc", {4'900, 4'910});
  CHECK(find(builder.timeline()).size() == 1);
}

TEST_CASE("Where the bus is the limit, copies are overlapped as far as they can be") {
  TimelineBuilder builder;
  const auto compute = builder.stream(0, 13), copies = builder.stream(0, 14);
  const auto main = builder.thread(1);
  for (int i = 0; i < 10; ++i) {
    const double at = i * 5000.0;
    builder.range(main, "step", {at, at + 4990});
    builder.copy(main, copies, 64 << 20, {at, at + 5}, {at + 10, at + 5009});
    builder.launch(main, compute, "short", {at + 20, at + 25}, {at + 30, at + 1000});
  }
  CHECK(names_of(rules_of(find(builder.timeline()))).empty());
}

TEST_CASE("Copies behind the last kernel are for steps that are not measured") {
  for (const double ahead : {0.0, 900.0}) {  // the last batch's copy: behind the kernels, or beside
    TimelineBuilder builder;
    const auto copies = builder.stream(0, 13), compute = builder.stream(0, 14),
               main = builder.thread(1);
    for (int i = 0; i < 5; ++i) {
      const double at = 1000 * i;
      builder.range(main, "step", {at, at + 1000});
      builder.launch(main, compute, "train", {at, at + 5}, {at + 10, at + 995});
      if (i > 0) builder.copy(main, copies, 1 << 20, {at, at + 5}, {at - 400, at});
    }
    builder.copy(main, copies, 1 << 20, {4500, 4505}, {4996 - ahead, 5296 - ahead});
    CHECK(none_of(find(builder.timeline()), Rule::not_overlapped));
  }
}

TEST_CASE("The first step of a host that runs ahead waits for the device like any other") {
  // The host queues steps of 10 us each, which take the device 1000 us each.
  const auto with_first = [](double first) {
    TimelineBuilder builder;
    const auto compute = builder.stream(0, 13), main = builder.thread(1);
    double done = 0;
    for (int i = 0; i < 6; ++i) {
      const double at = 10 * i, takes = i == 0 ? first : 1000;
      builder.range(main, "step", {at, at + 9});
      builder.launch(main, compute, "train", {at, at + 5}, {std::max(done, at + 6), done + takes});
      done += takes;
    }
    return find(builder.timeline());
  };
  CHECK(none_of(with_first(1500), Rule::slow_first_batch));
  CHECK_FALSE(none_of(with_first(9000), Rule::slow_first_batch));
}

TEST_CASE("A gap tells what the CPU did, and what to change") {
  const auto gap_with = [](auto do_meanwhile) {
    TimelineBuilder builder;
    const auto stream = builder.stream(0, 13), main = builder.thread(1);
    for (int i = 0; i < 6; ++i) {
      const double at = i * 1000.0;
      builder.range(main, "step", {at, at + 1000});
      do_meanwhile(builder, main, at);
      builder.launch(main, stream, "train", {at + 400, at + 405}, {at + 410, at + 1000});
    }
    const std::vector<Finding> findings = find(builder.timeline());
    for (const Finding& finding : findings)
      if (finding.rule == Rule::gap) return finding;
    return Finding{};
  };
  const Finding input = gap_with([](TimelineBuilder& builder, std::uint32_t main, double at) {
    builder.range(main, "get batch", {at + 10, at + 390});
  });
  CHECK(input.count == 5);
  CHECK(input.cost == us(5 * 410));
  CHECK(input.evidence.find("get batch (waits for input)") != std::string::npos);
  CHECK(input.remedy.find("Prefetcher") != std::string::npos);
  const Finding blocked = gap_with([](TimelineBuilder& builder, std::uint32_t main, double at) {
    builder.call(main, "cudaStreamSynchronize_v3020", {at + 10, at + 300});
  });
  CHECK(blocked.evidence.find("cudaStreamSynchronize (waits for the device)") != std::string::npos);
  CHECK(blocked.remedy.find("Readback") != std::string::npos);
  const Finding allocates = gap_with([](TimelineBuilder& builder, std::uint32_t main, double at) {
    builder.call(main, "cudaMalloc_v3020", {at + 10, at + 300});
  });
  CHECK(allocates.remedy.find("DeviceArena") != std::string::npos);
  const Finding staged = gap_with([](TimelineBuilder& builder, std::uint32_t main, double at) {
    builder.copy(main, 0, 4096, {at + 10, at + 300}, {at + 298, at + 299}).flags = Flag::pageable;
  });
  CHECK(staged.evidence.find("cudaMemcpyAsync (stages pageable memory)") != std::string::npos);
  CHECK(staged.remedy.find("PinnedPool") != std::string::npos);
  const Finding own = gap_with([](TimelineBuilder&, std::uint32_t, double) {});
  CHECK(own.evidence.find("step (the program's own code)") != std::string::npos);
}

TEST_CASE("A gap is longer than a part of a step, and than the shortest one") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13), main = builder.thread(1);
  for (int i = 0; i < 5; ++i) {
    const double at = i * 1000.0;
    builder.range(main, "step", {at, at + 1000});
    builder.launch(main, stream, "train", {at - 50, at - 45}, {at, at + 970});
  }
  const Timeline timeline = builder.timeline();
  CHECK(find(timeline).size() == 1);  // 30 us of 1000
  CHECK(find(timeline, {.gap = 0.05}).empty());
  CHECK(find(timeline, {.shortest_gap = us(40)}).empty());
}

TEST_CASE("What several devices lose is a part of the time, and no more than all of it") {
  TimelineBuilder builder;
  const auto first = builder.stream(0, 7), second = builder.stream(1, 7);
  const auto main = builder.thread(1, "main");
  for (double at = 0; at < 10'000; at += 1000)
    for (const auto stream : {first, second})
      builder.launch(main, stream, "k", {at, at + 5},
                     {at + 10, at + (stream == first ? 110 : 510)});
  const Timeline timeline = builder.timeline();
  for (const Finding& finding : find(timeline, {.gap = 0})) {
    if (finding.rule != Rule::gap) continue;
    CHECK(finding.count == 18);
    CHECK(finding.cost == us(9 * (900 + 500) / 2));
    CHECK(finding.share == Approx(6300.0 / 9510).epsilon(1e-3));
    return;
  }
  FAIL("no gap");
}

TEST_CASE("A finding is three lines, whatever the program called its threads") {
  MadePipeline pipeline;
  pipeline.faults = {Rule::blocking_call};
  Timeline timeline = pipeline.timeline();
  for (Track& track : timeline.tracks) track.name = "a\nb";
  const std::vector<Finding> findings = find(timeline);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].evidence.find("a b") != std::string::npos);
  CHECK(findings[0].evidence.find('\n') == std::string::npos);
}

TEST_CASE("Host functions are the kernels of the emulated runtime, and of no other") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 1), main = builder.thread(1);
  for (int i = 0; i < 5; ++i) {
    const double at = i * 1000.0;
    builder.range(main, "step", {at, at + 1000});
    builder.submit(main, stream, Kind::kernel, "cudaLaunchKernel", "a", {at - 50, at - 45},
                   {at, at + 500});
    builder.submit(main, stream, Kind::host_function, "cudaLaunchHostFunc", "b", {at - 40, at - 35},
                   {at + 500, at + 1000});
  }
  Timeline timeline = builder.timeline();
  CHECK(names_of(rules_of(find(timeline))) == " gap");
  timeline.origin.emulated = true;
  CHECK(find(timeline).empty());
}

TEST_CASE("Graphs of small kernels are not launch-bound") {
  const double launch = GENERATE(5.0, 995.0);  // also where the launch blocks
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13), main = builder.thread(1);
  for (int i = 0; i < 5; ++i) {
    const double at = i * 1000.0;
    builder.range(main, "step", {at, at + 1000});
    const std::uint32_t correlation =
        builder.launch(main, stream, "add", {at, at + launch}, {at + 6, at + 10}).correlation;
    for (int node = 1; node < 100; ++node) {
      const double begin = at + 6 + 10 * node;
      builder.add(Kind::kernel, stream, "add", {begin, begin + 4}).correlation = correlation;
    }
  }
  CHECK(names_of(rules_of(find(builder.timeline()))).empty());
}

TEST_CASE("A synchronous copy of pageable memory is not an asynchronous one") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13), main = builder.thread(1);
  builder.copy(main, stream, 4096, {0, 10}, {2, 9}).flags = Flag::pageable | Flag::synchronous;
  CHECK(names_of(rules_of(find(builder.timeline()))) == " synchronous-copy");
}

TEST_CASE("Copies are too many and too small by what they take") {
  const auto found = [](int copies, double duration, std::uint64_t bytes,
                        Direction direction = Direction::host_to_device) {
    TimelineBuilder builder;
    const auto stream = builder.stream(0, 13), main = builder.thread(1);
    for (int i = 0; i < 5; ++i) {
      const double at = i * 1000.0;
      builder.range(main, "step", {at, at + 1000});
      for (int k = 0; k < copies; ++k)
        builder.copy(main, stream, bytes, {at + 10 * k, at + 10 * k + 5},
                     {at + 10 * k + 5, at + 10 * k + 5 + duration}, direction);
    }
    return !none_of(find(builder.timeline()), Rule::tiny_copies);
  };
  CHECK(found(11, 1, 512));
  CHECK_FALSE(found(10, 1, 512));
  CHECK_FALSE(found(11, 5, 512));        // longer than the launches
  CHECK_FALSE(found(11, 1, 64 * 1024));  // not that small
  CHECK(found(11, 1, 64 * 1024 - 1));
  CHECK(found(11, 1, 512, Direction::device_to_host));
  CHECK_FALSE(found(11, 1, 512, Direction::device_to_device));  // no Layout would spare it
}

TEST_CASE("A launch-bound stretch is long, tight, and costs something") {
  // In each step of 10 ms kernels of 4 us, so many, each launched so long after the one before.
  const auto found = [](int kernels, double interval, double latency = 2, int steps = 5) {
    TimelineBuilder builder;
    const auto stream = builder.stream(0, 13), main = builder.thread(1);
    for (int i = 0; i < 5; ++i) {
      const double at = i * 10'000.0;
      builder.range(main, "step", {at, at + 10'000});
      for (int k = 0; k < kernels && i < steps; ++k) {
        const double begin = at + interval * k, runs = begin + 5 + latency;
        builder.launch(main, stream, "add", {begin, begin + 5}, {runs, runs + 4});
      }
    }
    return !none_of(find(builder.timeline()), Rule::launch_bound);
  };
  CHECK(found(100, 20));
  CHECK(found(15, 90));
  CHECK_FALSE(found(15, 110));        // the CPU does something else
  CHECK_FALSE(found(9, 90));          // few
  CHECK_FALSE(found(15, 15));         // 11 us each of 10 ms
  CHECK_FALSE(found(100, 40, 25));    // they wait for something else
  CHECK_FALSE(found(100, 90, 2, 1));  // in the first step
}

TEST_CASE("Small copies within a graph need no launch each") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13), main = builder.thread(1);
  for (int i = 0; i < 5; ++i) {
    const double at = i * 1000.0;
    builder.range(main, "step", {at, at + 1000});
    const std::uint32_t correlation =
        builder
            .submit(main, stream, Kind::kernel, "cudaGraphLaunch_v10000", "a", {at, at + 50},
                    {at + 5, at + 900})
            .correlation;
    for (int node = 0; node < 40; ++node) {
      Event& copy = builder.add(Kind::copy, stream, "", {at + 900 + 2 * node, at + 902 + 2 * node});
      copy.correlation = correlation;
      copy.value = 512;
      copy.direction = Direction::device_to_host;
    }
  }
  CHECK(none_of(find(builder.timeline()), Rule::tiny_copies));
}

TEST_CASE("A device that fills memory does not wait for a launch") {
  for (const double fill : {0.0, 7.5}) {
    TimelineBuilder builder;
    const auto stream = builder.stream(0, 13), main = builder.thread(1);
    for (int i = 0; i < 5; ++i) {
      const double at = i * 1000.0;
      builder.range(main, "step", {at, at + 1000});
      for (int k = 0; k < 100; ++k) {
        const double begin = at + 10 * k;
        builder.submit(main, stream, Kind::fill, "cudaMemsetAsync", "", {begin - 30, begin - 28},
                       {begin, begin + fill});
        builder.launch(main, stream, "add", {begin + 4, begin + 6}, {begin + 8, begin + 10});
      }
    }
    CHECK(none_of(find(builder.timeline()), Rule::launch_bound) == (fill > 0));
  }
}

TEST_CASE("Nothing is found in next to nothing") {
  CHECK(find(Timeline{}).empty());
  for (const Kind kind : {Kind::kernel, Kind::copy, Kind::fill, Kind::call, Kind::range}) {
    TimelineBuilder builder;
    const auto stream = builder.stream(0, 13), main = builder.thread(1);
    builder.add(kind, on_device(kind) ? stream : main, "one", {5, 6});
    CHECK(find(builder.timeline()).empty());
  }
}

TEST_CASE("A finding is three lines, and an object of JSON") {
  const Finding finding{.rule = Rule::gap,
                        .count = 3,
                        .cost = 1'500'000,
                        .share = 0.125,
                        .begin = 10,
                        .end = 20,
                        .track = 2,
                        .evidence = "It \"was\" so.",
                        .remedy = "Do this."};
  std::ostringstream text, json;
  text << finding;
  CHECK(text.str() ==
        "gap: 3 times, 1.50 ms (12.5 % of the measured time)\n  It \"was\" so.\n  Do this.");
  write_json({finding}, json);
  CHECK(json.str() ==
        "[{\"rule\":\"gap\",\"count\":3,\"cost\":1500000,\"share\":0.125,\"begin\":10,"
        "\"end\":20,\"track\":2,\"evidence\":\"It \\\"was\\\" so.\",\"remedy\":\"Do this.\"}]");
  std::ostringstream none;
  write_json(std::vector<Finding>{}, none);
  CHECK(none.str() == "[]");
}
