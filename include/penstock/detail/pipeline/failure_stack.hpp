// SPDX-License-Identifier: Apache-2.0
#pragma once

// FailureStack: what has failed in a batch. Each worker that is in a piece of the batch pushes;
// then one thread at a time has the batch, and reads.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <penstock/detail/pipeline/failure_node.hpp>
#include <utility>
#include <vector>

namespace penstock::detail {

class FailureStack {
 public:
  FailureStack() = default;
  FailureStack(const FailureStack&) = delete;
  FailureStack& operator=(const FailureStack&) = delete;
  ~FailureStack() { clear(); }

  /// Any worker that is in a piece of the batch. Relaxed: that the batch's last row is filled
  /// orders what was pushed before it.
  void push(FailureNode failed) {
    auto* const node = new FailureNode(std::move(failed));
    node->next = top_.load(std::memory_order_relaxed);
    while (!top_.compare_exchange_weak(node->next, node, std::memory_order_relaxed)) {
    }
  }

  // ---- For the thread that has the batch

  bool empty() const noexcept { return first() == nullptr; }
  /// The last that was pushed or, behind sort_by_row(), that of the first row.
  FailureNode* first() const noexcept { return top_.load(std::memory_order_relaxed); }

  /// Sorts them by row; those of one row stay in the order in which they were pushed.
  void sort_by_row() {
    std::vector<FailureNode*> nodes;
    for (FailureNode* node = first(); node != nullptr; node = node->next) nodes.push_back(node);
    std::reverse(nodes.begin(), nodes.end());
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const FailureNode* a, const FailureNode* b) { return a->row < b->row; });
    FailureNode* first = nullptr;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      (*node)->next = first;
      first = *node;
    }
    top_.store(first, std::memory_order_relaxed);
  }

  /// Forgets all but `kept`, which is one of them.
  void keep_only(FailureNode& kept) noexcept {
    for (FailureNode* node = first(); node != nullptr;) {
      FailureNode* const next = node->next;
      if (node != &kept) delete node;
      node = next;
    }
    kept.next = nullptr;
    top_.store(&kept, std::memory_order_relaxed);
  }
  void clear() noexcept {
    for (FailureNode* node = first(); node != nullptr;) {
      FailureNode* const next = node->next;
      delete node;
      node = next;
    }
    top_.store(nullptr, std::memory_order_relaxed);
  }

 private:
  std::atomic<FailureNode*> top_{nullptr};  // Each node owns the next one.
};

}  // namespace penstock::detail
