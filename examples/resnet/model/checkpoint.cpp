// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "json_fields.hpp"

namespace resnet {
namespace {

using Json = nlohmann::json;
using safetensors::File;
using safetensors::Tensor;

constexpr const char* momentum_prefix = "momentum.";
constexpr const char* tracked_suffix = ".num_batches_tracked";
constexpr const char* variance_suffix = ".running_var";
constexpr const char* notes_key = "penstock";
constexpr double smallest_scale = std::numeric_limits<float>::denorm_min();

std::size_t index(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

// ---- What is in the metadata --------------------------------------------------------------------

Json to_json(const SgdOptions& sgd) {
  return {{"decay", static_cast<int>(sgd.schedule.decay)},
          {"base", sgd.schedule.base},
          {"warmup_steps", sgd.schedule.warmup_steps},
          {"total_steps", sgd.schedule.total_steps},
          {"momentum", sgd.momentum},
          {"weight_decay", sgd.weight_decay},
          {"growth_interval", sgd.growth_interval}};
}

/// Steps and batches of a run, at most: sums of some stay far from the end of 64 bits.
constexpr std::int64_t most_steps = std::int64_t{1} << 53;
constexpr std::int64_t most_int = std::numeric_limits<std::int32_t>::max();
constexpr double most_float = 1e30;

SgdOptions sgd_of(const Json& json) {
  SgdOptions sgd;
  Schedule& schedule = sgd.schedule;
  schedule.decay =
      static_cast<Decay>(integer_of<int>(json, "decay", 0, static_cast<int>(Decay::constant)));
  schedule.base = number_of(json, "base", 0, most_float);
  schedule.total_steps = integer_of<std::int64_t>(json, "total_steps", 0, most_steps);
  schedule.warmup_steps = integer_of<std::int64_t>(json, "warmup_steps", 0, most_steps);
  sgd.momentum = number_of(json, "momentum", 0, 1);
  sgd.weight_decay = number_of(json, "weight_decay", 0, most_float);
  sgd.growth_interval = integer_of<std::int32_t>(json, "growth_interval", 1, most_int);
  return sgd;
}

std::string write_notes(const NetworkState& state, const CheckpointNotes& notes) {
  Json json = {{"step", state.step},
               {"scale", state.loss_scale.scale},
               {"good_steps", state.loss_scale.good_steps},
               {"skipped", state.loss_scale.skipped},
               {"texts", notes.texts}};
  if (notes.sgd) json["sgd"] = to_json(*notes.sgd);
  return json.dump();
}

// ---- Tensors ------------------------------------------------------------------------------------

/// Tensors for a file, with their bytes.
class TensorList {
 public:
  template <class T>
  void add(const std::string& name, const char* dtype, const std::vector<std::int64_t>& shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    const std::vector<std::byte>& kept = memory_.emplace_back(bytes.begin(), bytes.end());
    tensors_.push_back({name, dtype, shape, kept});
  }
  /// Throws std::runtime_error for a value that is not finite.
  void add_floats(const std::string& name, const std::vector<std::int64_t>& shape,
                  const std::vector<float>& values) {
    if (!std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); }))
      throw std::runtime_error("no checkpoint is written: \"" + name +
                               "\" has a value that is not finite: lower the learning rate");
    add(name, "F32", shape, values);
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::deque<std::vector<std::byte>> memory_;
  std::vector<Tensor> tensors_;
};

std::vector<float> gather(const ParameterTable& table, const Parameter& parameter,
                          const std::vector<float>& block) {
  std::vector<float> values(index(parameter.count()));
  for (std::int64_t i = 0; i < parameter.count(); ++i)
    values[index(i)] = block[index(table.place(parameter, i))];
  return values;
}

void scatter(const ParameterTable& table, const Parameter& parameter,
             const std::vector<float>& values, std::vector<float>& block) {
  for (std::int64_t i = 0; i < parameter.count(); ++i)
    block[index(table.place(parameter, i))] = values[index(i)];
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape)
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return shape.empty() ? "a single number" : text;
}

const Tensor& tensor_of_shape(const File& file, const std::string& name,
                              const std::vector<std::int64_t>& shape) {
  const Tensor& tensor = file.tensor(name);
  if (tensor.shape != shape)
    file.fail("\"" + name + "\" is " + text_of(tensor.shape) + ", and " + text_of(shape) +
              " is wanted");
  return tensor;
}

std::int64_t read_tracked(const File& file, const ParameterTable& table) {
  std::int64_t most = 0;
  for (const std::string& norm : table.norms()) {
    const Tensor tensor = tensor_of_shape(file, norm + tracked_suffix, {});
    if (tensor.dtype != "I64")
      file.fail("\"" + tensor.name + "\" is of type " + tensor.dtype + ", and I64 is wanted");
    std::int64_t tracked = 0;
    std::memcpy(&tracked, tensor.bytes.data(), sizeof(tracked));
    if (tracked < 0 || tracked > most_steps)
      file.fail("\"" + tensor.name + "\" is " + std::to_string(tracked) +
                ", which is no number of batches");
    most = std::max(most, tracked);
  }
  return most;
}

