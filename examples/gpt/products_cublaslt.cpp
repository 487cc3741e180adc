// SPDX-License-Identifier: Apache-2.0

#include <cublasLt.h>

#include <compare>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "../common/check.hpp"
#include "products.hpp"

namespace gpt {
namespace {

constexpr std::size_t kWorkspace = 32 << 20;  // bytes

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw penstock::CudaError(cudaErrorUnknown,
                              std::string(call) + " failed: " + cublasLtGetStatusString(status));
}

/// Owns a descriptor of cuBLASLt.
template <class T, cublasStatus_t (*destroy)(T)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (value_ != nullptr) destroy(value_);
  }
  T* address() { return &value_; }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};

using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// One matrix as cuBLASLt sees it: what is row-major here is column-major and transposed there.
struct Seen {
  cudaDataType_t type;
  std::int64_t rows, columns, stride, next;
  bool transposed;
  auto operator<=>(const Seen&) const = default;
};

/// What two products have in common that are computed alike.
struct Key {
  Seen left, right, result;
  std::int64_t batch;
  std::uint32_t alignment;  ///< bytes, 16 at most
  auto operator<=>(const Key&) const = default;
};

void create(Layout& layout, const Seen& seen, std::int64_t batch) {
  check(
      cublasLtMatrixLayoutCreate(layout.address(), seen.type, static_cast<std::uint64_t>(seen.rows),
                                 static_cast<std::uint64_t>(seen.columns), seen.stride),
      "cublasLtMatrixLayoutCreate");
  const auto count = static_cast<std::int32_t>(batch);
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                         sizeof(count)),
        "cublasLtMatrixLayoutSetAttribute");
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &seen.next, sizeof(seen.next)),
        "cublasLtMatrixLayoutSetAttribute");
}

/// How products of one key are computed.
struct Plan {
  Operation operation;
  Layout left, right, result;
  cublasLtMatmulAlgo_t algorithm{};

  Plan(const Handle& handle, const Key& key) {
    check(cublasLtMatmulDescCreate(operation.address(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, key.left.transposed);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, key.right.transposed);
    create(left, key.left, key.batch);
    create(right, key.right, key.batch);
    create(result, key.result, key.batch);
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(preference.address()), "cublasLtMatmulPreferenceCreate");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspace});
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(preference, attribute, key.alignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle.get(), operation.get(), left.get(), right.get(), result.get(), result.get(),
        preference.get(), 1, &found, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0))
      throw std::invalid_argument("cuBLASLt has no algorithm for a product of " +
                                  std::to_string(key.result.columns) + " x " +
                                  std::to_string(key.result.rows));
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    algorithm = found.algo;
  }

 private:
  void transpose(cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
  template <class Value>
  static void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
                  const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }
};

template <class T>
constexpr cudaDataType_t type_of() {
  return std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;
}

/// `rows` and `columns` are those of the factor in the product.
template <class T>
Seen seen(const Factor<T>& factor, std::int64_t rows, std::int64_t columns) {
  if (factor.transposed) std::swap(rows, columns);
  return {type_of<T>(), columns, rows, factor.stride, factor.next, factor.transposed};
}

/// Where all these begin on a multiple of: bytes.
template <class... Places>
std::uint32_t alignment_of(Places... places) {
  const std::uint64_t bits = (std::uint64_t{16} | ... | static_cast<std::uint64_t>(places));
  return static_cast<std::uint32_t>(bits & -bits);
}

std::uintptr_t number(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

struct Products::Plans {
  Handle handle;
  void* workspace = nullptr;
  std::map<Key, Plan> plans;

  Plans() {
    check(cublasLtCreate(handle.address()), "cublasLtCreate");
    examples::check(cudaMalloc(&workspace, kWorkspace), "cudaMalloc");
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  ~Plans() { cudaFree(workspace); }
};

Products::Products() : plans_(std::make_unique<Plans>()) {}
Products::~Products() = default;

bool Products::on_the_host() {
  return false;
}

template <class T, class Out>
void Products::multiply(cudaStream_t stream, const Shape& shape, const Factor<T>& left,
                        const Factor<T>& right, const Result<Out>& result, double factor) {
  // The transposed product: result^T = right^T * left^T, so cuBLASLt's first factor is the right
  // one.
  const auto bytes = [](std::int64_t elements, std::size_t size) {
    return static_cast<std::uint64_t>(elements) * size;
  };
  const Out* const added = result.added == nullptr ? result.data : result.added;
  const Key key{seen(right, shape.terms, shape.columns),
                seen(left, shape.rows, shape.terms),
                {type_of<Out>(), shape.columns, shape.rows, result.stride, result.next, false},
                shape.batch,
                alignment_of(number(left.data), number(right.data), number(result.data),
                             number(added), bytes(left.next, sizeof(T)),
                             bytes(right.next, sizeof(T)), bytes(result.next, sizeof(Out)))};
  const auto [found, fresh] = plans_->plans.try_emplace(key, plans_->handle, key);
  const Plan& plan = found->second;
  const float scale = static_cast<float>(factor), kept = result.added == nullptr ? 0 : 1;
  check(cublasLtMatmul(plans_->handle.get(), plan.operation.get(), &scale, right.data,
                       plan.left.get(), left.data, plan.right.get(), &kept, added,
                       plan.result.get(), result.data, plan.result.get(), &plan.algorithm,
                       plans_->workspace, kWorkspace, stream),
        "cublasLtMatmul");
}

template void Products::multiply(cudaStream_t, const Shape&, const Factor<BFloat16>&,
                                 const Factor<BFloat16>&, const Result<BFloat16>&, double);
template void Products::multiply(cudaStream_t, const Shape&, const Factor<BFloat16>&,
                                 const Factor<BFloat16>&, const Result<float>&, double);
template void Products::multiply(cudaStream_t, const Shape&, const Factor<float>&,
                                 const Factor<float>&, const Result<float>&, double);

}  // namespace gpt
