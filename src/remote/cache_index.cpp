// SPDX-License-Identifier: Apache-2.0
#include "cache_index.hpp"

#include <algorithm>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

using penstock::detail::OpenFile;

constexpr std::uint64_t kCellBytes = sizeof(CacheCell);

void require_open(const OpenFile& file) {
  if (!file.is_open()) OpenFile::fail("cannot open");
}

}  // namespace

CacheIndex::CacheIndex(const std::filesystem::path& directory, const CacheHeader& header)
    : header_(header), path_(directory / "index"), new_path_(directory / "index.new") {}

bool CacheIndex::open() {
  ::unlink(new_path_.c_str());  // of a process that was killed
  file_ = OpenFile(path_.c_str(), O_RDWR);
  if (file_.is_open()) try {
      read_header();
      return true;
    } catch (const std::runtime_error&) {
    }
  replace({});
  return false;
}

void CacheIndex::read_header() {
  file_.require_regular();
  CacheCell cell{};
  file_.read(0, cell);
  const std::optional<CacheHeader> found = header_of(cell);
  if (!found || *found != header_) throw std::runtime_error("the index is of another cache");
  next_ = 1;
  count_ = 0;
}

std::optional<CacheRecord> CacheIndex::next(bool locked, std::uint64_t& damaged) {
  while (true) {
    if (next_ < first_ || next_ >= first_ + count_) {
      const std::uint64_t end = file_.size() / kCellBytes;
      if (next_ >= end) return std::nullopt;
      first_ = next_;
      count_ = static_cast<std::size_t>(std::min<std::uint64_t>(end - next_, cells_.size()));
      const auto some = std::as_writable_bytes(std::span(cells_).first(count_));
      count_ = file_.read(first_ * kCellBytes, some) / kCellBytes;
      if (count_ == 0) return std::nullopt;
    }
    const auto record = record_of(cells_[static_cast<std::size_t>(next_ - first_)], next_, header_);
    const bool is_last = next_ + 1 == first_ + count_;
    if (!record && is_last && !locked) {
      count_ = 0;  // It will be read again.
      return std::nullopt;
    }
    ++next_;
    if (record) return record;
    ++damaged;
  }
}

bool CacheIndex::follow() {
  if (file_.status().st_nlink > 0) return false;
  file_ = OpenFile(path_.c_str(), O_RDWR);
  require_open(file_);
  read_header();
  return true;
}

void CacheIndex::append(const CacheRecord& record) {
  const CacheCell cell = to_cell(record, next_);
  file_.write(next_ * kCellBytes, cell);
}

void CacheIndex::replace(const std::vector<CacheRecord>& records) try {
  OpenFile file(new_path_.c_str(), O_RDWR | O_CREAT | O_TRUNC);
  require_open(file);
  std::vector<CacheCell> cells;
  cells.reserve(records.size() + 1);
  cells.push_back(to_cell(header_));
  for (const CacheRecord& record : records) cells.push_back(to_cell(record, cells.size()));
  file.write(0, std::as_bytes(std::span(cells)));
  if (::rename(new_path_.c_str(), path_.c_str()) != 0) OpenFile::fail("cannot rename");
  file_ = std::move(file);
  next_ = cells.size();
  count_ = 0;
} catch (const std::exception&) {
  ::unlink(new_path_.c_str());
  throw;
}

}  // namespace penstock::remote
