// SPDX-License-Identifier: Apache-2.0
#include "small_call.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "curl.hpp"
#include "url.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20;

struct EndList {
  void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, EndList>;

std::size_t take_bytes(char* bytes, std::size_t size, std::size_t count, void* body) noexcept {
  std::string& all = *static_cast<std::string*>(body);
  if (size * count > kMostBytes - all.size()) return 0;
  try {
    all.append(bytes, size * count);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  return size * count;
}

template <class Value>
void set(CURL* easy, CURLoption option, Value value) {
  if (const CURLcode code = ::curl_easy_setopt(easy, option, value); code != CURLE_OK)
    throw std::runtime_error(::curl_easy_strerror(code));
}

HttpAnswer make(const HttpCall& call, const std::string& ca_file) {
  HttpAnswer answer;
  std::array<char, CURL_ERROR_SIZE> error{};
  const Easy easy(::curl_easy_init());
  HeaderList headers;
  for (const std::string& header : call.headers) {
    curl_slist* const longer = ::curl_slist_append(headers.get(), header.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
  if (!easy) throw std::bad_alloc();
  CURL* const handle = easy.get();
  set(handle, CURLOPT_ERRORBUFFER, error.data());
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(handle, CURLOPT_USERAGENT, "penstock");
  set(handle, CURLOPT_URL, call.url.c_str());
  set(handle, CURLOPT_PATH_AS_IS, 1L);
  set(handle, CURLOPT_CUSTOMREQUEST, call.method.c_str());
  set(handle, CURLOPT_HTTPHEADER, headers.get());
  set(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(call.timeout.count()));
  set(handle, CURLOPT_WRITEFUNCTION, &take_bytes);
  set(handle, CURLOPT_WRITEDATA, &answer.body);
  if (!ca_file.empty()) set(handle, CURLOPT_CAINFO, ca_file.c_str());
  if (!call.body.empty()) {
    set(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(call.body.size()));
    set(handle, CURLOPT_POSTFIELDS, call.body.c_str());
  }
  const CURLcode code = ::curl_easy_perform(handle);
  if (!answer.body.empty() && code == CURLE_WRITE_ERROR)
    throw std::runtime_error(printable_url(call.url) + ": the answer has more than 16 MiB");
  if (code != CURLE_OK)
    throw std::runtime_error(printable_url(call.url) + ": " +
                             (error[0] != '\0' ? error.data() : ::curl_easy_strerror(code)));
  long status = 0;
  ::curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  return answer;
}

}  // namespace

HttpFunction small_calls(std::string ca_file) {
  return [ca_file = std::move(ca_file)](const HttpCall& call) { return make(call, ca_file); };
}

}  // namespace penstock::remote
