#!/bin/bash
# Memory of `weft curate` does not grow with the length of a video, except for 32 bytes per frame
# and 64 per eighth of a second (and their record). The peaks for 20 s and 160 s of the same
# resolution differ by less than 4 MiB, plus 8 MiB for queued frames. tests/video/scan_test.c checks
# that bound: the queue may be full in one run and not in the other. A decoded frame has 84 KiB, all
# have 315 MiB. With workers=1 the decoder and the encoder have one thread each, so that no frames
# wait for another thread of theirs. No worker counts as hung, however slow the machine is.
set -e
. "$SRC/tests/check.sh"
case $WEFT_BUILD in */asan | */tsan) skip "the allocators of sanitizers keep freed memory" ;; esac
for seconds in 20 160; do
    mkdir in$seconds
    ffmpeg -v error -nostdin -y -f lavfi -i testsrc2=size=320x180:rate=24 -t $seconds -vf "hue=H=t/7" -c:v libx264 -preset ultrafast -pix_fmt yuv420p in$seconds/a.mp4
done
cat >peak.py <<'EOF'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)  # KiB, the maximum of weft and its children
EOF
curate() {
    rm -rf out
    python3 peak.py "$WEFT" curate --in "$1" --out out --set workers=1 --set stall_seconds=86400 --set quality.max_motion=99 --set clips.max_side=160 --set clips.preset=ultrafast --set duplicates.on=false
}
memory_does_not_grow_with_length() {
    local short long
    short=$(curate in20)
    [ "$(wc -l <out/manifest.jsonl)" -ge 1 ]
    long=$(curate in160)
    [ "$(wc -l <out/manifest.jsonl)" -ge 8 ]
    echo "peak: 20 s $short KiB, 160 s $long KiB"
    [ $((long - short)) -lt $((4096 + 8192)) ] || fail "memory grows with length"
}
check memory_does_not_grow_with_length
finish
