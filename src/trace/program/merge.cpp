// SPDX-License-Identifier: Apache-2.0
#include "merge.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <penstock/detail/observe/json.hpp>
#include <penstock/trace/recording.hpp>
#include <penstock/trace/views.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "inject/settings.hpp"
#include "joined.hpp"
#include "kernel_names.hpp"
#include "programs/output_file.hpp"
#include "rank_times.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::program {

namespace {

namespace fs = std::filesystem;
using namespace detail;
using penstock::detail::JsonText;

struct Recording {
  fs::path path;
  Timeline timeline;
};

/// The ranks in order, and messages about them.
struct Job {
  std::vector<Recording> recordings;
  std::vector<std::string> notes;
};

// ---- Which recordings
// -----------------------------------------------------------------------------

std::vector<fs::path> find_recordings(const std::vector<std::string>& places) {
  std::set<fs::path> found;
  for (const fs::path place : places) {
    if (!fs::is_directory(place)) {
      found.insert(place);  // If it does not exist, loading it reports that.
      continue;
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(place))
      if (entry.path().extension() == inject::kRecordingSuffix) found.insert(entry.path());
  }
  if (found.empty()) throw std::runtime_error(places.front() + ": no recording is in it");
  return {found.begin(), found.end()};
}

/// Returns 3 for "profiles/node7.4711.rank3/trace.recording", and -1 if the path has no rank.
int rank_of_path(const fs::path& path) {
  constexpr std::string_view kMark = ".rank";
  const std::string name = path.parent_path().filename();
  const std::size_t at = name.rfind(kMark);
  if (at == std::string::npos) return -1;
  int rank = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + at + kMark.size(), end, rank);
  return error == std::errc() && stop == end ? rank : -1;
}

std::string started(const Timeline& timeline) {
  std::time_t time = timeline.origin.started;
  std::tm parts{};
  std::ostringstream text;
  if (::gmtime_r(&time, &parts) != nullptr) text << std::put_time(&parts, "%F %T UTC");
  return text.str();
}

Job load_all(const std::vector<fs::path>& paths) {
  Job job;
  for (const fs::path& path : paths) {
    try {
      Recording recording{path, load(path)};
      int& rank = recording.timeline.origin.rank;
      if (rank < 0) rank = rank_of_path(path);
      if (rank < 0)
        job.notes.push_back(path.string() +
                            ": left out, as neither it nor its directory (*.rankN) says a rank");
      else
        job.recordings.push_back(std::move(recording));
    } catch (const std::runtime_error& error) {
      job.notes.push_back(std::string("left out: ") + error.what());
    }
  }
  std::stable_sort(job.recordings.begin(), job.recordings.end(),
                   [](const Recording& a, const Recording& b) {
                     return a.timeline.origin.rank < b.timeline.origin.rank;
                   });
  return job;
}

/// Throws if a rank occurs twice, or if ranks are of jobs of different sizes.
void check_one_job(const Job& job) {
  const Recording* before = nullptr;
  for (const Recording& one : job.recordings) {
    const Origin& its = one.timeline.origin;
    if (before != nullptr && before->timeline.origin.rank == its.rank)
      throw std::runtime_error("rank " + std::to_string(its.rank) + " has two recordings, " +
                               before->path.string() + " (started " + started(before->timeline) +
                               ") and " + one.path.string() + " (" + started(one.timeline) +
                               "): name those of one run, or its directory");
    before = &one;
    for (const Recording& other : job.recordings) {
      const int size = other.timeline.origin.world_size;
      if (size > 0 && its.world_size > 0 && size != its.world_size)
        throw std::runtime_error("recordings of two jobs: " + one.path.string() + " is of one of " +
                                 std::to_string(its.world_size) + " ranks, " + other.path.string() +
                                 " of one of " + std::to_string(size));
    }
  }
}

void note_missing(Job& job) {
  constexpr int kMostNamed = 16;
  std::int64_t size = 0;  // a rank may have any number
  std::set<std::int64_t> there;
  for (const Recording& one : job.recordings) {
    const Origin& its = one.timeline.origin;
    there.insert(its.rank);
    size = std::max({size, std::int64_t{its.world_size}, std::int64_t{its.rank} + 1});
  }
  const auto count = size - static_cast<std::int64_t>(there.size());
  if (count == 0) return;
  std::string missing;
  int named = 0;
  for (std::int64_t rank = 0; named < std::min<std::int64_t>(count, kMostNamed); ++rank) {
    if (there.count(rank) != 0) continue;
    missing += (named++ == 0 ? "" : ", ") + std::to_string(rank);
  }
  if (count > kMostNamed) missing += " ...";
  job.notes.push_back("of " + std::to_string(size) + " ranks " + std::to_string(count) +
                      " left no recording: " + missing);
}

Time gap_between(const Timeline& a, Time shift_a, const Timeline& b, Time shift_b) {
  return std::max(a.begin + shift_a - b.end - shift_b, b.begin + shift_b - a.end - shift_a);
}

