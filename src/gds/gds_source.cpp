// SPDX-License-Identifier: Apache-2.0

#include <optional>
#include <penstock/error.hpp>
#include <penstock/gds/gds_source.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::gds::detail {

const GdsFile& GdsFiles::of(const File& file) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(file.descriptor());
  if (found != files_.end()) return found->second;
  return files_.emplace(file.descriptor(), GdsFile(file, options_)).first->second;
}

RowReader::RowReader(const GdsReaderOptions& options) : reader_(options) {}

void RowReader::begin(void* rows, std::size_t row_bytes) {
  rows_ = static_cast<std::byte*>(rows);
  row_bytes_ = row_bytes;
  samples_.clear();
  requests_.clear();
  first_rows_.clear();
}

void RowReader::add(GdsFiles& files, const FilePlace& place, std::uint64_t sample) {
  constexpr std::size_t kMostTogether = std::size_t{1} << 20;
  const auto [offset, bytes] = place.range;
  if (bytes != row_bytes_)
    throw StoreError("gds_source", place.file.name(),
                     "sample " + std::to_string(sample) + " has " + std::to_string(bytes) +
                         " bytes, and a row of the batch " + std::to_string(row_bytes_) +
                         ": give the layout rows of the size of the records",
                     sample);
  const GdsFile& file = files.of(place.file);
  const std::size_t row = samples_.size();
  samples_.push_back(sample);
  if (!requests_.empty()) {
    GdsRequest& last = requests_.back();
    if (last.file == &file && last.offset + last.bytes == offset &&
        last.bytes + row_bytes_ <= kMostTogether) {
      last.bytes += row_bytes_;
      return;
    }
  }
  requests_.push_back({&file, offset, rows_ + row * row_bytes_, row_bytes_});
  first_rows_.push_back(row);
}

void RowReader::read(cudaStream_t stream) {
  penstock::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  std::optional<GdsOutcome> lost;  // that of the first rows
  reader_.read(requests_, [&](const GdsOutcome& outcome) {
    const bool is_whole = !outcome.error && outcome.bytes == requests_[outcome.request].bytes;
    if (!is_whole && (!lost || outcome.request < lost->request)) lost = outcome;
  });
  if (!lost) return;
  const GdsRequest& request = requests_[lost->request];
  const std::size_t row = first_rows_[lost->request] + lost->bytes / row_bytes_;
  const std::string sample = "sample " + std::to_string(samples_[row]) + " is lost: ";
  const std::string& name = request.file->name();
  if (!lost->error)
    throw StoreError("gds_source", name,
                     sample + "the file ends at byte " +
                         std::to_string(request.offset + lost->bytes) + ", and had " +
                         std::to_string(request.file->size()) + " bytes when it was opened",
                     samples_[row]);
  try {
    std::rethrow_exception(lost->error);
  } catch (const GdsError& error) {
    throw StoreError("gds_source", name, sample + error.what(), samples_[row]);
  }
}

}  // namespace penstock::gds::detail
