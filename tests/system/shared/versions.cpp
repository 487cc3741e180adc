// SPDX-License-Identifier: Apache-2.0

#include <penstock/sampler.hpp>
#include <typeinfo>

// Compiled into two shared libraries, each with another version of penstock (CMakeLists.txt), whose
// SamplerOptions have other fields in front of batch_size. All symbols are visible, so the loader
// gives both libraries one definition of each symbol that they share.

/// Returns the number of batches of `samples` samples, two in each.
extern "C" std::int64_t BATCHES(std::uint64_t samples) {
  penstock::SamplerOptions options;
  options.samples = samples;
  options.batch_size = 2;
  return static_cast<std::int64_t>(penstock::Sampler(options).batches());
}

/// Returns the name of the type for the linker.
extern "C" const char* NAME() {
  return typeid(penstock::Sampler).name();
}

extern "C" int VERSION() {
  return PENSTOCK_VERSION;
}
