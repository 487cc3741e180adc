// SPDX-License-Identifier: Apache-2.0
#pragma once

// A second process that uses CUDA, which a test tells what to do. It is this program again, with
// the one test case that `serve` is for.
//
//   OtherProcess other;
//   CHECK(other.open_memory(0, handle) == cudaSuccess);
//   CHECK(other.read(0) == 7);
//
// A number names memory or an event that the other process holds. It has one stream.

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "handles.hpp"
#include "memory.hpp"

namespace penstock::test {

/// Name of the test case that serves.
inline constexpr const char* kOtherProcess = "the other process";

/// Flags of an event that another process can open.
inline constexpr unsigned kInterprocess = cudaEventInterprocess | cudaEventDisableTiming;

using HandleBytes = std::array<char, 64>;  // of memory, an event or a pointer of a pool

class OtherProcess {
 public:
  enum class Do : int {
    open_memory,
    close_memory,
    read,
    queue_read,
    fill,
    describe,
    allocate,
    free,
    open_event,
    create_event,
    destroy_event,
    record,
    wait,
    query_event,
    synchronize_event,
    query_stream,
    synchronize_stream,
    hold,
    let_go,
    import_pool,
    import_pointer,
    free_async,
    allocate_from_pool,
    set_pool,
    destroy_pool,
    kill,
  };
  struct Answer {
    cudaError_t status = cudaSuccess;
    int value = 0;
    HandleBytes bytes{};
  };

