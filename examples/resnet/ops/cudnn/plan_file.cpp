// SPDX-License-Identifier: Apache-2.0

#include "plan_file.hpp"

#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <utility>

namespace resnet::cudnn {

namespace {

constexpr const char* magic = "penstock plans 1: ";
constexpr std::uint64_t longest = std::uint64_t{1} << 30;  // bytes: more is a damaged length

void write_string(std::ostream& out, const char* data, std::size_t bytes) {
  const std::uint64_t length = bytes;
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(data, static_cast<std::streamsize>(bytes));
}

/// false when the stream ends first. Reads in parts: a damaged length must not allocate it all.
template <class Container>
bool read_string(std::istream& in, Container& data) {
  std::uint64_t length = 0;
  if (!in.read(reinterpret_cast<char*>(&length), sizeof length) || length > longest) return false;
  constexpr std::size_t part = 1 << 16;
  data.clear();
  while (data.size() < length) {
    const std::size_t at = data.size();
    data.resize(std::min<std::size_t>(length, at + part));
    if (!in.read(reinterpret_cast<char*>(data.data() + at),
                 static_cast<std::streamsize>(data.size() - at)))
      return false;
  }
  return true;
}

}  // namespace

PlanFile::PlanFile(std::filesystem::path path, std::string environment)
    : path_(std::move(path)), header_(magic + std::move(environment)) {
  if (!path_.empty()) read();
}

void PlanFile::read() {
  std::ifstream in(path_, std::ios::binary);
  if (!in) return;
  std::string header;
  if (!std::getline(in, header) || header.rfind(magic, 0) != 0) {
    note_ = path_.string() + ": ignored, it is no file of plans";
    return;
  }
  if (header != header_) {
    const std::size_t skip = std::string(magic).size();
    note_ = path_.string() + ": ignored, made for " + header.substr(skip) + "; here is " +
            header_.substr(skip);
    return;
  }
  while (in.peek() != std::ifstream::traits_type::eof()) {
    std::string key;
    Bytes plan;
    if (!read_string(in, key) || !read_string(in, plan)) {
      note_ = path_.string() + ": ignored, it is damaged";
      plans_.clear();
      return;
    }
    plans_[key] = std::move(plan);
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
  std::filesystem::path fresh = path_;
  fresh += ".new." + std::to_string(getpid());
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out << header_ << '\n';
  for (const auto& [key, plan] : plans_) {
    write_string(out, key.data(), key.size());
    write_string(out, reinterpret_cast<const char*>(plan.data()), plan.size());
  }
  out.close();
  std::error_code failed;
  if (out) std::filesystem::rename(fresh, path_, failed);
  if (!out || failed) {
    std::filesystem::remove(fresh, failed);
    throw std::runtime_error("cannot write plans to " + path_.string());
  }
  changed_ = false;
}

}  // namespace resnet::cudnn
