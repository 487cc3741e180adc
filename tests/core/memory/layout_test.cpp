// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cuda/std/array>
#include <limits>
#include <optional>
#include <penstock/layout.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::allocations_of_this_thread;
using test::Mentions;
using test::thrown;

struct Images {
  Tensor<std::uint8_t, 4> pixels;
  Tensor<std::int32_t, 1> labels;
  int tag = -1;
};

Layout<Images> images(std::int64_t batch_size) {
  return Layout<Images>{batch_size}.field(&Images::pixels, {32, 32, 3}).field(&Images::labels, {});
}

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

template <class Batch>
Ranges ranges(const Layout<Batch>& layout, std::int64_t samples) {
  Ranges result;
  layout.for_each_range(
      samples, [&](std::size_t offset, std::size_t bytes) { result.emplace_back(offset, bytes); });
  return result;
}

// A shape has exactly the tensor's extents but one, as integers of any type or as an array.
template <class Batch>
inline constexpr bool takes_two_extents = requires(Layout<Batch>& layout) {
  layout.field(&Batch::pixels, {32, 32});
};
template <class Batch>
inline constexpr bool takes_three_extents = requires(Layout<Batch>& layout) {
  layout.field(&Batch::pixels, {32, 32u, std::size_t{3}});
};
template <class Batch>
inline constexpr bool takes_four_extents = requires(Layout<Batch>& layout) {
  layout.field(&Batch::pixels, {32, 32, 3, 1});
};
template <class Batch>
inline constexpr bool takes_fractions = requires(Layout<Batch>& layout) {
  layout.field(&Batch::pixels, {32, 32, 0.5});
};
template <class Batch>
inline constexpr bool takes_arrays = requires(Layout<Batch>& layout,
                                              std::array<std::int64_t, 3> a) {
  layout.field(&Batch::pixels, a);
};
static_assert(takes_three_extents<Images> && takes_arrays<Images>);
static_assert(!takes_two_extents<Images> && !takes_four_extents<Images>);
static_assert(!takes_fractions<Images>);

TEST_CASE("Layout puts the fields into one block, each aligned to 256 bytes", "[layout]") {
  struct Three {
    Tensor<std::int8_t, 1> a;
    Tensor<double, 2> b;
    Tensor<float, 1> c;
  };
  const auto layout =
      Layout<Three>{3}.field(&Three::a, {}).field(&Three::b, {40}).field(&Three::c, {});
  // a: 3 bytes at 0. b: 3 * 40 * 8 = 960 bytes at 256. c: 12 bytes at 1280, the first multiple of
  // 256 from 1216 on.
  CHECK(layout.bytes() == 1292);
  CHECK(layout.batch_size() == 3);

  std::vector<std::byte> block(layout.bytes());
  const Three batch = layout.bind(block.data(), 3);
  CHECK(reinterpret_cast<std::byte*>(batch.a.data_handle()) == block.data());
  CHECK(reinterpret_cast<std::byte*>(batch.b.data_handle()) == block.data() + 256);
  CHECK(reinterpret_cast<std::byte*>(batch.c.data_handle()) == block.data() + 1280);
}

TEST_CASE("Layout follows the order of field(), not of the members", "[layout]") {
  const auto layout =
      Layout<Images>{2}.field(&Images::labels, {}).field(&Images::pixels, {2, 2, 1});
  std::byte block[512];
  const Images batch = layout.bind(block, 2);
  CHECK(reinterpret_cast<std::byte*>(batch.labels.data_handle()) == block);
  CHECK(reinterpret_cast<std::byte*>(batch.pixels.data_handle()) == block + 256);
}

TEST_CASE("Layout::bind gives tensors of the asked shape, row-major, and touches no memory",
          "[layout]") {
  const auto layout = images(4);
  std::vector<std::byte> block(layout.bytes(), std::byte{0x5a});
  const Images batch = layout.bind(block.data(), 3);
  CHECK(block == std::vector<std::byte>(layout.bytes(), std::byte{0x5a}));

  CHECK(batch.pixels.extent(0) == 3);
  CHECK(batch.pixels.extent(1) == 32);
  CHECK(batch.pixels.extent(2) == 32);
  CHECK(batch.pixels.extent(3) == 3);
  CHECK(batch.labels.extent(0) == 3);
  CHECK(batch.tag == -1);

  batch.pixels(2, 31, 30, 1) = 7;
  CHECK(block[((2 * 32 + 31) * 32 + 30) * 3 + 1] == std::byte{7});
  // The number of samples moves nothing: what is copied from one block fits the other.
  CHECK(layout.bind(block.data(), 1).labels.data_handle() == batch.labels.data_handle());
}

