// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layout<Batch>: where each field of a batch lies in ONE contiguous block, so that a batch is ONE
// copy. The same layout binds a block of pinned memory for the source and a device slot for
// kernels.
//
//   auto layout = penstock::Layout<Images>{256}                    // batch size
//                     .field(&Images::pixels, {32, 32, 3})         // shape of one sample
//                     .field(&Images::labels, {});
//   Images batch = layout.bind(block, 256);                        // block: layout.bytes() bytes
//
// A const Layout may be used by any number of threads; nothing below the constructor and field()
// allocates.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <penstock/tensor.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {

/// Fields start at multiples of this many bytes of a block: what cudaMalloc guarantees for the
/// block itself, and enough for every vector load and for whole memory transactions.
inline constexpr std::size_t field_alignment = 256;

/// The shape of one sample: exactly `Rank` integers, or an array of them.
template <std::size_t Rank>
struct SampleShape {
  template <std::integral... Integers>
  requires(sizeof...(Integers) == Rank)
      // NOLINTNEXTLINE(google-explicit-constructor): {32, 32, 3} is a shape.
      constexpr SampleShape(Integers... integers)
      : extents{static_cast<std::int64_t>(integers)...} {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr SampleShape(const std::array<std::int64_t, Rank>& array) : extents(array) {}

  std::array<std::int64_t, Rank> extents;
};

namespace detail {

/// A layout without the type of its batches, which come as void*: what Layout<Batch> is made of.
class BlockLayout {
 public:
  /// What a tensor says of itself.
  struct View {
    const std::byte* memory;
    std::int64_t samples;
    std::size_t odd;  ///< the first extent that is not the layout's; 0: there is none
    std::int64_t odd_extent;
  };

  /// One tensor of a batch, its type erased to the place of the member and two functions.
  struct Field {
    std::size_t member;        ///< bytes from the start of the batch to the tensor
    std::size_t offset;        ///< bytes from the start of a block to its elements
    std::size_t sample_bytes;  ///< of one sample
    std::vector<std::int64_t> shape;
    void (*write)(void* tensor, std::byte* memory, std::int64_t samples,
                  const std::int64_t* shape);  ///< memory nullptr: keeps the tensor's own
    View (*read)(const void* tensor, const std::int64_t* shape);
  };

  /// `defaults` is a batch as its type's default initialisation leaves it.
  BlockLayout(std::int64_t batch_size, const void* defaults, std::size_t batch_bytes,
              std::size_t batch_alignment);

  /// `field.sample_bytes` comes as the size of one element, `field.offset` as nothing.
  void add(Field field);

  std::size_t bytes() const noexcept;
  std::int64_t batch_size() const noexcept { return batch_size_; }
  // Of a batch itself, the struct of tensors.
  std::size_t batch_bytes() const noexcept { return defaults_.size(); }
  std::size_t batch_alignment() const noexcept { return batch_alignment_; }

  // As the functions of Layout by these names.
  void bind(void* batch, std::byte* block, std::int64_t samples) const;
  void rebind(void* batch, std::byte* block, std::int64_t samples) const;
  void resize(void* batch, std::int64_t samples) const;
  std::int64_t samples(const void* batch, const std::byte* block) const;
  void check_samples(std::int64_t samples) const;

  template <class F>
  void for_each_range(std::int64_t samples, F&& f) const {
    check_samples(samples);
    if (samples == batch_size_) {
      if (bytes() != 0) f(std::size_t{0}, bytes());
      return;
    }
    for (const Field& field : fields_) {
      const std::size_t length = static_cast<std::size_t>(samples) * field.sample_bytes;
      if (length != 0) f(field.offset, length);
    }
  }
  const std::vector<Field>& fields() const noexcept { return fields_; }

 private:
  View read(const void* batch, std::size_t index) const;
  std::size_t end(const Field& field) const noexcept;

  std::int64_t batch_size_;
  std::size_t guard_;  // bytes that belong to nobody, before, between and behind the fields
  std::size_t batch_alignment_;
  std::vector<std::byte> defaults_;
  std::vector<Field> fields_;
};

}  // namespace detail

/// Describes `Batch`, an aggregate of Tensors and, if need be, of plain values that a source sets
/// and that travel with the batch. Tensors that are not registered are plain values too: nobody
/// moves what they point at.
template <class Batch>
class Layout {
  static_assert(std::is_aggregate_v<Batch>,
                "Batch must be an aggregate: a struct of tensors without constructors");
  static_assert(std::is_trivially_copyable_v<Batch>,
                "Batch must be trivially copyable: it is passed to kernels by value");
  static_assert(std::is_default_constructible_v<Batch>,
                "Batch must be default-initialisable: no references or const members");
  static_assert(alignof(Batch) <= field_alignment, "Batch is over-aligned");

