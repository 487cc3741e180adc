// SPDX-License-Identifier: Apache-2.0

// I1: device memory is allocated and freed for each batch, host memory is pageable, copies are
// waited for, and the loop that infers tells the answers. Workers load ahead, as in every rung:
// here by hand (see hand_loader.hpp).

#include "../../../common/check.hpp"
#include "../../data/hand_loader.hpp"
#include "run.hpp"

namespace {

using examples::check;
using resnet::HandLoader;
using resnet::rungs::Lane;
using resnet::rungs::Run;

void infer(Run& run) {
  const auto layout = run.layout();
  HandLoader loader(layout, run.requests(), run.image_source(),
                    {.workers = run.options().workers, .slots = run.host_blocks()});
  Lane& lane = run.lane(0);
  resnet::InferenceContext context(run.network());

  lane.for_each_request([&] {
    const HandLoader::Batch* batch = nullptr;
    lane.load([&] { batch = loader.next(); });

    void *images = nullptr, *logits = nullptr;
    check(cudaMalloc(&images, layout.bytes()), "cudaMalloc");
    check(cudaMalloc(&logits, static_cast<std::size_t>(run.logits()) * sizeof(float)),
          "cudaMalloc");
    lane.copy(lane.stream(), [&] {
      check(cudaMemcpyAsync(images, batch->memory.data(), layout.bytes(), cudaMemcpyHostToDevice,
                            lane.stream()),
            "cudaMemcpyAsync");
      check(cudaStreamSynchronize(lane.stream()), "cudaStreamSynchronize");
    });

    lane.compute([&] {
      context.run(run.images(run.batch()), static_cast<float*>(images), static_cast<float*>(logits),
                  lane.stream());
    });
    lane.read_answers(batch->ticket.batch, static_cast<float*>(logits));
    check(cudaFree(images), "cudaFree");
    check(cudaFree(logits), "cudaFree");
  });
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I1",
                                  .name = "baseline",
                                  .change = "device memory for each batch, pageable copies",
                                  .infer = infer},
                                 argc, argv);
}
