// SPDX-License-Identifier: Apache-2.0
//
// Compiles the functions of detail/storage.

#include <penstock/detail/storage/file.hpp>
#include <penstock/detail/storage/file_folder.hpp>
#include <penstock/detail/storage/mapped_records.hpp>
#include <penstock/detail/storage/mds_shards.hpp>
#include <penstock/detail/storage/npy_file.hpp>
#include <penstock/detail/storage/packed_file.hpp>
#include <penstock/detail/storage/packed_file_writer.hpp>
#include <penstock/detail/storage/packing.hpp>
#include <penstock/detail/storage/read_queue.hpp>
#include <penstock/detail/storage/record_file.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/storage/subset.hpp>
#include <penstock/detail/storage/tar_shards.hpp>
#include <penstock/detail/storage/tf_example.hpp>
#include <penstock/detail/storage/tf_record_file.hpp>
#include <penstock/detail/storage/token_file.hpp>
