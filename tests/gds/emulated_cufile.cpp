// SPDX-License-Identifier: Apache-2.0

#include "emulated_cufile.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gds/cufile.hpp"

namespace penstock::test {

CufileSettings& cufile_settings() {
  static CufileSettings settings;
  return settings;
}
CufileCounts& cufile_counts() {
  static CufileCounts counts;
  return counts;
}

namespace {

using namespace penstock::gds::cufile;

/// A registered file. Its own descriptor may be past the page cache, where system calls want
/// aligned memory, as cuFile has.
struct Registered {
  explicit Registered(int number)
      : descriptor(::open(("/proc/self/fd/" + std::to_string(number)).c_str(), O_RDONLY)) {}
  ~Registered() { ::close(descriptor); }
  int descriptor;
};

/// As cuFileRead.
::ssize_t read(Handle handle, void* memory, std::size_t bytes, ::off_t offset) {
  CufileSettings& settings = cufile_settings();
  const auto first = static_cast<std::uint64_t>(offset);
  bytes = std::min(bytes, settings.most_bytes);
  if (first <= settings.bad_byte && settings.bad_byte - first < bytes) {
    if (settings.read_error >= 5000) return -settings.read_error;
    errno = settings.read_error;
    return -1;
  }
  if (settings.lies) return static_cast<::ssize_t>(bytes) + 1;
  std::vector<char> bounce(bytes);
  const ::ssize_t result =
      ::pread(static_cast<Registered*>(handle)->descriptor, bounce.data(), bytes, offset);
  if (result > 0) std::memcpy(memory, bounce.data(), static_cast<std::size_t>(result));
  return result;
}

/// Reads on a thread of its own, the last request first.
struct Batch {
  explicit Batch(unsigned depth) : most(depth) {}

  void run(std::vector<BatchRequest> requests) {
    const auto count = static_cast<int>(requests.size());
    in_flight += count;
    cufile_counts().in_flight += count;
    thread = std::jthread([this, requests = std::move(requests)] {
      for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
        if (cufile_settings().is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ::ssize_t result = read(request->file, request->batch.memory, request->batch.bytes,
                                request->batch.file_offset);
        if (result == -1) result = -errno;
        const std::lock_guard lock(mutex);
        // Status and result of what fails are as cuFile's are documented.
        events.push_back(
            {request->cookie, result < 0 ? 64 : kComplete, static_cast<std::size_t>(result)});
        --in_flight;
        --cufile_counts().in_flight;
        changed.notify_all();
      }
    });
  }

  const unsigned most;
  std::atomic<int> in_flight{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<BatchEvent> events;
  std::jthread thread;
};

Status status(int error) {
  return {error, 0};
}

}  // namespace
}  // namespace penstock::test

// NOLINTBEGIN(readability-identifier-naming): they are cuFile's names
extern "C" {

using namespace penstock::test;
using penstock::gds::cufile::BatchEvent;
using penstock::gds::cufile::BatchHandle;
using penstock::gds::cufile::BatchRequest;
using penstock::gds::cufile::Descriptor;
using penstock::gds::cufile::Handle;
using penstock::gds::cufile::Properties;
using penstock::gds::cufile::Status;

Status cuFileDriverOpen() {
  ++cufile_counts().opened;
  if (cufile_settings().open_error == 0) ++cufile_counts().open;
  return status(cufile_settings().open_error);
}
Status cuFileDriverClose_v2() {
  --cufile_counts().open;
  return status(0);
}
Status cuFileDriverGetProperties(Properties* properties) {
  const CufileSettings& settings = cufile_settings();
  *properties = {};
  if (settings.has_module) properties->major_version = 2;
  if (settings.has_p2p) properties->features = penstock::gds::cufile::kP2p;
  properties->file_systems = settings.file_systems;
  properties->most_in_batch = settings.most_in_batch;
  return status(settings.properties_error);
}
Status cuFileGetParameterBool(int, bool* value) {
  *value = cufile_settings().forces_compatibility;
  return status(0);
}

Status cuFileHandleRegister(Handle* handle, Descriptor* descriptor) {
  if (cufile_settings().register_error != 0) return status(cufile_settings().register_error);
  *handle = new Registered(descriptor->number);
  ++cufile_counts().registered;
  return status(0);
}
void cuFileHandleDeregister(Handle handle) {
  delete static_cast<Registered*>(handle);
  --cufile_counts().registered;
}

::ssize_t cuFileRead(Handle handle, void* memory, std::size_t bytes, ::off_t offset,
                     ::off_t memory_offset) {
  ++cufile_counts().reads;
  if (cufile_settings().interruptions > 0) {
    --cufile_settings().interruptions;
    errno = EINTR;
    return -1;
  }
  return read(handle, static_cast<char*>(memory) + memory_offset, bytes, offset);
}

Status cuFileBatchIOSetUp(BatchHandle* handle, unsigned most) {
  if (cufile_settings().batch_error != 0) return status(cufile_settings().batch_error);
  if (most > cufile_settings().most_in_batch) return status(5022);
  *handle = new Batch(most);
  ++cufile_counts().batches;
  return status(0);
}
Status cuFileBatchIOSubmit(BatchHandle handle, unsigned count, BatchRequest* requests, unsigned) {
  auto* const batch = static_cast<Batch*>(handle);
  if (cufile_settings().submit_error != 0) return status(cufile_settings().submit_error);
  if (count > batch->most || batch->in_flight > 0) return status(5022);
  ++cufile_counts().submitted;
  batch->run({requests, requests + count});
  return status(0);
}
Status cuFileBatchIOGetStatus(BatchHandle handle, unsigned least, unsigned* count,
                              BatchEvent* events, ::timespec*) {
  auto* const batch = static_cast<Batch*>(handle);
  if (cufile_settings().status_error != 0) return status(cufile_settings().status_error);
  std::unique_lock lock(batch->mutex);
  batch->changed.wait(lock, [&] { return batch->events.size() >= least; });
  *count = std::min(*count, static_cast<unsigned>(batch->events.size()));
  std::copy_n(batch->events.begin(), *count, events);
  batch->events.erase(batch->events.begin(), batch->events.begin() + *count);
  return status(0);
}
Status cuFileBatchIOCancel(BatchHandle) {
  ++cufile_counts().cancelled;
  return status(0);
}
void cuFileBatchIODestroy(BatchHandle handle) {
  delete static_cast<Batch*>(handle);  // waits for its thread
  --cufile_counts().batches;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
