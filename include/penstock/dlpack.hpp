// SPDX-License-Identifier: Apache-2.0
#pragma once

// DLPack 1.x: the fields of a leased batch as tensors of other libraries, such as PyTorch, and
// their tensors as a penstock::Tensor. Nothing is copied.
//
//   penstock::dlpack::SharedLease<Images> shared(prefetcher.next(stream));
//   penstock::dlpack::OwnedTensor pixels = shared.tensor(&Images::pixels, stream);
//   penstock::dlpack::OwnedTensor labels = shared.tensor(&Images::labels, stream);
//   use(pixels.get());       // pixels.release() gives it away: who takes it calls its deleter
//
// Ownership: the SharedLease, its copies and the tensors made from it share the lease. The last of
// them to go ends it, as Lease::~Lease does, on the stream that `next` was given and on all that
// were named with `tensor` and `use_on`: the slot is not overwritten before the work that these
// streams hold at that moment is done. So a stream must live until then: the SharedLease can keep
// it. A deleter may run on any
// thread, after the Prefetcher is destroyed, and while the process exits. It allocates nothing and
// waits for nothing, unless it is the last user of a Prefetcher that is gone: then it frees the
// device memory.
//
// The types below have the layout of DLPack's of similar names, and are penstock's own, so that
// this header goes with any <dlpack/dlpack.h>, PyTorch's <ATen/dlpack.h> included. `abi_cast`
// converts between the two.
//
// Source: the DLPack specification, dmlc.github.io/dlpack/latest/c_api.html, version 1.0.

#include <cuda_runtime_api.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/ragged.hpp>
#include <penstock/tensor.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>

// Of <cuda_fp16.h> and <cuda_bf16.h>, which are long.
struct __half;         // NOLINT(bugprone-reserved-identifier)
struct __nv_bfloat16;  // NOLINT(bugprone-reserved-identifier)

