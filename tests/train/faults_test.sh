#!/bin/bash
# What goes wrong while training: NaN in the data, ranks that die or sleep, a VAE's rank killed in the middle of a step.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }

# poison RUN N: NaN into the first value of the latents of the first N samples
poison() {
    python3 - "$1" "$2" <<'PY'
import glob, os, struct, sys, tarfile
for path in glob.glob(sys.argv[1] + "/latents/*/*.tar"):
    with tarfile.open(path) as tar:
        starts = [m.offset_data for m in tar if m.name.endswith(".npy")][:int(sys.argv[2])]
    assert starts
    os.path.exists(path + ".index") and os.remove(path + ".index")  # changed on purpose: no checksums
    with open(path, "r+b") as f:
        for start in starts:
            f.seek(start + 8)
            (header,) = struct.unpack("<H", f.read(2))
            f.seek(start + 10 + header)
            f.write(struct.pack("<f", float("nan")))
PY
}

# one bad sample: its steps are skipped, counted and shown, all others train
mkdir runs/nan
cp -r runs/dit/latents runs/nan
poison runs/nan 1
"$WEFT" train dit.yaml --set out=runs/nan >nan.log 2>&1 || { cat nan.log; fail "one bad sample stopped the run"; }
python3 - runs/nan/metrics.jsonl <<'PY' || fail "steps with NaN in the data"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
bad = [l["step"] for l in lines if l["loss"] is None]
assert len(lines) == 20 and 3 <= len(bad) <= 8, bad
assert lines[-1]["skipped"] == len(bad)
assert all(l["grad_norm"] is not None for l in lines if l["step"] not in bad)
PY

# nothing but bad samples: stops after guard.patience steps and names the last good checkpoint, also one of an earlier
# stage, on every rank
poison runs/nan 1000
rm -r runs/nan/model runs/nan/checkpoints/step-00000020
for n in 1 2; do
    ranks $n "$WEFT" train dit.yaml --set out=runs/nan --set guard.patience=3 >nan.log 2>&1 && fail "$n ranks: only NaN, but exit code 0"
    [ "$(grep -c 'weft train: step 18: 3 steps in a row were skipped (loss nan.*the last good checkpoint is runs/nan/checkpoints/step-00000015$' nan.log)" -ge 1 ] ||
        { cat nan.log; fail "$n ranks: the last good checkpoint is not named"; }
    grep -q 'no checkpoint' nan.log && { cat nan.log; fail "$n ranks: a rank does not know the checkpoint"; }
    [ ! -e runs/nan/model ] || fail "$n ranks: a model of a stopped run"
done

# victim: the newest process of the last run
victim() { pgrep -n -f -- "--set out=$1"; }
wait_for() { # FOLDER: until it is there, 60 s at most
    for _ in $(seq 6000); do
        [ -d "$1" ] && return
        sleep 0.01
    done
    fail "$1 never came"
}

# a rank that is gone, and one that sleeps: the others end within the deadline and name it
for how in KILL STOP; do
    rm -rf runs/dead
    ranks 2 "$WEFT" train dit.yaml --set out=runs/dead --set stages.0.steps=1000000 --set deadline=4 >dead.log 2>&1 &
    pid=$!
    wait_for runs/dead/checkpoints/step-00000015
    one=$(victim runs/dead)
    begin=$SECONDS
    kill -$how "$one"
    wait $pid && fail "$how: exit code 0"
    took=$((SECONDS - begin))
    kill -KILL "$one" 2>/dev/null
    if [ $how = STOP ]; then
        grep -qE 'rank [01] waited [4-9]\.[0-9] s in .* for rank [01]' dead.log || { cat dead.log; fail "the sleeping rank is not named"; }
    fi # the launcher may end the other one of a killed pair before it can speak
    [ $took -le 60 ] || { cat dead.log; fail "$how: took $took s"; }
done

# a VAE's rank killed in the middle of a step, then the same command: the same bits
for n in 2 3; do
    more=(--set stages.0.steps=40 --set checkpoint.every=8)
    ranks $n "$WEFT" train vae.yaml "${more[@]}" --set out=runs/vae$n >vae.log 2>&1 || { cat vae.log; fail "a VAE on $n ranks"; }
    for try in 1 2 3 4 5; do # until it falls between a checkpoint and the end
        rm -rf runs/broken$n
        ranks $n "$WEFT" train vae.yaml "${more[@]}" --set out=runs/broken$n >broken.log 2>&1 &
        pid=$!
        wait_for runs/broken$n/checkpoints/step-00000008
        kill -KILL "$(victim runs/broken$n)" 2>/dev/null
        wait $pid && continue
        ranks $n "$WEFT" train vae.yaml "${more[@]}" --set out=runs/broken$n >broken.log 2>&1 || { cat broken.log; fail "a VAE on $n ranks going on"; }
        grep -q 'going on from' broken.log && break
    done
    grep -q 'going on from' broken.log || fail "$n ranks: never killed between a checkpoint and the end"
    [ "$(losses runs/vae$n | wc -l)" = 40 ] || fail "$n ranks: 40 steps expected"
    diff <(losses runs/vae$n) <(losses runs/broken$n) || fail "a VAE on $n ranks: other losses after the death of a rank"
    cmp runs/vae$n/model/vae/diffusion_pytorch_model.safetensors runs/broken$n/model/vae/diffusion_pytorch_model.safetensors ||
        fail "a VAE on $n ranks: other weights after the death of a rank"
done
exit 0
