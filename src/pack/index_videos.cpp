// SPDX-License-Identifier: Apache-2.0

#include "index_videos.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <penstock/detail/escaped.hpp>
#include <penstock/error.hpp>
#include <penstock/file.hpp>
#include <penstock/video/frame_index.hpp>
#include <penstock/video/video_error.hpp>
#include <penstock/video/video_folder.hpp>
#include <string>
#include <thread>

#include "programs/interrupt.hpp"
#include "progress.hpp"
#include "source.hpp"

namespace pack {
namespace {

namespace fs = std::filesystem;
using penstock::File;
using penstock::programs::interrupted;
using penstock::video::FrameIndex;

/// All files, those of a directory in the order of their names.
std::vector<fs::path> videos_of(const std::vector<fs::path>& sources) {
  std::vector<fs::path> videos;
  for (const fs::path& source : sources) {
    if (!fs::is_directory(source)) {
      videos.push_back(source);
      continue;
    }
    try {
      const auto found = penstock::video::VideoFolder::list(source).files;
      videos.insert(videos.end(), found.begin(), found.end());
    } catch (const penstock::video::VideoError& error) {
      throw UsageError(error.what());
    }
  }
  return videos;
}

/// What the threads of a run have done.
struct Work {
  std::mutex mutex;
  std::uint64_t done = 0, bytes = 0, made = 0, frames = 0, bad = 0;
};

/// Makes the index of one file, unless it is there.
void index_video(const fs::path& video, const fs::path& folder, Work& work) {
  std::uint64_t bytes = 0, frames = 0;
  bool is_made = false;
  std::string error;
  try {
    const File file = File::open(video);
    bytes = file.size();
    const fs::path path = folder.empty() ? FrameIndex::path_beside(video)
                                         : FrameIndex::path_in(folder, video.string());
    if (const auto known = FrameIndex::load(path, file)) {
      frames = known->size();
    } else {
      const FrameIndex index = FrameIndex::make(file);
      index.save(path, file);
      frames = index.size();
      is_made = true;
    }
  } catch (...) {
    error = penstock::detail::what_is_handled();
  }
  const std::lock_guard lock(work.mutex);
  if (!error.empty()) {
    const std::string name = video.string();
    const bool has_name = error.find(name) != std::string::npos;
    std::fprintf(stderr, "\r%s\n",
                 penstock::detail::escaped(has_name ? error : name + ": " + error).c_str());
  }
  ++work.done;
  work.bytes += bytes;
  work.frames += frames;
  work.made += is_made ? 1u : 0u;
  work.bad += error.empty() ? 0u : 1u;
}

}  // namespace

int index_videos(const std::vector<fs::path>& sources, const fs::path& index_folder,
                 std::size_t threads) {
  penstock::programs::watch_interrupts();
  const std::vector<fs::path> videos = videos_of(sources);
  if (!index_folder.empty()) fs::create_directories(index_folder);
  Work work;
  double seconds = 0;
  {
    Progress progress(0, videos.size(), "videos");
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < std::min(threads, videos.size()); ++i)
      workers.emplace_back([&] {
        for (std::size_t at = next++; at < videos.size() && !interrupted(); at = next++) {
          index_video(videos[at], index_folder, work);
          const std::lock_guard lock(work.mutex);
          progress.to(work.done, work.bytes);
        }
      });
    workers.clear();
    seconds = progress.seconds();
  }
  std::printf(
      "%s videos, %s frames, %s in %.1f s: %s indexes made, %s were there, %s files failed\n",
      grouped(work.done).c_str(), grouped(work.frames).c_str(),
      in_bytes(static_cast<double>(work.bytes)).c_str(), seconds, grouped(work.made).c_str(),
      grouped(work.done - work.made - work.bad).c_str(), grouped(work.bad).c_str());
  if (interrupted()) return penstock::programs::interrupted_exit_code();
  return work.bad == 0 ? 0 : 1;
}

}  // namespace pack
