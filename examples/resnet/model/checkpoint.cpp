// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "safetensors.hpp"

namespace resnet {
namespace {

using Json = nlohmann::json;
using safetensors::File;
using safetensors::Tensor;

constexpr const char* momentum_prefix = "momentum.";
constexpr const char* tracked_suffix = ".num_batches_tracked";
constexpr const char* notes_key = "penstock";

std::size_t index(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

// ---- What is in the metadata --------------------------------------------------------------------

NLOHMANN_JSON_SERIALIZE_ENUM(Decay, {{Decay::cosine, "cosine"},
                                     {Decay::steps, "steps"},
                                     {Decay::constant, "constant"}})

Json to_json(const SgdOptions& sgd) {
  return {{"decay", sgd.schedule.decay},
          {"base", sgd.schedule.base},
          {"warmup_steps", sgd.schedule.warmup_steps},
          {"total_steps", sgd.schedule.total_steps},
          {"momentum", sgd.momentum},
          {"weight_decay", sgd.weight_decay},
          {"growth_interval", sgd.growth_interval}};
}

SgdOptions sgd_of(const Json& json) {
  SgdOptions sgd;
  json.at("decay").get_to(sgd.schedule.decay);
  json.at("base").get_to(sgd.schedule.base);
  json.at("warmup_steps").get_to(sgd.schedule.warmup_steps);
  json.at("total_steps").get_to(sgd.schedule.total_steps);
  json.at("momentum").get_to(sgd.momentum);
  json.at("weight_decay").get_to(sgd.weight_decay);
  json.at("growth_interval").get_to(sgd.growth_interval);
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

CheckpointNotes read_notes(const File& file, NetworkState& state) {
  const auto text = file.metadata.find(notes_key);
  if (text == file.metadata.end()) return {};
  CheckpointNotes notes;
  try {
    const Json json = Json::parse(text->second);
    json.at("step").get_to(state.step);
    json.at("scale").get_to(state.loss_scale.scale);
    json.at("good_steps").get_to(state.loss_scale.good_steps);
    json.at("skipped").get_to(state.loss_scale.skipped);
    json.at("texts").get_to(notes.texts);
    if (json.contains("sgd")) notes.sgd = sgd_of(json.at("sgd"));
  } catch (const Json::exception& error) {
    file.fail(std::string("the metadata's notes cannot be read: ") + error.what());
  }
  return notes;
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
    list.add(parameter.name, "F32", parameter.shape, gather(table, parameter, state.parameters));
  for (const Statistic& statistic : table.statistics()) {
    const auto first = state.statistics.begin() + statistic.offset;
    list.add(statistic.name, "F32", {statistic.channels},
             std::vector<float>(first, first + statistic.channels));
  }
  for (const std::string& norm : table.norms())
    list.add(norm + tracked_suffix, "I64", {}, std::vector{state.batches_tracked});
  for (const Parameter& parameter : table.parameters())
    list.add(momentum_prefix + parameter.name, "F32", parameter.shape,
             gather(table, parameter, state.momenta));
  safetensors::write(path, list.tensors(),
                     {{"format", "pt"}, {notes_key, write_notes(state, notes)}});
}

CheckpointNotes load_checkpoint(const std::filesystem::path& path, Network& network,
                                cudaStream_t stream) {
  const File file = safetensors::read(path);
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
    std::copy(values.begin(), values.end(), state.statistics.begin() + statistic.offset);
  }
  state.batches_tracked = read_tracked(file, table);
  CheckpointNotes notes = read_notes(file, state);
  network.set_state(state, stream);
  return notes;
}

}  // namespace resnet
