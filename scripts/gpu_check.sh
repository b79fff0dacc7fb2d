#!/usr/bin/env bash
# Ten minutes on one GPU: latency of two named pairs at full size with random weights, the roofline beside each, and the
# tests that use the device. Writes OUT/<pair>.json and OUT/<pair>.txt; nothing is downloaded.
#
#   scripts/gpu_check.sh                                                        # one H200
#   DEVICE=cpu PAIRS=my-small-pair.toml TESTS= scripts/gpu_check.sh             # try the script itself
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
DEVICE=${DEVICE:-cuda}
PAIRS=${PAIRS:-dream-qwen2.5-32b sdar-8b-qwen3-8b}
OUT=${OUT:-results/gpu_check}
PROMPTS=${PROMPTS:-3}
ROUNDS=${ROUNDS:-8}
TESTS=${TESTS-tests/profiler/test_device.py}
export HF_HUB_OFFLINE=1

# Options that give a line in K over whole blocks: Eq. 7's block for Dream; for SDAR a fixed number of steps, and blocks
# that begin where the text ends: up to the next multiple of 16 there would be fewer slots than steps in many rounds.
options() {
    case $1 in
        dream-qwen2.5-32b) echo "--block-size 512" ;;
        sdar-*) echo "--aligned False --order left_to_right --efforts 1,2,4,8" ;;
    esac
}

mkdir -p "$OUT"
failed=0
for pair in $PAIRS; do
    name=$(basename "$pair" .toml)
    # shellcheck disable=SC2046 # the options are words
    if timeout 200 "$PYTHON" -m profiler.calibrate --weights random --pair "$pair" --device "$DEVICE" --out "$OUT/runs" \
        --run check --fresh --prompts "$PROMPTS" --latency.rounds "$ROUNDS" $(options "$name") | tee "$OUT/$name.txt"
    then
        cp "$OUT/runs/$name/check/calibration.json" "$OUT/$name.json"
    else
        echo "$name failed or took more than 200 seconds" >&2
        failed=1
    fi
done
if [[ -n $TESTS ]]; then
    # shellcheck disable=SC2086 # a list of files
    timeout 120 "$PYTHON" -m pytest -n 0 -q -k "${DEVICE%%:*}" $TESTS || failed=1
fi
exit "$failed"
