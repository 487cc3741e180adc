// SPDX-License-Identifier: Apache-2.0

#ifdef PENSTOCK_VIDEO_WITH_NVDEC

#include "nvdec_library.hpp"

#include <dlfcn.h>

namespace penstock::inline PENSTOCK_ABI::video {

const NvdecLibrary* NvdecLibrary::load(std::string& why_not) {
  struct Loaded {
    NvdecLibrary library;
    std::string why_not;
    bool is_loaded = library.load_from("libnvcuvid.so.1", why_not);
  };
  static const Loaded loaded;
  why_not = loaded.why_not;
  return loaded.is_loaded ? &loaded.library : nullptr;
}

bool NvdecLibrary::load_from(const char* file, std::string& why_not) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it by thread
    why_not = error != nullptr ? error : file;
    return false;
  }
// NOLINTBEGIN(bugprone-macro-parentheses): names of members
#define PENSTOCK_NVDEC_LOAD(name)                          \
  name = reinterpret_cast<t##name*>(dlsym(handle, #name)); \
  if (name == nullptr) {                                   \
    why_not = std::string(file) + " has no " #name;        \
    return false;                                          \
  }
  PENSTOCK_NVDEC_FUNCTIONS(PENSTOCK_NVDEC_LOAD)
#undef PENSTOCK_NVDEC_LOAD
  // NOLINTEND(bugprone-macro-parentheses)
  return true;
}

}  // namespace penstock::video

#endif
