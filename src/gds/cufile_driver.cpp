// SPDX-License-Identifier: Apache-2.0

#include "cufile_driver.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <penstock/gds/gds_error.hpp>

namespace penstock::inline PENSTOCK_ABI::gds {

struct CufileDriver::Opened {
  explicit Opened(const std::string& file) : calls(file) {}

  /// Called with the lock held.
  void open() {
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
