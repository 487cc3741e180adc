// SPDX-License-Identifier: Apache-2.0
#include "failures.hpp"

#include "cuda_version.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

bool is_sticky(cudaError_t error) {
  if (error == cudaErrorTensorMemoryLeak) return true;  // CUDA before 12.8 has no enumerator.
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

template <class What>
cudaError_t Failures::count(std::vector<Planned<What>>& planned, What what) {
  cudaError_t error = cudaSuccess;
  for (std::size_t i = 0; i < planned.size();) {
    Planned<What>& plan = planned[i];
    if (plan.what.value_or(what) == what) --plan.left;
    if (plan.left > 0) {
      ++i;
    } else if (error == cudaSuccess) {
      error = plan.error;
      planned.erase(planned.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++plan.left;  // One call fails once, so this failure applies to the next call.
      ++i;
    }
  }
  return error;
}

void Failures::add_call(std::optional<Function> function, cudaError_t error, std::uint64_t nth) {
  calls_.push_back({function, error, nth});
}

void Failures::add_operation(OperationKind kind, cudaError_t error, std::uint64_t nth) {
  operations_.push_back({kind, error, nth});
}

cudaError_t Failures::next(Function function) {
  if (calls_.empty() || (facts(function).traits & traits::infallible) != 0) return cudaSuccess;
  return count(calls_, function);
}

cudaError_t Failures::next(OperationKind kind) {
  return operations_.empty() ? cudaSuccess : count(operations_, kind);
}

bool Failures::clear() {
  const bool any = !calls_.empty() || !operations_.empty();
  calls_.clear();
  operations_.clear();
  return any;
}

}  // namespace penstock::emulation::detail
