// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <algorithm>
#include <array>
#include <penstock/error.hpp>
#include <sstream>
#include <utility>

#include "graphs.hpp"

namespace resnet::cudnn {

namespace {

constexpr std::int64_t max_workspace = std::int64_t{1} << 30;  // bytes

const char* name(Graph graph) {
  switch (graph) {
    case Graph::forward:
      return "forward";
    case Graph::data_gradient:
      return "data-gradient";
    case Graph::weight_gradient:
      return "weight-gradient";
    case Graph::forward_statistics:
      return "forward+statistics";
    case Graph::normalized_forward_statistics:
      return "normalized+forward+statistics";
    case Graph::normalized_weight_gradient:
      return "normalized+weight-gradient";
    case Graph::data_gradient_statistics:
      return "data-gradient+statistics";
    case Graph::inference:
      return "inference";
  }
  return "";
}

const char* name(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::fp16:
      return "fp16";
    case Precision::bf16:
      return "bf16";
    case Precision::int8:
      return "int8";
  }
  return "";
}

void supported(const fe::error_t& status, const std::string& what) {
  if (status.is_bad())
    throw UnsupportedOperation("cuDNN has no engine for " + what + ": " + status.err_msg);
}

/// Engines that would not compute what the settings say. fp32 is meant to be fp32: neither rounded
/// to TF32 on the way in, nor through transforms that lose digits. Winograd's for 4x4 results at a
/// time lose half of one: their error is 3.8 times that of plain sums forward, 2.8 times in a
/// weight gradient. (With fewer digits this is lost in what operands are rounded to.) The FFT
/// engines lose none in fp32: 0.1 to 0.9 times the error of plain sums.
std::vector<fe::NumericalNote_t> unwanted(const GraphKey& key) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes{Note::REDUCED_PRECISION_REDUCTION, Note::WINOGRAD_TILE_6x6,
                          Note::WINOGRAD_TILE_13x13};
  if (key.precision == Precision::fp32)
    notes.insert(notes.end(), {Note::TENSOR_CORE, Note::DOWN_CONVERT_INPUTS, Note::WINOGRAD,
                               Note::WINOGRAD_TILE_4x4});
  else
    notes.push_back(Note::FFT);
  if (key.deterministic) notes.push_back(Note::NONDETERMINISTIC);
  return notes;
}

/// Those that do not say what they are, by name. Engine 17 of cuDNN 9.14 is the weight gradient's
/// Winograd transform of 4x4: its workspace is what the transformed operands take, to the byte, and
/// its error 2.9 times that of plain sums.
std::vector<std::string> unwanted_engines(const GraphKey& key) {
  if (key.precision == Precision::fp32 && key.graph == Graph::weight_gradient) return {"eng17"};
  return {};
}

void describe(const Target& target, fe::graph::Graph& graph) {
  const std::vector<std::uint8_t> json(target.properties.begin(), target.properties.end());
  const auto properties = std::make_shared<fe::DeviceProperties>();
  supported(properties->deserialize(json), "a described device");
  graph.set_device_properties(properties)
      .set_sm_version(target.sm_version)
      .set_sm_count(target.sm_count);
}

}  // namespace

std::string GraphKey::text() const {
  std::ostringstream text;
  text << name(graph) << ' ' << name(precision) << (format == Format::nhwc ? " nhwc " : " nchw ")
       << shape.in.n << 'x' << shape.in.c << 'x' << shape.in.h << 'x' << shape.in.w << " to "
       << shape.k << ", kernel " << shape.kernel << ", stride " << shape.stride << ", padding "
       << shape.padding << (deterministic ? ", deterministic" : "")
       << (epilogue.narrow_bias ? ", narrow bias" : "") << (epilogue.residual ? ", residual" : "")
       << (epilogue.relu ? ", relu" : "");
  return text.str();
}

struct Plan::State {
  std::string what;
  fe::graph::Graph graph;
  std::string reasons;  ///< why candidates were not built
};

Plan::Plan(const GraphKey& key, const Target& target, bool every_mode)
    : state_(std::make_unique<State>()) {
  state_->what = key.text();
  fe::graph::Graph& graph = state_->graph;
  if (target.handle == nullptr) describe(target, graph);
  GraphBuilder(key, graph).build();
  supported(graph.validate(), state_->what);
  supported(graph.build_operation_graph(target.handle), state_->what);
  std::vector<fe::HeurMode_t> modes{fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK};
  if (every_mode) modes.insert(modes.begin() + 1, fe::HeurMode_t::B);
  supported(graph.create_execution_plans(modes), state_->what);
  graph.deselect_numeric_notes(unwanted(key))
      .deselect_engines(unwanted_engines(key))
      .deselect_workspace_greater_than(max_workspace);
}

Plan::Plan(const Target& target, const std::vector<std::uint8_t>& serialized)
    : state_(std::make_unique<State>()) {
  state_->what = "a saved plan";
  fe::graph::Graph& graph = state_->graph;
  try {
    if (target.handle == nullptr) {
      describe(target, graph);
      supported(graph.deserialize(serialized, true), state_->what);
    } else {  // No warm-up of the front end's own: who prepares a plan runs it.
      supported(graph.deserialize(target.handle, serialized, true, false), state_->what);
    }
  } catch (const nlohmann::json::exception& error) {
    throw UnsupportedOperation(state_->what + " is damaged: " + error.what());
  }
}

Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

std::int64_t Plan::candidates() const {
  return state_->graph.get_execution_plan_count();
}

bool Plan::build(std::int64_t candidate) {
  if (candidate >= candidates())
    throw UnsupportedOperation("cuDNN has no engine for " + state_->what + ": none of " +
                               std::to_string(candidates()) + " fits" + state_->reasons);
  const fe::error_t status = state_->graph.build_plan_at_index(candidate);
  if (status.is_bad())
    state_->reasons += "\n  " + std::to_string(candidate) + ": " + status.err_msg;
  return status.is_good();
}

std::string Plan::engine() const {
  std::string name;
  supported(state_->graph.get_plan_name(name), state_->what);
  return name;
}

std::size_t Plan::workspace() const {
  std::int64_t bytes = 0;
  supported(state_->graph.get_workspace_size(bytes), state_->what);
  return static_cast<std::size_t>(bytes);
}

std::vector<std::uint8_t> Plan::serialize() const {
  std::vector<std::uint8_t> bytes;
  supported(state_->graph.serialize(bytes, false), state_->what);
  return bytes;
}

void Plan::run(cudnnHandle_t handle, std::initializer_list<const void*> operands,
               void* workspace) const {
  // The front end takes inputs by void* as well; uids count from 1, so this order is theirs.
  std::array<void*, 16> pointers{};
  std::transform(operands.begin(), operands.end(), pointers.begin(),
                 [](const void* operand) { return const_cast<void*>(operand); });
  const fe::error_t status =
      state_->graph.execute(handle, pointers.data(), static_cast<int>(operands.size()), workspace);
  if (status.is_bad())
    throw penstock::CudaError(cudaErrorUnknown, state_->what + " failed: " + status.err_msg);
}

}  // namespace resnet::cudnn
