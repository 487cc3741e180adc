// SPDX-License-Identifier: Apache-2.0
#pragma once

// DLPack 1.x exports the fields of a leased batch as tensors of other libraries, such as PyTorch,
// and imports their tensors as a penstock::Tensor. Nothing is copied.
//
//   penstock::dlpack::SharedLease<Images> shared(prefetcher.next(stream));
//   penstock::dlpack::OwnedTensor pixels = shared.tensor(&Images::pixels, stream);
//   penstock::dlpack::OwnedTensor labels = shared.tensor(&Images::labels, stream);
//   use(pixels.get());       // after pixels.release() the new owner has to call its deleter
//
// The SharedLease, its copies and the tensors made from it share the lease. When the last of them
// is destroyed, the lease ends as by Lease::~Lease, on the stream that `next` was given and on all
// streams that were named with `tensor` and `use_on`. The slot is not overwritten before the work
// that is queued on these streams at that moment is done. So the streams must live until then; the
// SharedLease can keep one. A deleter may run on any thread, after the Prefetcher is destroyed, and
// while the process exits. It does not allocate or wait, unless it is the last user of a destroyed
// Prefetcher: then it frees the device memory.
//
// The types below have the layout of DLPack's types of similar names. They are penstock's own, so
// this header works with any <dlpack/dlpack.h>, also with PyTorch's <ATen/dlpack.h>. `abi_cast`
// converts between the two.
//
// The source is the DLPack specification, version 1.0: dmlc.github.io/dlpack/latest/c_api.html.

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

// These types are declared here, because <cuda_fp16.h> and <cuda_bf16.h> are long headers.
struct __half;         // NOLINT(bugprone-reserved-identifier)
struct __nv_bfloat16;  // NOLINT(bugprone-reserved-identifier)

namespace penstock::inline PENSTOCK_ABI::dlpack {

// ---- The types of the ABI. They may alias, because a library reads them as its own types.

/// Kinds of memory: the values of DLDeviceType that CUDA's memory can have.
enum class DeviceType : std::int32_t {
  cpu = 1,            ///< memory of the CPU
  cuda = 2,           ///< memory of a CUDA device
  cuda_host = 3,      ///< page-locked memory of the CPU
  cuda_managed = 13,  ///< managed memory of CUDA
};

/// Says where memory is; DLPack's DLDevice.
struct [[gnu::may_alias]] Device {
  DeviceType device_type;  ///< the kind of memory
  std::int32_t device_id;  ///< the ordinal of a CUDA device; 0 for the CPU
  friend bool operator==(const Device&, const Device&) = default;
};

/// The type of an element; DLPack's DLDataType.
struct [[gnu::may_alias]] DataType {
  std::uint8_t code;    ///< 0 signed, 1 unsigned integer, 2 float, 4 bfloat, 6 bool
  std::uint8_t bits;    ///< the bits of one lane
  std::uint16_t lanes;  ///< 1, unless the elements are short vectors
  friend bool operator==(const DataType&, const DataType&) = default;
};

/// Elements in memory that this does not own; DLPack's DLTensor. The first element is at `data` +
/// `byte_offset` bytes. Strides are in elements.
struct [[gnu::may_alias]] TensorView {
  void* data;                 ///< the memory
  Device device;              ///< where the memory is
  std::int32_t ndim;          ///< the rank
  DataType dtype;             ///< the type of the elements
  std::int64_t* shape;        ///< `ndim` extents
  std::int64_t* strides;      ///< `ndim` strides; nullptr in an imported tensor: row-major
  std::uint64_t byte_offset;  ///< the offset of the first element from `data`
};

/// A version of the ABI; DLPack's DLPackVersion.
struct [[gnu::may_alias]] Version {
  // They are not called major and minor, because glibc has macros of these names.
  std::uint32_t major_version;  ///< another major version has another layout
  std::uint32_t minor_version;  ///< a higher one has more types and flags
};

/// The version of exported tensors. Tensors of any minor version of 1 can be imported.
inline constexpr Version abi_version{1, 0};

/// A flag of ManagedTensor: nobody may write the elements.
inline constexpr std::uint64_t read_only = 1;

/// A tensor that is passed on with its memory; DLPack's DLManagedTensorVersioned.
struct [[gnu::may_alias]] ManagedTensor {
  Version version;                       ///< the version of DLPack
  void* manager_ctx;                     ///< data of the exporter
  void (*deleter)(ManagedTensor* self);  ///< called once; may be nullptr
  std::uint64_t flags;                   ///< read_only and others
  TensorView dl_tensor;                  ///< the elements
};

namespace detail {

/// Returns the size of a DLManagedTensorVersioned and the offsets of its members.
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

/// Converts `tensor` to `To*`, between ManagedTensor and the DLManagedTensorVersioned of a
/// dlpack.h. It does not compile if their layouts differ.
template <class To, class From>
To* abi_cast(From* tensor) noexcept {
  static_assert(detail::abi_of<To>() == detail::abi_of<From>() &&
                    detail::abi_of<To>() == detail::abi_of<ManagedTensor>(),
                "abi_cast: one of the types is not DLPack 1.x's DLManagedTensorVersioned");
  return reinterpret_cast<To*>(tensor);
}

// ---- For export and import ----------------------------------------------------------------------

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

/// A tensor, its shape, and the owner of its memory.
template <std::size_t Rank>
struct Exported {
  ManagedTensor tensor;
  std::array<std::int64_t, Rank> shape, strides;
  std::shared_ptr<const void> owner;

