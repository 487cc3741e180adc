// SPDX-License-Identifier: Apache-2.0

// Leases as DLPack tensors, and tensors of others. Runs emulated, and on a GPU.

#include <penstock/dlpack.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

namespace dlpack = penstock::dlpack;
using namespace std::chrono_literals;
using dlpack::DataType;
using dlpack::DeviceType;
using dlpack::Imported;
using dlpack::ManagedTensor;
using dlpack::OwnedTensor;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::StallError;
using penstock::Tensor;
using penstock::Ticket;
using penstock::test::DeviceMemory;
using penstock::test::Gate;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::payload_of;
using penstock::test::PinnedMemory;
using penstock::test::sequential;
using penstock::test::TestStream;
using penstock::test::thrown;
using penstock::test::write_numbers;

namespace {

using SharedNumbers = dlpack::SharedLease<Numbers>;

constexpr std::int64_t kRowsOfBatch = 4;

/// One slot: the next batch can only come when the lease of the one before has ended.
Prefetcher<Numbers> one_slot(std::uint64_t batches) {
  return Prefetcher<Numbers>(
      numbers_layout(kRowsOfBatch),
      sequential(batches * static_cast<std::uint64_t>(kRowsOfBatch), kRowsOfBatch), write_numbers,
      {.workers = 1, .device_depth = 1, .stall_timeout = 100ms});
}

/// Reads the first sample's number of an exported `sample` field, in the order of `stream`.
void read_first(const ManagedTensor& sample, PinnedMemory<std::uint64_t>& to, cudaStream_t stream) {
  REQUIRE_CUDA(cudaMemcpyAsync(to.data(), sample.dl_tensor.data, sizeof(std::uint64_t),
                               cudaMemcpyDeviceToHost, stream));
}

}  // namespace

TEST_CASE("an exported field says where its elements are, and of which type", "[dlpack]") {
  TestStream stream;
  auto prefetcher = one_slot(1);
  const SharedNumbers shared(prefetcher.next(stream));
  const OwnedTensor payload = shared.tensor(&Numbers::payload, stream);
  CHECK(payload->version.major_version == 1);
  CHECK(payload->flags == 0);
  const dlpack::TensorView& view = payload->dl_tensor;
  CHECK(view.data == shared->payload.data_handle());
  CHECK(view.byte_offset == 0);
  CHECK(view.device == dlpack::Device{DeviceType::cuda, penstock::current_device()});
  CHECK(view.dtype == DataType{1, 32, 1});
  REQUIRE(view.ndim == 2);
  CHECK((view.shape[0] == kRowsOfBatch && view.shape[1] == penstock::test::kPayload));
  CHECK((view.strides[0] == penstock::test::kPayload && view.strides[1] == 1));
}

TEST_CASE("the types of elements are DLPack's", "[dlpack]") {
  STATIC_REQUIRE(dlpack::data_type<std::int64_t> == DataType{0, 64, 1});
  STATIC_REQUIRE(dlpack::data_type<std::uint8_t> == DataType{1, 8, 1});
  STATIC_REQUIRE(dlpack::data_type<float> == DataType{2, 32, 1});
  STATIC_REQUIRE(dlpack::data_type<double> == DataType{2, 64, 1});
  STATIC_REQUIRE(dlpack::data_type<__half> == DataType{2, 16, 1});
  STATIC_REQUIRE(dlpack::data_type<__nv_bfloat16> == DataType{4, 16, 1});
  STATIC_REQUIRE(dlpack::data_type<bool> == DataType{6, 8, 1});
  STATIC_REQUIRE(dlpack::data_type<long double>.bits == 0);
  STATIC_REQUIRE(dlpack::data_type<std::byte>.bits == 0);
}

TEST_CASE("the lease ends with the last of the shared lease, its copies and its tensors",
          "[dlpack]") {
  TestStream stream;
  auto prefetcher = one_slot(2);
  std::optional<SharedNumbers> shared(prefetcher.next(stream)), copy(*shared);
  OwnedTensor sample = shared->tensor(&Numbers::sample, stream);
  OwnedTensor payload = shared->tensor(&Numbers::payload, stream);
  const std::array<void (*)(decltype(shared)&, decltype(copy)&, OwnedTensor&, OwnedTensor&), 4> end{
      [](auto& a, auto&, auto&, auto&) { a.reset(); },
      [](auto&, auto& b, auto&, auto&) { b.reset(); },
      [](auto&, auto&, OwnedTensor& c, OwnedTensor&) { c.reset(); },
      [](auto&, auto&, OwnedTensor&, OwnedTensor& d) { d.reset(); }};
  const std::size_t last = GENERATE(0u, 1u, 2u, 3u);
  for (std::size_t i = 1; i <= end.size(); ++i) {
    CHECK_THROWS_AS(prefetcher.next(stream), StallError);
    end[(last + i) % end.size()](shared, copy, sample, payload);
  }
  CHECK(prefetcher.next(stream));
}

