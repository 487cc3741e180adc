// SPDX-License-Identifier: Apache-2.0
#pragma once

// Operations on a GPU against the reference's templates in double, by one rule: the root mean
// square of the differences is at most twice that of the straightforward computation
// (straightforward.hpp) in float, with operands and results in the same precision; three times
// where these have fewer digits than float.
//
//   Bench bench({Precision::fp16, Format::nhwc});
//   const Values x = bench.numbers(1, count);                // that the precision has
//   DeviceValues device_x = bench.upload(x), y = bench.room(count);
//   bench.operations().average_pool(extents, device_x.data(), y.data(), bench.stream());
//   bench.expect("y", bench.download(y), in_double, in_float);

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../../../examples/resnet/ops/ops.hpp"
#include "../random.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

namespace resnet::test {

using Values = std::vector<double>;
using DeviceValues = penstock::test::DeviceMemory<std::byte>;
template <class T>
using DeviceArrayOf = penstock::test::DeviceMemory<T>;

inline bool is_16_bits(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16;
}

/// Half the distance between neighbours at 1: the largest relative error of rounding. Of what is
/// stored: tf32 is stored as float.
inline double unit_roundoff(Precision precision) {
  if (precision == Precision::fp16) return 0x1p-11;
  if (precision == Precision::bf16) return 0x1p-8;
  return 0x1p-24;
}

/// To what the precision stores.
inline double rounded(Precision precision, double value) {
  const auto number = static_cast<float>(value);
  if (precision == Precision::fp16)
    return static_cast<double>(__half2float(__float2half_rn(number)));
  if (precision == Precision::bf16)
    return static_cast<double>(__bfloat162float(__float2bfloat16_rn(number)));
  return static_cast<double>(number);
}

/// To what tensor cores multiply: tf32 keeps 10 digits behind the first.
inline double as_operand(Precision precision, double value) {
  if (precision != Precision::tf32 || value == 0) return rounded(precision, value);
  const double unit = std::exp2(std::floor(std::log2(std::abs(value))) - 10);
  return std::round(value / unit) * unit;
}

template <class T>
std::vector<T> as(const Values& values) {
  std::vector<T> others(values.size());
  std::transform(values.begin(), values.end(), others.begin(),
                 [](double value) { return static_cast<T>(value); });
  return others;
}

template <class T>
double rms_distance(const Values& truth, const std::vector<T>& values) {
  REQUIRE(truth.size() == values.size());
  double sum = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double distance = static_cast<double>(values[i]) - truth[i];
    sum += distance * distance;
  }
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(truth.size(), 1)));
}

inline double rms(const Values& values) {
  return rms_distance(Values(values.size()), values);
}

class Bench {
 public:
  explicit Bench(const Settings& settings) : operations_(make_operations(settings)) {}

  Operations& operations() const { return *operations_; }
  const Settings& settings() const { return operations_->settings(); }
  cudaStream_t stream() const { return stream_; }
  double limit() const { return settings().precision == Precision::fp32 ? 2 : 3; }

  /// Random, and exact in the settings' precision.
  Values numbers(std::uint64_t seed, std::int64_t count, double scale = 1,
                 double offset = 0) const {
    Values values = random_values(seed, count, scale, offset);
    for (double& value : values) value = rounded(settings().precision, value);
    return values;
  }

  /// In the settings' precision.
  std::unique_ptr<DeviceValues> upload(const Values& values) const {
    std::vector<std::byte> bytes(values.size() * operations_->element_bytes());
    for (std::size_t i = 0; i < values.size(); ++i) write(values[i], bytes.data(), i);
    return upload_as(bytes);
  }
  template <class T>
  std::unique_ptr<DeviceArrayOf<T>> upload_as(const std::vector<T>& values) const {
    auto device = std::make_unique<DeviceArrayOf<T>>(values.size());
    penstock::test::copy_and_wait(*device, values.data());
    return device;
  }
  /// Full of NaN: what is not written shows.
  std::unique_ptr<DeviceValues> room(std::int64_t count) const {
    auto device = std::make_unique<DeviceValues>(static_cast<std::size_t>(count) *
                                                 operations_->element_bytes());
    REQUIRE_CUDA(cudaMemset(device->data(), 0xff, device->bytes()));
    REQUIRE_CUDA(cudaDeviceSynchronize());
    return device;
  }

  /// Waits for the device.
  Values download(const DeviceValues& device) const {
    const std::vector<std::byte> bytes = device.read();
    Values values(bytes.size() / operations_->element_bytes());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = read(bytes.data(), i);
    return values;
  }

  /// `straightforward` is rounded to what `stored` has: the settings' precision for activations. A
  /// sum whose terms cancel is forgiven one rounding of a number of that size.
  template <class T>
  void expect(const std::string& what, const Values& values, const Values& truth,
              const std::vector<T>& straightforward, Precision stored, double size = 0) const {
    std::vector<double> base(straightforward.begin(), straightforward.end());
    for (double& value : base) value = rounded(stored, value);
    // A few values may be exact by chance.
    const double floor = unit_roundoff(stored) * std::max(rms(truth) / 4, size);
    const double base_error = rms_distance(truth, base);
    const double allowed = limit() * std::max(base_error, floor);
    INFO(what << ", precision " << static_cast<int>(settings().precision) << ", format "
              << static_cast<int>(settings().format) << ", fusion "
              << static_cast<int>(settings().fusion));
    CHECK(base_error <= 0.02 * std::max(rms(truth), size));  // else it would be no measure
    CHECK(rms_distance(truth, values) <= allowed);
  }
  template <class T>
  void expect(const std::string& what, const Values& values, const Values& truth,
              const std::vector<T>& straightforward) const {
    expect(what, values, truth, straightforward, settings().precision);
  }
  /// Of floats.
  template <class T>
  void expect_floats(const std::string& what, const DeviceArrayOf<float>& values,
                     const Values& truth, const std::vector<T>& straightforward,
                     double size = 0) const {
    const std::vector<float> floats = values.read();
    expect(what, Values(floats.begin(), floats.end()), truth, straightforward, Precision::fp32,
           size);
  }

 private:
  void write(double value, std::byte* bytes, std::size_t at) const {
    const auto number = static_cast<float>(value);
    const auto put = [&](auto stored) {
      std::memcpy(bytes + at * sizeof stored, &stored, sizeof stored);
    };
    if (settings().precision == Precision::fp16)
      put(__float2half_rn(number));
    else if (settings().precision == Precision::bf16)
      put(__float2bfloat16_rn(number));
    else
      put(number);
  }
  double read(const std::byte* bytes, std::size_t at) const {
    const auto get = [&](auto stored) {
      std::memcpy(static_cast<void*>(&stored), bytes + at * sizeof stored, sizeof stored);
      return stored;
    };
    if (settings().precision == Precision::fp16)
      return static_cast<double>(__half2float(get(__half())));
    if (settings().precision == Precision::bf16)
      return static_cast<double>(__bfloat162float(get(__nv_bfloat16())));
    return static_cast<double>(get(0.0f));
  }

  std::unique_ptr<Operations> operations_;
  penstock::test::TestStream stream_;
};

/// Every precision in every format.
inline std::vector<Settings> every_mode() {
  std::vector<Settings> modes;
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16})
    for (const Format format : {Format::nchw, Format::nhwc}) {
      Settings settings;
      settings.precision = precision;
      settings.format = format;
      modes.push_back(settings);
    }
  return modes;
}

}  // namespace resnet::test