void note_doubts(Job& job, const std::vector<RankTimes>& ranks, const std::vector<Time>& shifts) {
  constexpr Time kFarApart = 10'000'000'000;
  const Timeline& first = job.recordings.front().timeline;
  bool other_clock = false;
  for (std::size_t i = 0; i < job.recordings.size(); ++i) {
    const Timeline& its = job.recordings[i].timeline;
    other_clock = other_clock || !same_clock(first.origin, its.origin);
    const Time gap = gap_between(first, 0, its, shifts[i]);
    if (gap > kFarApart)
      job.notes.push_back("rank " + std::to_string(its.origin.rank) + " and rank " +
                          std::to_string(first.origin.rank) +
                          " were not recorded at the same time, but " + in_time(gap) +
                          " apart: are they of one run?");
    if (its.events.empty())
      job.notes.push_back("rank " + std::to_string(its.origin.rank) + ": nothing was recorded");
    else if (ranks[i].report.steps == 0)
      job.notes.push_back("rank " + std::to_string(its.origin.rank) +
                          ": no range marks its steps, and its figures are of all its time");
  }
  if (other_clock)
    job.notes.push_back(
        "times of different machines are put together by their wall clocks, and are off by what "
        "those are apart: mostly some milliseconds with NTP");
}

Job find_job(const MergeOptions& options) {
  Job job = load_all(find_recordings(options.places));
  check_one_job(job);
  if (job.recordings.size() < 2) {
    std::string why =
        job.recordings.empty() ? "no recording of a rank" : "the recording of one rank alone";
    for (const std::string& note : job.notes) why += "\n  " + note;
    throw std::runtime_error(options.places.front() + ": " + why);
  }
  note_missing(job);
  return job;
}

// ---- The report
// -----------------------------------------------------------------------------------

std::string in_time_of(double time) {
  return in_time(static_cast<Time>(time));
}

std::string sentence(const std::vector<RankTimes>& ranks, const Slowest& slowest) {
  const RankTimes& rank = ranks[slowest.index];
  const std::string its = "rank " + std::to_string(rank.rank) + " takes " + in_time_of(rank.own()) +
                          " a step of its own, " + in_time_of(slowest.excess) + " (" +
                          in_percent(slowest.share) + ") more than the others";
  if (rank.own() <= 0) return "Nothing to compare: no rank did anything on its device.";
  if (!slowest.stands_out) return "No rank stands out: " + its + ".";
  return "The slowest: " + its + ". Most of it, " + in_time_of(slowest.part_excess) + ": " +
         slowest.reason + ".";
}

void print_head(std::ostream& out, const Job& job, const Origin& all) {
  out << "penstock trace of " << job.recordings.size() << " ranks of "
      << shortened(all.program.empty() ? "a program" : all.program, 88) << '\n'
      << shortened(all.host + ": " + all.device, 110) << '\n';
  if (all.emulated)
    out << "EMULATED: these are times of the emulated CUDA runtime on a CPU, and say nothing about "
           "a GPU.\n";
  for (const std::string& note : job.notes) out << "NOTE: " << on_one_line(note) << '\n';
}

/// Returns the parts that matter for at least one rank.
std::vector<Part> parts_to_show(const std::vector<RankTimes>& ranks) {
  constexpr double kLeast = 0.005;  // fraction of a step
  std::vector<Part> parts;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto part = static_cast<Part>(i);
    if (std::any_of(ranks.begin(), ranks.end(),
                    [&](const RankTimes& rank) { return rank[part] > kLeast * rank.step(); }))
      parts.push_back(part);
  }
  return parts;
}

void print_ranks(std::ostream& out, const std::vector<RankTimes>& ranks) {
  const std::vector<Part> parts = parts_to_show(ranks);
  static constexpr int kWidth = 10, kBetween = 3;
  const auto width_of_part = [](Part part) {
    return std::max(kWidth, static_cast<int>(to_string(part).size()) + kBetween);
  };
  out << "\nmilliseconds a step\n"
      << std::setw(6) << "rank" << std::setw(8) << "steps" << std::setw(kWidth) << "step"
      << std::setw(kWidth) << "own";
  for (const Part part : parts) out << std::setw(width_of_part(part)) << to_string(part);
  out << std::fixed << std::setprecision(3) << '\n';
  for (const RankTimes& rank : ranks) {
    out << std::setw(6) << rank.rank << std::setw(8) << rank.report.steps << std::setw(kWidth)
        << rank.step() / 1e6 << std::setw(kWidth) << rank.own() / 1e6;
    for (const Part part : parts) out << std::setw(width_of_part(part)) << rank[part] / 1e6;
    out << '\n';
  }
  out << "own: a step without communication. Behind it where a step goes: what runs on the device, "
         "or,\nwhere nothing does, what its host is at.\n";
}

