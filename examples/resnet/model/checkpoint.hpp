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
#include "safetensors.hpp"

namespace resnet {

struct CheckpointNotes {
  std::optional<SgdOptions> sgd;             ///< none in a file that PyTorch wrote
  std::map<std::string, std::string> texts;  ///< the program's own, by name
  bool has_checksum = false;                 ///< of a file that was read: it was compared
};

/// The file appears whole or not at all, whoever else writes it at the same time. Waits for the
/// stream. Throws std::system_error, and std::runtime_error for a value that is not finite: then
/// the old file stays.
void save_checkpoint(const std::filesystem::path& path, const Network& network,
                     const CheckpointNotes& notes, cudaStream_t stream);

/// Takes files of PyTorch too: then momenta and counters are as at the start. Values may be F32,
/// F16, BF16 or F64. Throws safetensors::FormatError, and leaves the network as it was, for a file
/// that is not whole or has another checksum, for a tensor that is missing, unknown, of another
/// shape or type, or that has a value that is not finite, and for notes that are out of their
/// range.
CheckpointNotes load_checkpoint(const std::filesystem::path& path, Network& network,
                                cudaStream_t stream);
/// The same of a file that was read.
CheckpointNotes load_checkpoint(const safetensors::File& file, Network& network,
                                cudaStream_t stream);

/// The notes in a file's metadata; `state` gets its counters and its loss scale. Throws
/// safetensors::FormatError for notes that cannot be read, and for a field that is out of its
/// range.
CheckpointNotes read_notes(const safetensors::File& file, NetworkState& state);

}  // namespace resnet
