#!/bin/bash
# Frames of a clip are those that a player shows: rotation and pixel aspect are applied, and HDR is
# converted to SDR. Unreadable files do not affect other files.
. "$SRC/tests/check.sh"
ff() { ffmpeg -v error -nostdin -y "$@"; }
psnr() { # CLIP SOURCE FILTER: prints the PSNR of the clip to the filtered source
    ffmpeg -v info -nostdin -i "$1" -i "$2" -lavfi "[1:v]$3[b];[0:v][b]psnr" -f null - 2>&1 | sed -n 's/.*average:\([0-9.]*\|inf\).*/\1/p'
}
above() { awk "BEGIN { exit !($1 > $2) }" || fail "$3: $1 dB, more than $2 expected"; }
curate() { "$WEFT" curate --in "$1" --out "$2" --set quality.max_motion=99 --set quality.min_motion=0 --set duplicates.on=false --set clips.min_frames=5 --set clips.crf=4 "${@:3}" >"$2.log" 2>&1 || { cat "$2.log"; fail "curate $1"; }; }

pixel_aspect_is_applied() {
    mkdir aspect
    ff -f lavfi -i testsrc2=size=96x96:rate=24 -t 2 -vf setsar=2 -pix_fmt yuv420p -c:v libx264 -crf 4 aspect/wide.mp4
    curate aspect out
    [ "$(ffprobe -v error -show_entries stream=width,height,sample_aspect_ratio -of csv=p=0 out/clips/wide-*.mp4)" = 192,96,1:1 ] || fail "pixel aspect"
    above "$(psnr out/clips/wide-*.mp4 aspect/wide.mp4 scale=192:96,setsar=1)" 22 "pixel aspect"
}
check pixel_aspect_is_applied

# HDR is converted to SDR by the formulas of docs/explanation/curation.md. Six patches have known PQ
# codes; the test computes their light and their BT.709 values.
hdr_becomes_sdr() {
    mkdir hdr
    ff -f lavfi -i nullsrc=size=192x64:rate=24 -t 1 -vf "format=yuv420p10le,geq=lum='st(0,floor(X/32));64+146*ld(0)':cb='512+if(eq(floor(X/16),3),60)':cr='512+if(eq(floor(X/16),4),70)'" \
        -c:v libx265 -x265-params lossless=1:log-level=none -color_trc smpte2084 -color_primaries bt2020 -colorspace bt2020nc -color_range tv hdr/patches.mp4
    curate hdr hdr_out --set clips.crop_borders=false
    grep -q '"hdr_source":true' hdr_out/manifest.jsonl && grep -q '"transfer_source":"smpte2084"' hdr_out/manifest.jsonl || fail "the manifest does not have the HDR source and its transfer function"
    ff -i hdr_out/clips/patches-*.mp4 -frames:v 1 -vf scale=in_color_matrix=bt709:flags=accurate_rnd+full_chroma_int -pix_fmt rgb24 -f rawvideo hdr.rgb
    ff -i hdr_out/clips/patches-*.mp4 -frames:v 1 -vf scale=in_color_matrix=bt601 -pix_fmt rgb24 -f rawvideo wrong.rgb
    [ "$(ffprobe -v error -show_entries stream=pix_fmt,color_space,color_transfer,color_primaries -of csv=p=0 hdr_out/clips/patches-*.mp4)" = yuv420p,bt709,bt709,bt709 ] || fail "tags of the tone mapped clip"
    python3 -S - <<'EOF' || fail "HDR"
import math
def light(e):  # SMPTE ST 2084, in units of 203 cd/m2
    p = max(e, 0) ** (32 / 2523)
    return 10000 / 203 * (max(p - 107 / 128, 0) / (2413 / 128 - 2392 / 128 * p)) ** (8192 / 1305)
def shown(v):
    v = max(v, 0)
    v = v if v <= 0.6 else 0.6 + 0.4 * (1 - math.exp(-(v - 0.6) / 0.4))
    return 255 * (12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055)
data = open("hdr.rgb", "rb").read()
colours = set()
for patch in range(6):
    y, cb, cr = (146 * patch) / 876, (60 if patch == 3 else 0) / 896, (70 if patch == 4 else 0) / 896
    r, b = y + 1.4746 * cr, y + 1.8814 * cb
    g = (y - 0.2627 * r - 0.0593 * b) / 0.6780
    r, g, b = light(r), light(g), light(b)
    want = [shown(v) for v in (1.6605 * r - 0.5876 * g - 0.0728 * b, -0.1246 * r + 1.1329 * g - 0.0083 * b, -0.0182 * r - 0.1006 * g + 1.1187 * b)]
    at = (32 * 192 + 32 * patch + 16) * 3
    got = list(data[at:at + 3])
    assert all(abs(a - b) <= 4 for a, b in zip(got, want)), (patch, got, want)  # the tolerance is for 4:2:0 and H.264
    colours.add(tuple(got))
assert len(colours) == 6
EOF
}
check hdr_becomes_sdr

