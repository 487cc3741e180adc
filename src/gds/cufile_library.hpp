// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of libcufile that this library calls, loaded at run time; and the texts of errors.

#include <penstock/version.hpp>
#include <string>
#include <type_traits>

#include "cufile.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {

struct CufileLibrary {
  /// Loads `file`, which stays loaded. Throws GdsError.
  explicit CufileLibrary(const std::string& file);

#define PENSTOCK_CUFILE_MEMBER(name, ...) std::type_identity_t<__VA_ARGS__>* name = nullptr;
  PENSTOCK_CUFILE_FUNCTIONS(PENSTOCK_CUFILE_MEMBER)
#undef PENSTOCK_CUFILE_MEMBER
  /// nullptr before cuFile 1.14.
  cufile::Status (*cuFileGetParameterBool)(int parameter, bool* value) = nullptr;
};

/// What a status says, and what to do about it.
std::string cufile_error(cufile::Status status);
/// The same of a negative result of cuFileRead(), or of an entry of a batch; -1: errno says it.
std::string cufile_read_error(long result, int error_number);

}  // namespace penstock::gds
