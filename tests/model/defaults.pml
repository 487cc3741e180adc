/* SPDX-License-Identifier: Apache-2.0
 *
 * What a configuration says, and what holds where it says nothing. All models:
 *
 *   WORKERS, BLOCKS, BATCHES; DEPTH: records of a BatchProducer; ERRORS: of CUDA's and of the source,
 *   anywhere; LOST: from some call on, every call fails; ENDS: the source may say that there is no
 *   more; SKIPS: a failure may be one that the policy deals with; UNORDERED; CLOSES: the consumer may
 *   leave after any call; RESTORES: and once begin anew, or where it stands; STOPS: another thread
 *   calls stop().
 *
 * pipeline.pml: SLOTS; CONSUMERS: threads in next(); HOLDERS: threads that end leases; DEVICE: copies
 * and kernels take time, and read and write; ON_DEVICE: the source writes slots, and nothing is copied.
 */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef BATCHES
#define BATCHES 3
#endif
#ifndef ERRORS
#define ERRORS 0
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#ifndef HOLDERS
#define HOLDERS 1
#endif

#define NONE 255
