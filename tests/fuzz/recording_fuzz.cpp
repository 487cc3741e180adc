// SPDX-License-Identifier: Apache-2.0

// A recording that penstock-trace reads: refused with a message, or reported on in files that are
// in proportion to it, and that JSON's readers and terminals take. The hash at its end is made to
// fit: no mutation would find it.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/recording.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/trace/views.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "directory.hpp"
#include "fuzz.hpp"
#include "recording_hash.hpp"

namespace {

using namespace penstock::trace;
using penstock::test::Directory;
using penstock::test::require;

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_lines(const std::string& text, std::size_t most) {
  require(nlohmann::json::accept(nlohmann::json(text).dump()), "text is valid UTF-8");
  std::istringstream lines(text);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    require(std::none_of(line.begin(), line.end(),
                         [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; }),
            "a line has no control characters");
  require(count <= most, "a report is short");
}

template <class Content>
std::string json_of(const Content& content) {
  std::ostringstream text;
  write_json(content, text);
  require(nlohmann::json::accept(text.str()), "JSON is JSON");
  return text.str();
}

/// Of the page, where its data are.
void check_page(const std::string& page) {
  const std::string_view open = "<script type=\"application/json\" id=\"summary\">";
  const std::size_t begin = page.find(open) + open.size();
  const std::string data = page.substr(begin, page.find("</script>", begin) - begin);
  require(nlohmann::json::accept(data), "the page's data are JSON");
}

void look_at(const Timeline& timeline, std::size_t size, const Directory& directory) {
  const Report report(timeline);
  const std::vector<Finding> findings = find(timeline);
  std::ostringstream text;
  text << report;
  check_lines(text.str(), 100);
  for (const Finding& finding : findings) {
    std::ostringstream lines;
    lines << finding;
    check_lines(lines.str(), 3);
  }
  const std::size_t most = 100'000 + 2'000 * size;
  require(json_of(report).size() + json_of(findings).size() < most, "JSON is in proportion");
  write_chrome_trace(timeline, directory / "trace.json");
  const std::string chrome = content(directory / "trace.json");
  require(chrome.size() < 10 * most, "the Chrome trace is in proportion");
  require(nlohmann::json::accept(chrome), "the Chrome trace is JSON");
  write_page(timeline, report, findings, directory / "trace.html");
  const std::string page = content(directory / "trace.html");
  require(page.size() < 500'000 + most, "the page is in proportion");
  check_page(page);
}

void look_at(std::string_view recording) {
  static const Directory directory;
  std::ofstream(directory / "run.recording", std::ios::binary) << recording;
  Timeline timeline;
  try {
    timeline = load(directory / "run.recording");
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).size() < 1000, "a message is short");
    return;
  }
  look_at(timeline, recording.size(), directory);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string recording(reinterpret_cast<const char*>(data), size);
  if (size >= sizeof(std::uint64_t)) {
    penstock::trace::detail::RecordingHash hash;
    hash.add(recording.data(), size - sizeof(std::uint64_t));
    const std::uint64_t value = hash.value();
    std::memcpy(recording.data() + size - sizeof value, &value, sizeof value);
  }
  look_at(recording);
  return 0;
}
