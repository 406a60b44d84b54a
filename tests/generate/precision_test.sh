#!/bin/bash
# `--precision bf16` and `--weights int8` compute in bf16 and in int8. The latents are close to f32, bitwise
# equal for the same weights in another storage, and equal or close on two ranks.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
generate() { # MODEL OUT OPTIONS...
    local model=$SRC/tests/golden/pipelines/$1 out=$2
    [ ! -d "$1" ] || model=$1
    shift 2
    "${launch[@]}" "$WEFT" generate --model "$model" --prompt "a red cat walks" --steps 3 --seed 3 \
        --frames $frames --height 32 --width 32 --latents-npy --out "$out.mp4" "$@" >"$out.log" 2>&1 </dev/null || { cat "$out.log"; fail "weft generate $*"; }
}
launch=() frames=5
distance() { # FILE FILE LEAST MOST: relative distance of two latents
    python3 -S - "$@" <<'PY' || fail "distance of $1 and $2"
import array, math, struct, sys
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a, b = load(sys.argv[1] + ".latents.npy"), load(sys.argv[2] + ".latents.npy")
error = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a))
print(f"{sys.argv[1]}, {sys.argv[2]}: {error:.2g} of the norm")
assert float(sys.argv[3]) <= error < float(sys.argv[4]), error
PY
}
# Values have 8 significant bits, or 7 and a scale per block, and three steps of guidance add their errors.
close_to_f32() { # MODEL
    generate "$1" "$1-f32"
    generate "$1" "$1-bf16" --precision bf16
    generate "$1" "$1-int8" --weights int8
    distance "$1-f32" "$1-bf16" 1e-4 6e-2
    distance "$1-f32" "$1-int8" 1e-4 6e-2
}
check wan_close_to_f32 close_to_f32 wan22
frames=1 check flux_close_to_f32 close_to_f32 flux
check latte_close_to_f32 close_to_f32 latte
check mmdit_close_to_f32 close_to_f32 hunyuan
# Learned tokens that a model joins to computed ones may be stored in bf16.
learned_tokens_in_bf16() {
    generate z_image z-f32
    generate z_image z-bf16 --weights bf16 --precision bf16
    generate z_image z-stored --weights bf16
    distance z-f32 z-bf16 1e-4 6e-2
    distance z-f32 z-stored 1e-4 6e-2
}
frames=1 check learned_tokens_in_bf16
# Weights that bf16 represents give the same result as f32, bf16, and read for each use.
storage_of_weights_does_not_matter() {
    cp -rL "$SRC/tests/golden/pipelines/wan22" rounded22
    python3 -S - rounded22/transformer*/*.safetensors rounded22/text_encoder/*.safetensors <<'PY' || fail "rounding the weights"
import array, sys
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    start = 8 + int.from_bytes(data[:8], "little")
    words = array.array("I", data[start:])
    open(path, "wb").write(data[:start] + array.array("I", (w & 0xffff0000 for w in words)).tobytes())
PY
    generate "$PWD/rounded22" plain --precision bf16
    generate "$PWD/rounded22" rounded --precision bf16 --weights bf16
    generate "$PWD/rounded22" streamed --precision bf16 --weights bf16,stream
    cmp plain.latents.npy rounded.latents.npy || fail "weights stored in bf16 give other latents"
    cmp plain.latents.npy streamed.latents.npy || fail "streamed weights give other latents"
}
check storage_of_weights_does_not_matter
# With tp the partial sums of ranks are rounded before they are added. With cp every value is the same.
ranks_agree() { # NAME LAYOUT MOST OPTIONS...
    needs wan_close_to_f32
    launch=(mpirun.openmpi -n 2)
    generate wan22 two --parallel "$2" "${@:4}"
    launch=()
    distance "wan22-$1" two 0 "$3"
}
check tensor_parallel_ranks_agree ranks_agree bf16 tp=2 3e-2 --precision bf16
check context_parallel_ranks_agree ranks_agree bf16 cp=2 1e-3 --precision bf16
# Blocks of int8 are complete on each rank. Sums in another order move a few values to the next step.
check int8_tensor_parallel_ranks_agree ranks_agree int8 tp=2 1e-3 --weights int8
check int8_sharded_ranks_agree ranks_agree int8 fsdp=2 1e-9 --weights int8
check int8_context_parallel_ranks_agree ranks_agree int8 cp=2 1e-3 --weights int8
# Two ranks with a CFG branch each compute what one rank computes.
cfg_branches_are_equal() {
    needs wan_close_to_f32
    launch=(mpirun.openmpi -n 2)
    generate wan22 branches --precision bf16 --parallel dp=2
    launch=()
    cmp wan22-bf16.latents.npy branches.latents.npy || fail "a rank per CFG branch gives other latents"
}
check cfg_branches_are_equal
int8_of_bf16_is_close() {
    needs wan_close_to_f32
    generate wan22 both --weights int8 --precision bf16
    distance wan22-f32 both 1e-4 6e-2
    cmp -s both.latents.npy wan22-int8.latents.npy && fail "--precision bf16 has no effect with --weights int8"
    generate wan22 streamed8 --weights int8,stream
    cmp wan22-int8.latents.npy streamed8.latents.npy || fail "streamed weights of int8 give other latents"
}
check int8_of_bf16_is_close
# Programs with and without guidance have other batches and share weights: 16 and 8 rows of each layer here.
int8_without_guidance() {
    generate wan22 ended --guidance-end 0.5
    generate wan22 ended8 --guidance-end 0.5 --weights int8
    distance ended ended8 1e-4 6e-2
}
check int8_without_guidance
# --precision auto: by the rates of a profile, on which arithmetic takes nearly all time, and by the processor
auto_takes_the_faster_type() {
    needs wan_close_to_f32
    local bf16
    for bf16 in 4e8 5e7; do
        cat >$bf16.json <<J
{"format": "weft.profile/1", "machine": "m", "memory": 1000000000, "threads": 1, "flops": 1e8, "gemm": 1, "attention": 1, "conv": 1,
 "bf16": {"flops": $bf16, "gemm": 1, "attention": 1, "conv": 1}, "memory_bandwidth": 1e12,
 "rates": [{"node": "gelu f32[8] -> f32[8]", "flops": 8, "bytes": 64, "seconds": 1e-6}]}
J
        generate wan22 auto-$bf16 --precision auto --on $bf16.json
    done
    WEFT_CPU_ISA=avx2 generate wan22 auto-avx2 --precision auto
    WEFT_CPU_ISA=avx2 generate wan22 f32-avx2
    has_message auto-4e8.log layout-chosen source=estimate precision=bf16 || fail "$(cat auto-4e8.log)"
    has_message auto-5e7.log layout-chosen source=estimate precision=f32 || fail "$(cat auto-5e7.log)"
    has_message auto-avx2.log layout-chosen source=estimate precision=f32 || fail "$(cat auto-avx2.log)"
    cmp auto-4e8.latents.npy wan22-bf16.latents.npy || fail "auto differs from bf16"
    cmp auto-5e7.latents.npy wan22-f32.latents.npy || fail "auto differs from f32"
    cmp auto-avx2.latents.npy f32-avx2.latents.npy || fail "auto differs from f32 on a processor without units"
}
check auto_takes_the_faster_type
wrong_type_is_refused() {
    "$WEFT" generate --model "$SRC/tests/golden/pipelines/wan22" --prompt x --precision f16 --out x.mp4 >x.log 2>&1 && fail "f16 is accepted"
    has_message x.log option-invalid key=--precision value=f16 || fail "$(cat x.log)"
}
check wrong_type_is_refused
finish
