#!/usr/bin/env bash
# Gates of a GPU under one of compute-sanitizer's tools: every kernel family over ragged sizes, the FP64 cores,
# references, draws and captured steps. The record of the gates goes to OUT, the tool's own words to OUT/TOOL.log.
#
#     scripts/sanitize.sh [TOOL [OUT [GATE…]]]     memcheck, results/sanitizer and the gates below unless given
#
# ASSAY names the binary (target/release/assay unless set). Exit code 1 if the tool found an error, if a trial
# did not pass, or if the tool looked at nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool=${1:-memcheck} out=${2:-results/sanitizer}
shift $(($# < 2 ? $# : 2))
gates=("$@")
[ ${#gates[@]} -gt 0 ] || gates=(
    'core-reference-attention/cuda/*/heads=4x2*' 'core-reference-gdn/cuda/*/heads=2x6*'
    'sampler-invariance/cuda/*' 'reference-qwen3/cuda/*p7*' 'reference-qwen3-5/cuda/*p7*'
    'graph-equivalence-qwen3-5-text/cuda/*/sequences=3*'
    'gemm-reference/cuda/*' 'gemm-f32-reference/cuda/*' 'gate-up-reference/cuda/*' 'rms-norm-reference/cuda/*'
    'residual-norm-reference/cuda/*' 'per-head-norm-reference/cuda/*' 'rope-reference/cuda/*' 'kv-write-reference/cuda/*'
    'q-gate-split-reference/cuda/*' 'silu-mul-reference/cuda/*' 'residual-add-reference/cuda/*' 'log-softmax-reference/cuda/*'
)

mkdir -p "$out"
log=$out/$tool.log
rm -f "$log"
status=0
# No gate here is tagged `long`: what that gives them is ten times their time, which the tool needs.
compute-sanitizer --tool "$tool" --target-processes all --log-file "$log" --error-exitcode 99 \
    "${ASSAY:-target/release/assay}" gates run "${gates[@]}" --require cuda --jobs "${JOBS:-4}" \
    --long --out "$out" || status=1

# One summary for each process that the tool looked into.
clean=$(grep -c 'SUMMARY: 0 ' "$log" || true)
broken=$(grep 'SUMMARY: ' "$log" | grep -vc 'SUMMARY: 0 ' || true)
echo "$tool: $clean summaries without an error, $broken with errors; log: $log"
[ "$broken" = 0 ] && [ "$clean" -gt 0 ] || status=1
exit "$status"