TEST_CASE("Layout works on addresses alone: a device pointer can be bound on the host",
          "[layout]") {
  auto* device = reinterpret_cast<std::byte*>(std::uintptr_t{0x7000'0000'0000});
  const auto layout = images(256);
  const Images batch = layout.bind(device, 256);
  CHECK(reinterpret_cast<std::byte*>(batch.labels.data_handle()) == device + 256 * 3072);
  CHECK(layout.samples(batch, device) == 256);
}

TEST_CASE("Layout::rebind moves the fields and keeps everything else", "[layout]") {
  struct Mixed {
    int before = 1;
    Tensor<float, 1> values;
    double after = 2;
    Tensor<float, 1> elsewhere;  // no field: a plain value
  };
  const auto layout = Layout<Mixed>{8}.field(&Mixed::values, {});
  std::byte host[32], device[32];
  float other[3];
  Mixed batch = layout.bind(host, 8);
  batch.before = 10;
  batch.after = 20;
  batch.elsewhere = Tensor<float, 1>(other, 3);
  layout.resize(batch, 5);
  CHECK(layout.samples(batch, host) == 5);

  layout.rebind(batch, device, 5);
  CHECK(layout.samples(batch, device) == 5);
  CHECK(reinterpret_cast<std::byte*>(batch.values.data_handle()) == device);
  CHECK(batch.before == 10);
  CHECK(batch.after == 20);
  CHECK(batch.elsewhere.data_handle() == other);
  CHECK(batch.elsewhere.extent(0) == 3);
}

TEST_CASE("Layout::resize changes the number of samples and no pointer", "[layout]") {
  const auto layout = images(16);
  std::vector<std::byte> block(layout.bytes());
  Images batch = layout.bind(block.data(), 16);
  for (const std::int64_t samples : {0, 1, 15, 16}) {
    layout.resize(batch, samples);
    CHECK(layout.samples(batch, block.data()) == samples);
    CHECK(batch.pixels.extent(3) == 3);
  }
}

TEST_CASE("Layout::samples names what a source has done to its batch", "[layout]") {
  const auto layout = images(16);
  std::vector<std::byte> block(layout.bytes());
  Images batch = layout.bind(block.data(), 16);
  std::uint8_t* const pixels = batch.pixels.data_handle();
  std::int32_t* const labels = batch.labels.data_handle();
  const auto samples = [&] { static_cast<void>(layout.samples(batch, block.data())); };

  SECTION("replaced a pointer") {
    std::int32_t mine[16];
    batch.labels = Tensor<std::int32_t, 1>(mine, 16);
    CHECK_THAT(thrown<std::invalid_argument>(samples), Mentions("field labels points elsewhere"));
  }
  SECTION("moved a pointer within the block") {
    batch.labels = Tensor<std::int32_t, 1>(labels + 1, 15);
    CHECK_THAT(thrown<std::invalid_argument>(samples), Mentions("field labels points elsewhere"));
  }
  SECTION("changed the shape of a sample") {
    batch.pixels = Tensor<std::uint8_t, 4>(pixels, 16, 32, 31, 3);
    CHECK_THAT(thrown<std::invalid_argument>(samples),
               Mentions("field pixels has 31 as extent 2, the layout has 32"));
  }
  SECTION("resized one field only") {
    batch.labels = Tensor<std::int32_t, 1>(labels, 15);
    CHECK_THAT(thrown<std::invalid_argument>(samples),
               Mentions("field labels has 15 samples, field pixels has 16"));
  }
  SECTION("said more samples than the block holds") {
    batch.pixels = Tensor<std::uint8_t, 4>(pixels, 17, 32, 32, 3);
    batch.labels = Tensor<std::int32_t, 1>(labels, 17);
    CHECK_THAT(thrown<std::invalid_argument>(samples),
               Mentions("17 samples in a batch of at most 16"));
  }
  SECTION("said a negative number of samples") {
    batch.pixels = Tensor<std::uint8_t, 4>(pixels, -1, 32, 32, 3);
    CHECK_THAT(thrown<std::invalid_argument>(samples),
               Mentions("-1 samples in a batch of at most 16"));
  }
  SECTION("left it default-constructed") {
    batch = Images{};
    CHECK_THAT(thrown<std::invalid_argument>(samples), Mentions("field pixels points elsewhere"));
  }
  SECTION("kept another batch") {
    std::vector<std::byte> other(layout.bytes());
    batch = layout.bind(other.data(), 16);
    CHECK_THAT(thrown<std::invalid_argument>(samples), Mentions("field pixels points elsewhere"));
  }
  SECTION("nothing wrong") {
    CHECK(thrown<std::invalid_argument>(samples) == "(nothing was thrown)");
  }
}

