// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/storage/class_walk.hpp>
#include <penstock/detail/storage/file_list.hpp>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/line_reader.hpp>
#include <penstock/detail/storage/read_engine.hpp>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/whole_file.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/file_folder.hpp>
#include <penstock/read_queue.hpp>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

inline constexpr std::string_view kClassLine = "#class\t";

/// What a file is that begins with this line, and is no list. An absolute path is one of a list.
inline std::optional<KnownBytes> known_bytes_of_list(std::string_view line) {
  if (line.starts_with('/')) return std::nullopt;
  const std::optional<KnownBytes> known = known_bytes(std::as_bytes(std::span(line)));
  return known && known->what != kTarBytes ? known : std::nullopt;  // A tar begins with a name.
}

/// Whether the list has to have `./` before this path, as its line would mean something else.
inline bool needs_dot(std::string_view path) {
  return path.starts_with('#') || path.starts_with(kByteOrderMark) ||
         known_bytes_of_list(path).has_value();
}

/// What messages say about the paths of a reader.
inline constexpr const char* kWithin = " within the folder, without \"..\", and no URL";

/// `path`, or `path` and `<TAB>label`. False: it is neither.
inline bool add_list_line(std::string_view line, FileList& files) {
  const std::size_t tab = line.rfind('\t');
  if (tab == std::string_view::npos) return files.add(line, -1);
  const auto label = read_number<std::int32_t>(line.substr(tab + 1));
  return label && files.add(line.substr(0, tab), *label);
}

/// `files` is empty so far.
inline FileList read_list(const std::filesystem::path& list, FileList files) try {
  LineReader lines(list);
  while (const auto line = lines.next()) {
    if (lines.number() == 1)
      if (const std::optional<KnownBytes> known = known_bytes_of_list(*line))
        throw StoreError("FileFolder", list, "it is no list: it is " + known->text());
    if (line->starts_with(kClassLine)) files.classes.emplace_back(line->substr(kClassLine.size()));
    if (line->empty() || line->front() == '#') continue;
    if (!add_list_line(*line, files))
      throw StoreError("FileFolder", list,
                       "line " + std::to_string(lines.number()) + ", \"" +
                           std::string(line->substr(0, 200)) + "\", must be the path of a file" +
                           (files.reader ? kWithin : "") + ", or that, a tab and a number");
  }
  if (files.size() == 0) throw StoreError("FileFolder", list, "the list names no file");
  return files;
} catch (const std::system_error& error) {
  throw StoreError("FileFolder", list, error.what());
}

template <class Name>
FileList named_files(FileList list, const std::vector<Name>& files,
                     const std::vector<std::int32_t>& labels) {
  if (files.empty()) throw std::invalid_argument("FileFolder: the list of files is empty");
  if (!labels.empty() && labels.size() != files.size())
    throw std::invalid_argument("FileFolder: " + std::to_string(labels.size()) + " labels for " +
                                std::to_string(files.size()) + " files");
  std::string path;
  for (std::size_t i = 0; i < files.size(); ++i) {
    path = files[i];
    if (!list.add(path, labels.empty() ? -1 : labels[i]))
      throw std::invalid_argument("FileFolder: \"" + escaped(path) + "\" is no path of a file" +
                                  (list.reader ? kWithin : ""));
  }
  return list;
}

/// What the list has, for the reader. Throws std::system_error for one that is too long.
inline PathText name_in_folder(const FileList& files, std::uint64_t index) {
  PathText name;
  name.append(files.directory_of(index));
  name.append(files.names[index]);
  return name;
}

/// Asks the reader for files ahead, some at a time. Does not allocate.
inline void ask_reader(const FileList& files, std::span<const std::uint64_t> indices,
                       std::chrono::steady_clock::time_point due) noexcept {
  std::array<char, 16 * 1024> text;
  std::array<std::string_view, 256> names;
  std::size_t used = 0, count = 0;
  const auto pass = [&] {
    if (count > 0) files.reader->will_need(std::span(names).first(count), due);
    used = count = 0;
  };
  for (const std::uint64_t index : indices) {
    if (index >= files.size()) continue;
    const std::string_view directory = files.directory_of(index), name = files.names[index];
    const std::size_t length = directory.size() + name.size();
    if (length > text.size()) continue;  // Whoever reads it is told.
    if (count == names.size() || length > text.size() - used) pass();
    char* const begin = text.data() + used;
    name.copy(begin + directory.copy(begin, directory.size()), name.size());
    names[count++] = {begin, length};
    used += length;
  }
  pass();
}

/// Throws std::system_error for a path that is too long.
inline void append_path(const FileList& files, std::uint64_t index, PathText& path) {
  if (!files.is_absolute(index)) path.append(files.folder);
  path.append(files.directory_of(index));
  path.append(files.names[index]);
}

inline ReadOnlyFile open_file(const FileList& files, std::uint64_t index) {
  PathText path;
  append_path(files, index, path);
  return ReadOnlyFile(path.c_str());
}

inline std::span<const std::byte> read_whole(const FileList& files, std::uint64_t index,
                                             std::vector<std::byte>& scratch) {
  if (files.reader) return files.reader->read(name_in_folder(files, index).text(), scratch);
  const ReadOnlyFile file = open_file(files, index);
  const std::uint64_t bytes = file.size();
  const std::span<std::byte> target = room_in(scratch, bytes);
  const std::size_t count = file.read(0, target);
  if (count < bytes) throw std::runtime_error(shorter_by_now(count, bytes));
  return target;
}

}  // namespace detail

PENSTOCK_INLINE FileFolder::FileFolder(detail::FileList files, const FileFolderOptions& options) {
  files.shrink_to_fit();
  files.allow_empty = options.allow_empty;
  files_ = std::make_shared<const detail::FileList>(std::move(files));
}

