// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hides the differences between the CUPTI headers of CUDA 12.4 and newer. No other file checks the
// version.

#include <cupti.h>

#include <array>
#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

// Before CUDA 13, the version is a count. The older records are prefixes of the newer ones.
#if CUPTI_API_VERSION >= 26  // CUDA 12.8
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using CopyRecord = CUpti_ActivityMemcpy5;
#endif

#if CUPTI_API_VERSION >= 130000

using KernelRecord = CUpti_ActivityKernel10;
using SubscribeV2 = decltype(&cuptiSubscribe_v2);

/// Returns the holder of CUPTI's only subscription, or an empty string if CUPTI does not tell.
inline std::string subscriber_name(SubscribeV2 subscribe, decltype(&cuptiUnsubscribe) unsubscribe,
                                   CUpti_CallbackFunc on_call) {
  if (subscribe == nullptr) return {};
  std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN + 1> name{};
  CUpti_SubscriberParams parameters{};
  parameters.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  parameters.subscriberName = "penstock";
  parameters.oldSubscriberName = name.data();
  parameters.oldSubscriberSize = CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN;
  CUpti_SubscriberHandle subscriber = nullptr;
  if (subscribe(&subscriber, on_call, nullptr, &parameters) == CUPTI_SUCCESS)
    unsubscribe(subscriber);  // The other subscriber has just left.
  return name.data();
}

#else

using KernelRecord = CUpti_ActivityKernel9;
using SubscribeV2 = void (*)();

inline std::string subscriber_name(SubscribeV2, decltype(&cuptiUnsubscribe), CUpti_CallbackFunc) {
  return {};
}

#endif

}  // namespace penstock::trace::detail
