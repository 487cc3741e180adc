// SPDX-License-Identifier: Apache-2.0

// I8: several contexts: host threads with streams, activations and graphs of their own, sharing one
// set of weights: see in_contexts.hpp.

#include <penstock/step_graph.hpp>

#include "in_contexts.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Images;
using resnet::Packed;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::rungs::infer_in_contexts;
using resnet::rungs::Run;

/// What a host thread has for itself.
struct Context {
  explicit Context(Run& owner) : run(owner), answers(owner), network(owner.network()) {}

  template <class Batch>
  void capture(const penstock::Lease<Batch>& batch, cudaStream_t stream) {
    infer(batch, stream);
  }
  template <class Batch>
  void infer(const penstock::Lease<Batch>& batch, cudaStream_t stream) {
    // By slot: run.batch() images are computed, however many the batch has.
    graphs.launch_numbered(batch.slot(), stream, [&] {
      infer_batch(run, network, *batch, run.batch(), answers.logits(), stream);
    });
  }

  Run& run;
  resnet::rungs::LogitsReadback answers;
  resnet::InferenceContext network;
  penstock::StepGraph graphs;
};

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I8",
                                  .name = "contexts",
                                  .after = "I7",
                                  .change = "several host threads, each with a context of its own",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .contexts = true,
                                  .infer = infer_in_contexts<Context, Images>,
                                  .infer_records = infer_in_contexts<Context, Packed>},
                                 argc, argv);
}
