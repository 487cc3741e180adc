# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# Functions with which scripts/profile and scripts/gpu-check use Nsight Systems. Source scripts/lib.sh first.

# every_nsys: prints each nsys of this machine once: that of the PATH, that of scripts/setup nsys, one in .deps/nsight-target (the
# folder target-linux-x64 of its packages, if that was all that could be carried along), and those of Nsight Compute and of CUDA's
# toolkits, the newest first.
every_nsys() {
  local found file seen=' '
  mapfile -t found < <(
    command -v nsys || true
    for file in "$root/.deps/nsight/usr/bin/nsys" "$root/.deps/nsight-target/target-linux-x64/nsys"; do
      if [[ -x $file ]]; then echo "$file"; fi
    done
    find -L /opt/nvidia /usr/local/cuda* -maxdepth 7 -name nsys -type f -perm -u+x 2>/dev/null | sort --version-sort --reverse
  )
  for file in "${found[@]}"; do
    if [[ $seen == *" $(readlink -f "$file") "* ]]; then continue; fi
    seen+="$(readlink -f "$file") "
    echo "$file"
  done
}

# version_of NSYS: prints its version, such as 2023.4.4.
version_of() { { "$1" --version 2>/dev/null || true; } | sed -nE 's/.*version ([0-9]+(\.[0-9]+){2}).*/\1/p'; }

driver_version() { { nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null || true; } | sed -n 1p; }

# ---- Options of nsys

# The long names of the short options that scripts/profile has to know.
declare -A long_names=([-c]=--capture-range [-d]=--duration [-f]=--force-overwrite [-o]=--output [-p]=--nvtx-capture
  [-s]=--sample [-t]=--trace [-Y]=--start-later [-y]=--delay)