namespace penstock::dlpack {

// ---- The types of the ABI. They may alias: a library reads them as its own types.

/// Kinds of memory: of the numbers of DLDeviceType, those that CUDA's memory can have.
enum class DeviceType : std::int32_t {
  cpu = 1,            ///< memory of the CPU
  cuda = 2,           ///< memory of a CUDA device
  cuda_host = 3,      ///< page-locked memory of the CPU
  cuda_managed = 13,  ///< managed memory of CUDA
};

/// Where memory is: DLDevice.
struct [[gnu::may_alias]] Device {
  DeviceType device_type;  ///< whose memory it is
  std::int32_t device_id;  ///< the ordinal of a CUDA device; 0 for the CPU
  friend bool operator==(const Device&, const Device&) = default;
};

/// What an element is: DLDataType.
struct [[gnu::may_alias]] DataType {
  std::uint8_t code;    ///< 0 signed, 1 unsigned integer, 2 float, 4 bfloat, 6 bool
  std::uint8_t bits;    ///< of one lane
  std::uint16_t lanes;  ///< 1, unless the elements are short vectors
  friend bool operator==(const DataType&, const DataType&) = default;
};

/// Elements in memory, owned by nobody: DLTensor. The first element is at `data` + `byte_offset`
/// bytes; strides are in elements.
struct [[gnu::may_alias]] TensorView {
  void* data;                 ///< the memory
  Device device;              ///< where that is
  std::int32_t ndim;          ///< the rank
  DataType dtype;             ///< of the elements
  std::int64_t* shape;        ///< `ndim` extents
  std::int64_t* strides;      ///< nullptr in an imported tensor: row-major
  std::uint64_t byte_offset;  ///< of the first element in `data`
};

/// A version of the ABI: DLPackVersion.
struct [[gnu::may_alias]] Version {
  // (glibc has macros called major and minor.)
  std::uint32_t major_version;  ///< another one is another layout
  std::uint32_t minor_version;  ///< a higher one has more types and flags
};

/// The version of the tensors that are exported. Any with major version 1 can be imported.
inline constexpr Version abi_version{1, 0};

/// A flag of ManagedTensor: nobody may write the elements.
inline constexpr std::uint64_t read_only = 1;

/// A tensor that is given away with its memory: DLManagedTensorVersioned.
struct [[gnu::may_alias]] ManagedTensor {
  Version version;                       ///< of DLPack
  void* manager_ctx;                     ///< the exporter's own
  void (*deleter)(ManagedTensor* self);  ///< called once; may be nullptr
  std::uint64_t flags;                   ///< read_only and others
  TensorView dl_tensor;                  ///< the elements
};

namespace detail {

/// The size of a DLManagedTensorVersioned, and where its members are.
template <class T>
constexpr std::array<std::size_t, 12> abi_of() {
  return {sizeof(T),
          offsetof(T, version),
          offsetof(T, manager_ctx),
          offsetof(T, deleter),
          offsetof(T, flags),
          offsetof(T, dl_tensor.data),
          offsetof(T, dl_tensor.device),
          offsetof(T, dl_tensor.ndim),
          offsetof(T, dl_tensor.dtype),
          offsetof(T, dl_tensor.shape),
          offsetof(T, dl_tensor.strides),
          offsetof(T, dl_tensor.byte_offset)};
}
static_assert(abi_of<ManagedTensor>() ==
              std::array<std::size_t, 12>{80, 0, 8, 16, 24, 32, 40, 48, 52, 56, 64, 72});

}  // namespace detail

/// `tensor` as a `To*`: between ManagedTensor and the DLManagedTensorVersioned of a dlpack.h. Does
/// not compile if their layouts differ.
template <class To, class From>
To* abi_cast(From* tensor) noexcept {
  static_assert(detail::abi_of<To>() == detail::abi_of<From>() &&
                    detail::abi_of<To>() == detail::abi_of<ManagedTensor>(),
                "abi_cast: one of the types is not DLPack 1.x's DLManagedTensorVersioned");
  return reinterpret_cast<To*>(tensor);
}

// ---- What both directions use -------------------------------------------------------------------

namespace detail {

template <class T>
constexpr DataType type_of() {
  if constexpr (std::same_as<T, bool>)
    return {6, 8 * sizeof(T), 1};
  else if constexpr (std::integral<T>)
    return {std::uint8_t{!std::is_signed_v<T>}, 8 * sizeof(T), 1};
  else if constexpr (std::same_as<T, float> || std::same_as<T, double>)
    return {2, 8 * sizeof(T), 1};
  else if constexpr (std::same_as<T, __half>)
    return {2, 16, 1};
  else if constexpr (std::same_as<T, __nv_bfloat16>)
    return {4, 16, 1};
  else
    return {0, 0, 0};
}

struct CallDeleter {
  void operator()(ManagedTensor* tensor) const noexcept {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};

/// A tensor, its shape, and what keeps its memory.
template <std::size_t Rank>
struct Exported {
  ManagedTensor tensor;
  std::array<std::int64_t, Rank> shape, strides;
  std::shared_ptr<const void> owner;

