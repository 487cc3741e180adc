// SPDX-License-Identifier: Apache-2.0
#pragma once

// FunctionRef: a reference to any callable object, for functions that are compiled once and call
// what they are given before they return. Two pointers; allocates nothing.

#include <penstock/version.hpp>
#include <type_traits>

namespace penstock::inline PENSTOCK_ABI::detail {

template <class Signature>
class FunctionRef;

template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  /// `function` has to outlive this: as an argument of a call, a temporary does.
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, FunctionRef> &&
           std::is_invocable_r_v<Result, Function&, Arguments...>)
      FunctionRef(Function&& function)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(__builtin_addressof(function)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Function>*>(object))(
              static_cast<Arguments&&>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(object_, static_cast<Arguments&&>(arguments)...);
  }

 private:
  void* object_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace penstock::detail
