#!/bin/bash
# bench/curate.sh [VIDEO]: decoding and shot detection, compared with PySceneDetect's detect-content.
# Both use the same file and cores in sequence; the best wall time of three counts. The default file
# is 1280 x 720 H.264, made with ffmpeg from the footage of WEFT_SHARED or a noisy test image.
# PySceneDetect: `scenedetect`, or WEFT_PEER_SCENEDETECT.
set -eu
weft=${WEFT-$(dirname "$0")/../build/weft}
peer=${WEFT_PEER_SCENEDETECT-scenedetect}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
video=${1-}
if [ -z "$video" ]; then
    video=$scratch/footage.mp4
    clips=${WEFT_SHARED-$(dirname "$0")/../../shared}/videos/clips
    if [ -d "$clips" ]; then # eight scenes of four seconds
        inputs=() graph= scenes= n=0
        for clip in park_1080p karma_drone_7s basketball man_and_dog_in_bed big-buck-bunny-480p-30sec juggle bedroom woman-running; do
            inputs+=(-t 4 -i "$clips/$clip.mp4")
            graph+="[$n:v]scale=1280:720,setsar=1,fps=24,format=yuv420p[v$n];" scenes+="[v$n]" n=$((n + 1))
        done
        ffmpeg -v error -nostdin "${inputs[@]}" -filter_complex "$graph${scenes}concat=n=$n:v=1[out]" -map "[out]" \
            -c:v libx264 -preset medium -b:v 2500k "$video"
    else
        ffmpeg -v error -nostdin -f lavfi -i "testsrc2=size=1280x720:rate=24,noise=alls=12:allf=t" -t 25 \
            -c:v libx264 -preset veryfast -crf 23 -pix_fmt yuv420p "$video"
    fi
fi
frames=$(ffprobe -v error -count_packets -select_streams v:0 -show_entries stream=nb_read_packets -of csv=p=0 "$video")
best() { # wall and processor seconds of the fastest of three
    local k
    "$@" >/dev/null 2>"$scratch/log" || { cat "$scratch/log" >&2; return 1; } # a failure is fast
    for k in 1 2 3; do
        TIMEFORMAT='%R %U %S'
        { time "$@" >/dev/null 2>&1; } 2>&1
    done | sort -n | awk 'NR == 1 {print $1, $2 + $3}'
}
name=$(basename "$video")
[ -n "${1-}" ] || name=$([ -d "${clips-}" ] && echo "eight scenes of real footage, x264 medium, 2.5 Mbit/s" || echo "test image with noise, x264 veryfast, crf 23")
figures=$(best "$weft" shots --threads "$(nproc)" --interpolate 0 "$video")
read -r all all_cpu <<<"$figures"
figures=$(best "$weft" shots --threads "$(nproc)" "$video")
read -r ours ours_cpu <<<"$figures"
theirs=- cpu_ratio=- ratio=-
if command -v "$peer" >/dev/null; then
    figures=$(best "$peer" -i "$video" detect-content)
    read -r theirs theirs_cpu <<<"$figures"
    ratio=$(awk "BEGIN {printf \"%.2f\", $theirs / $ours}") cpu_ratio=$(awk "BEGIN {printf \"%.2f\", $theirs_cpu / $ours_cpu}")
else
    echo "PySceneDetect: not found"
fi
echo "processor time: $ours_cpu s ($all_cpu s for all frames)"
echo
echo "| file | all frames s | weft shots s | PySceneDetect s | ratio of processor time | ratio of wall time |"
echo "|---|---|---|---|---|---|"
echo "| $name, $frames frames | $all | $ours | $theirs | $cpu_ratio | $ratio |"
