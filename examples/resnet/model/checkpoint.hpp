// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checkpoints: a network's parameters and running statistics in a safetensors file under
// torchvision's names, in torchvision's order of elements whatever the format in memory, and with
// them all that is needed to go on with training.
//
//   save_checkpoint(path, network, {sgd, {{"prefetcher", state.to_string()}}}, stream);
//   const CheckpointNotes notes = load_checkpoint(path, network, stream);
//
// What is not the model's has names with a prefix: "momentum." before a parameter's name, and one
// text under "penstock" in the metadata. In Python, without them, it is a state_dict:
//
//   model.load_state_dict({k: v for k, v in load_file(path).items()
//                          if not k.startswith("momentum.")})

#include <cuda_runtime_api.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "network.hpp"

namespace resnet {

struct CheckpointNotes {
  std::optional<SgdOptions> sgd;             ///< none in a file that PyTorch wrote
  std::map<std::string, std::string> texts;  ///< the program's own, by name
};

/// The file appears whole or not at all. Waits for the stream. Throws std::system_error.
void save_checkpoint(const std::filesystem::path& path, const Network& network,
                     const CheckpointNotes& notes, cudaStream_t stream);

/// Takes files of PyTorch too: then momenta and counters are as at the start. Values may be F32,
/// F16, BF16 or F64. Throws safetensors::FormatError, and leaves the network as it was, for a file
/// that is not whole, and for a tensor that is missing, unknown, or of another shape or type.
CheckpointNotes load_checkpoint(const std::filesystem::path& path, Network& network,
                                cudaStream_t stream);

}  // namespace resnet
