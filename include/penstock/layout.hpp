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

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/tensor.hpp>
#include <stdexcept>
#include <string>
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

 public:
  /// Throws std::invalid_argument unless `batch_size`, in samples, is at least 1.
  explicit Layout(std::int64_t batch_size) : batch_size_(batch_size) {
    if (batch_size < 1)
      throw std::invalid_argument("Layout: batch_size is " + std::to_string(batch_size) +
                                  ", must be at least 1");
  }

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
    return add({offset_of(member),
                0,
                sizeof(T),
                {sample_shape.extents.begin(), sample_shape.extents.end()},
                &Functions::write,
                &Functions::read});
  }

  /// Size of a block in bytes: the end of the last field of a full batch.
  std::size_t bytes() const noexcept {
    return fields_.empty() ? 0 : end(fields_.back()) + detail::field_guard;
  }

  std::int64_t batch_size() const noexcept { return batch_size_; }

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
    check_samples(samples);
    for (const Field& field : fields_)
      field.write(tensor(batch, field), block + field.offset, samples, field.shape.data());
  }

  /// Says that `batch` holds `samples` samples, as a source does that delivers fewer than it was
  /// asked for. The fields stay where they are. Throws as bind() does.
  void resize(Batch& batch, std::int64_t samples) const {
    check_samples(samples);
    for (const Field& field : fields_)
      field.write(tensor(batch, field), nullptr, samples, field.shape.data());
  }

  /// The number of samples that `batch`, bound to `block`, holds. Throws std::invalid_argument,
  /// which names the field, when that is more than batch_size(), when the fields disagree, and when
  /// a field was pointed elsewhere or has lost the shape of its samples.
  std::int64_t samples(const Batch& batch, const std::byte* block) const {
    if (fields_.empty()) throw std::invalid_argument("Layout: there are no fields");
    const std::int64_t first = read(batch, 0).samples;
    check_samples(first);
    for (std::size_t index = 0; index < fields_.size(); ++index) {
      const View view = read(batch, index);
      if (view.memory != block + fields_[index].offset)
        reject(index,
               "points elsewhere: sources write through a tensor, never replace its pointer");
      if (view.odd != 0)
        reject(index, "has " + std::to_string(view.odd_extent) + " as extent " +
                          std::to_string(view.odd) + ", the layout has " +
                          std::to_string(fields_[index].shape[view.odd - 1]));
      if (view.samples != first)
        reject(index, "has " + std::to_string(view.samples) + " samples, field 0 has " +
                          std::to_string(first));
    }
    return first;
  }

  /// Calls `f(offset, bytes)` for each part of a block that has to be copied for `samples` samples:
  /// ONE part when the batch is full, else the samples of each field, and nothing for none.
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

  /// Calls `f(offset, sample_bytes)` for each field: where it begins in a block, and the size of
  /// one of its samples.
  template <class F>
  void for_each_field(F&& f) const {
    for (const Field& field : fields_) f(field.offset, field.sample_bytes);
  }

 private:
  /// What a tensor says of itself.
  struct View {
    const std::byte* memory;
    std::int64_t samples;
    std::size_t odd;  ///< the first extent that is not the layout's; 0: there is none
    std::int64_t odd_extent;
  };

  /// One tensor of Batch, its type erased to the place of the member and two functions.
  struct Field {
    std::size_t member;        ///< bytes from the start of Batch to the tensor
    std::size_t offset;        ///< bytes from the start of a block to its elements
    std::size_t sample_bytes;  ///< of one sample
    std::vector<std::int64_t> shape;
    void (*write)(std::byte* tensor, std::byte* memory, std::int64_t samples,
                  const std::int64_t* shape);  ///< memory nullptr: keeps the tensor's own
    View (*read)(const std::byte* tensor, const std::int64_t* shape);
  };

  template <class T, int Rank>
  struct Access {
    static void write(std::byte* at, std::byte* memory, std::int64_t samples,
                      const std::int64_t* shape) {
      auto& tensor = *reinterpret_cast<Tensor<T, Rank>*>(at);
      cuda::std::array<std::int64_t, Rank> extents{samples};
      for (std::size_t i = 1; i < Rank; ++i) extents[i] = shape[i - 1];
      T* data = memory != nullptr ? reinterpret_cast<T*>(memory) : tensor.data_handle();
      tensor = Tensor<T, Rank>(data, extents);
    }
    static View read(const std::byte* at, const std::int64_t* shape) {
      const auto& tensor = *reinterpret_cast<const Tensor<T, Rank>*>(at);
      View view{reinterpret_cast<const std::byte*>(tensor.data_handle()), tensor.extent(0), 0, 0};
      for (std::size_t i = 1; i < Rank && view.odd == 0; ++i)
        if (tensor.extent(i) != shape[i - 1]) view.odd = i, view.odd_extent = tensor.extent(i);
      return view;
    }
  };

  template <class T>
  static std::size_t offset_of(T Batch::*member) {
    const Batch batch{};
    return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&(batch.*member)) -
                                    reinterpret_cast<const std::byte*>(&batch));
  }
  static std::byte* tensor(Batch& batch, const Field& field) {
    return reinterpret_cast<std::byte*>(&batch) + field.member;
  }
  View read(const Batch& batch, std::size_t index) const {
    const Field& field = fields_[index];
    return field.read(reinterpret_cast<const std::byte*>(&batch) + field.member,
                      field.shape.data());
  }

  /// `field.sample_bytes` comes as the size of one element.
  Layout& add(Field field) {
    const std::size_t index = fields_.size();
    for (const Field& earlier : fields_)
      if (earlier.member == field.member) reject(index, "is a member that was added before");
    auto sample_bytes = static_cast<std::int64_t>(field.sample_bytes);
    for (const std::int64_t extent : field.shape) {
      if (extent < 0) reject(index, "has a negative extent " + std::to_string(extent));
      sample_bytes = times(index, sample_bytes, extent);
    }
    times(index, sample_bytes, batch_size_);
    field.sample_bytes = static_cast<std::size_t>(sample_bytes);
    const std::size_t before = std::max(bytes(), detail::field_guard);
    field.offset = (before + field_alignment - 1) / field_alignment * field_alignment;
    if (end(field) > std::size_t{std::numeric_limits<std::int64_t>::max()})
      reject(index, "ends at byte " + std::to_string(end(field)) + ", beyond 63 bits");
    fields_.push_back(std::move(field));
    return *this;
  }
  static std::int64_t times(std::size_t index, std::int64_t a, std::int64_t b) {
    if (a != 0 && b > std::numeric_limits<std::int64_t>::max() / a)
      reject(index, "overflows: " + std::to_string(a) + " bytes times " + std::to_string(b));
    return a * b;
  }
  std::size_t end(const Field& field) const noexcept {
    return field.offset + static_cast<std::size_t>(batch_size_) * field.sample_bytes;
  }
  void check_samples(std::int64_t samples) const {
    if (samples < 0 || samples > batch_size_)
      throw std::invalid_argument("Layout: " + std::to_string(samples) +
                                  " samples in a batch of at most " + std::to_string(batch_size_));
  }
  [[noreturn]] static void reject(std::size_t index, const std::string& why) {
    throw std::invalid_argument("Layout: field " + std::to_string(index) + " " + why);
  }

  std::int64_t batch_size_;
  std::vector<Field> fields_;
};

}  // namespace penstock