  OtherProcess() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    std::string setting = std::string(kSetting) + "=" + std::to_string(ends[1]);
    std::vector<char*> environment{setting.data()};
    for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe", test = kOtherProcess, to = "-o", nowhere = "/dev/null";
    std::array<char*, 5> arguments{program.data(), test.data(), to.data(), nowhere.data(), nullptr};
    REQUIRE(::posix_spawn(&process_, program.c_str(), nullptr, nullptr, arguments.data(),
                          environment.data()) == 0);
    ::close(ends[1]);
    socket_ = ends[0];
  }
  ~OtherProcess() {
    const int status = end();
    if (!killed_ && status != 0) FAIL_CHECK("the other process ended with status " << status);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  /// Blocks until it is done.
  Answer ask(Do what, int number = 0, int value = 0, const HandleBytes& bytes = {}) {
    send(what, number, value, bytes);
    return answer();
  }
  void send(Do what, int number = 0, int value = 0, const HandleBytes& bytes = {}) {
    const Request request{what, number, value, bytes};
    REQUIRE(::send(socket_, &request, sizeof request, MSG_NOSIGNAL) == sizeof request);
  }
  Answer answer() {
    Answer answer;
    REQUIRE(::recv(socket_, &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    return answer;
  }
  /// Whether an answer is there.
  bool answered() const {
    char byte = 0;
    return ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }

  template <class Handle>
  static HandleBytes bytes_of(const Handle& handle) {
    static_assert(sizeof(Handle) == sizeof(HandleBytes));
    HandleBytes bytes;
    std::memcpy(bytes.data(), &handle, sizeof bytes);
    return bytes;
  }
  template <class Handle>
  static Handle handle_of(const HandleBytes& bytes) {
    Handle handle;
    std::memcpy(&handle, bytes.data(), sizeof handle);
    return handle;
  }

  cudaError_t open_memory(int number, const cudaIpcMemHandle_t& handle) {
    return ask(Do::open_memory, number, 0, bytes_of(handle)).status;
  }
  cudaError_t close_memory(int number) { return ask(Do::close_memory, number).status; }
  /// The first number of the memory, by a copy and a wait in its stream.
  Answer read(int number, int index = 0) { return ask(Do::read, number, index); }
  /// Queues a fill of the first 4 bytes.
  cudaError_t fill(int number, int byte) { return ask(Do::fill, number, byte).status; }
  cudaError_t open_event(int number, const cudaIpcEventHandle_t& handle) {
    return ask(Do::open_event, number, 0, bytes_of(handle)).status;
  }
  cudaError_t status_of(Do what, int number = 0) { return ask(what, number).status; }

  /// Sends a descriptor with the next request.
  Answer import_pool(int descriptor) {
    send(Do::import_pool);
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    REQUIRE(::sendmsg(socket_, &message, 0) == 1);
    return answer();
  }

  /// Ends it as a crash does, and waits until it has ended.
  void kill() {
    killed_ = true;
    ::kill(process_, SIGKILL);
    end();
  }
  /// The same, but it stays a process that has ended until this one looks.
  void kill_unseen() {
    killed_ = true;
    ::kill(process_, SIGKILL);
  }
  /// Lets it end; its exit status.
  int end() {
    if (process_ == 0) return 0;
    ::close(socket_);
    int status = 0;
    ::waitpid(std::exchange(process_, 0), &status, 0);
    return status;
  }

  /// What the other process does: to be called by the test case of that name.
  static void serve() {
    const char* const setting = std::getenv(kSetting);  // NOLINT(concurrency-mt-unsafe)
    if (setting == nullptr) return;                     // Somebody runs all hidden tests.
    Server(std::atoi(setting)).run();                   // NOLINT(cert-err34-c)
  }

 private:
  static constexpr const char* kSetting = "PENSTOCK_TEST_SOCKET";

  struct Request {
    Do what;
    int number, value;
    HandleBytes bytes;
  };

  class Server {
   public:
    explicit Server(int socket) : socket_(socket), host_(1) {}
    void run() {
      ::fcntl(socket_, F_SETFD, FD_CLOEXEC);
      Request request{};
      while (::recv(socket_, &request, sizeof request, MSG_WAITALL) == sizeof request) {
        Answer answer;
        answer.status = serve(request, answer);
        cudaGetLastError();
        if (::send(socket_, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) break;
      }
      held_ = false;
    }

   private:
    cudaError_t serve(const Request& request, Answer& answer) {
      void*& memory = memory_.at(static_cast<std::size_t>(request.number));
      cudaEvent_t& event = events_.at(static_cast<std::size_t>(request.number));
      switch (request.what) {
        case Do::open_memory: {
          void* opened = nullptr;
          const cudaError_t status =
              cudaIpcOpenMemHandle(&opened, handle_of<cudaIpcMemHandle_t>(request.bytes),
                                   cudaIpcMemLazyEnablePeerAccess);
          answer.value = opened != nullptr && opened == memory;
          if (status == cudaSuccess) memory = opened;
          return status;
        }
        case Do::close_memory:
          return cudaIpcCloseMemHandle(memory);
        case Do::read: {
          const cudaError_t status = queue_read(memory, request.value);
          const cudaError_t waited = cudaStreamSynchronize(stream_);
          answer.value = host_[0];
          return status == cudaSuccess ? waited : status;
        }
        case Do::queue_read:
          return queue_read(memory, request.value);
        case Do::fill:
          return cudaMemsetAsync(memory, request.value, sizeof(int), stream_);
        case Do::describe: {
          cudaPointerAttributes attributes{};
          const cudaError_t status = cudaPointerGetAttributes(&attributes, memory);
          answer.value = attributes.type;
          return status;
        }
        case Do::allocate: {
          const std::size_t bytes = static_cast<std::size_t>(request.value) * sizeof(int);
          cudaIpcMemHandle_t handle{};
          cudaError_t status = cudaMalloc(&memory, bytes);
          if (status == cudaSuccess) status = cudaIpcGetMemHandle(&handle, memory);
          answer.bytes = bytes_of(handle);
          return status;
        }
        case Do::free:
          return cudaFree(memory);
        case Do::open_event:
          return cudaIpcOpenEventHandle(&event, handle_of<cudaIpcEventHandle_t>(request.bytes));
        case Do::create_event: {
          cudaIpcEventHandle_t handle{};
          cudaError_t status =
              cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming);
          if (status == cudaSuccess) status = cudaIpcGetEventHandle(&handle, event);
          answer.bytes = bytes_of(handle);
          return status;
        }
        case Do::destroy_event:
          return cudaEventDestroy(event);
        case Do::record:
          return cudaEventRecord(event, stream_);
        case Do::wait:
          return cudaStreamWaitEvent(stream_, event, 0);
        case Do::query_event:
          return cudaEventQuery(event);
        case Do::synchronize_event:
          return cudaEventSynchronize(event);
        case Do::query_stream:
          return cudaStreamQuery(stream_);
        case Do::synchronize_stream: {
          const cudaError_t status = cudaStreamSynchronize(stream_);
          answer.value = host_[0];
          return status;
        }
        case Do::hold:
          held_ = true;
          return cudaLaunchHostFunc(stream_, &Server::stay, &held_);
        case Do::let_go:
          held_ = false;
          return cudaSuccess;
        case Do::import_pool: {
          const int descriptor = receive_descriptor();
          const cudaError_t status = cudaMemPoolImportFromShareableHandle(
              &pool_, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
              cudaMemHandleTypePosixFileDescriptor, 0);
          ::close(descriptor);
          return status;
        }
        case Do::import_pointer: {
          auto data = handle_of<cudaMemPoolPtrExportData>(request.bytes);
          return cudaMemPoolImportPointer(&memory, pool_, &data);
        }
        case Do::free_async:
          return cudaFreeAsync(memory, stream_);
        case Do::allocate_from_pool: {
          void* none = nullptr;
          return cudaMallocFromPoolAsync(&none, 64, pool_, stream_);
        }
        case Do::set_pool:
          return cudaDeviceSetMemPool(0, pool_);
        case Do::destroy_pool:
          return cudaMemPoolDestroy(pool_);
        case Do::kill:
          std::raise(SIGKILL);
      }
      return cudaErrorUnknown;
    }

    cudaError_t queue_read(const void* memory, int index) {
      return cudaMemcpyAsync(host_.data(), static_cast<const int*>(memory) + index, sizeof(int),
                             cudaMemcpyDeviceToHost, stream_);
    }
    int receive_descriptor() const {
      char byte = 0;
      iovec part{&byte, 1};
      alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      if (::recvmsg(socket_, &message, 0) != 1) return -1;
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
      return descriptor;
    }
    static void CUDART_CB stay(void* held) {
      while (*static_cast<std::atomic<bool>*>(held))
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }

    int socket_;
    std::atomic<bool> held_{false};
    TestStream stream_;
    PinnedMemory<int> host_;
    std::array<void*, 8> memory_{};
    std::array<cudaEvent_t, 8> events_{};
    cudaMemPool_t pool_ = nullptr;
  };

  ::pid_t process_ = 0;
  int socket_ = -1;
  bool killed_ = false;
};

}  // namespace penstock::test