PENSTOCK_INLINE FileFolder::FileFolder(const std::filesystem::path& folder,
                                       const std::vector<std::string>& extensions,
                                       FileFolderOptions options)
    : FileFolder(detail::ClassWalk(folder, extensions).list(), options) {}

PENSTOCK_INLINE FileFolder FileFolder::from_list(const std::filesystem::path& list,
                                                 std::filesystem::path folder,
                                                 FileFolderOptions options) {
  if (folder.empty()) folder = absolute(list).parent_path();
  return FileFolder(detail::read_list(list, detail::FileList(folder)), options);
}

PENSTOCK_INLINE FileFolder FileFolder::from_list(std::shared_ptr<const FolderReader> reader,
                                                 const std::filesystem::path& list,
                                                 FileFolderOptions options) {
  return FileFolder(detail::read_list(list, detail::FileList(std::move(reader))), options);
}

PENSTOCK_INLINE FileFolder FileFolder::from_files(const std::vector<std::filesystem::path>& files,
                                                  const std::vector<std::int32_t>& labels,
                                                  FileFolderOptions options) {
  detail::FileList list(std::filesystem::current_path());
  return FileFolder(detail::named_files(std::move(list), files, labels), options);
}

PENSTOCK_INLINE FileFolder FileFolder::from_files(std::shared_ptr<const FolderReader> reader,
                                                  const std::vector<std::string>& files,
                                                  const std::vector<std::int32_t>& labels,
                                                  FileFolderOptions options) {
  detail::FileList list(std::move(reader));
  return FileFolder(detail::named_files(std::move(list), files, labels), options);
}

PENSTOCK_INLINE void FileFolder::save_list(const std::filesystem::path& list) const try {
  const detail::FileList& files = *files_;
  const auto require_line = [](const std::filesystem::path& path, std::string_view text) {
    if (text.find_first_of("\r\n") != std::string_view::npos)
      throw StoreError("FileFolder", path, "a name with a line break does not fit into a list");
  };
  detail::WholeFile out(list);
  for (const std::string& name : files.classes) {
    require_line(name, name);
    out.write(detail::kClassLine);
    out.write(name);
    out.write("\n");
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string_view directory = files.directory_of(i), name = files.names[i];
    require_line(files.path(i), directory);
    require_line(files.path(i), name);
    if (detail::needs_dot(directory.empty() ? name : directory)) out.write("./");
    out.write(directory);
    out.write(name);
    out.write("\t" + std::to_string(files.label[i]) + "\n");
  }
  out.commit();
} catch (const std::system_error& error) {
  throw StoreError("FileFolder", list, error.what());
}

PENSTOCK_INLINE const detail::FileList& FileFolder::files_with(std::uint64_t index) const {
  detail::require_index(index, size(), "FileFolder: there is no sample ");
  return *files_;
}

PENSTOCK_INLINE std::uint64_t FileFolder::size() const noexcept {
  return files_->size();
}

PENSTOCK_INLINE std::uint64_t FileFolder::ignored() const noexcept {
  return files_->ignored;
}

PENSTOCK_INLINE std::int32_t FileFolder::label(std::uint64_t index) const {
  return files_with(index).label[index];
}

PENSTOCK_INLINE const std::vector<std::string>& FileFolder::classes() const noexcept {
  return files_->classes;
}

PENSTOCK_INLINE std::string FileFolder::name(std::uint64_t index) const {
  const detail::FileList& files = files_with(index);
  std::string name = files.is_absolute(index) ? std::string() : files.name;
  return name.append(files.directory_of(index)).append(files.names[index]);
}

PENSTOCK_INLINE std::span<const std::byte> FileFolder::read(std::uint64_t index,
                                                            std::vector<std::byte>& scratch) const {
  const detail::FileList& files = files_with(index);
  try {
    const std::span<const std::byte> bytes = detail::read_whole(files, index, scratch);
    if (!bytes.empty() || files.allow_empty) return bytes;
    throw std::runtime_error(
        "the file is empty. If samples may be empty, set FileFolderOptions::allow_empty");
  } catch (const std::runtime_error& error) {
    throw StoreError("FileFolder", files.path(index),
                     "sample " + std::to_string(index) + " is lost: " + error.what(), index);
  }
}

PENSTOCK_INLINE void FileFolder::read_many(std::span<const std::uint64_t> indices, ReadQueue& queue,
                                           EachSample each) const {
  for (const std::uint64_t index : indices) files_with(index);
  detail::ReadEngine& engine = queue.engine();
  if (files_->reader && indices.size() > 1) will_need(indices, std::chrono::steady_clock::now());
  engine.read_files(
      indices.size(), files_->reader == nullptr,
      [&](std::size_t k, detail::PathText& path) {
        detail::append_path(*files_, indices[k], path);
      },
      [&](const detail::WantedBytes& one, std::span<const std::byte> bytes) {
        each(one.key, bytes);
      },
      [&](const detail::WantedBytes& one) {
        each(one.key, read(indices[one.key], engine.scratch()));
      });
}

PENSTOCK_INLINE void FileFolder::will_need(
    std::span<const std::uint64_t> indices,
    std::chrono::steady_clock::time_point due) const noexcept {
  if (files_->reader) return detail::ask_reader(*files_, indices, due);
  if (due == std::chrono::steady_clock::time_point::max()) return;
  for (const std::uint64_t index : indices) try {
      if (index >= files_->size()) continue;
      const detail::ReadOnlyFile file = detail::open_file(*files_, index);
      file.will_need(0, file.size());
    } catch (const std::system_error&) {  // Whoever reads it is told.
    }
}

}  // namespace penstock