  static void destroy(ManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); }
};

/// The CUDA device of `memory`. Throws std::invalid_argument if it has none.
Device device_of(const void* memory);

/// Throws std::invalid_argument unless `tensor` is of DLPack 1.x, has these properties, and is
/// row-major. Returns the address of the first element.
void* require_importable(const ManagedTensor& tensor, DataType type, std::size_t alignment,
                         std::int32_t rank, bool writable, DeviceType where);

}  // namespace detail

/// The DLPack type of an element; with 0 bits, it has none. Specialise it (template <> inline
/// constexpr) for a type of yours that another library knows.
template <class T>
inline constexpr DataType data_type = detail::type_of<T>();

/// Owns a tensor: calls its deleter. release() gives it away.
using OwnedTensor = std::unique_ptr<ManagedTensor, detail::CallDeleter>;

// ---- Export -------------------------------------------------------------------------------------

/// `view` as a DLPack tensor: row-major, of memory on `device` that `owner` keeps. Elements that
/// are const make it read-only. One allocation on the host; no CUDA call.
template <class T, class Extents>
OwnedTensor export_view(const cuda::std::mdspan<T, Extents>& view, Device device,
                        std::shared_ptr<const void> owner) {
  static_assert(data_type<std::remove_const_t<T>>.bits != 0,
                "DLPack has no type for these elements: it has bool, integers, float, double, "
                "__half and __nv_bfloat16; specialise penstock::dlpack::data_type for others");
  constexpr std::size_t rank = Extents::rank();
  auto exported = std::make_unique<detail::Exported<rank>>();
  std::int64_t stride = 1;
  for (std::size_t i = rank; i-- > 0;) {
    exported->shape[i] = view.extent(i);
    exported->strides[i] = stride;
    stride *= view.extent(i);
  }
  exported->owner = std::move(owner);
  ManagedTensor& tensor = exported->tensor;
  tensor.version = abi_version;
  tensor.manager_ctx = exported.get();
  tensor.deleter = &detail::Exported<rank>::destroy;
  tensor.flags = std::is_const_v<T> ? read_only : 0;
  tensor.dl_tensor = {const_cast<std::remove_const_t<T>*>(view.data_handle()),
                      device,
                      static_cast<std::int32_t>(rank),
                      data_type<std::remove_const_t<T>>,
                      exported->shape.data(),
                      exported->strides.data(),
                      0};
  return OwnedTensor(&exported.release()->tensor);
}

/// A lease that several owners share; see above. Copies share it too. Any thread may call any
/// member.
template <class Batch>
class SharedLease {
 public:
  /// `device` is what the tensors say of their memory; by default the CUDA device whose memory it
  /// is. Over penstock::emulated device memory is the CPU's: with {DeviceType::cpu, 0} other
  /// libraries can read it, once `stream` of next() is synchronised. `keeps` is destroyed after the
  /// end of the lease, on the thread that ends it: the stream, where it would not live until then.
  /// Throws std::logic_error if the lease is empty.
  explicit SharedLease(Lease<Batch> lease, std::optional<Device> device = std::nullopt,
                       std::shared_ptr<const void> keeps = nullptr)
      : shared_(std::make_shared<Shared>(std::move(lease), device, std::move(keeps))) {
    static_cast<void>(*shared_->lease);
  }
  // Copies alone: a SharedLease always has a batch.
  SharedLease(const SharedLease&) = default;
  SharedLease& operator=(const SharedLease&) = default;
  ~SharedLease() = default;

  /// Views of device memory, as the lease has them.
  const Batch& operator*() const noexcept { return *shared_->lease; }
  /// Members of the batch.
  const Batch* operator->() const noexcept { return &*shared_->lease; }
  /// The lease itself, for its ticket and its slot.
  const Lease<Batch>& lease() const noexcept { return shared_->lease; }

  /// Adds `stream` to the consumers, as Lease::also_used_on does: work queued on it from now on
  /// sees the batch complete, and the slot is not overwritten before the work that it holds at the
  /// end of the lease is done. Does not block. Throws what also_used_on throws.
  [[gnu::always_inline]] void use_on(StreamRef stream) const {
    add_consumer(penstock::detail::named(stream));
  }

  /// A field for work on `stream`, as use_on(stream) adds it. The elements are not copied. One
  /// allocation on the host. Does not block. Throws what use_on throws; std::invalid_argument if
  /// the memory is no CUDA device's, which a plain value's may be (see Layout::value), unless the
  /// constructor was told a device.
  template <class T, class Extents>
  [[gnu::always_inline]] OwnedTensor tensor(cuda::std::mdspan<T, Extents> Batch::*member,
                                            StreamRef stream) const {
    use_on(stream);
    return tensor(member);
  }
  /// The same for work on streams that are consumers already.
  template <class T, class Extents>
  OwnedTensor tensor(cuda::std::mdspan<T, Extents> Batch::*member) const {
    return share((**this).*member);
  }

