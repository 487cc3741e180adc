// SPDX-License-Identifier: Apache-2.0

// What servers_test.py runs against servers: signed calls, made by the program curl.
//
//   penstock_object_tool get URL               writes the object to the standard output
//   penstock_object_tool list URL              a line for each object: its bytes, ETag and key
//   penstock_object_tool save-list URL FILE    a list for FileFolder::from_list
//
// The environment has the credentials; OBJECT_TOOL_ENDPOINT; OBJECT_TOOL_ANONYMOUS=1;
// OBJECT_TOOL_BEARER, a token to send in place of a signature; OBJECT_TOOL_SHIFT, seconds that the
// clock is wrong; OBJECT_TOOL_TAMPER=1, to ask for another object than the one that is signed.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "credentials.hpp"
#include "listing.hpp"
#include "location.hpp"
#include "service_error.hpp"
#include "signer.hpp"

namespace {

using namespace penstock::remote;

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"\n";
}

/// curl's exit status and what it has written.
std::pair<int, std::string> run_curl(const std::string& config) {
  std::array<int, 2> in{}, out{};
  if (::pipe(in.data()) != 0 || ::pipe(out.data()) != 0) throw std::runtime_error("no pipe");
  const ::pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    for (const int descriptor : {in[0], in[1], out[0], out[1]}) ::close(descriptor);
    ::execlp("curl", "curl", "-q", "-K", "-", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  // It is shorter than a pipe's buffer.
  const bool written =
      ::write(in[1], config.data(), config.size()) == static_cast<::ssize_t>(config.size());
  ::close(in[1]);
  std::string answer;
  std::array<char, 65536> part;
  for (::ssize_t count = 0; (count = ::read(out[0], part.data(), part.size())) > 0;)
    answer.append(part.data(), static_cast<std::size_t>(count));
  ::close(out[0]);
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !written) throw std::runtime_error("no curl");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, answer};
}

HttpAnswer call_by_curl(const HttpCall& call) {
  std::string config = "silent\nshow-error\npath-as-is\ngloboff\nwrite-out = \"%{http_code}\"\n";
  config += "request = " + in_quotes(call.method) + "url = " + in_quotes(call.url);
  for (const std::string& header : call.headers) config += "header = " + in_quotes(header);
  if (!call.body.empty()) config += "data-binary = " + in_quotes(call.body);
  const auto [status, text] = run_curl(config);
  if (status != 0 || text.size() < 3)
    throw std::runtime_error("curl ended with " + std::to_string(status));
  return {std::stoi(text.substr(text.size() - 3)), text.substr(0, text.size() - 3)};
}

class Tool {
 public:
  explicit Tool(const char* url)
      : location_(Location::parse(url, {.endpoint = variable("OBJECT_TOOL_ENDPOINT")})),
        chain_(credential_providers(options(), &process_environment, &call_by_curl)),
        signer_(location_.region()) {}

  const Location& location() const { return location_; }

  HttpAnswer get(HttpCall& call) {
    if (const std::string token = variable("OBJECT_TOOL_BEARER"); !token.empty())
      set_bearer_token(call, Secret(token));
    else
      sign(call);
    if (!variable("OBJECT_TOOL_TAMPER").empty()) call.url += "x";
    return call_by_curl(call);
  }

 private:
  static std::string variable(const char* name) { return process_environment(name).value_or(""); }
  static CredentialOptions options() {
    CredentialOptions options;
    options.anonymous = !variable("OBJECT_TOOL_ANONYMOUS").empty();
    return options;
  }
  void sign(HttpCall& call) {
    const std::string shift = variable("OBJECT_TOOL_SHIFT");
    signer_.sign(call, *chain_.get(),
                 std::chrono::system_clock::now() +
                     std::chrono::seconds(shift.empty() ? 0 : std::stoi(shift)));
  }

  Location location_;
  CredentialChain chain_;
  Signer signer_;
};

void run(std::string_view command, const char* url, const char* file) {
  Tool tool(url);
  const auto get = [&](HttpCall& call) { return tool.get(call); };
  if (command == "get") {
    HttpCall call;
    call.url = tool.location().url();
    const HttpAnswer answer = tool.get(call);
    if (answer.status != 200) throw ServiceError(tool.location().printable(), answer);
    std::fwrite(answer.body.data(), 1, answer.body.size(), stdout);
  } else if (command == "list") {
    list_objects(tool.location(), get, [](const ListingPage& page) {
      for (const ListedObject& object : page.objects)
        std::printf("%llu\t%s\t%s\n", static_cast<unsigned long long>(object.bytes),
                    object.etag.c_str(), object.key.c_str());
      std::printf("page\n");
    });
  } else if (command == "save-list" && file != nullptr) {
    ObjectList list(tool.location().key());
    list_objects(tool.location(), get, [&](const ListingPage& page) { list.add(page); });
    list.save(file);
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
