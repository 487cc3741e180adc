// SPDX-License-Identifier: Apache-2.0

#include "convolutions.hpp"

#include <cudnn.h>

#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

namespace resnet::cudnn {

namespace {

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

/// Bytes between two of a shape's channel_sums.
std::size_t sums_stride(const ConvolutionShape& shape) {
  const auto bytes = static_cast<std::size_t>(std::max(shape.in.c, shape.k)) * sizeof(float);
  return (bytes + 255) / 256 * 256;
}

constexpr std::size_t sums = 3;  ///< that a fused graph leaves, at most

/// None when there is no engine, or when what there is does not run.
std::optional<Plan> try_to_choose(const GraphKey& key, PlanChoice choice, Trial& trial) {
  try {
    Plan plan = choose_plan(key, choice, trial);
    trial.run(plan, key.graph);
    return plan;
  } catch (const UnsupportedOperation&) {
    return std::nullopt;
  } catch (const penstock::CudaError& error) {
    if (error.code() != cudaErrorUnknown) throw;  // The device's own error, not cuDNN's refusal.
    return std::nullopt;
  }
}

}  // namespace

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return "cuDNN " + std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) +
         '.' + std::to_string(version % 100);
}

std::string environment() {
  cudaDeviceProp properties{};
  const int device = penstock::current_device();
  penstock::detail::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties",
                          device);
  return cudnn_version() + ", " + properties.name + ", " +
         std::to_string(properties.multiProcessorCount) + " multiprocessors";
}

std::size_t Convolutions::HashShape::operator()(const ConvolutionShape& shape) const noexcept {
  std::size_t hash = 0;
  for (const std::int64_t extent : {shape.in.n, shape.in.c, shape.in.h, shape.in.w, shape.k,
                                    shape.kernel, shape.stride, shape.padding})
    hash = hash * 1'000'003 + static_cast<std::size_t>(extent);
  return hash;
}

Convolutions::Convolutions(const Settings& settings, Context& context)
    : settings_(settings),
      context_(context),
      handle_(make_handle()),
      file_(settings.plan_file, environment()) {
  if (!file_.note().empty()) std::clog << file_.note() << '\n';
}

GraphKey Convolutions::key(Graph graph, const ConvolutionShape& shape) const {
  return {graph, shape, settings_.precision, settings_.format, settings_.deterministic};
}

// ---- The file: an empty plan says that there is none to use -------------------------------------

const PlanFile::Bytes* Convolutions::find(const GraphKey& key) const {
  return file_.find(name(settings_.plans) + key.text());
}

std::optional<Plan> Convolutions::saved(const GraphKey& key) const {
  const PlanFile::Bytes* bytes = find(key);
  if (bytes == nullptr || bytes->empty()) return std::nullopt;
  try {
    return Plan(Target{.handle = handle_.get()}, *bytes);
  } catch (const UnsupportedOperation& error) {
    std::clog << settings_.plan_file.string() << ": a plan is not used: " << error.what() << '\n';
    return std::nullopt;
  }
}

void Convolutions::save(const GraphKey& key, const std::optional<Plan>& plan) {
  if (settings_.plan_file.empty()) return;
  file_.put(name(settings_.plans) + key.text(), plan ? plan->serialize() : PlanFile::Bytes());
}

// ---- Preparing ----------------------------------------------------------------------------------

Plan Convolutions::make(const GraphKey& key, Trial& trial) {
  std::optional<Plan> plan = saved(key);
  if (!plan) {
    plan = choose_plan(key, settings_.plans, trial);
    save(key, plan);
  }
  trial.run(*plan, key.graph);
  return std::move(*plan);
}

void Convolutions::add_fused(const ConvolutionShape& shape, Trial& trial, ConvolutionPlans& plans) {
  std::vector<GraphKey> keys{key(Graph::forward_statistics, shape)};
  for (const Graph graph : normalized_graphs) keys.push_back(key(graph, shape));
  const bool decided = std::all_of(keys.begin(), keys.end(),
                                   [&](const GraphKey& one) { return find(one) != nullptr; });
  for (const GraphKey& one : keys) {
    std::optional<Plan>& plan = plan_of(plans, one.graph);
    plan = decided ? saved(one) : try_to_choose(one, settings_.plans, trial);
    if (decided && plan) trial.run(*plan, one.graph);
  }
  if (!decided && settings_.plans != PlanChoice::heuristic) drop_slower(plans, trial);
  const bool complete = std::all_of(normalized_graphs.begin(), normalized_graphs.end(),
                                    [&](Graph graph) { return plan_of(plans, graph).has_value(); });
  if (!complete)
    for (const Graph graph : normalized_graphs) plan_of(plans, graph).reset();
  if (decided) return;
  for (const GraphKey& one : keys) save(one, plan_of(plans, one.graph));
}

ConvolutionPlans& Convolutions::plans(const ConvolutionShape& shape) {
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return found->second;
  set_stream(handle_, stream_.get());
  Trial trial(shape, context_, handle_.get(), stream_.get());
  ConvolutionPlans plans;
  for (const Graph graph : {Graph::forward, Graph::data_gradient, Graph::weight_gradient})
    plan_of(plans, graph) = make(key(graph, shape), trial);
  // cuDNN's channel sums add in whatever order blocks end, and no note of an engine says so.
  if (settings_.fusion == Fusion::full && !settings_.deterministic) add_fused(shape, trial, plans);
  for (const std::optional<Plan>& plan : plans)
    if (plan) context_.workspace.reserve(sums * sums_stride(shape) + plan->workspace());
  stream_.synchronize();
  file_.save();
  return plans_.emplace(shape, std::move(plans)).first->second;
}

// ---- Running ------------------------------------------------------------------------------------

void Convolutions::run(Graph graph, const ConvolutionShape& shape,
                       std::initializer_list<const void*> operands, cudaStream_t stream) {
  const std::optional<Plan>& plan = plan_of(plans(shape), graph);
  if (!plan) throw UnsupportedOperation("no plan for " + key(graph, shape).text());
  set_stream(handle_, stream);
  // Behind the sums, which some graphs write.
  auto* workspace = static_cast<std::byte*>(context_.workspace.data());
  plan->run(handle_.get(), operands, workspace + sums * sums_stride(shape));
}

float* Convolutions::channel_sums(const ConvolutionShape& shape, std::size_t i) const {
  auto* workspace = static_cast<std::byte*>(context_.workspace.data());
  return reinterpret_cast<float*>(workspace + i * sums_stride(shape));
}

}  // namespace resnet::cudnn