TEST_CASE("the slot is not overwritten before the named streams have read it", "[dlpack]") {
  TestStream consumer, named, further;
  PinnedMemory<std::uint64_t> first_by_named(1, 99), first_by_further(1, 99);
  auto prefetcher = one_slot(2);
  Gate gate;
  {
    const SharedNumbers shared(prefetcher.next(consumer));
    const OwnedTensor sample = shared.tensor(&Numbers::sample, named);
    shared.use_on(further);
    gate.hold(named);
    gate.hold(further);
    read_first(*sample, first_by_named, named);
    read_first(*sample, first_by_further, further);
  }
  const auto second = prefetcher.next(consumer);  // Its copy is queued, and nothing is read yet.
  REQUIRE(second);
  // Certain, if the copy waits. If not, ThreadSanitizer reports a race; and a query brings the copy
  // about, mostly the first.
  bool waits = true;
  for (int i = 0; i < 1000 && waits; ++i) {
    waits = cudaStreamQuery(consumer) == cudaErrorNotReady;
    std::this_thread::yield();
  }
  CHECK(waits);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(consumer));
  REQUIRE_CUDA(cudaStreamSynchronize(named));
  REQUIRE_CUDA(cudaStreamSynchronize(further));
  CHECK(first_by_named[0] == 0);
  CHECK(first_by_further[0] == 0);
}

TEST_CASE("work on a stream that was named sees the batch complete", "[dlpack]") {
  TestStream consumer, named;
  PinnedMemory<std::uint64_t> first(1, 99);
  auto prefetcher = one_slot(2);
  for (std::uint64_t batch = 0; batch < 2; ++batch) {
    const SharedNumbers shared(prefetcher.next(consumer));
    read_first(*shared.tensor(&Numbers::sample, named), first, named);
    REQUIRE_CUDA(cudaStreamSynchronize(named));
    CHECK(first[0] == batch * kRowsOfBatch);
  }
}

TEST_CASE("a deleter may run on any thread, and after the prefetcher is gone", "[dlpack]") {
  TestStream stream;
  PinnedMemory<std::uint64_t> first(1, 99);
  OwnedTensor kept;
  {
    auto prefetcher = one_slot(3);
    for (std::uint64_t batch = 0; batch < 2; ++batch) {
      OwnedTensor sample = SharedNumbers(prefetcher.next(stream)).tensor(&Numbers::sample, stream);
      read_first(*sample, first, stream);
      std::thread([&] { sample.reset(); }).join();
    }
    kept = SharedNumbers(prefetcher.next(stream)).tensor(&Numbers::sample, stream);
  }
  read_first(*kept, first, stream);
  std::thread([&] { kept.reset(); }).join();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(first[0] == 2 * kRowsOfBatch);
}

