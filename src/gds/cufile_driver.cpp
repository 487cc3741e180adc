// SPDX-License-Identifier: Apache-2.0

#include "cufile_driver.hpp"

#include <cuda_runtime_api.h>
#include <sys/types.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <penstock/error.hpp>
#include <penstock/gds/gds_error.hpp>

extern "C" [[gnu::weak]] void penstock_runtime_emulated();  // defined only in penstock::emulated

namespace penstock::inline PENSTOCK_ABI::gds {
namespace {

/// Makes the context of the current device current on this thread, as cuFile needs it. On a machine
/// without a driver and without /proc/modules, cuFile 1.20 looked for a line of that file for ever.
void prepare_to_open() {
  int device = 0;
  penstock::detail::check(cudaGetDevice(&device), "cudaGetDevice");
  penstock::detail::check(cudaSetDevice(device), "cudaSetDevice", device);
  if (penstock_runtime_emulated == nullptr && ::access("/proc/modules", R_OK) != 0)
    throw GdsError(
        "cuFile looks for its kernel module in /proc/modules, which this process cannot read: read "
        "by a store and a ReadQueue, or let the container have /proc/modules");
}

}  // namespace

struct CufileDriver::Opened {
  explicit Opened(const std::string& file) : calls(file) {}

  /// Called with the lock held.
  void open() {
    prepare_to_open();
    const cufile::Status status = calls.cuFileDriverOpen();
    if (status.error != 0 && status.error != cufile::kAlreadyOpen)
      throw GdsError("cuFile cannot be opened: " + cufile_error(status));
    has_opened = status.error == 0;
    process = ::getpid();
    properties = {};
    const cufile::Status known = calls.cuFileDriverGetProperties(&properties);
    if (known.error == 0) return;
    close();
    throw GdsError("cuFile does not tell its properties: " + cufile_error(known));
  }
  void close() const {
    if (has_opened) calls.cuFileDriverClose_v2();
  }

  CufileLibrary calls;
  cufile::Properties properties{};
  int users = 0;
  bool has_opened = false;  // Somebody else of the process may have opened it.
  ::pid_t process = 0;

  /// Guards `users`, and the opening and closing.
  static std::mutex& lock() {
    static std::mutex mutex;
    return mutex;
  }
};

CufileDriver::CufileDriver(const std::string& library) {
  // They are not destroyed at exit: threads may still use them.
  static auto& all = *new std::map<std::string, std::unique_ptr<Opened>, std::less<>>;
  const std::lock_guard lock(Opened::lock());
  std::unique_ptr<Opened>& opened = all[library];
  if (!opened) opened = std::make_unique<Opened>(library);
  if (opened->users == 0)
    opened->open();
  else if (opened->process != ::getpid())
    throw GdsError(
        "cuFile was opened before fork(), and cannot be used by the child: open GdsFiles in the "
        "process that reads them");
  ++opened->users;
  opened_ = opened.get();
}

CufileDriver::CufileDriver(const CufileDriver& other) : opened_(other.opened_) {
  const std::lock_guard lock(Opened::lock());
  ++opened_->users;
}

CufileDriver::~CufileDriver() {
  const std::lock_guard lock(Opened::lock());
  if (--opened_->users == 0 && is_own()) opened_->close();
}

const CufileLibrary& CufileDriver::calls() const noexcept {
  return opened_->calls;
}
const cufile::Properties& CufileDriver::properties() const noexcept {
  return opened_->properties;
}
bool CufileDriver::is_own() const noexcept {
  return opened_->process == ::getpid();
}

}  // namespace penstock::gds
