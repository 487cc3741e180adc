// SPDX-License-Identifier: Apache-2.0

#include "input.hpp"

#include <array>
#include <penstock/launch.hpp>

#include "augment.hpp"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "../ops/reference/rounding.hpp"
#endif

namespace resnet {
namespace {

/// A pixel's colours.
struct Colours {
  float channel[cifar10::channels];
};

/// One index for V pixels of a row: neighbouring threads write neighbouring addresses.
template <unsigned V>
struct Place {
  std::int64_t sample;
  std::int32_t y, x;

  RESNET_HOST_DEVICE Place(std::int64_t index, std::int64_t height, std::int64_t width) {
    const auto row = static_cast<std::uint32_t>(width) / V;
    const std::uint32_t image = static_cast<std::uint32_t>(height) * row;
    // 64 bits are slow to divide: only where they must be.
    sample = index >> 32 == 0 ? static_cast<std::uint32_t>(index) / image : index / image;
    const auto pack = static_cast<std::uint32_t>(index - sample * image);
    y = static_cast<std::int32_t>(pack / row);
    x = static_cast<std::int32_t>(pack % row * V);
  }
};

/// Where pixels go, V neighbours of a row at a time.
template <class T, unsigned V>
struct Packing {
  T* out;
  std::int64_t channels, height, width;
  bool channels_last;

  /// Writes the colours, and zeros to the padding.
  RESNET_HOST_DEVICE void write(const Place<V>& at, const Colours (&pixels)[V]) const {
    const std::int64_t pixel = at.y * width + at.x, plane = height * width;
    if (channels_last && channels == 4) return write_four(at.sample * plane + pixel, pixels);
    for (unsigned i = 0; i < V; ++i)
      for (std::int32_t c = 0; c < channels; ++c)
        out[channels_last ? (at.sample * plane + pixel + i) * channels + c
                          : (at.sample * channels + c) * plane + pixel + i] =
            static_cast<T>(c < cifar10::channels ? pixels[i].channel[c] : 0.0f);
  }

 private:
  /// As tensor cores want it: 16 bytes by a store, where the pixels have as many.
  RESNET_HOST_DEVICE void write_four(std::int64_t pixel, const Colours (&pixels)[V]) const {
    static_assert(cifar10::channels == 3);
    constexpr unsigned together = V * 4 * sizeof(T) < 16 ? V : 16 / (4 * sizeof(T));
    struct alignas(together * 4 * sizeof(T)) Stored {
      T channel[together * 4];
    };
    for (unsigned first = 0; first < V; first += together) {
      Stored stored;
      for (unsigned i = 0; i < together; ++i) {
        for (unsigned c = 0; c < 3; ++c)
          stored.channel[4 * i + c] = static_cast<T>(pixels[first + i].channel[c]);
        stored.channel[4 * i + 3] = static_cast<T>(0.0f);
      }
      *reinterpret_cast<Stored*>(out + (pixel + first) * 4) = stored;
    }
  }
};

RESNET_HOST_DEVICE inline float colour_of(float normalised, std::int32_t /*channel*/) {
  return normalised;
}
RESNET_HOST_DEVICE inline float colour_of(std::uint8_t byte, std::int32_t channel) {
  return detail::normalised(static_cast<float>(byte), channel);
}

/// Of float images or bytes.
template <class In, class T, unsigned V>
struct PackImages {
  const In* pixels;  // sample x 3 x height x width
  Packing<T, V> to;

  RESNET_HOST_DEVICE void operator()(std::int64_t index) const {
    const Place<V> at(index, to.height, to.width);
    Colours colours[V];
    for (std::int32_t c = 0; c < cifar10::channels; ++c) {
      struct alignas(V * sizeof(In)) Run {
        In pixel[V];
      };
      const Run run = *reinterpret_cast<const Run*>(
          pixels + ((at.sample * cifar10::channels + c) * to.height + at.y) * to.width + at.x);
      for (unsigned i = 0; i < V; ++i) colours[i].channel[c] = colour_of(run.pixel[i], c);
    }
    to.write(at, colours);
  }
};

/// V neighbouring columns of the size x size image that a view makes of a record.
template <unsigned V>
class Columns {
 public:
  RESNET_HOST_DEVICE Columns(const std::uint8_t* record, const View& view, std::int32_t size,
                             std::int32_t x)
      : record_(record), view_(view) {
    for (unsigned i = 0; i < V; ++i)
      between_[i] = detail::neighbours(x + static_cast<std::int32_t>(i), size, cifar10::width);
  }

