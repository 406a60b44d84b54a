#!/bin/bash
# autoencoder.tile: latents are encoded clip by clip, as a stream and in tiles. They have a cache of
# their own, are bitwise the same on any number of ranks, and are close to the latents of whole frames.
# The peak is at most the predicted one. Invalid settings are refused.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
run() { # run NAME RANKS ARGUMENTS...: two steps with frames of 64x64, four steps in total
    local name=$1 n=$2
    shift 2
    ranks "$n" "$WEFT" train dit.yaml --set out="runs/$name" --set checkpoint.interval=100 --set stages.0.height=64 --set stages.0.width=64 \
        --set stages.0.steps=2 --set stages.1.steps=2 "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
}
run whole 1
run stream 1 --set autoencoder.tile=on # no frame is larger than the reference's tiles
run tiles 1 --set autoencoder.tile=32x32+16
run two 2 --set autoencoder.tile=32x32+16
run again 1 --set autoencoder.tile=32x32+16 --set data.latents=runs/tiles/latents
tiles_are_encoded_once() {
    ! is_progress again.log "encode latents" || { cat again.log; fail "tiles are encoded again"; }
    has_message tiles.log data-report key=latents "text~=24 of 24" || fail "the encoding report"
}
check tiles_are_encoded_once
latents_of_tiles_are_near() {
    python3 -S - <<'PY' || fail "the latents in tiles"
import array, ast, glob, io, math, tarfile
def cache(run):  # by the shape of the latents and the clip
    found = {}
    for path in glob.glob(f"runs/{run}/latents/*/*.tar"):
        with tarfile.open(path) as archive:
            for m in archive:
                if m.name.endswith(".latent.npy"):
                    data = archive.extractfile(m).read()
                    head = 10 + int.from_bytes(data[8:10], "little")
                    shape = ast.literal_eval(data[10:head].decode())["shape"]
                    found[shape, m.name] = array.array("f", data[head:])
    return found
def folders(run):
    return {path.split("/")[-1] for path in glob.glob(f"runs/{run}/latents/*")}
whole, stream, tiles, two = map(cache, ("whole", "stream", "tiles", "two"))
assert len(whole) == 48 and set(whole) == set(stream) == set(tiles) == set(two), len(whole)
assert not folders("whole") & folders("tiles") and not folders("stream") & folders("tiles")
assert folders("tiles") == folders("two")
assert tiles == two, "other bits on two ranks"
def apart(a, b):
    return math.dist(a, b) / math.hypot(*b)
worst = max(apart(stream[k], whole[k]) for k in whole)
assert worst <= 1e-6, f"as a stream {worst}"
far = [apart(tiles[k], whole[k]) for k in whole if k[0][1] == 8]
near = [apart(tiles[k], whole[k]) for k in whole if k[0][1] == 4]
assert len(far) == len(near) == 24
assert max(near) <= 1e-6, f"a picture of one tile: {max(near)}"
assert 1e-4 < min(far) and max(far) < 0.5, f"blended tiles: {min(far)} to {max(far)}"
PY
    losses runs/tiles >tiles.txt
    losses runs/again | diff tiles.txt - || fail "other losses from the same latents"
    ! losses runs/whole | cmp -s tiles.txt - || fail "tiles do not change the latents"
}
check latents_of_tiles_are_near

# ---- memory: large frames, and an encoder with many channels at full resolution ----
"$WEFT" synth --out large --shots 3 --size 256 --single-share 1 --held-out-clips 0 --min-frames 18 --max-frames 18 >synth.log 2>&1 || { cat synth.log; fail "weft synth"; }
python3 -S - <<'PY'
import glob, json, os, shutil
os.makedirs("wide/clips"); os.makedirs("wide/metas")
for f in sorted(glob.glob("large/train/s*.mp4")):
    key = os.path.basename(f)[:-4]
    shutil.copy(f, f"wide/clips/{key}.mp4")
    json.dump({"id": key, "caption": "x", "frames": 18, "width": 256, "height": 256, "fps": 24.0}, open(f"wide/metas/{key}.json", "w"))
PY
"$WEFT" shard --in wide --out wide-shards --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard"; }
large="--set data.path=wide-shards --set stages.0.steps=1 --set stages.1.steps=1 --set stages.0.batch=1 --set stages.1.batch=1 --set stages.0.frames=17
       --set stages.0.height=256 --set stages.0.width=256 --set stages.1.frames=17"
measure() { # measure NAME ARGUMENTS...: predicted and measured MiB
    local name=$1
    shift
    python3 -S - "$name" "$WEFT" train dit.yaml $large --set out="runs/$name" "$@" <<'PY' || { cat "$name.log"; fail "$name"; }
import json, resource, subprocess, sys
log = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
open(sys.argv[1] + ".log", "w").write(log.stdout)
if log.returncode:
    sys.exit(1)
lines = [json.loads(line) for line in log.stdout.splitlines() if line.startswith("{")]
told = next(m["value"] for m in lines if m.get("id") == "memory-report" and "value" in m and "key" not in m)
open(sys.argv[1] + ".mib", "w").write(f"{told / 2**20} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}\n")
PY
}
measure all
measure parts --set autoencoder.tile=96x96+32
tiles_take_the_predicted_memory() {
    case $WEFT_BUILD in
    */asan | */tsan) ;; # use more memory
    *) python3 -S - <<'PY' || fail "memory: $(cat all.mib) whole, $(cat parts.mib) in tiles" ;;
(told, took), (less, taken) = (map(float, open(name + ".mib").read().split()) for name in ("all", "parts"))
assert told - less > 40, "tiles are told to save nothing"
assert took <= 1.05 * told and taken <= less + 32, "more than is told"
assert took - taken > 0.6 * (told - less), "tiles save nothing"
PY
    esac
}
check tiles_take_the_predicted_memory

refused() { # ID [FIELD=VALUE...] -- CONFIG ARGUMENTS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train "$@" --set out="${of:-runs/no}" >no.log 2>&1 && fail "accepted: $*"
    has_message no.log "${wanted[@]}" || fail "$*: another message"
}
refusals() {
    of=runs/tiles refused '*' 'text~=autoencoder.tile changed' -- dit.yaml --set checkpoint.interval=100 --set stages.0.height=64 --set stages.0.width=64 --set stages.0.steps=2 \
        --set stages.1.steps=3 --set autoencoder.tile=32x32
    refused config-value key=*autoencoder.tile text~=64 text~=WIDTHxHEIGHT -- dit.yaml --set autoencoder.tile=64
    refused '*' text~=autoencoder.tile: 'text~=tiles of 20' 'text~=multiples of 8' -- dit.yaml --set autoencoder.tile=20x20
    refused config-no-effect file=vae.yaml key=autoencoder.tile 'text~=training an autoencoder' -- vae.yaml --set autoencoder.tile=on
}
check refusals
finish
