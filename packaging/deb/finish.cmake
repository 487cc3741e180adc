# SPDX-License-Identifier: Apache-2.0
#
# CPack runs this before it makes the packages: each gets its copyright file, in the place of the licence's text, and a
# changelog, in the folder that Debian has for them. Debian has compressed manual pages.

if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} name)
  set(package ${CPACK_DEBIAN_${name}_PACKAGE_NAME})
  set(doc ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr/share/doc)
  file(REMOVE_RECURSE ${doc})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright ${doc}/${package}/copyright COPYONLY)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, where it is set
  file(WRITE ${doc}/${package}/changelog.Debian
       "penstock (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
       "  * Packaged by CPack. CHANGELOG.md of the sources says what is new.\n\n"
       " -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}\n")
  file(GLOB manuals ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr/share/man/man1/*.1)
  execute_process(COMMAND gzip -9n ${doc}/${package}/changelog.Debian ${manuals} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
