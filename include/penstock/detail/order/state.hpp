// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <ostream>
#include <penstock/detail/escaped.hpp>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/whole_file.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/state.hpp>
#include <stdexcept>
#include <system_error>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

/// How long a number of the state must stay the same.
enum class Fixed { never, for_an_epoch, for_the_run };

using StateNumber = std::uint64_t State::*;  // an alias, since nvcc would otherwise print it with
                                             // parentheses

struct StateField {
  std::string_view name;
  StateNumber number;
  Fixed fixed;
};

inline constexpr std::array<StateField, 10> state_fields{
    {{"epoch", &State::epoch, Fixed::never},
     {"batch", &State::batch, Fixed::never},
     {"seed", &State::seed, Fixed::for_the_run},
     {"samples", &State::samples, Fixed::for_the_run},
     {"order", &State::order, Fixed::for_an_epoch},
     {"batches", &State::batches, Fixed::for_an_epoch},
     {"batch_size", &State::batch_size, Fixed::for_an_epoch},
     {"world_size", &State::world_size, Fixed::for_an_epoch},
     {"part_batch", &State::part_batch, Fixed::never},  // these two are compared by delivered()
     {"part_samples", &State::part_samples, Fixed::never}}};

// The text ends with a fixed word, so that a truncated number is not read as a smaller one.
inline constexpr std::string_view state_format = "penstock-state", state_version = "2",
                                  state_end = "end";

/// Returns `text` in quotes for a message. Characters that are not printable ASCII are escaped, and
/// a long text is cut.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 300;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result = "\"";
  for (const char character : text) {
    if (result.size() > kLongest) return result + "...\"";
    const auto code = static_cast<unsigned char>(character);
    if (code >= 0x20 && code < 0x7f)
      result += character;
    else
      (result += "\\x") += {kDigits[code / 16], kDigits[code % 16]};
  }
  return result + '"';
}

/// Returns the number of samples of the epoch before the next batch, over all ranks. Returns
/// UINT64_MAX if the number does not fit into 64 bits.
inline std::uint64_t delivered(const State& state) {
  std::uint64_t samples = 0;
  if (__builtin_sub_overflow(state.batch, state.part_batch, &samples) ||
      __builtin_mul_overflow(samples, state.batch_size, &samples) ||
      __builtin_mul_overflow(samples, state.world_size, &samples) ||
      __builtin_add_overflow(samples, state.part_samples, &samples))
    return std::numeric_limits<std::uint64_t>::max();
  return samples;
}

/// Returns the state, before the given batch, of a run that began at `start`.
inline State state_at(const State& start, std::uint64_t epoch, std::uint64_t batch) {
  State state = start;
  state.epoch = epoch, state.batch = batch;
  if (epoch != start.epoch) state.part_batch = state.part_samples = 0;
  return state;
}

inline bool is_within_epoch(const State& state) {
  return state.batch != 0 || state.part_samples != 0;
}

/// Throws std::invalid_argument if the state is after the end of a run of `epochs` epochs. A state
/// exactly at the end is allowed: it is that of a finished run.
inline void require_not_behind_end(const State& state, std::uint64_t epochs) {
  if (state.epoch < epochs || (state.epoch == epochs && !is_within_epoch(state))) return;
  throw std::invalid_argument(
      "the state is behind the end of the run: it is at epoch " + std::to_string(state.epoch) +
      ", batch " + std::to_string(state.batch) + ", and epochs is " + std::to_string(epochs) +
      ". epochs counts all epochs of the run from epoch 0 on, also those before the state: it must "
      "be at least " +
      std::to_string(state.epoch + 1) + " to go on");
}

/// Returns the same error with `where` before its text.
inline std::system_error located(const std::system_error& error, const std::string& where) {
  const std::string reason = ": " + error.code().message();  // the new error appends it again
  std::string what = error.what();
  if (what.ends_with(reason)) what.resize(what.size() - reason.size());
  return {error.code(), where + what};
}

}  // namespace detail

PENSTOCK_INLINE std::string to_string(const State& state) {
  std::string text(detail::state_format);
  (text += ' ') += detail::state_version;
  for (const auto& field : detail::state_fields)
    (((text += ' ') += field.name) += '=') += std::to_string(state.*field.number);
  return (text += ' ') += detail::state_end;
}

