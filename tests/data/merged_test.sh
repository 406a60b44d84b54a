#!/bin/bash
# Clips that the manifest does not list (two merged folders, renamed clips) are split by the source
# video in their metas. No source is on both sides, and held-out sources of `weft curate` stay held out.
. "$SRC/tests/check.sh"
"$WEFT" synth --out raw --shots 12 --single-share 1 --held-out-clips 0 --min-frames 9 --max-frames 9 >synth.log 2>&1 || { cat synth.log; fail "weft synth"; }
cat >sides.py <<'P'
import glob, json, sys, tarfile
sources = {"train": set(), "heldout": set()}
for side in sources:
    for name in glob.glob(f"{sys.argv[1]}/{side}-*.tar"):
        with tarfile.open(name) as tar:
            sources[side] |= {json.load(tar.extractfile(m))["source_video"] for m in tar if m.name.endswith(".json")}
both = sources["train"] & sources["heldout"]
assert not both and sources["train"] and sources["heldout"], (sys.argv[1], sources)
print(*sorted(sources["heldout"]))
P
python3 -S - <<'P'
import glob, json, os, shutil
os.makedirs("cur/clips"); os.makedirs("cur/metas")
with open("cur/manifest.jsonl", "w") as manifest:
    for i, f in enumerate(sorted(glob.glob("raw/train/s*.mp4"))):
        meta = {"id": f"c{i:02}", "source_video": f"v{i // 3}.mp4", "frame_span": [10 * (i % 3), 10 * (i % 3) + 8], "frames": 9, "width": 64,
                "height": 64, "fps": 24.0}
        shutil.copy(f, f"cur/clips/c{i:02}.mp4")
        json.dump(meta, open(f"cur/metas/c{i:02}.json", "w"))
        print(json.dumps(meta), file=manifest)
P
held() { # FOLDER
    "$WEFT" shard --in "$1" --out "$1.shards" --set heldout=0.3 >shard.log 2>&1 || { cat shard.log; fail "$1"; }
    python3 sides.py "$1.shards" || fail "$1: a source video is on both sides"
}
expected=$(held cur) || { echo "$expected"; fail "as curated"; }
# the manifest of the other folder
cp -r cur merged && head -5 cur/manifest.jsonl >merged/manifest.jsonl
cp -r cur bare && rm bare/manifest.jsonl
cp -r cur renamed
for f in renamed/*/c*; do mv "$f" "$(dirname "$f")/my_$(basename "$f")"; done
same_sources() { # FOLDER
    local folder=$1 got
    got=$(held $folder) || { echo "$got"; fail "$folder"; }
    [ "$got" = "$expected" ] || fail "$folder: $got are held out, not $expected"
}
for folder in merged bare renamed; do check "sources_of_$folder" same_sources $folder; done
finish
