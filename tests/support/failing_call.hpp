// SPDX-License-Identifier: Apache-2.0
#pragma once

// While one lives, one call of the C library fails on the thread that made it, as on a bad disk:
//
//   const FailingCall failing("fsync", EIO, 2);  // the second one from here on
//
// For the functions that are defined below. Include it in one file of a program.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <string_view>

namespace penstock::test {

class FailingCall {
 public:
  /// No error (0) is the end of the file.
  FailingCall(std::string_view function, int error, int number = 1)
      : function_(function), error_(error), left_(number) {
    only_ = this;
  }
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;
  ~FailingCall() { only_ = nullptr; }

  /// Whether the call came.
  bool has_failed() const { return left_ <= 0; }

  static bool is(std::string_view function) {
    if (only_ == nullptr || only_->function_ != function || --only_->left_ != 0) return false;
    errno = only_->error_;
    return true;
  }

 private:
  static inline thread_local FailingCall* only_ = nullptr;

  const std::string_view function_;
  const int error_;
  int left_;
};

/// The C library's own.
template <class Function>
Function* next_function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace penstock::test

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const function = penstock::test::next_function<int(const char*, int, ...)>("open");
  std::va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, ::mode_t);  // Whatever lies there, where it has no meaning.
  va_end(arguments);
  return penstock::test::FailingCall::is("open") ? -1 : function(path, flags, mode);
}

int fstat(int descriptor, struct stat* status) noexcept {
  static auto* const function = penstock::test::next_function<int(int, struct stat*)>("fstat");
  return penstock::test::FailingCall::is("fstat") ? -1 : function(descriptor, status);
}

::ssize_t pread(int descriptor, void* target, std::size_t bytes, ::off_t offset) {
  static auto* const function =
      penstock::test::next_function<::ssize_t(int, void*, std::size_t, ::off_t)>("pread");
  if (penstock::test::FailingCall::is("pread")) return errno == 0 ? 0 : -1;
  return function(descriptor, target, bytes, offset);
}

::ssize_t pwrite(int descriptor, const void* source, std::size_t bytes, ::off_t offset) {
  static auto* const function =
      penstock::test::next_function<::ssize_t(int, const void*, std::size_t, ::off_t)>("pwrite");
  if (penstock::test::FailingCall::is("pwrite")) return -1;
  return function(descriptor, source, bytes, offset);
}

int ftruncate(int descriptor, ::off_t bytes) noexcept {
  static auto* const function = penstock::test::next_function<int(int, ::off_t)>("ftruncate");
  return penstock::test::FailingCall::is("ftruncate") ? -1 : function(descriptor, bytes);
}

int fsync(int descriptor) {
  static auto* const function = penstock::test::next_function<int(int)>("fsync");
  return penstock::test::FailingCall::is("fsync") ? -1 : function(descriptor);
}

dirent* readdir(DIR* stream) {
  static auto* const function = penstock::test::next_function<dirent*(DIR*)>("readdir");
  return penstock::test::FailingCall::is("readdir") ? nullptr : function(stream);
}

}  // extern "C"
