// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions that the mutated headers call. The program contains all mutants, and the environment
// variable PENSTOCK_MUTANT chooses one. 0, or no value, chooses the unchanged library. -1 does the
// same, and writes the numbers of all mutants that were reached to the file PENSTOCK_MUTANT_HITS at
// exit. No function here orders threads.

#include <array>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <span>
#include <type_traits>

struct CUstream_st;  // what a cudaStream_t points to

namespace penstock_mutation {

inline int chosen() {
  const char* number = std::getenv("PENSTOCK_MUTANT");
  return number == nullptr ? 0 : std::atoi(number);
}
inline const int alive = chosen();

struct Hits {
  ~Hits() {
    if (const char* path = std::getenv("PENSTOCK_MUTANT_HITS"); path != nullptr && alive < 0) {
      std::ofstream file(path);
      for (std::size_t i = 0; i < passed.size(); ++i)
        if (__atomic_load_n(&passed[i], __ATOMIC_RELAXED)) file << i << '\n';
    }
  }
  std::array<bool, 8192> passed{};  // with builtins: where std::atomic is another, this is not
};
inline Hits hits;

constexpr bool is(int mutant) {
  if (std::is_constant_evaluated()) return false;
  if (alive >= 0) return alive == mutant;
  __atomic_store_n(&hits.passed[static_cast<std::size_t>(mutant)], true, __ATOMIC_RELAXED);
  return false;
}

/// Makes the call, or says that all is well.
template <class Call>
auto skip(int mutant, Call&& call) -> decltype(call()) {
  using Result = decltype(call());
  if (!is(mutant)) return call();
  if constexpr (std::is_same_v<Result, bool>)
    return true;
  else
    return Result();
}

/// `mutex`, or one that no other thread knows of.
template <class Mutex>
Mutex& mutex(int mutant, Mutex& mutex) {
  if (!is(mutant)) return mutex;
  thread_local std::array<Mutex, 8> own;  // The function may be on the stack several times.
  for (Mutex& candidate : own)
    if (candidate.try_lock()) {
      candidate.unlock();
      return candidate;
    }
  return own.front();
}

/// `stream` or the default one, on which nothing is queued.
template <class Stream>
Stream* no_stream(int mutant, Stream* stream) {
  return is(mutant) ? nullptr : stream;
}
/// The same for a class that converts to the handle of a stream.
template <class Ref>
requires(std::is_class_v<Ref>&& std::is_convertible_v<const Ref&, CUstream_st*>)
Ref no_stream(int mutant, const Ref& stream) {
  return is(mutant) ? Ref() : stream;
}
/// The same for one that was resolved: a struct with the `handle` of a stream.
template <class Resolved>
requires requires(const Resolved& stream) { stream.handle; }
Resolved no_stream(int mutant, const Resolved& stream) {
  Resolved changed = stream;
  if (is(mutant)) changed.handle = nullptr;
  return changed;
}
/// `streams` or none.
template <class Streams>
std::span<const typename Streams::value_type> no_stream(int mutant, const Streams& streams) {
  using Span = std::span<const typename Streams::value_type>;
  return is(mutant) ? Span() : Span(streams);
}

// ---- Comparisons: `a < b` is written `a < less(7) < b`, which needs no grammar to be found. ---------

#define PENSTOCK_MUTATED_COMPARISON(name, sign, mutated)                          \
  struct name {                                                                   \
    constexpr explicit name(int number) : mutant(number) {}                       \
    int mutant;                                                                   \
  };                                                                              \
  template <class Left>                                                           \
  struct name##_than {                                                            \
    const Left& left;                                                             \
    int mutant;                                                                   \
  };                                                                              \
  template <class Left>                                                           \
  constexpr name##_than<Left> operator sign(const Left& left, name comparison) {  \
    return {left, comparison.mutant};                                             \
  }                                                                               \
  template <class Left, class Right>                                              \
  constexpr bool operator sign(const name##_than<Left>& begun, const Right& right) { \
    return is(begun.mutant) ? begun.left mutated right : begun.left sign right;   \
  }                                                                               \
  /* The library has an operator for any type and an optional, which would be as good. */ \
  template <class Left, class Right>                                              \
  constexpr bool operator sign(const name##_than<Left>& begun, const std::optional<Right>& right) { \
    return is(begun.mutant) ? begun.left mutated right : begun.left sign right;   \
  }

PENSTOCK_MUTATED_COMPARISON(less, <, <=)
PENSTOCK_MUTATED_COMPARISON(less_equal, <=, <)
PENSTOCK_MUTATED_COMPARISON(greater, >, >=)
PENSTOCK_MUTATED_COMPARISON(greater_equal, >=, >)
PENSTOCK_MUTATED_COMPARISON(equal, ==, !=)
PENSTOCK_MUTATED_COMPARISON(not_equal, !=, ==)
#undef PENSTOCK_MUTATED_COMPARISON

}  // namespace penstock_mutation