std::string text_of(const Job& job, const Origin& all, const std::vector<RankTimes>& ranks,
                    const Slowest& slowest) {
  std::ostringstream out;
  print_head(out, job, all);
  print_ranks(out, ranks);
  out << '\n' << sentence(ranks, slowest) << '\n';
  const RankTimes& rank = ranks[slowest.index];
  if (!rank.findings.empty()) out << "Its dearest finding: " << rank.findings.front() << '\n';
  return out.str();
}

void append_rank(JsonText& json, const Recording& recording, const RankTimes& rank) {
  const Origin& origin = recording.timeline.origin;
  json.begin_object().member("rank", rank.rank).member("recording", recording.path.string());
  json.member("host", origin.host).member("process", origin.process);
  json.member("device", origin.device).member("steps", rank.report.steps);
  json.member("step_name", rank.report.step_name).member("step", rank.step());
  json.member("own", rank.own()).member("step_median", rank.report.step_median);
  json.member("step_p99", rank.report.step_p99).key("parts").begin_object();
  for (std::size_t i = 0; i < kParts; ++i)
    json.member(to_string(static_cast<Part>(i)), rank.parts[i]);
  json.end_object().key("findings").begin_array();
  for (const Finding& finding : rank.findings)
    json.begin_object()
        .member("rule", to_string(finding.rule))
        .member("share", finding.share)
        .member("evidence", finding.evidence)
        .end_object();
  json.end_array().end_object();
}

std::string json_of(const Job& job, const std::vector<RankTimes>& ranks, const Slowest& slowest) {
  JsonText json;
  json.begin_object().key("ranks").begin_array();
  for (std::size_t i = 0; i < ranks.size(); ++i) append_rank(json, job.recordings[i], ranks[i]);
  json.end_array().key("slowest").begin_object();
  json.member("rank", ranks[slowest.index].rank).member("excess", slowest.excess);
  json.member("share", slowest.share).member("stands_out", slowest.stands_out);
  json.member("part", to_string(slowest.part)).member("part_excess", slowest.part_excess);
  json.member("reason", slowest.reason).end_object().key("notes").begin_array();
  for (const std::string& note : job.notes) json.value(note);
  return json.end_array().end_object().text() + "\n";
}

// ---- The page
// -------------------------------------------------------------------------------------

/// Returns the findings of all ranks, the most expensive first; each names its rank.
std::vector<Finding> findings_of(const std::vector<RankTimes>& ranks, const Joined& joined) {
  std::vector<Finding> all;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (Finding finding : ranks[i].findings) {
      finding.evidence = "Rank " + std::to_string(ranks[i].rank) + ": " + finding.evidence;
      finding.begin += joined.shifts[i];
      finding.end += joined.shifts[i];
      finding.track = joined.tracks[i][finding.track];
      all.push_back(std::move(finding));
    }
  std::stable_sort(all.begin(), all.end(),
                   [](const Finding& a, const Finding& b) { return a.cost > b.cost; });
  return all;
}

/// Returns the report of the job: tables of all ranks, and steps of the slowest one.
Report report_of(const Joined& joined, const ReportOptions& options, const Report& slowest) {
  Report report(joined.timeline, options);
  report.steps = slowest.steps;
  report.step_name = slowest.step_name;
  report.first_step = slowest.first_step;
  report.step_mean = slowest.step_mean;
  report.step_median = slowest.step_median;
  report.step_p99 = slowest.step_p99;
  std::map<int, int> rank_of;
  for (const Track& track : joined.timeline.tracks)
    if (track.kind == Track::Kind::stream) rank_of[track.device] = track.rank;
  for (DeviceTimes& device : report.devices)
    device.name = "rank " + std::to_string(rank_of[device.device]);
  return report;
}

}  // namespace

void merge(const MergeOptions& options) {
  Job job = find_job(options);
  ReportOptions report_options;
  report_options.step = options.step;
  report_options.samples_per_step = options.samples_per_step;
  std::vector<Timeline> parts;
  std::vector<RankTimes> ranks;
  for (Recording& one : job.recordings) {
    ranks.emplace_back(one.timeline, report_options);
    parts.push_back(one.timeline);
  }
  const Joined joined = join(parts);
  note_doubts(job, ranks, joined.shifts);
  const Slowest slowest = slowest_of(ranks);
  for (const std::string& note : job.notes) std::cerr << "penstock-trace: " << note << "\n";

  fs::create_directories(options.directory);
  const std::string text = text_of(job, joined.timeline.origin, ranks, slowest);
  programs::write_file(options.directory / "ranks.txt", text, programs::can_be_made_again);
  programs::write_file(options.directory / "ranks.json", json_of(job, ranks, slowest),
                       programs::can_be_made_again);
  write_page(joined.timeline, report_of(joined, report_options, ranks[slowest.index].report),
             findings_of(ranks, joined), options.directory / "ranks.html");
  if (!options.quiet) std::cout << text << std::flush;
  if (!options.quiet)
    std::cerr << "penstock-trace: " << (options.directory / "ranks.html").string() << "\n";
}

}  // namespace penstock::trace::program
