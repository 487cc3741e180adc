# SPDX-License-Identifier: Apache-2.0
#
# Finds the headers of NVIDIA's video engines, as Debian's libffmpeg-nvenc-dev has them; the library comes with the driver, and
# is loaded at run time.

find_path(PENSTOCK_NVDEC_INCLUDE_DIR ffnvcodec/dynlink_nvcuvid.h)
mark_as_advanced(PENSTOCK_NVDEC_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NvDec REQUIRED_VARS PENSTOCK_NVDEC_INCLUDE_DIR)