TEST_CASE("Layout: a full batch is one range, a short one a range for each field", "[layout]") {
  const auto layout = images(100);
  const std::size_t labels = 307200;  // 100 * 3072 is a multiple of 256
  CHECK(ranges(layout, 100) == Ranges{{0, labels + 400}});
  CHECK(ranges(layout, 99) == Ranges{{0, 99 * 3072}, {labels, 99 * 4}});
  CHECK(ranges(layout, 1) == Ranges{{0, 3072}, {labels, 4}});
  CHECK(ranges(layout, 0).empty());
  CHECK_THAT(thrown<std::invalid_argument>([&] { ranges(layout, 101); }), Mentions("101 samples"));
  CHECK_THAT(thrown<std::invalid_argument>([&] { ranges(layout, -1); }), Mentions("-1 samples"));
}

TEST_CASE("Layout: what the ranges name is all that a batch of that size holds", "[layout]") {
  const auto layout = images(7);
  const std::int64_t samples = GENERATE(0, 1, 6, 7);
  std::vector<std::byte> from(layout.bytes()), to(layout.bytes());
  const Images source = layout.bind(from.data(), samples);
  for (std::int64_t i = 0; i < samples; ++i) {
    source.labels(i) = static_cast<std::int32_t>(i + 1);
    source.pixels(i, 31, 31, 2) = static_cast<std::uint8_t>(i + 10);
  }
  layout.for_each_range(samples, [&](std::size_t offset, std::size_t bytes) {
    REQUIRE(offset + bytes <= layout.bytes());
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(offset), bytes,
                to.begin() + static_cast<std::ptrdiff_t>(offset));
  });
  const Images target = layout.bind(to.data(), samples);
  for (std::int64_t i = 0; i < samples; ++i) {
    CHECK(target.labels(i) == i + 1);
    CHECK(target.pixels(i, 31, 31, 2) == i + 10);
  }
}

TEST_CASE("Layout: fields of no bytes are allowed and never copied", "[layout]") {
  struct Sparse {
    Tensor<float, 2> none;
    Tensor<float, 1> some;
  };
  const auto layout = Layout<Sparse>{4}.field(&Sparse::none, {0}).field(&Sparse::some, {});
  CHECK(layout.bytes() == 16);
  CHECK(ranges(layout, 3) == Ranges{{0, 12}});
  const auto none_last = Layout<Sparse>{4}.field(&Sparse::some, {}).field(&Sparse::none, {0});
  CHECK(none_last.bytes() == 256 + 1);  // Its place is in the block.
  CHECK(ranges(none_last, 4) == Ranges{{0, 16}});
  const auto only_none = Layout<Sparse>{4}.field(&Sparse::none, {0});
  CHECK(ranges(only_none, 4).empty());
}

