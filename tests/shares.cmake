# SPDX-License-Identifier: Apache-2.0
#
# Which tests are left to `scripts/test --full`, and in which share of them CI runs each: this is the one
# place that says so. A test that is not named here is quick, and runs every time.
#
# The budget: all that is quick takes 20 minutes of the CPU, with the compilation of what it needs; a
# share at most 20 more. So left to the shares is what is long (more than half a minute of the CPU), what
# repeats (further seeds of the random schedule), what needs a browser, and what needs many sources
# that nothing else needs. What guards the library itself is quick: its mutants are killed by
# penstock_tests, penstock_ending_tests, penstock_checks_tests, penstock_emulation_tests and
# penstock_weak_memory_tests under eager, lazy and random_1, and lazy and random_1 of ThreadSanitizer.
#
# Each line: a share, and tests, by a regular expression. The first line that fits counts. They become
# the labels full and share_<n>; .ci/run runs share n on weekday n, 0 being Sunday (UTC).
#
#   0  AddressSanitizer: the examples but for inference     1  inference, penstock::images
#   2  ThreadSanitizer: the examples but for inference      3  inference, penstock::images; CUDA 12 (.ci/run)
#   4  the ResNet examples, ranks as processes; their training and the faults under ThreadSanitizer;
#      programs under nsys (scripts/setup nsys)
#   5  whatever no test needs is compiled too; packages, long runs, a browser; benchmarks (.ci/run)
#   6  further seeds and schedules everywhere; the rest under the sanitizers

set(penstock_shares_plain
    "4 ^examples\\.resnet\\.(agreement|training|vectors)$"
    "4 ^examples\\.(resnet|ranks)\\."
    "4 ^nsys\\."
    "5 ^package\\."
    "5 ^scripts\\.docs$"
    "5 ^examples\\.(pytorch|libtorch)"
    "5 ^headers\\..*\\+\\+$"
    "5 ^penstock_(trace_page|soak|resume_test|verdict_drawn|shared_test)$"
    "5 ^penstock_(load|device_soak_emulated|slow_disk)\\."
    "6 ^penstock_fault_tests\\.lazy$"
    "6 ^ending\\..*\\.lazy$"
    "6 ^penstock_trace_session_tests\\.lazy$"
    "6 ^examples\\.(quickstart|minimal)\\..*(eager|lazy)$"
    "6 \\.random_[2-9]$")

set(penstock_shares_address
    "1 ^penstock_fault_tests\\.random_1$"
    "1 ^examples\\.resnet\\.(infer|prepare|agreement)"
    "1 ^penstock_images_"
    "0 ^examples\\."
    "0 ^penstock_trace\\.(example|interrupt|minimal)$"
    "6 ^penstock_(soak|resume_test|verdict_drawn|shared_test|trace)"
    "6 ^penstock_(load|clock|disk|device_soak_emulated)\\."
    "6 ^ending\\.(fork_checks|waits)"
    "6 ^(penstock_)?pack"
    "6 ^fuzz\\."
    "6 ^penstock_(tests|fault_tests|emulation_tests)\\.eager$"
    "6 \\.lazy$"
    "6 \\.random_[2-9]$")

set(penstock_shares_thread
    "4 ^penstock_fault_tests\\.random_1$"
    "4 ^examples\\.resnet\\.(training|vectors)$"
    "3 ^examples\\.resnet\\.(infer|prepare|agreement)"
    "3 ^penstock_images_"
    "2 ^examples\\."
    "2 ^penstock_trace\\.(example|interrupt|minimal)$"
    "6 ^penstock_(soak|resume_test|verdict_drawn|shared_test|trace)"
    "6 ^penstock_(load|clock|disk|device_soak_emulated)\\."
    "6 ^ending\\.(fork_checks|waits)"
    "6 ^(penstock_)?pack"
    "6 ^fuzz\\."
    "6 ^penstock_fault_tests\\.lazy$"
    "6 \\.eager$"
    "6 \\.random_[2-9]$")

# What is left of it to each day: the core's GPU tests, CUDA's rules, the quickstart. The last line: what the
# emulated preset runs each day, compiled the same way.
set(penstock_shares_cuda
    "25 ^penstock_(trace|images)_gpu_tests$"
    "36 ^examples\\.(minimal|tokens|cccl|tensorrt|recipes|migration)\\.(.*\\.)?gpu$"
    "25 ^examples\\.(pytorch|libtorch)"
    "14 ^examples\\.(resnet|ranks)\\."
    "0 ^package\\."
    "3 ^(compile\\.(layout|source|markers)|examples\\.(make_|program_text|recipes\\.pages$)|fuzz|headers|pack|scripts)"
    "3 ^(configure\\.(without_(headers|packages|png)|library|another)|penstock_(emulation_rule|weak)|stats_export$)")

if(PENSTOCK_THREAD_SANITIZER)
  set(penstock_shares ${penstock_shares_thread})
elseif(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(penstock_shares ${penstock_shares_address})
elseif(PENSTOCK_WITH_CUDA AND NOT PENSTOCK_WITH_EMULATION)
  set(penstock_shares ${penstock_shares_cuda})
else()
  set(penstock_shares ${penstock_shares_plain})
endif()

# Labels the tests of the current folder.
function(penstock_label_tests)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    set(labels quick)
    foreach(line IN LISTS penstock_shares)
      string(REGEX MATCH "^([0-6]+) (.*)$" matched "${line}")
      set(shares ${CMAKE_MATCH_1})
      if(test MATCHES "${CMAKE_MATCH_2}")
        string(REGEX REPLACE "([0-6])" ";share_\\1" labels full${shares})
        break()
      endif()
    endforeach()
    set_property(TEST ${test} APPEND PROPERTY LABELS ${labels})
  endforeach()
endfunction()
