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
// Samples that have different numbers of values are a Ragged field (ragged.hpp).
//
// What crosses the bus is what a batch holds: of a batch of 100 samples in a layout of 256, the
// first 100 rows of each field. What a source writes behind the rows of its batch does not arrive;
// PENSTOCK_CHECKS finds it. A source that has more or fewer samples than it was asked for says so
// with resize(); rows that it wrote before it gave them up are no error.
//
// A const Layout may be used by any number of threads; nothing below the constructor and field()
// allocates.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <penstock/detail/memory/batch_members.hpp>
#include <penstock/ragged.hpp>
#include <penstock/tensor.hpp>
#include <span>
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

  /// One field of a batch, its type erased: a tensor, by the place of the member and two functions,
  /// or a ragged field, whose offsets lie at `offset` of a block and its values at `values`.
  struct Field {
    std::size_t member;        ///< bytes from the start of the batch to the tensor
    std::size_t offset;        ///< bytes from the start of a block to its elements
    std::size_t sample_bytes;  ///< of one sample; of one value, where the field is ragged
    std::vector<std::int64_t> shape;
    void (*write)(void* tensor, std::byte* memory, std::int64_t samples,
                  const std::int64_t* shape);  ///< memory nullptr: keeps the tensor's own
    View (*read)(const void* tensor, const std::int64_t* shape);
    std::int64_t capacity = 0;  ///< values of a ragged field
    std::size_t values = 0;
    std::string name{};  ///< the member's, or the field's number where that is not known

    bool is_ragged() const noexcept { return read == nullptr; }
  };

  /// A part of a block that belongs to one field: all of it, and what a batch uses.
  struct Part {
    const Field& field;
    std::size_t offset, bytes, used;
  };

  /// `defaults` is a batch as its type's default initialisation leaves it.
  BlockLayout(std::int64_t batch_size, const void* defaults, std::size_t batch_bytes,
              std::size_t batch_alignment, std::vector<BatchMember> members);

  /// `field.sample_bytes` comes as the size of one element; offsets and name come as nothing.
  void add(Field field);
  /// A view at this place of the batch is a plain value.
  void add_value(std::size_t member);
  /// Throws std::invalid_argument unless there are fields, and every view is one or a plain value.
  void require_fields() const;

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

  // ---- While a source fills a batch in a block of host memory

  /// Bytes behind the block, aligned to 8, that hold what was assigned to ragged fields; a multiple
  /// of 8, and 0 where there are none.
  std::size_t scratch_bytes() const noexcept;
  /// The most that finish() needs of `spare`.
  std::size_t spare_bytes() const noexcept;
  /// As bind(), and begins a fill: every row of a ragged field is unassigned.
  void bind_for_source(void* batch, std::byte* block, std::byte* scratch,
                       std::int64_t samples) const;
  /// Takes back what was assigned to `row`, of which the source makes another sample. Whoever
  /// assigns that row must not be running; other rows may be assigned meanwhile.
  void clear_row(void* batch, std::int64_t row) const;
  /// Ends the fill, when no source writes any more: takes the rows in `dropped`, which ascend, out
  /// of every field, puts ragged rows in order and writes their offsets. `spare` is the caller's
  /// to keep: it grows to the largest ragged field when rows first have to change places. Returns
  /// the number of samples. Throws as samples().
  std::int64_t finish(void* batch, std::byte* block, std::span<const std::int64_t> dropped,
                      std::vector<std::byte>& spare) const;

  /// Calls `f(offset, bytes)` for each part of `block` that a batch of `samples` samples uses;
  /// parts with nothing but padding between them come as one. `batch` is a finished one, or
  /// nullptr where no field is ragged.
  template <class F>
  void for_each_range(const void* batch, std::int64_t samples, F&& f) const {
    check_samples(samples);
    std::size_t begin = 0, end = 0;
    bool was_full = false;  // The next part may follow in the same range.
    for_each_part(batch, samples, [&](const Part& part) {
      if (part.bytes == 0) return;
      if (part.used != 0 && !(was_full && end != begin)) {
        if (end != begin) f(begin, end - begin);
        begin = part.offset;
      }
      if (part.used != 0) end = part.offset + part.used;
      was_full = part.used == part.bytes;
    });
    if (end != begin) f(begin, end - begin);
  }
  /// Calls `f(part)` for each field's part of a block, and for a ragged field's offsets and values,
  /// in the order in which they lie there.
  template <class F>
  void for_each_part(const void* batch, std::int64_t samples, F&& f) const {
    for (const Field& field : fields_) {
      if (!field.is_ragged()) {
        f(Part{field, field.offset, static_cast<std::size_t>(batch_size_) * field.sample_bytes,
               static_cast<std::size_t>(samples) * field.sample_bytes});
        continue;
      }
      const auto total = static_cast<std::size_t>(ragged(field, batch).total);
      f(Part{field, field.offset, offset_bytes(batch_size_), offset_bytes(samples)});
      f(Part{field, field.values, static_cast<std::size_t>(field.capacity) * field.sample_bytes,
             total * field.sample_bytes});
    }
  }
  const std::vector<Field>& fields() const noexcept { return fields_; }
  const RaggedParts& ragged(const Field& field, const void* batch) const;

 private:
  static std::size_t offset_bytes(std::int64_t samples) noexcept {
    return (static_cast<std::size_t>(samples) + 1) * sizeof(std::int64_t);
  }
  static RaggedParts& ragged(const Field& field, void* batch);
  std::size_t next_offset(std::size_t end) const noexcept;
  void rebind_ragged(const Field& field, void* batch, std::byte* block, std::int64_t samples) const;
  void drop_rows(const Field& field, std::byte* block, std::int64_t samples,
                 std::span<const std::int64_t> dropped) const;
  void check_ragged(const Field& field, const void* batch, const std::byte* block) const;
  View read(const void* batch, std::size_t index) const;
  std::size_t end(const Field& field) const noexcept;
  const char* name_of(std::size_t member) const noexcept;

  std::int64_t batch_size_;
  std::size_t guard_;  // bytes that belong to nobody, before, between and behind the fields
  std::size_t batch_alignment_;
  std::vector<std::byte> defaults_;
  std::vector<BatchMember> members_;
  std::vector<std::size_t> plain_views_;
  std::vector<Field> fields_;
};

}  // namespace detail

