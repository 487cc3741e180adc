// SPDX-License-Identifier: Apache-2.0
#pragma once

// The contents of the 64 bytes that a program sends to another process: cudaIpcMemHandle_t,
// cudaIpcEventHandle_t, cudaMemPoolPtrExportData. They tell the other process where a shared file
// is and which part of it is meant. All fields must be checked, since a program may send any bytes.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <penstock/version.hpp>

#include "memory_file.hpp"
#include "process_identity.hpp"
#include "random.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

struct InterprocessHandle {
  static constexpr std::uint32_t kMagic = 0x50534831;  // "PSH1": also the version

  std::uint32_t magic = kMagic;
  SharedKind kind = SharedKind::memory;
  std::uint64_t run = 0;  ///< number_of_this_run() of the program that made it
  FilePlace place;
  std::uint64_t offset = 0;  ///< offset of the block in the file
  std::uint64_t life = 0;    ///< number of the allocation in the block
  std::uint64_t bytes = 0;   ///< size of the allocation
  std::uint64_t check = 0;   ///< checksum of the other members

  InterprocessHandle() = default;
  InterprocessHandle(SharedKind of, const FilePlace& where)
      : kind(of), run(number_of_this_run()), place(where) {}

  bool of_this_process() const { return run == number_of_this_run(); }

  template <class Bytes>
  void write(Bytes& bytes_of_program) {
    static_assert(sizeof(Bytes) == sizeof(InterprocessHandle));
    check = sum();
    std::memcpy(&bytes_of_program, this, sizeof *this);
  }

  /// Returns nullopt if the bytes are no handle of this kind.
  template <class Bytes>
  static std::optional<InterprocessHandle> read(const Bytes& bytes_of_program, SharedKind wanted) {
    static_assert(sizeof(Bytes) == sizeof(InterprocessHandle));
    InterprocessHandle handle;
    std::memcpy(static_cast<void*>(&handle), &bytes_of_program, sizeof handle);
    if (handle.magic != kMagic || handle.kind != wanted || handle.check != handle.sum()) return {};
    return handle;
  }

 private:
  std::uint64_t sum() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t part :
         {std::uint64_t{magic}, static_cast<std::uint64_t>(kind), run,
          static_cast<std::uint64_t>(place.process), static_cast<std::uint64_t>(place.descriptor),
          place.number, offset, life, bytes})
      sum = random_bits(sum, part, 0);
    return sum;
  }
};

static_assert(sizeof(InterprocessHandle) == 64);

}  // namespace penstock::emulation::detail
