#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/profile from outside: profile_test.sh <scripts/profile> <penstock-trace> <traced program>.

set -euo pipefail
profile=$1 traced=$3
export PENSTOCK_TRACE=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Runs scripts/profile with the words behind it, which must exit with $1 and say $2.
exits_with() {
  local exit_code=0
  "$profile" "${@:3}" >out.txt 2>&1 || exit_code=$?
  [[ $exit_code == "$1" ]] || fail "exit status $exit_code, not $1: ${*:3}: $(cat out.txt)"
  grep --quiet --fixed-strings -- "$2" out.txt || fail "no '$2': ${*:3}: $(cat out.txt)"
}

exits_with 0 "measured: 19 steps" --whole --out mine --tool trace -- "$traced" clean
[[ -s $(echo mine/*/report.txt) ]] || fail "no report: $(ls -R)"
RANK=3 exits_with 0 "trace.html" --whole --out ranks --tool trace "$traced" clean
[[ -s $(echo ranks/*.rank3/trace.html) ]] || fail "no rank in the name: $(ls -R)"

# Every launcher's rank; of those within each other that of the inner one.
for setting in "OMPI_COMM_WORLD_RANK=4 SLURM_PROCID=0" PMIX_RANK=5 PMI_RANK=6 SLURM_PROCID=7 JOB_COMPLETION_INDEX=8; do
  rank=${setting%% *}
  read -r -a settings <<<"$setting"
  (export "${settings[@]}" && exits_with 0 "trace.html" --whole --out ranks --tool trace "$traced" clean)
  [[ -s $(echo ranks/*".rank${rank#*=}/trace.html") ]] || fail "$setting: $(ls -R)"
done

# nsys is a program that prints its arguments here, and leaves what $LEAVES says in place of a report.
mkdir tools
cat >tools/nsys <<'END'
#!/bin/bash
printf '%s\n' "$@"
for argument; do
  if [[ $1 == profile && $argument == --output=* && -n ${LEAVES:-} ]]; then echo recorded >"${argument#*=}.$LEAVES"; fi
done
exit 6
END
chmod +x tools/nsys

has_arguments() {
  local argument
  for argument; do
    grep --quiet --extended-regexp --line-regexp -- "$argument" out.txt || fail "no $argument: $(cat out.txt)"
  done
}

RANK=3 PATH=$PWD/tools:$PATH exits_with 6 "profile" --out mine --tool nsys -- "$traced" clean
has_arguments --capture-range=cudaProfilerApi --capture-range-end=stop --trace=cuda,nvtx --cuda-graph-trace=node --cuda-memory-usage=true \
  --sample=none --cpuctxsw=none "--output=mine/$(hostname)\.[0-9]+\.rank3" "$traced" clean
grep --quiet 'no report: .* use --whole' out.txt || fail "nothing is said of the report that is missing: $(cat out.txt)"
PATH=$PWD/tools:$PATH exits_with 6 "--output=mine/$(hostname)." --whole --out mine --tool nsys -- "$traced"
if grep --quiet -e '^--capture-range' out.txt; then fail "a capture range, though --whole: $(cat out.txt)"; fi
has_no() { if grep --quiet --extended-regexp -- "$1" out.txt; then fail "there is $1: $(cat out.txt)"; fi; }

# What begins with - behind -- and before the program is nsys's, with its value in the same word or in the next. It comes in
# place of ours; to what is traced it is added.
PATH=$PWD/tools:$PATH exits_with 6 "profile" --out mine --tool nsys -- --stats=true -t cudnn,cuda,cublas --cuda-graph-trace graph \
  --gpu-metrics-devices=all -sprocess-tree "$traced" clean -t mine --stats=false
has_arguments --stats=true --trace=cuda,nvtx,cudnn,cublas --cuda-graph-trace=graph --gpu-metrics-devices=all --sample=process-tree \
  --capture-range=cudaProfilerApi "$traced" clean -t mine --stats=false
has_no 'trace=node|sample=none'
[[ $(tr '\n' ' ' <out.txt) == *" $traced clean -t mine --stats=false "* ]] || fail "not the program's: $(cat out.txt)"
# An option that nsys has by its short name alone keeps it; -- ends them. nsys is chosen for them.
PATH=$PWD/tools:$PATH exits_with 6 "profile" --out mine -- -e A=B -t none -- "$traced"
has_arguments -e A=B --trace=none "$traced"
PATH=$PWD/tools:$PATH exits_with 6 "profile" --out mine -- -t none,nvtx --trace osrt "$traced"
has_arguments --trace=nvtx,osrt
[[ $(grep -c -e '^--trace=' out.txt) == 1 ]] || fail "it is traced twice: $(cat out.txt)"
# What says by the clock, or by a range, what is recorded takes cudaProfilerStart's place.
for option in --delay=5 "-y 5" "--duration 5" -d5 --capture-range=none "-c nvtx" "-p step@penstock"; do
  read -ra split <<<"$option"
  PATH=$PWD/tools:$PATH exits_with 6 "profile" --out mine --tool nsys -- "${split[@]}" "$traced"
  has_no '^--capture-range(-end)?=(cudaProfilerApi|stop)$'
done
LEAVES=nsys-rep PATH=$PWD/tools:$PATH exits_with 6 "Open mine/named.nsys-rep in nsys-ui" --tool nsys -- -o mine/named "$traced"
exits_with 1 "nsys's option -t has no value" --tool nsys -- -t
exits_with 1 "no program; see --help" --tool nsys -- --stats=true
exits_with 1 "no program: -t took $traced for its value; see --help" --tool nsys -- -t "$traced"
exits_with 1 "--stats=true is an option of nsys: --tool nsys" --tool trace -- --stats=true "$traced"
exits_with 1 "options of nsys come behind --" --stats=true "$traced"

# Of an emulated program there is no work of the driver, and no cudaProfilerStart.
ln -s "$traced" traced_emulated
PATH=$PWD/tools:$PATH exits_with 6 "nsys sees no CUDA call" --out mine --tool nsys -- ./traced_emulated
has_arguments --trace=nvtx,osrt
has_no '^--capture-range|^--cuda'

# In a project of its own there is what scripts/setup nsys brings, or not.
mkdir -p project/scripts
cp "$profile" "$(dirname "$profile")"/{lib,nsys}.sh project/scripts
nsight=project/.deps/nsight/usr
if ! command -v nsys >/dev/null; then
  exits_with 0 "nsys is not installed (" --whole --out mine -- "$traced" clean
  if ! find -L /opt/nvidia /usr/local/cuda* -maxdepth 7 -name nsys -type f 2>/dev/null | grep --quiet .; then
    profile=project/scripts/profile exits_with 1 "scripts/setup nsys has not brought it" --tool nsys -- "$traced" clean
  fi
  mkdir -p $nsight/bin && cp tools/nsys $nsight/bin
  profile=project/scripts/profile exits_with 6 "--trace=cuda,nvtx" --tool nsys -- "$traced" clean
fi
# An importer makes a report of what nsys leaves; without one, or with that of another version, it is said what can be done.
LEAVES=qdstrm PATH=$PWD/tools:$PATH profile=project/scripts/profile exits_with 6 "is no report yet" --out left --tool nsys -- "$traced"
[[ -s $(echo left/*.qdstrm) ]] || fail "it is gone: $(ls -R left)"
importer=$nsight/lib/nsight-systems/host-linux-x64/QdstrmImporter
mkdir -p "$(dirname $importer)"
printf '#!/bin/bash\necho "Error: that is of another version"\nexit 1\n' >$importer
chmod +x $importer
LEAVES=qdstrm PATH=$PWD/tools:$PATH profile=project/scripts/profile exits_with 6 "QdstrmImporter: Error: that is of another version" --out left \
  --tool nsys -- "$traced"
cat >$importer <<'END'
#!/bin/bash
cp "$2" "$4"
END
LEAVES=qdstrm PATH=$PWD/tools:$PATH profile=project/scripts/profile exits_with 6 "profile" --out imported --tool nsys -- "$traced"
[[ $(ls imported) == *.nsys-rep ]] || fail "not a report alone: $(ls -R imported)"
# What begins with the same name is another report's.
tee other1.qdstrm >other.3.qdstrm <<<recorded
LEAVES=qdstrm PATH=$PWD/tools:$PATH profile=project/scripts/profile exits_with 6 "Open other.nsys-rep in" --tool nsys -- -o other "$traced"
[[ $(echo other*) == "other.3.nsys-rep other.nsys-rep other1.qdstrm" ]] || fail "not two alone: $(echo other*)"
# What it did not understand is said, and nothing is thrown away.
cat >$importer <<'END'
#!/bin/bash
echo "incomplete" >"$4"
printf 'Processing [49%%]\r\n**** Analysis failed with:\n  Value: "x.cpp(45): [tag] = Unknown runtime API function index: 480\\n"\nSaved report file\n'
END
LEAVES=qdstrm PATH=$PWD/tools:$PATH profile=project/scripts/profile exits_with 6 "is not whole: Unknown runtime API function index: 480. What" \
  --out partly --tool nsys -- "$traced"
[[ $(cat partly/*.nsys-rep partly/*.qdstrm) == incomplete*recorded ]] || fail "not both: $(ls -R partly)"
# One beside nsys itself, as in Nsight Compute, comes first; it finds libraries that scripts/setup nsys has brought.
mkdir -p compute/host/{target-linux-x64,linux-desktop-glibc_2_11_3-x64} $nsight/lib/x86_64-linux-gnu
cp tools/nsys compute/host/target-linux-x64
cat >compute/host/linux-desktop-glibc_2_11_3-x64/QdstrmImporter <<'END'
#!/bin/bash
[[ $LD_LIBRARY_PATH == */compute/host/linux-desktop-glibc_2_11_3-x64:*/.deps/nsight/usr/lib/x86_64-linux-gnu:* ]] || exit
echo "by its own" >"$4"
END
chmod +x compute/host/linux-desktop-glibc_2_11_3-x64/QdstrmImporter
LEAVES=qdstrm PATH=$PWD/compute/host/target-linux-x64:$PATH profile=project/scripts/profile exits_with 6 "Open own/" --out own --tool nsys -- "$traced"
[[ $(cat own/*.nsys-rep) == "by its own" ]] || fail "not by its own: $(cat own/* out.txt)"

# What took longest is printed, by the names of nsys's reports before 2023 and since; once for all ranks. Where there is no
# kernel, it is said what could be the reason.
cat >tools/nsys <<'END'
#!/bin/bash
case $1 in
  --version) echo "NVIDIA Nsight Systems version ${NAMES%% *}-4242" ;;
  profile) for argument; do [[ $argument != --output=* ]] || echo recorded >"${argument#*=}.nsys-rep"; done ;;
  export) for argument; do [[ $argument != --output=* ]] || touch "${argument#*=}"; done && printf '%s\r' {1..100}% ;;
  stats)
    if [[ $2 == --help-reports ]]; then echo "  ${NAMES#* } -- summaries" && exit; fi
    for argument; do
      case $argument in
        --report=*mem*) printf ' ** Copies (%s):\n\n Time\n ----\n 11 ms\n' "${argument#*=}" ;;
        --report=*kern*) printf ' ** Kernels (%s):\n\nReport was successfully run, but no data was returned.\n' "${argument#*=}" ;;
        --report=*) printf ' ** Ranges (%s):\n\n Time\n ----\n' "${argument#*=}" && seq 30 ;;
      esac
    done
    [[ -e $argument ]]
    ;;
esac
END
export NAMES="2022.4.2 nvtxsum gpukernsum gpumemtimesum"
PATH=$PWD/tools:$PATH exits_with 0 "** Ranges (nvtxsum):" --out old --tool nsys -- "$traced"
has_arguments ' \*\* Copies \(gpumemtimesum\):' ' 11 ms' 12 '   \.\.\.'
has_no '^13$'
grep --quiet 'no kernel.* this nsys, 2022.4.2, may be too old' out.txt || fail "nothing is said of kernels: $(cat out.txt)"
grep --quiet "Open old/.*nsys-rep in .*; ask old/.*sqlite" out.txt || fail "it does not say what to open: $(cat out.txt)"
export NAMES="2025.3.1 nvtx_sum cuda_gpu_kern_sum cuda_gpu_mem_time_sum"
RANK=0 PATH=$PWD/tools:$PATH exits_with 0 "** Ranges (nvtx_sum):" --out new --tool nsys -- "$traced"
has_arguments ' \*\* Copies \(cuda_gpu_mem_time_sum\):'
RANK=1 PATH=$PWD/tools:$PATH exits_with 0 "Open new/" --out new --tool nsys -- "$traced"
has_no Ranges
PATH=$PWD/tools:$PATH exits_with 0 "** Ranges (nvtx_sum):" --out new --tool nsys -- ./traced_emulated
has_no 'Copies|no kernel'

# Into a program under an nsys that is older than CUDA 12.8, calls of its time are preloaded, before what the user preloads. These tests
# have a driver, a runtime and a program of their own. The driver does what an importer of that time can read.
mkdir old_nsys
cat >old_nsys/nsys <<'END'
#!/bin/bash
if [[ $1 != profile ]]; then exit; fi
echo "preloaded: $LD_PRELOAD"
while [[ $1 != */asks ]]; do shift; done
exec "$@"
END
chmod +x old_nsys/nsys
cat >driver.c <<'END'
static void* current;
int cuEventElapsedTime(float* time, void* start, void* end) { return *time = 1.5f, end ? start ? 0 : 600 : 400; }
int cuEventElapsedTime_v2(float* time, void* start, void* end) { return *time = 99, (void)start, (void)end, 0; }
int cuStreamGetCtx(void* stream, void** context) { return *context = stream, stream ? 0 : 400; }
int cuCtxPushCurrent_v2(void* context) { return current = context, 0; }
int cuCtxGetDevice(int* device) { return *device = current ? 3 : 99, 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = current, current = 0, 0; }
END
cat >runtime.c <<'END'
int cudaEventElapsedTime(float* time, void* start, void* end) { return *time = 2.5f, (void)start, (void)end, 35; }
int cudaStreamGetDevice(void* stream, int* device) { return *device = 5, (void)stream, 35; }
END
cat >asks.c <<'END'
#include <stdio.h>
int cudaEventElapsedTime(float*, void*, void*);
int cudaStreamGetDevice(void*, int*);
static void ask(void* start, void* end) {
  float time;
  int status = cudaEventElapsedTime(&time, start, end);
  printf("time %g %d\n", time, status);
}
int main(int words, char** word) {
  int device, status;
  ask(word, word), ask(0, word), ask(word, 0);
  status = cudaStreamGetDevice(word, &device), printf("device %d %d\n", device, status);
  status = cudaStreamGetDevice(0, &device), printf("device %d %d\n", device, status);
  return words - 1;
}
END
cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so.1 driver.c
cc -shared -fPIC -o libcudart_of_test.so runtime.c
cc -o asks asks.c -L. -lcudart_of_test -Wl,--no-as-needed ./libcuda.so.1 "-Wl,-rpath,$PWD"
asked() { PATH=$PWD/old_nsys:$PATH exits_with 0 "preloaded: $1" --out asked --tool nsys -- "$PWD/asks"; }
asked ""
has_arguments "preloaded: " "time 2.5 35" "device 5 35"
touch old_nsys/libcupti.so.{11.8,12.4}
asked /
has_arguments "preloaded: /.*/nsys_older_calls.so" "time 1.5 0" "time 1.5 600" "time 2.5 35" "device 3 0" "device 5 35"
grep --quiet "This nsys knows the calls of CUDA 12.4: the program makes" out.txt || fail "it does not say so: $(cat out.txt)"
if [[ -e $(sed -n 's/^preloaded: //p' out.txt) ]]; then fail "it is left behind: $(cat out.txt)"; fi
LD_PRELOAD=$PWD/libcudart_of_test.so asked /
has_arguments "preloaded: /.*/nsys_older_calls.so:$PWD/libcudart_of_test.so" "time 1.5 0"
for version in 12.8 12.10 13.0; do
  touch old_nsys/libcupti.so.$version
  asked ""
  has_arguments "preloaded: " "time 2.5 35"
  rm old_nsys/libcupti.so.$version
done
ln -s asks asks_emulated
PATH=$PWD/old_nsys:$PATH exits_with 0 "nsys sees no CUDA call" --out asked --tool nsys -- ./asks_emulated ./asks
has_arguments "preloaded: "
printf '#!/bin/bash\necho "cc has no linker" >&2\nexit 1\n' >old_nsys/cc
chmod +x old_nsys/cc
asked ""
has_arguments "time 2.5 35"
grep --quiet "may lose kernels and copies: .* was not built: cc has no linker" out.txt || fail "it does not say why: $(cat out.txt)"

# A launcher's signal reaches nsys, and what nsys leaves then is taken care of.
cat >tools/nsys <<'END'
#!/bin/bash
if [[ $1 != profile ]]; then exit; fi
trap 'touch told; echo recorded >"${output#*=}.nsys-rep"; exit 143' TERM
for output; do [[ $output != --output=* ]] || break; done
touch begun
while sleep 0.05; do :; done
END
PATH=$PWD/tools:$PATH "$profile" --out signalled --tool nsys -- "$traced" >out.txt 2>&1 &
until [[ -e begun ]]; do sleep 0.02; done
kill -TERM $!
exit_code=0
wait $! || exit_code=$?
[[ $exit_code == 143 && -e told && -s $(echo signalled/*.nsys-rep) ]] || fail "exit status $exit_code: $(ls -R signalled) $(cat out.txt)"

exits_with 1 "no program" --tool trace
exits_with 1 "no program no_such_program" no_such_program
exits_with 1 "no program ./no_such_file" ./no_such_file
# Programs of a build are found by the end of their path, which has to be that of one program.
mkdir -p project/build/{old,new}/examples/{train,infer}
for folder in old/examples/train new/examples/train new/examples/infer; do
  cp /bin/true "project/build/$folder/baseline"
done
profile=project/scripts/profile exits_with 1 "are called baseline; name one of them: examples/infer/baseline, examples/train/baseline" baseline
profile=project/scripts/profile exits_with 1 "nothing was recorded" --whole --tool trace train/baseline
exits_with 1 "--tool gdb" --tool gdb "$traced"
exits_with 1 "no option --nonsense" --nonsense
exits_with 0 "--whole" --help
