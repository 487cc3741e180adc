// SPDX-License-Identifier: Apache-2.0

#include <exception>
#include <list>
#include <mutex>
#include <penstock/error.hpp>
#include <penstock/video/video_error.hpp>
#include <penstock/video/video_files.hpp>
#include <penstock/video/video_folder.hpp>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using SharedIndex = std::shared_ptr<const FrameIndex>;

std::size_t bytes_of(const FrameIndex& index) {
  return sizeof(index) + index.frames().size_bytes() + index.starts().size_bytes();
}

/// The indexes that were used last, up to a number of bytes. One that is in use elsewhere stays.
class IndexCache {
 public:
  explicit IndexCache(std::size_t limit) : limit_(limit) {}

  SharedIndex find(std::uint64_t file) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(file);
    if (found == places_.end()) return nullptr;
    used_.splice(used_.begin(), used_, found->second);
    return found->second->second;
  }

  void add(std::uint64_t file, SharedIndex index) {
    const std::lock_guard lock(mutex_);
    if (places_.contains(file)) return;  // Another thread was faster.
    bytes_ += bytes_of(*index);
    used_.emplace_front(file, std::move(index));
    places_[file] = used_.begin();
    while (bytes_ > limit_ && used_.size() > 1) {
      bytes_ -= bytes_of(*used_.back().second);
      places_.erase(used_.back().first);
      used_.pop_back();
    }
  }

 private:
  using Entries = std::list<std::pair<std::uint64_t, SharedIndex>>;

  const std::size_t limit_;
  std::mutex mutex_;
  Entries used_;  ///< the last used one first
  std::unordered_map<std::uint64_t, Entries::iterator> places_;
  std::size_t bytes_ = 0;
};

}  // namespace

struct VideoFiles::List {
  List(std::vector<std::string> of, std::function<File(std::uint64_t)> by,
       std::vector<std::int32_t> labelled, const VideoFilesOptions& with)
      : names(std::move(of)),
        open(std::move(by)),
        labels(std::move(labelled)),
        options(with),
        cache(with.index_bytes) {
    if (names.empty()) throw std::invalid_argument("VideoFiles: there are no files");
    if (!labels.empty() && labels.size() != names.size())
      throw std::invalid_argument("VideoFiles: " + std::to_string(labels.size()) + " labels for " +
                                  std::to_string(names.size()) + " files");
    if (options.save_indexes && !options.index_folder.empty())
      std::filesystem::create_directories(options.index_folder);
  }

  /// Empty: the index is not saved.
  std::filesystem::path index_path(std::uint64_t i, const File& file) const {
    if (!options.save_indexes) return {};
    if (!options.index_folder.empty()) return FrameIndex::path_in(options.index_folder, names[i]);
    return file.descriptor() < 0 ? std::filesystem::path() : FrameIndex::path_beside(names[i]);
  }

  SharedIndex index(std::uint64_t i, const File& file) {
    if (SharedIndex known = cache.find(i)) return known;
    const std::filesystem::path path = index_path(i, file);
    auto made = std::make_shared<const FrameIndex>(
        path.empty() ? FrameIndex::make(file, options.limits)
                     : FrameIndex::open(file, path, options.limits));
    cache.add(i, made);
    return made;
  }

  const std::vector<std::string> names;
  const std::function<File(std::uint64_t)> open;
  const std::vector<std::int32_t> labels;
  const VideoFilesOptions options;
  IndexCache cache;
};

VideoFiles::VideoFiles(std::function<File(std::uint64_t)> open, std::vector<std::string> names,
                       const std::vector<std::int32_t>& labels, const VideoFilesOptions& options)
    : list_(std::make_shared<List>(std::move(names), std::move(open), labels, options)) {}

VideoFiles::VideoFiles(const std::vector<std::filesystem::path>& files,
                       const std::vector<std::int32_t>& labels, const VideoFilesOptions& options) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const std::filesystem::path& file : files) names.push_back(file.string());
  list_ = std::make_shared<List>(
      std::move(names), [files](std::uint64_t i) { return File::open(files[i]); }, labels, options);
}

std::uint64_t VideoFiles::size() const noexcept {
  return list_->names.size();
}
const std::string& VideoFiles::name(std::uint64_t i) const {
  return list_->names.at(i);
}
std::int32_t VideoFiles::label(std::uint64_t i) const {
  static_cast<void>(name(i));
  return list_->labels.empty() ? -1 : list_->labels[i];
}

Video VideoFiles::video(std::uint64_t i) const {
  const std::string& called = name(i);
  try {
    const File file = list_->open(i);
    return {file, list_->index(i, file)};
  } catch (const VideoError&) {
    throw;  // It names the file.
  } catch (...) {
    std::throw_with_nested(VideoError(called + ": " + penstock::detail::what_is_handled()));
  }
}

VideoFiles video_files_in(const std::filesystem::path& folder, const VideoFilesOptions& options) {
  const VideoFolder found = VideoFolder::list(folder);
  return VideoFiles(found.files, found.labels, options);
}

}  // namespace penstock::video
