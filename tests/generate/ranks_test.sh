#!/bin/bash
# The same seed gives the same video: bitwise on one rank, alone or among others, and within 1e-5 on several ranks however
# they split the work, where sums are taken in another order.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
generate() { # generate RANKS OUT OPTIONS...
    local n=$1 out=$2
    shift 2
    ranks "$n" "$WEFT" generate --model runs/dit/model --seed 7 --steps 6 --raw --out "$out" "$@" >generate.log 2>&1 || { cat generate.log; fail "generate on $n ranks"; }
}
prompts=(--prompt "a red circle moving left" --prompt "a blue square moving up" --prompt "")
generate 1 one "${prompts[@]}" --sheet one.png
grep -q "predicted peak" generate.log || fail "no predicted peak"
generate 1 again "${prompts[@]}"
generate 1 alone.mp4 --prompt "a red circle moving left"
generate 2 two "${prompts[@]}"
generate 2 tp "${prompts[@]}" --parallel tp=2
generate 2 fsdp "${prompts[@]}" --parallel fsdp=2
generate 2 halves "${prompts[@]}" --parallel cfg=2
generate 4 both "${prompts[@]}" --batch 2 --parallel cfg=2 --parallel tp=2
generate 2 ring "${prompts[@]}" --parallel cp=2 --parallel context=ring
generate 4 mixed "${prompts[@]}" --batch 3 --parallel tp=2 --parallel sequence=true # and dp=2
ranks 2 "$WEFT" generate --model runs/dit/model --prompt x --out no --parallel tp=3 >generate.log 2>&1 && fail "tp=3 on 2 ranks"
grep -q "need 3 ranks, but 2 run" generate.log || { cat generate.log; fail "no word about ranks"; }
refused() { # WORDS RANKS OPTIONS...
    local words=$1 n=$2
    shift 2
    ranks "$n" "$WEFT" generate --model runs/dit/model --prompt x --out no "$@" >generate.log 2>&1 && fail "$*: not refused"
    grep -q -- "$words" generate.log || { cat generate.log; fail "$*: not told: $words"; }
}
refused "fsdp=2 keeps the weights in as many parts, tp or cp split the work" 2 --parallel pp=2
refused "weft generate: --parallel cp=x: cp: 'x' is not an integer" 2 --parallel cp=x # the option that was given is named
refused "weft generate: --slices 4: expected is KEY=VALUE" 2 --slices 4,4,1,3 --parallel cp=2
refused "cfg=2: this guidance has 1; leave cfg out" 2 --parallel cfg=2 --guidance 1
refused "leave 1 of 2 ranks, which do not make halves: start 4" 2 --parallel cfg=2 --parallel tp=2
for i in 0 1 2; do
    cmp "one/000$i.npy" "again/000$i.npy" || fail "the same command gave other numbers"
    cmp "one/000$i.mp4" "again/000$i.mp4" || fail "the same command gave another file"
done
cmp one/0000.npy alone.npy || fail "a video depends on those beside it"
[ -s one.png ] || fail "no sheet"
[ "$(ffprobe -v error -show_entries format_tags=seed -of csv=p=0 one/0001.mp4)" = 8 ] || fail "no seed in the metadata"
python3 - <<'PY' || fail "one rank and several differ"
import array, struct
def load(path):
    data = open(path, "rb").read()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    assert b"'<f4'" in data[:head] and b"(5, 32, 32, 3" in data[:head], data[:head]
    return array.array("f", data[head:])
for i in range(3):
    a = load(f"one/000{i}.npy")
    assert len(a) == 5 * 32 * 32 * 3
    for many in "two", "tp", "fsdp", "halves", "both", "ring", "mixed":
        b = load(f"{many}/000{i}.npy")
        error = sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(x * x for x in a) ** 0.5
        print(many, i, error)
        assert error <= 1e-5, error
PY

# a picture in tiles: on one rank and on several the same; chosen where memory is short, and refused before the first step
large=(--prompt "a red circle moving left" --height 128 --width 128)
generate 1 whole.mp4 "${large[@]}"
peak() { sed -n 's/.*predicted peak \([0-9.]*\) \([KMG]iB\).*/\1\2/p' generate.log; }
whole=$(peak)
generate 1 tiled.mp4 "${large[@]}" --tile 64x64+16
grep -q "decoded in 9 tiles of 64x64" generate.log || { cat generate.log; fail "no word about tiles"; }
tiled=$(peak)
generate 2 tiled2.mp4 "${large[@]}" --tile 64x64+16
python3 - "$whole" "$tiled" <<'PY' || fail "tiles"
import array, struct, sys
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
def error(a, b): return sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(x * x for x in a) ** 0.5
def bytes_of(text): return float(text[:-3]) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[text[-3:]]
one, two, whole = load("tiled.npy"), load("tiled2.npy"), load("whole.npy")
print(error(one, two), error(one, whole), sys.argv)
assert len(one) == len(whole) and error(one, two) <= 1e-5 and 0 < error(one, whole) < 0.5
assert bytes_of(sys.argv[2]) < 0.6 * bytes_of(sys.argv[1])
PY
generate 1 short.mp4 "${large[@]}" --memory $(python3 -c "print(int(float('${tiled%MiB}') * 2 ** 20) + 20000)")
grep -q "decoded in 9 tiles of 64x64" generate.log || { cat generate.log; fail "no tiles where memory is short"; }
refused "in the smallest, " 1 --height 128 --width 128 --memory 2MiB
grep -q "predicted peak" generate.log && fail "begun without the memory for it"
refused "transformer and text encoders take" 1 --memory 100KiB
refused "known are auto, on, off" 1 --tile 64
refused "multiples of 8" 1 --height 128 --width 128 --tile 64x64+20
# HunyuanVideo's autoencoder takes 17 frames in two tiles of time: alone they are the first rank's, with tiles of the picture all ranks'
hunyuan() { # RANKS OUT OPTIONS...
    local n=$1 out=$2
    shift 2
    ranks "$n" "$WEFT" generate --model "$SRC/tests/golden/pipelines/hunyuan" --prompt x --height 32 --width 32 --frames 17 --steps 1 \
        --raw --out "$out" "$@" >generate.log 2>&1 || { cat generate.log; fail "tiles of time on $n ranks: $*"; }
}
hunyuan 1 time.mp4
hunyuan 2 time2.mp4 --parallel tp=2
hunyuan 1 both.mp4 --tile 24x24+8
hunyuan 2 both2.mp4 --tile 24x24+8 --parallel tp=2
python3 - <<'PY' || fail "tiles of time"
import array, struct
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
for name in "time", "both":
    a, b = load(name + ".npy"), load(name + "2.npy")
    error = sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(x * x for x in a) ** 0.5
    print(name, error)
    assert len(a) == len(b) == 17 * 32 * 32 * 3 and error <= 1e-5
PY
exit 0
