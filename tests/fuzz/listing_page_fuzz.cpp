// SPDX-License-Identifier: Apache-2.0

// Any bytes as a page of a listing; written and read again, it is the same page.

#include <listing.hpp>
#include <service_error.hpp>
#include <string>
#include <string_view>
#include <url.hpp>
#include <xml.hpp>

#include "fuzz.hpp"

namespace {

using namespace penstock::remote;
using penstock::test::require;

std::string element(const char* name, const std::string& text) {
  return std::string("<") + name + ">" + text + "</" + name + ">";
}

std::string in_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&' || c == '<' || c == '>' || c == '\r')
      out += "&#" + std::to_string(static_cast<int>(c)) + ";";
    else
      out += c;
  }
  return out;
}

std::string written(const ListingPage& page) {
  std::string inside = element("EncodingType", "url");
  for (const ListedObject& object : page.objects)
    inside += element("Contents", element("Key", percent_encoded(object.key, true)) +
                                      element("Size", std::to_string(object.bytes)) +
                                      element("ETag", in_xml("\"" + object.etag + "\"")));
  for (const std::string& prefix : page.prefixes)
    inside += element("CommonPrefixes", element("Prefix", percent_encoded(prefix, false)));
  if (!page.next.empty())
    inside += element("IsTruncated", "true") + element("NextContinuationToken", in_xml(page.next));
  return element("ListBucketResult", inside);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  require(ServiceError("", {500, text}).code().size() <= 100, "a code is short");
  try {
    const ListingPage page = read_listing_page(text), again = read_listing_page(written(page));
    require(again.next == page.next && again.prefixes == page.prefixes, "the same page");
    require(again.objects.size() == page.objects.size(), "as many objects");
    ObjectList list("", ObjectList::Labels::none, {""});
    for (std::size_t i = 0; i < page.objects.size(); ++i) {
      const ListedObject &one = page.objects[i], &other = again.objects[i];
      require(!one.key.empty(), "an object has a key");
      require(one.key == other.key && one.bytes == other.bytes && one.etag == other.etag,
              "the same object");
      try {
        list.add(one.key);
      } catch (const ListingError&) {  // No list can name it.
      }
    }
  } catch (const XmlError&) {
  }
  return 0;
}