# an unreadable folder, an unreadable file and a readable file, by a user other than root
mkdir -p locked/in/shut locked/in/open
cp aspect/wide.mp4 locked/in/open/a.mp4
cp aspect/wide.mp4 locked/in/open/b.mp4
cp aspect/wide.mp4 locked/in/shut/c.mp4
cp "$WEFT" locked/weft
chmod 0 locked/in/shut locked/in/open/b.mp4
chmod a+rwx . locked
command="cd '$PWD/locked' && ./weft curate --in in --out out --set quality.max_motion=99 >log 2>&1"
curate_as_user() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid=65534 --regid=65534 --clear-groups bash -c "$command" || { cat locked/log; fail "curate with unreadable files"; }
    else
        bash -c "$command" || { cat locked/log; fail "curate with unreadable files"; }
    fi
}
unreadable_files_affect_themselves_only() {
    curate_as_user
    grep -q '"source":"shut".*Permission denied' locked/out/rejects.jsonl || fail "the folder is not listed: $(cat locked/out/rejects.jsonl)"
    grep -q '"source":"open/b.mp4".*Permission denied' locked/out/rejects.jsonl || fail "the file is not listed"
    [ "$(wc -l <locked/out/manifest.jsonl)" = 1 ] || fail "the readable file has no clip"
    # A file that becomes unreadable between analysis and encoding is rejected, and processed again
    # when
# it is readable.
    rm locked/out/clips/* locked/out/metas/*
    chmod 0 locked/in/open/a.mp4
    curate_as_user
    grep -q '"source":"open/a.mp4","operator":"transcode".*Permission denied' locked/out/rejects.jsonl || fail "unreadable while encoding: $(cat locked/out/rejects.jsonl)"
    chmod 644 locked/in/open/a.mp4 locked/in/open/b.mp4
    chmod 755 locked/in/shut
    curate_as_user
    [ "$(wc -l <locked/out/manifest.jsonl)" = 1 ] && [ "$(grep -c '"operator":"duplicate"' locked/out/rejects.jsonl)" = 2 ] && [ "$(wc -l <locked/out/rejects.jsonl)" = 2 ] || fail "not processed again: $(cat locked/out/rejects.jsonl)"
}
check unreadable_files_affect_themselves_only

turned=$WEFT_SHARED/videos/odd/fire2_rot180_10fps.mp4
rotation_is_applied() {
    [ -f "$turned" ] || skip "no shared footage"
    mkdir turned
    cp "$turned" turned/fire.mp4
    curate turned turned_out
    for clip in turned_out/clips/fire-*.mp4; do
        first=$(python3 -S -c 'import json,sys; print(json.load(open(sys.argv[1]))["frame_span"][0])' "turned_out/metas/$(basename "$clip" .mp4).json")
        right=$(psnr "$clip" turned/fire.mp4 "trim=start_frame=$first,setpts=PTS-STARTPTS") # ffmpeg rotates the source
        above "$right" 28 "rotated"
        wrong=$(psnr "$clip" turned/fire.mp4 "trim=start_frame=$first,setpts=PTS-STARTPTS,hflip,vflip")
        above "$right" "$wrong + 6" "rotated compared with not rotated"
    done
}
check rotation_is_applied
finish
