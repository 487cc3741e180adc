# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its step tests penstock::gds with the real cuFile, and measures it.

gds_targets="penstock_gds_gpu_tests gds_benchmark"

# Prints the library of cuFile: the one of the linker, of the CUDA toolkit, or of Python's packages.
find_cufile() {
  local folder
  if [[ -n ${PENSTOCK_CUFILE:-} ]]; then echo "$PENSTOCK_CUFILE" && return; fi
  for folder in "${CUDAToolkit_ROOT:-/usr/local/cuda}"/{lib64,targets/*/lib} "$(library_of_python cufile)/lib" "$(library_of_python cu13)/lib"; do
    if [[ -e $folder/libcufile.so.0 ]]; then echo "$folder/libcufile.so.0" && return; fi
  done
  echo libcufile.so.0
}

# The tests, and then what cuFile costs beside read_many_into. Their files are in the build's folder.
gds() {
  PENSTOCK_CUFILE=$(find_cufile)
  export PENSTOCK_CUFILE TMPDIR=$build
  echo "cuFile: $PENSTOCK_CUFILE; files on $(stat --file-system --format=%T "$build")"
  limited 120 "$build/tests/gpu/penstock_gds_gpu_tests" &&
    limited 300 "$build/benchmarks/gds_benchmark" "$build" "$(scaled 1000 16)" 3 4 | tee "$folder/gds.txt"
}
