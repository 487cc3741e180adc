// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/video_folder.hpp>

#include <cstdint>
#include <filesystem>
#include <penstock/video/video_error.hpp>
#include <penstock/video/video_files.hpp>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using penstock::test::Mentions;
using penstock::test::TemporaryDirectory;
using penstock::test::thrown;
using penstock::test::write_file;

/// A folder with these files, which are empty.
void fill(const std::filesystem::path& folder, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::filesystem::create_directories((folder / file).parent_path());
    write_file(folder / file, "");
  }
}

std::vector<std::string> names_of(const VideoFolder& found, const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& file : found.files) names.push_back(file.lexically_relative(folder).string());
  return names;
}

TEST_CASE("The directories of a folder are the classes of its videos", "[video]") {
  const TemporaryDirectory directory;
  const std::filesystem::path folder = directory / "clips";
  fill(folder, {"run/b.MP4", "run/a/c.mkv", "jump/z.webm", "jump/z.webm.frames", "notes/x.txt",
                "jump/._z.webm", "run/.ipynb_checkpoints/b.mp4", "walk/mov", "run.mov/d.Mov"});
  const VideoFolder found = VideoFolder::list(folder);
  CHECK(names_of(found, folder) ==
        std::vector<std::string>{"jump/z.webm", "run/a/c.mkv", "run/b.MP4", "run.mov/d.Mov"});
  CHECK(found.classes == std::vector<std::string>{"jump", "run", "run.mov"});
  CHECK(found.labels == std::vector<std::int32_t>{0, 1, 1, 2});
  const VideoFiles files = video_files_in(folder, {.save_indexes = false});
  CHECK(files.size() == 4);
  CHECK(files.name(2) == (folder / "run/b.MP4").string());
  CHECK(files.label(3) == 2);
}

TEST_CASE("With a video in the folder itself there are no classes", "[video]") {
  const TemporaryDirectory directory;
  const std::filesystem::path folder = directory / "clips";
  fill(folder, {"run/a.mp4", "z.m4v"});
  const VideoFolder found = VideoFolder::list(folder);
  CHECK(names_of(found, folder) == std::vector<std::string>{"run/a.mp4", "z.m4v"});
  CHECK(found.classes.empty());
  CHECK(found.labels.empty());
  CHECK(video_files_in(folder).label(0) == -1);
}

TEST_CASE("Links to directories of videos are followed", "[video]") {
  const TemporaryDirectory directory;
  const std::filesystem::path folder = directory / "clips", elsewhere = directory / "elsewhere";
  fill(elsewhere, {"a.mp4"});
  fill(folder, {"notes.txt"});
  std::filesystem::create_directory_symlink(elsewhere, folder / "linked");
  CHECK(VideoFolder::list(folder).classes == std::vector<std::string>{"linked"});
}

TEST_CASE("A folder without videos is an error that says what was looked for", "[video]") {
  const TemporaryDirectory directory;
  const std::filesystem::path folder = directory / "clips";
  fill(folder, {"run/a.avi"});
  CHECK_THAT(thrown<VideoError>([&] { VideoFolder::list(folder); }),
             Mentions("has no files .mp4, .m4v, .mov, .mkv, .mk3d, .webm") &&
                 Mentions("directories below"));
  CHECK_THAT(thrown<std::filesystem::filesystem_error>([&] { video_files_in(folder / "missing"); }),
             Mentions("missing"));
}

}  // namespace
}  // namespace penstock::video
