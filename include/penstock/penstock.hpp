// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of penstock. Read from the top down: each header includes only those below it.

#include <penstock/dlpack.hpp>  // a lease as tensors of PyTorch and others, and theirs as ours

#include <penstock/prefetcher.hpp>  // the whole way of a batch, to a lease on the device

#include <penstock/batch_producer.hpp>   // workers that fill batches ahead
#include <penstock/memory_resource.hpp>  // pools and arenas for the containers of others
#include <penstock/readback.hpp>         // device results to host callbacks

#include <penstock/device_arena.hpp>      // device buffers, reused in stream order
#include <penstock/device_transform.hpp>  // what a prefetcher does to batches on the device
#include <penstock/launch.hpp>            // a functor for each index, in stream order
#include <penstock/pinned_pool.hpp>       // page-locked blocks, reused under a cap
#include <penstock/source.hpp>            // Ticket, Source: what fills a batch
#include <penstock/step_graph.hpp>        // a step as one CUDA graph for each slot

#include <penstock/any_sampler.hpp>         // anything that says which samples a batch is made of
#include <penstock/cuda.hpp>                // Stream, Event, guards
#include <penstock/file_folder.hpp>         // a file for each sample, a directory for each class
#include <penstock/layout.hpp>              // where the fields of a batch lie
#include <penstock/mapped_records.hpp>      // the records of a RecordFile, mapped
#include <penstock/mds_shards.hpp>          // MDS shards of MosaicML Streaming
#include <penstock/mixture.hpp>             // data sets that are mixed by weights
#include <penstock/npy_file.hpp>            // the rows of an array of NumPy
#include <penstock/packed_file.hpp>         // records of any size in one file, with checksums
#include <penstock/packed_file_writer.hpp>  // makes such a file
#include <penstock/packing.hpp>             // documents of tokens as sequences of one length
#include <penstock/ragged.hpp>              // a field of samples of different lengths
#include <penstock/record_file.hpp>         // records of fixed size in files
#include <penstock/sampler.hpp>             // shuffled, sharded, in constant memory
#include <penstock/subset.hpp>              // the samples that a filter keeps
#include <penstock/tar_shards.hpp>          // tar files, some members of which are a sample
#include <penstock/tf_example.hpp>          // the features of a tf.train.Example
#include <penstock/tf_record_file.hpp>      // records of any size in TFRecord files
#include <penstock/token_file.hpp>          // documents of tokens

#include <penstock/error.hpp>         // what is thrown
#include <penstock/failure.hpp>       // what becomes of batches that fail
#include <penstock/file.hpp>          // a file that is read at any offset, wherever its bytes are
#include <penstock/markers.hpp>       // NVTX ranges
#include <penstock/placement.hpp>     // cores of threads, place of pinned memory
#include <penstock/ranks.hpp>         // which process of a job this one is
#include <penstock/read_ahead.hpp>    // what storage is told of the batches that come later
#include <penstock/read_queue.hpp>    // many reads in flight at a time
#include <penstock/state.hpp>         // where a run stands, as text
#include <penstock/stats.hpp>         // where the time went
#include <penstock/stats_export.hpp>  // the same for Prometheus, and as JSON
#include <penstock/store.hpp>         // where the bytes of the samples are
#include <penstock/stream_ref.hpp>    // how functions take a stream
#include <penstock/tensor.hpp>        // the view of a field
#include <penstock/token_type.hpp>    // how files store tokens
#include <penstock/tune.hpp>          // workers and depths that are found while it runs
#include <penstock/tuning.hpp>        // what was found, and why
#include <penstock/upstream.hpp>      // memory of yours for pools and arenas
#include <penstock/verdict.hpp>       // what bounds a pipeline, and what to change
