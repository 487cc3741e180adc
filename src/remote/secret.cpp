// SPDX-License-Identifier: Apache-2.0

#include "secret.hpp"

#include <openssl/crypto.h>
#include <sys/mman.h>

#include <cstring>
#include <new>

namespace penstock::inline PENSTOCK_ABI::remote {

Secret::Secret(std::string_view text) {
  if (text.empty()) return;
  void* const pages =
      ::mmap(nullptr, text.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  // A system without it writes the pages into core files, and no more can be done.
  static_cast<void>(::madvise(pages, text.size(), MADV_DONTDUMP));
  std::memcpy(pages, text.data(), text.size());
  bytes_ = static_cast<char*>(pages);
  size_ = text.size();
}

Secret::~Secret() {
  if (bytes_ == nullptr) return;
  OPENSSL_cleanse(bytes_, size_);
  ::munmap(bytes_, size_);
}

void wipe(std::string& text) noexcept {
  text.resize(text.capacity());  // What is behind its end may be of an earlier text.
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

}  // namespace penstock::remote
