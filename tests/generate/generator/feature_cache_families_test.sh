#!/bin/bash
# Caches between steps in whole walks of many families, as diffusers publishes them (tests/golden/pipelines), and weft eval cache:
# steps that all refresh give the latents without a cache to the last bit; what cannot be cached is refused with the remedy.
set -u
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
fail() { echo "FAILED: $*"; exit 1; }
golden=$SRC/tests/golden/pipelines
make() { # OUT FOLDER OPTIONS...
    local out=$1 folder=$golden/$2
    shift 2
    mapfile -t options < <(python3 - "$folder/asked.json" <<'PY'
import json, os, sys
names = {"prompt": "--prompt", "negative": "--negative", "height": "--height", "width": "--width", "num_frames": "--frames",
         "num_inference_steps": "--steps", "guidance_scale": "--guidance", "guidance_scale_2": "--guidance-low",
         "frame_rate": "--fps", "guide": "--guide"}
for key, value in json.load(open(sys.argv[1])).items():
    if key in names:
        print(names[key], value, sep="\n")
for what in "image", "last_image":
    path = os.path.join(os.path.dirname(sys.argv[1]), what + ".png")
    if os.path.exists(path):
        print("--" + what.replace("_", "-"), path, sep="\n")
PY
    )
    local run=()
    [ "${ranks:-1}" = 1 ] || run=("$MPIRUN" --oversubscribe -n "$ranks")
    "${run[@]}" "$WEFT" generate --model "$folder" --latents --out "$out.mp4" "${options[@]}" "$@" >"$out.log" 2>&1
}
for name in wan22 wan_ti2v hunyuan flux ltx_i2v mochi cog15 cosmos2; do
    make off-$name $name || { cat off-$name.log; fail "$name"; }
    make all $name --cache every:1,front=0 || { cat all.log; fail "$name, every:1"; }
    cmp -s off-$name.latents.npy all.latents.npy || fail "$name: steps that all refresh give other latents"
done
for name in wan22 ltx_i2v cosmos2; do
    make half $name --cache every:2,front=0,warm=0,last=0 || { cat half.log; fail "$name, every:2"; }
    cmp -s off-$name.latents.npy half.latents.npy && fail "$name: a cache that changes nothing"
    grep -q "steps R\.R" half.log || { cat half.log; fail "$name: no step was left out"; }
done
[ "$(make two wan22 --cache attention:2,warm=0 && grep -c "^cache attention:2.*left out [1-9]" two.log)" = 2 ] && grep -q transformer_2 two.log ||
    { cat two.log; fail "two experts are two caches"; }
for name in hunyuan flux mochi; do # more than one block
    for rule in block:0 fast; do
        make rule $name --cache $rule || { cat rule.log; fail "$name, $rule"; }
        [ $rule != block:0 ] || cmp -s off-$name.latents.npy rule.latents.npy || fail "$name: block:0 gives other latents"
    done
done
make one wan22 --cache fast && fail "a cache behind the first of one block"
grep -q "1 blocks with attention" one.log || { cat one.log; fail "one block is not named"; }
make late wan22 --guidance-from 0.5 --guidance-until 0.2 && fail "an interval of nothing"
grep -q "no step between" late.log || { cat late.log; fail "an empty interval"; }

# every rule with every layout: the latents of one rank, and steps that reuse
several() { # FOLDER RULE OPTIONS...
    local name=$1 rule=$2
    shift 2
    ranks=2 make two $name --cache $rule "$@" || { cat two.log; fail "$name on two ranks: --cache $rule $*"; }
    grep -q "steps .*\." two.log || { cat two.log; fail "$name on two ranks, --cache $rule $*: no step reuses"; }
    diff <(grep -o "left out .* blocks\|steps [R.]*" one.log) <(grep -o "left out .* blocks\|steps [R.]*" two.log) || fail "$name, --cache $rule $*: other blocks or steps than on one rank"
    python3 - <<'PY' || fail "$name, --cache $rule $*: two ranks give other latents than one"
import array, struct
def load(name):
    data = open(name + ".latents.npy", "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
one, two = load("one"), load("two")
error = sum((x - y) ** 2 for x, y in zip(one, two)) ** 0.5 / sum(x * x for x in one) ** 0.5
print(error)
assert len(one) == len(two) and error <= 1e-5, error
PY
}
for rule in every:2,warm=0 block:0.7,warm=0 attention:2,warm=0; do
    make one latte --cache $rule || { cat one.log; fail "latte: --cache $rule"; }
    several latte $rule --parallel cp=2 --slices off
    several latte $rule --parallel cp=2
    several latte $rule --parallel tp=2
done
for rule in every:2,warm=0 block:0.9,warm=0; do
    make one hunyuan --cache $rule || { cat one.log; fail "hunyuan: --cache $rule"; }
    several hunyuan $rule --parallel tp=2
    several hunyuan $rule --parallel tp=2 --parallel sequence=true
    several hunyuan $rule --parallel cp=2 --parallel context=ring
done

# what is gained and lost, in a table and as JSON
printf 'a red cat\n# no prompt\na blue dog\n' >prompts.txt
"$WEFT" eval cache --model "$golden/flux" --prompts prompts.txt --frames 1 --height 64 --width 96 --steps 6 --try cache=block:0 \
    --try "cache=every:2,warm=0" --try "sampler=unipc steps=3" --json table.json >table.log 2>&1 || { cat table.log; fail "weft eval cache"; }
python3 - <<'PY' || { cat table.log; fail "figures of weft eval cache"; }
import json
t = json.load(open("table.json"))
same, half, fewer = t["each"]
assert same["psnr"] is None and same["psnr_least"] is None and same["identical"] == 2 and same["ssim"] == 1 and same["reused"] == 0, same
assert half["identical"] == 0 and half["psnr"] < 100 and abs(half["reused"] - 1 / 3) < 0.01 and half["predicted"] > 1, half
assert fewer["psnr"] < 100 and "reused" not in fewer, fewer
PY
"$WEFT" eval cache --model "$golden/flux" --prompts prompts.txt --frames 1 --height 64 --width 96 --try "cache=fast faster=1" >bad.log 2>&1 && fail "faster=1"
grep -q "faster" bad.log || { cat bad.log; fail "an unknown key is not named"; }
exit 0
