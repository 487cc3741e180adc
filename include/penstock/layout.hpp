// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layout<Batch>: the place of each field of a batch in one contiguous block, so that a batch is one
// copy. The same layout binds a pinned block for the source and a device slot for kernels.
//
//   auto layout = penstock::Layout<Images>{256}                    // batch size
//                     .field(&Images::pixels, {32, 32, 3})         // shape of one sample
//                     .field(&Images::labels, {});
//   Images batch = layout.bind(block, 256);                        // block: layout.bytes() bytes
//
// A field whose samples have different numbers of values is a Ragged (ragged.hpp).
//
// Only the rows of a batch are copied to the device: of a batch of 100 samples in a layout of 256,
// the first 100 rows of each field. Rows that a source writes beyond those of its batch are not
// copied; PENSTOCK_CHECKS reports them. A source that has another number of samples than requested
// calls resize(); it may have written the rows that it drops.
//
// Any number of threads may use a const Layout. Only the constructor and field() allocate.

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

namespace penstock::inline PENSTOCK_ABI {

/// Each field starts at a multiple of this many bytes in its block. cudaMalloc guarantees the same
/// for the block. It suffices for all vector loads and for whole memory transactions.
inline constexpr std::size_t field_alignment = 256;

/// The shape of one sample: `Rank` integers, or an array of them.
template <std::size_t Rank>
struct SampleShape {
  /// `Rank` integers, none for a sample of one value.
  template <std::integral... Integers>
  requires(sizeof...(Integers) == Rank)
      // NOLINTNEXTLINE(google-explicit-constructor): {32, 32, 3} is a shape.
      constexpr SampleShape(Integers... integers)
      : extents{static_cast<std::int64_t>(integers)...} {}
  // The compiler shows the line of what is deleted, with its comment.
  // clang-format off
  /// Another number of integers.
  template <std::integral... Integers>
  requires(sizeof...(Integers) != Rank)
  constexpr SampleShape(Integers...) = delete;  // the shape of one sample has one extent less than the Tensor's rank, whose first extent counts samples: {} for a Tensor<T, 1>, {32, 32, 3} for a Tensor<T, 4>
  /// Something else.
  template <class... Others>
  requires(!(std::integral<Others> && ...) && (!std::is_convertible_v<Others, std::array<std::int64_t, Rank>> && ...))
  constexpr SampleShape(Others...) = delete;  // the shape of one sample is integers, such as {32, 32, 3}; a penstock::Capacity is for a Ragged
  // clang-format on
  /// An array of `Rank` integers.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr SampleShape(const std::array<std::int64_t, Rank>& array) : extents(array) {}

  /// Elements in each dimension.
  std::array<std::int64_t, Rank> extents;
};

namespace detail {

/// Stands for any argument that is given as the shape of a member that is not a field.
struct AnyShape {
  template <class... T>
  // NOLINTNEXTLINE(google-explicit-constructor): a braced list is one.
  constexpr AnyShape(const T&...) {}
};

/// The implementation of Layout<Batch>, independent of the type of the batches: they are void*.
class BlockLayout {
 public:
  /// What a tensor refers to.
  struct View {
    const std::byte* memory;
    std::int64_t samples;
    std::size_t odd;  ///< the first extent that differs from the layout; 0: none does
    std::int64_t odd_extent;
  };

  /// What a narrower type could save.
  enum class Element : std::uint8_t { other, integer, floating };
  template <class T>
  static constexpr Element element_of = std::is_floating_point_v<T> ? Element::floating
                                        : std::is_integral_v<T>     ? Element::integer
                                                                    : Element::other;

  /// A type-erased field. A tensor is accessed by two functions. A ragged field has its offsets at
  /// `offset` in a block and its values at `values`.
  struct Field {
    std::size_t member;        ///< bytes from the start of the batch to the member
    std::size_t offset;        ///< bytes from the start of a block to the elements
    std::size_t sample_bytes;  ///< of one sample; of one value in a ragged field
    std::vector<std::int64_t> shape;
    void (*write)(void* tensor, std::byte* memory, std::int64_t samples,
                  const std::int64_t* shape);  ///< memory nullptr: keeps the tensor's own
    View (*read)(const void* tensor, const std::int64_t* shape);
    std::int64_t capacity = 0;  ///< values of a ragged field
    std::size_t values = 0;
    std::string name{};  ///< of the member; the number of the field if the name is unknown
    Element element = Element::other;
    std::size_t element_bytes = 0;  ///< of one value

    bool is_ragged() const noexcept { return read == nullptr; }
  };

  /// A part of a block that belongs to a field: its bytes, and how many of them a batch uses.
  struct Part {
    const Field& field;
    std::size_t offset, bytes, used;
  };

  /// In place of a batch size: there is none.
  static constexpr std::int64_t no_batch_size = INT64_MIN;

  /// `defaults` is a default-initialised batch.
  BlockLayout(std::int64_t batch_size, const void* defaults, std::size_t batch_bytes,
              std::size_t batch_alignment, std::vector<BatchMember> members);

