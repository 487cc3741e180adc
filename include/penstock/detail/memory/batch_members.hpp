// SPDX-License-Identifier: Apache-2.0
#pragma once

// batch_members: finds the names of a batch's members and which of them are views. A structured
// binding gives the addresses of the members of an aggregate. With such an address as template
// argument, __PRETTY_FUNCTION__ contains the member's name. This works with g++, clang++ and nvcc.

#include <cstddef>
#include <penstock/ragged.hpp>
#include <penstock/tensor.hpp>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

/// Whether a structured binding may be applied to Batch. Specialise it as false for a Batch with
/// bit-fields or unnamed members, which do not compile: messages then number the fields.
template <class Batch>
inline constexpr bool has_named_members = true;

namespace detail {

struct BatchMember {
  std::size_t offset;
  bool is_view;      ///< a Tensor or a Ragged
  bool holds_view;   ///< a struct or an array that contains a view
  const char* text;  ///< ends with its name and brackets
};

template <class T>
inline constexpr bool is_view = false;
template <class T, class Extents>
inline constexpr bool is_view<cuda::std::mdspan<T, Extents>> = true;
template <class T>
inline constexpr bool is_view<Ragged<T>> = true;

template <class T>
constexpr bool holds_view();

/// Converts to a view, and to types that hold a view. It is only used to initialise, so it also
/// works for structs with members that a structured binding does not accept.
struct AnyView {
  // clang-format off
  // NOLINTNEXTLINE(google-explicit-constructor): it converts to members.
  template <class T> requires(is_view<T> || holds_view<T>()) operator T() const noexcept {
    __builtin_unreachable();  // It is never called; clang needs a body.
  }
  // clang-format on
};

inline constexpr std::size_t most_members = 12;

/// Converts to a member of any type, or only to base classes.
template <class Batch, bool only_bases = false>
struct Initialiser {
  // clang-format off
  // NOLINTNEXTLINE(google-explicit-constructor): it converts to members.
  template <class T> requires(!std::is_same_v<T, Batch> && (!only_bases || std::is_base_of_v<T, Batch>)) operator T() const noexcept {
    __builtin_unreachable();  // It is never called; clang needs a body.
  }
  // clang-format on
};
template <class Batch, std::size_t = 0>
using Any = Initialiser<Batch>;

/// Whether a view can be an initialiser of T at position sizeof...(At) or later.
template <class T, std::size_t... At>
constexpr bool takes_view(std::index_sequence<At...>) {
  constexpr std::size_t most = 64;
  if constexpr (requires { T{Any<T, At>{}..., AnyView{}}; })
    return true;
  else if constexpr (sizeof...(At) < most && requires { T{Any<T, At>{}..., Any<T>{}}; })
    return takes_view<T>(std::index_sequence<At..., sizeof...(At)>{});
  else
    return false;
}

/// Whether one of the first 64 members of a struct, or elements of its arrays, is a view or holds
/// one.
template <class T>
constexpr bool holds_view() {
  if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !is_view<T>)
    return takes_view<T>(std::index_sequence<>{});
  else
    return false;
}

/// The number of initialisers of a batch: one for each member, or for each element of an array. It
/// is 0 if there are too many, or if a member cannot be initialised in this way.
template <class Batch, std::size_t... At>
constexpr std::size_t count_initialisers(std::index_sequence<At...>) {
  constexpr bool takes_one_more = requires {
    Batch{Any<Batch, At>{}..., Any<Batch>{}};
  };
  constexpr bool takes_braces = requires {
    Batch{Any<Batch, At>{}..., {}};
  };
  if constexpr (sizeof...(At) < most_members && takes_one_more)
    return count_initialisers<Batch>(std::index_sequence<At..., sizeof...(At)>{});
  else
    return takes_braces ? 0 : sizeof...(At);
}

/// Whether a pair in braces at this position replaces more than one initialiser, as for an array.
template <class Batch, std::size_t... Before, std::size_t... Behind>
constexpr bool is_array_at(std::index_sequence<Before...>, std::index_sequence<Behind...>) {
  using One = Any<Batch>;
  constexpr bool takes_pair = requires {
    Batch{Any<Batch, Before>{}..., {One{}, One{}}};
  };
  constexpr bool takes_all_others = requires {
    Batch{Any<Batch, Before>{}..., {One{}, One{}}, Any<Batch, Behind>{}...};
  };
  return takes_pair && !takes_all_others;
}

// (Not a generic lambda: nvcc with newer g++ rejects those in constant expressions.)
template <class Batch, std::size_t... At>
constexpr bool has_array(std::index_sequence<At...>) {
  return (is_array_at<Batch>(std::make_index_sequence<At>{},
                             std::make_index_sequence<sizeof...(At) - At - 1>{}) ||
          ...);
}

/// The number of members; 0 for a batch with a base class, an array, or more than `most_members`
/// members.
template <class Batch>
constexpr std::size_t count_members() {
  constexpr bool has_base = requires {
    Batch{Initialiser<Batch, true>{}};
  };
  if constexpr (!has_named_members<Batch> || has_base) {
    return 0;
  } else {
    constexpr std::size_t size = count_initialisers<Batch>(std::index_sequence<>{});
    return has_array<Batch>(std::make_index_sequence<size>{}) ? 0 : size;
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

/// A batch whose members have addresses that can be template arguments. It is never written. It is
/// not const, because nvcc would evaluate it.
template <class Batch>
inline Batch specimen{};

/// (clang 14 accepts pointers to subobjects only inside a struct.)
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

template <class Batch, std::size_t... At>
std::vector<BatchMember> batch_members(std::index_sequence<At...>) {
  constexpr auto at = members<sizeof...(At)>(specimen<Batch>);
  const auto offset = [](const void* member) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(member) -
                                    reinterpret_cast<const std::byte*>(&specimen<Batch>));
  };
  return {BatchMember{offset(std::get<At>(at)),
                      is_view<std::remove_cvref_t<decltype(*std::get<At>(at))>>,
                      holds_view<std::remove_cvref_t<decltype(*std::get<At>(at))>>(),
                      text_with_name<MemberPointer{std::get<At>(at)}>()}...};
}

/// The members of Batch in the order of their declaration; empty if count_members() is 0.
template <class Batch>
std::vector<BatchMember> batch_members() {
  constexpr std::size_t size = count_members<Batch>();
  if constexpr (size == 0)
    return {};
  else
    return batch_members<Batch>(std::make_index_sequence<size>{});
}

}  // namespace detail
}  // namespace penstock
