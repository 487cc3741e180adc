// SPDX-License-Identifier: Apache-2.0

#include "linear.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "elementwise.hpp"

namespace resnet::cudnn {

namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw penstock::CudaError(cudaErrorUnknown,
                              std::string(call) + " failed: " + cublasLtGetStatusString(status));
}

cudaDataType_t data_type(Precision precision) {
  switch (precision) {
    case Precision::fp16:
      return CUDA_R_16F;
    case Precision::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

/// Bytes, 16 at most, on multiples of which all of them lie. (Parameters lie one behind the other:
/// a matrix may begin anywhere.)
std::uint32_t alignment(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 16;
  for (const void* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return static_cast<std::uint32_t>(bits & -bits);
}

/// A cuBLASLt descriptor: they all are created and destroyed alike.
template <class T, cublasStatus_t (*destroy)(T)>
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (descriptor_ != nullptr) destroy(descriptor_);
  }
  T* address() { return &descriptor_; }
  T get() const { return descriptor_; }

 private:
  T descriptor_ = nullptr;
};

using Matrix = Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

void create(Matrix& matrix, cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
  check(cublasLtMatrixLayoutCreate(matrix.address(), type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), rows),
        "cublasLtMatrixLayoutCreate");
}

}  // namespace

struct Linear::Product {
  Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Matrix a, b, c;
  cublasLtMatmulAlgo_t algorithm{};

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
};

Linear::Linear() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  handle_.reset(handle);
}

Linear::Product& Linear::product(const Context& context, const Shape& shape, const float* bias) {
  std::shared_ptr<Product>& known = products_[shape];
  if (known != nullptr) return *known;
  const auto made = std::make_shared<Product>();
  const cudaDataType_t type = data_type(context.precision);
  const auto compute =
      context.precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(made->operation.address(), compute, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  made->set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  made->set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (bias != nullptr) {
    made->set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    made->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  create(made->a, type, shape.transpose_a ? shape.k : shape.m,
         shape.transpose_a ? shape.m : shape.k);
  create(made->b, type, shape.transpose_b ? shape.n : shape.k,
         shape.transpose_b ? shape.k : shape.n);
  create(made->c, shape.float_out ? CUDA_R_32F : type, shape.m, shape.n);

  Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
  check(cublasLtMatmulPreferenceCreate(preference.address()), "cublasLtMatmulPreferenceCreate");
  const std::uint64_t workspace = Workspace::first_bytes / 2;
  check(
      cublasLtMatmulPreferenceSetAttribute(
          preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
      "cublasLtMatmulPreferenceSetAttribute");
  // Partial sums of a split product are added up as floats, not as what is stored.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(),
                                             CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &reductions, sizeof reductions),
        "cublasLtMatmulPreferenceSetAttribute");
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &shape.alignment,
                                               sizeof shape.alignment),
          "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle_.get(), made->operation.get(), made->a.get(),
                                       made->b.get(), made->c.get(), made->c.get(),
                                       preference.get(), 1, &found, &count),
        "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0) throw UnsupportedOperation("cuBLASLt has no algorithm for the last layer");
  made->algorithm = found.algo;
  known = made;
  return *known;
}

void Linear::multiply(const Context& context, Shape shape, const void* a, const void* b,
                      const float* bias, void* c, void* workspace, std::size_t workspace_bytes,
                      cudaStream_t stream) {
  shape.alignment = alignment({a, b, c});
  Product& product = this->product(context, shape, bias);
  if (bias != nullptr) product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float one = 1, zero = 0;
  check(cublasLtMatmul(handle_.get(), product.operation.get(), &one, a, product.a.get(), b,
                       product.b.get(), &zero, c, product.c.get(), c, product.c.get(),
                       &product.algorithm, workspace, workspace_bytes, stream),
        "cublasLtMatmul");
}

// Rows of ours are cuBLAS's columns: a matrix of ours is the transpose of what cuBLAS sees.

void Linear::forward(const Context& context, std::int64_t n, std::int64_t features,
                     std::int64_t classes, const void* x, const void* weights, const float* bias,
                     float* logits, cudaStream_t stream) {
  multiply(context, {classes, n, features, true, false, true}, weights, x, bias, logits,
           context.workspace.data(), Workspace::first_bytes / 2, stream);
}

void Linear::gradient(const Context& context, std::int64_t n, std::int64_t features,
                      std::int64_t classes, const void* x, const void* weights,
                      const float* logit_gradient, void* x_gradient, void* weight_gradient,
                      float* bias_gradient, cudaStream_t stream) {
  constexpr std::size_t half = Workspace::first_bytes / 2;  // the other: the gradient, converted
  auto* products_workspace = static_cast<std::byte*>(context.workspace.data());
  const void* gradient = logit_gradient;
  if (context.precision == Precision::fp16 || context.precision == Precision::bf16) {
    if (static_cast<std::size_t>(n * classes) * 2 > half)
      throw UnsupportedOperation("the last layer's batch x classes is over " +
                                 std::to_string(half / 2));
    from_float(context.precision, logit_gradient, products_workspace + half, n * classes, stream);
    gradient = products_workspace + half;
  }
  multiply(context, {features, classes, n, false, true, false}, x, gradient, nullptr,
           weight_gradient, products_workspace, half, stream);
  multiply(context, {features, n, classes, false, false, false}, weights, gradient, nullptr,
           x_gradient, products_workspace, half, stream);
  sum_columns(logit_gradient, n, classes, bias_gradient, stream);
}

}  // namespace resnet::cudnn
