// SPDX-License-Identifier: Apache-2.0

#include "input.hpp"

#include <array>
#include <penstock/launch.hpp>

#include "augment.hpp"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace resnet {
namespace {

/// One index for each pixel: neighbouring threads write neighbouring addresses.
struct Pixel {
  std::int64_t sample, y, x;

  RESNET_HOST_DEVICE Pixel(std::int64_t index, std::int64_t height, std::int64_t width)
      : sample(index / (height * width)) {
    // 64 bits are slow to divide: only where they must be.
    const auto pixel = static_cast<std::uint32_t>(index - sample * height * width);
    const auto row = static_cast<std::uint32_t>(width);
    y = pixel / row;
    x = pixel % row;
  }
};

/// Where a pixel's channels go.
template <class T>
struct Packing {
  T* out;
  std::int64_t channels, height, width;
  bool channels_last;

  /// Writes value(c) for each of the image's channels, and zeros to the padding.
  template <class F>
  RESNET_HOST_DEVICE void write(const Pixel& at, const F& value) const {
    const std::int64_t pixel = at.y * width + at.x, plane = height * width;
    if (channels_last && channels == 4) {  // As tensor cores want it: one store, not four.
      struct alignas(4 * sizeof(T)) Four {
        T channel[4];
      };
      static_assert(cifar10::channels == 3);
      reinterpret_cast<Four*>(out)[at.sample * plane + pixel] = {
          {static_cast<T>(value(0)), static_cast<T>(value(1)), static_cast<T>(value(2)),
           static_cast<T>(0.0f)}};
      return;
    }
    for (std::int32_t c = 0; c < channels; ++c)
      out[channels_last ? (at.sample * plane + pixel) * channels + c
                        : (at.sample * channels + c) * plane + pixel] =
          static_cast<T>(c < cifar10::channels ? value(c) : 0.0f);
  }
};

template <class T>
struct PackImages {
  const float* pixels;  // sample x 3 x height x width
  Packing<T> to;

  RESNET_HOST_DEVICE void operator()(std::int64_t index) const {
    const Pixel at(index, to.height, to.width);
    to.write(at, [&](std::int32_t c) {
      return pixels[((at.sample * cifar10::channels + c) * to.height + at.y) * to.width + at.x];
    });
  }
};

template <class T>
struct PackRecords {
  Records records;
  std::uint64_t epoch;
  Augmentation augmentation;
  Packing<T> to;
  std::int32_t* labels;

  RESNET_HOST_DEVICE void operator()(std::int64_t index) const {
    const Pixel at(index, to.height, to.width);
    const std::uint8_t* record = &records.bytes(at.sample, 0);
    const View view = augmentation.random
                          ? random_view(augmentation.seed, epoch, records.numbers(at.sample))
                          : View{};
    to.write(at, [&](std::int32_t c) {
      return normalised_pixel(record, view, augmentation.size, c, static_cast<std::int32_t>(at.y),
                              static_cast<std::int32_t>(at.x));
    });
    if (at.y == 0 && at.x == 0) labels[at.sample] = record[0];
  }
};

/// Calls f(Packing<T>) with the T of the input's precision.
template <class F>
void with_packing(const InputFormat& input, void* out, F&& f) {
  const Extents& e = input.extents;
  const auto packing = [&](auto* typed) {
    f(Packing<std::remove_pointer_t<decltype(typed)>>{typed, e.c, e.h, e.w,
                                                      input.format == Format::nhwc});
  };
#ifdef __CUDACC__  // The reference operations compute in float whatever the precision.
  if (input.precision == Precision::fp16) return packing(static_cast<__half*>(out));
  if (input.precision == Precision::bf16) return packing(static_cast<__nv_bfloat16*>(out));
#endif
  packing(static_cast<float*>(out));
}

}  // namespace

penstock::Layout<Images> images_layout(std::int64_t batch_size, std::int32_t size) {
  return penstock::Layout<Images>{batch_size}
      .field(&Images::pixels, {cifar10::channels, size, size})
      .field(&Images::labels, {});
}

penstock::Layout<Records> records_layout(std::int64_t batch_size) {
  return penstock::Layout<Records>{batch_size}
      .field(&Records::bytes, {static_cast<std::int64_t>(cifar10::record_bytes)})
      .field(&Records::numbers, {});
}

void ImageSource::operator()(const penstock::Ticket& ticket, Images& batch) const {
  fill(ticket.epoch, ticket.samples, batch.pixels.data_handle(), batch.labels.data_handle());
}

void ImageSource::fill(std::uint64_t epoch, std::span<const std::uint64_t> samples, float* pixels,
                       std::int32_t* labels) const {
  std::array<std::byte, cifar10::record_bytes> record;
  for (const std::uint64_t sample : samples) {
    records->read_into(sample, record);
    *labels++ = cifar10::label_of(record);
    const View view = augmentation.random ? random_view(augmentation.seed, epoch, sample) : View{};
    pixels = write(reinterpret_cast<const std::uint8_t*>(record.data()), view, pixels);
  }
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

void pack_images(const float* pixels, std::int64_t samples, const InputFormat& input, void* out,
                 cudaStream_t stream) {
  with_packing(input, out, [&](auto packing) {
    using T = std::remove_pointer_t<decltype(packing.out)>;
    penstock::for_each(stream, samples * packing.height * packing.width,
                       PackImages<T>{pixels, packing});
  });
}

void pack_records(const Records& records, std::uint64_t epoch, const Augmentation& augmentation,
                  const InputFormat& input, void* out, std::int32_t* labels, cudaStream_t stream) {
  with_packing(input, out, [&](auto packing) {
    using T = std::remove_pointer_t<decltype(packing.out)>;
    penstock::for_each(stream, records.bytes.extent(0) * packing.height * packing.width,
                       PackRecords<T>{records, epoch, augmentation, packing, labels});
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
