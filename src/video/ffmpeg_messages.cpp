// SPDX-License-Identifier: Apache-2.0

#include "ffmpeg_messages.hpp"

#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "ffmpeg.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using Message = std::array<char, 200>;

/// Without allocation: FFmpeg is C, so that no exception may pass through it.
struct Kept {
  int scopes = 0;
  Message last{}, one_before{};
};

thread_local Kept kept;

char mark;  // Its address marks decoders.

bool is_ours(void* context) noexcept {
  if (kept.scopes > 0) return true;
  if (context == nullptr || *static_cast<const AVClass**>(context) != avcodec_get_class())
    return false;
  return static_cast<const AVCodecContext*>(context)->opaque == &mark;
}

/// Words of FFmpeg may have bytes of the file in them.
void make_printable(Message& message) noexcept {
  std::size_t length = std::strlen(message.data());
  while (length > 0 && (message[length - 1] == '\n' || message[length - 1] == '.'))
    message[--length] = '\0';
  for (std::size_t i = 0; i < length; ++i)
    if (message[i] < ' ' || message[i] > '~') message[i] = '?';
}

void keep(const char* format, va_list values) noexcept {
  Message message{};
  if (std::vsnprintf(message.data(), message.size(), format, values) < 0) return;
  make_printable(message);
  if (message[0] == '\0' || message == kept.last) return;
  kept.one_before = kept.last;
  kept.last = message;
}

void print(void* context, int level, const char* format, va_list values) noexcept {
  va_list copy;
  va_copy(copy, values);
  av_log_default_callback(context, level, format, copy);
  va_end(copy);
}

void receive(void* context, int level, const char* format, va_list values) {
  const bool ours = is_ours(context);
  if (!ours || av_log_get_level() >= AV_LOG_VERBOSE) print(context, level, format, values);
  if (ours && level <= AV_LOG_ERROR) keep(format, values);
}

/// A shared library that contains penstock may be unloaded before FFmpeg.
struct Installed {
  Installed() noexcept { set_message_callback(); }
  ~Installed() { av_log_set_callback(av_log_default_callback); }
};
const Installed installed;

}  // namespace

MessageScope::MessageScope() noexcept {
  ++kept.scopes;
}

MessageScope::~MessageScope() {
  --kept.scopes;
}

void keep_messages_of(AVCodecContext& codec) noexcept {
  codec.opaque = &mark;
}

std::string said_by_ffmpeg() {
  if (kept.last[0] == '\0') return "";
  std::string said = " (FFmpeg: ";
  if (kept.one_before[0] != '\0') said.append(kept.one_before.data()).append("; ");
  said.append(kept.last.data()).append(")");
  forget_messages();
  return said;
}

void forget_messages() noexcept {
  kept.last[0] = kept.one_before[0] = '\0';
}

void set_message_callback() noexcept {
  av_log_set_callback(receive);
}

}  // namespace penstock::video
