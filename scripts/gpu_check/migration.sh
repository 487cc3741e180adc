# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# scripts/gpu-check sources this. Its step measures the five programs of docs/migration.md.

migration_targets="make_images 1_cpu 2_kernels 3_reuse 4_streams 5_pipeline penstock-trace"

# make_migration_images KIND [OPTION]: once, in the build folder.
make_migration_images() {
  if [[ -d $build/migration-$1 ]]; then return; fi
  limited 120 "$build/examples/data/make_images" --out "$build/migration-$1" --train "$(scaled 320 20)" --val 0 \
    --plain --width "$(scaled 512 64)" --height "$(scaled 512 48)" "${@:2}"
}

# Results, tables, timelines, and the page as it would be: migration_table.py RESULTS takes them into the project.
migration() {
  local status=0
  make_migration_images ppm --ppm && make_migration_images jpeg || return
  limited 400 python3 scripts/gpu_check/migration_measure.py --programs "$build/examples/migration" \
    --trace "$build/$trace" --images "$build" --out "$folder" --seconds "$(($(time_left) - 10))" \
    ${dry_run:+--dry-run} || status=$?
  if [[ ! -f $folder/results.json ]]; then return "$status"; fi
  cp docs/migration.md "$folder" && cp docs/measured/migration.md "$folder/figures.md"
  python3 scripts/gpu_check/migration_table.py "$folder/results.json" --store "$folder/measured.json" \
    --page "$folder/migration.md" --figures "$folder/figures.md" --picture "$folder/migration.svg" || status=$?
  sed -n '/migration: table -->/,/migration: table end/p; /migration: jpeg -->/,/migration: jpeg end/p' "$folder/figures.md" "$folder/migration.md"
  return "$status"
}
