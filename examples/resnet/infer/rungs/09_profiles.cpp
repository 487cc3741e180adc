// SPDX-License-Identifier: Apache-2.0

// I9: shape profiles: requests of different sizes, one after the other, in memory that is there
// from the start; each batch size has plans, and graphs of each slot, and a request between two of
// them is padded to the next.

#include <penstock/step_graph.hpp>

#include <algorithm>

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
    resnet::rungs::clear_behind(*batch, run.batch(), stream);
    for (const std::int64_t size : run.network().batches()) infer_as(size, batch, stream);
  }
  template <class Batch>
  void infer(const penstock::Lease<Batch>& batch, cudaStream_t stream) {
    const std::int64_t images = run.requests().size(batch.ticket().batch);
    const std::int64_t size = run.network().batch_for(images);
    resnet::rungs::clear_behind(*batch, size, stream);
    infer_as(size, batch, stream);
  }
  /// Of the batch's slot, so many images.
  template <class Batch>
  void infer_as(std::int64_t size, const penstock::Lease<Batch>& batch, cudaStream_t stream) {
    const std::vector<std::int64_t>& sizes = run.network().batches();
    const auto profile =
        static_cast<std::size_t>(std::find(sizes.begin(), sizes.end(), size) - sizes.begin());
    // By slot and profile: `size` images are computed, however many the batch has.
    graphs.launch_numbered(batch.slot() * sizes.size() + profile, stream, [&] {
      infer_batch(run, network, *batch, size, answers.logits(), stream);
    });
  }

  Run& run;
  resnet::rungs::LogitsReadback answers;
  resnet::InferenceContext network;
  penstock::StepGraph graphs;  // by slot and profile
};

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I9",
                                  .name = "profiles",
                                  .after = "I8",
                                  .change = "batches of several sizes, padded to the next plan",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .batches = {16, 128},
                                  .profiles = true,
                                  .contexts = true,
                                  .infer = infer_in_contexts<Context, Images>,
                                  .infer_records = infer_in_contexts<Context, Packed>},
                                 argc, argv);
}
