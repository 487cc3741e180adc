// SPDX-License-Identifier: Apache-2.0

#include "inputs.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>

#include "image_file.hpp"
#include "programs/interrupt.hpp"

namespace resnet::classify {
namespace {

namespace fs = std::filesystem;

// ---- Files and directories ----------------------------------------------------------------------

class FileList final : public Inputs {
 public:
  explicit FileList(std::vector<Input> files) : files_(std::move(files)) {}

  std::vector<Input> take(std::uint64_t batch, std::size_t most, const std::stop_token&) override {
    std::vector<Input> inputs;
    for (std::uint64_t i = batch * most; i < std::min((batch + 1) * most, *count()); ++i)
      inputs.push_back(files_[i]);
    return inputs;
  }
  std::optional<std::uint64_t> count() const override { return files_.size(); }

 private:
  std::vector<Input> files_;
};

bool is_called_an_image(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

/// A file that is called an image and is none will be told; others in a directory are none of our
/// business.
bool is_image(const fs::path& path) {
  if (is_called_an_image(path)) return true;
  try {
    return kind_of(read_file(path, 8)) != ImageKind::neither;
  } catch (const ImageError&) {
    return false;
  }
}

struct Found {
  fs::path path;
  std::string error;  // of a folder that cannot be listed
};

/// Images and folders in `directory`; why it cannot be listed, if it cannot.
std::error_code list(const fs::path& directory, std::vector<Found>& images,
                     std::vector<fs::path>& folders) {
  std::error_code error, none;  // A link that leads nowhere is no directory.
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (penstock::programs::interrupted()) break;
    if (!entry->is_directory(none)) {
      if (is_image(entry->path())) images.push_back({entry->path(), {}});
    } else if (!entry->is_symlink(none)) {
      folders.push_back(entry->path());
    }
  }
  return error;
}

void add_directory(const fs::path& directory, std::vector<Input>& files) {
  std::vector<Found> found;
  std::vector<fs::path> folders;
  if (const std::error_code error = list(directory, found, folders))
    throw std::invalid_argument("cannot look into " + directory.string() + ": " + error.message());
  while (!folders.empty() && !penstock::programs::interrupted()) {
    const fs::path folder = std::move(folders.back());
    folders.pop_back();
    if (const std::error_code error = list(folder, found, folders))
      found.push_back({folder, "cannot look into this folder: " + error.message()});
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.path < b.path; });
  for (Found& one : found) files.push_back({one.path.string(), -1, 0, std::move(one.error)});
}

// ---- Records ------------------------------------------------------------------------------------

class RecordList final : public Inputs {
 public:
  explicit RecordList(const std::vector<fs::path>& files) : records_(files, cifar10::record_bytes) {
    for (const fs::path& file : files)
      files_.push_back({file.string(), fs::file_size(file) / cifar10::record_bytes});
  }

  std::vector<Input> take(std::uint64_t batch, std::size_t most, const std::stop_token&) override {
    std::vector<Input> inputs;
    for (std::uint64_t i = batch * most; i < std::min((batch + 1) * most, *count()); ++i)
      inputs.push_back(input(i));
    return inputs;
  }
  std::optional<std::uint64_t> count() const override { return records_.size(); }
  std::vector<std::byte> record(const Input& input) const override {
    return records_[input.number];
  }

 private:
  struct File {
    std::string path;
    std::uint64_t records;
  };

  Input input(std::uint64_t number) const {
    std::uint64_t record = number;
    auto file = files_.begin();
    for (; record >= file->records; ++file) record -= file->records;
    return {file->path, static_cast<std::int64_t>(record), number};
  }

  penstock::RecordFile records_;
  std::vector<File> files_;
};

}  // namespace

std::unique_ptr<Inputs> list_files(const std::vector<fs::path>& paths) {
  std::vector<Input> files;
  for (const fs::path& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status) && status.type() != fs::file_type::none)
      throw std::invalid_argument("there is no file or directory " + path.string());
    if (!fs::exists(status))
      throw std::invalid_argument("cannot look into " + path.string() + ": " + error.message());
    if (fs::is_directory(status))
      add_directory(path, files);
    else
      files.push_back({path.string()});
  }
  if (files.empty() && !penstock::programs::interrupted())
    throw std::invalid_argument("there is no JPEG or PNG file in " + paths.front().string() +
                                (paths.size() == 1 ? "" : ", nor in the others"));
  return std::make_unique<FileList>(std::move(files));
}

std::unique_ptr<Inputs> list_records(const std::vector<fs::path>& files) {
  return std::make_unique<RecordList>(files);
}

}  // namespace resnet::classify