/// Describes `Batch`, an aggregate of Tensors and Raggeds and, if need be, of plain values that a
/// source sets and that travel with the batch. Messages call a field as the member is called.
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
    erased_.add({.member = offset_of(member),
                 .offset = 0,
                 .sample_bytes = sizeof(T),
                 .shape = {sample_shape.extents.begin(), sample_shape.extents.end()},
                 .write = &Functions::write,
                 .read = &Functions::read});
    return *this;
  }

  /// Adds a ragged field with room for `capacity` values of all samples of a batch together. It
  /// takes 8 bytes a sample besides, for the offsets. Throws std::invalid_argument as above.
  template <class T>
  Layout& field(Ragged<T> Batch::*member, Capacity capacity) {
    static_assert(alignof(T) <= field_alignment, "the values of a field are over-aligned");
    erased_.add({.member = offset_of(member),
                 .offset = 0,
                 .sample_bytes = sizeof(T),
                 .shape = {},
                 .write = nullptr,
                 .read = nullptr,
                 .capacity = capacity.values});
    return *this;
  }

  /// Says that `member`, a Tensor or a Ragged, is no field but a plain value: the source sets it,
  /// and nobody moves what it points at. Without this, a view that is no field is an error when a
  /// producer or a prefetcher is made: a source that wrote through it would write through a null
  /// pointer.
  template <class T>
  Layout& value(T Batch::*member) {
    erased_.add_value(offset_of(member));
    return *this;
  }

  /// Size of a block in bytes: the end of the last field of a full batch.
  std::size_t bytes() const noexcept { return erased_.bytes(); }

  std::int64_t batch_size() const noexcept { return erased_.batch_size(); }

  /// A batch of `samples` samples in `block`; members that are not fields have their defaults. The
  /// total() of a ragged field is its capacity: its offsets and values are what the block holds.
  /// `block` is `bytes()` bytes of host or device memory, aligned as the elements need it; it is
  /// not touched. Throws std::invalid_argument unless 0 <= samples <= batch_size().
  Batch bind(std::byte* block, std::int64_t samples) const {
    Batch batch{};
    erased_.bind(&batch, block, samples);
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
  /// ONE part when the batch is full, else the samples of each field, and nothing for none. Throws
  /// std::logic_error for a layout with ragged fields, where that depends on the batch.
  template <class F>
  void for_each_range(std::int64_t samples, F&& f) const {
    erased_.for_each_range(nullptr, samples, std::forward<F>(f));
  }
  /// The same for `batch`, as a producer delivered it: of ragged fields, the offsets and the values
  /// in use.
  template <class F>
  void for_each_range(const Batch& batch, std::int64_t samples, F&& f) const {
    erased_.for_each_range(&batch, samples, std::forward<F>(f));
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
      : erased_(batch_size, &defaults, sizeof(Batch), alignof(Batch),
                detail::batch_members<Batch>()) {}

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
