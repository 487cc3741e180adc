// SPDX-License-Identifier: Apache-2.0
#include "cupti_records.hpp"

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include "kernel_names.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

constexpr std::size_t kFirstBuffers = 4;
constexpr std::size_t kAlignment = 64;  // CUPTI asks for 8

/// CUPTI is told to use CLOCK_MONOTONIC. For a context that existed before, some of its versions
/// keep their own clock, CLOCK_REALTIME. In nanoseconds, the two are decades apart.
Time to_monotonic(std::uint64_t cupti_time) {
  constexpr Time kDecade = Time{10} * 365 * 24 * 3600 * 1'000'000'000;
  const auto time = static_cast<Time>(cupti_time);
  const Time monotonic = now();
  if (time < monotonic + kDecade) return time;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  return time - (Time{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec - monotonic);
}

Direction direction_of(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return Direction::host_to_device;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return Direction::device_to_host;
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return Direction::device_to_device;
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return Direction::host_to_host;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return Direction::peer_to_peer;
    default:
      return Direction::none;
  }
}

/// Fills in an event from either kind of copy record. The nodes of a graph are submitted by its
/// launch, and nobody waits for that, whatever call they were captured from.
template <class Record>
std::uint16_t copy_flags(const Record& record) {
  unsigned flags = 0;
  if (record.srcKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ||
      record.dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE)
    flags |= pageable;
  if ((record.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) == 0 && record.graphNodeId == 0)
    flags |= synchronous;
  return static_cast<std::uint16_t>(flags);
}

/// Returns a record as the type that its kind declares.
template <class Record>
const Record& as(const CUpti_Activity& record) {
  return reinterpret_cast<const Record&>(record);
}

}  // namespace

// ---- BufferPool

BufferPool::BufferPool() {
  free_.reserve(kAtMost);
  std::array<std::uint8_t*, kFirstBuffers> first{};
  for (std::uint8_t*& buffer : first) buffer = take();
  for (std::uint8_t* const buffer : first) give_back(buffer);
}

std::uint8_t* BufferPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::uint8_t* const buffer = free_.back();
      free_.pop_back();
      return buffer;
    }
    if (buffers_ == kAtMost) return nullptr;
    ++buffers_;
  }
  auto* const buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBytes));
  if (buffer != nullptr) std::memset(buffer, 0, kBytes);
  return buffer;
}

void BufferPool::give_back(std::uint8_t* buffer) {
  if (buffer == nullptr) return;
  std::memset(buffer, 0, kBytes);
  const std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

// ---- RecordReader

RecordReader::RecordReader(const Cupti& cupti, EventSink& sink) : cupti_(cupti), sink_(sink) {}

void RecordReader::read(std::uint8_t* buffer, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const std::uint32_t era = sink_.era(); era_ != era) {
    era_ = era;
    names_.clear();
    tracks_.clear();
  }
  CUpti_Activity* record = nullptr;
  while (cupti_.activity_get_next_record(buffer, bytes, &record) == CUPTI_SUCCESS) read(*record);
}

void RecordReader::read(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return read_kernel(record);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return read_copy(record);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return read_peer_copy(record);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return read_fill(record);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return read_graph(record);
    default:
      return;
  }
}

/// Makes an event from the members that all kinds of records have. A record without times (CUPTI
/// had no memory for them) gives no event.
template <class Record>
void RecordReader::add(const Record& record, Event event) {
  const std::uint64_t begin = record.start, end = record.end;
  if (begin == 0 || end < begin) {
    if (!unfinished_.load(std::memory_order_relaxed)) sink_.drop(1);
    return;
  }
  event.begin = to_monotonic(begin);
  event.end = event.begin + static_cast<Time>(end - begin);
  sink_.add(event);
}

void RecordReader::read_kernel(const CUpti_Activity& record) {
  const auto& kernel = as<KernelRecord>(record);
  Event event;
  event.kind = Kind::kernel;
  event.name = name_of(kernel.name);
  event.track = track_of(kernel.deviceId, kernel.streamId);
  event.correlation = kernel.correlationId;
  add(kernel, event);
}

void RecordReader::read_copy(const CUpti_Activity& record) {
  const auto& copy = as<CopyRecord>(record);
  Event event;
  event.kind = Kind::copy;
  event.value = copy.bytes;
  event.direction = direction_of(copy.copyKind);
  event.flags = copy_flags(copy);
  event.track = track_of(copy.deviceId, copy.streamId);
  // This is the runtime's call if it contains the driver's call.
  event.correlation =
      copy.runtimeCorrelationId != 0 ? copy.runtimeCorrelationId : copy.correlationId;
  add(copy, event);
}

void RecordReader::read_peer_copy(const CUpti_Activity& record) {
  const auto& copy = as<CUpti_ActivityMemcpyPtoP4>(record);
  Event event;
  event.kind = Kind::copy;
  event.value = copy.bytes;
  event.direction = Direction::peer_to_peer;
  event.flags = copy_flags(copy);
  event.track = track_of(copy.deviceId, copy.streamId);
  event.correlation = copy.correlationId;
  add(copy, event);
}

void RecordReader::read_fill(const CUpti_Activity& record) {
  const auto& fill = as<CUpti_ActivityMemset4>(record);
  Event event;
  event.kind = Kind::fill;
  event.value = fill.bytes;
  if (fill.memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE) event.flags |= pageable;
  if ((fill.flags & CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC) == 0 && fill.graphNodeId == 0)
    event.flags |= synchronous;
  event.track = track_of(fill.deviceId, fill.streamId);
  event.correlation = fill.correlationId;
  add(fill, event);
}

void RecordReader::read_graph(const CUpti_Activity& record) {
  const auto& graph = as<CUpti_ActivityGraphTrace2>(record);
  Event event;
  event.kind = Kind::graph;
  // A host node has no device. A graph may begin with one, or consist only of host nodes.
  const std::uint32_t device = graph.deviceId == INT_MAX ? graph.endDeviceId : graph.deviceId;
  if (device == INT_MAX) return;
  event.track = track_of(device, graph.streamId);
  event.correlation = graph.correlationId;
  add(graph, event);
}

/// Makes each name readable once. The key is the text, because after a module is unloaded the
/// pointer may belong to another kernel.
std::uint32_t RecordReader::name_of(const char* mangled) {
  if (mangled == nullptr) return 0;
  const auto found = names_.find(std::string_view(mangled));
  if (found != names_.end()) return found->second;
  return names_.emplace(mangled, sink_.name(readable(mangled))).first->second;
}

std::uint32_t RecordReader::track_of(std::uint32_t device, std::uint32_t stream) {
  const auto [entry, is_new] = tracks_.try_emplace(std::uint64_t{device} << 32 | stream, 0);
  if (is_new) entry->second = sink_.stream_track(static_cast<int>(device), stream);
  return entry->second;
}

}  // namespace penstock::trace::detail
