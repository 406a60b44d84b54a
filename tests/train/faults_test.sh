#!/bin/bash
# Faults while training: NaN in the data, a killed or stopped rank, and a rank of a VAE run that is
# killed in the middle of a step.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }

# poison RUN N: writes NaN into the first value of the latents of the first N samples of each file
poison() {
    python3 -S - "$1" "$2" <<'PY'
import glob, os, struct, sys, tarfile
for path in glob.glob(sys.argv[1] + "/latents/*/*.tar"):
    with tarfile.open(path) as tar:
        starts = [m.offset_data for m in tar if m.name.endswith(".npy")][:int(sys.argv[2])]
    assert starts
    os.path.exists(path + ".index") and os.remove(path + ".index")  # without the index nothing has a checksum
    with open(path, "r+b") as f:
        for start in starts:
            f.seek(start + 8)
            (header,) = struct.unpack("<H", f.read(2))
            f.seek(start + 10 + header)
            f.write(struct.pack("<f", float("nan")))
PY
}

# Git LFS pointers in place of a clip in a shard and of a shard: named, with the remedy, and skipped
pointers_of_git_lfs_in_shards_are_named() {
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' 7 >pointer
    mkdir lfs
    python3 -S - shards/*.tar <<'PY' || fail "shards with pointers"
import io, sys, tarfile
clips = 0
with tarfile.open(sys.argv[1]) as old, tarfile.open("lfs/train-000000.tar", "w", format=tarfile.USTAR_FORMAT) as new:
    for member in old:
        data = old.extractfile(member).read()
        clips += member.name.endswith(".mp4")
        if clips == 3 and member.name.endswith(".mp4"):
            data = open("pointer", "rb").read()
        info = tarfile.TarInfo(member.name)
        info.size = len(data)
        new.addfile(info, io.BytesIO(data))
PY
    cp pointer lfs/train-000001.tar
    "$WEFT" train vae.yaml --set data.path=lfs --set out=runs/lfs >lfs.log 2>&1 || { cat lfs.log; fail "pointers stopped the run"; }
    has_message lfs.log shard-partly-used level=warning file=lfs/train-000001.tar 'text~=git lfs pull' || { cat lfs.log; fail "the shard"; }
    has_message lfs.log sample-skipped level=warning 'text~=git lfs pull' || { cat lfs.log; fail "the clip"; }
}
check pointers_of_git_lfs_in_shards_are_named

# NaN in the decoder, which the run does not use: found before the clips are encoded
a_damaged_decoder_is_named() {
    cp -r runs/vae/model/vae bad_vae
    python3 -S - bad_vae/diffusion_pytorch_model.safetensors >tensor <<'PY'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:start])
name = sorted(n for n in header if n.startswith("decoder.") and header[n]["dtype"] == "F32")[-1]
at = start + header[name]["data_offsets"][0]
data[at:at + 4] = struct.pack("<f", float("nan"))
open(sys.argv[1], "wb").write(data)
print(name)
PY
    "$WEFT" train dit.yaml --set autoencoder.weights=bad_vae --set out=runs/bad >bad.log 2>&1 && fail "accepted"
    has_message bad.log tensor-not-finite level=error file=bad_vae/diffusion_pytorch_model.safetensors key="$(cat tensor)" || { cat bad.log; fail "not named"; }
    ! is_progress bad.log || fail "found after the work"
}
check a_damaged_decoder_is_named

# One bad sample: its steps are skipped and counted, all other steps train.
steps_of_a_bad_sample_are_skipped() {
    mkdir runs/nan
    cp -r runs/dit/latents runs/nan
    poison runs/nan 1
    "$WEFT" train dit.yaml --set out=runs/nan >nan.log 2>&1 || { cat nan.log; fail "one bad sample stopped the run"; }
    python3 -S - runs/nan/metrics.jsonl <<'PY' || fail "steps with NaN in the data"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
bad = [l["step"] for l in lines if l["loss"] is None]
assert len(lines) == 20 and 3 <= len(bad) <= 8, bad
assert lines[-1]["skipped"] == len(bad)
assert all(l["grad_norm"] is not None for l in lines if l["step"] not in bad)
PY
}
check steps_of_a_bad_sample_are_skipped

# Only bad samples: the run stops after guard.patience steps. Every rank names the last good
# checkpoint, even if it is of an earlier training stage.
a_run_of_bad_samples_stops() {
    needs steps_of_a_bad_sample_are_skipped
    poison runs/nan 1000
    rm -r runs/nan/model runs/nan/checkpoints/step-00000020
    for n in 1 2; do
        ranks $n "$WEFT" train dit.yaml --set out=runs/nan --set guard.patience=3 >nan.log 2>&1 && fail "$n ranks: exit code 0 although every loss is NaN"
        [ "$(count_messages nan.log loss-not-finite level=error "text~=step 18" text~=runs/nan/checkpoints/step-00000015)" = \
            "$(count_messages nan.log loss-not-finite level=error)" ] && has_message nan.log loss-not-finite level=error ||
            { cat nan.log; fail "$n ranks: a rank does not name the last good checkpoint"; }
        [ ! -e runs/nan/model ] || fail "$n ranks: the stopped run wrote a model"
    done
}
check a_run_of_bad_samples_stops

source "$SRC/tests/signal_at.sh"
# signal_rank_1 SIGNAL STEP COMMAND...: starts $n ranks. Rank 1 gets the signal when rank 0 has
# written the checkpoint of STEP. Status 124: the other ranks hang.
signal_rank_1() {
    local signal=$1 step=$2
    shift 2
    SIGNAL_RANK=0 SIGNAL_TO=pid.1 signal_at "$signal" "*/checkpoints/step-000000$step" timeout 600 "$MPIRUN" --oversubscribe -n "$n" bash "$with_pid" "" "$@"
}