  static void destroy(ManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); }
};

/// Returns the CUDA device of `memory`. Throws std::invalid_argument if it has none.
Device device_of(const void* memory);

/// Returns the address of the first element. Throws std::invalid_argument unless `tensor` is of
/// DLPack 1.x, has these properties, and is row-major.
void* require_importable(const ManagedTensor& tensor, DataType type, std::size_t alignment,
                         std::int32_t rank, bool writable, DeviceType where);

}  // namespace detail

/// The DLPack type of an element. It has 0 bits if DLPack has no such type. Specialise it (template
/// <> inline constexpr) for a type of yours that another library knows.
template <class T>
inline constexpr DataType data_type = detail::type_of<T>();

/// Owns a tensor and calls its deleter at the end. After release() the caller owns the tensor.
using OwnedTensor = std::unique_ptr<ManagedTensor, detail::CallDeleter>;

// ---- Export -------------------------------------------------------------------------------------

/// Returns `view` as a row-major DLPack tensor. Its memory is on `device`, and `owner` keeps it. It
/// is read-only if the elements are const. Makes one allocation on the host and no CUDA call.
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

/// A lease that several owners share (see above). Copies share the same lease. Any thread may call
/// any member.
template <class Batch>
class SharedLease {
 public:
  /// `device` is where the tensors say that their memory is, by default on its CUDA device. Over
  /// penstock::emulated, device memory is memory of the CPU: with {DeviceType::cpu, 0} other
  /// libraries can read it after `stream` of next() is synchronised. `keeps` is destroyed after the
  /// end of the lease, on the thread that ends it. Pass the stream there if it would not live until
  /// then. Throws std::logic_error if the lease is empty.
  explicit SharedLease(Lease<Batch> lease, std::optional<Device> device = std::nullopt,
                       std::shared_ptr<const void> keeps = nullptr)
      : shared_(std::make_shared<Shared>(std::move(lease), device, std::move(keeps))) {
    static_cast<void>(*shared_->lease);
  }
  // It cannot be moved, only copied, so a SharedLease always has a batch.
  SharedLease(const SharedLease&) = default;
  SharedLease& operator=(const SharedLease&) = default;
  ~SharedLease() = default;

  /// Returns the batch of the lease: views of device memory.
  const Batch& operator*() const noexcept { return *shared_->lease; }
  /// Gives access to the members of the batch.
  const Batch* operator->() const noexcept { return &*shared_->lease; }
  /// Returns the lease itself, for its ticket and its slot.
  const Lease<Batch>& lease() const noexcept { return shared_->lease; }

  /// Adds `stream` to the consumers, as Lease::also_used_on does. Work that is queued on it from
  /// now on sees the complete batch. The slot is not overwritten before the work that is queued on
  /// it at the end of the lease is done. Does not block. Throws what also_used_on throws.
  [[gnu::always_inline]] void use_on(StreamRef stream) const {
    add_consumer(penstock::detail::named(stream));
  }