  /// Row `y` of the crop, resized along the row alone: 0 ... 255.
  RESNET_HOST_DEVICE void row(std::int32_t y, Colours (&out)[V]) const {
    for (std::int32_t c = 0; c < cifar10::channels; ++c) {
      const std::uint8_t* plane = detail::plane_of(record_, c);
      for (unsigned i = 0; i < V; ++i)
        out[i].channel[c] =
            detail::between(detail::shown(plane, view_, y, between_[i].first),
                            detail::shown(plane, view_, y, between_[i].second), between_[i].weight);
    }
  }

 private:
  const std::uint8_t* record_;
  View view_;
  detail::Neighbours between_[V];
};

/// One index for kRows rows of V pixels: they lie between few rows of the record, which are resized
/// once.
template <class T, unsigned V>
struct PackRecords {
  static constexpr std::int64_t kRows = 8;

  Records records;
  std::uint64_t epoch;
  Augmentation augmentation;
  Packing<T, V> to;
  std::int32_t* labels;

  static std::int64_t indices(std::int64_t samples, const Packing<T, V>& to) {
    return samples * strips(to) * to.width / V;
  }

  RESNET_HOST_DEVICE void operator()(std::int64_t index) const {
    const Place<V> strip(index, strips(to), to.width);
    const std::uint8_t* record = &records.bytes(strip.sample, 0);
    const View view = augmentation.random
                          ? random_view(augmentation.seed, epoch, records.numbers(strip.sample))
                          : View{};
    write(strip, Columns<V>(record, view, augmentation.size, strip.x));
    if (strip.y == 0 && strip.x == 0) labels[strip.sample] = record[0];
  }

 private:
  RESNET_HOST_DEVICE static std::int64_t strips(const Packing<T, V>& to) {
    return (to.height + kRows - 1) / kRows;
  }

  RESNET_HOST_DEVICE void write(const Place<V>& strip, const Columns<V>& columns) const {
    Colours above[V], below[V], pixels[V];
    std::int32_t first = -1, second = -1;  // the rows of the crop that these are
    Place<V> at = strip;
    for (std::int64_t row = 0; row < kRows; ++row) {
      at.y = static_cast<std::int32_t>(strip.y * kRows + row);
      if (at.y >= to.height) return;
      const detail::Neighbours rows = detail::neighbours(at.y, augmentation.size, cifar10::height);
      if (rows.first != first) {
        if (rows.first == second)
          for (unsigned i = 0; i < V; ++i) above[i] = below[i];
        else
          columns.row(rows.first, above);
        first = rows.first;
      }
      if (rows.second != second) columns.row(second = rows.second, below);
      for (unsigned i = 0; i < V; ++i)
        for (std::int32_t c = 0; c < cifar10::channels; ++c)
          pixels[i].channel[c] = detail::normalised(
              detail::between(above[i].channel[c], below[i].channel[c], rows.weight), c);
      to.write(at, pixels);
    }
  }
};

#ifndef __CUDACC__
/// A float that is a number of the precision: what the reference operations take.
template <Precision P>
struct Rounded {
  float value;

