// SPDX-License-Identifier: Apache-2.0
#pragma once

// Include it before any header of the library: then std::atomic, std::mutex, std::jthread and so on
// are in them, and in the rest of the file, those of this folder. Nothing else in the program may
// include those headers.

// Whatever of the standard library and of CUDA is used must have been read before the names change.
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cuda/std/mdspan>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <variant>
#include <vector>

#include "atomics.hpp"
#include "support/catch.hpp"
#include "threads.hpp"

namespace std {  // NOLINT(cert-dcl58-cpp): where the library looks for them

template <class T>
using weak_atomic = penstock::test::weak::Atomic<T>;
using weak_atomic_flag = penstock::test::weak::AtomicFlag;
using weak_mutex = penstock::test::weak::Mutex;
using weak_condition_variable = penstock::test::weak::ConditionVariable;
using weak_thread = penstock::test::weak::Thread;
using weak_jthread = penstock::test::weak::JoiningThread;
using weak_stop_token = penstock::test::weak::StopToken;
using weak_stop_source = penstock::test::weak::StopSource;
using penstock::test::weak::weak_stop_callback;

namespace weak_this_thread {
inline void yield() {
  penstock::test::weak::Execution::current()->step();
  penstock::test::weak::Execution::current()->yield();
}
}  // namespace weak_this_thread

}  // namespace std

inline std::size_t weak_pthread_self() {
  return penstock::test::weak::Execution::current()->self();
}

/// Fibers have no CPU time of their own.
inline int weak_pthread_getcpuclockid(std::size_t, clockid_t*) {
  return ENOENT;
}

#define PENSTOCK_DISABLE_NVTX
#define atomic weak_atomic
#define atomic_flag weak_atomic_flag
#define mutex weak_mutex
#define condition_variable weak_condition_variable
#define thread weak_thread
#define jthread weak_jthread
#define stop_token weak_stop_token
#define stop_source weak_stop_source
#define stop_callback weak_stop_callback
#define this_thread weak_this_thread
#define pthread_self weak_pthread_self
#define pthread_getcpuclockid weak_pthread_getcpuclockid
