#!/usr/bin/env bash
# Every fuzz target, or those named, for SECONDS of processor time each, as many at a time as there are processors. The
# table goes to stdout, as Markdown. What broke a target lies in target/tmp/fuzz/TARGET/found-…, what ended
# the process in current there, inputs that came to something new in new-….
#
#     scripts/fuzz.sh [SECONDS [SEED [TARGET…]]]        600 s and seed 1 unless given
#
# Exit code 1 if a target found something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-600} seed=${2:-1}
shift $(($# < 2 ? $# : 2))
hunts=("${@/#/hunt::}")
[ ${#hunts[@]} -gt 0 ] || hunts=(hunt::)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

revision="Revision $(git rev-parse HEAD 2>/dev/null || echo unknown)"
[ -z "$(git status --porcelain 2>/dev/null)" ] || revision+=", modified"
cargo test --locked --test fuzz --no-run >&2
begun=$SECONDS
status=0
ASSAY_FUZZ_CPU_SECONDS=$seconds ASSAY_FUZZ_SEED=$seed \
    cargo test --locked --test fuzz -- "${hunts[@]}" --ignored --nocapture --test-threads "$(nproc)" >"$log" 2>&1 ||
    status=1
[ "$status" = 0 ] || cat "$log" >&2

echo "$revision; $(rustc --version);"
echo "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1), $(nproc) processors;"
echo "\`scripts/fuzz.sh $seconds $seed${*:+ $*}\`, $((SECONDS - begun)) s."
echo
echo "| target | executions | different outcomes | CPU seconds | findings |"
echo "|---|---:|---:|---:|---:|"
# Lines of hunts, which other output may precede on the same line.
grep -oE '[a-z][a-z-]*: [0-9]+ inputs, [0-9]+ signatures, [0-9]+ findings in [0-9]+ s' "$log" | LC_ALL=C sort |
    sed -E 's/^([a-z-]+): ([0-9]+) inputs, ([0-9]+) signatures, ([0-9]+) findings in ([0-9]+) s/| \1 | \2 | \3 | \5 | \4 |/'
exit "$status"
