// SPDX-License-Identifier: Apache-2.0

// A program that uses the installed penstock::gds where there is no cuFile: the error says so.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <penstock/gds/gds_source.hpp>
#include <penstock/record_file.hpp>
#include <penstock/tensor.hpp>
#include <string>

struct Rows {
  penstock::Tensor<std::uint8_t, 2> bytes;
};

int main() {
  const std::filesystem::path path = "records.bin";
  std::ofstream(path) << std::string(64, 'x');
  const penstock::RecordFile store({path}, 16);
  try {
    penstock::gds::gds_source(store, &Rows::bytes, {.file = {.library = "./libcufile.none"}});
  } catch (const penstock::gds::GdsError& error) {
    std::cout << error.what() << '\n';
    return std::string(error.what()).find("cuFile cannot be loaded") == 0 ? 0 : 1;
  }
  return 1;
}
