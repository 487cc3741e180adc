// SPDX-License-Identifier: Apache-2.0
#pragma once

// 1 in a build under the address, thread or memory sanitizer, which replace the allocator, reserve
// address space by the terabyte, and slow everything down; else 0.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define PENSTOCK_TEST_SANITIZED 1
#endif
#endif
#ifndef PENSTOCK_TEST_SANITIZED
#define PENSTOCK_TEST_SANITIZED 0
#endif
