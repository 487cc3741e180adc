// SPDX-License-Identifier: Apache-2.0

#include "compatibility.hpp"

#include <array>
#include <cstdio>

namespace penstock::inline PENSTOCK_ABI::gds {
namespace {

/// A kind of file system, and what cuFile has to support for it, of which one suffices.
struct Kind {
  long magic;  // of statfs()
  unsigned one_of;
};
constexpr unsigned kLocal = cufile::kNvme | cufile::kNvmeOverFabrics | cufile::kScsi |
                            cufile::kScaleFlux | cufile::kNvMesh | cufile::kNvmeByP2p;
constexpr std::array kKinds{Kind{0xEF53, kLocal},                // ext4
                            Kind{0x58465342, kLocal},            // XFS
                            Kind{0x6969, cufile::kNfs},          // NFS
                            Kind{0x0BD00BD0, cufile::kLustre},   // Lustre
                            Kind{0x47504653, cufile::kGpfs},     // IBM Spectrum Scale
                            Kind{0x19830326, cufile::kBeeGfs}};  // BeeGFS
/// Of kinds whose numbers are not known here.
constexpr unsigned kOthers = cufile::kWeka | cufile::kScateFs | cufile::kVirtioFs | cufile::kPanFs;

unsigned needed(long file_system) {
  for (const Kind& kind : kKinds)
    if (kind.magic == file_system) return kind.one_of;
  return kOthers;
}

bool is_forced(const CufileLibrary& calls) {
  bool value = false;
  return calls.cuFileGetParameterBool != nullptr &&
         calls.cuFileGetParameterBool(cufile::kForceCompatibility, &value).error == 0 && value;
}

}  // namespace

std::string why_compatible(const CufileDriver& driver, long file_system, bool is_past_cache) {
  const cufile::Properties& cufile = driver.properties();
  if (is_forced(driver.calls()) || (cufile.control & cufile::kPosixOnly) != 0)
    return "cuFile's configuration demands it (force_compat_mode or posix_io_mode)";
  if (!is_past_cache) return "the file system has no direct reads (O_DIRECT)";
  if (cufile.major_version == 0 && cufile.minor_version == 0 &&
      (cufile.features & cufile::kP2p) == 0)
    return "the kernel module nvidia-fs is not loaded, or not for this container, and cuFile has "
           "no PCI P2PDMA here";
  if ((cufile.file_systems & needed(file_system)) != 0) return "";
  std::array<char, 32> kind;
  std::snprintf(kind.data(), kind.size(), "0x%lx", static_cast<unsigned long>(file_system));
  return "cuFile does not support the file's file system here (of kind " +
         std::string(kind.data()) + "; `gdscheck -p` lists what it supports)";
}

}  // namespace penstock::gds
