#!/bin/bash
# A source folder of symbolic links: every file counts once, cycles end, and links that lead to
# nothing, and other files that are skipped, are listed with the reason.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
ff() { ffmpeg -v error -nostdin -y "$@"; }
mkdir -p store/one/deep raw
ff -f lavfi -i testsrc2=size=160x90:rate=24 -t 1 -pix_fmt yuv420p store/one/a.mp4
ff -f lavfi -i mandelbrot=size=160x90:rate=24 -t 1 -pix_fmt yuv420p store/one/deep/b.mp4
ln -s ../store/one raw/linked
ln -s ../store/one raw/second
ln -s ../../raw store/one/back
ln -s ../store/nothing raw/broken.mp4
ln -s ../store/one/a.mp4 raw/file.mp4
ln -s ../out raw/clips # the output folder is not a source, by any path
mkfifo raw/pipe.mp4
for _ in 1 2; do
    "$WEFT" curate --in raw --out out --set quality.max_motion=99 --set quality.min_motion=0 >log 2>&1 || { cat log; exit 1; }
done
every_file_counts_once() {
    python3 -S - <<'EOF'
import json
rejects = {r["source"]: (r["operator"], r["reason"]) for r in map(json.loads, open("out/rejects.jsonl"))}
kept = {json.loads(l)["source_video"] for l in open("out/manifest.jsonl")}
summary = json.load(open("out/summary.json"))
assert kept == {"file.mp4", "linked/deep/b.mp4"}, kept
assert set(rejects) == {"broken.mp4", "second", "pipe.mp4", "linked/back", "linked/a.mp4"}, rejects
assert rejects["linked/a.mp4"] == ("duplicate", "the same bytes as file.mp4"), rejects
assert "nothing" in rejects["broken.mp4"][1] and "another path" in rejects["second"][1] and "neither" in rejects["pipe.mp4"][1], rejects
assert "another path" in rejects["linked/back"][1]
assert summary["files"] == 7 and summary["other_files"] == 4 and summary["videos"] == 3, summary
EOF
}
check every_file_counts_once
refusals() {
    ! "$WEFT" curate --in raw --out raw 2>error || exit 1
    has_message error option-conflict file=raw key=--out
    mkdir empty && ln -s nothing empty/gone
    ! "$WEFT" curate --in empty --out e 2>error || exit 1
    has_message error footage-not-found file=empty
}
check refusals
finish
