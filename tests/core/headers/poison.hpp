// SPDX-License-Identifier: Apache-2.0
#pragma once

// Macros with the names that headers of other libraries define: <complex.h> (I), <termios.h> (B0),
// X11 (Bool, None, Status, Success), Windows (small, near, far, interface), and the single letters
// of old mathematics code. A header of penstock that uses one of them as a name does not compile
// after this file. T and F are left out: they are the template parameters of penstock and of CUDA's
// headers.

// CUDA's headers are not under test, and use some of these names.
#include <cuda_runtime_api.h>

#include <nvtx3/nvToolsExtCudaRt.h>
#include <cuda/std/mdspan>

#define A poisoned_by_penstock +
#define B poisoned_by_penstock +
#define C poisoned_by_penstock +
#define D poisoned_by_penstock +
#define E poisoned_by_penstock +
#define G poisoned_by_penstock +
#define H poisoned_by_penstock +
#define I poisoned_by_penstock +
#define J poisoned_by_penstock +
#define K poisoned_by_penstock +
#define L poisoned_by_penstock +
#define M poisoned_by_penstock +
#define N poisoned_by_penstock +
#define O poisoned_by_penstock +
#define P poisoned_by_penstock +
#define Q poisoned_by_penstock +
#define R poisoned_by_penstock +
#define S poisoned_by_penstock +
#define U poisoned_by_penstock +
#define V poisoned_by_penstock +
#define W poisoned_by_penstock +
#define X poisoned_by_penstock +
#define Y poisoned_by_penstock +
#define Z poisoned_by_penstock +
#define B0 poisoned_by_penstock +
#define Bool poisoned_by_penstock +
#define Status poisoned_by_penstock +
#define None poisoned_by_penstock +
#define Success poisoned_by_penstock +
#define Always poisoned_by_penstock +
#define ERROR poisoned_by_penstock +
#define CHECK poisoned_by_penstock +
#define LOG poisoned_by_penstock +
#define OK poisoned_by_penstock +
#define IN poisoned_by_penstock +
#define OUT poisoned_by_penstock +
#define TRUE poisoned_by_penstock +
#define FALSE poisoned_by_penstock +
#define DEBUG poisoned_by_penstock +
#define DOMAIN poisoned_by_penstock +
#define small poisoned_by_penstock +
#define near poisoned_by_penstock +
#define far poisoned_by_penstock +
#define interface poisoned_by_penstock +
#undef linux
#define linux poisoned_by_penstock +
#undef unix
#define unix poisoned_by_penstock +
