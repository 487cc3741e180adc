// SPDX-License-Identifier: Apache-2.0

// The kernel of resize_batch, with the tests of its host form.

#include "../images/resize_batch_test.cpp"
