// SPDX-License-Identifier: Apache-2.0

// Runs a fuzz target without libFuzzer: once for each file of the directories, and for some inputs
// that are made of them, the same ones each time. Finds what is near the corpus; scripts/fuzz, with
// libFuzzer, what is far.
//
//   penstock_replay_state [--mutations COUNT] DIRECTORY...     COUNT for each file; 0 without

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz.hpp"

namespace {

using Bytes = std::vector<char>;

constexpr unsigned kSeconds = 60;                       // for one input
constexpr long kMostMemory = long{2} << 20;             // KiB of the process, sanitizers included
constexpr std::size_t kLongest = std::size_t{1} << 16;  // of what is made

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& inputs) : inputs_(inputs) {}

  Bytes make(const Bytes& from) {
    Bytes bytes = from;
    for (std::size_t changes = 1 + random(4); changes > 0; --changes) change(bytes);
    if (bytes.size() > kLongest) bytes.resize(kLongest);
    return bytes;
  }

 private:
  void change(Bytes& bytes) {
    const std::size_t at = random(bytes.size() + 1);
    const std::size_t length = random(bytes.size() - at + 1);
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = begin + static_cast<std::ptrdiff_t>(length);
    switch (random(6)) {
      case 0:
        if (length > 0) *begin = static_cast<char>(*begin ^ (1 << random(8)));
        return;
      case 1:
        bytes.erase(begin, end);
        return;
      case 2: {
        const Bytes part(begin, end);
        bytes.insert(begin, part.begin(), part.end());
        return;
      }
      case 3:
        return set_number(bytes, at);
      case 4: {
        const Bytes& other = inputs_[random(inputs_.size())];
        const std::size_t from = random(other.size() + 1);
        bytes.erase(begin, bytes.end());
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        return;
      }
      default:
        bytes.insert(begin, static_cast<char>(random(256)));
    }
  }

  /// One at which something overflows.
  void set_number(Bytes& bytes, std::size_t at) {
    constexpr std::array<std::uint64_t, 7> kNumbers{
        0, 1, 0x7FFF'FFFF, 0xFFFF'FFFF, 0x7FFF'FFFF'FFFF'FFFF, 0x8000'0000'0000'0000, ~0ULL};
    const std::uint64_t number = kNumbers[random(kNumbers.size())];
    const std::size_t size = std::min(bytes.size() - at, std::size_t{1} << random(4));
    if (size == 0) return;  // An input without bytes has no address.
    std::memcpy(bytes.data() + at, &number, size);
  }

  std::size_t random(std::size_t below) { return generator_() % below; }

  const std::vector<Bytes>& inputs_;
  std::mt19937_64 generator_{1};
};

std::vector<std::filesystem::path> files_of(int directories, char** names) {
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < directories; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(names[i]))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

Bytes bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const Bytes* current = nullptr;

/// Keeps the input that ends the process.
extern "C" void keep_input(int signal) {
  const std::string name = "replay_failed_" + std::to_string(::getpid());
  const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file >= 0 && ::write(file, current->data(), current->size()) >= 0)
    std::fprintf(stderr, "The input is in %s.\n", name.c_str());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Bytes& bytes) {
  current = &bytes;
  ::alarm(kSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

bool takes_little_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  if (usage.ru_maxrss < kMostMemory) return true;
  std::fprintf(stderr, "took %ld MiB of memory\n", usage.ru_maxrss / 1024);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  unsigned long mutations = 0;
  if (argc > 2 && std::string_view(argv[1]) == "--mutations") {
    mutations = std::strtoul(argv[2], nullptr, 10);
    argc -= 2;
    argv += 2;
  }
  for (const int signal : {SIGABRT, SIGALRM}) std::signal(signal, keep_input);
  const std::vector<std::filesystem::path> files = files_of(argc - 1, argv + 1);
  std::vector<Bytes> inputs;
  for (const auto& file : files) inputs.push_back(bytes_of(file));
  Mutator mutator(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::printf("%s\n", files[i].c_str());
    std::fflush(stdout);
    run(inputs[i]);
    for (unsigned long k = 0; k < mutations; ++k) {
      run(mutator.make(inputs[i]));
    }
  }
  std::printf("%zu inputs, and %lu made of each\n", inputs.size(), mutations);
  return !inputs.empty() && takes_little_memory() ? 0 : 1;
}