# read_nsys_options WORD...: sets nsys_options to the words before the program, each option as one word, and `words` to the program
# and what follows. As in nsys itself, an option without `=` takes the next word as its value; `took` says what the last one took.
read_nsys_options() {
  local name value
  nsys_options=() took=
  while [[ ${1:-} == -* ]]; do
    if [[ $1 == -- ]]; then shift && break; fi
    name=$1 value=
    shift
    case $name in
      --help | -h) nsys_options+=(--help) && continue ;;
      *=*) value=${name#*=} name=${name%%=*} ;;
      -[!-]?*) value=${name:2} name=${name:0:2} ;;
      *)
        if [[ $# -eq 0 ]]; then fail "nsys's option $name has no value"; fi
        value=$1 took="$name took $value for its value"
        shift
        ;;
    esac
    name=${long_names[$name]:-$name}
    if [[ $name == --* ]]; then nsys_options+=("$name=$value"); else nsys_options+=("$name" "$value"); fi
  done
  words=("$@")
}

# nsys_value NAME: prints the value of the user's last option --NAME; fails if there is none.
nsys_value() {
  local word last=
  for word in "${nsys_options[@]}"; do
    if [[ $word == "--$1="* ]]; then last=$word; fi
  done
  [[ -n $last ]] && echo "${last#*=}"
}

# ours_and_theirs WORD...: adds to nsys_options each of our options that the user has not given. --trace gets the words of both;
# `none` among the user's words leaves ours out.
ours_and_theirs() {
  local word name traced options=()
  traced=$(printf '%s\n' "${nsys_options[@]}" | sed -n 's/^--trace=//p' | paste -s -d ,)
  for word in "$@"; do
    name=${word%%=*} name=${name#--}
    if [[ $name == trace ]]; then
      if [[ ,$traced, != *,none,* ]]; then traced=${word#*=},$traced; fi
    elif ! nsys_value "$name" >/dev/null; then
      options+=("$word")
    fi
  done
  traced=$(tr , '\n' <<<"$traced" | awk 'NF && $0 != "none" && !seen[$0]++' | paste -s -d ,)
  for word in "${nsys_options[@]}"; do
    if [[ $word != --trace=* ]]; then options+=("$word"); fi
  done
  nsys_options=("--trace=${traced:-none}" "${options[@]}")
}

# ---- Calls that nsys does not know

# newest_cupti NSYS: prints the newest version of CUPTI beside it, which is a version of CUDA such as 12.4; nothing if there is none.
newest_cupti() {
  find "$(dirname "$(readlink -f "$1")")" -maxdepth 1 -name 'libcupti.so.[0-9]*.[0-9]*' 2>/dev/null |
    sed 's/.*libcupti.so.//' | sort --version-sort | tail -n 1
}

# older_calls NSYS FOLDER: builds nsys_older_calls.c into FOLDER and prints the library's path, if this nsys is older than CUDA 12.8.
# Else, and without a C compiler, it prints nothing.
older_calls() {
  local knows library=$2/nsys_older_calls.so
  knows=$(newest_cupti "$1")
  if [[ -z $knows ]] || printf '12.8\n%s\n' "$knows" | sort -CV; then return; fi
  if cc -O2 -shared -fPIC -o "$library" "$root/scripts/nsys_older_calls.c" -ldl >"$2/said.txt" 2>&1; then
    say "This nsys knows the calls of CUDA $knows: the program makes two newer ones in their older form (scripts/nsys_older_calls.c)" >&2
    echo "$library"
  else
    say "This nsys knows the calls of CUDA $knows. The report of a program of CUDA 12.8 or newer may lose kernels and copies:" \
      "scripts/nsys_older_calls.c, which prevents it, was not built: $(command -v cc >/dev/null && tail -n 1 "$2/said.txt" || echo 'there is no cc')" >&2
  fi
}

# ---- What nsys leaves

# left_by_nsys NAME ENDING: prints the files NAME.ENDING or, with --capture-range-end=repeat, NAME.1.ENDING and so on. NAME1.ENDING
# belongs to another report.
left_by_nsys() {
  compgen -G "$1.$2" || true
  compgen -G "$1.[0-9]*.$2" || true
}

# importers NSYS: prints its own importer first, then that of scripts/setup nsys, and that of the machine.
importers() {
  local own
  own=$(dirname "$(dirname "$(readlink -f "$1")")")
  find -L "$own" "$root/.deps/nsight/usr/lib/nsight-systems" /usr/lib/nsight-systems -maxdepth 3 -name QdstrmImporter -type f \
    -perm -u+x -exec realpath {} + 2>/dev/null | awk '!seen[$0]++'
}

# import_report NSYS NAME: makes NAME.nsys-rep from the NAME.qdstrm that nsys left. The latter stays if the import fails or is not
# complete.
import_report() {
  local importer path lacks said=
  while read -r importer; do
    # The importer needs libraries that are beside it, and those of scripts/setup nsys.
    path=$(dirname "$importer"):$(printf '%s:' "$root"/.deps/nsight/usr/lib/*-linux-gnu)${LD_LIBRARY_PATH:-}
    LD_LIBRARY_PATH=$path "$importer" --input-file "$2.qdstrm" --output-file "$2.nsys-rep" >"$2.import.txt" 2>&1 || true
    if [[ -s $2.nsys-rep ]]; then
      said=$(reason_of "$2.import.txt")
      rm -f "$2.import.txt"
      if [[ -n $said ]]; then
        say "$2.nsys-rep is not whole: $said. What this nsys, $(version_of "$1"), does not know, a newer one does (docs/profiling.md)"
      else
        rm -f "$2.qdstrm"
      fi
      return
    fi
    lacks=$(LD_LIBRARY_PATH=$path ldd "$importer" 2>&1 | awk '/not found/ { print $1 }' | sort -u | tr '\n' ' ')
    said+=$'\n'"$importer: ${lacks:+it lacks ${lacks% } (scripts/setup nsys brings libdw1 and libssh-4); }$(reason_of "$2.import.txt")"
    rm -f "$2.import.txt" "$2.nsys-rep"
  done < <(importers "$1")
  say "$2.qdstrm is no report yet: open it in nsys-ui, or import it with the QdstrmImporter of this version of Nsight Systems," \
    "$(version_of "$1") (scripts/setup nsys brings that of 2023.4.4)$said"
  return 1
}

# reason_of FILE: prints what an importer says in FILE that it could not do; nothing if it only says that it has finished.
reason_of() {
  local reason
  reason=$(tr '\r' '\n' <"$1" | grep -oE '(Unknown|Unsupported) [^"\\]*' | sort -u | paste -s -d ';' || true)
  if [[ -z $reason ]]; then reason=$(tr '\r' '\n' <"$1" | sed -nE '/[Ee]rror|[Ff]ailed/{p;q}' || true); fi
  echo "$reason"
}

# print_tables NSYS REPORT [ranges]: prints the ranges, kernels and copies that took longest, or only the ranges. Fails if the report
# has no kernel. Leaves a database with the whole report beside it, with empty tables too, which docs/profiling/queries need.
print_tables() {
  local database=${2%.nsys-rep}.sqlite reports=(nvtx_sum cuda_gpu_kern_sum:base cuda_gpu_mem_time_sum) all
  if [[ $("$1" stats --help-reports 2>/dev/null) != *nvtx_sum* ]]; then reports=(nvtxsum gpukernsum:base gpumemtimesum); fi  # before 2023
  if [[ ${3:-} == ranges ]]; then reports=("${reports[0]}"); fi
  if ! all=$("$1" export --type=sqlite --lazy=false --force-overwrite=true --output="$database" "$2" 2>&1) ||
    ! all=$("$1" stats "${reports[@]/#/--report=}" "$database" 2>&1); then
    tail -n 5 <<<"$all"
    return
  fi
  awk -v rows=12 '
    /^ \*\* / { section = $0; row = -2; print "" }
    section == "" || /^Processing|^$/ { next }
    /no data was returned/ && section ~ /kern/ { none = 1 }
    { row++; if (row <= rows + 1) print substr($0, 1, 200); else if (row == rows + 2) print "   ..." }
    END { exit none }
  ' <<<"$all"
}
