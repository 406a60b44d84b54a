#!/bin/bash
# A container with an impossible frame rate: the rate of the packet timestamps is used instead.
set -e
. "$SRC/tests/check.sh"
ff() { ffmpeg -v error -nostdin -y "$@"; }
mkdir raw
ff -f lavfi -i testsrc2=size=160x90:rate=25 -t 2 -pix_fmt yuv420p 25.mkv
ff -f lavfi -i mandelbrot=size=160x90:rate=24000/1001 -t 3 -pix_fmt yuv420p -bf 4 23.976.mkv
ff -f lavfi -i testsrc=size=160x90:rate=12 -t 40 -pix_fmt yuv420p 12.mkv
python3 -S - <<'EOF'
# DefaultDuration (23 E3 83, four bytes of nanoseconds) becomes 1 ms or 3 s.
for name, claim in (("25", 1000000), ("23.976", 1000000), ("12", 3000000000)):
    data = bytearray(open(name + ".mkv", "rb").read())
    at = data.find(b"\x23\xe3\x83\x84")
    assert at > 0
    data[at + 4:at + 8] = claim.to_bytes(4, "big")
    open(f"raw/{name}.mkv", "wb").write(data)
EOF
the_real_rate_is_used() {
"$WEFT" curate --in raw --out out --set quality.min_motion=0 --set quality.max_motion=99 --set clips.preset=ultrafast >log 2>&1 || fail_with log "curate"
python3 -S - <<'EOF'
import json
clips = [json.loads(l) for l in open("out/manifest.jsonl")]
assert {c["source_video"] for c in clips} == {"25.mkv", "23.976.mkv", "12.mkv"}, open("out/rejects.jsonl").read()
for c in clips:
    fps = float(c["source_video"][:-4])
    assert abs(c["framerate_source"] - fps) < 0.01 * fps and abs(c["fps"] - fps) < 0.01 * fps, c
    assert abs(c["seconds"] - c["frames"] / fps) < 0.02, c
EOF
}
check the_real_rate_is_used
finish