  /// `field.sample_bytes` is the size of one element; add() sets the rest, but for the shape and
  /// the kind of the elements.
  void add(Field field);
  /// Reserves room for the numbers of the samples of a full batch. Throws std::runtime_error, with
  /// the batch size, where there is no memory.
  void reserve_samples(std::vector<std::uint64_t>& numbers) const;
  /// Declares the view at this place of the batch a plain value.
  void add_value(std::size_t member) { plain_views_.push_back(member); }
  /// Throws std::invalid_argument if there are no fields, or a view is neither a field nor a plain
  /// value.
  void require_fields() const;

  std::size_t bytes() const noexcept;
  std::int64_t batch_size() const noexcept { return batch_size_; }
  /// This layout. Throws std::invalid_argument if it has no batch size.
  const BlockLayout& for_source() const;
  /// This layout, with that batch size if it has none.
  BlockLayout for_slots(std::int64_t batch_size) const;
  // These describe the Batch object.
  std::size_t batch_bytes() const noexcept { return defaults_.size(); }
  std::size_t batch_alignment() const noexcept { return batch_alignment_; }

  // Like the members of Layout with these names.
  void bind(void* batch, std::byte* block, std::int64_t samples) const;
  void rebind(void* batch, std::byte* block, std::int64_t samples) const;
  void resize(void* batch, std::int64_t samples) const;
  std::int64_t samples(const void* batch, const std::byte* block) const;
  void check_samples(std::int64_t samples) const;

  // ---- While a source fills a batch in a block of host memory

  /// Size of the `scratch` memory that records assignments to ragged fields, aligned to 8 bytes: a
  /// multiple of 8; 0 without ragged fields.
  std::size_t scratch_bytes() const noexcept;
  /// The most that finish() needs of `spare`.
  std::size_t spare_bytes() const noexcept;
  /// Like bind(), with every row of the ragged fields unassigned.
  void bind_for_source(void* batch, std::byte* block, std::byte* scratch,
                       std::int64_t samples) const;
  /// Undoes the assignments to `row`, so that the source can fill it with another sample. Their
  /// room is not given back. Other threads may assign other rows meanwhile.
  void clear_row(void* batch, std::int64_t row) const;
  /// The name of a ragged field in which a row found no room; nullptr: there is none.
  const char* refused_room(const void* batch) const;
  /// Ends the fill, when no source writes any more: removes the rows in `dropped`, in ascending
  /// order, from every field, sorts ragged rows and writes their offsets. `spare` is a buffer to be
  /// kept for the next call; it grows to the largest ragged field if rows have to be moved. Returns
  /// the number of samples. Throws like samples().
  std::int64_t finish(void* batch, std::byte* block, std::span<const std::int64_t> dropped,
                      std::vector<std::byte>& spare) const;

  /// Calls `f(offset, bytes)` for each range of a block that a batch of `samples` samples uses.
  /// Parts with only padding between them form one range. `batch` is a finished batch; it may be
  /// nullptr if no field is ragged.
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
  /// Calls `f(part)` for each tensor, and for the offsets and the values of each ragged field, in
  /// the order of their addresses.
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
  View read(const void* batch, std::size_t index) const;
  std::size_t end(const Field& field) const noexcept;

  std::int64_t batch_size_;  // 0: none
  std::size_t guard_;        // unused bytes before, between and behind the fields
  std::size_t batch_alignment_;
  std::vector<std::byte> defaults_;
  std::vector<BatchMember> members_;
  std::vector<std::size_t> plain_views_;
  std::vector<Field> fields_;
};

}  // namespace detail

/// Describes `Batch`, an aggregate of Tensors and Raggeds. Other members are plain values, which a
/// source sets and the consumer reads. Messages name a field by its member.
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
  /// Throws std::invalid_argument unless `batch_size`, in samples, is 1 to 2^48.
  explicit Layout(std::int64_t batch_size) : Layout(batch_size, Batch{}) {}
  /// For a DeviceTransform: with the batch size of the Prefetcher's host layout. Then bytes() and
  /// batch_size() are 0, and everything that needs a batch size (bind, resize, a BatchProducer)
  /// throws std::invalid_argument.
  Layout() : Layout(detail::BlockLayout::no_batch_size, Batch{}) {}

