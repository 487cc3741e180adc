// SPDX-License-Identifier: Apache-2.0

// make_images: writes a synthetic data set of JPEG or PPM files, in folders or in tar shards.
// Exit codes: 0 done, 1 writing failed, 2 wrong arguments, 130 interrupted.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>

#include "../common/progress.hpp"
#include "picture_set.hpp"
#include "programs/command_line.hpp"
#include "programs/interrupt.hpp"

namespace {

struct Arguments {
  std::filesystem::path out;
  picture_set::Options set;
};

void add_options(CLI::App& app, Arguments& arguments) {
  pictures::Options& pictures = arguments.set.pictures;
  app.add_option("--out", arguments.out, "Directory to write to; must not exist")->required();
  app.add_option("--train", arguments.set.train, "Training pictures")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--val", arguments.set.validation, "Pictures to evaluate with")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--classes", pictures.classes, "Ten forms, and with more than 10 classes colours")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--shards-of", arguments.set.pictures_in_shard,
                 "Write tar files of so many pictures; 0: a folder for each class")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--seed", pictures.seed, "The same seed gives the same pixels")
      ->transform(penstock::programs::whole_number())
      ->capture_default_str();
  app.add_option("--quality", pictures.quality, "Of the JPEG files")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  auto* width = app.add_option("--width", pictures.width, "Of all pictures; otherwise sizes vary")
                    ->check(CLI::Range(1, 65'500));
  auto* height =
      app.add_option("--height", pictures.height, "Of all pictures")->check(CLI::Range(1, 65'500));
  width->needs(height);
  height->needs(width);
  app.add_flag("--ppm", arguments.set.ppm, "PPM files, which need no decoding, in place of JPEG");
  app.add_flag(
      "--plain", pictures.plain,
      "Baseline files of 4:2:0 alone; otherwise a few are progressive, grey, CMYK, turned");
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Writes a synthetic data set of JPEG files that a network can learn.");
  add_options(app, arguments);
  if (const auto status = penstock::programs::parse(app, argc, argv)) return *status;
  penstock::programs::watch_interrupts();
  try {
    examples::Progress progress("pictures", arguments.set.train + arguments.set.validation);
    picture_set::make(arguments.out, arguments.set, [&](std::uint64_t done) {
      progress.to(done);
      return !penstock::programs::interrupted();
    });
  } catch (const picture_set::Interrupted&) {
    return penstock::programs::interrupted_exit_code();
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "make_images: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_images: %s\n", error.what());
    return 1;
  }
  return 0;
}
