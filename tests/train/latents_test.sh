#!/bin/bash
# The cache of latents: what it holds, who else reads it, what a clip that does not decode costs, and when it is made anew.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae.yaml"; }
grep -q "data: 24 of 24 samples and 120 of 288 frames are used in an epoch; 168 frames" vae.log || { cat vae.log; fail "account"; }
# a clip that does not decode, and captions that are in .txt alone
python3 - <<'PY'
import glob, io, json, tarfile
path = glob.glob("shards/train-*.tar")[0]
with tarfile.open(path) as old:
    members = [(m.name, old.extractfile(m).read()) for m in old]
with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as new:
    bad = members[0][0].split(".")[0]
    for name, data in members:
        if name == bad + ".mp4":
            data = data[:len(data) // 3]
        if name.endswith(".json"):
            meta = json.loads(data)
            del meta["caption"]
            data = json.dumps(meta).encode()
        info = tarfile.TarInfo(name)
        info.size = len(data)
        new.addfile(info, io.BytesIO(data))
open("bad", "w").write(bad)
PY
bad=$(cat bad)
one='--set stages.0.warmup=0 --set stages.0.steps=2 --set stages.1.steps=1 --set checkpoint.every=100'
for n in 1 2; do
    ranks $n "$WEFT" train dit.yaml $one --set out=runs/dit$n >dit$n.log 2>&1 || { cat dit$n.log; fail "weft train dit.yaml on $n ranks"; }
    grep -q "latents: 23 of 24 samples" dit$n.log || { cat dit$n.log; fail "the account of encoding on $n ranks"; }
    grep -q "1 of 24 samples do not decode (found so far) (12 frames)" dit$n.log || { cat dit$n.log; fail "the clip is not counted"; }
    grep -q "data at the end of the stage: 23 of 23" dit$n.log || { cat dit$n.log; fail "the account of training"; }
    [ "$(ls runs/dit$n/latents | wc -l)" = 2 ] || fail "two stages, two caches"
    python3 - "$bad" runs/dit$n/latents/* <<'PY' || fail "the cache of $n ranks"
import glob, json, re, sys, tarfile
for folder in sys.argv[2:]:
    account = json.load(open(folder + "/account.json"))
    assert [d["key"] for d in account["list"]] == [sys.argv[1]], account["list"]
    assert account["used"]["samples"] + sum(d["samples"] for d in account["dropped"].values()) == account["samples"] == 24
    found = {}
    for path in glob.glob(folder + "/*.tar"):
        with tarfile.open(path) as archive:
            for m in archive:
                key, suffix = m.name.split(".", 1)
                assert suffix not in found.setdefault(key, {}), m.name
                found[key][suffix] = archive.extractfile(m).read()
    assert len(found) == 23 and sys.argv[1] not in found
    for parts in found.values():
        assert set(parts) == {"latent.npy", "json", "txt"} and len(parts["txt"]) > 5, set(parts)
        assert re.match(rb"\x93NUMPY.*'<f4'.*\(\d+, 4, 4, 4,?\)", parts["latent.npy"][:128], re.S), parts["latent.npy"][:128]
PY
    for shard in runs/dit$n/latents/*/*.tar; do tar tf "$shard" >/dev/null 2>err && [ ! -s err ] || fail "GNU tar does not read $shard"; done
done
# the same again: nothing is encoded; another VAE, or shards written anew: another cache
rm -rf runs/dit1/model runs/dit1/checkpoints
"$WEFT" train dit.yaml $one --set out=runs/dit1 >again.log 2>&1 || { cat again.log; fail "again"; }
[ "$(ls runs/dit1/latents | wc -l)" = 2 ] || fail "the cache was made twice"
grep -q "latents: 23 of 24 samples" again.log || fail "the account of the cache is not shown"
"$WEFT" train vae.yaml --set seed=5 --set out=runs/other >other.log 2>&1 || { cat other.log; fail "another VAE"; }
rm -rf runs/dit1/model runs/dit1/checkpoints
"$WEFT" train dit.yaml $one --set out=runs/dit1 --set autoencoder.weights=runs/other/model/vae >stale.log 2>&1 || { cat stale.log; fail "with another VAE"; }
[ "$(ls runs/dit1/latents | wc -l)" = 4 ] || fail "the latents of another VAE were taken"
touch shards/train-*.tar
rm -rf runs/dit1/model runs/dit1/checkpoints
"$WEFT" train dit.yaml $one --set out=runs/dit1 >touched.log 2>&1 || { cat touched.log; fail "with new shards"; }
[ "$(ls runs/dit1/latents | wc -l)" = 6 ] || fail "the latents of other shards were taken"
