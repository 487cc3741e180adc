# SPDX-License-Identifier: Apache-2.0
#
# Writes a C++ source with the texts of the page's files:
#   cmake -D OUTPUT=... -D PAGE=... -D STYLE=... "-D SCRIPTS=a.js;b.js" -P embed.cmake

# Reads a file as a raw string literal of C++. A compiler has to accept literals of 65536 bytes, and each file of the page is much
# shorter.
function(embed file variable)
  file(READ ${file} text)
  set(${variable} "R\"penstock(${text})penstock\"" PARENT_SCOPE)
endfunction()

embed(${PAGE} page)
embed(${STYLE} style)
set(scripts "")
foreach(file IN LISTS SCRIPTS)
  embed(${file} script)
  string(APPEND scripts "    ${script},\n")
endforeach()

file(WRITE ${OUTPUT} "// Made by embed.cmake.
#include \"sources.hpp\"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

const std::string_view kPage = ${page};
const std::string_view kStyle = ${style};

static constexpr std::string_view scripts[] = {
${scripts}};
const std::span<const std::string_view> kScripts = scripts;

}  // namespace penstock::trace::detail
")
