#!/bin/bash
# `weft generate` writes .mp4, .webm, .gif and .png with the same frames, also in lists of mixed
# names, with --resume and with --decode-latents. A format that cannot be written is refused before
# any work.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1
source "$SRC/tests/signal_at.sh"
model=$SRC/tests/golden/pipelines/wan_over
base=(--model "$model" --prompt "a cat" --height 32 --width 32)
options=("${base[@]}" --steps 3)
quietly() { "$@" >quiet.log 2>&1 || { cat quiet.log; fail "$*"; }; }
# refused ID [FIELD=VALUE...] -- COMMAND...: fails with this message before any work, and leaves no
# file of the name `no`
refused() {
    take_message "$@"
    set -- "${rest[@]}"
    "$@" >refused.log 2>&1 && fail "$* was accepted"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
    [ "$(count_messages refused.log job-report)" = 0 ] || { cat refused.log; fail "refused after the work had begun: $*"; }
    [ -z "$(ls -d no* 2>/dev/null)" ] || fail "files are left: $(ls -d no*)"
}
# psnr FILE ARRAY.npy: prints the PSNR of the file's frames to the frames of the model. The number
# of frames must be equal.
psnr() {
    ffmpeg -v error -nostdin -y -i "$1" -vsync passthrough -f rawvideo -pix_fmt rgb24 frames.rgb || fail "ffmpeg cannot read $1"
    python3 -S - "$2" <<'PY'
import math, struct, sys
data = open(sys.argv[1], "rb").read()
start = 10 + struct.unpack("<H", data[8:10])[0]
real = struct.unpack("<%df" % ((len(data) - start) // 4), data[start:])
seen = open("frames.rgb", "rb").read()
assert len(seen) == len(real), (len(seen), len(real))
error = sum((min(max((v + 1) * 127.5, 0), 255) - u) ** 2 for v, u in zip(real, seen)) / len(seen)
print(round(10 * math.log10(255 ** 2 / max(error, 1e-9)), 2))
PY
}
at_least() { awk "BEGIN {exit !($1 >= $2)}" || fail "$3: $1 dB, at least $2 expected"; }

# the same frames in each format
the_same_frames_in_each_format() {
    local db=() png extension
for extension in mp4 webm gif; do
    quietly "$WEFT" generate "${options[@]}" --frames 9 --frames-npy --out "v.$extension"
    db[${#db[@]}]=$(psnr "v.$extension" v.npy) || fail "frames of v.$extension"
done
quietly "$WEFT" generate "${options[@]}" --frames 1 --frames-npy --out v.png
has_message quiet.log job-report 'text~=1 frame,' || fail "one frame is not counted as \"1 frame\""
png=$(psnr v.png v.npy) || fail "frames of v.png"
echo "PSNR: mp4 ${db[0]}, webm ${db[1]}, gif ${db[2]}, png $png dB"
at_least "${db[1]}" "$(awk "BEGIN {print ${db[0]} - 1}")" "webm (the mp4 has ${db[0]} dB)"
at_least "${db[2]}" 30 gif
at_least "$png" 58 png # rounding to 8 bits alone
}
check the_same_frames_in_each_format

# --resume keeps a finished file, which has the prompt, seed and settings. With another seed the
# file is made from scratch.
resume_keeps_a_finished_file() { # EXTENSION
    local extension=$1
    frames=9
    [ $extension = png ] && frames=1
    quietly "$WEFT" generate "${options[@]}" --frames $frames --out "v.$extension"
    before=$(stat -c '%i %Y' "v.$extension")
    quietly "$WEFT" generate "${options[@]}" --frames $frames --resume --out "v.$extension"
    has_message quiet.log run-finished "file=v.$extension" && [ "$before" = "$(stat -c '%i %Y' "v.$extension")" ] ||
        { cat quiet.log; fail "--resume made v.$extension from scratch"; }
    quietly "$WEFT" generate "${options[@]}" --frames $frames --seed 5 --resume --out "v.$extension"
    [ "$before" != "$(stat -c '%i %Y' "v.$extension")" ] || fail "--resume kept v.$extension of another seed"
}
for extension in mp4 webm gif png; do check "resume_keeps_a_finished_file_$extension" resume_keeps_a_finished_file "$extension"; done

# Killed in the middle: no file has the final name, and --resume writes the bytes of an
# uninterrupted run.
a_stopped_file_is_completed() { # EXTENSION
    local extension=$1
    signal_at KILL '*s.sampling.safetensors' "$WEFT" generate "${base[@]}" --steps 20 --frames 9 --out "s.$extension" >stop.log 2>&1
    [ -e s.sampling.safetensors ] && [ ! -e "s.$extension" ] || { cat stop.log; fail "s.$extension: not killed in the middle"; }
    quietly "$WEFT" generate "${base[@]}" --steps 20 --frames 9 --resume --out "s.$extension"
    has_message quiet.log run-resumed file=s.sampling.safetensors 'value=[1-9]*' || fail "s.$extension: started from step 0"
    quietly "$WEFT" generate "${base[@]}" --steps 20 --frames 9 --out "whole.$extension"
    cmp "s.$extension" "whole.$extension" || fail "s.$extension: bytes differ after --resume"
    [ -z "$(ls s.*.safetensors *.tmp.* 2>/dev/null)" ] || fail "files are left: $(ls s.* *.tmp.*)"
}
for extension in webm gif; do check "a_stopped_file_is_completed_$extension" a_stopped_file_is_completed "$extension"; done

# a list of mixed names; --resume makes missing videos only
cat >jobs.jsonl <<'J'
{"prompt": "one", "frames": 9, "out": "a.webm"}
{"prompt": "two", "frames": 9, "out": "deep/b.gif"}
{"prompt": "three", "frames": 1, "out": "c.png"}
{"prompt": "four", "frames": 9}
J
list=(--model "$model" --height 32 --width 32 --steps 2 --prompts jobs.jsonl)
a_list_of_mixed_names_is_completed() {
    quietly "$WEFT" generate "${list[@]}" --out list
    [ "$(cd list && find . -type f | sort | tr '\n' ' ')" = "./0003.mp4 ./a.webm ./c.png ./deep/b.gif ./prompts.jsonl " ] || fail "$(find list)"
    cp list/deep/b.gif whole.gif
    stat -c '%n %i %Y' list/a.webm list/c.png list/0003.mp4 >before
    rm list/deep/b.gif
    quietly "$WEFT" generate "${list[@]}" --out list --resume
    has_message quiet.log run-resumed file=list value=3 || fail "a list of mixed names does not resume with 3 videos"
    stat -c '%n %i %Y' list/a.webm list/c.png list/0003.mp4 | diff before - || fail "a finished video was made from scratch"
    cmp whole.gif list/deep/b.gif || fail "the missing .gif has other bytes"
}
check a_list_of_mixed_names_is_completed

# a report page of all formats
a_report_has_every_format() {
    needs a_list_of_mixed_names_is_completed
    quietly "$WEFT" report --videos list --out page.html
    [ "$(grep -o 'data:[a-z]*/[a-z0-9]*' page.html | sort -u | tr '\n' ' ')" = "data:image/gif data:image/png data:video/mp4 data:video/webm " ] || fail "the report does not have every format"
}
check a_report_has_every_format

# saved latents are decoded into another format
saved_latents_become_another_format() {
    quietly "$WEFT" generate "${options[@]}" --frames 9 --save-latents --frames-npy --out kept.mp4
    quietly "$WEFT" generate --model "$model" --decode-latents kept.latents.safetensors --out kept.gif
    at_least "$(psnr kept.gif kept.npy)" 30 "--decode-latents to .gif"
}
check saved_latents_become_another_format

# refused before any work
refusals() {
    refused file-name file=*no.avi 'text~=.mp4, .webm, .gif, or .png' 'text~=write no.avi/' -- "$WEFT" generate "${options[@]}" --frames 9 --out no.avi
    refused file-name file=*no.png text~=9 -- "$WEFT" generate "${options[@]}" --frames 9 --out no.png
    refused file-name file=*no.gif text~=60 text~=50 -- "$WEFT" generate "${options[@]}" --frames 9 --fps 60 --out no.gif
    for bad in 'x.avi"|file-name file=x.avi text~=no.jsonl:2' 'x.png", "frames": 9|file-name text~=x.png text~=9' \
               '0000.gif", "frames": 9|job-invalid file=no.jsonl line=2 key=out text~=0000.gif text~=no.jsonl:1 text~=0000.mp4'; do
        printf '%s\n' '{"prompt": "x", "frames": 9}' "{\"prompt\": \"x\", \"out\": \"${bad%%|*}}" >no.jsonl
        "$WEFT" generate "${list[@]:0:8}" --prompts no.jsonl --out no >refused.log 2>&1 && fail "$bad was accepted"
        [ "$(count_messages refused.log job-report)" = 0 ] || fail "$bad: refused after work had begun"
        # shellcheck disable=SC2086 # the class and the fields
        has_message refused.log ${bad#*|} && [ ! -e no ] || fail "$bad"
    done
    rm no.jsonl
}
check refusals
# an FFmpeg library without an encoder
cat >without.c <<'C'
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
const void *avcodec_find_encoder_by_name(const char *name)
{
    const void *(*own)(const char *) = (const void *(*)(const char *))dlsym(RTLD_NEXT, "avcodec_find_encoder_by_name");
    return strcmp(name, getenv("WITHOUT")) ? own(name) : NULL;
}
C
cc -D_GNU_SOURCE -shared -fPIC -o without.so without.c -ldl || fail "without.so"
without() { WITHOUT=$1 LD_PRELOAD=$PWD/without.so ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 "${@:2}"; }
a_missing_encoder_is_named() {
    refused video-encoder file=*no.webm text~=libvpx-vp9 'text~=, or write .mp4, .gif, or .png' -- \
        without libvpx-vp9 "$WEFT" generate "${options[@]}" --frames 9 --out no.webm
    refused video-encoder text~=libx264 'text~=, or write .webm, .gif, or .png' -- without libx264 "$WEFT" generate "${options[@]}" --frames 9 --out no
}
check a_missing_encoder_is_named
folders_may_have_dots() {
    mkdir has.dots && quietly "$WEFT" generate "${options[@]}" --frames 1 --out has.dots && [ -e has.dots/0000.mp4 ] || fail "an existing folder whose name has a dot"
    quietly "$WEFT" generate "${options[@]}" --frames 1 --out new.dots/ && [ -e new.dots/0000.mp4 ] || fail "a new folder whose name has a dot"
}
check folders_may_have_dots
finish
