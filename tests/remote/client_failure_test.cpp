// SPDX-License-Identifier: Apache-2.0

// A pipeline goes on where an object cannot be read, and names the object.

#include <atomic>
#include <cstddef>
#include <cstring>
#include <penstock/file_folder.hpp>
#include <penstock/penstock.hpp>
#include <penstock/remote.hpp>
#include <string>
#include <vector>

#include "client_fixture.hpp"

namespace penstock::test {
namespace {

struct Batch {
  Tensor<std::uint8_t, 2> bytes;
};

TEST_CASE("Client: a sample that cannot be read is left out by its name, and the run goes on",
          "[remote]") {
  ClientFixture f;
  std::vector<std::string> names;
  for (int i = 0; i < 10; ++i) {
    names.push_back(std::to_string(i) + ".jpg");
    if (i != 7) f.server.put(names.back().c_str(), random_bytes(100, 1));
  }
  const remote::Client client(small());
  const auto photos =
      FileFolder::from_files(client.folder(f.server.url("/files/")), {names.begin(), names.end()});
  std::atomic<int> read{0};
  const auto source = [&, scratch = std::vector<std::byte>()](const Sample& sample,
                                                              Batch& batch) mutable {
    std::memcpy(&batch.bytes(sample.row, 0), photos.read(sample.index, scratch).data(), 100);
    ++read;
  };
  Prefetcher<Batch> prefetcher{Layout<Batch>{2}.field(&Batch::bytes, {100}),
                               Sampler{{.samples = 10, .batch_size = 2}},
                               per_sample(source),
                               {.workers = 2,
                                .epochs = 2,
                                .on_failure = FailurePolicy::skip(),
                                .read_ahead = read_ahead(photos, 2)}};
  const Stream stream;
  int batches = 0;
  while (prefetcher.next(stream.get())) ++batches;
  CHECK(batches == 10);
  CHECK(read == 18);
  const auto failures = prefetcher.failures();
  REQUIRE(failures.size() == 2);  // one in each epoch
  for (const Failure& failure : failures) {
    CHECK(failure.samples == std::vector<std::uint64_t>{7});
    INFO(failure.what);
    CHECK(failure.what.find("7.jpg") != std::string::npos);
    CHECK(failure.what.find("HTTP 404 (1 attempt") != std::string::npos);
  }
}

}  // namespace
}  // namespace penstock::test
