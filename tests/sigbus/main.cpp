// SPDX-License-Identifier: Apache-2.0

// Each scenario runs in a child process, whose end is looked at: its exit status, or the signal
// that killed it. Without a framework: between fork and exit there is only what the scenario does.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <penstock/record_file.hpp>
#include <string>

namespace {

constexpr int kGood = 42;  // the exit status of a scenario that ended as it should

const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "  not so: %s\n", what);
  std::_Exit(1);
}

std::string new_file() {
  std::string path = (std::filesystem::temp_directory_path() / "penstock_XXXXXX").string();
  const int file = ::mkstemp(path.data());
  require(file >= 0 && ::ftruncate(file, static_cast<off_t>(4 * page)) == 0, "there is a file");
  ::close(file);
  return path;
}

/// Mapped by the program itself, at `place` if there is one; its only page is lost.
volatile char* foreign_lost_page(void* place = nullptr) {
  const std::string path = new_file();
  const int file = ::open(path.c_str(), O_RDWR);
  const int flags = MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED);
  void* memory = ::mmap(place, page, PROT_READ, flags, file, 0);
  require(memory != MAP_FAILED && ::ftruncate(file, 0) == 0, "there is a lost page");
  ::close(file);
  ::unlink(path.c_str());
  return static_cast<volatile char*>(memory);
}

void read_foreign_lost_page() {
  [[maybe_unused]] const char byte = foreign_lost_page()[7];
}

/// Reads a record that is lost: makes penstock's handler be there, and work.
bool lost_record_is_an_error() {
  const std::string path = new_file();
  const penstock::RecordFile records{{path}, page};
  std::filesystem::resize_file(path, page);
  ::unlink(path.c_str());
  try {
    static_cast<void>(records[2]);
  } catch (const penstock::RecordFileError& error) {
    return error.record() == 2;
  }
  return false;
}

void set_handler(void (*handler)(int, siginfo_t*, void*), int flags = 0, int blocked = 0,
                 struct sigaction* before = nullptr) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigemptyset(&action.sa_mask);
  if (blocked != 0) sigaddset(&action.sa_mask, blocked);
  require(::sigaction(SIGBUS, &action, before) == 0, "the handler is set");
}

// ---- Handlers of the program's own
// ---------------------------------------------------------------

volatile sig_atomic_t calls = 0;
volatile char* expected_page = nullptr;
sigjmp_buf escape;
std::array<char, 65536> alternate_stack;
struct sigaction before_mine {};

bool is_expected(const siginfo_t* info) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  return address / page == reinterpret_cast<std::uintptr_t>(expected_page) / page;
}
void exit_good(int, siginfo_t* info, void*) {
  std::_Exit(is_expected(info) ? kGood : 2);
}
void exit_good_plain(int) {
  std::_Exit(kGood);
}
void count(int, siginfo_t*, void*) {
  calls = calls + 1;
}
void jump_out(int, siginfo_t*, void*) {
  calls = calls + 1;
  siglongjmp(escape, 1);
}
void exit_good_if_masked(int, siginfo_t*, void*) {
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  std::_Exit(sigismember(&blocked, SIGUSR1) == 1 ? kGood : 2);
}
void exit_good_if_on_alternate_stack(int, siginfo_t*, void*) {
  const char here = 0;
  const char* const first = alternate_stack.data();
  std::_Exit(&here >= first && &here < first + alternate_stack.size() ? kGood : 2);
}
/// As a program does that knows some of its own faults, and passes on the others.
void count_and_pass_on(int signal, siginfo_t* info, void* context) {
  calls = calls + 1;
  if (is_expected(info)) std::_Exit(kGood);
  before_mine.sa_sigaction(signal, info, context);
}

// ---- Scenarios
// -----------------------------------------------------------------------------------

void default_and_foreign_access() {
  require(lost_record_is_an_error(), "the lost record is an error");
  read_foreign_lost_page();
}
void default_and_sent_signal() {
  require(lost_record_is_an_error(), "the lost record is an error");
  ::kill(::getpid(), SIGBUS);
}
void default_and_foreign_access_where_a_record_was() {
  const std::string path = new_file();
  void* place = nullptr;
  {
    const penstock::RecordFile records{{path}, page};
    place = const_cast<std::byte*>(records[0].data());
  }
  ::unlink(path.c_str());
  [[maybe_unused]] const char byte = *foreign_lost_page(place);
}
void ignored_and_sent_signal() {
  ::signal(SIGBUS, SIG_IGN);
  require(lost_record_is_an_error(), "the lost record is an error");
  ::raise(SIGBUS);
  std::_Exit(kGood);
}
void ignored_and_foreign_access() {
  ::signal(SIGBUS, SIG_IGN);
  require(lost_record_is_an_error(), "the lost record is an error");
  read_foreign_lost_page();
}
void earlier_handler_gets_foreign_access() {
  set_handler(&exit_good);
  require(lost_record_is_an_error(), "the lost record is an error");
  expected_page = foreign_lost_page();
  [[maybe_unused]] const char byte = expected_page[7];
}
void earlier_plain_handler_gets_sent_signal() {
  ::signal(SIGBUS, &exit_good_plain);
  require(lost_record_is_an_error(), "the lost record is an error");
  ::raise(SIGBUS);
}
void earlier_handler_jumps_out() {
  set_handler(&jump_out);
  require(lost_record_is_an_error(), "the lost record is an error");
  for (int i = 0; i < 3; ++i)
    if (sigsetjmp(escape, 1) == 0) read_foreign_lost_page();
  require(lost_record_is_an_error(), "the lost record is an error");
  std::_Exit(calls == 3 ? kGood : 2);
}
void earlier_handler_has_its_mask() {
  set_handler(&exit_good_if_masked, 0, SIGUSR1);
  require(lost_record_is_an_error(), "the lost record is an error");
  ::raise(SIGBUS);
}
void earlier_handler_for_once() {
  set_handler(&count, static_cast<int>(SA_RESETHAND));
  require(lost_record_is_an_error(), "the lost record is an error");
  read_foreign_lost_page();  // It returns, so the access is made again.
}
void later_handler_passes_on() {
  require(lost_record_is_an_error(), "the lost record is an error");
  set_handler(&count_and_pass_on, 0, 0, &before_mine);
  require(lost_record_is_an_error(), "the lost record is still an error");
  require(calls == 1, "the program's handler saw the signal first");
  expected_page = foreign_lost_page();
  [[maybe_unused]] const char byte = expected_page[7];
}
void later_handler_gets_all() {
  require(lost_record_is_an_error(), "the lost record is an error");
  set_handler(&jump_out);
  if (sigsetjmp(escape, 1) == 0) lost_record_is_an_error();
  std::_Exit(calls == 1 ? kGood : 2);
}
void alternate_stack_is_used() {
  stack_t stack{};
  stack.ss_sp = alternate_stack.data();
  stack.ss_size = alternate_stack.size();
  require(::sigaltstack(&stack, nullptr) == 0, "there is an alternate stack");
  set_handler(&exit_good_if_on_alternate_stack);
  require(lost_record_is_an_error(), "the lost record is an error");
  read_foreign_lost_page();
}