  /// Returns a field for work on `stream`, which use_on(stream) adds to the consumers. The elements
  /// are not copied. Makes one allocation on the host and does not block. Throws what use_on
  /// throws. Throws std::invalid_argument if the memory is on no CUDA device, as that of a plain
  /// value may be (see Layout::value), and the constructor was given no device.
  template <class T, class Extents>
  [[gnu::always_inline]] OwnedTensor tensor(cuda::std::mdspan<T, Extents> Batch::*member,
                                            StreamRef stream) const {
    use_on(stream);
    return tensor(member);
  }
  /// Does the same for work on streams that are consumers already.
  template <class T, class Extents>
  OwnedTensor tensor(cuda::std::mdspan<T, Extents> Batch::*member) const {
    return share((**this).*member);
  }

  /// Returns the values of all rows, of shape (total()). DLPack has no ragged tensors, so a ragged
  /// field is two: the values, and the offsets at which rows begin, of shape (size() + 1) and type
  /// int64. In a batch that was made on the device, total() is the value that set_total() was
  /// given, by default the capacity.
  template <class T>
  [[gnu::always_inline]] OwnedTensor values(Ragged<T> Batch::*member, StreamRef stream) const {
    use_on(stream);
    return values(member);
  }
  /// Returns the values for work on streams that are consumers already.
  template <class T>
  OwnedTensor values(Ragged<T> Batch::*member) const {
    const Ragged<T>& field = (**this).*member;
    return share(Tensor<T, 1>(field.data(), field.total()));
  }
  /// Returns the offsets at which rows begin (see values()).
  template <class T>
  [[gnu::always_inline]] OwnedTensor offsets(Ragged<T> Batch::*member, StreamRef stream) const {
    use_on(stream);
    return offsets(member);
  }
  /// Does the same for work on streams that are consumers already.
  template <class T>
  OwnedTensor offsets(Ragged<T> Batch::*member) const {
    const Ragged<T>& field = (**this).*member;
    return share(Tensor<std::int64_t, 1>(field.offsets(), field.size() + 1));
  }

 private:
  struct Shared {
    Shared(Lease<Batch>&& of, std::optional<Device> named_device, std::shared_ptr<const void> keeps)
        : kept(std::move(keeps)), lease(std::move(of)), device(named_device) {}

    std::shared_ptr<const void> kept;  // is destroyed after the lease, since it stands before it
    Lease<Batch> lease;
    std::mutex mutex;  // protects the lease: threads may add streams at the same time
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

/// Owns a tensor of another library and views it as a Tensor<T, Rank>. The destructor calls its
/// deleter. By DLPack's rules the library may then reuse the memory for work on its own stream, so
/// let that stream wait for yours first, or synchronise.
template <class T, int Rank>
class Imported {
 public:
  /// Takes `tensor`. Its memory must be ready on your stream. An exporter that gets the stream by
  /// __dlpack__ makes sure of that. Calls the deleter and throws std::invalid_argument if the
  /// tensor is of another major version of DLPack, has another type, rank or alignment, is not
  /// where `where` says, is not row-major, or is read-only although T is not const.
  Imported(OwnedTensor tensor, DeviceType where) : owned_(std::move(tensor)) {
    static_assert(data_type<std::remove_const_t<T>>.bits != 0, "DLPack has no type for T");
    if (owned_ == nullptr) throw std::invalid_argument("dlpack: there is no tensor to import");
    void* const first = detail::require_importable(*owned_, data_type<std::remove_const_t<T>>,
                                                   alignof(T), Rank, !std::is_const_v<T>, where);
    constexpr std::size_t rank{Rank};
    using Extents = cuda::std::span<const std::int64_t, rank>;
    view_ = Tensor<T, Rank>(static_cast<T*>(first), Extents(owned_->dl_tensor.shape, rank));
  }

  /// Returns the view, which is valid as long as this object.
  const Tensor<T, Rank>& operator*() const noexcept { return view_; }
  /// Gives access to the members of the view.
  const Tensor<T, Rank>* operator->() const noexcept { return &view_; }
  /// Returns where its memory is.
  Device device() const noexcept { return owned_->dl_tensor.device; }

 private:
  OwnedTensor owned_;
  Tensor<T, Rank> view_;
};

}  // namespace penstock::dlpack

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/dlpack.hpp>
#endif