TEST_CASE("threads name streams, export and delete at the same time", "[dlpack]") {
  constexpr std::size_t kThreads = 3;
  TestStream consumer;
  std::array<TestStream, kThreads> streams;
  std::vector<std::unique_ptr<PinnedMemory<std::uint64_t>>> first;
  for (std::size_t i = 0; i < kThreads; ++i)
    first.push_back(std::make_unique<PinnedMemory<std::uint64_t>>(1, 99));
  auto prefetcher = one_slot(20);
  for (std::uint64_t batch = 0; batch < 20; ++batch) {
    std::vector<std::thread> threads;
    {
      const SharedNumbers shared(prefetcher.next(consumer));
      for (std::size_t i = 0; i < kThreads; ++i)
        threads.emplace_back([shared, stream = cudaStream_t(streams[i]), to = first[i]->data()] {
          const OwnedTensor sample = shared.tensor(&Numbers::sample, stream);
          cudaMemcpyAsync(to, sample->dl_tensor.data, sizeof(*to), cudaMemcpyDeviceToHost, stream);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < kThreads; ++i) {
      REQUIRE_CUDA(cudaStreamSynchronize(streams[i]));
      CHECK((*first[i])[0] == batch * kRowsOfBatch);
    }
  }
}

TEST_CASE("what cannot be shared is refused", "[dlpack]") {
  TestStream stream;
  auto prefetcher = one_slot(1);
  penstock::Lease<Numbers> lease = prefetcher.next(stream);
  const penstock::Lease<Numbers> none = prefetcher.next(stream);
  CHECK_FALSE(none);
  CHECK_THROWS_AS(SharedNumbers(penstock::Lease<Numbers>()), std::logic_error);
  const SharedNumbers shared(std::move(lease));
  CHECK_THROWS_AS(SharedNumbers(std::move(lease)), std::logic_error);
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK_THROWS_AS(shared.tensor(&Numbers::sample, stream), std::logic_error);
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
}

namespace {

struct TokenRows {
  penstock::Ragged<std::int32_t> tokens;
  Tensor<float, 1> table;  // not a field
};

struct WithNothing {
  Tensor<float, 2> values;
  Tensor<std::int32_t, 2> none;
  penstock::Ragged<std::int32_t> no_tokens;
};

}  // namespace

TEST_CASE("a ragged field is two tensors; what a plain value points to is not the lease's",
          "[dlpack]") {
  TestStream stream;
  std::vector<float> host(3);
  auto layout = penstock::Layout<TokenRows>(2)
                    .field(&TokenRows::tokens, penstock::Capacity{8})
                    .value(&TokenRows::table);
  const auto source = [&](const Ticket&, TokenRows& batch) {
    batch.tokens.assign(0, std::array{7, 8, 9});
    batch.tokens.assign(1, std::array{5});
    batch.table = Tensor<float, 1>(host.data(), 3);
  };
  Prefetcher<TokenRows> prefetcher(layout, sequential(2, 2), source, {.workers = 1});
  const dlpack::SharedLease<TokenRows> shared(prefetcher.next(stream));
  const OwnedTensor values = shared.values(&TokenRows::tokens, stream);
  const OwnedTensor offsets = shared.offsets(&TokenRows::tokens, stream);
  REQUIRE(values->dl_tensor.ndim == 1);
  CHECK(values->dl_tensor.shape[0] == 4);
  CHECK(values->dl_tensor.dtype == DataType{0, 32, 1});
  CHECK(offsets->dl_tensor.shape[0] == 3);
  CHECK(offsets->dl_tensor.dtype == DataType{0, 64, 1});
  PinnedMemory<std::int32_t> tokens(4);
  PinnedMemory<std::int64_t> begins(3);
  REQUIRE_CUDA(cudaMemcpyAsync(tokens.data(), values->dl_tensor.data, tokens.bytes(),
                               cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaMemcpyAsync(begins.data(), offsets->dl_tensor.data, begins.bytes(),
                               cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK((tokens[0] == 7 && tokens[2] == 9 && tokens[3] == 5));
  CHECK((begins[0] == 0 && begins[1] == 3 && begins[2] == 4));
  CHECK(thrown<std::invalid_argument>([&] {
          shared.tensor(&TokenRows::table, stream);
        }).find("no CUDA device's") != std::string::npos);
}

TEST_CASE("a field of 0 bytes is on the device that the others are on", "[dlpack]") {
  TestStream stream;
  // The last one's place is the end of the 512 bytes of the others, and of the device's memory.
  const bool ragged_last = GENERATE(false, true);
  penstock::Layout<WithNothing> layout(2);
  if (!ragged_last) layout.field(&WithNothing::no_tokens, penstock::Capacity{0});
  layout.field(&WithNothing::values, {32});
  if (ragged_last) layout.field(&WithNothing::no_tokens, penstock::Capacity{0});
  layout.field(&WithNothing::none, {0});
  Prefetcher<WithNothing> prefetcher(layout, sequential(2, 2), [](const Ticket&, WithNothing&) {},
                                     {.workers = 1, .device_depth = 1});
  const dlpack::SharedLease<WithNothing> shared(prefetcher.next(stream));
  const OwnedTensor none = shared.tensor(&WithNothing::none, stream);
  CHECK(none->dl_tensor.device == dlpack::Device{DeviceType::cuda, penstock::current_device()});
  CHECK((none->dl_tensor.shape[0] == 2 && none->dl_tensor.shape[1] == 0));
  const OwnedTensor tokens = shared.values(&WithNothing::no_tokens, stream);
  CHECK(tokens->dl_tensor.device == none->dl_tensor.device);
  CHECK(tokens->dl_tensor.shape[0] == 0);
}

// ---- Import -------------------------------------------------------------------------------------

namespace {

/// A tensor of somebody else's, and how often its deleter ran.
struct Foreign {
  std::array<float, 6> elements{1, 2, 3, 4, 5, 6};
  std::array<std::int64_t, 2> shape{2, 3}, strides{3, 1};
  ManagedTensor tensor{
      {1, 3},
      this,
      [](ManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; },
      0,
      {elements.data(), {DeviceType::cpu, 0}, 2, {2, 32, 1}, shape.data(), strides.data(), 0}};
  int deleted = 0;

  Imported<float, 2> import() { return {OwnedTensor(&tensor), DeviceType::cpu}; }
  std::string refusal() {
    return thrown<std::invalid_argument>([this] { import(); });
  }
};

}  // namespace

TEST_CASE("an imported tensor is a view, and its deleter runs once, with it", "[dlpack]") {
  Foreign foreign;
  {
    const Imported<float, 2> imported = foreign.import();
    CHECK((imported->extent(0) == 2 && imported->extent(1) == 3));
    CHECK((*imported)(1, 2) == 6);
    CHECK(imported.device() == dlpack::Device{DeviceType::cpu, 0});
    CHECK(foreign.deleted == 0);
  }
  CHECK(foreign.deleted == 1);
  foreign.tensor.deleter = nullptr;  // There need be none.
  CHECK((*foreign.import())(0, 0) == 1);
}

TEST_CASE("strides may be left out; those of extents of 1 count for nothing; bytes are skipped",
          "[dlpack]") {
  Foreign foreign;
  foreign.tensor.dl_tensor.byte_offset = 2 * sizeof(float);
  foreign.shape = {1, 4};
  foreign.strides = {-100, 1};
  CHECK((*foreign.import())(0, 0) == 3);
  foreign.tensor.dl_tensor.strides = nullptr;
  CHECK((*foreign.import())(0, 3) == 6);
  foreign.shape = {0, 4};
  foreign.tensor.dl_tensor.data = nullptr;  // Nor is its offset added to it.
  CHECK(foreign.import()->size() == 0);
  CHECK(foreign.deleted == 3);
}

TEST_CASE("a tensor that is not what was expected is refused, and given back", "[dlpack]") {
  Foreign foreign;
  std::string message;
  SECTION("version") {
    foreign.tensor.version = {2, 0};
    foreign.tensor.dl_tensor.shape = nullptr;  // It is not looked at.
    message = "DLPack 2.0";
  }
  SECTION("type") {
    foreign.tensor.dl_tensor.dtype = {4, 16, 1};
    message = "its elements are bfloat16, expected float32";
  }
  SECTION("lanes") {
    foreign.tensor.dl_tensor.dtype = {2, 32, 4};
    message = "float32x4";
  }
  SECTION("a type of later versions") {
    foreign.tensor.dl_tensor.dtype = {7, 8, 1};
    message = "of type code 7 and bits 8";
  }
  SECTION("rank") {
    foreign.tensor.dl_tensor.ndim = 1;
    message = "its rank is 1, expected 2";
  }
  SECTION("device") {
    foreign.tensor.dl_tensor.device = {DeviceType::cuda, 0};
    message = "on a CUDA device, expected on the CPU";
  }
  SECTION("another device") {
    foreign.tensor.dl_tensor.device = {DeviceType{10}, 0};
    message = "device type 10";
  }
  SECTION("read-only") {
    foreign.tensor.flags = dlpack::read_only;
    message = "read-only";
  }
  SECTION("transposed") {
    foreign.strides = {1, 2};
    message = "stride 1 is 2, 1 in a row-major tensor";
  }
  SECTION("rows with gaps") {
    foreign.strides = {4, 1};
    message = "stride 0 is 4, 3 in a row-major tensor";
  }
  SECTION("negative") {
    foreign.shape[1] = -3;
    message = "extent 1 is -3";
  }
  SECTION("more elements than 63 bits count") {
    foreign.shape = {std::numeric_limits<std::int64_t>::max(), 3};
    foreign.strides = {3, 1};
    message = "beyond 63 bits at extent 0, which is 9223372036854775807";
  }
  SECTION("more elements, that are 0 modulo 2^64") {
    foreign.shape = {std::int64_t{1} << 32, std::int64_t{1} << 32};
    foreign.tensor.dl_tensor.strides = nullptr;
    message = "beyond 63 bits at extent 1";
  }
  SECTION("more bytes than 63 bits count") {
    foreign.shape = {std::int64_t{1} << 59, 4};
    foreign.tensor.dl_tensor.strides = nullptr;
    message = "times 4 bytes of an element, are beyond 63 bits";
  }
  SECTION("a place beyond all memory") {
    foreign.tensor.dl_tensor.byte_offset = std::numeric_limits<std::uint64_t>::max();
    message = "byte_offset is 18446744073709551615";
  }
  SECTION("no memory") {
    foreign.tensor.dl_tensor.data = nullptr;
    message = "no memory";
  }
  SECTION("alignment") {
    foreign.tensor.dl_tensor.byte_offset = 2;
    message = "not aligned to 4 bytes";
  }
  CHECK(foreign.refusal().find(message) != std::string::npos);
  CHECK(foreign.deleted == 1);
}

TEST_CASE("elements that are const are read-only, both ways", "[dlpack]") {
  const std::array<float, 2> elements{1, 2};
  OwnedTensor tensor = dlpack::export_view(Tensor<const float, 1>(elements.data(), 2),
                                           {DeviceType::cpu, 0}, nullptr);
  CHECK(tensor->flags == dlpack::read_only);
  const Imported<const float, 1> imported(std::move(tensor), DeviceType::cpu);
  CHECK((*imported)(1) == 2);
  CHECK_THROWS_AS((Imported<float, 1>(OwnedTensor(), DeviceType::cpu)), std::invalid_argument);
}

TEST_CASE("a lease exported and imported again is the same view", "[dlpack]") {
  TestStream stream;
  auto prefetcher = one_slot(2);
  {
    const SharedNumbers shared(prefetcher.next(stream));
    const Imported<std::uint64_t, 1> sample(shared.tensor(&Numbers::sample, stream),
                                            DeviceType::cuda);
    CHECK(sample->data_handle() == shared->sample.data_handle());
    CHECK(sample->extent(0) == kRowsOfBatch);
  }
  CHECK(prefetcher.next(stream));
}

// ---- Other people's header
// ------------------------------------------------------------------------

namespace other {

// As a dlpack.h has them, in a namespace here.
struct DLPackVersion {
  std::uint32_t major_, minor_;
};
enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2 };
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

}  // namespace other

TEST_CASE("a shared lease keeps its stream until it has ended on it", "[dlpack]") {
  Prefetcher<Numbers> prefetcher = one_slot(2);
  auto stream = std::make_shared<penstock::Stream>();
  const std::weak_ptr<penstock::Stream> watched = stream;
  OwnedTensor tensor;
  {
    penstock::Lease<Numbers> lease = prefetcher.next(stream->get());
    const SharedNumbers shared(std::move(lease), std::nullopt, std::move(stream));
    tensor = shared.tensor(&Numbers::payload);
  }
  CHECK_FALSE(watched.expired());
  tensor.reset();
  CHECK(watched.expired());
  const TestStream other;
  CHECK(prefetcher.next(other));  // The only slot is back.
}

TEST_CASE("another library's type reads the same, and its deleter call ends the lease",
          "[dlpack]") {
  TestStream stream;
  auto prefetcher = one_slot(2);
  auto* const theirs = dlpack::abi_cast<other::DLManagedTensorVersioned>(
      SharedNumbers(prefetcher.next(stream)).tensor(&Numbers::payload, stream).release());
  CHECK(theirs->version.major_ == 1);
  CHECK(theirs->dl_tensor.device.device_type == other::kDLCUDA);
  CHECK((theirs->dl_tensor.dtype.code == 1 && theirs->dl_tensor.dtype.bits == 32));
  CHECK(theirs->dl_tensor.shape[1] == penstock::test::kPayload);
  CHECK_THROWS_AS(prefetcher.next(stream), StallError);
  theirs->deleter(theirs);
  CHECK(prefetcher.next(stream));
}
