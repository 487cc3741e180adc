// SPDX-License-Identifier: Apache-2.0
#pragma once

// NpyFile: an array that NumPy has saved, by its rows. It is the RecordFile of the rows, so a row
// is read, and mapped, like any record.
//
//   const penstock::NpyFile features("features.npy");  // an array of shape (1000000, 64)
//   features.require<float>({64});                     // of float32, or a StoreError says why
//   std::vector<float> rows(64 * ticket.samples.size());
//   features.read_many(ticket.samples, std::as_writable_bytes(std::span(rows)));
//
// NpyFile("train.npz", "labels") is an array of an archive that is not compressed.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <penstock/record_file.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
struct NpyArray;
}

/// The array of a .npy file, versions 1 to 3 of the format, or of a member of a .npz, whose records
/// are its rows along the first axis. Its numbers are booleans, integers, floats or complex
/// numbers, little-endian, in C order. Any number of threads may use one object. See RecordFile.
class NpyFile : public RecordFile {
 public:
  /// Reads the header. `member`: of the arrays of a .npz, with or without ".npy"; empty: the only
  /// one, or that the file is a .npy. A member must not be compressed: numpy.savez does not, and
  /// numpy.savez_compressed does. Throws StoreError that names the file, and the place in it, for
  /// what is missing, no array, cut, followed by other bytes, of Python objects, text or several
  /// fields, big-endian, in Fortran order, compressed, or has no rows or rows of 0 bytes. The
  /// checksum of a member is not compared.
  explicit NpyFile(const std::filesystem::path& file, std::string_view member = {});
  /// The same of a File, wherever its bytes are.
  explicit NpyFile(const File& file, std::string_view member = {});

  /// NumPy's name of the numbers' type, such as "float32", "uint8", "bool" or "complex64".
  const std::string& dtype() const noexcept { return dtype_; }
  /// Bytes of a number.
  std::size_t item_bytes() const noexcept { return item_bytes_; }
  /// The extents of the array. The first one is size(), and the product of the others and
  /// item_bytes() is record_bytes().
  const std::vector<std::uint64_t>& shape() const noexcept { return shape_; }

  /// Throws StoreError, which names both, unless the numbers are of type T (bool, an integer,
  /// float, double) and each row has the extents `row`; {} for an array of one axis.
  template <class T>
  requires std::is_arithmetic_v<T>
  void require(std::initializer_list<std::uint64_t> row) const {
    constexpr const char* kKind = std::is_same_v<T, bool>       ? "bool"
                                  : std::is_floating_point_v<T> ? "float"
                                  : std::is_signed_v<T>         ? "int"
                                                                : "uint";
    require(std::is_same_v<T, bool> ? kKind : kKind + std::to_string(8 * sizeof(T)), row);
  }

 private:
  explicit NpyFile(const File& file, detail::NpyArray&& array);
  void require(const std::string& dtype, std::initializer_list<std::uint64_t> row) const;

  std::string file_, dtype_;
  std::size_t item_bytes_;
  std::vector<std::uint64_t> shape_;
};

static_assert(Store<NpyFile>);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/npy_file.hpp>
#endif