 public:
  /// Throws std::invalid_argument unless `batch_size`, in samples, is at least 1.
  explicit Layout(std::int64_t batch_size) : Layout(batch_size, Batch{}) {}

  /// Adds a field after the ones so far. `sample_shape` is the shape of ONE sample: the tensor's
  /// own shape is (samples, sample_shape...). Throws std::invalid_argument for a negative extent, a
  /// field that was added before, and sizes beyond 63 bits.
  template <class T, class Extents>
  Layout& field(cuda::std::mdspan<T, Extents> Batch::*member,
                const SampleShape<Extents::rank() - 1>& sample_shape) {
    static_assert(std::is_same_v<cuda::std::mdspan<T, Extents>, Tensor<T, int{Extents::rank()}>>,
                  "a field must be a penstock::Tensor: 64-bit run-time extents");
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                  "the elements of a field must be trivially copyable and not const: sources write "
                  "them, and they are copied to the device as bytes");
    static_assert(alignof(T) <= field_alignment, "the elements of a field are over-aligned");
    using Functions = Access<T, int{Extents::rank()}>;
    erased_.add({offset_of(member),
                 0,
                 sizeof(T),
                 {sample_shape.extents.begin(), sample_shape.extents.end()},
                 &Functions::write,
                 &Functions::read});
    return *this;
  }

  /// Size of a block in bytes: the end of the last field of a full batch.
  std::size_t bytes() const noexcept { return erased_.bytes(); }

  std::int64_t batch_size() const noexcept { return erased_.batch_size(); }

  /// A batch of `samples` samples in `block`; members that are not fields have their defaults.
  /// `block` is `bytes()` bytes of host or device memory, aligned as the elements need it; it is
  /// not touched. Throws std::invalid_argument unless 0 <= samples <= batch_size().
  Batch bind(std::byte* block, std::int64_t samples) const {
    Batch batch{};
    rebind(batch, block, samples);
    return batch;
  }

  /// Points the fields of `batch` into `block`, as bind() does, and leaves its other members alone.
  void rebind(Batch& batch, std::byte* block, std::int64_t samples) const {
    erased_.rebind(&batch, block, samples);
  }

  /// Says that `batch` holds `samples` samples, as a source does that delivers fewer than it was
  /// asked for. The fields stay where they are. Throws as bind() does.
  void resize(Batch& batch, std::int64_t samples) const { erased_.resize(&batch, samples); }

  /// The number of samples that `batch`, bound to `block`, holds. Throws std::invalid_argument,
  /// which names the field, when that is more than batch_size(), when the fields disagree, and when
  /// a field was pointed elsewhere or has lost the shape of its samples.
  std::int64_t samples(const Batch& batch, const std::byte* block) const {
    return erased_.samples(&batch, block);
  }

  /// Calls `f(offset, bytes)` for each part of a block that has to be copied for `samples` samples:
  /// ONE part when the batch is full, else the samples of each field, and nothing for none.
  template <class F>
  void for_each_range(std::int64_t samples, F&& f) const {
    erased_.for_each_range(samples, std::forward<F>(f));
  }

  /// The same layout for the parts of penstock that do not know `Batch`.
  const detail::BlockLayout& erased() const noexcept { return erased_; }

 private:
  template <class T, int Rank>
  struct Access {
    static void write(void* at, std::byte* memory, std::int64_t samples,
                      const std::int64_t* shape) {
      auto& tensor = *static_cast<Tensor<T, Rank>*>(at);
      cuda::std::array<std::int64_t, Rank> extents{samples};
      for (std::size_t i = 1; i < Rank; ++i) extents[i] = shape[i - 1];
      T* data = memory != nullptr ? reinterpret_cast<T*>(memory) : tensor.data_handle();
      tensor = Tensor<T, Rank>(data, extents);
    }
    static detail::BlockLayout::View read(const void* at, const std::int64_t* shape) {
      const auto& tensor = *static_cast<const Tensor<T, Rank>*>(at);
      detail::BlockLayout::View view{reinterpret_cast<const std::byte*>(tensor.data_handle()),
                                     tensor.extent(0), 0, 0};
      for (std::size_t i = 1; i < Rank && view.odd == 0; ++i)
        if (tensor.extent(i) != shape[i - 1]) view.odd = i, view.odd_extent = tensor.extent(i);
      return view;
    }
  };

  Layout(std::int64_t batch_size, const Batch& defaults)
      : erased_(batch_size, &defaults, sizeof(Batch), alignof(Batch)) {}

  template <class T>
  static std::size_t offset_of(T Batch::*member) {
    const Batch batch{};
    return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&(batch.*member)) -
                                    reinterpret_cast<const std::byte*>(&batch));
  }

  detail::BlockLayout erased_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/layout.hpp>
#endif
