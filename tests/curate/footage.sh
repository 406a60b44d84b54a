#!/bin/bash
# Source videos of the shared footage. Near-duplicates are those of dedup.json: same bytes,
# transcodes and rescaled copies are found, look-alikes are kept. Damaged and unusual files are
# accounted for: each frame is in exactly one clip or reject.
. "$SRC/tests/check.sh"
videos=$WEFT_SHARED/videos
[ -f "$videos/dedup.json" ] || skip "no shared footage"
mkdir -p in
cp -r "$videos/odd" in/odd
mkdir in/clips
python3 -S - "$videos" <<'PY'
import json, shutil, sys
videos = sys.argv[1]
listed = json.load(open(videos + "/dedup.json"))
files = {m["file"] for g in listed["groups"] for m in g["members"] if "1080p" not in m["file"]}
files |= {f for pair in listed["hard_negatives"] for f in pair[:2]}
for f in sorted(files):
    if f.startswith("clips/"):
        shutil.copy(f"{videos}/{f}", f"in/{f}")
PY
"$WEFT" curate --in in --out out --set clips.max_side=96 --set clips.preset=ultrafast >curate.log 2>&1 || fail_with curate.log "weft curate"
duplicates_are_found_and_frames_accounted_for() {
    python3 -S - "$videos" <<'PY'
import collections, json, os, sys
listed = json.load(open(sys.argv[1] + "/dedup.json"))
clips = [json.loads(l) for l in open("out/manifest.jsonl")]
rejects = [json.loads(l) for l in open("out/rejects.jsonl")]
kept = {c["source_video"] for c in clips}
duplicate = {r["source"]: r["reason"] for r in rejects if r["operator"] == "duplicate"}
found = 0
for group in listed["groups"]:
    for m in group["members"]:
        relation = m.get("relation", "")
        if not any(word in relation for word in ("same bytes", "transcode", "downscaled")) or "damaged" in relation:
            continue
        assert m["file"] in duplicate and m["file"] not in kept, f'{m["file"]} ({relation}) was not found'
        assert any(other["file"] in duplicate[m["file"]] for other in group["members"]), duplicate[m["file"]]
        found += 1
assert found >= 5, found
for a, b, why in listed["hard_negatives"]:
    for f in (a, b):
        assert f in kept and f not in duplicate, f"{f} was taken for a duplicate ({why})"
# every file is listed; each frame of every decoded video is in one clip or one reject
files = {os.path.relpath(os.path.join(d, f), "in") for d, _, names in os.walk("in") for f in names}
assert files == kept | {r["source"] for r in rejects}, files ^ (kept | {r["source"] for r in rejects})
spans = collections.defaultdict(list)
for c in clips:
    spans[c["source_video"]].append(c["frame_span"])
whole = {r["source"] for r in rejects if not r.get("frame_span") and r["operator"] not in ("truncated", "stream", "missing")}
for r in rejects:
    if r.get("frame_span"):
        spans[r["source"]].append(r["frame_span"])
decoded = {e["file"]: e["frames"] for e in json.load(open(sys.argv[1] + "/MANIFEST.json"))["entries"]}  # as counted by ffmpeg
assert all(c["frames_source"] == decoded[c["source_video"]] for c in clips)
lost = {r["source"] for r in rejects if r["operator"] == "missing"}
print("frames are missing in", sorted(lost))
assert all(f.startswith("odd/") for f in lost), lost  # intact videos lose no frames
all_rejected = 0
for f, list_ in spans.items():
    assert f not in whole, f
    at = 0
    for first, last in sorted(list_):
        assert first == at, f"{f}: frame {at} to {first}: neither in a clip nor in a reject, or in two"
        at = last + 1
    assert at == decoded[f], f"{f}: {at} frames reported, the video has {decoded[f]}"
    all_rejected += f not in kept
assert all_rejected >= 3, all_rejected  # these have no clip whose record has the length
assert files == whole | set(spans), files ^ (whole | set(spans))
for r in rejects:
    assert r["operator"] and r["reason"] and "value" in r and "threshold" in r, r
PY
}
check duplicates_are_found_and_frames_accounted_for
finish