a_killed_or_stopped_rank_is_named() { # SIGNAL
    local how=$1 n=2 status waited
    rm -rf runs/dead pid.1
    # rank 0 waits for 1000 s on a clock that runs ahead only while rank 1 is stopped
    CLOCK_STOPPED=$PWD/pid.1 SIGNAL_WITH=$PWD/slow_clock.so \
        signal_rank_1 $how 15 "$WEFT" train dit.yaml --set out=runs/dead --set stages.0.steps=1000000 --set comm_timeout=1000 >dead.log 2>&1
    status=$?
    kill -KILL "$(cat pid.1)" 2>/dev/null
    [ $status != 0 ] || fail "$how: exit code 0"
    [ $status != 124 ] || { cat dead.log; fail "$how: the other rank hangs"; }
    if [ $how = STOP ]; then
        waited=$(message_field value dead.log rank-failed rank=1 level=error) || fail "the stopped rank is not named"
        [ "${waited%.*}" -ge 1000 ] || { cat dead.log; fail "the rank was given up before comm_timeout: $waited s"; }
    fi # after a kill, the launcher may end the other rank before it prints a message
}
cc -D_GNU_SOURCE -shared -fPIC -o slow_clock.so "$SRC/tests/slow_clock.c" -ldl || fail "slow_clock.so"
for how in KILL STOP; do check "a_rank_after_SIG${how}_is_named" a_killed_or_stopped_rank_is_named $how; done

# A rank of a VAE run is killed in the middle of a step. The same command resumes bitwise.
a_vae_resumes_after_a_kill() { # RANKS
    local n=$1
    more=(--set stages.0.steps=40 --set checkpoint.interval=8)
    ranks $n "$WEFT" train vae.yaml "${more[@]}" --set out=runs/vae$n >vae.log 2>&1 || { cat vae.log; fail "a VAE on $n ranks"; }
    signal_rank_1 KILL 08 "$WEFT" train vae.yaml "${more[@]}" --set out=runs/broken$n >broken.log 2>&1 && { cat broken.log; fail "$n ranks: no rank was killed"; }
    ranks $n "$WEFT" train vae.yaml "${more[@]}" --set out=runs/broken$n >broken.log 2>&1 || { cat broken.log; fail "a VAE on $n ranks: the resumed run failed"; }
    has_message broken.log run-resumed || fail "$n ranks: did not resume"
    [ "$(losses runs/vae$n | wc -l)" = 40 ] || fail "$n ranks: 40 steps expected"
    diff <(losses runs/vae$n) <(losses runs/broken$n) || fail "a VAE on $n ranks: losses differ after a rank was killed"
    cmp runs/vae$n/model/vae/diffusion_pytorch_model.safetensors runs/broken$n/model/vae/diffusion_pytorch_model.safetensors ||
        fail "a VAE on $n ranks: weights differ after a rank was killed"
}
for n in 2 3; do check "a_vae_on_${n}_ranks_resumes_after_a_kill" a_vae_resumes_after_a_kill $n; done
finish
