// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attributes of NVTX events, filled in.

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace penstock::test {

inline nvtxEventAttributes_t attributes(const char* text) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text;
  return attributes;
}

/// Begins the range "step" with the payload `number`.
inline void push_step(std::uint64_t number) {
  nvtxEventAttributes_t step = attributes("step");
  step.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  step.payload.ullValue = number;
  nvtxRangePushEx(&step);
}

}  // namespace penstock::test
