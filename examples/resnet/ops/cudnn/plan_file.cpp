// SPDX-License-Identifier: Apache-2.0

#include "plan_file.hpp"

#include <cctype>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include "../../../common/read_file.hpp"
#include "programs/output_file.hpp"

namespace resnet::cudnn {

namespace {

constexpr const char* magic = "penstock plans 1: ";
constexpr std::uint64_t longest_file = std::uint64_t{1} << 32;  // bytes: more are no plans

std::string with_length(const char* data, std::size_t bytes) {
  const std::uint64_t length = bytes;
  return std::string(reinterpret_cast<const char*>(&length), sizeof length).append(data, bytes);
}

/// Takes a length, and as many bytes behind it, off the front. None: `text` ends first.
std::optional<std::string_view> take_string(std::string_view& text) {
  std::uint64_t length = 0;
  if (text.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, text.data(), sizeof length);
  text.remove_prefix(sizeof length);
  if (length > text.size()) return std::nullopt;
  const std::string_view taken = text.substr(0, length);
  text.remove_prefix(length);
  return taken;
}

/// As messages have it: on one line, and not too long.
std::string printable(std::string_view text) {
  std::string line(text.substr(0, 200));
  for (char& c : line)
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '?';
  return line;
}

}  // namespace

std::optional<PlanFile::Plans> PlanFile::parse(std::string_view plans) {
  Plans parsed;
  while (!plans.empty()) {
    const auto key = take_string(plans);
    const auto plan = key ? take_string(plans) : std::nullopt;
    if (!plan) return std::nullopt;
    // A key that comes twice is not written by anybody.
    if (!parsed.emplace(*key, Bytes(plan->begin(), plan->end())).second) return std::nullopt;
  }
  return parsed;
}

PlanFile::PlanFile(std::filesystem::path path, std::string environment)
    : path_(std::move(path)), header_(magic + std::move(environment)) {
  if (!path_.empty()) read();
}

void PlanFile::read() {
  std::error_code none;
  if (!std::filesystem::exists(path_, none)) return;
  const auto ignore = [this](const std::string& why) {
    note_ = path_.string() + ": ignored, " + why;
  };
  try {
    const std::vector<std::byte> bytes = examples::read_file(path_, longest_file);
    const std::string_view text = examples::text_of(bytes);
    const std::size_t end = text.find('\n');
    const std::string_view header = text.substr(0, end);
    if (end == std::string_view::npos || !header.starts_with(magic))
      return ignore("it is no file of plans");
    const std::size_t skip = std::string_view(magic).size();
    if (header != header_)
      return ignore("made for " + printable(header.substr(skip)) + "; here is " +
                    header_.substr(skip));
    std::optional<Plans> plans = parse(text.substr(end + 1));
    if (!plans) return ignore("it is damaged");
    plans_ = std::move(*plans);
  } catch (const examples::ReadError& error) {
    ignore(std::string("it cannot be read: ") + error.what());
  }
}

const PlanFile::Bytes* PlanFile::find(const std::string& key) const {
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : &found->second;
}

void PlanFile::put(const std::string& key, Bytes plan) {
  if (path_.empty()) return;
  plans_[key] = std::move(plan);
  changed_ = true;
}

void PlanFile::save() {
  if (!changed_) return;
  penstock::programs::OutputFile file(path_);
  file.write(header_ + '\n');
  for (const auto& [key, plan] : plans_) {
    file.write(with_length(key.data(), key.size()));
    file.write(with_length(reinterpret_cast<const char*>(plan.data()), plan.size()));
  }
  file.commit();
  changed_ = false;
}

}  // namespace resnet::cudnn
