# SPDX-License-Identifier: Apache-2.0
#
# A program that calls functions which the emulated runtime does not have must not link. The linker must name each function of
# the page's table, and no other.
#   cmake "-DCXX=c++;FLAGS" -DLIBRARY=libpenstock_emulated.a -DOBJECT=absent_calls.cpp.o -DSOURCE_DIR=. -P absent_calls.cmake

cmake_minimum_required(VERSION 3.25)

file(READ ${SOURCE_DIR}/docs/emulation.md page)
string(REGEX MATCH "\n## What does not link\n.*\n## Limits" section "${page}")
string(REGEX MATCHALL "\n\\|[^|\n]*\\|[^|\n]*\\|" rows "${section}")
set(documented)
foreach(row IN LISTS rows)
  string(REGEX REPLACE "^\n\\|[^|]*\\|" "" examples "${row}")
  string(REGEX MATCHALL "`[A-Za-z0-9_]+`" names "${examples}")
  list(APPEND documented ${names})
endforeach()
list(TRANSFORM documented REPLACE "`" "")

execute_process(COMMAND ${CXX} ${OBJECT} ${LIBRARY} -ldl -lpthread -o /dev/null
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX MATCHALL "undefined reference to [`']_*cu[A-Za-z0-9_]+" found "${output}")
list(TRANSFORM found REPLACE "undefined reference to [`']" "")
list(REMOVE_DUPLICATES found)

set(wrong)
if(status EQUAL 0)
  list(APPEND wrong "the program links")
endif()
foreach(name IN LISTS documented)
  set(named FALSE)
  foreach(call IN LISTS found)
    if(call MATCHES "^${name}(_v[0-9]+)?$")
      set(named TRUE)
    endif()
  endforeach()
  if(NOT named)
    list(APPEND wrong "on the page, and not named by the linker: ${name}")
  endif()
endforeach()
foreach(call IN LISTS found)
  string(REGEX REPLACE "_v[0-9]+$" "" call "${call}")
  if(NOT call IN_LIST documented)
    list(APPEND wrong "named by the linker, and not on the page: ${call}")
  endif()
endforeach()
list(LENGTH found count)
if(wrong OR count EQUAL 0)
  list(JOIN wrong "\n  " text)
  message(FATAL_ERROR "calls that do not link:\n  ${text}\n${output}")
endif()
message(STATUS "${count} calls do not link")
