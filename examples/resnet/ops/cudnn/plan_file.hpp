// SPDX-License-Identifier: Apache-2.0
#pragma once

// Serialized plans in a file, by their keys' text, for one version of cuDNN and one kind of device.
// The file is the header's line, then for each plan: bytes of its key, bytes of its plan, both.
//
//   PlanFile file("plans.bin", "cuDNN 9.19.0, NVIDIA H200");
//   if (!file.note().empty()) std::clog << file.note();       // why what is there is not used
//   if (const auto* plan = file.find(key.text())) ...
//   file.put(key.text(), plan.serialize());
//   file.save();

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace resnet::cudnn {

class PlanFile {
 public:
  using Bytes = std::vector<std::uint8_t>;

  /// Reads the file. One that is missing, damaged or of another `environment` is as if empty.
  /// Without a path there is no file, and nothing is kept.
  PlanFile(std::filesystem::path path, std::string environment);

  /// Why the file was not taken; empty when it was, or when there is none.
  const std::string& note() const { return note_; }

  /// Null when there is none. Valid until the next put().
  const Bytes* find(const std::string& key) const;
  void put(const std::string& key, Bytes plan);
  /// Replaces the file in one go (penstock::programs::OutputFile): whoever reads it sees the old
  /// one or the new one. Nothing is done when it would be the same. Throws std::system_error.
  void save();

  using Plans = std::map<std::string, Bytes>;
  /// What is behind the header's line. None: it is damaged. No length is believed before it is
  /// checked.
  static std::optional<Plans> parse(std::string_view plans);

 private:
  void read();

  std::filesystem::path path_;
  std::string header_, note_;
  Plans plans_;
  bool changed_ = false;
};

}  // namespace resnet::cudnn
