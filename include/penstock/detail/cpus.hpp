// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sets of CPU numbers: their text form in sysfs, and the CPUs that a thread may run on.

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <penstock/detail/words.hpp>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Sorted, without duplicates.
using Cpus = std::vector<int>;

/// Parses a list such as "0-3,8". An invalid text gives an empty set.
inline Cpus read_cpus(std::string_view text) {
  Cpus cpus;
  while (!text.empty()) {
    const auto first = take_number<int>(text);
    const auto last = take(text, "-") ? take_number<int>(text) : first;
    if (!first || !last || *first < 0) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (!take(text, ",") && !text.empty()) return {};
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

/// Returns a list such as "0-3,8".
inline std::string to_text(const Cpus& cpus) {
  std::string text;
  for (auto first = cpus.begin(); first != cpus.end();) {
    auto last = first;
    while (std::next(last) != cpus.end() && *std::next(last) == *last + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(*first);
    if (last != first) text.append(1, '-').append(std::to_string(*last));
    first = std::next(last);
  }
  return text;
}

inline Cpus in_both(const Cpus& a, const Cpus& b) {
  Cpus both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

inline Cpus without(const Cpus& cpus, const Cpus& others) {
  Cpus rest;
  std::set_difference(cpus.begin(), cpus.end(), others.begin(), others.end(),
                      std::back_inserter(rest));
  return rest;
}

/// A set of CPUs in the form of the kernel. It is created once, so binding a thread does not
/// allocate.
class CpuMask {
 public:
  CpuMask() = default;
  explicit CpuMask(const Cpus& cpus) {
    if (cpus.empty()) return;
    words_.resize(static_cast<std::size_t>(cpus.back()) / kBits + 1);
    for (const int cpu : cpus) {
      const auto bit = static_cast<std::size_t>(cpu);
      words_[bit / kBits] |= 1ul << bit % kBits;
    }
  }

  /// Returns the CPUs that the calling thread may run on: its affinity mask, which the kernel keeps
  /// within the cpuset of the control group.
  static CpuMask of_this_thread() {
    constexpr std::size_t kMost = 8192;  // the most that Linux can be built for
    CpuMask mask;
    mask.words_.resize(kMost / kBits);
    auto* const set = reinterpret_cast<cpu_set_t*>(mask.words_.data());
    if (sched_getaffinity(0, mask.bytes(), set) != 0) return {};
    return mask;
  }

  bool empty() const noexcept { return words_.empty(); }
  Cpus cpus() const {
    Cpus cpus;
    for (std::size_t i = 0; i != words_.size(); ++i)
      for (unsigned long left = words_[i]; left != 0; left &= left - 1)
        cpus.push_back(static_cast<int>(i * kBits) + std::countr_zero(left));
    return cpus;
  }

  /// Binds the calling thread. Does nothing if the set is empty or the kernel refuses it.
  void bind_this_thread() const noexcept {
    if (empty()) return;
    sched_setaffinity(0, bytes(), reinterpret_cast<const cpu_set_t*>(words_.data()));
  }

 private:
  static constexpr std::size_t kBits = 8 * sizeof(unsigned long);

  std::size_t bytes() const noexcept { return words_.size() * sizeof(unsigned long); }

  std::vector<unsigned long> words_;  // the bits of a cpu_set_t, for any number of CPUs
};

/// Binds the calling thread for a scope. Memory that is allocated in the scope comes from the NUMA
/// node of `mask`, while that has free memory.
class [[nodiscard]] BoundHere {
 public:
  explicit BoundHere(const CpuMask& mask)
      : before_(mask.empty() ? CpuMask() : CpuMask::of_this_thread()) {
    mask.bind_this_thread();
  }
  ~BoundHere() { before_.bind_this_thread(); }
  BoundHere(const BoundHere&) = delete;
  BoundHere& operator=(const BoundHere&) = delete;

  /// The CPUs that the thread could run on before; empty if `mask` is empty.
  const CpuMask& before() const noexcept { return before_; }

 private:
  const CpuMask before_;
};

}  // namespace penstock::detail