  /// Adds a field behind the present ones. `sample_shape` is the shape of one sample; the shape of
  /// the tensor is (samples, sample_shape...). Throws std::invalid_argument for a negative extent,
  /// a field that was added before, and sizes beyond 63 bits.
  template <class T, class Extents>
  Layout& field(cuda::std::mdspan<T, Extents> Batch::*member,
                const SampleShape<Extents::rank() - 1>& sample_shape) & {
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
                 .read = &Functions::read,
                 .element = detail::BlockLayout::element_of<T>});
    return *this;
  }

  /// Adds a ragged field with room for `capacity` values, of all samples of a batch together. Its
  /// offsets take another 8 bytes for each sample. Throws like the function above.
  template <class T>
  Layout& field(Ragged<T> Batch::*member, Capacity capacity) & {
    static_assert(alignof(T) <= field_alignment, "the values of a field are over-aligned");
    erased_.add({.member = offset_of(member),
                 .offset = 0,
                 .sample_bytes = sizeof(T),
                 .shape = {},
                 .write = nullptr,
                 .read = nullptr,
                 .capacity = capacity.values,
                 .element = detail::BlockLayout::element_of<T>});
    return *this;
  }

  /// Does not compile: a Ragged needs a Capacity. The message says so.
  template <class T, std::integral Integer>
  Layout& field(Ragged<T> Batch::*, Integer) {
    static_assert(!std::is_same_v<T, T>,
                  "the room of a Ragged is a Capacity, the values of all samples of a batch "
                  "together: field(&Batch::member, penstock::Capacity{values})");
    return *this;
  }
  /// Does not compile: the member is not a field of this layout. The message says so.
  template <class T, class Other>
  requires(!detail::is_view<T> ||
           !std::is_same_v<Other, Batch>) Layout& field(T Other::*, const detail::AnyShape&) {
    static_assert(
        detail::is_view<T>,
        "a field is a penstock::Tensor or a penstock::Ragged: a source sets other members "
        "of the batch itself, and the layout does not name them");
    static_assert(
        !detail::is_view<T> || std::is_same_v<Other, Batch>,
        "the field is a member of another struct than the layout's Batch; a base class is "
        "another one");
    return *this;
  }

  /// Declares that `member`, a Tensor or a Ragged, or a struct with one in it, is a plain value and
  /// not a field: the source sets it, and the memory that it points to is not copied. A view that
  /// is neither a field nor declared here is an error at the construction of a producer or a
  /// prefetcher, since a source would write through a null pointer.
  template <class T>
  Layout& value(T Batch::*member) & {
    erased_.add_value(offset_of(member));
    return *this;
  }

  /// The same for a temporary layout, which becomes the result.
  template <class T, class Extents>
  Layout field(cuda::std::mdspan<T, Extents> Batch::*member,
               const SampleShape<Extents::rank() - 1>& sample_shape) && {
    return std::move(field(member, sample_shape));
  }
  /// The same.
  template <class T>
  Layout field(Ragged<T> Batch::*member, Capacity capacity) && {
    return std::move(field(member, capacity));
  }
  /// The same.
  template <class T>
  Layout value(T Batch::*member) && {
    return std::move(value(member));
  }

  /// Size of a block in bytes: the end of the last field of a full batch, or one byte behind its
  /// place if it has 0 bytes.
  std::size_t bytes() const noexcept { return erased_.bytes(); }

  /// Samples in a full batch; 0: that of the host layout.
  std::int64_t batch_size() const noexcept { return erased_.batch_size(); }

  /// A batch of `samples` samples in `block`. Members that are not fields have their defaults. The
  /// total() of a ragged field is its capacity. `block` is host or device memory of bytes() bytes,
  /// aligned as the elements require; it is neither read nor written. Throws std::invalid_argument
  /// unless 0 <= samples <= batch_size().
  Batch bind(std::byte* block, std::int64_t samples) const {
    Batch batch{};
    erased_.bind(&batch, block, samples);
    return batch;
  }

  /// Like bind(), but for an existing batch, whose other members keep their values.
  void rebind(Batch& batch, std::byte* block, std::int64_t samples) const {
    erased_.rebind(&batch, block, samples);
  }

  /// Sets the number of samples of `batch`, for example in a source that delivers fewer than it was
  /// asked for. The fields keep their places. Throws like bind().
  void resize(Batch& batch, std::int64_t samples) const { erased_.resize(&batch, samples); }

  /// The number of samples in `batch`, which is bound to `block`. Throws std::invalid_argument,
  /// with the name of the field, if it is more than batch_size(), if fields have different numbers,
  /// and if a field points to other memory or its samples have another shape.
  std::int64_t samples(const Batch& batch, const std::byte* block) const {
    return erased_.samples(&batch, block);
  }

  /// Calls `f(offset, bytes)` for each range of a block that has to be copied for `samples`
  /// samples: one range if the batch is full, otherwise the samples of each field, and none for 0
  /// samples. Throws std::logic_error for a layout with ragged fields, whose ranges depend on the
  /// batch.
  template <class F>
  void for_each_range(std::int64_t samples, F&& f) const {
    erased_.for_each_range(nullptr, samples, std::forward<F>(f));
  }
  /// The same for `batch`, as a producer delivered it. Of ragged fields, the offsets and the used
  /// values are copied.
  template <class F>
  void for_each_range(const Batch& batch, std::int64_t samples, F&& f) const {
    erased_.for_each_range(&batch, samples, std::forward<F>(f));
  }

  /// The same layout, type-erased.
  const detail::BlockLayout& erased() const noexcept { return erased_; }

 private:
  template <class T, int Rank>
  struct Access {
    static void write(void* at, std::byte* memory, std::int64_t samples,
                      const std::int64_t* shape) {
      auto& tensor = *static_cast<Tensor<T, Rank>*>(at);
      cuda::std::array<std::int64_t, static_cast<std::size_t>(Rank)> extents{samples};
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
