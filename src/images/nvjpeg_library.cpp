// SPDX-License-Identifier: Apache-2.0

#ifdef PENSTOCK_IMAGES_WITH_NVJPEG

#include "nvjpeg_library.hpp"

#include <dlfcn.h>

namespace penstock::inline PENSTOCK_ABI::images {

const NvjpegLibrary* NvjpegLibrary::load(std::string& why_not) {
  struct Loaded {
    NvjpegLibrary library;
    std::string why_not;
    bool is_loaded =
        library.load_from(("libnvjpeg.so." + std::to_string(NVJPEG_VER_MAJOR)).c_str(), why_not);
  };
  static const Loaded loaded;
  why_not = loaded.why_not;
  return loaded.is_loaded ? &loaded.library : nullptr;
}

bool NvjpegLibrary::load_from(const char* file, std::string& why_not) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it by thread
    why_not = error != nullptr ? error : file;
    return false;
  }
// NOLINTBEGIN(bugprone-macro-parentheses): names of members
#define PENSTOCK_NVJPEG_LOAD(name)                               \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)); \
  if (name == nullptr) {                                         \
    why_not = std::string(file) + " has no " #name;              \
    return false;                                                \
  }
  PENSTOCK_NVJPEG_FUNCTIONS(PENSTOCK_NVJPEG_LOAD)
#undef PENSTOCK_NVJPEG_LOAD
  // NOLINTEND(bugprone-macro-parentheses)
  int major = 0;
  if (nvjpegGetProperty(MAJOR_VERSION, &major) != NVJPEG_STATUS_SUCCESS ||
      major != NVJPEG_VER_MAJOR) {
    why_not = std::string(file) + " is version " + std::to_string(major) +
              " of nvJPEG, and version " + std::to_string(NVJPEG_VER_MAJOR) + " is needed";
    return false;
  }
  return true;
}

}  // namespace penstock::images

#endif