  Rounded() = default;
  explicit Rounded(float exact) : value(reference::rounded(P, exact)) {}
};
#endif

/// Calls f(Packing<T, V>) with the T of the input's precision, and as many pixels at a time as a
/// row can be divided into.
template <class F>
void with_packing(const InputFormat& input, void* out, F&& f) {
  const Extents& e = input.extents;
  const bool last = input.format == Format::nhwc;
  const auto packing = [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    if (e.w % 4 == 0)
      f(Packing<T, 4>{typed, e.c, e.h, e.w, last});
    else
      f(Packing<T, 1>{typed, e.c, e.h, e.w, last});
  };
#ifdef __CUDACC__
  using Half = __half;
  using Bfloat = __nv_bfloat16;
#else
  using Half = Rounded<Precision::fp16>;
  using Bfloat = Rounded<Precision::bf16>;
#endif
  if (input.precision == Precision::fp16) return packing(static_cast<Half*>(out));
  if (input.precision == Precision::bf16) return packing(static_cast<Bfloat*>(out));
  packing(static_cast<float*>(out));
}

}  // namespace

penstock::Layout<Images> images_layout(std::int64_t batch_size, std::int32_t size) {
  return penstock::Layout<Images>{batch_size}
      .field(&Images::pixels, {cifar10::channels, size, size})
      .field(&Images::labels, {});
}

penstock::Layout<ByteImages> byte_images_layout(std::int64_t batch_size, std::int32_t size) {
  return penstock::Layout<ByteImages>{batch_size}
      .field(&ByteImages::pixels, {cifar10::channels, size, size})
      .field(&ByteImages::labels, {});
}

penstock::Layout<Records> records_layout(std::int64_t batch_size) {
  return penstock::Layout<Records>{batch_size}
      .field(&Records::bytes, {static_cast<std::int64_t>(cifar10::record_bytes)})
      .field(&Records::numbers, {});
}

void ImageSource::operator()(const penstock::Ticket& ticket, Images& batch) const {
  fill(ticket.epoch, ticket.samples, batch.pixels.data_handle(), batch.labels.data_handle());
}

namespace {

/// Source is ImageSource or ByteImageSource.
template <class Source, class T>
void fill_images(const Source& source, std::uint64_t epoch, std::span<const std::uint64_t> samples,
                 T* pixels, std::int32_t* labels) {
  const Augmentation& augmentation = source.augmentation;
  std::array<std::byte, cifar10::record_bytes> record;
  for (const std::uint64_t sample : samples) {
    source.records->read_into(sample, record);
    *labels++ = cifar10::label_of(record);
    const View view = augmentation.random ? random_view(augmentation.seed, epoch, sample) : View{};
    pixels = source.write(reinterpret_cast<const std::uint8_t*>(record.data()), view, pixels);
  }
}

}  // namespace

void ImageSource::fill(std::uint64_t epoch, std::span<const std::uint64_t> samples, float* pixels,
                       std::int32_t* labels) const {
  fill_images(*this, epoch, samples, pixels, labels);
}

void ByteImageSource::operator()(const penstock::Ticket& ticket, ByteImages& batch) const {
  fill_images(*this, ticket.epoch, ticket.samples, batch.pixels.data_handle(),
              batch.labels.data_handle());
}

void RecordSource::operator()(const penstock::Ticket& ticket, Records& batch) const {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const auto record =
        std::as_writable_bytes(std::span(&batch.bytes(row, 0), cifar10::record_bytes));
    records->read_into(ticket.samples[i], record);
    static_cast<void>(cifar10::label_of(record));  // A bad one is told here, by name.
    batch.numbers(row) = ticket.samples[i];
  }
}

namespace {

template <class In>
void pack(const In* pixels, std::int64_t samples, const InputFormat& input, void* out,
          cudaStream_t stream) {
  with_packing(input, out, [&]<class T, unsigned V>(const Packing<T, V>& packing) {
    penstock::for_each(stream, samples * packing.height * packing.width / V,
                       PackImages<In, T, V>{pixels, packing});
  });
}

}  // namespace

void pack_images(const float* pixels, std::int64_t samples, const InputFormat& input, void* out,
                 cudaStream_t stream) {
  pack(pixels, samples, input, out, stream);
}
void pack_images(const std::uint8_t* pixels, std::int64_t samples, const InputFormat& input,
                 void* out, cudaStream_t stream) {
  pack(pixels, samples, input, out, stream);
}

void pack_records(const Records& records, std::uint64_t epoch, const Augmentation& augmentation,
                  const InputFormat& input, void* out, std::int32_t* labels, cudaStream_t stream) {
  with_packing(input, out, [&]<class T, unsigned V>(const Packing<T, V>& packing) {
    using Pack = PackRecords<T, V>;
    penstock::for_each(stream, Pack::indices(records.bytes.extent(0), packing),
                       Pack{records, epoch, augmentation, packing, labels});
  });
}

penstock::DeviceTransform<Records, Packed> decode_on_device(const InputFormat& input,
                                                            const Augmentation& augmentation) {
  const std::int64_t image_bytes =
      input.extents.count() / input.extents.n * static_cast<std::int64_t>(input.element_bytes);
  return {penstock::Layout<Packed>{input.extents.n}
              .field(&Packed::input, {image_bytes})
              .field(&Packed::labels, {}),
          [input, augmentation](const penstock::Ticket& ticket, const Records& records,
                                Packed& packed, cudaStream_t stream) {
            pack_records(records, ticket.epoch, augmentation, input, packed.input.data_handle(),
                         packed.labels.data_handle(), stream);
          }};
}

}  // namespace resnet
