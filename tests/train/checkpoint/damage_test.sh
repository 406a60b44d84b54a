#!/bin/bash
# Files of a run's checkpoint and latent cache are damaged one at a time, in DAMAGES ways drawn by
# SEED. The run names the damaged file, resumes from the newest intact checkpoint, and has the
# losses of an undamaged run. No intact checkpoint is removed.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set out=runs/whole --set checkpoint.keep_latest=9 >whole.log 2>&1 || { cat whole.log; fail "weft train dit"; }
# A removed data shard is reported: the index of the data set lists it.
a_removed_shard_is_reported() {
    "$WEFT" shard --in cur --out fewer --set heldout=0 --set max_samples=8 >fewer.log 2>&1 && rm fewer/train-000001.tar
    "$WEFT" train vae.yaml --set out=runs/fewer --set data.path=fewer --set stages.0.steps=1 >fewer.log 2>&1 || { cat fewer.log; fail "training without one of the shards"; }
    has_message fewer.log shard-partly-used file=fewer/train-000001.tar 'text~=8 samples' || fail "the removed shard is not reported"
}
check a_removed_shard_is_reported
cat >damage.py <<'PY'
import glob, json, os, random, shutil, subprocess, sys
weft, count, seed = os.environ["WEFT"], int(os.environ.get("DAMAGES", "10")), int(os.environ.get("SEED", "1"))
rng = random.Random(seed)
lines = [json.loads(l) for l in open("runs/whole/metrics.jsonl")]
losses = [d["loss"] for d in lines]
def cut(p, d): d[:] = d[:len(d) // 2]
def empty(p, d): d[:] = b""
def flip(p, d): d[rng.randrange(len(d))] ^= 1 << rng.randrange(8)
def zeros(p, d): i = rng.randrange(len(d)); d[i:i + 512] = bytes(len(d[i:i + 512]))
def more(p, d): d += b"more"
def swap(p, d): d[:] = open(rng.choice([q for q in files if q != p]), "rb").read()
hows = {"cut": cut, "empty": empty, "flip": flip, "zeros": zeros, "more": more, "swap": swap, "gone": None}
files = sorted(f for part in ("checkpoints/step-00000015", "latents") for f in glob.glob(f"runs/whole/{part}/**", recursive=True)
               if os.path.isfile(f) and os.path.getsize(f))
pairs = [(f, h) for f in files for h in hows]
rng.shuffle(pairs)
bad, named = [], 0
for path, how in pairs[:count]:
    shutil.rmtree("runs/hurt", ignore_errors=True)
    shutil.copytree("runs/whole", "runs/hurt")
    shutil.rmtree("runs/hurt/model")
    shutil.rmtree("runs/hurt/checkpoints/step-00000020")
    hurt = path.replace("runs/whole", "runs/hurt")
    data = bytearray(open(hurt, "rb").read())
    if hows[how]:
        before = bytes(data)
        hows[how](path, data)
        if data == before:
            continue
        open(hurt, "wb").write(data)
    else:
        os.remove(hurt)
    run = subprocess.run([weft, "train", "dit.yaml", "--set", "out=runs/hurt", "--set", "checkpoint.keep_latest=9"], capture_output=True, text=True)
    text = run.stdout + run.stderr
    after = [json.loads(l)["loss"] for l in open("runs/hurt/metrics.jsonl")]
    kept = os.path.exists("runs/hurt/checkpoints/step-00000010/state.json")
    is_named = os.path.basename(path) in text or "step-00000015" in text
    named += is_named
    in_checkpoint = "checkpoints" in path
    if run.returncode or after != losses or not kept or in_checkpoint and not is_named:
        bad.append((path, how, run.returncode, after == losses, kept, is_named, text[-400:]))
print(f"{min(count, len(pairs))} damages, {named} named, {len(bad)} wrong")
for b in bad:
    print(*b)
sys.exit(bool(bad))
PY
damage_is_named_and_skipped() { python3 damage.py || fail "a damaged file is not named, or changes the run"; }
check damage_is_named_and_skipped
finish
