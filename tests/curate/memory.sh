#!/bin/bash
# Memory does not grow with a video's length, but for 32 bytes a frame and 64 each eighth of a second (and their record):
# 20 s and 160 s of the same picture size differ by less than 4 MiB at the peak beside what may wait (8 MiB, tests/video/scan_test.c
# holds that bound): it waits in one run and not in the other, as the machine's load has it. One decoded frame is 84 KiB; all are 315 MiB.
set -e
. "$SRC/tests/check.sh"
case $WEFT_BUILD in */asan | */tsan) skip "the allocators of sanitizers hold on to what is freed" ;; esac
for seconds in 20 160; do
    mkdir in$seconds
    ffmpeg -v error -nostdin -y -f lavfi -i testsrc2=size=320x180:rate=24 -t $seconds -vf "hue=H=t/7" -c:v libx264 -preset ultrafast -pix_fmt yuv420p in$seconds/a.mp4
done
cat >peak.py <<'EOF'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)  # KiB, the largest of weft and its children
EOF
curate() {
    rm -rf out
    python3 peak.py "$WEFT" curate --in "$1" --out out --set workers=1 --set quality.max_motion=99 --set clips.max_side=160 --set clips.preset=ultrafast --set duplicates.on=false
}
memory_does_not_grow_with_length() {
local short long
short=$(curate in20)
[ "$(wc -l <out/manifest.jsonl)" -ge 1 ]
# Threads of the encoder that wait for each other on a busy machine may once need more: what grows with length does so every time.
for _ in 1 2 3; do
    long=$(curate in160)
    [ "$(wc -l <out/manifest.jsonl)" -ge 8 ]
    echo "peak: 20 s $short KiB, 160 s $long KiB"
    [ $((long - short)) -ge $((4096 + 8192)) ] || return 0
done
fail "memory grows with length"
}
check memory_does_not_grow_with_length
finish
