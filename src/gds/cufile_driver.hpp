// SPDX-License-Identifier: Apache-2.0
#pragma once

// CufileDriver: cuFile, which is open as long as something of this process uses it.

#include <penstock/version.hpp>
#include <string>

#include "cufile_library.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {

class CufileDriver {
 public:
  /// Loads and opens cuFile if no object of this process has. Throws GdsError.
  explicit CufileDriver(const std::string& library);
  CufileDriver(const CufileDriver& other);
  CufileDriver& operator=(const CufileDriver&) = delete;
  /// The last one closes cuFile, unless the program itself had opened it before.
  ~CufileDriver();

  const CufileLibrary& calls() const noexcept;
  const cufile::Properties& properties() const noexcept;
  /// Whether this is the process that opened it. A child of fork() may not call it.
  bool is_own() const noexcept;

 private:
  struct Opened;
  Opened* opened_;
};

}  // namespace penstock::gds
