// SPDX-License-Identifier: Apache-2.0

#include "linear.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
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

/// `leading`: elements from one column to the next.
void create(Matrix& matrix, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
            std::int64_t leading) {
  check(cublasLtMatrixLayoutCreate(matrix.address(), type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), leading),
        "cublasLtMatrixLayoutCreate");
}

/// Terms that a logit's product may add up in one go. Tensor cores cut sums off instead of rounding
/// them: the error grows with the 1.5th power of the number of terms, that of rounded sums with the
/// number. At 2,048 it is three times as large.
std::int64_t longest_sum(Precision precision) {
  return precision == Precision::fp32 ? std::numeric_limits<std::int64_t>::max() : 1024;
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
  if (shape.bias) {
    made->set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    made->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  const std::int64_t column = shape.column == 0 ? shape.k : shape.column;
  if (shape.transpose_a)
    create(made->a, type, shape.k, shape.m, column);
  else
    create(made->a, type, shape.m, shape.k, shape.m);
  if (shape.transpose_b)
    create(made->b, type, shape.n, shape.k, shape.n);
  else
    create(made->b, type, shape.k, shape.n, column);
  create(made->c, shape.float_out ? CUDA_R_32F : type, shape.m, shape.n, shape.m);

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
                      const float* bias, bool add, void* c, void* workspace,
                      std::size_t workspace_bytes, cudaStream_t stream) {
  shape.alignment = alignment({a, b, c});
  Product& product = this->product(context, shape, bias);
  if (shape.bias) product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float one = 1, beta = add ? 1 : 0;
  check(cublasLtMatmul(handle_.get(), product.operation.get(), &one, a, product.a.get(), b,
                       product.b.get(), &beta, c, product.c.get(), c, product.c.get(),
                       &product.algorithm, workspace, workspace_bytes, stream),
        "cublasLtMatmul");
}

// Rows of ours are cuBLAS's columns: a matrix of ours is the transpose of what cuBLAS sees.

void Linear::forward(const Context& context, std::int64_t n, std::int64_t features,
                     std::int64_t classes, const void* x, const void* weights, const float* bias,
                     float* logits, cudaStream_t stream) {
  const std::int64_t element = data_type(context.precision) == CUDA_R_32F ? 4 : 2;  // bytes
  const std::int64_t longest = longest_sum(context.precision);
  for (std::int64_t first = 0; first < features;) {
    const std::int64_t terms = std::min(longest, features - first);
    const auto part = [&](const void* matrix) {
      return static_cast<const std::byte*>(matrix) + first * element;
    };
    multiply(context, {classes, n, terms, true, false, true, first == 0, features}, part(weights),
             part(x), bias, first > 0, logits, context.workspace.data(), Workspace::first_bytes / 2,
             stream);
    first += terms;
  }
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
  multiply(context, {features, classes, n, false, true, false}, x, gradient, nullptr, false,
           weight_gradient, products_workspace, half, stream);
  multiply(context, {features, n, classes, false, false, false}, weights, gradient, nullptr, false,
           x_gradient, products_workspace, half, stream);
  sum_columns(logit_gradient, n, classes, bias_gradient, stream);
}

}  // namespace resnet::cudnn
