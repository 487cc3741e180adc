// SPDX-License-Identifier: Apache-2.0
#pragma once

// XML texts that servers send, read by libexpat.

#include <functional>
#include <penstock/version.hpp>
#include <stdexcept>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::remote {

/// `what()` begins with the place: "line 3, column 17: ...".
class XmlError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Calls `take(path, text)` at the end of each element, such as ("ListBucketResult/Contents/Key",
/// "a.jpg"): names without prefixes of namespaces, and the text that is directly in the element.
/// Both are valid during the call. What `take` throws as std::runtime_error becomes an XmlError
/// with the place. Throws XmlError for what is no XML, for a text with a document type (whose
/// entities could fill the memory), and for elements more than 16 deep.
void read_xml(std::string_view xml,
              const std::function<void(std::string_view path, std::string_view text)>& take);

}  // namespace penstock::remote
