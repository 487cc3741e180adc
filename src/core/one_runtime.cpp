// SPDX-License-Identifier: Apache-2.0
//
// penstock::penstock and penstock::emulated define the same functions, so a program may link only
// one of them. Each library has this file, and each dependent refers to PENSTOCK_RUNTIME. In a
// program that links both, the function below is defined twice, and the linker's message names both
// libraries. CMake reports most such cases earlier, but not a library that a static library links
// PRIVATE.

extern "C" {

[[gnu::visibility("hidden")]] void PENSTOCK_RUNTIME();
[[gnu::visibility("hidden")]] void link_penstock_penstock_or_penstock_emulated_not_both();

void PENSTOCK_RUNTIME() {}
void link_penstock_penstock_or_penstock_emulated_not_both() {}

}  // extern "C"