// ---- Shared libraries
// ----------------------------------------------------------------------------

bool lost_record_is_an_error_in(void* library) {
  const std::string path = new_file();
  const auto function =
      reinterpret_cast<bool (*)(const char*)>(::dlsym(library, "lost_record_is_an_error"));
  require(function != nullptr, "the library has its function");
  const bool result = function(path.c_str());
  ::unlink(path.c_str());
  return result;
}
void* open_library(const char* path) {
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::fprintf(stderr, "  %s\n", ::dlerror());
  require(library != nullptr, "the library is there");
  return library;
}

void two_libraries_side_by_side() {
  void* const one = open_library(LIBRARY_ONE);
  void* const two = open_library(LIBRARY_TWO);
  for (int i = 0; i < 3; ++i) {
    require(lost_record_is_an_error_in(one), "the lost record is an error in library one");
    require(lost_record_is_an_error_in(two), "the lost record is an error in library two");
    require(lost_record_is_an_error(), "the lost record is an error in the program");
  }
  read_foreign_lost_page();
}
void library_was_closed() {
  void* const one = open_library(LIBRARY_ONE);
  require(lost_record_is_an_error_in(one), "the lost record is an error in library one");
  require(::dlclose(one) == 0, "the library is closed");
  require(lost_record_is_an_error(), "the lost record is an error in the program");
  read_foreign_lost_page();
}
void program_handler_is_last_of_all() {
  set_handler(&exit_good);
  require(lost_record_is_an_error_in(open_library(LIBRARY_ONE)), "an error in library one");
  require(lost_record_is_an_error_in(open_library(LIBRARY_TWO)), "an error in library two");
  expected_page = foreign_lost_page();
  [[maybe_unused]] const char byte = expected_page[7];
}

// ---- Running them
// --------------------------------------------------------------------------------

struct Scenario {
  const char* name;
  void (*run)();
  bool killed;  // by SIGBUS; false: exits with kGood
};

constexpr Scenario scenarios[] = {
    {"no handler, foreign access: killed", default_and_foreign_access, true},
    {"no handler, foreign access where a record was: killed",
     default_and_foreign_access_where_a_record_was, true},
    {"no handler, sent signal: killed", default_and_sent_signal, true},
    {"ignored, sent signal: goes on", ignored_and_sent_signal, false},
    {"ignored, foreign access: killed", ignored_and_foreign_access, true},
    {"earlier handler, foreign access: called", earlier_handler_gets_foreign_access, false},
    {"earlier plain handler, sent signal: called", earlier_plain_handler_gets_sent_signal, false},
    {"earlier handler that jumps out: called each time", earlier_handler_jumps_out, false},
    {"earlier handler with a mask: called under it", earlier_handler_has_its_mask, false},
    {"earlier handler for once (SA_RESETHAND): then killed", earlier_handler_for_once, true},
    {"later handler that passes on: both work", later_handler_passes_on, false},
    {"later handler that does not: gets all", later_handler_gets_all, false},
    {"alternate signal stack: used", alternate_stack_is_used, false},
    {"two libraries and the program: each its own, then killed", two_libraries_side_by_side, true},
    {"library was closed: still killed by SIGBUS", library_was_closed, true},
    {"handler from before two libraries: called", program_handler_is_last_of_all, false},
};

bool ends_as_it_should(const Scenario& scenario) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGBUS, SIG_DFL);  // Sanitizers have a handler of their own.
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::alarm(60);
    scenario.run();
    std::_Exit(3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const bool good = scenario.killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS
                                    : WIFEXITED(status) && WEXITSTATUS(status) == kGood;
  std::printf("%s  %s (wait status %#x)\n", good ? "good " : "WRONG", scenario.name,
              static_cast<unsigned>(status));
  std::fflush(stdout);
  return good;
}

}  // namespace

int main() {
  bool good = true;
  for (const Scenario& scenario : scenarios) good &= ends_as_it_should(scenario);
  return good ? 0 : 1;
}
