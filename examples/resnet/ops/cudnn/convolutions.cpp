// SPDX-License-Identifier: Apache-2.0

#include "convolutions.hpp"

#include <iostream>
#include <utility>

#include "tuning.hpp"

namespace resnet::cudnn {

namespace {

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw penstock::CudaError(cudaErrorUnknown,
                              std::string(call) + " failed: " + cudnnGetErrorString(status));
}

/// What a saved plan depends on.
std::string environment() {
  cudaDeviceProp properties{};
  const int device = penstock::current_device();
  penstock::detail::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties",
                          device);
  return cudnn_version() + ", " + properties.name + ", " +
         std::to_string(properties.multiProcessorCount) + " multiprocessors";
}

const char* name(PlanChoice choice) {
  switch (choice) {
    case PlanChoice::heuristic:
      return "heuristic ";
    case PlanChoice::timed:
      return "timed ";
    case PlanChoice::exhaustive:
      return "exhaustive ";
  }
  return "";
}

}  // namespace

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return "cuDNN " + std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) +
         '.' + std::to_string(version % 100);
}

std::size_t Convolutions::HashShape::operator()(const ConvolutionShape& shape) const noexcept {
  std::size_t hash = 0;
  for (const std::int64_t extent : {shape.in.n, shape.in.c, shape.in.h, shape.in.w, shape.k,
                                    shape.kernel, shape.stride, shape.padding})
    hash = hash * 1'000'003 + static_cast<std::size_t>(extent);
  return hash;
}

Convolutions::Convolutions(const Settings& settings, Context& context)
    : settings_(settings), context_(context), file_(settings.plan_file, environment()) {
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "cudnnCreate");
  handle_.reset(handle);
  if (!file_.note().empty()) std::clog << file_.note() << '\n';
}

std::unique_ptr<Plan> Convolutions::saved(const GraphKey& key) const {
  const PlanFile::Bytes* bytes = file_.find(name(settings_.plans) + key.text());
  if (bytes == nullptr) return nullptr;
  try {
    return std::make_unique<Plan>(Target{.handle = handle_.get()}, *bytes);
  } catch (const UnsupportedOperation& error) {
    std::clog << settings_.plan_file.string() << ": a plan is not used: " << error.what() << '\n';
    return nullptr;
  }
}

Plan Convolutions::make(Graph graph, const ConvolutionShape& shape, Trial& trial) {
  const GraphKey key{graph, shape, settings_.precision, settings_.format, settings_.deterministic};
  if (const std::unique_ptr<Plan> plan = saved(key)) return std::move(*plan);
  Plan plan = choose_plan(key, settings_.plans, trial);
  if (!settings_.plan_file.empty()) file_.put(name(settings_.plans) + key.text(), plan.serialize());
  return plan;
}

void Convolutions::prepare(const ConvolutionShape& shape) {
  if (plans_.contains(shape)) return;
  check(cudnnSetStream(handle_.get(), stream_.get()), "cudnnSetStream");
  Trial trial(shape, settings_.precision, handle_.get(), stream_.get());
  const auto made = [&](Graph graph) {
    Plan plan = make(graph, shape, trial);
    trial.run(plan, graph);
    context_.workspace.reserve(plan.workspace());
    return plan;
  };
  Plans plans{made(Graph::forward), made(Graph::data_gradient), made(Graph::weight_gradient)};
  stream_.synchronize();
  plans_.emplace(shape, std::move(plans));
  file_.save();
}

void Convolutions::run(Graph graph, const ConvolutionShape& shape, const void* a, const void* b,
                       void* result, cudaStream_t stream) {
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    prepare(shape);
    found = plans_.find(shape);
  }
  check(cudnnSetStream(handle_.get(), stream), "cudnnSetStream");
  found->second[static_cast<std::size_t>(graph)].run(handle_.get(), {a, b, result},
                                                     context_.workspace.data());
}

}  // namespace resnet::cudnn
