// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the members of a batch are called, and which of them are views, told by the compiler: an
// aggregate is taken apart by a structured binding, and __PRETTY_FUNCTION__ shows the member that a
// pointer among its template arguments points at. g++, clang++ and nvcc agree on all of that.

#include <array>
#include <cstddef>
#include <penstock/ragged.hpp>
#include <penstock/tensor.hpp>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace penstock {

/// Whether the members of Batch, an aggregate, may be taken apart. Set it false for a Batch that
/// has bit-fields or unnamed structs: then messages number its fields.
template <class Batch>
inline constexpr bool has_named_members = true;

namespace detail {

struct BatchMember {
  std::size_t offset, bytes;
  bool is_view;      ///< a Tensor or a Ragged
  const char* text;  ///< ends with its name and brackets
};

template <class T>
inline constexpr bool is_view = false;
template <class T, class Extents>
inline constexpr bool is_view<cuda::std::mdspan<T, Extents>> = true;
template <class T>
inline constexpr bool is_view<Ragged<T>> = true;

enum class Kind { any, base, united };

/// Initialises a member of whatever type, or one of this kind alone.
template <class Batch, Kind kind = Kind::any>
struct Initialiser {
  template <class T>
  requires(!std::is_same_v<T, Batch> &&
           (kind != Kind::base || std::is_base_of_v<T, Batch>)&&(kind != Kind::united ||
                                                                 std::is_union_v<T>))
  operator T() const noexcept {  // NOLINT(google-explicit-constructor): it converts to members.
    __builtin_unreachable();     // Nobody calls it; clang wants a body.
  }
};

// How a batch can be initialised. A member takes one initialiser, an array (without braces of its
// own) one for each element.
template <class Batch, Kind kind, std::size_t... I>
constexpr bool takes_last(std::index_sequence<I...>) {
  return requires {
    Batch{(static_cast<void>(I), Initialiser<Batch>{})..., Initialiser<Batch, kind>{}};
  };
}
template <class Batch, std::size_t... I>
constexpr bool takes_braces(std::index_sequence<I...>) {
  return requires {
    Batch{(static_cast<void>(I), Initialiser<Batch>{})..., {}};
  };
}
template <class Batch, std::size_t... Before, std::size_t... Behind>
constexpr bool takes_pair(std::index_sequence<Before...>, std::index_sequence<Behind...>) {
  using Any = Initialiser<Batch>;
  return requires {
    Batch{(static_cast<void>(Before), Any{})...,
          {Any{}, Any{}},
          (static_cast<void>(Behind), Any{})...};
  };
}

inline constexpr std::size_t most_members = 12;

template <class Batch, std::size_t Size = 0>
constexpr std::size_t count_initialisers() {
  if constexpr (Size <= most_members &&
                takes_last<Batch, Kind::any>(std::make_index_sequence<Size>{}))
    return count_initialisers<Batch, Size + 1>();
  else
    return Size;
}

/// Is member `At` of `Size` neither an array (a pair in braces then stands for more than one
/// initialiser) nor a union, with or without a name?
template <class Batch, std::size_t At, std::size_t Size>
constexpr bool is_plain_member() {
  constexpr std::make_index_sequence<At> before;
  constexpr std::make_index_sequence<0> nothing;
  constexpr std::make_index_sequence<Size - At - 1> behind;
  return !takes_last<Batch, Kind::united>(before) &&
         (!takes_pair<Batch>(before, nothing) || takes_pair<Batch>(before, behind));
}

/// 0: the batch cannot be taken apart.
template <class Batch>
constexpr std::size_t count_members() {
  if constexpr (!has_named_members<Batch>) {
    return 0;
  } else {
    constexpr std::size_t size = count_initialisers<Batch>();
    if constexpr (size > most_members ||
                  takes_last<Batch, Kind::base>(std::make_index_sequence<0>{}) ||
                  takes_braces<Batch>(std::make_index_sequence<size>{}))
      return 0;  // It has many members, a base class, or a member that takes no Initialiser.
    else
      return []<std::size_t... I>(std::index_sequence<I...>) {
        return (is_plain_member<Batch, I, size>() && ...) ? size : 0;
      }
    (std::make_index_sequence<size>{});
  }
}

template <class... Members>
constexpr auto addresses(Members&... members) {
  return std::tuple<Members*...>{&members...};
}

// clang-format off
template <std::size_t Size, class Batch>
constexpr auto members(Batch& batch) {
  if constexpr (Size == 1) { auto& [a] = batch; return addresses(a); }
  if constexpr (Size == 2) { auto& [a, b] = batch; return addresses(a, b); }
  if constexpr (Size == 3) { auto& [a, b, c] = batch; return addresses(a, b, c); }
  if constexpr (Size == 4) { auto& [a, b, c, d] = batch; return addresses(a, b, c, d); }
  if constexpr (Size == 5) { auto& [a, b, c, d, e] = batch; return addresses(a, b, c, d, e); }
  if constexpr (Size == 6) { auto& [a, b, c, d, e, f] = batch; return addresses(a, b, c, d, e, f); }
  if constexpr (Size == 7) { auto& [a, b, c, d, e, f, g] = batch; return addresses(a, b, c, d, e, f, g); }
  if constexpr (Size == 8) { auto& [a, b, c, d, e, f, g, h] = batch; return addresses(a, b, c, d, e, f, g, h); }
  if constexpr (Size == 9) { auto& [a, b, c, d, e, f, g, h, i] = batch; return addresses(a, b, c, d, e, f, g, h, i); }
  if constexpr (Size == 10) { auto& [a, b, c, d, e, f, g, h, i, j] = batch; return addresses(a, b, c, d, e, f, g, h, i, j); }
  if constexpr (Size == 11) { auto& [a, b, c, d, e, f, g, h, i, j, k] = batch; return addresses(a, b, c, d, e, f, g, h, i, j, k); }
  if constexpr (Size == 12) { auto& [a, b, c, d, e, f, g, h, i, j, k, l] = batch; return addresses(a, b, c, d, e, f, g, h, i, j, k, l); }
}
// clang-format on

/// A batch whose members have addresses that may be template arguments. (In a struct: clang 14
/// takes pointers to members of an object only so.)
template <class Batch>
inline const Batch specimen{};

template <class Pointer>
struct MemberPointer {
  Pointer address;
};

template <class Pointer>
MemberPointer(Pointer) -> MemberPointer<Pointer>;

template <auto Member>
constexpr const char* text_with_name() {
  return __PRETTY_FUNCTION__;
}

/// In the order of their declaration; none where the batch cannot be taken apart.
template <class Batch>
std::span<const BatchMember> batch_members() {
  constexpr std::size_t size = count_members<Batch>();
  if constexpr (size == 0) {
    return {};
  } else {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      constexpr auto at = members<size>(specimen<Batch>);
      const auto offset = [](const void* member) {
        return static_cast<std::size_t>(static_cast<const std::byte*>(member) -
                                        reinterpret_cast<const std::byte*>(&specimen<Batch>));
      };
      static const std::array<BatchMember, size> table{
          BatchMember{offset(std::get<I>(at)), sizeof(*std::get<I>(at)),
                      is_view<std::remove_cvref_t<decltype(*std::get<I>(at))>>,
                      text_with_name<MemberPointer{std::get<I>(at)}>()}...};
      return std::span<const BatchMember>(table);
    }
    (std::make_index_sequence<size>{});
  }
}

}  // namespace detail
}  // namespace penstock
