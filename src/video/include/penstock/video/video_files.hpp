// SPDX-License-Identifier: Apache-2.0
#pragma once

// VideoFiles: a list of video files and their indexes.
//
//   const penstock::video::VideoFiles files({"a.mp4", "b.mkv"}, {0, 1},         // with labels
//                                           {.index_folder = "indexes"});
//   const penstock::video::Video video = files.video(0);
//
// The index of a file is loaded, or made and saved, when it is first needed. Those that were used
// last stay in memory, up to a limit, so the memory does not grow with the number of files.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <penstock/file.hpp>
#include <penstock/video/clip_decoder.hpp>
#include <penstock/video/frame_index.hpp>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::video {

/// How VideoFiles keeps indexes.
struct VideoFilesOptions {
  /// Where indexes are saved, see FrameIndex::path_in; empty: each beside its file (of a server's
  /// file: nowhere). A folder that does not exist is made.
  std::filesystem::path index_folder = {};
  bool save_indexes = true;                          ///< false: none is loaded or saved
  std::size_t index_bytes = std::size_t{256} << 20;  ///< memory for indexes, about
  VideoLimits limits{};                              ///< of each file
};

/// A list of video files. Any number of threads may use one object. A file is opened when it is
/// needed. Copies share the list and the indexes.
class VideoFiles {
 public:
  /// Files of this machine. `labels`: one for each file, or none. Throws std::invalid_argument for
  /// no files and another number of labels, and std::system_error if the index folder cannot be
  /// made. The files are not opened yet.
  explicit VideoFiles(const std::vector<std::filesystem::path>& files,
                      const std::vector<std::int32_t>& labels = {},
                      const VideoFilesOptions& options = {});
  /// Any files: `open(i)` opens file i, of `names`. Any thread may call it.
  VideoFiles(std::function<File(std::uint64_t)> open, std::vector<std::string> names,
             const std::vector<std::int32_t>& labels = {}, const VideoFilesOptions& options = {});

  /// Number of files.
  std::uint64_t size() const noexcept;
  /// For messages: the path, or the name. Throws std::out_of_range.
  const std::string& name(std::uint64_t i) const;
  /// The label of file i; -1 if there are none. Throws std::out_of_range.
  std::int32_t label(std::uint64_t i) const;
  /// Opens file i, and loads or makes its index. Throws VideoError that names the file, with the
  /// reason nested, and std::out_of_range.
  Video video(std::uint64_t i) const;

 private:
  struct List;
  std::shared_ptr<List> list_;
};

/// The video files below a folder, with a label for each class: those of VideoFolder::list().
/// Throws what that and the constructor of VideoFiles throw.
VideoFiles video_files_in(const std::filesystem::path& folder,
                          const VideoFilesOptions& options = {});

}  // namespace penstock::video
