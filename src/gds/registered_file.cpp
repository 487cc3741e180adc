// SPDX-License-Identifier: Apache-2.0

#include "registered_file.hpp"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <penstock/cuda.hpp>
#include <system_error>

#include "compatibility.hpp"

namespace penstock::inline PENSTOCK_ABI::gds::detail {
namespace {

/// Throws GdsError for a file of another machine, before cuFile is loaded.
const std::string& local_name(const File& file) {
  if (file.descriptor() >= 0) return file.name();
  throw GdsError(file.name() +
                 ": it is not a file of this machine, and cuFile reads no other: read it by its "
                 "store, or copy it to a file system of this machine");
}

/// cuFile looks for a file's drive in the database of udev, which few containers have.
std::string why_no_drive() {
  if (::access("/run/udev/data", F_OK) == 0) return {};
  return "; it asks udev for the drive, and there is no /run/udev/data: mount the machine's "
         "/run/udev in this container (docker run -v /run/udev:/run/udev:ro)";
}

}  // namespace

RegisteredFile::RegisteredFile(const File& file, const GdsOptions& options)
    : name_(local_name(file)), size_(file.size()), driver_(options.library) {
  open(file);
  struct statfs system {};
  if (::fstatfs(file_.descriptor(), &system) != 0)
    fail("statfs: " + std::generic_category().message(errno));
  why_compatible_ = gds::why_compatible(driver_, static_cast<long>(system.f_type), is_past_cache_);
  if (!why_compatible_.empty() && !options.allow_compatibility_mode)
    fail("cuFile would read it in its compatibility mode, through host memory: " + why_compatible_ +
         ". Read it by its store and a ReadQueue (RecordFile::read_many_into), which do not need "
         "cuFile for that; or set GdsOptions::allow_compatibility_mode");
  register_handle();
}

RegisteredFile::~RegisteredFile() {
  const CaptureModeGuard guard;
  if (driver_.is_own()) driver_.calls().cuFileHandleDeregister(handle_);
}

void RegisteredFile::open(const File& file) {
  const std::string path = "/proc/self/fd/" + std::to_string(file.descriptor());
  file_ = penstock::detail::OpenFile(path.c_str(), O_RDONLY | O_DIRECT);
  if (file_.is_open()) return;
  is_past_cache_ = false;
  file_ = penstock::detail::OpenFile(path.c_str(), O_RDONLY);
  if (!file_.is_open())
    fail("it cannot be opened once more for cuFile: " + std::generic_category().message(errno));
}

void RegisteredFile::register_handle() {
  const CaptureModeGuard guard;
  cufile::Descriptor descriptor{};
  descriptor.type = cufile::kOfDescriptor;
  descriptor.number = file_.descriptor();
  const cufile::Status status = driver_.calls().cuFileHandleRegister(&handle_, &descriptor);
  if (status.error != 0) fail("cuFile does not take it: " + cufile_error(status) + why_no_drive());
}

void RegisteredFile::require_own() const {
  if (!driver_.is_own())
    fail(
        "it was opened before fork(), and cuFile cannot be used by the child: open a GdsFile in "
        "the process that reads");
}

std::size_t RegisteredFile::read(std::uint64_t offset, void* target, std::size_t bytes) const {
  require_own();
  const CaptureModeGuard guard;
  const std::size_t wanted = available(offset, bytes);
  std::size_t done = 0;
  while (done < wanted) {
    const ::ssize_t result =
        driver_.calls().cuFileRead(handle_, target, wanted - done,
                                   static_cast<::off_t>(offset + done), static_cast<::off_t>(done));
    if (result == -1 && errno == EINTR) continue;
    if (result < 0 || static_cast<std::size_t>(result) > wanted - done)
      fail("cuFile cannot read " + std::to_string(wanted - done) + " bytes at byte " +
           std::to_string(offset + done) + ": " + cufile_read_error(result, errno));
    if (result == 0) break;
    done += static_cast<std::size_t>(result);
  }
  return done;
}

}  // namespace penstock::gds::detail
