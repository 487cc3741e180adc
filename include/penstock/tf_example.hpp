// SPDX-License-Identifier: Apache-2.0
#pragma once

// TfExample: the named features of a tf.train.Example, which is what most TFRecord files hold.
//
//   const penstock::TfRecordFile records({"train-00000-of-00002", "train-00001-of-00002"});
//   const penstock::TfExample example(records.read(i, scratch));
//   const std::span<const std::byte> jpeg = example["image/encoded"].bytes();
//   std::vector<std::int64_t> ids(example["ids"].size());  // any number of values
//   example["ids"].copy(ids);
//
// Nothing is copied but numbers, and nothing allocated: a feature is a view of the record.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/inline.hpp>
#include <span>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI {

/// The values of a feature: a view of the bytes of its Example, valid as long as these. Any thread
/// may use it. All errors are std::runtime_error, whose text names the feature.
class TfFeature {
 public:
  /// What the values of a feature are.
  enum class Kind {
    none,    ///< the writer set no list
    bytes,   ///< byte strings, such as texts and images
    floats,  ///< numbers of 32 bits
    int64s,  ///< whole numbers
  };

  /// What its values are.
  Kind kind() const noexcept { return kind_; }
  /// The feature's name.
  std::string_view name() const noexcept { return name_; }
  /// The number of its values. Reads the list, packed or not. Throws for a list that is damaged.
  std::int64_t size() const;

  /// The `index`-th value of a feature of bytes. Throws for another kind, for a list that is
  /// damaged and where there are not so many.
  std::span<const std::byte> bytes(std::int64_t index = 0) const;

  /// Copies all values to `values`, which has size() of them. Throws for a feature of another kind,
  /// for another number of values, and for a list that is damaged.
  void copy(std::span<float> values) const;
  /// The same.
  void copy(std::span<std::int64_t> values) const;
  /// The same. Throws also for a value that does not fit into 32 bits.
  void copy(std::span<std::int32_t> values) const;

 private:
  friend class TfExample;

  TfFeature(std::string_view name, std::span<const std::byte> message);
  [[noreturn]] void fail(const char* why) const;
  void require(Kind kind, const char* what) const;
  template <class Take>
  void for_each_number(const Take& take) const;
  template <class Value, class Number>
  void copy_numbers(std::span<Value> values) const;

  std::string_view name_;
  Kind kind_ = Kind::none;
  std::span<const std::byte> list_;  // the message of the list
};

/// The features of a serialised tf.train.Example: a view of its bytes, valid as long as these. Any
/// thread may use it.
class TfExample {
 public:
  /// Throws std::runtime_error for bytes that are no such message. A list of values is read where
  /// it is asked for.
  explicit TfExample(std::span<const std::byte> record);

  /// The feature of this name; nullopt: there is none. Takes time proportional to the number of
  /// features.
  std::optional<TfFeature> find(std::string_view name) const;
  /// The feature of this name. Throws std::runtime_error, which names it, if there is none.
  TfFeature operator[](std::string_view name) const;

  /// Calls `use(feature)` with each TfFeature, in the order of the record: by that all features
  /// take one pass.
  template <class Use>
  void for_each(const Use& use) const {
    for (std::span<const std::byte> rest = features_; !rest.empty();)
      if (const std::optional<TfFeature> feature = take(rest)) use(*feature);
  }

 private:
  /// Takes the next field away from `rest`; nullopt: it is no feature.
  static std::optional<TfFeature> take(std::span<const std::byte>& rest);

  std::span<const std::byte> features_;  // the message of them
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/tf_example.hpp>
#endif
