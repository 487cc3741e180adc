// SPDX-License-Identifier: Apache-2.0
#include <penstock/trace/call_traits.hpp>

#include <algorithm>
#include <cctype>
#include <initializer_list>

namespace penstock::inline PENSTOCK_ABI::trace {

namespace {

using Words = std::initializer_list<std::string_view>;

bool starts_with_any(std::string_view name, Words prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool contains_any(std::string_view name, Words parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

bool is_any(std::string_view name, Words names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether the suffix is a version, such as "_v11000" or "_v2".
bool is_version(std::string_view suffix) {
  return suffix.size() > 2 && suffix.starts_with("_v") &&
         std::all_of(suffix.begin() + 2, suffix.end(),
                     [](unsigned char digit) { return std::isdigit(digit) != 0; });
}

}  // namespace

std::string_view plain_name(std::string_view name) {
  for (;;) {
    const std::size_t at = name.rfind('_');
    if (at == std::string_view::npos || at == 0) return name;
    const std::string_view suffix = name.substr(at);
    if (!is_version(suffix) && !is_any(suffix, {"_ptsz", "_ptds"})) return name;
    name.remove_suffix(suffix.size());
  }
}

CallTraits traits_of(std::string_view name) {
  name = plain_name(name);
  // The two APIs use the same names for what they have in common: cudaStreamCreate, cuStreamCreate.
  if (name.starts_with("cuda"))
    name.remove_prefix(4);
  else if (name.starts_with("cu"))
    name.remove_prefix(2);
  else
    return {};

  const bool async = name.ends_with("Async");
  const bool freeing = starts_with_any(name, {"Free", "MemFree"}) ||
                       is_any(name, {"HostUnregister", "MemHostUnregister"});
  const bool copying = name.starts_with("Memcpy");
  CallTraits traits;
  traits.allocating =
      freeing || starts_with_any(name, {"Malloc", "MemAlloc", "HostAlloc", "MemHostAlloc"}) ||
      is_any(name, {"HostRegister", "MemHostRegister", "MemCreate", "MemRelease",
                    "IpcOpenMemHandle", "IpcCloseMemHandle", "MemPoolImportPointer"});
  const bool adding_node = name.starts_with("GraphAdd") && contains_any(name, {"Node"});
  traits.creating = (contains_any(name, {"Create", "Destroy", "Instantiate"}) || adding_node ||
                     is_any(name, {"GraphClone", "StreamEndCapture", "UserObjectRelease",
                                   "IpcOpenEventHandle", "MemPoolImportFromShareableHandle"})) &&
                    !traits.allocating;
  traits.synchronising = name.ends_with("Synchronize");
  traits.blocking = traits.synchronising || ((copying || freeing) && !async) ||
                    is_any(name, {"DeviceReset", "DevicePrimaryCtxReset", "IpcCloseMemHandle"});
  traits.launching = copying || (traits.allocating && async) ||
                     starts_with_any(name, {"Launch", "Memset", "EventRecord", "GraphLaunch",
                                            "StreamWaitValue", "StreamWriteValue"}) ||
                     is_any(name, {"GraphUpload", "MemPrefetchAsync", "StreamAddCallback",
                                   "StreamAttachMemAsync", "StreamBatchMemOp", "StreamWaitEvent"});
  return traits;
}

}  // namespace penstock::trace
