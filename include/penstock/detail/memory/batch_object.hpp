// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <new>
#include <penstock/layout.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Owns memory for a Batch object (the struct of tensors) whose type is not known here.
class BatchObject {
 public:
  explicit BatchObject(const BlockLayout& layout)
      : memory_(::operator new (layout.batch_bytes(), std::align_val_t{layout.batch_alignment()}),
                Free{std::align_val_t{layout.batch_alignment()}}) {}

  void* get() const noexcept { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { ::operator delete(memory, alignment); }
    std::align_val_t alignment;
  };

  std::unique_ptr<void, Free> memory_;
};

}  // namespace penstock::detail
