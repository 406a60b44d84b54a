#!/bin/bash
# Golden plans: a change of any plan is seen in review. GOLDEN=write writes them again.
set -e
. "$SRC/tests/check.sh"
golden=$SRC/tests/plan/pipeline/golden
plan() { local name=$1; shift; check "$name" same_plan "$name" "$@"; }
same_plan() { # NAME ARGUMENTS...
    local name=$1
    shift
    "$WEFT" plan "$@" >"$name.txt"
    if [ "${GOLDEN-}" = write ]; then
        mkdir -p "$golden"
        cp "$name.txt" "$golden/$name.txt"
    fi
    diff -u "$golden/$name.txt" "$name.txt" || fail "the plan $name changed (GOLDEN=write accepts it)"
}
for model in uvit-2.7b:4 sdv2-4.6b:2 hunyuan-dit-3b:4; do
    IFS=: read -r model samples <<<"$model"
    plan "pipeline-$model-v100" pipeline "$SRC/examples/plan-pipeline.yaml" --set model=$model --set microbatch=$samples --set cluster=v100:2 --explain
    plan "pulse-$model-910a" layout "$SRC/examples/plan-layout.yaml" --set model=$model --set cluster=ascend910a:8
done
for model in dit-7b-8k:8:256 dit-7b-74k:8:64 dit-28b-8k:8:256 dit-28b-74k:32:64; do
    IFS=: read -r name nodes batch <<<"$model"
    plan "layout-$name-h100" layout "$SRC/examples/plan-layout.yaml" --set model="$name" --set cluster=h100:"$nodes" --set batch="$batch"
done
for cluster in a100:4 h200:2 v100:4 ascend910a:4; do
    plan "layout-dit-7b-8k-${cluster%:*}" layout "$SRC/examples/plan-layout.yaml" --set model=dit-7b-8k --set cluster=$cluster --set batch=256
done
plan memory-20gib memory "$SRC/examples/plan-memory.yaml" --set limit=20GiB --set offload=false
plan memory-30gib memory "$SRC/examples/plan-memory.yaml"
finish
