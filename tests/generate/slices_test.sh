#!/bin/bash
# Layers over frames and places on several ranks: videos of STDiT3 and Latte from their folders are one rank's to 1e-5, whatever the slices; what is asked
# for and cannot be made is told.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
generate() { # RANKS CLASS OUT OPTIONS...
    local n=$1 class=$2 out=$2-$3
    shift 3
    ranks "$n" "$WEFT" generate --model "runs/$class/model" --prompt "a red circle moving left" --seed 3 --steps 2 --latents --out "$out.mp4" \
        "$@" >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate with $class on $n ranks: $*"; }
}
for made in "STDiT3 {depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false}" \
    "LatteTransformer3DModel {num_layers: 2, num_attention_heads: 2, attention_head_dim: 16}"; do
    class=${made%% *}
    sed "s/class: WanTransformer3DModel/class: $class/; s/  config: {num_layers: 2, num_att.*/  config: ${made#* }/; /steps: 8, batch: 5/d; s/steps: 12/steps: 3/" \
        dit.yaml >"$class.yaml"
    "$WEFT" train "$class.yaml" --set out="runs/$class" >"$class.log" 2>&1 || { cat "$class.log"; fail "weft train $class"; }
    generate 1 $class one
    for n in 2 3; do
        generate $n $class off$n --parallel cp=$n --slices off
        generate $n $class on$n --parallel cp=$n
        generate $n $class many$n --parallel cp=$n --slices time=64,space=3,lift_time=2,lift_space=1
        grep -q "slices of frames (64 asked for: there are no more for each rank), [34] of places" $class-many$n.log ||
            { cat $class-many$n.log; fail "fewer slices than asked for are not told"; }
        grep -q "asked for" $class-off$n.log && { cat $class-off$n.log; fail "slices: off asks for slices"; }
    done
    generate 2 $class auto --parallel cp=2 --slices auto
    grep -q "^slices .*, the best of 7: .* a step, of which kernels .*; next slices .* slower, by" $class-auto.log ||
        { cat $class-auto.log; fail "auto does not say why"; }
    python3 - $class <<'P' || fail "$class: one rank and several differ"
import array, struct, sys
def load(name):
    data = open(f"{sys.argv[1]}-{name}.latents.npy", "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
def error(a, b): return sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(x * x for x in a) ** 0.5
one = load("one")
for n in "23":
    off = load("off" + n)
    for name in ("off" + n, "on" + n, "many" + n) + ("auto",) * (n == "2"):
        is_ = load(name)
        print(name, error(one, is_), "against whole layers", error(off, is_), is_ == off)
        assert len(is_) == len(one) and error(one, is_) <= 1e-5 and error(off, is_) <= 1e-6, name
P
done
refused() { # WORDS OPTIONS...
    local words=$1
    shift
    "$WEFT" generate --model runs/STDiT3/model --prompt x --out no "$@" >refused.log 2>&1 && fail "$*: not refused"
    grep -q -- "$words" refused.log || { cat refused.log; fail "$*: not told: $words"; }
}
"$WEFT" train STDiT3.yaml --set parallel.slices=auto >refused.log 2>&1 && fail "training takes slices: auto"
grep -q "parallel.slices: auto is chosen by weft generate --slices auto" refused.log || { cat refused.log; fail "slices: auto is not refused in words"; }
refused "time.*0" --slices time=0
refused "space.*-2" --slices space=-2
refused "lift_time.*-1" --slices lift_time=-1
exit 0
