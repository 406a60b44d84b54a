#!/bin/bash
# Variable frame rate: clips keep every frame at its timestamp. Spans, durations and rates follow
# the timestamps.
set -e
. "$SRC/tests/check.sh"
ff() { ffmpeg -v error -nostdin -y "${@:1:$#-1}" -colorspace bt709 "${!#}"; } # colours are not converted
mkdir raw
# 10 frames/s for two seconds, then 30. Also pauses of 0.6 s and 20 s inside a shot.
source=testsrc2=size=160x90:rate=30
ff -f lavfi -i $source -t 5 -vf "select='gte(t,2)+not(mod(n,3))'" -fps_mode vfr -pix_fmt yuv420p -crf 6 raw/vfr.mkv
ff -f lavfi -i $source -t 5 -vf "select='gte(t,2)+not(mod(n,3))'" -fps_mode vfr -pix_fmt yuv420p -crf 6 raw/vfr.mp4
ff -f lavfi -t 4 -i mandelbrot=size=160x90:rate=25 -vf "setpts='PTS+gte(N,50)*0.6/TB'" -fps_mode passthrough -pix_fmt yuv420p -crf 6 raw/rest.mp4
ff -f lavfi -t 3 -i testsrc2=size=160x90:rate=25 -vf "setpts='PTS+gte(N,25)*20/TB'" -fps_mode passthrough -pix_fmt yuv420p -crf 6 raw/gap.mp4
ff -f lavfi -t 20 -i testsrc2=size=160x90:rate=1/2 -pix_fmt yuv420p raw/slow.mp4
"$WEFT" curate --in raw --out out --set quality.min_motion=0 --set quality.max_motion=99 --set quality.max_brightness=255 \
    --set duplicates.on=false --set clips.crf=4 --set clips.max_seconds=3 >log 2>&1 || { cat log; exit 1; }
frames_keep_their_times() {
    python3 -S - <<'EOF'
import json, subprocess
def times(path):
    out = subprocess.run(["ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "packet=pts_time", "-of", "csv=p=0", path],
                         capture_output=True, text=True, check=True).stdout
    t = sorted(float(x.rstrip(",")) for x in out.split())
    return [x - t[0] for x in t]
def psnr(clip, source, first, count):
    graph = (f"[1:v]trim=start_frame={first}:end_frame={first + count},settb=1/1000,setpts=N[b];"
             "[0:v]settb=1/1000,setpts=N[a];[a][b]psnr=stats_file=-")
    out = subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-i", clip, "-i", source, "-lavfi", graph, "-fps_mode", "passthrough", "-f", "null", "-"],
                         capture_output=True, text=True, check=True).stdout
    return [float(l.split("psnr_avg:")[1].split()[0]) for l in out.splitlines() if "psnr_avg" in l]
clips = [json.loads(l) for l in open("out/manifest.jsonl")]
rejects = [json.loads(l) for l in open("out/rejects.jsonl")]
by = {}
for c in clips:
    by.setdefault(c["source_video"], []).append(c)
for name in ("vfr.mkv", "vfr.mp4", "rest.mp4"):
    source, end = times("raw/" + name), 0
    for c in by[name]:
        a, b = c["frame_span"]
        own = times("out/" + c["clip"])
        assert a == end and len(own) == c["frames"] == b - a + 1, c
        end = b + 1
        for i, t in enumerate(own):  # every frame has its timestamp
            assert abs(t - (source[a + i] - source[a])) < 0.0015, (name, i, t)
        until = source[b + 1] if b + 1 < len(source) else source[b] + (source[-1] - source[0]) / (len(source) - 1)
        assert abs(c["duration_span"][0] - source[a]) < 0.002 and abs(c["duration_span"][1] - until) < 0.002, (c, until)
        assert abs(c["seconds"] - (until - source[a])) < 0.003, c
        assert abs(c["fps"] * c["seconds"] - c["frames"]) < 0.02 * c["frames"], c
        steps = [y - x for x, y in zip(own, own[1:])]
        assert abs(c["frame_seconds"][0] - min(steps)) < 0.002 and abs(c["frame_seconds"][1] - max(steps)) < 0.002, c
        assert c["variable_rate"] == (max(steps) > 1.3 * min(steps)), c
        same = psnr("out/" + c["clip"], "raw/" + name, a, c["frames"])
        assert len(same) == c["frames"] and min(same) > 30, (name, same)
    assert end == len(source), (name, end, len(source))
assert len(by["vfr.mp4"]) == 2 and max(c["seconds"] for c in by["vfr.mp4"]) < 3  # clips are split by time, not by frames
assert by["vfr.mp4"][0]["variable_rate"] and not by["vfr.mp4"][1]["variable_rate"] and abs(by["vfr.mp4"][1]["fps"] - 30) < 0.01, by["vfr.mp4"]
# Twenty seconds without a frame: two shots, and no clip contains the pause.
gap = by["gap.mp4"]
assert [c["frame_span"] for c in gap] == [[0, 24], [25, 74]] and not any(c["variable_rate"] for c in gap), gap
for c, (start, end) in zip(gap, ((0, 1), (21, 23))):
    assert abs(c["duration_span"][0] - start) < 0.01 and abs(c["duration_span"][1] - end) < 0.01 and abs(c["fps"] - 25) < 0.01, c
# a video with one frame in two seconds is rejected
assert [(r["operator"], r["value"]) for r in rejects if r["source"] == "slow.mp4"] == [("fps", 0.5)], rejects
EOF
}
check frames_keep_their_times

# The duplicate with variable rate is found: hashes are at equal intervals of time.
a_duplicate_of_variable_rate_is_found() {
    "$WEFT" curate --in raw --out found --set quality.min_motion=0 --set quality.max_motion=99 >log 2>&1
    [ "$(grep -c '"operator":"duplicate"' found/rejects.jsonl)" = 3 ] || { cat found/rejects.jsonl; exit 1; } # vfr.mp4, both of gap.mp4
    [ "$(grep -c '"reason":"shows the same as vfr.mkv' found/rejects.jsonl)" = 3 ]
}
check a_duplicate_of_variable_rate_is_found
duplicates_of_other_rates_are_found() {
mkdir rates
for rate in 30 25 24 12; do ff -f lavfi -i $source -t 8 -vf fps=$rate -pix_fmt yuv420p rates/$rate.mp4; done
"$WEFT" curate --in rates --out rates_out --set quality.max_motion=99 >log 2>&1
[ "$(grep -c '"operator":"duplicate"' rates_out/rejects.jsonl)" = 3 ] || { cat rates_out/rejects.jsonl; exit 1; }
}
check duplicates_of_other_rates_are_found
finish
