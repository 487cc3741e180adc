// SPDX-License-Identifier: Apache-2.0

// Requests and Answers: which images a request asks for, and answers that are told out of order.

#include "../../../../../examples/resnet/infer/rungs/answers.hpp"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "../../../../support/temporary_directory.hpp"
#include "../../matchers.hpp"
#include "support/catch.hpp"

namespace resnet::rungs {
namespace {

using penstock::test::TemporaryDirectory;
using resnet::test::contains;

TEST_CASE("requests: images one after the other, whatever the sizes", "[resnet][infer]") {
  const Requests requests{{3, 1, 4}, 7, 10};
  std::vector<std::uint64_t> all, some;
  for (std::uint64_t request = 0; request < requests.batches(); ++request) {
    CHECK(requests.first_image(request) == all.size());
    requests.samples(0, request, some);
    CHECK(some.size() == static_cast<std::size_t>(requests.size(request)));
    all.insert(all.end(), some.begin(), some.end());
  }
  CHECK(requests.images() == 8 + 8 + 3);
  REQUIRE(all.size() == requests.images());
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == i % 10);
}

/// Of two classes: the second where `second`.
std::vector<float> logits(const std::vector<bool>& second) {
  std::vector<float> values;
  for (const bool one : second) values.insert(values.end(), {0, one ? 1.0f : -1.0f});
  return values;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("answers are written in the order of the requests, whoever is first", "[resnet][infer]") {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory / "answers";
  for (const bool with_first : {false, true}) {
    Answers answers({{2, 1}, 3, 100}, 2, file);
    answers.tell(2, 1, logits({true}));
    answers.tell(1, 0, logits({true}));
    answers.tell(2, 0, logits({false}));
    CHECK_FALSE(answers.complete());
    if (with_first) answers.tell(0, 0, logits({false, true}));
    CHECK(answers.complete() == with_first);
    answers.close();
    CHECK(text_of(file) == (with_first ? "0 0\n1 1\n2 1\n3 0\n4 1\n" : ""));
  }
  { const Answers not_closed({{2}, 1, 100}, 2, file); }
  CHECK(text_of(file).size() == 20);
}

TEST_CASE("answers: equal digests for equal logits alone", "[resnet][infer]") {
  const Requests requests{{2}, 2, 100};
  const auto digests = [&](bool swapped, float more) {
    Answers answers(requests, 2, "");
    std::vector<float> last = logits({false, true});
    last.back() += more;
    answers.tell(swapped ? 1 : 0, 0, logits({true, true}));
    answers.tell(swapped ? 0 : 1, 0, last);
    return std::vector<std::string>{answers.logits_digest(), answers.classes_digest()};
  };
  const auto first = digests(false, 0);
  CHECK(digests(false, 0) == first);
  CHECK(digests(true, 0)[0] != first[0]);
  CHECK(digests(true, 0)[1] != first[1]);
  const auto nearly = digests(false, std::numeric_limits<float>::epsilon());
  CHECK(nearly[0] != first[0]);
  CHECK(nearly[1] == first[1]);
}

TEST_CASE("answers: twice, of another request, or no numbers: told", "[resnet][infer]") {
  Answers answers({{3}, 2, 100}, 2, "");
  answers.tell(0, 0, logits({true, true}));
  CHECK_THROWS_WITH(answers.tell(0, 1, logits({true})), contains("image 1 is answered twice"));
  CHECK_THROWS_WITH(answers.tell(0, 1, logits({true, true})), contains("request 0"));
  CHECK_THROWS_WITH(answers.tell(0, 3, logits({true})), contains("images 3 to 3 of request 0"));
  std::vector<float> bad = logits({true, false});
  bad[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(answers.tell(1, 1, bad), contains("logits of image 5"));
  CHECK_THROWS_WITH(Answers({{1}, 1, 1}, 2, "no/such/folder"), contains("no/such/folder"));
}

}  // namespace
}  // namespace resnet::rungs
