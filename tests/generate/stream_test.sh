#!/bin/bash
# --weights stream: weights are read from their files at each use. Frames are bitwise those of
# weights in memory, for stored, bf16 and rounded weights, with tp and fsdp. Streaming saves the
# predicted memory: about two blocks are in memory at a time.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
. "$SRC/tests/check.sh"
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
python3 "$SRC/tests/generate/enlarge.py" model 256 1024 6 256 512 6 20000 || fail "writing the model"
python3 "$SRC/tests/generate/enlarge.py" half 256 1024 6 256 512 6 20000 bf16 || fail "writing the model in bf16"
generate() { # RANKS OUT MODEL OPTIONS...
    local n=$1 out=$2 model=$3
    shift 3
    local run=()
    [ "$n" = 1 ] || run=("$MPIRUN" --oversubscribe -n "$n")
    python3 -S - "$out" "${run[@]}" "$WEFT" generate --model "$model" --prompt "a red cat" --seed 3 --steps 2 --height 32 --width 32 --frames 5 \
        --frames-npy --out "$out.mp4" "$@" >"$out.log" 2>&1 <<'P' || { cat "$out.log"; fail "weft generate on $n ranks: $*"; }
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=open(sys.argv[1] + ".rss", "w"))
sys.exit(code)
P
}
same() { cmp "$1.npy" "$2.npy" || fail "$2 has other frames than $1"; }
generate 1 stored model
generate 1 stream model --weights stream
generate 1 half half
generate 1 half_stream half --weights stream
generate 1 rounded model --weights bf16
generate 1 rounded_stream model --weights bf16,stream # the files have f32
streamed_weights_are_bitwise_identical() {
    same stored stream
    same half half_stream
    same rounded rounded_stream
}
check streamed_weights_are_bitwise_identical
columns_of_tp_are_streamed() {
    cmp -s stored.npy half.npy && fail "bf16 files give the frames of f32 files"
    generate 2 stored2 model --parallel tp=2
    generate 2 stream2 model --parallel tp=2 --weights stream # a column range is not contiguous in the files
    same stored2 stream2
}
check columns_of_tp_are_streamed
shards_of_fsdp_are_streamed() {
    generate 3 stored3 model --parallel fsdp=3
    generate 3 stream3 model --parallel fsdp=3 --weights stream
    same stored3 stream3
}
check shards_of_fsdp_are_streamed
nothing_is_left() {
    ! ls -A | grep -v -e '^model$' -e '^half$' -e '\.mp4$' -e '\.npy$' -e '\.log$' -e '\.rss$' || fail "temporary files are left"
}
check nothing_is_left
streaming_saves_the_predicted_memory() {
    python3 -S - <<'P' || fail "memory"
import json, os
def predicted(name):
    messages = [json.loads(line) for line in open(name + ".log") if line.startswith("{")]
    return next(m["value"] for m in messages if m.get("id") == "job-report" and "value" in m) / 2 ** 20
def measured(name): return int(open(name + ".rss").read()) / 1024
def weights(model): return sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(model) for f in fs if f.endswith("safetensors") and "vae" not in d) / 2 ** 20
for model, whole, streamed in ("model", "stored", "stream"), ("half", "half", "half_stream"), ("model", "rounded", "rounded_stream"):
    saved = predicted(whole) - predicted(streamed)
    print(f"{whole}: {weights(model):.1f} MiB of files, predicted {predicted(whole):.1f}, streamed {predicted(streamed):.1f}; measured {measured(whole):.1f}, {measured(streamed):.1f}")
    assert abs(measured(whole) - measured(streamed) - saved) < 0.15 * saved, (measured(whole), measured(streamed), saved)
block = 4 * (8 * 256 * 256 + 2 * 256 * 1024) / 2 ** 20  # of the transformer, the largest
assert predicted("stream") < predicted("stored") - weights("model") + 2 * block + 1, block  # and what is small
assert predicted("half_stream") < predicted("half") - weights("half") + block + 1, block
P
}
check streaming_saves_the_predicted_memory
refused() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate --model model --prompt x --frames 5 --height 64 --width 64 --out no.mp4 "$@" >refused.log 2>&1 && fail "$*: not refused"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refused option-conflict key=--weights 'text~=--pass weight_streaming=off' -- --weights stream --pass weight_streaming=off
    refused option-invalid key=--weights "text~='stream,bf16'" -- --weights stream,bf16
    refused option-invalid key=--weights "text~='bf16,'" -- --weights bf16,
}
check refusals
finish
