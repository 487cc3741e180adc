// SPDX-License-Identifier: Apache-2.0
#include "dumps.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <iostream>
#include <penstock/trace/recording.hpp>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "inject/settings.hpp"
#include "programs/output_file.hpp"
#include "signal_names.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::program {

namespace {

namespace fs = std::filesystem;

constexpr int kPoliteness = 10;
constexpr int kFoundSome = 3, kFailed = 1;  // exit codes of a reporter

void complain(const std::string& what) {
  std::cerr << "penstock-trace: " << what << '\n';  // unbuffered
}

/// Runs in a process of its own, so that its memory returns to the system when it ends.
[[noreturn]] void report_and_exit(const fs::path& directory, const ResultOptions& options) {
  int exit_code = 0;
  try {
    [[maybe_unused]] const int niceness = ::nice(kPoliteness);
    if (write_results(load(directory / "trace.recording"), directory, options))
      exit_code = kFoundSome;
  } catch (const std::exception& error) {
    complain(error.what());
    exit_code = kFailed;
  }
  ::_exit(exit_code);
}

/// Whether the file is a finished dump such as "dump-20261123T071530Z-4711-2.recording".
bool is_dump(const fs::path& path) {
  return path.extension() == inject::kRecordingSuffix &&
         path.filename().string().starts_with(inject::kDumpPrefix);
}

}  // namespace

std::chrono::nanoseconds parse_time(const std::string& text) {
  struct Unit {
    std::string_view name;
    double nanoseconds;
  };
  constexpr std::array kUnits{Unit{"ms", 1e6}, Unit{"s", 1e9}, Unit{"min", 60e9},
                              Unit{"h", 3600e9}};
  constexpr double kLeast = 10e6, kMost = 24 * 3600e9;
  const std::string what = "'" + text + "' ";
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) throw std::invalid_argument(what + "is no time, as 30s is one");
  const std::string_view name(stop, static_cast<std::size_t>(end - stop));
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    const double time = number * unit.nanoseconds;
    if (!(time >= kLeast && time <= kMost))
      throw std::invalid_argument(what + "is not between 10ms and 24h");
    return std::chrono::nanoseconds(static_cast<std::int64_t>(time));
  }
  throw std::invalid_argument(what + (name.empty() ? "has no unit" : "has no unit that is known") +
                              ": ms, s, min or h, as in 30s");
}

int parse_signal(const std::string& text) {
  const int signal = detail::signal_of_name(text);
  if (signal == 0)
    throw std::invalid_argument("'" + text + "' is none of USR1, USR2, HUP, RTMIN+1 to RTMIN+15");
  return signal;
}

Dumps::Dumps(DumpOptions options, ResultOptions results)
    : options_(std::move(options)), results_(std::move(results)) {
  results_.quiet = true;
}

void Dumps::begin(const fs::path& directory, const fs::path& file) {
  directory_ = directory;
  file_ = file;
  if (file_.empty()) return;
  std::error_code none;
  const fs::file_type there = fs::symlink_status(file_, none).type();
  if (there == fs::file_type::regular && fs::remove(file_, none))
    complain(file_.string() + " was there before the program: removed, it asks for no dump");
  else if (there != fs::file_type::not_found)
    leave_file("it is no regular file");
}

void Dumps::leave_file(const std::string& why) {
  complain(file_.string() + " cannot be removed (" + why + "), so it asks for no dump any more");
  file_.clear();
}

void Dumps::ask(const std::string& cause) {
  try {
    fs::create_directories(directory_);
    programs::write_file(directory_ / inject::kRequest,
                         std::to_string(++requests_) + '\n' + cause + '\n',
                         programs::can_be_made_again);
  } catch (const std::exception& error) {
    complain("no dump for " + cause + ": " + error.what());
  }
}

/// Removes the file, so that it can be made again.
void Dumps::look_for_file() {
  if (file_.empty()) return;
  std::error_code error;
  const fs::file_status there = fs::symlink_status(file_, error);
  if (!fs::exists(there)) return;
  // A device, a pipe or a link may belong to another program.
  if (!fs::is_regular_file(there)) return leave_file("it is no regular file");
  if (::unlink(file_.c_str()) == 0) return ask("the file " + file_.string());
  if (errno != ENOENT)  // otherwise another penstock-trace was faster
    leave_file(std::error_code(errno, std::generic_category()).message());
}

void Dumps::look() {
  look_for_file();
  int status = 0;
  if (reporter_ != 0 && ::waitpid(reporter_, &status, WNOHANG) == reporter_) end_report(status);
  if (reporter_ == 0) start_next_report();
}

void Dumps::start_next_report() {
  std::error_code none;
  std::set<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, none))
    if (is_dump(entry.path()) && !refused_.contains(entry.path())) found.insert(entry.path());
  if (!found.empty()) start_report(*found.begin());
}

void Dumps::start_report(const fs::path& recording) {
  const fs::path directory = directory_ / recording.stem();
  std::error_code error;
  fs::create_directory(directory, error);
  if (!error) fs::rename(recording, directory / "trace.recording", error);
  if (error) {
    complain(recording.string() + " stays as it is: " + error.message());
    refused_.insert(recording);
    return;
  }
  ++count_;
  std::cerr.flush();
  const ::pid_t process = ::fork();
  if (process == 0) report_and_exit(directory, results_);
  if (process < 0) return complain(directory.string() + ": no report of it, fork failed");
  reporter_ = process;
  reported_ = directory;
}

void Dumps::end_report(int status) {
  reporter_ = 0;
  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
  found_ = found_ || exit_code == kFoundSome;
  if (exit_code == 0 || exit_code == kFoundSome)
    complain((reported_ / "trace.html").string());
  else
    complain("no report of " + (reported_ / "trace.recording").string());
}

void Dumps::end() {
  std::error_code none;
  fs::remove(directory_ / inject::kRequest, none);
  file_.clear();
  do {
    if (int status = 0; reporter_ != 0 && ::waitpid(reporter_, &status, 0) == reporter_)
      end_report(status);
    reporter_ = 0;
    start_next_report();
  } while (reporter_ != 0);
}

}  // namespace penstock::trace::program
