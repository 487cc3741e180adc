# SPDX-License-Identifier: Apache-2.0
#
# cmake -D BUILD_DIR=... -D SOURCE_DIR=... -D DESTINATION=... -P install_and_move.cmake
# Installs a build, moves the installed tree to DESTINATION, and checks that the package's files name
# neither the folder it was installed to nor the one it was built from.

file(REMOVE_RECURSE ${DESTINATION} ${DESTINATION}_first)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${DESTINATION}_first
                COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${DESTINATION}_first ${DESTINATION})

file(GLOB_RECURSE package_files ${DESTINATION}/*.cmake)
if(NOT package_files)
  message(FATAL_ERROR "No package files were installed.")
endif()
foreach(package_file IN LISTS package_files)
  file(READ ${package_file} text)
  foreach(path IN ITEMS ${DESTINATION}_first ${BUILD_DIR} ${SOURCE_DIR})
    string(FIND "${text}" "${path}" place)
    if(NOT place EQUAL -1)
      message(SEND_ERROR "${package_file} names ${path}: the installed tree cannot be moved.")
    endif()
  endforeach()
endforeach()
