// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an index.json of MDS says.

#include <cstddef>
#include <cstdint>
#include <penstock/detail/storage/json_reader.hpp>
#include <penstock/mds_shards.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

struct MdsIndexShard {
  std::string file, format, compression;  // compression: empty if there is none
  std::uint64_t bytes = 0, samples = 0, version = 0;
  std::vector<MdsColumn> columns;
};

/// Reads a list that has an entry for each column.
template <class Read>
void read_mds_list(JsonReader& json, std::vector<MdsColumn>& columns, std::size_t& lists,
                   const Read& read) {
  std::size_t count = 0;
  json.array([&] {
    if (count == columns.size()) {
      if (lists > 0) json.fail("the lists of the columns have different lengths");
      columns.emplace_back();
    }
    read(columns[count++]);
  });
  if (count != columns.size()) json.fail("the lists of the columns have different lengths");
  ++lists;
}

inline MdsIndexShard read_mds_shard(JsonReader& json) {
  MdsIndexShard shard;
  std::size_t lists = 0;
  json.object([&](const std::string& key) {
    if (key == "column_names") {
      read_mds_list(json, shard.columns, lists,
                    [&](MdsColumn& column) { column.name = json.string(); });
    } else if (key == "column_encodings") {
      read_mds_list(json, shard.columns, lists,
                    [&](MdsColumn& column) { column.encoding = json.string(); });
    } else if (key == "column_sizes") {
      read_mds_list(json, shard.columns, lists, [&](MdsColumn& column) {
        if (json.null()) return;
        column.bytes = json.number();
        if (column.bytes == 0 || column.bytes >> 32 != 0)
          json.fail("a column has 0 bytes, or more than 2^32");
      });
    } else if (key == "raw_data") {
      json.object([&](const std::string& of_data) {
        if (of_data == "basename")
          shard.file = json.string();
        else if (of_data == "bytes")
          shard.bytes = json.number();
        else
          json.skip();
      });
    } else if (key == "compression") {
      if (!json.null()) shard.compression = json.string();
    } else if (key == "format") {
      shard.format = json.string();
    } else if (key == "samples") {
      shard.samples = json.number();
    } else if (key == "version") {
      shard.version = json.number();
    } else {
      json.skip();
    }
  });
  if (lists != 3)
    json.fail("a shard has not the names, the encodings and the sizes of its columns");
  if (shard.file.empty()) json.fail("a shard has no raw_data with a basename");
  return shard;
}

/// Throws std::runtime_error.
inline std::vector<MdsIndexShard> read_mds_index(std::string_view text) {
  std::vector<MdsIndexShard> shards;
  std::uint64_t version = 0;
  JsonReader json(text);
  json.object([&](const std::string& key) {
    if (key == "version")
      version = json.number();
    else if (key == "shards")
      json.array([&] { shards.push_back(read_mds_shard(json)); });
    else
      json.skip();
  });
  json.end();
  if (version != 2)
    throw std::runtime_error("it has version " + std::to_string(version) +
                             " of the format, of which 2 is known");
  if (shards.empty()) throw std::runtime_error("it has no shards");
  for (const MdsIndexShard& shard : shards) {
    if (shard.version != 2 || shard.format != "mds")
      throw std::runtime_error("shard " + escaped(shard.file) + " has format \"" +
                               escaped(shard.format) + "\", version " +
                               std::to_string(shard.version) + ", of which \"mds\", 2 is known");
    if (shard.file.find('/') != std::string::npos || shard.file == "..")
      throw std::runtime_error("shard " + escaped(shard.file) + " is not in the folder");
    for (std::size_t i = 0; i < shard.columns.size(); ++i) {
      const auto& all = shards.front().columns;
      const MdsColumn& column = shard.columns[i];
      if (shard.columns.size() == all.size() && column.name == all[i].name &&
          column.encoding == all[i].encoding && column.bytes == all[i].bytes)
        continue;
      throw std::runtime_error("shard " + escaped(shard.file) +
                               " has other columns than the first one");
    }
    if (shard.columns.empty())
      throw std::runtime_error("shard " + escaped(shard.file) + " has no columns");
  }
  return shards;
}

}  // namespace penstock::detail
