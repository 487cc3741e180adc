// SPDX-License-Identifier: Apache-2.0
#pragma once

// What FFmpeg logs about penstock's files: it is kept for the text of an exception, and is not
// printed. FFmpeg has one callback for a process, and cannot tell which one it is. penstock sets
// its own before main() begins, so that one that the program sets is never replaced. What FFmpeg
// logs about other files goes to FFmpeg's own callback.

#include <penstock/version.hpp>
#include <string>

struct AVCodecContext;

namespace penstock::inline PENSTOCK_ABI::video {

/// While it lives, what FFmpeg logs on this thread is about penstock's files. They nest.
class MessageScope {
 public:
  MessageScope() noexcept;
  MessageScope(const MessageScope&) = delete;
  MessageScope& operator=(const MessageScope&) = delete;
  ~MessageScope();
};

/// Makes what this decoder logs, on any thread, one of penstock's messages. Uses codec.opaque.
void keep_messages_of(AVCodecContext& codec) noexcept;

/// The last errors that were kept on this thread since the last call: " (FFmpeg: ONE; OTHER)";
/// empty if there are none. Errors of a program's own callback are not kept.
std::string said_by_ffmpeg();

/// Forgets what was kept on this thread: another file is read, or another part of it.
void forget_messages() noexcept;

/// Makes penstock's callback that of FFmpeg. It is called before main(), and by tests.
void set_message_callback() noexcept;

}  // namespace penstock::video
