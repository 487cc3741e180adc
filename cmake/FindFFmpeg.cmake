# SPDX-License-Identifier: Apache-2.0
#
# Finds FFmpeg's libavformat, libavcodec and libavutil, which penstock::video needs: the target FFmpeg::FFmpeg. FFmpeg_ROOT, or
# PKG_CONFIG_PATH, says where they are, if that is an unusual place. FFmpeg has no package of CMake of its own.

find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(PENSTOCK_FFMPEG_PC QUIET libavformat libavcodec libavutil)
endif()
find_path(PENSTOCK_FFMPEG_INCLUDE_DIR libavformat/avformat.h HINTS ${PENSTOCK_FFMPEG_PC_INCLUDE_DIRS})
mark_as_advanced(PENSTOCK_FFMPEG_INCLUDE_DIR)
set(_penstock_ffmpeg_libraries)
foreach(_penstock_part IN ITEMS avformat avcodec avutil)
  find_library(PENSTOCK_FFMPEG_${_penstock_part} ${_penstock_part} HINTS ${PENSTOCK_FFMPEG_PC_LIBRARY_DIRS})
  mark_as_advanced(PENSTOCK_FFMPEG_${_penstock_part})
  list(APPEND _penstock_ffmpeg_libraries PENSTOCK_FFMPEG_${_penstock_part})
endforeach()

# The version of libavformat decides; it is 59 in FFmpeg 5.0.
foreach(_penstock_header IN ITEMS version_major version)
  set(_penstock_file ${PENSTOCK_FFMPEG_INCLUDE_DIR}/libavformat/${_penstock_header}.h)
  foreach(_penstock_part IN ITEMS MAJOR MINOR MICRO)
    if(EXISTS ${_penstock_file})
      file(STRINGS ${_penstock_file} _penstock_line REGEX "^#define LIBAVFORMAT_VERSION_${_penstock_part} ")
      if(_penstock_line)
        string(REGEX MATCH "[0-9]+" _penstock_${_penstock_part} ${_penstock_line})
      endif()
    endif()
  endforeach()
endforeach()
if(PENSTOCK_FFMPEG_INCLUDE_DIR)
  set(FFmpeg_VERSION ${_penstock_MAJOR}.${_penstock_MINOR}.${_penstock_MICRO})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(FFmpeg REQUIRED_VARS ${_penstock_ffmpeg_libraries} PENSTOCK_FFMPEG_INCLUDE_DIR
                                  VERSION_VAR FFmpeg_VERSION)
if(FFmpeg_FOUND AND NOT TARGET FFmpeg::FFmpeg)
  add_library(FFmpeg::FFmpeg INTERFACE IMPORTED)
  set_target_properties(FFmpeg::FFmpeg PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${PENSTOCK_FFMPEG_INCLUDE_DIR})
  target_link_libraries(FFmpeg::FFmpeg INTERFACE ${PENSTOCK_FFMPEG_avformat} ${PENSTOCK_FFMPEG_avcodec}
                                                 ${PENSTOCK_FFMPEG_avutil})
  if(PENSTOCK_FFMPEG_avformat MATCHES "\\.a$")  # Only its files of pkg-config say what static libraries need.
    target_link_libraries(FFmpeg::FFmpeg INTERFACE ${PENSTOCK_FFMPEG_PC_STATIC_LDFLAGS})
  endif()
endif()
