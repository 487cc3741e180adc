# SPDX-License-Identifier: Apache-2.0
#
# Which tests are left to `scripts/test --full`, and in which shares of them CI runs each: this is the one
# place that says so. A test that is not named here is quick, and runs every time.
#
# The budget: all that is quick takes 20 minutes of the CPU, with the compilation of what it needs; what CI
# has beside it each day (.ci/run: nvcc, headers alone, clang-tidy, a part of the release build) 12, and a share
# at most 31 more, so that 2 cores are done in 35 minutes. So left to the shares is what is long (more than half a minute of the CPU),
# what repeats (further seeds of the random schedule), what needs a browser, and what needs many sources that
# nothing else needs. What guards the library itself is quick: penstock_tests, penstock_emulation_tests and
# penstock_checks_tests under AddressSanitizer with eager and random_1, and under ThreadSanitizer with lazy. Without a
# sanitizer they are compiled and run once a week, and under ThreadSanitizer with random_1 three times.
#
# Each line: shares, and tests, by a regular expression. The first line that fits counts. They become
# the labels full and share_<n> (the others: quick); .ci/run runs share n on weekday n, 0 being Sunday (UTC).
# The figure is about how many seconds of the CPU a share takes: of 2 and 3 the examples and of 6 ThreadSanitizer's
# part were measured (2 cores, 24 November 2026), the rest is estimated by what the same programs took elsewhere;
# of the commands of the pages, by what they took beside other work, with an empty ccache (26 November).
#
#   0  1,850  AddressSanitizer but for what is in 1; packages over the CUDA runtime; the commands of README.md
#   1  1,400  AddressSanitizer: inference, penstock::images, faults; the release build with benchmarks, of which each
#             other day compiles a sixth, and with nvcc the ResNet and what no test needs (.ci/run)
#   2  1,770  ThreadSanitizer: the examples but for what is in 3; faults; fuzzing (.ci/run); the commands of the ResNet's
#             pages
#   3  1,400  ThreadSanitizer: inference, penstock::images, ranks as processes; CUDA 12.4 (.ci/run)
#   4  1,400  the ResNet examples, ranks as processes; training under ThreadSanitizer; programs under nsys
#             (scripts/setup nsys); CUDA 12.9 (.ci/run)
#   5  1,810  of the emulated preset all is compiled, source by source; packages, long runs, a browser; the commands of
#             the other pages; the site (.ci/run)
#   6  1,450  further seeds and schedules; the rest under ThreadSanitizer; fuzzing (.ci/run)

set(penstock_shares_plain
    "4 ^examples\\.resnet\\.(agreement|training|vectors)$"
    "4 ^examples\\.(resnet|ranks)\\."
    "4 ^programs\\.standard_streams$"
    "4 ^nsys\\."
    "1 ^scripts\\.peers"
    "5 ^package\\."
    "0 ^doc_commands\\.readme$"
    "2 ^doc_commands\\.resnet$"
    "5 ^doc_commands\\.pages$"
    "5 ^configure\\.(after_setup_demo|pytorch_later|without_png)$"
    "5 ^scripts\\.docs$"
    "5 ^examples\\.(pytorch|libtorch|image_loader)"
    "5 ^headers\\..*\\+\\+$"
    "5 ^penstock_(trace_page|soak|resume_test|verdict_drawn|shared_test)$"
    "5 ^penstock_(load|device_soak_emulated|slow_disk)\\."
    "6 ^penstock_fault_tests\\.(eager|lazy)$"
    "6 ^penstock_(tests|emulation_tests|checks_tests)\\."
    "6 ^fuzz\\."
    "6 ^ending\\..*\\.lazy$"
    "6 ^penstock_trace_session_tests\\.lazy$"
    "6 ^examples\\.(quickstart|minimal)\\..*(eager|lazy)$"
    "6 \\.random_[2-9]$")

set(penstock_shares_address
    "1 ^penstock_fault_tests\\."
    "1 ^examples\\.resnet\\.(infer|prepare|agreement)"
    "1 ^penstock_images_"
    "0 ^(examples|ladders|programs)\\."
    "0 ^penstock_(soak|resume_test|verdict_drawn|shared_test|trace)"
    "0 ^penstock_(load|clock|disk|device_soak_emulated)\\."
    "0 ^ending\\.(fork_checks|waits)"
    "0 ^(penstock_)?pack"
    "0 ^fuzz\\."
    "0 \\.lazy$"
    "0 \\.random_[2-9]$")

set(penstock_shares_thread
    "4 ^penstock_fault_tests\\.random_1$"
    "3 ^penstock_fault_tests\\.random_2$"
    "2 ^penstock_fault_tests\\.(eager|lazy)$"
    "4 ^examples\\.resnet\\.(training|vectors)$"
    "3 ^examples\\.(ranks|resnet\\.distributed)\\."
    "3 ^examples\\.resnet\\.(infer|prepare|agreement)"
    "3 ^penstock_images_"
    "2 ^(examples|ladders|programs)\\."
    "2 ^penstock_trace\\.(example|interrupt|minimal)$"
    "6 ^penstock_(soak|resume_test|verdict_drawn|shared_test|trace)"
    "6 ^penstock_(load|clock|disk|device_soak_emulated)\\."
    "6 ^ending\\.(fork_checks|waits)"
    "6 ^(penstock_)?pack"
    "6 ^fuzz\\."
    "6 \\.eager$"
    "035 \\.random_1$"
    "6 \\.random_[2-9]$")

# Over the CUDA runtime: without a GPU most of it is only compiled, and that twice a week. Each day: the core's
# GPU tests, CUDA's rules, the quickstart. Of the last three lines the emulated preset has the same each day.
set(penstock_shares_cuda
    "25 ^penstock_(trace|images)_gpu_tests$"
    "25 ^examples\\.(pytorch|libtorch)"
    "03 ^examples\\.(minimal|tokens|cccl|tensorrt|recipes|migration)\\.(.*\\.)?gpu$"
    "14 ^examples\\.(resnet|ranks)\\."
    "0 ^package\\."
    "3 ^penstock_weak_memory_tests$"
    "4 ^(compile\\.(layout|source|markers)|configure\\.(without_(headers|packages|png)|library|another|after|.*_later))"
    "4 ^(examples\\.(make_|program_text|recipes\\.pages)|fuzz|headers|pack|scripts|stats_export|penstock_emulation_rule)")

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
