// SPDX-License-Identifier: Apache-2.0

// penstock-trace: runs a program with the recording library injected and shows where its time went,
// or shows a recording again. Exit codes: that of the program; 3 if --fail-on found something; 2
// for wrong arguments; 1 if nothing was recorded, or the output cannot be written; 126 and 127 like
// a shell.

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <penstock/trace/recording.hpp>
#include <string>
#include <utility>
#include <vector>

#include "application.hpp"
#include "dumps.hpp"
#include "inject/settings.hpp"
#include "merge.hpp"
#include "programs/command_line.hpp"
#include "programs/version_flag.hpp"
#include "results.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::program {
namespace {

namespace fs = std::filesystem;

constexpr int kWrongArguments = 2, kFound = 3, kNothingRecorded = 1;

struct Options {
  ApplicationOptions application;
  ResultOptions results;
  MergeOptions merge;
  std::string directory, recording;
};

int complain(const std::string& what, int exit_code) {
  std::cerr << "penstock-trace: " << what << "\n";
  return exit_code;
}

// ---- The library

/// It is next to the program in a build tree, and under lib in an installation.
fs::path find_library() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& place : {here, here / PENSTOCK_TRACE_LIBRARY_DIRECTORY}) {
    const fs::path library = place / "libpenstock_trace_inject.so";
    if (fs::exists(library)) return fs::canonical(library);
  }
  throw std::runtime_error("libpenstock_trace_inject.so is neither in " + here.string() +
                           " nor in " + (here / PENSTOCK_TRACE_LIBRARY_DIRECTORY).string() +
                           ": penstock is not installed as a whole");
}

// ---- The files of a run

bool is_number(const std::string& text) {
  return text.find_first_not_of("0123456789") == std::string::npos;
}

/// Returns the files with this suffix: <pid>.recording or <pid>.error, one for each process of the
/// run.
std::vector<fs::path> files_in(const fs::path& directory, const char* suffix) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, none))
    if (entry.path().extension() == suffix && is_number(entry.path().stem().string()))
      found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// Returns the error of each process that could not record, and removes the files, so that a later
/// run into the same directory has only its own.
std::vector<std::pair<std::string, std::string>> take_errors(const fs::path& directory) {
  std::vector<std::pair<std::string, std::string>> errors;
  for (const fs::path& path : files_in(directory, inject::kErrorSuffix)) {
    std::getline(std::ifstream(path), errors.emplace_back(path.stem().string(), "").second);
    fs::remove(path);
  }
  return errors;
}

/// Whether a program that changed its user could have lost the right to write there.
bool others_are_shut_out(const fs::path& directory) {
  std::error_code none;
  return ::geteuid() == 0 &&
         (fs::status(directory, none).permissions() & fs::perms::others_write) == fs::perms::none;
}

/// Explains why there is no recording, as far as that is known.
std::string explain(const Ended& ended) {
  for (const auto& [process, why] : take_errors(ended.directory))
    return "nothing was recorded: " + why;
  if (ended.signal != 0)
    return "the program was ended by signal " + std::to_string(ended.signal) + " (" +
           ::strsignal(ended.signal) + ") and left no recording";  // NOLINT(concurrency-mt-unsafe)
  std::string why = "nothing was recorded: the program made no call of CUDA, or ended by _exit";
  if (others_are_shut_out(ended.directory))
    why += ", or became a user that cannot write to " + ended.directory.string() +
           " (it says so then)";
  return why;
}

std::string explain_dumps(const Ended& ended, const Dumps& dumps) {
  return "of the run's end there is nothing; of before there " +
         std::string(dumps.count() == 1 ? "is a dump" : "are dumps") + ", as " +
         ended.directory.string() + "/dump-*/trace.html";
}

/// Returns a directory for each process that recorded: the run's own directory for a single
/// process, else one below it for each.
std::vector<fs::path> collect(const Ended& ended) {
  const std::vector<fs::path> recordings = files_in(ended.directory, inject::kRecordingSuffix);
  std::vector<fs::path> directories;
  for (const fs::path& recording : recordings) {
    const fs::path directory =
        recordings.size() == 1 ? ended.directory : ended.directory / recording.stem();
    fs::create_directories(directory);
    fs::rename(recording, directory / "trace.recording");
    directories.push_back(directory);
  }
  return directories;
}

