// SPDX-License-Identifier: Apache-2.0
#pragma once

// Counted references to the runtime's objects (streams, events, graphs). The count is a plain
// integer, so references are made, copied and dropped with the runtime's lock held. A Ref<T> can be
// a member, be copied and be dropped where T is incomplete.

#include <cstddef>
#include <penstock/version.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  virtual ~Counted() = default;

 private:
  template <class T>
  friend class Ref;
  std::size_t count_ = 0;
};

/// `T` derives from Counted.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : counted_(object) { retain(); }
  Ref(const Ref& other) : counted_(other.counted_) { retain(); }
  Ref(Ref&& other) noexcept : counted_(std::exchange(other.counted_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(counted_, other.counted_);
    return *this;
  }
  ~Ref() {
    if (counted_ != nullptr && --counted_->count_ == 0) delete counted_;
  }

  T* get() const { return static_cast<T*>(counted_); }
  T& operator*() const { return *get(); }
  T* operator->() const { return get(); }
  explicit operator bool() const { return counted_ != nullptr; }

 private:
  void retain() {
    if (counted_ != nullptr) ++counted_->count_;
  }

  Counted* counted_ = nullptr;
};

}  // namespace penstock::emulation::detail