PENSTOCK_INLINE std::ostream& operator<<(std::ostream& out, const State& state) {
  return out << to_string(state);
}

PENSTOCK_INLINE State State::parse(std::string_view text) {
  const auto refuse = [text](const std::string& why) {
    throw std::invalid_argument("State::parse: " + why + ": " + detail::quoted(text));
  };
  std::string_view rest = text;
  if (detail::take_word(rest) != detail::state_format)
    refuse("it does not begin with " + std::string(detail::state_format));
  if (const std::string_view version = detail::take_word(rest); version != detail::state_version)
    refuse("format version " + detail::quoted(version) + ", this is version " +
           std::string(detail::state_version));
  State state;
  for (const auto& field : detail::state_fields) {
    std::string_view word = detail::take_word(rest);
    const std::string key = std::string(field.name) + '=';
    if (word.substr(0, key.size()) != key) refuse(key + " is missing in its place");
    word.remove_prefix(key.size());
    const auto number = detail::read_number<std::uint64_t>(word);
    if (!number || (word.size() > 1 && word.front() == '0'))  // to_string() never writes a leading
                                                              // zero
      refuse(key + " is followed by no number of 64 bits");
    state.*field.number = *number;
  }
  if (rest != detail::state_end)
    refuse("it does not end with " + std::string(detail::state_end) + " behind the last number");
  return state;
}

PENSTOCK_INLINE void State::save(const std::string& file) const try {
  detail::WholeFile out(file);
  out.write(to_string(*this) + '\n');
  out.commit();
} catch (const std::system_error& error) {
  throw detail::located(error, "State::save: " + detail::escaped(file) + ": ");
}

PENSTOCK_INLINE State State::load(const std::string& file) {
  const std::string where = "State::load: " + detail::escaped(file) + ": ";
  try {
    std::array<std::byte, 1024> bytes{};  // larger than any state
    const std::size_t count = detail::ReadOnlyFile(file).read(0, bytes);
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), count);
    if (text.ends_with('\n')) text.remove_suffix(1);
    return parse(text);
  } catch (const std::system_error& error) {
    throw detail::located(error, where);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(where + error.what());
  }
}

PENSTOCK_INLINE std::string why_incompatible(const State& state, const State& start) {
  const auto refusal = [&](const std::string& why) {
    return why + "; the state is " + detail::quoted(to_string(state));
  };
  constexpr const char* kAdvice =
      " (at its start these may change; penstock::Sampler(options, state) continues within it)";
  for (const auto& field : detail::state_fields) {
    const std::uint64_t there = state.*field.number, here = start.*field.number;
    if (there == here || field.fixed == detail::Fixed::never) continue;
    const std::string numbers = std::string(field.name) + " is " + std::to_string(there) +
                                " there, and " + std::to_string(here) + " here";
    if (field.fixed == detail::Fixed::for_the_run)
      return refusal("the state is of another run: " + numbers);
    if (detail::is_within_epoch(state))
      return refusal("the state is in the middle of an epoch: " + numbers +
                     ", and the rest of the epoch would be other samples" + kAdvice);
    if (start.samples == 0 && field.number == &State::batches)
      return refusal("the state may be of another data set, whose size the sampler does not say: " +
                     numbers);
  }
  if (state.batch != 0 && state.batch >= start.batches)
    return refusal("the state is at batch " + std::to_string(state.batch) + " of an epoch of " +
                   std::to_string(start.batches) + " batches");
  const State here = detail::state_at(start, state.epoch, state.batch);
  if (state.batch < state.part_batch || state.batch < here.part_batch)
    return refusal(
        "the state is at a batch before those that the epoch was continued with, which begin at " +
        std::to_string(std::max(state.part_batch, here.part_batch)));
  if (detail::is_within_epoch(state) && detail::delivered(state) != detail::delivered(here))
    return refusal(
        "the state is in the middle of an epoch that was continued with other ranks or "
        "batches: " +
        std::to_string(detail::delivered(state)) + " of its samples are before it there, " +
        std::to_string(detail::delivered(here)) + " here" + kAdvice);
  constexpr std::uint64_t kCountable = std::uint64_t{1} << 62;  // in batches
  if (state.batch > kCountable || (start.batches != 0 && state.epoch > kCountable / start.batches))
    return refusal("the state is at a batch beyond 2^62, which nobody counts to");
  return {};
}

}  // namespace penstock