  /// A ragged field is two tensors, since DLPack has no other way: the values of all rows, of shape
  /// (total()), and where each row begins, of shape (size() + 1) and type int64. In a batch that
  /// was made on the device, total() is what set_total() was told, by default the capacity.
  template <class T>
  [[gnu::always_inline]] OwnedTensor values(Ragged<T> Batch::*member, StreamRef stream) const {
    use_on(stream);
    return values(member);
  }
  /// The values, for work on streams that are consumers already.
  template <class T>
  OwnedTensor values(Ragged<T> Batch::*member) const {
    const Ragged<T>& field = (**this).*member;
    return share(Tensor<T, 1>(field.data(), field.total()));
  }
  /// Where each row begins; see values().
  template <class T>
  [[gnu::always_inline]] OwnedTensor offsets(Ragged<T> Batch::*member, StreamRef stream) const {
    use_on(stream);
    return offsets(member);
  }
  /// The same for work on streams that are consumers already.
  template <class T>
  OwnedTensor offsets(Ragged<T> Batch::*member) const {
    const Ragged<T>& field = (**this).*member;
    return share(Tensor<std::int64_t, 1>(field.offsets(), field.size() + 1));
  }

 private:
  struct Shared {
    Shared(Lease<Batch>&& of, std::optional<Device> named_device, std::shared_ptr<const void> keeps)
        : kept(std::move(keeps)), lease(std::move(of)), device(named_device) {}

    std::shared_ptr<const void> kept;  // before the lease: destroyed after it
    Lease<Batch> lease;
    std::mutex mutex;  // Threads may name streams at the same time.
    std::optional<Device> device;
  };

  void add_consumer(cudaStream_t stream) const {
    const std::lock_guard lock(shared_->mutex);
    shared_->lease.also_used_on(stream);
  }

  template <class T, class Extents>
  OwnedTensor share(const cuda::std::mdspan<T, Extents>& view) const {
    const Device device =
        shared_->device ? *shared_->device : detail::device_of(view.data_handle());
    return export_view(view, device, shared_);
  }

  std::shared_ptr<Shared> shared_;
};

// ---- Import -------------------------------------------------------------------------------------

/// A tensor of another library as a Tensor<T, Rank>, with ownership. Its deleter runs with the
/// Imported: by DLPack's rules the library may then reuse the memory for work on its own stream, so
/// let that stream wait for yours first, or synchronise.
template <class T, int Rank>
class Imported {
 public:
  /// Takes `tensor`. Its memory must be ready on your stream: an exporter that was given the stream
  /// by __dlpack__ ensures that. Throws std::invalid_argument, and calls the deleter, if it is of
  /// another major version of DLPack, has another type or rank, lies elsewhere than `where` says,
  /// or is not row-major; if it is read-only, unless T is const; and if it is not aligned as T is.
  Imported(OwnedTensor tensor, DeviceType where) : owned_(std::move(tensor)) {
    static_assert(data_type<std::remove_const_t<T>>.bits != 0, "DLPack has no type for T");
    if (owned_ == nullptr) throw std::invalid_argument("dlpack: there is no tensor to import");
    void* const first = detail::require_importable(*owned_, data_type<std::remove_const_t<T>>,
                                                   alignof(T), Rank, !std::is_const_v<T>, where);
    constexpr std::size_t rank{Rank};
    using Extents = cuda::std::span<const std::int64_t, rank>;
    view_ = Tensor<T, Rank>(static_cast<T*>(first), Extents(owned_->dl_tensor.shape, rank));
  }

  /// The view; valid as long as this object.
  const Tensor<T, Rank>& operator*() const noexcept { return view_; }
  /// Members of the view.
  const Tensor<T, Rank>* operator->() const noexcept { return &view_; }
  /// Where its memory is.
  Device device() const noexcept { return owned_->dl_tensor.device; }

 private:
  OwnedTensor owned_;
  Tensor<T, Rank> view_;
};

}  // namespace penstock::dlpack

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/dlpack.hpp>
#endif
