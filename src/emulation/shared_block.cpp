// SPDX-License-Identifier: Apache-2.0
#include "shared_block.hpp"

#include <new>
#include <string>
#include <utility>

#include "report.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

void raise(std::atomic<std::uint64_t>& number, std::uint64_t to) {
  if (number.load(std::memory_order_relaxed) < to) number.store(to, std::memory_order_release);
}

}  // namespace

// ---- SharedBlock

std::unique_ptr<SharedBlock> SharedBlock::make(std::shared_ptr<SharedFile> file, std::size_t bytes,
                                               int device) {
  std::unique_ptr<SharedBlock> block(new SharedBlock);
  block->file_ = std::move(file);
  if (bytes + page_size() < bytes) return nullptr;
  block->offset_ = block->file_->extend(page_size() + bytes);
  if (block->offset_ < 0) return nullptr;
  block->pages_ = SharedPages(*block->file_, block->offset_, page_size());
  if (!block->pages_) return nullptr;
  new (block->pages_.data())
      BlockHeader{BlockHeader::kMagic, bytes, this_process(), device, {}, {}};
  return block;
}

SharedBlock::~SharedBlock() {
  if (!pages_) return;
  end_all();
  file_->forget(data_offset(), bytes());
}

off_t SharedBlock::data_offset() const {
  return offset_ + static_cast<off_t>(page_size());
}

void SharedBlock::begin(std::uint64_t life) {
  raise(header().begun, life);
}

void SharedBlock::end(std::uint64_t life) {
  raise(header().ended, life);
}

InterprocessHandle SharedBlock::handle(SharedKind kind, std::size_t bytes) const {
  InterprocessHandle handle(kind, file_->place());
  handle.offset = static_cast<std::uint64_t>(offset_);
  handle.life = lives_;
  handle.bytes = bytes;
  return handle;
}

// ---- OpenedBlock

std::unique_ptr<OpenedBlock> OpenedBlock::open(const SharedFile& file,
                                               const InterprocessHandle& handle) {
  std::unique_ptr<OpenedBlock> block(new OpenedBlock);
  block->pages_ = SharedPages(file, static_cast<off_t>(handle.offset), page_size());
  if (!block->pages_) return nullptr;
  const BlockHeader& header = block->header();
  const std::size_t bytes = header.bytes, behind = handle.offset + page_size();
  const bool fits = header.magic == BlockHeader::kMagic && behind <= file.bytes() &&
                    bytes <= file.bytes() - behind && handle.bytes != 0 && handle.bytes <= bytes;
  if (!fits || handle.life == 0) return nullptr;
  block->file_ = file.number();
  block->offset_ = handle.offset;
  block->life_ = handle.life;
  block->bytes_ = bytes;
  return block->lost() ? nullptr : std::move(block);
}

bool OpenedBlock::is(const InterprocessHandle& handle) const {
  return handle.place.number == file_ && handle.offset == offset_ && handle.life == life_;
}

off_t OpenedBlock::data_offset() const {
  return static_cast<off_t>(offset_ + page_size());
}

bool OpenedBlock::lost() const {
  return header().ended.load(std::memory_order_acquire) >= life_ || !runs(header().owner);
}

bool OpenedBlock::usable() {
  const auto tell = [this](const std::string& what) {
    if (!std::exchange(told_, true))
      report("memory of process " + std::to_string(header().owner.number) + " is used after " +
             what);
    return false;
  };
  if (header().ended.load(std::memory_order_acquire) >= life_)
    return tell("that process has freed it: free it when every other process has closed it");
  const auto now = std::chrono::steady_clock::now();
  if (told_ || now - looked_ >= kLookEvery) {
    if (!runs(header().owner))
      return tell("that process has ended: it has to run until every other one has closed it");
    looked_ = now;
  }
  if (begun()) return true;
  if (!std::exchange(told_, true))
    report("memory of process " + std::to_string(header().owner.number) +
           " is used before the allocation is executed there: wait for an event behind it");
  return false;
}

}  // namespace penstock::emulation::detail
