// SPDX-License-Identifier: Apache-2.0

// What servers_test.py runs against servers: remote::Client, as a program of a user calls it.
//
//   penstock_client_tool read URL            writes the file to the standard output
//   penstock_client_tool verify URL          opens the file; writes how many objects had the checksum that the server says
//   penstock_client_tool folder URL LIST     lists the objects to LIST, then reads them: a line for each, with its label,
//                                            name and bytes
//
// The environment has the credentials; OBJECT_TOOL_ENDPOINT; OBJECT_TOOL_ANONYMOUS=1;
// OBJECT_TOOL_HEAD, the bytes of the first request, 5 without it, so that small objects need a
// second one; OBJECT_TOOL_CA, a file; OBJECT_TOOL_KEY and OBJECT_TOOL_SECRET, in place of the
// environment's; OBJECT_TOOL_CACHE, the directory of a cache. With it, `folder` ends with a line
// "received", a tab and the bytes of objects that the server has sent.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <penstock/file_folder.hpp>
#include <penstock/remote.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using penstock::File;
using penstock::FileFolder;
using penstock::remote::Client;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Client client() {
  const std::string head = variable("OBJECT_TOOL_HEAD");
  return Client({.head_bytes = head.empty() ? 5 : std::stoul(head),
                 .attempts = 2,
                 .ca_file = variable("OBJECT_TOOL_CA"),
                 .stores = {.endpoint = variable("OBJECT_TOOL_ENDPOINT"),
                            .anonymous = !variable("OBJECT_TOOL_ANONYMOUS").empty(),
                            .key_id = variable("OBJECT_TOOL_KEY"),
                            .secret_key = variable("OBJECT_TOOL_SECRET")},
                 .cache = {.directory = variable("OBJECT_TOOL_CACHE"),
                           .bytes = 1 << 20,
                           .slot_bytes = 4096,
                           .wait = true}});
}

void write(std::span<const std::byte> bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

void run(std::string_view command, const char* url, const char* list) {
  const Client remote = client();
  if (command == "read") {
    const File file = remote.file(url);
    std::vector<std::byte> bytes(file.size() + 1);
    bytes.resize(file.read(0, bytes));
    if (bytes.size() != file.size()) throw std::runtime_error("the file has other bytes");
    write(bytes);
  } else if (command == "verify") {
    remote.file(url);
    std::printf("%ju\n", static_cast<std::uintmax_t>(remote.stats().verified));
  } else if (command == "folder" && list != nullptr) {
    const auto count = remote.save_list(url, list);
    const FileFolder files = FileFolder::from_list(remote.folder(url), list);
    if (files.size() != count) throw std::runtime_error("the list has other files");
    std::vector<std::byte> scratch;
    for (std::uint64_t i = 0; i < files.size(); ++i) {
      std::printf("%d\t%s\t", files.label(i), files.name(i).c_str());
      write(files.read(i, scratch));
      std::printf("\n");
    }
    if (!variable("OBJECT_TOOL_CACHE").empty())
      std::printf("received\t%ju\n", static_cast<std::uintmax_t>(remote.stats().bytes));
  } else {
    throw std::invalid_argument("no such command");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    run(argv[1], argv[2], argc > 3 ? argv[3] : nullptr);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