/// Momenta are there for all parameters or for none.
bool has_momenta(const File& file) {
  return std::any_of(file.tensors.begin(), file.tensors.end(),
                     [](const auto& entry) { return entry.first.starts_with(momentum_prefix); });
}

void check_names(const File& file, const ParameterTable& table) {
  std::set<std::string> known;
  for (const Parameter& parameter : table.parameters()) {
    known.insert(parameter.name);
    known.insert(momentum_prefix + parameter.name);
  }
  for (const Statistic& statistic : table.statistics()) known.insert(statistic.name);
  for (const std::string& norm : table.norms()) known.insert(norm + tracked_suffix);
  for (const auto& [name, tensor] : file.tensors)
    if (!known.contains(name)) file.fail("has \"" + name + "\", which the network has not");
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Network& network,
                     const CheckpointNotes& notes, cudaStream_t stream) {
  const NetworkState state = network.state(stream);
  const ParameterTable& table = network.table();
  TensorList list;
  for (const Parameter& parameter : table.parameters())
    list.add_floats(parameter.name, parameter.shape, gather(table, parameter, state.parameters));
  for (const Statistic& statistic : table.statistics()) {
    const auto first = state.statistics.begin() + statistic.offset;
    list.add_floats(statistic.name, {statistic.channels},
                    std::vector<float>(first, first + statistic.channels));
  }
  for (const std::string& norm : table.norms())
    list.add(norm + tracked_suffix, "I64", {}, std::vector{state.batches_tracked});
  for (const Parameter& parameter : table.parameters())
    list.add_floats(momentum_prefix + parameter.name, parameter.shape,
                    gather(table, parameter, state.momenta));
  safetensors::write(path, list.tensors(),
                     {{"format", "pt"}, {notes_key, write_notes(state, notes)}});
}

CheckpointNotes read_notes(const File& file, NetworkState& state) {
  const auto text = file.metadata.find(notes_key);
  if (text == file.metadata.end()) return {};
  CheckpointNotes notes;
  try {
    const Json json = Json::parse(text->second);
    LossScale& loss_scale = state.loss_scale;
    state.step = integer_of<std::int64_t>(json, "step", 0, most_steps);
    loss_scale.scale = number_of(json, "scale", smallest_scale, std::numeric_limits<float>::max());
    loss_scale.good_steps = integer_of<std::int32_t>(json, "good_steps", 0, most_int);
    loss_scale.skipped = integer_of<std::int32_t>(json, "skipped", 0, most_int);
    json.at("texts").get_to(notes.texts);
    if (json.contains("sgd")) notes.sgd = sgd_of(json.at("sgd"));
  } catch (const Json::exception& error) {
    file.fail("the metadata's notes cannot be read: " + reason_of(error));
  } catch (const std::invalid_argument& error) {
    file.fail(std::string("the metadata's notes cannot be used: ") + error.what());
  }
  return notes;
}

CheckpointNotes load_checkpoint(const std::filesystem::path& path, Network& network,
                                cudaStream_t stream) {
  return load_checkpoint(safetensors::read(path), network, stream);
}

CheckpointNotes load_checkpoint(const File& file, Network& network, cudaStream_t stream) {
  const ParameterTable& table = network.table();
  check_names(file, table);
  NetworkState state;
  state.parameters.resize(index(table.all()));
  state.momenta.resize(index(table.all()));
  state.statistics.resize(index(table.statistics_size()));
  state.loss_scale.scale = network.options().initial_loss_scale;
  const bool with_momenta = has_momenta(file);
  for (const Parameter& parameter : table.parameters()) {
    const auto read = [&](const std::string& name, std::vector<float>& block) {
      scatter(table, parameter, file.floats(tensor_of_shape(file, name, parameter.shape)), block);
    };
    read(parameter.name, state.parameters);
    if (with_momenta) read(momentum_prefix + parameter.name, state.momenta);
  }
  for (const Statistic& statistic : table.statistics()) {
    const std::vector<float> values =
        file.floats(tensor_of_shape(file, statistic.name, {statistic.channels}));
    if (statistic.name.ends_with(variance_suffix) &&
        *std::min_element(values.begin(), values.end()) < 0)
      file.fail("\"" + statistic.name + "\" has a variance below 0");
    std::copy(values.begin(), values.end(), state.statistics.begin() + statistic.offset);
  }
  state.batches_tracked = read_tracked(file, table);
  CheckpointNotes notes = read_notes(file, state);
  notes.has_checksum = file.has_checksum;
  network.set_state(state, stream);
  return notes;
}

}  // namespace resnet
