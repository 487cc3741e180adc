// SPDX-License-Identifier: Apache-2.0

// make_cifar10: writes a synthetic data set in the format of CIFAR-10's binary version.
// Exit codes: 0 done, 1 writing failed, 2 wrong arguments, 130 interrupted.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "../common/progress.hpp"
#include "programs/command_line.hpp"
#include "programs/interrupt.hpp"
#include "programs/output_file.hpp"
#include "synthetic.hpp"

namespace {

struct Arguments {
  std::filesystem::path out, picture;
  synthetic::Options set;
  bool force = false;
};

void make_set(const Arguments& arguments) {
  examples::Progress progress("records", arguments.set.train + arguments.set.test);
  synthetic::make(arguments.out, arguments.set, [&](std::uint64_t done) {
    progress.to(done);
    return !penstock::programs::interrupted();
  });
}

int refuse(const std::string& why) {
  std::fprintf(stderr, "make_cifar10: %s\n", why.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Writes a synthetic data set, ten classes of shapes, in the format of CIFAR-10's binary "
      "version.");
  app.add_option("--out", arguments.out, "Directory to write to; made when it is missing");
  app.add_option("--seed", arguments.set.seed, "The same seed gives the same bytes")
      ->transform(penstock::programs::whole_number())
      ->capture_default_str();
  app.add_option("--train", arguments.set.train, "Training records, over five files")
      ->check(CLI::Range(5, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--test", arguments.set.test, "Test records")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_flag("--force", arguments.force, "Replace files that are there");
  app.add_option("--picture", arguments.picture,
                 "Also draw a sheet of examples of each class, a PPM file");
  if (const auto status = penstock::programs::parse(app, argc, argv)) return *status;
  if (arguments.out.empty() && arguments.picture.empty())
    return refuse("give --out DIR, --picture FILE or both");

  penstock::programs::watch_interrupts();
  try {
    if (!arguments.out.empty()) {
      if (!arguments.force && synthetic::would_replace(arguments.out))
        return refuse(arguments.out.string() + " has a data set already; --force replaces it");
      make_set(arguments);
    }
    if (!arguments.picture.empty()) synthetic::write_picture(arguments.picture, arguments.set.seed);
  } catch (const synthetic::Interrupted&) {
    return penstock::programs::interrupted_exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_cifar10: %s\n", error.what());
    return penstock::programs::is_interrupt(error) ? penstock::programs::interrupted_exit_code()
                                                   : 1;
  }
  return 0;
}
