// SPDX-License-Identifier: Apache-2.0

// The file that plans are kept in: what it holds comes back; what does not fit is told and not
// used.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "../../../../examples/resnet/ops/cudnn/plan_file.hpp"
#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

using penstock::test::TemporaryDirectory;
using resnet::cudnn::PlanFile;

namespace {

const PlanFile::Bytes one{1, 0, 255, 10}, two(100'000, 7);

void write_two(const std::filesystem::path& path) {
  PlanFile file(path, "cuDNN 9.1, a GPU");
  file.put("first key", one);
  file.put("second\nkey", two);
  file.save();
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("plans come back from their file", "[resnet][cudnn]") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "plans";
  write_two(path);
  PlanFile file(path, "cuDNN 9.1, a GPU");
  CHECK(file.note().empty());
  REQUIRE(file.find("first key") != nullptr);
  REQUIRE(file.find("second\nkey") != nullptr);
  CHECK(*file.find("first key") == one);
  CHECK(*file.find("second\nkey") == two);
  CHECK(file.find("third") == nullptr);

  file.put("first key", two);
  file.put("a key without a plan", {});
  file.save();
  const PlanFile again(path, "cuDNN 9.1, a GPU");
  REQUIRE(again.find("a key without a plan") != nullptr);
  CHECK(again.find("a key without a plan")->empty());
  CHECK(*PlanFile(path, "cuDNN 9.1, a GPU").find("first key") == two);
  // Nothing is left beside it.
  CHECK(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}) == 1);
}

TEST_CASE("a file of plans for something else is ignored, and why is told", "[resnet][cudnn]") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "plans";
  write_two(path);
  const PlanFile file(path, "cuDNN 9.2, a GPU");
  CHECK(file.find("first key") == nullptr);
  CHECK(file.note().find("cuDNN 9.1") != std::string::npos);
  CHECK(file.note().find("cuDNN 9.2") != std::string::npos);
}

TEST_CASE("a damaged file of plans is ignored wherever it ends", "[resnet][cudnn]") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "plans";
  write_two(path);
  const std::string whole = contents(path);
  // The header's line and the first plan: up to there, the file is a whole one of fewer plans.
  const std::size_t header = whole.find('\n') + 1, first = header + 8 + 9 + 8 + one.size();
  for (const std::size_t length : {std::size_t{0}, std::size_t{5}, header - 2, header + 3,
                                   header + 8, first - 1, first + 1, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, length);
    const PlanFile file(path, "cuDNN 9.1, a GPU");
    CHECK(!file.note().empty());
    CHECK(file.find("first key") == nullptr);
  }
}

TEST_CASE("lengths that lie, and keys that come twice, are damage", "[resnet][cudnn]") {
  const auto string = [](std::uint64_t length, const std::string& text) {
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
  };
  const std::string plan = string(1, "k") + string(2, "pp");
  CHECK(PlanFile::parse("")->empty());
  CHECK(PlanFile::parse(plan)->at("k") == PlanFile::Bytes{'p', 'p'});
  CHECK_FALSE(PlanFile::parse(plan + plan));
  CHECK_FALSE(PlanFile::parse(string(1, "k")));
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 30, UINT64_MAX}) {
    CHECK_FALSE(PlanFile::parse(string(1, "k") + string(length, "pp")));
    CHECK_FALSE(PlanFile::parse(string(length, "k")));
  }
}

TEST_CASE("what is at a plan file's name is told when it is none", "[resnet][cudnn]") {
  const TemporaryDirectory directory;
  const PlanFile folder(directory / "", "cuDNN 9.1, a GPU");
  CHECK(folder.note().find("no regular file") != std::string::npos);
  std::ofstream(directory / "holes") << "penstock plans 1: ";
  std::filesystem::resize_file(directory / "holes", std::uintmax_t{1} << 40);
  const PlanFile holes(directory / "holes", "cuDNN 9.1, a GPU");
  CHECK(holes.note().find("too large") != std::string::npos);
}

TEST_CASE("without a file, plans are not kept", "[resnet][cudnn]") {
  PlanFile file("", "cuDNN 9.1, a GPU");
  file.put("first key", one);
  file.save();
  CHECK(file.note().empty());
  CHECK(file.find("first key") == nullptr);
  const TemporaryDirectory directory;
  PlanFile missing(directory / "plans", "cuDNN 9.1, a GPU");
  CHECK(missing.note().empty());
  PlanFile unwritable(directory / "no folder" / "plans", "cuDNN 9.1, a GPU");
  unwritable.put("first key", one);
  CHECK_THROWS_AS(unwritable.save(), std::runtime_error);
}