TEST_CASE("Layout rejects what cannot be laid out, with the numbers", "[layout]") {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  CHECK_THAT(thrown<std::invalid_argument>([] { Layout<Images>{0}; }), Mentions("batch_size is 0"));
  CHECK_THAT(thrown<std::invalid_argument>([] { Layout<Images>{-3}; }),
             Mentions("batch_size is -3"));

  Layout<Images> layout{256};
  layout.field(&Images::labels, {});
  SECTION("a negative extent") {
    CHECK_THAT(thrown<std::invalid_argument>([&] {
                 layout.field(&Images::pixels, {32, -32, 3});
               }),
               Mentions("field pixels has a negative extent -32"));
  }
  SECTION("a field twice") {
    CHECK_THAT(thrown<std::invalid_argument>([&] { layout.field(&Images::labels, {}); }),
               Mentions("field labels is a member that was added before"));
  }
  SECTION("a sample beyond 63 bits") {
    CHECK_THAT(thrown<std::invalid_argument>([&] {
                 layout.field(&Images::pixels, {huge, 2, 1});
               }),
               Mentions("field pixels overflows: " + std::to_string(huge) + " bytes times 2"));
  }
  SECTION("a batch beyond 63 bits") {
    CHECK_THAT(thrown<std::invalid_argument>([&] {
                 layout.field(&Images::pixels, {huge / 255, 1, 1});
               }),
               Mentions("field pixels overflows") && Mentions("times 256"));
  }
  SECTION("a block beyond 63 bits: each field fits, both do not") {
    CHECK_THAT(thrown<std::invalid_argument>([&] {
                 layout.field(&Images::pixels, {huge / 256, 1, 1});
               }),
               Mentions("field pixels ends at byte"));
  }
  SECTION("a tensor of 0 bytes whose strides are beyond 63 bits") {
    CHECK_THAT(thrown<std::invalid_argument>([&] {
                 layout.field(&Images::pixels, {0, huge, 3});
               }),
               Mentions("field pixels overflows"));
    CHECK_THAT(thrown<std::invalid_argument>([&] {
                 layout.field(&Images::pixels, {huge, 3, 0});
               }),
               Mentions("field pixels overflows"));
  }
  SECTION("more samples than there can be numbers of") {
    CHECK_THAT(thrown<std::invalid_argument>([&] { Layout<Images>{huge}; }),
               Mentions("batch_size is " + std::to_string(huge)) && Mentions("at most 2^48"));
    CHECK_NOTHROW(Layout<Images>{std::int64_t{1} << 48});
  }
  SECTION("a number of samples outside the batch") {
    CHECK_THAT(thrown<std::invalid_argument>([&] { layout.bind(nullptr, 257); }),
               Mentions("257 samples in a batch of at most 256"));
    CHECK_THAT(thrown<std::invalid_argument>([&] { layout.bind(nullptr, -1); }),
               Mentions("-1 samples"));
  }
  // A rejected field leaves the layout as it was.
  CHECK(layout.bytes() == 1024);
}

TEST_CASE("Layout without a batch size describes fields, and is one with a batch size later",
          "[layout]") {
  struct Texts {
    Tensor<std::uint8_t, 4> pixels;
    Ragged<float> values;
    Tensor<std::int32_t, 1> labels;
    Tensor<float, 2> none;
  };
  const auto describe = [](Layout<Texts> layout) {
    return layout.field(&Texts::labels, {})
        .field(&Texts::values, Capacity{100})
        .field(&Texts::pixels, {5, 7, 3})
        .field(&Texts::none, {0});
  };
  const Layout<Texts> without = describe(Layout<Texts>());
  CHECK(without.batch_size() == 0);
  CHECK(without.bytes() == 0);
  const Layout<Texts> with = describe(Layout<Texts>{9});
  const detail::BlockLayout sized = without.erased().for_slots(9);
  CHECK(sized.batch_size() == 9);
  CHECK(sized.bytes() == with.bytes());
  CHECK(sized.scratch_bytes() == with.erased().scratch_bytes());
  REQUIRE(sized.fields().size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto &field = sized.fields()[i], &expected = with.erased().fields()[i];
    CHECK(field.name == expected.name);
    CHECK(field.member == expected.member);
    CHECK(field.offset == expected.offset);
    CHECK(field.values == expected.values);
    CHECK(field.sample_bytes == expected.sample_bytes);
    CHECK(field.element_bytes == expected.element_bytes);
  }
  CHECK(with.erased().for_slots(5).batch_size() == 9);  // It has one.
  CHECK(&with.erased().for_source() == &with.erased());
}

