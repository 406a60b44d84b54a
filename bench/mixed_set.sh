# Sourced by benchmarks of mixed samples.
. "$here/scratch.sh"
# Writes clips of shapes into raw, of the kinds in `kinds`, which are lines of "NUMBER SIDE FEWEST MOST"
# frames; `weft curate` takes all clips with the settings of `keep`.
keep=(--set duplicates.on=false --set video.min_seconds=0 --set clips.min_frames=5 --set clips.min_seconds=0)
make_clips() {
    mkdir raw
    seed=1
    while read -r shots size least most; do
        seed=$((seed + 1)) name=$size-$least
        say "$WEFT" synth --out "from-$name" --shots "$shots" --single-share 1 --held-out-clips 0 --min-frames "$least" --max-frames "$most" --size "$size" --seed $seed </dev/null
        for f in "from-$name/train"/*; do ln -s "$PWD/$f" "raw/$name-$(basename "$f")"; done
    done <<<"$kinds"
}
# Three sizes and two lengths, many small and few large.
kinds='32 64 8 12
16 64 22 26
16 96 8 12
8 96 22 26
8 128 8 12
8 128 22 26'