int trace(const Options& options) {
  ApplicationOptions application = options.application;
  application.library = find_library();
  application.directory = options.directory;
  Dumps dumps(application.dumps, options.results);
  const Ended ended = run(application, dumps);
  const std::vector<fs::path> directories = collect(ended);
  dumps.end();
  if (directories.empty()) {
    complain(explain(ended), 0);
    if (dumps.count() != 0) complain(explain_dumps(ended, dumps), 0);
    remove_if_unused(ended);
    if (ended.exit_code != 0) return ended.exit_code;
    return dumps.count() == 0 ? kNothingRecorded : dumps.found() ? kFound : 0;
  }
  bool found = dumps.found(), empty = dumps.count() == 0;
  for (const fs::path& directory : directories) {
    const Timeline timeline = load(directory / "trace.recording");
    if (write_results(timeline, directory, options.results)) found = true;
    empty = empty && timeline.events.empty();
    if (!options.results.quiet)
      std::cerr << "penstock-trace: " << (directory / "trace.html").string() << "\n";
  }
  for (const auto& [process, why] : take_errors(ended.directory))
    std::cerr << "penstock-trace: process " << process << ": " << why << "\n";
  if (empty)
    complain(std::string("nothing was recorded: ") +
                 (application.capture_range
                      ? "the program called no cudaProfilerStart, or nothing after it"
                      : "the program put no work on a device"),
             0);
  if (ended.exit_code != 0) return ended.exit_code;
  return empty ? kNothingRecorded : found ? kFound : 0;
}

int report(const Options& options) {
  const fs::path file = options.recording;
  const fs::path directory =
      options.directory.empty() ? file.parent_path() : fs::path(options.directory);
  const bool found =
      write_results(load(file), directory.empty() ? "." : directory, options.results);
  return found ? kFound : 0;
}

int merge_ranks(Options& options) {
  MergeOptions& merged = options.merge;
  if (!options.directory.empty())
    merged.directory = options.directory;
  else if (merged.places.size() == 1 && fs::is_directory(merged.places.front()))
    merged.directory = merged.places.front();
  else
    return complain("merge: --out says where to write to", kWrongArguments);
  merge(merged);
  return 0;
}

// ---- The command line

/// Parses a word of the command line by a function that throws for an invalid word.
template <class Parse, class Value>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, Parse parse, Value& value,
                        const std::string& help) {
  return app.add_option_function<std::string>(
      name,
      [parse, name, &value](const std::string& text) {
        try {
          value = parse(text);
        } catch (const std::invalid_argument& error) {
          throw CLI::ValidationError(name, error.what());
        }
      },
      help);
}

void add_result_options(CLI::App& app, Options& options) {
  app.add_option("--step", options.results.step,
                 "Name of the NVTX range that is one step; else 'step', 'request', or penstock's "
                 "'next'");
  app.add_option("--samples-per-step", options.results.samples_per_step, "For samples a second")
      ->check(programs::finite(0));
  app.add_option("--host-to-device", options.results.host_to_device,
                 "GB/s that the machine's bus reaches, which copies are held against; else the "
                 "best copy of the recording")
      ->check(programs::finite(0));
  app.add_option("--device-to-host", options.results.device_to_host, "The same, the other way")
      ->check(programs::finite(0));
  app.add_option("--gap", options.results.gap,
                 "Per cent of a step: time without work on a device that is a finding")
      ->check(programs::finite(0))
      ->capture_default_str();
  add_parsed(app, "--fail-on", parse_rules, options.results.fail_on,
             "Exit with 3 when one of these is found: any, or rules with commas between them, "
             "as pageable-copy,synchronous-copy");
  app.add_flag("--quiet", options.results.quiet, "Print nothing; write the files alone");
}

void add_trace_options(CLI::App& app, Options& options) {
  app.add_option("--out", options.directory,
                 "Directory to write to: %h is the machine, %p the process, %r its rank");
  app.add_flag("--capture-range", options.application.capture_range,
               "Record between cudaProfilerStart and cudaProfilerStop alone");
  app.add_option("--max-events", options.application.max_events,
                 "Bound of what is kept, 48 bytes each; later ones are counted")
      ->transform(programs::whole_number(1))
      ->capture_default_str();
  app.add_flag("--whole-graphs", options.application.whole_graphs,
               "Launches of graphs as wholes, and not their nodes: cheaper");
}

