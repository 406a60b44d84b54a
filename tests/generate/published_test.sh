#!/bin/bash
# What published folders have beside a transformer: a second expert with its boundary, a negative prompt; latents in and out.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
for run in one two; do
    sed 's/steps: 12/steps: 6/; /steps: 8, batch: 5/d' dit.yaml >dit_short.yaml
    "$WEFT" train dit_short.yaml --set out=runs/$run --set seed=$([ $run = one ] && echo 1 || echo 2) >$run.log 2>&1 || { cat $run.log; fail "weft train $run"; }
done
generate() { # generate OUT MODEL [options]: OUT.latents.npy
    local out=$1 model=$2
    shift 2
    "$WEFT" generate --model "$model" --prompt "a red circle" --steps 4 --frames 5 --latents --out "$out.mp4" "$@" >generate.log 2>&1
}
must() { generate "$@" || { cat generate.log; fail "generate $*"; }; }
refused() { # refused WORDS MODEL [options]
    local words=$1
    shift
    generate refused "$@" && fail "not refused: $words"
    grep -q -e "$words" generate.log || { cat generate.log; fail "the refusal does not say: $words"; }
}
same() { cmp -s "$1.latents.npy" "$2.latents.npy" || fail "$1 and $2 differ"; }
differ() { cmp -s "$1.latents.npy" "$2.latents.npy" && fail "$1 and $2 are the same"; }
must one runs/one/model
# two experts that are one are that one; a boundary at the end leaves one of them alone
for pair in "alike one" "other two"; do
    set -- $pair
    cp -r runs/one/model "$1"
    cp -r "runs/$2/model/transformer" "$1/transformer_2"
done
refused 'boundary_ratio' alike
for model in alike other; do
    python3 - $model <<'PY'
import json, sys
path = sys.argv[1] + "/model_index.json"
index = json.load(open(path))
index["boundary_ratio"] = 0.875
index["transformer_2"] = index["transformer"]
json.dump(index, open(path, "w"))
PY
done
must alike alike
same alike one
must other other
differ other one
must low other --boundary 1
must two runs/two/model
# (the encoder is of the other run: only the transformers are compared)
differ low one
must scales alike --guidance-low 2
differ scales alike
# what model_index.json names and a download lacks is not left out
for part in transformer_2 scheduler; do
    mv other/$part away
    refused "names \"$part\", and there is no such folder" other
    mv away other/$part
done
sed -i 's/"num_layers": 2/"num_layers": 1/' other/transformer_2/config.json
refused "transformer_2 has another config" other
# a negative prompt is in the place of the empty one
must negative runs/one/model --negative "a blue square"
differ negative one
must nothing runs/one/model --negative ""
same nothing one
# latents to begin with stand in for the seed's
python3 - <<'PY'
import random, struct
def npy(path, shape):
    count = 1
    for n in shape:
        count *= n
    head = ("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % (shape,)).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    values = [random.Random(3).gauss(0, 1) for _ in range(1)] + [random.gauss(0, 1) for _ in range(count - 1)]
    open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack("<%df" % count, *values))
npy("noise.npy", (2, 4, 4, 4))
npy("short.npy", (2, 4, 4, 3))
PY
must given runs/one/model --noise noise.npy
must seeded runs/one/model --noise noise.npy --seed 9
same given seeded
differ given one
refused "2 frames x 4 x 4 x 4 channels are needed" runs/one/model --noise short.npy
exit 0
