// SPDX-License-Identifier: Apache-2.0

// A shared library that uses RecordFile inside, and shows nothing of it.

#include <unistd.h>

#include <penstock/record_file.hpp>

/// Whether a lost record of `path`, a file of 4096-byte records, is an error here and no signal.
extern "C" __attribute__((visibility("default"))) bool lost_record_is_an_error(const char* path) {
  const penstock::RecordFile records{{path}, 4096};
  if (::truncate(path, 0) != 0) return false;
  try {
    static_cast<void>(records[1]);
  } catch (const penstock::RecordFileError& error) {
    return error.record() == 1;
  }
  return false;
}
