// SPDX-License-Identifier: Apache-2.0
//
// Calls about errors: their names, their descriptions, and the last error of a thread.

#include <cctype>
#include <map>
#include <string>

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

struct ErrorText {
  std::string name, description;
};

/// Turns "cudaErrorStreamCaptureUnjoined" into "stream capture unjoined".
std::string words_of(const std::string& name) {
  const std::string prefix = "cudaError";
  std::string words;
  for (std::size_t i = prefix.size(); i < name.size(); ++i) {
    const bool capital = std::isupper(static_cast<unsigned char>(name[i])) != 0;
    const bool after_small = std::islower(static_cast<unsigned char>(name[i - 1])) != 0;
    if (capital && after_small && !words.empty()) words += ' ';
    words += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return words;
}

std::map<int, ErrorText> make_texts() {
  std::map<int, ErrorText> texts;
  for (const auto& [error, name] : std::initializer_list<std::pair<int, const char*>>{
#define ERROR(name) {name, #name},
#include "errors.def"
#undef ERROR
       })
    texts[error] = {name, words_of(name)};
  texts[cudaSuccess] = {"cudaSuccess", "no error"};
  // These descriptions replace the words of the name.
  texts[cudaErrorInvalidValue].description = "invalid argument";
  texts[cudaErrorMemoryAllocation].description = "out of memory";
  texts[cudaErrorCudartUnloading].description = "the process is exiting";
  texts[cudaErrorNoDevice].description = "no device";
  texts[cudaErrorNotReady].description = "not ready: the work is not done yet";
  texts[cudaErrorNotPermitted].description = "not permitted here, as in a host function";
  return texts;
}

const ErrorText& text_of(cudaError_t error) {
  static const auto& texts = *new std::map<int, ErrorText>(make_texts());  // outlives statics
  static const auto& unknown = *new ErrorText{"unrecognized error code", "unrecognized error code"};
  const auto found = texts.find(error);
  return found == texts.end() ? unknown : found->second;
}

/// Returns the last error of the thread or, without one, the sticky error of its device.
cudaError_t last_error(const Call& call) {
  const bool failed = !call.runtime.devices.empty() && call.device().failure != cudaSuccess;
  return call.thread.last_error == cudaSuccess && failed ? call.device().failure
                                                         : call.thread.last_error;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaGetLastError() {
  return enter(Function::cudaGetLastError, [](Call& call) {
    const cudaError_t error = last_error(call);
    call.thread.last_error = cudaSuccess;
    return error;
  });
}

cudaError_t cudaPeekAtLastError() {
  return enter(Function::cudaPeekAtLastError, [](Call& call) { return last_error(call); });
}

const char* cudaGetErrorName(cudaError_t error) {
  const Hidden hidden;
  return text_of(error).name.c_str();
}

const char* cudaGetErrorString(cudaError_t error) {
  const Hidden hidden;
  return text_of(error).description.c_str();
}

}  // extern "C"
