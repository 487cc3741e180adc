// SPDX-License-Identifier: Apache-2.0
//
// penstock::images, penstock::remote, penstock::video and penstock::gds call functions of the
// runtime's library, which a program may name before them. The linker reads a static library once,
// and leaves out the objects that only a later library needs. So a program that links a component
// refers to the table below, and the linker takes the objects that the components need.

#include <penstock/error.hpp>
#include <penstock/file.hpp>
#include <penstock/markers.hpp>
#include <penstock/ranks.hpp>

using Function = void (*)();

extern "C" {

[[gnu::visibility("hidden")]] extern const Function penstock_for_components[];
/// One function of each source of src/core that a component calls.
const Function penstock_for_components[] = {
    reinterpret_cast<Function>(&penstock::detail::make_marker),
    reinterpret_cast<Function>(&penstock::detail::throw_cuda_error),
    reinterpret_cast<Function>(&penstock::Ranks::from_environment),
    reinterpret_cast<Function>(&penstock::File::open),
};

}  // extern "C"
