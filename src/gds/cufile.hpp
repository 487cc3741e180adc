// SPDX-License-Identifier: Apache-2.0
#pragma once

// What this library uses of the binary interface of cuFile, which is the same since CUDA 12.0. It
// is written down here, so that penstock compiles without <cufile.h>, which many toolkits lack.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <ctime>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::gds::cufile {

struct Status {
  int error;  // 0, or from 5001 on
  int cuda;   // a CUresult, if `error` is kCudaError
};

inline constexpr int kNotInitialized = 5001, kIoNotSupported = 5008, kCudaError = 5011,
                     kDirectNotSet = 5020, kPermission = 5025, kAlreadyOpen = 5026,
                     kIoDisabled = 5034, kFirstError = 5001;

using Handle = void*;

struct Descriptor {
  int type;  // kOfDescriptor
  union {
    int number;
    void* other;
  };
  const void* operations;
};
inline constexpr int kOfDescriptor = 1;

/// Newer versions may have more members, for which there is room.
struct Properties {
  unsigned major_version, minor_version;  // of the kernel module nvidia-fs; 0: there is none
  std::size_t poll_threshold, most_direct_bytes;
  unsigned file_systems;  // bits, see below
  unsigned control;       // bits
  unsigned features;      // bits
  unsigned most_cache, cache_of_buffer, most_pinned;
  unsigned most_in_batch, batch_timeout;
  std::array<unsigned, 64> room;
};
/// Bits of Properties::file_systems.
enum FileSystem : unsigned {
  kLustre = 1u << 0,
  kWeka = 1u << 1,
  kNfs = 1u << 2,
  kGpfs = 1u << 3,
  kNvme = 1u << 4,
  kNvmeOverFabrics = 1u << 5,
  kScsi = 1u << 6,
  kScaleFlux = 1u << 7,
  kNvMesh = 1u << 8,
  kBeeGfs = 1u << 9,
  kNvmeByP2p = 1u << 11,
  kScateFs = 1u << 12,
  kVirtioFs = 1u << 13,
  kPanFs = 1u << 14,
};
inline constexpr unsigned kAllowsCompatibility = 1u << 1, kPosixOnly = 1u << 2;  // of `control`
inline constexpr unsigned kP2p = 1u << 4;                                        // of `features`
inline constexpr int kForceCompatibility = 2;  // a parameter that is a bool

struct BatchRequest {
  int mode;  // kBatchMode
  struct {
    void* memory;
    ::off_t file_offset, memory_offset;
    std::size_t bytes;
  } batch;
  Handle file;
  int operation;  // 0: a read
  void* cookie;
};
inline constexpr int kBatchMode = 1;

struct BatchEvent {
  void* cookie;
  int status;
  std::size_t result;  // bytes, or a negative error
};
inline constexpr int kPending = 1 | 2, kComplete = 16;  // of `status`

using BatchHandle = void*;

}  // namespace penstock::gds::cufile

// Name of a function, and its type.
#define PENSTOCK_CUFILE_FUNCTIONS(FUNCTION)                                                 \
  FUNCTION(cuFileDriverOpen, cufile::Status())                                              \
  FUNCTION(cuFileDriverClose_v2, cufile::Status())                                          \
  FUNCTION(cuFileDriverGetProperties, cufile::Status(cufile::Properties*))                  \
  FUNCTION(cuFileHandleRegister, cufile::Status(cufile::Handle*, cufile::Descriptor*))      \
  FUNCTION(cuFileHandleDeregister, void(cufile::Handle))                                    \
  FUNCTION(cuFileRead, ::ssize_t(cufile::Handle, void*, std::size_t, ::off_t, ::off_t))     \
  FUNCTION(cuFileBatchIOSetUp, cufile::Status(cufile::BatchHandle*, unsigned))              \
  FUNCTION(cuFileBatchIOSubmit,                                                             \
           cufile::Status(cufile::BatchHandle, unsigned, cufile::BatchRequest*, unsigned))  \
  FUNCTION(cuFileBatchIOGetStatus, cufile::Status(cufile::BatchHandle, unsigned, unsigned*, \
                                                  cufile::BatchEvent*, ::timespec*))        \
  FUNCTION(cuFileBatchIOCancel, cufile::Status(cufile::BatchHandle))                        \
  FUNCTION(cuFileBatchIODestroy, void(cufile::BatchHandle))