TEST_CASE("Layout without a batch size says so where it needs one", "[layout]") {
  const auto layout = Layout<Images>().field(&Images::labels, {});
  Images batch{};
  const auto check_says_so = [](auto call) {
    CHECK_THAT(thrown<std::invalid_argument>(call),
               Mentions("no batch size") && Mentions("write penstock::Layout<Batch>{256}"));
  };
  check_says_so([&] { layout.bind(nullptr, 0); });
  check_says_so([&] { layout.rebind(batch, nullptr, 0); });
  check_says_so([&] { layout.resize(batch, 0); });
  check_says_so([&] { static_cast<void>(layout.samples(batch, nullptr)); });
  check_says_so([&] { ranges(layout, 0); });
  check_says_so([&] { layout.erased().for_source(); });
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const auto large = Layout<Images>().field(&Images::pixels, {huge / 256, 1, 1});
  CHECK_THAT(
      thrown<std::invalid_argument>([&] { static_cast<void>(large.erased().for_slots(257)); }),
      Mentions("field pixels overflows"));
}

TEST_CASE("Layout without fields has no block, and no batch to count", "[layout]") {
  const Layout<Images> layout{4};
  CHECK(layout.bytes() == 0);
  CHECK(ranges(layout, 4).empty());
  CHECK_THAT(
      thrown<std::invalid_argument>([&] { static_cast<void>(layout.samples(Images{}, nullptr)); }),
      Mentions("no fields"));
}

TEST_CASE("Layout allocates only while it is described", "[layout]") {
  const auto layout = images(256);
  std::vector<std::byte> block(layout.bytes());
  std::size_t copied = 0;

  const std::uint64_t before = allocations_of_this_thread();
  Images batch = layout.bind(block.data(), 256);
  layout.resize(batch, 100);
  layout.rebind(batch, block.data(), 99);
  const std::int64_t samples = layout.samples(batch, block.data());
  layout.for_each_range(samples, [&](std::size_t, std::size_t bytes) { copied += bytes; });
  CHECK(allocations_of_this_thread() == before);
  CHECK(copied == 99 * (3072 + 4));
}

TEST_CASE("Layout allocates for ragged fields when rows first change places, and then no more",
          "[layout][ragged]") {
  struct Texts {
    Ragged<char> text_of_the_sample;
  };
  const auto layout = Layout<Texts>{2}.field(&Texts::text_of_the_sample, Capacity{8});
  const detail::BlockLayout& core = layout.erased();
  std::vector<std::byte> block(core.bytes()), scratch(core.scratch_bytes()), spare;
  Texts batch;
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t before = allocations_of_this_thread();
    core.bind_for_source(&batch, block.data(), scratch.data(), 2);
    batch.text_of_the_sample.assign(1, std::span<const char>("one", 3));
    batch.text_of_the_sample.assign(0, std::span<const char>("zero", 4));
    CHECK(core.finish(&batch, block.data(), {}, spare) == 2);
    if (round > 0) CHECK(allocations_of_this_thread() == before);
  }
  CHECK(std::string(batch.text_of_the_sample.data(), 7) == "zeroone");
}

struct WithBase : Images {
  Tensor<float, 1> more;
};
struct WithArray {
  Tensor<float, 1> values;
  float mean[3];
};
struct WithBits {
  int kind : 3;
  Tensor<float, 1> values;
};
struct WithMuch {
  std::optional<int> number;
  cuda::std::array<float, 2> array;
  const char* text = "";
  std::array<std::int8_t, 3> more;
  enum class Colour { red } colour;
  Tensor<float, 1> values;
};

}  // namespace

template <>
inline constexpr bool has_named_members<WithBits> = false;

