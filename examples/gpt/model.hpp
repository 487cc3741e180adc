// SPDX-License-Identifier: Apache-2.0
#pragma once

// Model: a GPT, its backward pass and AdamW.
//
//   const auto model = gpt::make_model({.layers = 12, .batch = 8}, gpt::Precision::bf16, 1);
//   model->forward(sequences, stream);         // queued, as all that takes a stream
//   model->backward(sequences, stream);
//   model->update({.step = 1, .rate = 6e-4}, stream);
//   losses.push(model->metrics(), stream, ...);        // a penstock::Readback<gpt::Metrics>
//
// It is GPT-2 without biases: embeddings of tokens and positions, blocks with layer norm before
// attention and before a GELU network of four times the width, a last layer norm, and the token
// embedding as the head. A token attends to its own document alone (kernels.hpp).

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <penstock/tensor.hpp>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace gpt {

enum class Precision {
  fp32,  ///< everything
  bf16,  ///< activations and products; the exact weights, gradients of weights and sums are floats
  fp64,  ///< everything; on the host, for tests
};

struct ModelOptions {
  std::int64_t layers = 12, heads = 12, channels = 768;
  std::int64_t length = 1024;       ///< tokens of a sequence
  std::int64_t vocabulary = 50304;  ///< rows of the token embedding
  std::int64_t batch = 8;           ///< sequences
};

/// A batch on the device, as penstock::Packing fills it: sequence x token.
struct Sequences {
  penstock::Tensor<std::int32_t, 2> tokens, targets, position_ids;
};

/// A step of AdamW.
struct Update {
  std::int64_t step = 1;  ///< from 1
  double rate = 0;
  double decay = 0.1;  ///< of matrices
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double clip = 1;  ///< gradients are scaled down to this norm
};

/// One tensor of parameters.
struct Parameter {
  std::string name;  ///< as in GPT-2's checkpoints: "h.0.attn.c_attn.weight"
  std::int64_t rows, columns;
  std::int64_t begin;  ///< its place among all parameters
  double range;        ///< begins uniformly in [-range, range); 0: with ones

  std::int64_t size() const { return rows * columns; }
};

/// The tensors in the order of memory: all matrices (out x in), then the weights of layer norms.
std::vector<Parameter> parameters_of(const ModelOptions& options);

/// A whole number of a hash, so that other programs can compute the same: uniform in [-1, 1).
double initial_value(std::uint64_t seed, std::uint64_t parameter);

/// One thread at a time uses a model. Work is queued on one stream.
class Model {
 public:
  virtual ~Model() = default;

  /// Leaves the loss in metrics(), and the gradients of the logits in the place of the logits. All
  /// of the batch's sequences have options().length tokens.
  virtual void forward(const Sequences& batch, cudaStream_t stream) = 0;
  /// Computes the gradients of all parameters, after forward() with the same batch.
  virtual void backward(const Sequences& batch, cudaStream_t stream) = 0;
  /// Leaves the norm of the gradients in metrics(), and changes the parameters.
  virtual void update(const Update& update, cudaStream_t stream) = 0;

  /// Of the last step, on the device.
  virtual const Metrics* metrics() const = 0;
  virtual const ModelOptions& options() const = 0;
  /// Bytes on the device.
  virtual std::size_t bytes() const = 0;

  /// The exact weights, or their gradients, in the order of parameters_of(). They wait for the
  /// stream.
  virtual std::vector<double> weights(cudaStream_t stream) const = 0;
  virtual std::vector<double> gradients(cudaStream_t stream) const = 0;
};

/// Allocates all memory on the current device, and sets the parameters by `seed`. Throws
/// std::invalid_argument for sizes that do not fit together, and penstock::CudaError, as all
/// members do.
std::unique_ptr<Model> make_model(const ModelOptions& options, Precision precision,
                                  std::uint64_t seed);

}  // namespace gpt
