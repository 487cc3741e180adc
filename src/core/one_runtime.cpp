// SPDX-License-Identifier: Apache-2.0
//
// penstock::penstock and penstock::emulated have the same functions, and a program links one of
// them. Each library has this file, and whoever links it asks for PENSTOCK_RUNTIME. So a program
// that links both has the function below twice: its linker says so, and names both libraries. CMake
// says so before, but for a library that a static one links PRIVATE.

extern "C" {

[[gnu::visibility("hidden")]] void PENSTOCK_RUNTIME();
[[gnu::visibility("hidden")]] void link_penstock_penstock_or_penstock_emulated_not_both();

void PENSTOCK_RUNTIME() {}
void link_penstock_penstock_or_penstock_emulated_not_both() {}

}  // extern "C"
