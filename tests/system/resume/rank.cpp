// SPDX-License-Identifier: Apache-2.0

// One process of a run, driven by resume_test.py: takes a batch, puts on record what it was, says
// where it stands (its State, as a line of its standard output), and waits for a line of its
// standard input: "save" (keeps the State in a file) or "go" (takes the next batch).
//
//   penstock_resume_rank KEY=NUMBER... record=FILE save=FILE [restore=FILE]
//
// Exits with 0 at the end of the run, with 3 when the State to go on at is refused.

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace penstock;

struct Arguments {
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const std::size_t equals = word.find('=');
      values[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  const std::string& text(const std::string& key) const { return values.at(key); }
  template <class Number>
  Number number(const std::string& key) const {
    return static_cast<Number>(std::stoull(values.at(key)));
  }
  std::map<std::string, std::string> values;
};

struct Numbers {
  Tensor<std::uint64_t, 1> sample;
};

Prefetcher<Numbers> make_prefetcher(const Arguments& arguments) {
  const auto batch_size = arguments.number<std::int64_t>("batch_size");
  return {Layout<Numbers>{batch_size}.field(&Numbers::sample, {}),
          Sampler{{.samples = arguments.number<std::uint64_t>("samples"),
                   .batch_size = batch_size,
                   .shuffle = true,
                   .seed = arguments.number<std::uint64_t>("seed"),
                   .rank = arguments.number<int>("rank"),
                   .world_size = arguments.number<int>("world_size")}},
          [](const Ticket& ticket, Numbers& batch) {
            for (std::size_t i = 0; i < ticket.samples.size(); ++i)
              batch.sample(static_cast<std::int64_t>(i)) = ticket.samples[i];
          },
          {.workers = arguments.number<int>("workers"),
           .host_depth = arguments.number<std::size_t>("host_depth"),
           .device_depth = arguments.number<std::size_t>("device_depth"),
           .epochs = arguments.number<std::uint64_t>("epochs")}};
}

/// What came to the device.
std::vector<std::uint64_t> read_back(const Lease<Numbers>& batch, const Stream& stream) {
  std::vector<std::uint64_t> samples(static_cast<std::size_t>(batch->sample.extent(0)));
  detail::check(
      cudaMemcpyAsync(samples.data(), batch->sample.data_handle(),
                      samples.size() * sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream.get()),
      "cudaMemcpyAsync");
  stream.synchronize();
  return samples;
}

void write(int file, const std::string& text) {
  if (::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("cannot write");
}

/// One line with the batch's place and its samples, in a single write to a file opened to append:
/// it is there or not, whenever this process is killed.
void put_on_record(int record, const Ticket& ticket, const std::vector<std::uint64_t>& samples) {
  std::string line = std::to_string(ticket.epoch) + ' ' + std::to_string(ticket.batch);
  for (const std::uint64_t sample : samples) line += ' ' + std::to_string(sample);
  write(record, line + '\n');
}

/// Does what the driver says until it says "go"; false: it went away.
bool wait_for_go(const State& state, const std::string& path) {
  for (std::string command; std::getline(std::cin, command);) {
    if (command == "go") return true;
    state.save(path);
    std::cout << "saved" << std::endl;
  }
  return false;
}

int run(const Arguments& arguments) {
  const Stream stream;
  Prefetcher<Numbers> prefetcher = make_prefetcher(arguments);
  if (arguments.values.count("restore") != 0) {
    try {
      prefetcher.restore(State::load(arguments.text("restore")));
    } catch (const std::invalid_argument& error) {
      std::cout << error.what() << std::endl;
      return 3;
    }
  }
  const int record =
      ::open(arguments.text("record").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  while (const auto batch = prefetcher.next(stream.get())) {
    put_on_record(record, batch.ticket(), read_back(batch, stream));
    std::cout << prefetcher.state() << std::endl;
    if (!wait_for_go(prefetcher.state(), arguments.text("save"))) return 1;
  }
  std::cout << "end" << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(Arguments(argc, argv));
} catch (const std::exception& error) {
  std::cerr << "penstock_resume_rank: " << error.what() << '\n';
  return 1;
}
