# SPDX-License-Identifier: Apache-2.0
#
# cmake -DPROGRAM=... -P check_parts.cmake: checks that every test case of the program is in exactly one of its parts
# (PENSTOCK_TEST_PART, main.cpp), and that the program refuses a part that does not exist.

cmake_minimum_required(VERSION 3.24)

function(list_test_cases part result)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PENSTOCK_TEST_PART=${part} ${PROGRAM} --list-test-names-only
                  OUTPUT_VARIABLE names ERROR_QUIET)  # the exit status is the number of test cases
  string(REPLACE ";" "," names "${names}")
  string(REGEX REPLACE "[][]" "|" names "${names}")  # a list cannot contain brackets
  string(REGEX REPLACE "\n+" ";" names "${names}")
  list(REMOVE_ITEM names "")
  set(${result} ${names} PARENT_SCOPE)
endfunction()

list_test_cases(1/1 all)
list(LENGTH all count)
if(count LESS 50)
  message(FATAL_ERROR "${PROGRAM} has ${count} test cases: too few to divide")
endif()
set(together)
foreach(part RANGE 1 3)
  list_test_cases(${part}/3 names)
  list(LENGTH names length)
  math(EXPR difference "3 * ${length} - ${count}")
  if(difference LESS -2 OR difference GREATER 2)
    message(FATAL_ERROR "part ${part} of 3 has ${length} of ${count} test cases")
  endif()
  list(APPEND together ${names})
endforeach()
list(SORT all)
list(SORT together)
if(NOT all STREQUAL together)
  list(REMOVE_ITEM all ${together})
  message(FATAL_ERROR "the parts are not the whole; what is missing: ${all}")
endif()

foreach(part IN ITEMS 0/3 4/3 1 1/3x "" 100000/100000)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PENSTOCK_TEST_PART=${part} ${PROGRAM} --list-test-names-only
                  RESULT_VARIABLE status ERROR_VARIABLE message OUTPUT_QUIET)
  if(NOT status EQUAL 2 OR NOT message MATCHES "such as 2/3|no test case")
    message(FATAL_ERROR "PENSTOCK_TEST_PART=${part} is not refused: ${status}, ${message}")
  endif()
endforeach()