void add_dump_options(CLI::App& app, DumpOptions& dumps) {
  CLI::Option* const last = add_parsed(
      app, "--last", parse_time, dumps.last,
      "Keep this time until now alone, as 30s or 2min, for a program that runs for long. "
      "Report, findings and page of it are written at the program's end, at a StallError "
      "of penstock's, and whenever they are asked for");
  add_parsed(app, "--dump-signal", parse_signal, dumps.signal,
             "That asks for them, sent to penstock-trace or to the program: USR1, USR2 (default), "
             "HUP, RTMIN+1 ...")
      ->needs(last);
  app.add_option(
         "--dump-when", dumps.file,
         "A file that asks for them when it appears; it is removed. %h, %p and %r as in --out")
      ->needs(last);
}

void add_merge_options(CLI::App& app, Options& options) {
  MergeOptions& merged = options.merge;
  app.add_option("places", merged.places,
                 "Directories with a recording of each rank in them, or recordings")
      ->required();
  app.add_option("--out", options.directory, "Directory to write to, else the one that is given");
  app.add_option("--step", merged.step,
                 "Name of the NVTX range that is one step; else 'step', 'request', or penstock's "
                 "'next'");
  app.add_option("--samples-per-step", merged.samples_per_step, "Of one rank, for samples a second")
      ->check(programs::finite(0));
  app.add_flag("--quiet", merged.quiet, "Print nothing; write the files alone");
}

/// All words after "--" belong to the program.
std::vector<std::string> split_off_command(std::vector<std::string>& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes == words.end()) return {};
  std::vector<std::string> command(std::next(dashes), words.end());
  words.erase(dashes, words.end());
  return command;
}

int run_program(std::vector<std::string> words) {
  Options options;
  options.application.max_events = 4'000'000;
  std::vector<std::string> command = split_off_command(words);
  const bool command_is_given = !command.empty();

  CLI::App app(
      "Runs a program and shows where the time of its GPU went.\n"
      "  penstock-trace [options] -- ./app arguments\n"
      "  penstock-trace report trace.recording [options]\n"
      "  penstock-trace merge directory [options]",
      "penstock-trace");
  programs::add_version_flag(app);
  options.application.dumps.signal = SIGUSR2;
  add_trace_options(app, options);
  add_dump_options(app, options.application.dumps);
  add_result_options(app, options);
  app.prefix_command();
  CLI::App& again = *app.add_subcommand("report", "Shows a recording again");
  again.add_option("recording", options.recording, "A file that penstock-trace left")->required();
  again.add_option("--out", options.directory, "Directory to write to, else that of the recording");
  add_result_options(again, options);
  CLI::App& ranks = *app.add_subcommand("merge", "Shows recordings of a job's ranks together");
  add_merge_options(ranks, options);

  try {
    programs::parse(app, std::move(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongArguments;
  }
  if (again.parsed()) return report(options);
  if (ranks.parsed()) return merge_ranks(options);
  const std::vector<std::string> rest = app.remaining();
  if (command_is_given && !rest.empty())
    return complain("what is '" + rest.front() + "'? --help shows the options", kWrongArguments);
  options.application.command = command_is_given ? command : rest;
  if (options.application.command.empty())
    return complain("which program? penstock-trace [options] -- ./app arguments", kWrongArguments);
  if (options.application.command.front().front() == '-')
    return complain(
        "what is '" + options.application.command.front() + "'? --help shows the options",
        kWrongArguments);
  if (options.directory.empty()) options.directory = "penstock-trace-%h-%p-%r";
  return trace(options);
}

}  // namespace
}  // namespace penstock::trace::program

int main(int argc, char** argv) {
  using namespace penstock::trace::program;
  try {
    return run_program({argv + 1, argv + argc});
  } catch (const NotStarted& error) {
    return complain(error.what(), error.exit_code);
  } catch (const std::exception& error) {
    return complain(error.what(), kNothingRecorded);
  }
}
