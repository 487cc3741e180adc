// SPDX-License-Identifier: Apache-2.0
#pragma once

// SGD over all parameters in one kernel, and dynamic loss scaling, without a word to the host. See
// SgdState and LossScale. A learning rate is of the device's own step, which a skipped step does
// not move: the schedule waits.

#include <cuda_runtime_api.h>

#include "context.hpp"

namespace resnet::cudnn {

void sgd(const Context&, const SgdState&, const SgdOptions&, cudaStream_t);

}  // namespace resnet::cudnn
