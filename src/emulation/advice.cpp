// SPDX-License-Identifier: Apache-2.0
#include "advice.hpp"

#include <unistd.h>

#include <iterator>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

int PageLocation::device() const {
  if (type == cudaMemLocationTypeDevice) return id;
  return type == cudaMemLocationTypeInvalid ? cudaInvalidDeviceId : cudaCpuDeviceId;
}

Advice::Pages Advice::pages_of(const void* data, std::size_t bytes) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  return {begin / page * page, (begin + bytes + page - 1) / page * page};
}

/// The run that begins at this address.
Advice::Runs::iterator Advice::split(std::uintptr_t address) {
  const auto before = std::prev(runs_.upper_bound(address));
  return before->first == address ? before : runs_.emplace(address, before->second).first;
}

/// Merges adjacent runs that have the same advice.
void Advice::merge(Pages pages) {
  auto run = runs_.find(pages.begin);
  const auto behind = std::next(runs_.find(pages.end));
  while (run != behind) {
    const bool same = run->second == std::prev(run)->second;
    run = same ? runs_.erase(run) : std::next(run);
  }
}

std::vector<const PageAdvice*> Advice::of(const void* data, std::size_t bytes) const {
  const Pages pages = pages_of(data, bytes);
  std::vector<const PageAdvice*> runs;
  for (auto run = std::prev(runs_.upper_bound(pages.begin));
       run != runs_.end() && run->first < pages.end; ++run)
    runs.push_back(&run->second);
  return runs;
}

}  // namespace penstock::emulation::detail
