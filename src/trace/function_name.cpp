// SPDX-License-Identifier: Apache-2.0
#include "function_name.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "demangling.hpp"
#include "kernel_names.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

using Header = ElfW(Ehdr);
using Section = ElfW(Shdr);
using Symbol = ElfW(Sym);

/// A file mapped for reading; empty if it cannot be opened.
class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status {};
    if (::fstat(file, &status) == 0 && status.st_size > 0) {
      void* const data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ,
                                MAP_PRIVATE, file, 0);
      if (data != MAP_FAILED) {
        data_ = static_cast<const char*>(data);
        size_ = static_cast<std::size_t>(status.st_size);
      }
    }
    ::close(file);
  }
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Returns `count` objects at `offset`, or null if the file is too short.
  template <class T>
  const T* at(std::uint64_t offset, std::uint64_t count = 1) const {
    if (offset > size_ || count > (size_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(data_ + offset);
  }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Returns the text at `offset` of a string table, or an empty string if the offset is outside.
std::string text_at(const MappedFile& file, const Section& texts, std::uint64_t offset) {
  const char* const text = file.at<char>(texts.sh_offset, texts.sh_size);
  if (text == nullptr || offset >= texts.sh_size) return {};
  return {text + offset, ::strnlen(text + offset, texts.sh_size - offset)};
}

/// Returns the function at `address` from the file's table of all symbols, including local ones.
std::string find_symbol(const MappedFile& file, std::uint64_t address) {
  const Header* const header = file.at<Header>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  const Section* const sections = file.at<Section>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return {};
  for (const Section* section = sections; section != sections + header->e_shnum; ++section) {
    if (section->sh_type != SHT_SYMTAB || section->sh_link >= header->e_shnum) continue;
    const std::uint64_t count = section->sh_size / sizeof(Symbol);
    const Symbol* const symbols = file.at<Symbol>(section->sh_offset, count);
    if (symbols == nullptr) return {};
    for (const Symbol* symbol = symbols; symbol != symbols + count; ++symbol)
      if (symbol->st_value == address && (symbol->st_info & 0xf) == STT_FUNC)
        return text_at(file, sections[section->sh_link], symbol->st_name);
  }
  return {};
}

bool remove_suffix(std::string& text, std::string_view suffix) {
  if (text.size() < suffix.size() || text.substr(text.size() - suffix.size()) != suffix)
    return false;
  text.resize(text.size() - suffix.size());
  return true;
}

}  // namespace

std::string shown_name(std::string demangled) {
  demangled = without_abi(std::move(demangled));
  remove_suffix(demangled, "(void*)");
  // Compilers use these names for the function to which a lambda without captures converts.
  remove_suffix(demangled, "::_FUN") || remove_suffix(demangled, "::__invoke");
  constexpr std::string_view kForEach = "penstock::detail::HostTask<";
  if (demangled.substr(0, kForEach.size()) == kForEach &&
      (remove_suffix(demangled, ">::run_once") || remove_suffix(demangled, ">::run_again"))) {
    demangled.erase(0, kForEach.size());
    remove_suffix(demangled, " ");  // between two brackets
  }
  return demangled;
}

std::string function_name(void (*function)()) {
  Dl_info info{};
  link_map* module = nullptr;
  void* const address = reinterpret_cast<void*>(function);
  if (::dladdr1(address, &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0) return {};
  if (info.dli_sname != nullptr && info.dli_saddr == address)
    return shown_name(demangled(info.dli_sname));
  const bool is_program = module->l_name[0] == '\0';
  const MappedFile file(is_program ? "/proc/self/exe" : module->l_name);
  return shown_name(
      demangled(find_symbol(file, reinterpret_cast<std::uintptr_t>(address) - module->l_addr)));
}

}  // namespace penstock::trace::detail
