# SPDX-License-Identifier: Apache-2.0
#
# cmake -D SOURCE_DIR=... -D BUILD_DIR=... -D GENERATOR=... [-D OPTIONS=...] [-D HIDDEN=...] -D "EXPECTED=..."
#       -D RESULT=fails|succeeds [-D REMEDY=... -D REMEDIED=...] -P missing.cmake
# Configures the project without the packages HIDDEN, with OPTIONS. The output has to match each of the regular
# expressions EXPECTED, once its line breaks are spaces. With REMEDY, options of a second configuration in the same
# folder and with all packages, that one has to succeed, and one of the build's files has to match REMEDIED.

file(REMOVE_RECURSE ${BUILD_DIR})
list(TRANSFORM HIDDEN PREPEND -DCMAKE_DISABLE_FIND_PACKAGE_ OUTPUT_VARIABLE hide)
list(TRANSFORM hide APPEND =ON)
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${BUILD_DIR} -G ${GENERATOR} ${OPTIONS} ${hide}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if((result EQUAL 0) STREQUAL (RESULT STREQUAL "fails"))
  message(SEND_ERROR "The configuration ended with ${result}, and was to be one that ${RESULT}.")
endif()
string(REGEX REPLACE "[ \n]+" " " text "${output}")
foreach(expected IN LISTS EXPECTED)
  if(NOT text MATCHES "${expected}")
    message(SEND_ERROR "Nothing says: ${expected}")
    set(shown "${output}")
  endif()
endforeach()
if(REMEDY)
  list(TRANSFORM HIDDEN PREPEND -UCMAKE_DISABLE_FIND_PACKAGE_ OUTPUT_VARIABLE unhide)
  execute_process(COMMAND ${CMAKE_COMMAND} ${unhide} ${REMEDY} ${BUILD_DIR} RESULT_VARIABLE result OUTPUT_VARIABLE output
                                                                          ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(SEND_ERROR "With what was missing the configuration ended with ${result}.")
    set(shown "${output}")
  endif()
  file(GLOB files ${BUILD_DIR}/build.ninja ${BUILD_DIR}/CMakeFiles/Makefile2)
  set(text "")
  foreach(file IN LISTS files)
    file(READ ${file} part)
    string(APPEND text "${part}")
  endforeach()
  if(NOT text MATCHES "${REMEDIED}")
    message(SEND_ERROR "What was missing is there, and the build has no ${REMEDIED}.")
  endif()
endif()
if(shown)
  message("${shown}")
endif()