namespace {

TEST_CASE("Layout calls a field as its member is called, or numbers it where it cannot tell",
          "[layout]") {
  const auto name_of_the_last = []<class Batch>(Layout<Batch> layout, auto member) {
    return thrown<std::invalid_argument>([&] { layout.field(member, {-1}); });
  };
  struct Local {
    Tensor<float, 2> a_1;
  };
  CHECK_THAT(name_of_the_last(Layout<Local>{1}, &Local::a_1), Mentions("field a_1 has"));
  struct Other {
    Tensor<float, 1> values;
    Tensor<float, 2> last;
  };
  CHECK_THAT(name_of_the_last(Layout<Other>{1}, &Other::last), Mentions("field last has"));
  const auto twice = []<class Batch>(Layout<Batch> layout, auto member) {
    layout.field(member, {});
    return thrown<std::invalid_argument>([&] { layout.field(member, {}); });
  };
  CHECK_THAT(twice(Layout<WithMuch>{1}, &WithMuch::values), Mentions("field values is"));
  CHECK_THAT(twice(Layout<WithBase>{1}, &WithBase::more), Mentions("field 1 is"));
  CHECK_THAT(twice(Layout<WithArray>{1}, &WithArray::values), Mentions("field 1 is"));
  CHECK_THAT(twice(Layout<WithBits>{1}, &WithBits::values), Mentions("field 1 is"));
}

TEST_CASE("Layout names a tensor that is no field, unless it is said to be a plain value",
          "[layout]") {
  Layout<Images> layout{4};
  CHECK_THAT(thrown<std::invalid_argument>([&] { layout.erased().require_fields(); }),
             Mentions("has no field"));
  layout.field(&Images::pixels, {2, 2, 1});
  CHECK_THAT(thrown<std::invalid_argument>([&] { layout.erased().require_fields(); }),
             Mentions("labels is a Tensor or a Ragged, and no field"));
  Layout<Images> plain = layout;
  plain.value(&Images::labels).erased().require_fields();
  layout.field(&Images::labels, {}).erased().require_fields();
}

struct Deep {
  int before[3];
  struct {
    std::array<Tensor<float, 1>, 2> views;
  } inner;
};
struct BitsAndView {
  unsigned kind : 3;
  Ragged<int> view;
};
struct AfterMany {
  cuda::std::array<float, 16> matrix;
  const char* name;
  std::string_view text;
  Tensor<std::uint8_t, 4> view;
};
struct DerivedView : Images {
  int more;
};
struct NoView {
  int kind : 3;
  float matrix[4][4];
  std::array<double, 300> many;
  std::optional<int> maybe;
  std::uint8_t* memory;
  enum class Colour { red } colour;
  union {
    int number;
    float value;
  };
};
template <class Member>
struct Nested {
  Tensor<float, 1> values;
  Member member;
};

TEST_CASE("Layout names a struct that has a tensor in it, unless it is said to be a plain value",
          "[layout]") {
  const auto refusal = []<class Member>(std::type_identity<Member>) {
    using Batch = Nested<Member>;
    Layout<Batch> layout{4};
    layout.field(&Batch::values, {});
    auto plain = layout;
    plain.value(&Batch::member).erased().require_fields();
    return thrown<std::invalid_argument>([&] { layout.erased().require_fields(); });
  };
  const auto check = [](const std::string& message) {
    CHECK_THAT(message, Mentions("member is a struct with a Tensor or a Ragged in it") &&
                            Mentions("value()"));
  };
  check(refusal(std::type_identity<Images>()));
  check(refusal(std::type_identity<Deep>()));
  check(refusal(std::type_identity<BitsAndView>()));
  check(refusal(std::type_identity<AfterMany>()));
  check(refusal(std::type_identity<DerivedView>()));
  Layout<Nested<NoView>> layout{4};
  layout.field(&Nested<NoView>::values, {}).erased().require_fields();
}

TEST_CASE("Layout: what field() returns of a temporary may be kept by reference", "[layout]") {
  const auto& layout =
      Layout<Images>{4}.field(&Images::pixels, {2, 2, 1}).field(&Images::labels, {});
  CHECK(layout.batch_size() == 4);
  CHECK(layout.bytes() > 256);
}

TEST_CASE("Layout may be copied, and copies are independent", "[layout]") {
  Layout<Images> original{4};
  original.field(&Images::labels, {});
  Layout<Images> copy = original;
  copy.field(&Images::pixels, {2, 2, 2});
  CHECK(original.bytes() == 16);
  CHECK(copy.bytes() == 256 + 32);
}

}  // namespace
}  // namespace penstock
