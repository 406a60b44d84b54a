#!/bin/bash
# state.json of a checkpoint with each of its values removed, negative, huge or of another type, and
# a matching checksum. An invalid value is refused with the file's name, and nothing is trained. A
# value that is accepted does not change the losses. Also: a file as `out`, VAE weights one folder
# deeper, a warmup longer than its stage, and the kill timeout of the launcher.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
run() { "$WEFT" train vae.yaml "$@" --set stages.0.warmup_steps=0 --set checkpoint.keep_latest=9; }
run --set checkpoint.interval=4 --set out=runs/vae >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
a_warmup_of_0_is_not_reported() {
    [ "$(count_messages vae.log '*' key=stages.0.warmup_steps)" = 0 ]
}
check a_warmup_of_0_is_not_reported
cat >variants.py <<'PY'
import copy, json, os, shutil, subprocess, sys
weft, losses = os.environ["WEFT"], {}
for line in open("runs/vae/metrics.jsonl"):
    d = json.loads(line)
    losses[d["step"]] = d["loss"]
base = "runs/bad"
shutil.rmtree(base, ignore_errors=True)
shutil.copytree("runs/vae", base)
shutil.rmtree(base + "/model")
shutil.rmtree(base + "/checkpoints/step-00000008")
path = base + "/checkpoints/step-00000004/state.json"
good = json.load(open(path))
good.pop("self")
good["format"] = 1  # this format has no checksum
def paths(node, at=()):
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if at + (key,) == ("checksums",):
            continue
        yield at + (key,)
        yield from paths(value, at + (key,))
def put(at, value):
    state = copy.deepcopy(good)
    node = state
    for key in at[:-1]:
        node = node[key]
    if value is GONE:
        node.pop(at[-1])
    else:
        node[at[-1]] = value
    return state
GONE = object()
values = [("gone", GONE), ("-1", -1), ("huge", 2**62), ("null", None), ("text", "x"), ("list", []), ("object", {}), ("1.5", 1.5)]
metrics = open("runs/vae/metrics.jsonl").read().splitlines(True)[:4]
refused = taken = 0
bad = []
few = os.environ.get("FEW", "")
variants = [(at, name, value) for at in paths(good) for name, value in values]
for at, name, value in variants[::3] if few else variants:
    json.dump(put(at, value), open(path, "w"))
    open(base + "/metrics.jsonl", "w").writelines(metrics)
    run = subprocess.run([weft, "train", "vae.yaml", "--set", "out=" + base, "--set", "stages.0.warmup_steps=0", "--set", "checkpoint.interval=0",
                          "--set", "checkpoint.keep_latest=9"], capture_output=True, text=True)
    text = run.stdout + run.stderr
    after = [json.loads(l) for l in open(base + "/metrics.jsonl")]
    if run.returncode == 0:
        taken += 1
        if len(after) != 8 or any(d["loss"] != losses[d["step"]] for d in after):
            bad.append((at, name, "resumed with other losses"))
    else:
        refused += 1
        if run.returncode < 0 or "step-00000004" not in text and "state.json" not in text or len(after) != 4:
            bad.append((at, name, run.returncode, text[-200:]))
    shutil.rmtree(base + "/model", ignore_errors=True)
    shutil.rmtree(base + "/checkpoints/step-00000008", ignore_errors=True)
print(f"{refused} refused, {taken} resumed with the same losses, {len(bad)} wrong")
for b in bad:
    print(b)
sys.exit(bool(bad))
PY
damaged_states_are_refused_or_train_the_same() { FEW=${FEW-1} python3 variants.py || fail "a damaged state.json is accepted, or changes the losses"; }
check damaged_states_are_refused_or_train_the_same

# The seconds of a step and of a checkpoint are compared once with the time after which the launcher
# kills ranks. With 0 s the run warns.
the_kill_timeout_of_the_launcher() { # PATIENCE
    local patience=$1
    OMPI_MCA_odls_base_sigkill_timeout=$patience ranks 2 "$WEFT" train vae.yaml --set out=runs/patient$patience --set stages.0.steps=6 \
        --set checkpoint.interval=1 >patient.log 2>&1 || { cat patient.log; fail "training with a kill timeout of $patience s"; }
    [ "$(count_messages patient.log config-unusual key=checkpoint.interval value=$patience)" = $((patience == 0)) ] || { cat patient.log; fail "a kill timeout of $patience s: not exactly one warning at 0 s, or a warning at 1000 s"; }
}
for patience in 0 1000; do check "the_kill_timeout_of_the_launcher_$patience" the_kill_timeout_of_the_launcher "$patience"; done

a_file_as_out_is_refused() {
    touch runs/file
    run --set out=runs/file >file.log 2>&1 && fail "a file is accepted as out"
    has_message file.log file-io file=runs/file 'text~=a folder' || fail "the error of a file as out does not name the file"
}
check a_file_as_out_is_refused
a_vae_one_folder_deeper_is_named() { # FOLDER
    local folder=$1
    "$WEFT" train dit.yaml --set autoencoder.weights=$folder >deep.log 2>&1 && fail "$folder is accepted as a VAE"
    has_message deep.log config-value 'text~=write runs/vae/model/vae' || fail "the error does not name the VAE below $folder"
}
for folder in runs/vae runs/vae/model; do check "a_vae_below_${folder//\\//_}_is_named" a_vae_one_folder_deeper_is_named $folder; done
a_long_warmup_is_reported() {
    "$WEFT" train vae.yaml --set out=runs/warm --set stages.0.steps=2 --set stages.0.warmup_steps=3 >warm.log 2>&1 || { cat warm.log; fail "training with a warmup longer than the stage"; }
    has_message warm.log config-unusual key=stages.0.warmup_steps || fail "a warmup longer than the stage is not reported"
}
check a_long_warmup_is_reported
finish
