// SPDX-License-Identifier: Apache-2.0

// PlanFile::parse: damaged, or plans that are no more than the bytes they are made of.

#include <string_view>

#include "fuzz.hpp"
#include "resnet/ops/cudnn/plan_file.hpp"

using penstock::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto plans = resnet::cudnn::PlanFile::parse({reinterpret_cast<const char*>(data), size});
  if (!plans) return 0;
  std::size_t bytes = 0;
  for (const auto& [key, plan] : *plans) bytes += 16 + key.size() + plan.size();
  require(bytes == size, "plans are all there is");
  return 0;
}
