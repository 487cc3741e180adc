// SPDX-License-Identifier: Apache-2.0
#pragma once

// GdsFile: a file of this machine whose bytes cuFile (GPUDirect Storage) reads to device memory.
//
//   const penstock::File file = penstock::File::open("records.bin");
//   const penstock::gds::GdsFile on_gpu(file);  // an error that says why, where it is not direct
//   const std::size_t bytes = on_gpu.read(0, device_memory, 4096);
//
// It is for storage from which cuFile reads without host memory. Elsewhere cuFile has a
// compatibility mode: it reads to host memory and copies from there, as penstock does without it. A
// program has to allow that mode. docs/storage.md says what each needs.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/file.hpp>
#include <penstock/gds/gds_error.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::gds {

namespace detail {
class RegisteredFile;
}

/// How cuFile reads a file.
enum class GdsMode : std::uint8_t {
  direct,         ///< from the storage to device memory
  compatibility,  ///< to host memory, from which it copies
};

/// What a program says about cuFile.
struct GdsOptions {
  /// Whether a file may be read in the compatibility mode. false: that is an error.
  bool allow_compatibility_mode = false;
  /// The library, which is loaded at run time: a name for the dynamic linker, or a path. It comes
  /// with a CUDA toolkit, and with the wheel nvidia-cufile.
  std::string library = "libcufile.so.0";
};

/// A file that is registered with cuFile, by a descriptor of its own. Copies share it. The last one
/// gives it back; with the last file of the process, cuFile is closed. Any number of threads may
/// use one object. A child of fork() may not use one of its parent.
///
/// The settings of cuFile are those of its own configuration (CUFILE_ENV_PATH_JSON), which penstock
/// does not change.
class GdsFile {
 public:
  /// Loads and opens cuFile if nothing has yet, which takes up to a second and blocks other
  /// constructors. Throws CudaError where there is no GPU, and GdsError: for a file of another
  /// machine; where cuFile is not there or refuses the file; and where it would read it in its
  /// compatibility mode, which `options` do not allow.
  explicit GdsFile(const File& file, const GdsOptions& options = {});

  /// For messages: the name of the File.
  const std::string& name() const noexcept;
  /// Bytes of the file when the File was opened.
  std::uint64_t size() const noexcept;
  /// How cuFile reads it, from what cuFile and the system tell: the kernel module or PCI P2PDMA,
  /// the kind of the file system, direct reads, and cuFile's configuration. Of the devices below
  /// the file system they tell nothing. If cuFile's configuration forbids the compatibility mode,
  /// direct is certain.
  GdsMode mode() const noexcept;
  /// Why it is read in the compatibility mode; empty: it is not.
  const std::string& why_compatible() const noexcept;

  /// Fills `bytes` bytes of device memory at `target` with those from `offset` on, and returns how
  /// many there were: fewer only where the file ends. Blocks until they are there, for all streams;
  /// it waits for no stream. The device of the memory has to be current, and this thread has to
  /// have used it (cudaSetDevice). Any offset and any target are legal. Where one of them, or
  /// `bytes`, is no multiple of 4096, cuFile reads to memory of its own on the device, and copies.
  /// Throws GdsError.
  std::size_t read(std::uint64_t offset, void* target, std::size_t bytes) const;

  /// For GdsReader.
  const detail::RegisteredFile& registered() const noexcept { return *file_; }

 private:
  std::shared_ptr<const detail::RegisteredFile> file_;
};

}  // namespace penstock::gds
