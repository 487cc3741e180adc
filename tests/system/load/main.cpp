// SPDX-License-Identifier: Apache-2.0

// penstock_load NAME [SIZE]: pipelines under load, over the emulated runtime. Without a name: a
// list.

#include "scenario.hpp"
#include "scenarios.hpp"

int main(int argc, char** argv) {
  using namespace penstock::test;
  return run_scenario(
      argc, argv,
      {{"crowd", "batches by 256 workers", 500'000, crowd},
       {"pipelines", "batches of 64 pipelines at a time", 2'000'000, many_pipelines},
       {"devices", "batches on 4 devices, released where another is current", 500'000,
        four_devices},
       {"failures", "samples, one in a thousand of which fails", 20'000'000, failing_samples},
       {"cap", "acquisitions of pinned memory that is all in use", 500'000, at_the_cap},
       {"stops", "times SIGSTOP and SIGCONT, while next() waits", 20, stopped}});
}
