# SPDX-License-Identifier: Apache-2.0
#
# Which tests are left to `scripts/test --full`, and in which shares of them CI runs each: this is the one
# place that says so. A test that is not named here is quick, and runs every time.
#
# The budget: all that is quick takes 19 minutes of the CPU, with the compilation of what it needs; what CI has beside it
# each time (.ci/run: nvcc, headers alone, clang-tidy, a part of the release build) 12, and a share at most 23 more, so
# that 2 cores are done in 30 minutes, with an empty ccache too. So left to the shares is what is long (more than half a
# minute of the CPU), what repeats (further schedules and seeds), what needs a browser, what needs many sources that
# nothing else needs, and what another preset has in the quick run. Each quick program of the core and of the emulated
# runtime is in one preset: under AddressSanitizer and UBSan with random_1 penstock_serial_tests and the programs' common
# parts; under ThreadSanitizer with lazy penstock_tests, penstock_emulation_tests and the streams; without a sanitizer a
# fifth of penstock_fault_tests, and penstock_checks_tests with lazy. The endings, where memory and threads end, are under
# both.
#
# Each line: shares, and tests, by a regular expression. The first line that fits counts. They become
# the labels full and share_<n> (the others: quick). .ci/run runs one share with each commit, and says which.
# The figure is about how many seconds of the CPU a share takes: of 2 and 3 the examples and of 6 ThreadSanitizer's
# part were measured (2 cores, 24 November 2026), the rest is estimated by what the same programs took elsewhere;
# of the commands of the pages, by what they took beside other work, with an empty ccache (26 November).
#
#   0  1,300  AddressSanitizer but for what is in 1 and 7
#   1  1,400  AddressSanitizer: inference, penstock::images, faults; the release build with benchmarks, of which each
#             other share compiles a part, and with nvcc the ResNet and what no test needs (.ci/run)
#   2  1,150  ThreadSanitizer: the examples but for what is in 3; faults
#   3  1,300  ThreadSanitizer: inference, penstock::images, ranks as processes; CUDA 12.4 (.ci/run)
#   4  1,250  the ResNet examples, ranks as processes; training under ThreadSanitizer; programs under nsys
#             (scripts/setup nsys)
#   5  1,100  of the emulated preset all is compiled, source by source; long runs, a browser; what must not compile
#   6  1,250  without a sanitizer further seeds and schedules, and the core; the rest under ThreadSanitizer; fuzzing (.ci/run)
#   7  1,200  the core and the emulated runtime: AddressSanitizer with eager and lazy, ThreadSanitizer with eager and
#             random_1; and with the quick run's schedule what that has under the other sanitizer
#   8  1,350  packages, over the CUDA runtime too; the commands of README.md; CUDA 12.9 (.ci/run)
#   9  1,300  the commands of the other pages; the site, fuzzing (.ci/run)

set(penstock_share_count 10)

set(penstock_shares_plain
    "4 ^examples\\.resnet\\.(agreement|training|vectors)$"
    "4 ^examples\\.(resnet|ranks)\\."
    "4 ^programs\\.standard_streams$"
    "4 ^nsys\\."
    "1 ^scripts\\.peers"
    "8 ^package\\."
    "8 ^doc_commands\\.readme$"
    "9 ^doc_commands\\.(resnet|pages)$"
    "5 ^configure\\.(after_setup_demo|pytorch_later|without_png)$"
    "9 ^scripts\\.docs$"
    "5 ^examples\\.(pytorch|libtorch|image_loader)"
    "5 ^headers\\.(.*\\+\\+|header_only)$"
    "5 ^compile\\..*\\.rejects_"
    "5 ^penstock_(trace_page|soak|resume_test|verdict_drawn|verdict_few|shared_test)$"
    "5 ^penstock_(load|device_soak_emulated|slow_disk)\\."
    "6 ^penstock_fault_tests\\.(.*(eager|lazy)|[2-5]\\.random_1)$"
    "6 ^penstock_(tests|serial_tests|emulation_tests|ending_tests|stream_tests|checks)\\."
    "6 ^penstock_checks_tests\\.(eager|random_1)$"
    "6 ^(programs|stats_export|penstock_test_parts|penstock_emulation_(environment|absent_calls))$"
    "6 ^ending\\.(exit|fork|inside)\\."
    "6 ^fuzz\\."
    "6 ^(penstock_remote_client_tests|remote\\.servers)$"
    "6 ^ending\\..*\\.lazy$"
    "6 ^penstock_weak_pipeline_tests$"
    "6 ^penstock_trace_(foreign_tests|session_tests\\.lazy)$"
    "6 ^examples\\.(quickstart|minimal)\\..*(eager|lazy)$"
    "6 \\.random_[2-9]$")

set(penstock_shares_address
    "0 ^(penstock_remote_(client_)?tests|remote\\.servers)$"
    "1 ^penstock_fault_tests\\."
    "1 ^examples\\.resnet\\.(infer|prepare|agreement)"
    "1 ^penstock_images_"
    "0 ^(examples|ladders|programs)\\."
    "0 ^penstock_(soak|resume_test|verdict_drawn|shared_test|trace)"
    "0 ^penstock_(load|clock|disk|device_soak_emulated)\\."
    "0 ^ending\\.(fork_checks|waits)"
    "0 ^(penstock_)?pack"
    "0 ^fuzz\\."
    "7 ^penstock_(tests|emulation_tests|checks_tests|stream_tests)\\."
    "7 ^penstock_test_parts$"
    "7 ^penstock_emulation_(environment|absent_calls)$"
    "7 \\.(eager|lazy|random_[2-9])$")

set(penstock_shares_thread
    "3 ^(penstock_remote_(client_)?tests|remote\\.servers)$"
    "4 ^penstock_fault_tests\\..*random_1$"
    "3 ^penstock_fault_tests\\..*random_2$"
    "2 ^penstock_fault_tests\\..*(eager|lazy)$"
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
    "6 ^(programs|stats_export)$"
    "6 ^fuzz\\."
    "7 ^penstock_(serial|checks)_tests\\."
    "7 \\.(eager|random_1)$"
    "6 \\.random_[2-9]$")

# Over the CUDA runtime: without a GPU most of it is only compiled. Quick are the core's GPU tests, CUDA's rules, the
# quickstart. Of the last three lines the emulated preset has the same in the quick run.
set(penstock_shares_cuda
    "2 ^penstock_(trace|images)_gpu_tests$"
    "5 ^examples\\.(pytorch|libtorch)"
    "3 ^examples\\.(minimal|tokens|cccl|tensorrt|recipes|migration)\\.(.*\\.)?gpu$"
    "1 ^examples\\.(resnet|ranks)\\."
    "8 ^package\\."
    "3 ^penstock_weak_"
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
      string(REGEX MATCH "^([0-9]+) (.*)$" matched "${line}")
      set(shares ${CMAKE_MATCH_1})
      if(test MATCHES "${CMAKE_MATCH_2}")
        string(REGEX REPLACE "([0-9])" ";share_\\1" labels full${shares})
        break()
      endif()
    endforeach()
    set_property(TEST ${test} APPEND PROPERTY LABELS ${labels})
  endforeach()
endfunction()
