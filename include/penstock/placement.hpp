// SPDX-License-Identifier: Apache-2.0
#pragma once

// Placement: the cores that the threads of a pipeline run on, and with them the place of its pinned
// memory. A machine with several NUMA nodes has each device beside one of them: from the cores and
// the memory of that node the way to the device is short. This is the default. It can be turned
// off, or the cores named:
//
//   penstock::PrefetcherOptions options;
//   options.placement = penstock::Placement::off();
//   options.placement = penstock::Placement::cores({8, 9, 10, 11});
//
// Stats::placement, and the line "placement:" of a printed Stats, say what was chosen.

#include <penstock/detail/inline.hpp>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

struct Ranks;  // ranks.hpp

namespace detail {

/// What a Placement asks for.
struct PlacementRequest {
  enum class Kind { automatic, off, cores };

  Kind kind = Kind::automatic;
  std::vector<int> cores = {};         // sorted, each once
  int local_rank = 0, local_size = 0;  // of automatic; 0: what the environment says
  std::string root = "/";              // above sys and proc; another one is a test's

  bool operator==(const PlacementRequest&) const = default;
};

}  // namespace detail

/// Where threads and pinned memory are placed. A value; constructing it looks at nothing, the
/// pipeline that takes it does.
///
/// "Cores" are those that Linux numbers, as in lscpu and taskset: a hyper-thread is one. Threads
/// are only ever bound to cores that the constructing thread may run on: its affinity mask, and
/// the control group's cpuset. A thread that a source or a callback starts inherits the binding.
class Placement {
 public:
  /// The same as automatic().
  Placement() = default;

  /// Near the current device. Where more than one NUMA node has cores, the threads are bound to
  /// those of the device's node, or to those of `numa_node` where that option is set; pinned memory
  /// is allocated while the constructing thread is bound to them, so Linux takes it from that node
  /// while it has some. Workers beyond the number of these cores are not bound: more workers never
  /// have fewer cores than without a placement.
  ///
  /// Ranks on one machine (Ranks::from_environment) whose devices are on the same node share its
  /// cores out: consecutive parts of the same size (or one core more), no core in two of them, the
  /// hyper-threads of a core together. A rank that its launcher has bound already keeps what it was
  /// given.
  ///
  /// Where the node is not known, nothing is placed; Stats::placement says why. Never throws.
  static Placement automatic() { return Placement(); }
  /// The same for ranks that the environment does not tell. Rank i of the machine is taken to use
  /// device i, modulo the number of devices. Throws std::invalid_argument unless
  /// 0 <= local_rank < local_size.
  static Placement automatic(const Ranks& ranks);

  /// Threads run where the constructing thread may. `numa_node` counts for the memory.
  static Placement off() { return Placement({.kind = detail::PlacementRequest::Kind::off}); }

  /// All threads on these cores, on any machine; memory as with automatic(). Ranks do not share
  /// them out: name other ones on each. Throws std::invalid_argument for no core and for negative
  /// numbers; the pipeline does, for cores that it may not run on.
  static Placement cores(std::vector<int> numbers);

  /// Whether both ask for the same.
  bool operator==(const Placement&) const = default;

  /// For the library.
  explicit Placement(detail::PlacementRequest request) : request_(std::move(request)) {}
  /// For the library.
  const detail::PlacementRequest& request() const noexcept { return request_; }

 private:
  detail::PlacementRequest request_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/placement.hpp>
#endif
