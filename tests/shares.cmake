# SPDX-License-Identifier: Apache-2.0
#
# Which tests are left to `scripts/test --full`, and in which shares of them CI runs each: this is the one
# place that says so. A test that is not named here is quick, and runs every time.
#
# The budget: all that is quick, what CI has beside it each time (.ci/run: nvcc, headers alone, clang-tidy, a part of the
# release build) and one share together take 2 cores about half an hour, with an empty ccache too. So left to the shares is
# what is long (more than half a minute of the CPU), what repeats (further schedules and seeds), what needs a browser, what
# needs many sources that nothing else needs, and what another preset has in the quick run. Each quick program of the core
# and of the emulated runtime is in one preset: under AddressSanitizer and UBSan with random_1 penstock_serial_tests and the
# programs' common parts; under ThreadSanitizer with lazy penstock_tests, penstock_emulation_tests and the streams; without
# a sanitizer a fifth of penstock_fault_tests, and penstock_checks_tests with lazy. The endings, where memory and threads
# end, are under both.
#
# Each line: a share, and tests, by a regular expression. The first line that fits counts. They become the labels full and
# share_<n> (the others: quick). .ci/run runs one share with each commit, and says which. What is in them:
#
#    0  AddressSanitizer: penstock::remote, soaks, load, packer, trace, recorded fuzz inputs
#    1  AddressSanitizer: inference; the commands of the examples' pages, and the GPT
#    2  ThreadSanitizer: the examples but for what is in 13 and 14
#    3  ThreadSanitizer: penstock::images, penstock::remote, penstock::gds and penstock::video; faults
#    4  the ResNet examples, ranks as processes; with nvcc what must not compile
#    5  everything of the emulated preset is compiled, source by source and with hidden symbols; code that must not compile
#    6  without a sanitizer penstock::remote, endings, recorded fuzz inputs; the same, packer and trace under ThreadSanitizer
#    7  the core and the emulated runtime under AddressSanitizer; under ThreadSanitizer what the quick run has under
#       AddressSanitizer
#    8  packages
#    9  the commands of docs/; the site (.ci/run)
#   10  AddressSanitizer: the examples but for what is in 1
#   11  AddressSanitizer: penstock::images, penstock::gds, penstock::video, faults; penstock::gds and penstock::video without
#       a sanitizer
#   12  ThreadSanitizer: faults; with nvcc the tests of trace, images, gds and video; CUDA 12.4 (.ci/run)
#   13  ThreadSanitizer: inference, ranks as processes; with nvcc the smaller examples; the recipes of packaging/
#   14  recipes; programs under nsys (scripts/setup nsys); training and faults under ThreadSanitizer; with nvcc scripts
#       and tools
#   15  long runs, a browser, PyTorch; CUDA 12.9 (.ci/run)
#   16  further seeds and schedules, also under ThreadSanitizer; the core and its memory orders without a sanitizer; the
#       mutants compile (.ci/run)
#   17  the core and the emulated runtime: AddressSanitizer and ThreadSanitizer with further schedules
#   18  the commands of README.md; packages over the CUDA runtime
#   19  the commands of the ResNet's pages; fuzzing (.ci/run)
#   20  the release build with benchmarks, of which each other share compiles a part (.ci/run); the peers' programs
#   21  with nvcc the ResNet, and what no test needs (.ci/run)

set(penstock_share_count 22)

