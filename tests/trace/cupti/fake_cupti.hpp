// SPDX-License-Identifier: Apache-2.0
#pragma once

// A CUPTI and a driver that do what a test says, for the backend over CUPTI where there is no GPU:
// libraries with the sonames of the real ones, which the process has when the backend looks.
// They stand for what the documentation of CUPTI promises, not for what it does.

#include <cupti.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::test::fake {

/// A call of the runtime's or the driver's API on this thread: its callbacks, `body` between them.
/// `number` is its correlation; 0 takes the next one. Returns it.
std::uint32_t call(CUpti_CallbackDomain domain, std::uint32_t id, std::uint32_t result = 0,
                   const std::function<void()>& body = {}, std::uint32_t number = 0);
inline std::uint32_t runtime_call(std::uint32_t id, const std::function<void()>& body = {}) {
  return call(CUPTI_CB_DOMAIN_RUNTIME_API, id, 0, body);
}
inline std::uint32_t driver_call(std::uint32_t id, const std::function<void()>& body = {}) {
  return call(CUPTI_CB_DOMAIN_DRIVER_API, id, 0, body);
}

/// The device did something: it is written into a buffer, unless its kind is not enabled.
template <class Record>
void record(const Record& what);
void record(const void* what, std::size_t bytes);
template <class Record>
void record(const Record& what) {
  record(&what, sizeof(Record));
}
/// Hands the buffer that is being written to the backend, on this thread.
void deliver();
/// So many records had no room in buffers.
void drop(std::size_t records);

/// Somebody else holds the subscription; empty: nobody.
void hold_subscription(const std::string& holder);
/// What cuInit answers from now on.
void set_driver(CUresult answer);

bool is_subscribed();
bool is_enabled(CUpti_ActivityKind kind);
/// How often the clock was registered, in this process.
int clock_registrations();
/// How often a context was waited for.
int synchronisations();
/// How much memory is taken on each device from now on.
void set_memory_taken(std::size_t bytes);
/// How often the driver was asked for that.
int memory_questions();
/// Which streams the driver was asked for, since this was asked.
std::vector<CUstream> take_asked_streams();

}  // namespace penstock::test::fake
