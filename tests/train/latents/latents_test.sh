#!/bin/bash
# The cache of latents: its content, other readers, clips that do not decode, and the changes after
# which latents are encoded again.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae.yaml"; }
every_sample_is_counted() {
    has_message vae.log data-report key=data "text~=24 of 24" "text~=120 of 288" text~=168 || fail "the report of the data"
}
check every_sample_is_counted
# a clip that does not decode, and captions in .txt only
python3 -S - <<'PY'
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
one='--set stages.0.warmup_steps=0 --set stages.0.steps=2 --set stages.1.steps=1 --set checkpoint.interval=100'
a_cache_has_the_clips_that_decode() { # N
    local n=$1
    ranks $n "$WEFT" train dit.yaml $one --set out=runs/dit$n >dit$n.log 2>&1 || { cat dit$n.log; fail "weft train dit.yaml on $n ranks"; }
    has_message dit$n.log data-report key=latents "text~=23 of 24" || fail "the encoding report on $n ranks"
    has_message dit$n.log data-report key=latents "text~=1 of 24" "text~=12 frames" || fail "the clip is not counted"
    has_message dit$n.log data-report "key=data at the end of the stage" "text~=23 of 23" || fail "the training report"
    [ "$(ls runs/dit$n/latents | wc -l)" = 2 ] || fail "two stages, two caches"
    python3 -S - "$bad" runs/dit$n/latents/* <<'PY' || fail "the cache of $n ranks"
import glob, json, re, sys, tarfile
for folder in sys.argv[2:]:
    account = json.load(open(folder + "/data-report.json"))
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
}
for n in 1 2; do check "a_cache_has_the_clips_that_decode_$n" a_cache_has_the_clips_that_decode "$n"; done
# A repeated run encodes nothing. Another VAE or rewritten shards have another cache.
a_cache_belongs_to_a_vae_and_shards() {
    needs a_cache_has_the_clips_that_decode_1
    rm -rf runs/dit1/model runs/dit1/checkpoints
    "$WEFT" train dit.yaml $one --set out=runs/dit1 >again.log 2>&1 || { cat again.log; fail "the repeated run"; }
    [ "$(ls runs/dit1/latents | wc -l)" = 2 ] || fail "the cache was encoded twice"
    has_message again.log data-report key=latents "text~=23 of 24" || fail "the cache is not reported"
    "$WEFT" train vae.yaml --set seed=5 --set out=runs/other >other.log 2>&1 || { cat other.log; fail "another VAE"; }
    rm -rf runs/dit1/model runs/dit1/checkpoints
    "$WEFT" train dit.yaml $one --set out=runs/dit1 --set autoencoder.weights=runs/other/model/vae >stale.log 2>&1 || { cat stale.log; fail "with another VAE"; }
    [ "$(ls runs/dit1/latents | wc -l)" = 4 ] || fail "the latents of another VAE were used"
    touch shards/train-*.tar
    rm -rf runs/dit1/model runs/dit1/checkpoints
    "$WEFT" train dit.yaml $one --set out=runs/dit1 >touched.log 2>&1 || { cat touched.log; fail "with new shards"; }
    [ "$(ls runs/dit1/latents | wc -l)" = 6 ] || fail "the latents of other shards were used"
    # Weights in files of torch count as well: the same weights have the same cache.
    local caches=6
    for vae in vae other; do
        mkdir torch-$vae && cp runs/$vae/model/vae/config.json torch-$vae
        cp runs/$vae/model/vae/*.safetensors torch-$vae/diffusion_pytorch_model.bin
        rm -rf runs/dit1/model runs/dit1/checkpoints
        "$WEFT" train dit.yaml $one --set out=runs/dit1 --set autoencoder.weights=torch-$vae >torch.log 2>&1 || { cat torch.log; fail "with the file of torch of $vae"; }
        [ "$(ls runs/dit1/latents | wc -l)" = $caches ] || fail "caches with the file of torch of $vae"
        caches=8
    done
}
check a_cache_belongs_to_a_vae_and_shards

# A latent depends on its clip only and an embedding on its caption only, not on the number of ranks
# and not on other samples. Rows of a product are rounded by their position, so samples that share a
# batch differ.
arrays() { # FOLDER: path, name and checksum of every array of its caches
    python3 -S - "$1"/*/*.tar <<'PY'
import hashlib, sys, tarfile
lines = []
for path in sys.argv[1:]:
    with tarfile.open(path) as archive:
        lines += [f"{path.split('/')[-2]} {m.name} {hashlib.md5(archive.extractfile(m).read()).hexdigest()}" for m in archive if m.name.endswith(".npy")]
print("\n".join(sorted(lines)))
PY
}
arrays_belong_to_their_samples() { # [ISA]
    local n dir=arrays${1-}
    needs a_cache_has_the_clips_that_decode_1
    [ $# = 0 ] || export WEFT_CPU_ISA=$1
    sed 's|class: WeftBytesEncoder|weights: runs/dit1/model/text_encoder|; /config: {dim: 16/d' dit.yaml >frozen.yaml
    for n in 2 3 1; do
        ranks $n "$WEFT" train frozen.yaml $one --set data.latents=$dir.$n --set out=runs/$dir.$n >arrays.log 2>&1 || { cat arrays.log; fail "frozen encoders on $n ranks"; }
        arrays $dir.$n >$dir.$n.list
        [ "$(wc -l <$dir.$n.list)" = 92 ] || fail "$(wc -l <$dir.$n.list) arrays on $n ranks"
        diff $dir.2.list $dir.$n.list || fail "other arrays on $n ranks than on 2"
    done
    rm $dir.2/*/train-0001-*.tar* $dir.2/*/complete
    "$WEFT" train frozen.yaml $one --set data.latents=$dir.2 --set out=runs/$dir.half >arrays.log 2>&1 || { cat arrays.log; fail "half of the arrays"; }
    arrays $dir.2 | diff $dir.2.list - || fail "other arrays after half of them were lost"
}
check arrays_belong_to_their_samples
# Two families that use the same text encoders in another way have caches of their own in one folder:
# HunyuanVideo takes the pooled vector of the second one, HunyuanVideo 1.5 its tokens.
a_cache_belongs_to_a_use_of_the_encoders() {
    needs arrays_belong_to_their_samples
    local name=HunyuanVideo sizes='num_refiner_layers: 1, num_attention_heads: 2, attention_head_dim: 16, rope_axes_dim: [4, 6, 6]'
    local config="{num_layers: 1, num_single_layers: 1, $sizes, pooled_projection_dim: 16}"
    for caches in 1 2; do
        sed "s/class: WanTransformer3DModel/class: ${name}Transformer3DModel/; s/  config: {num_layers: 2.*/  config: $config/; s/^text_encoders:/&\n  - weights: runs\/dit1\/model\/text_encoder/; /^  - {steps: 8/d" frozen.yaml >$name.yaml
        "$WEFT" train $name.yaml --set stages.0.warmup_steps=0 --set stages.0.steps=1 --set stages.0.batch=2 --set data.latents=shared --set out=runs/$name >$name.log 2>&1 ||
            { cat $name.log; fail "$name with the cache of another family"; }
        [ "$(ls shared | wc -l)" = $caches ] || fail "$(ls shared | wc -l) caches of $caches families"
        name=HunyuanVideo15 config="{num_layers: 1, $sizes, text_embed_2_dim: 16, text_embed_2_hidden_dim: 16}"
    done
}
check a_cache_belongs_to_a_use_of_the_encoders
check arrays_belong_to_their_samples_avx2 arrays_belong_to_their_samples avx2

# ---- caches that are shared, damaged, or incomplete after a kill ----
again() { # again NAME ARGUMENTS...: a new run of stages 0 and 1 with the cache of the run `cache`
    local name=$1
    shift
    rm -rf "runs/$name"
    "$WEFT" train dit.yaml $one --set data.latents=cache --set out="runs/$name" "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
}
keys() { for t in cache/*/*.tar; do tar tf "$t"; done | grep -c 'latent.npy$'; }
content() { for t in cache/*/*.tar; do tar xOf "$t" --wildcards '*.latent.npy' | md5sum; done | sort; }
rm -rf cache
runs_share_a_cache() {
    ranks 2 "$WEFT" train dit.yaml $one --set data.latents=cache --set out=runs/fill >fill.log 2>&1 || { cat fill.log; fail "fill"; }
    [ "$(ls cache/*/train-0000-*.tar | wc -l)" = 2 ] && [ "$(ls cache/*/train-0001-*.tar | wc -l)" = 2 ] || fail "each rank writes its share: $(ls cache/*)"
    [ "$(keys)" = 46 ] || fail "$(keys) latents in two caches"
    content >whole
    stat -c '%n %Y %i' cache/*/*.tar >stamps
    again shared
    stat -c '%n %Y %i' cache/*/*.tar | diff stamps - || fail "another run encodes cached latents"
    losses runs/shared >whole.losses
}
check runs_share_a_cache
# Half of the samples are missing, as after a kill. Temporary files of the killed run are removed.
a_half_encoded_cache_is_completed() {
    needs runs_share_a_cache
    dead=$(bash -c 'echo $$')
    for c in cache/*; do rm "$c"/train-0001-*.tar* "$c/complete"; touch "$c/train-0001-000000.tar.tmp.$dead"; done
    again killed
    has_message killed.log data-report key=latents value=12 || fail "the existing latents are not reported"
    [ "$(keys)" = 46 ] || fail "$(keys) latents after a kill"
    losses runs/killed | diff whole.losses - || fail "other losses after a kill"
    ! ls cache/*/*.tmp.* 2>/dev/null || fail "temporary files of the killed run remain"
}
check a_half_encoded_cache_is_completed
# A truncated shard and a shard with a changed byte are reported, and their clips are encoded again.
damaged_shards_are_encoded_again() {
    needs runs_share_a_cache
    first=$(ls cache/*/train-*.tar | head -1)
    last=$(ls cache/*/train-*.tar | tail -1)
    truncate -s 3000 "$first"
    printf '\x55' | dd of="$last" bs=1 seek=$(($(stat -c %s "$last") / 2)) conv=notrunc 2>dd.log
    again damaged
    [ "$(count_messages damaged.log latents-rebuilt 'file=cache/*')" = 2 ] || { cat damaged.log; fail "damage in the cache is not reported"; }
    [ "$(keys)" = 46 ] || fail "$(keys) latents after damage"
    losses runs/damaged | diff whole.losses - || fail "other losses after damage"
}
check damaged_shards_are_encoded_again
# A complete cache is usable without write access. Missing latents are then an error with a remedy.
a_read_only_cache_is_used() {
    needs runs_share_a_cache
    if [ "$(id -u)" = 0 ] && mkdir -p ro && mount -t tmpfs -o size=16m none ro 2>/dev/null; then
        trap 'umount ro' EXIT
        cp -r cache ro/cache
        mount -o remount,ro ro
        for n in 1 2; do
            ranks $n "$WEFT" train dit.yaml $one --set data.latents=ro/cache --set out=runs/ro$n >ro.log 2>&1 || { cat ro.log; fail "a read-only cache, $n rank(s)"; }
        done
        losses runs/ro1 | diff whole.losses - || fail "other losses with a read-only cache"
        "$WEFT" train dit.yaml $one --set data.latents=ro/cache --set stages.1.frames=1 --set out=runs/no >no.log 2>&1 && fail "latents of other sizes in a read-only cache"
        has_message no.log file-io file=ro/cache key=data.latents 'text~=(in ro/cache/' 'text~=cannot be written: Read-only' 'text~=Stage 1 ' || fail "missing latents are not named"
        [ ! -s runs/no/metrics.jsonl ] || fail "missing latents of stage 1 are found after stage 0"
        mount -o remount,rw ro
        rm "$(ls ro/cache/*/train-0000-*.tar | head -1)"
        mount -o remount,ro ro
        ranks 2 "$WEFT" train dit.yaml $one --set data.latents=ro/cache --set out=runs/incomplete >no.log 2>&1 && fail "an incomplete read-only cache"
        has_message no.log file-io file=ro/cache/* key=data.latents 'text~=samples are)' 'text~=cannot be written: Read-only' || fail "an incomplete cache is not named"
    fi
}
check a_read_only_cache_is_used
finish