set(penstock_shares_plain
    "4 ^examples\\.resnet\\.(agreement|training|vectors)$"
    "4 ^examples\\.(resnet|ranks)\\."
    "14 ^programs\\.standard_streams$"
    "14 ^nsys\\."
    "20 ^scripts\\.peers"
    "8 ^package\\."
    "13 ^packaging\\."
    "18 ^doc_commands\\.readme$"
    "9 ^doc_commands\\.pages$"
    "1 ^doc_commands\\.examples$"
    "1 ^examples\\.gpt\\.(model|train\\.(learns|inputs|same|mistakes|interrupt|allocation)$)"
    "11 ^(examples|examples\\.program_text|doc_examples)\\.(video|gds)$"
    "19 ^doc_commands\\.resnet$"
    "5 ^configure\\.(after_setup_demo|pytorch_later|without_png)$"
    "9 ^scripts\\.docs$"
    "15 ^examples\\.(pytorch|libtorch|image_loader|gpt.*(pytorch|make_tokens)$)"
    "5 ^headers\\.(.*\\+\\+|header_only)$"
    "5 ^compile\\..*\\.rejects_"
    "15 ^penstock_(trace_page|soak|resume_test|verdict_drawn|verdict_few|shared_test)$"
    "15 ^penstock_(load|device_soak_emulated|slow_disk)\\."
    "16 ^penstock_fault_tests\\.(.*(eager|lazy)|[2-5]\\.random_1)$"
    "16 ^penstock_(tests|serial_tests|emulation_tests|ending_tests|stream_tests|checks)\\."
    "16 ^penstock_checks_tests\\.(eager|random_1)$"
    "6 ^(programs|stats_export|penstock_test_parts|penstock_emulation_(environment|absent_calls))$"
    "6 ^ending\\.(exit|fork|inside)\\."
    "6 ^fuzz\\."
    "6 ^(penstock_remote_client_tests|remote\\.servers)$"
    "6 ^ending\\..*\\.lazy$"
    "16 ^penstock_weak_(memory|pipeline)_tests$"
    "14 ^examples\\.recipes\\."
    "11 ^penstock_images_device_tests\\."
    "11 ^penstock_(gds|video)_"
    "6 ^penstock_trace_(foreign_tests|session_tests\\.lazy)$"
    "6 ^examples\\.(quickstart|minimal)\\..*(eager|lazy)$"
    "16 \\.random_[2-9]$")

set(penstock_shares_address
    "0 ^(penstock_remote_|remote\\.)"
    "11 ^penstock_fault_tests\\."
    "1 ^examples\\.resnet\\.(infer|prepare|agreement)"
    "11 ^penstock_(images|gds|video)_"
    "10 ^(examples|ladders|programs)\\."
    "0 ^penstock_(soak|resume_test|verdict_drawn|shared_test|trace)"
    "0 ^penstock_(load|clock|disk|device_soak_emulated)\\."
    "0 ^ending\\.(fork_checks|waits)"
    "0 ^(penstock_)?pack"
    "0 ^(fuzz|formats)\\."
    "7 ^penstock_(tests|emulation_tests|checks_tests|stream_tests)\\."
    "7 ^penstock_test_parts$"
    "7 ^penstock_emulation_(environment|absent_calls)$"
    "17 \\.(eager|lazy|random_[2-9])$")

set(penstock_shares_thread
    "3 ^(penstock_remote_|remote\\.)"
    "14 ^penstock_fault_tests\\..*random_1$"
    "3 ^penstock_fault_tests\\..*random_2$"
    "12 ^penstock_fault_tests\\..*(eager|lazy)$"
    "14 ^examples\\.resnet\\.(training|vectors)$"
    "13 ^examples\\.(ranks|resnet\\.distributed)\\."
    "13 ^examples\\.resnet\\.(infer|prepare|agreement)"
    "3 ^penstock_(images|gds|video)_"
    "2 ^(examples|ladders|programs)\\."
    "2 ^penstock_trace\\.(example|interrupt|minimal)$"
    "6 ^penstock_(soak|resume_test|verdict_drawn|shared_test|trace)"
    "6 ^penstock_(load|clock|disk|device_soak_emulated)\\."
    "6 ^ending\\.(fork_checks|waits)"
    "6 ^(penstock_)?pack"
    "6 ^(programs|stats_export)$"
    "6 ^fuzz\\."
    "7 ^penstock_(serial|checks)_tests\\."
    "17 \\.(eager|random_1)$"
    "16 \\.random_[2-9]$")

# Over the CUDA runtime: without a GPU most of it is only compiled. Quick are the core's GPU tests, CUDA's rules, the
# quickstart. The emulated preset has the tests of the last three lines in the quick run, too.
set(penstock_shares_cuda
    "12 ^penstock_(trace|images|gds|video)_gpu_tests$"
    "15 ^examples\\.(pytorch|libtorch)"
    "13 ^examples\\.(gpt|minimal|tokens|cccl|tensorrt|recipes|migration)\\.(.*\\.)?gpu$"
    "21 ^examples\\.(resnet|ranks)\\."
    "18 ^package\\."
    "13 ^penstock_weak_"
    "4 ^(compile\\.(layout|source|markers)|configure\\.(without_(headers|packages|png)|library|another|after|.*_later))"
    "14 ^(examples\\.(make_|program_text|recipes\\.pages)|fuzz|headers|pack|scripts|stats_export|penstock_emulation_rule)")

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
      set(share ${CMAKE_MATCH_1})
      if(test MATCHES "${CMAKE_MATCH_2}")
        set(labels full share_${share})
        break()
      endif()
    endforeach()
    set_property(TEST ${test} APPEND PROPERTY LABELS ${labels})
  endforeach()
endfunction()
