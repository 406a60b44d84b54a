#!/bin/bash
# weft generate from the command line: samplers, guidance and shift each change the video, new folders are made, and what
# cannot be done is refused with the place and the remedy, before the denoising.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >train.log 2>&1 && "$WEFT" train dit.yaml >>train.log 2>&1 || { cat train.log; fail "weft train"; }
model=runs/dit/model
make_video() { "$WEFT" generate --model $model --prompt "a red circle moving left" --steps 3 "$@" >out.log 2>&1 || { cat out.log; fail "weft generate $*"; }; }
for sampler in euler heun; do
    for guidance in 1 3; do
        for shift in 1 5; do
            make_video --sampler $sampler --guidance $guidance --shift $shift --raw --sheet sheets/deep/x.png \
                --out new/folder/$sampler-$guidance-$shift.mp4
        done
    done
done
[ "$(cat new/folder/*.npy | wc -c)" -gt 0 ] && [ -s sheets/deep/x.png ] || fail "no files"
[ "$(md5sum new/folder/*.npy | cut -d' ' -f1 | sort -u | wc -l)" = 8 ] || { md5sum new/folder/*; fail "an option without effect"; }
# what a killed run was writing under these names goes, what others write stays
dead=$(bash -c 'echo $$')
mkdir videos
touch again.mp4.tmp.$dead again.npy.tmp.$dead other.mp4.tmp.$dead again.mp4.tmp.$$ videos/0007.mp4.tmp.$dead
make_video --sampler heun --guidance 3 --shift 5 --raw --out again.mp4
make_video --out videos
[ "$(echo *.tmp.* videos/*)" = "again.mp4.tmp.$$ other.mp4.tmp.$dead videos/0000.mp4 videos/prompts.jsonl" ] ||
    fail "leftovers of a killed run: $(echo *.tmp.* videos/*)"
cmp again.npy new/folder/heun-3-5.npy || fail "the same options gave another video"

# refuse PATTERN ARGUMENTS...: and nothing is left at refused.mp4
refuse() {
    local pattern=$1
    shift
    "$WEFT" generate --prompt x --out refused.mp4 "$@" >out.log 2>&1
    local status=$?
    [ $status != 0 ] && grep -qE -- "$pattern" out.log || { cat out.log; fail "weft generate $*: status $status, expected a failure and '$pattern'"; }
    grep -q 'denoising step' out.log && fail "weft generate $*: refused after the work"
    [ ! -e refused.mp4 ] || fail "weft generate $*: refused, but there is a video"
}
refuse 'nowhere: this model folder does not exist' --model nowhere
for part in transformer text_encoder vae; do
    for file in config.json '*.safetensors'; do
        rm -rf part
        cp -r $model part
        rm part/$part/$file
        refuse "part/$part" --model part
    done
done
# weights that lost their end, or of which a bit is another one, are named before the work
for part in transformer text_encoder vae; do
    for how in cut data header zeros; do
        rm -rf part
        cp -r $model part
        python3 - part/$part/*.safetensors $how <<'PY'
import struct, sys
path, how = sys.argv[1:]
data = bytearray(open(path, "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
if how == "cut":
    del data[len(data) * 2 // 3:]
elif how == "data":
    data[start + (len(data) - start) // 2] ^= 1
elif how == "header":
    data[data.index(b'"pt"') + 1] ^= 1
else:
    data[start + 1000:start + 1256] = bytes(256)
open(path, "wb").write(data)
PY
        refuse "part/$part/[a-z_]*.safetensors: " --model part
    done
done
rm -rf part && cp -r $model part && rm part/weft.json
refuse 'no weft.json .*--frames, --height and --width' --model part
refuse '--width 30: this model makes multiples of 16; the nearest is 32' --model $model --width 30
refuse '--height 3: .*the nearest is 16' --model $model --height 3
refuse '--fps 1e-09: at least 0.01' --model $model --fps 1e-9
refuse 'x.jpg: a contact sheet is a file that is written as .png' --model $model --sheet x.jpg
printf '# no prompt\n\n' >none.txt
refuse 'none.txt: no prompt in it' --model $model --prompts none.txt
mkdir folder.mp4
"$WEFT" generate --model $model --prompt x --steps 1 --out folder.mp4 >folder.log 2>&1 && fail "--out folder.mp4"
grep -q 'folder.mp4 is a folder' folder.log && ! grep -q 'denoising step' folder.log || { cat folder.log; fail "a folder as video"; }
refuse '--frames 6: this model makes 1 \+ 4 n; the nearest is 5' --model $model --frames 6
refuse '--sampler foo: known are euler, heun' --model $model --sampler foo
refuse "--guidance: 'nan' is not a number from 0 to 100" --model $model --guidance nan
printf '\n# two of them\n {"prompt": "x", "steps": 0}\n' >behind.txt # JSON behind a comment
refuse 'behind.txt:3: "steps": 0' --model $model --prompts behind.txt
# prompts that are no text, and one that is longer than the model reads
refuse '--prompt:2: the prompt is not text in UTF-8' --model $model --prompt "$(printf 'a\377')"
printf 'a dog\n\na\0cat\n' >nul.txt
refuse 'nul.txt:3: the prompt is not text in UTF-8' --model $model --prompts nul.txt
"$WEFT" generate --model $model --steps 1 --out long.mp4 --prompt "$(printf '%0300d' 0)" >long.log 2>&1 || { cat long.log; fail "a long prompt"; }
grep -qE 'prompt 1 has 300 bytes; this model reads the first [0-9]+' long.log || { cat long.log; fail "a cut prompt is not said"; }
printf '\357\273\277a red circle moving left\n' >bom.txt
"$WEFT" generate --model $model --steps 2 --prompts bom.txt --out bom >bom.log 2>&1 || { cat bom.log; fail "a prompt behind a byte order mark"; }
grep -q '"prompt":"a red circle moving left"' bom/prompts.jsonl || grep -q '"prompt": "a red circle moving left"' bom/prompts.jsonl || { cat bom/prompts.jsonl; fail "the mark became text"; }
"$WEFT" generate --model $model --prompt x --steps 1 --out foo.avi >avi.log 2>&1 && fail "--out foo.avi"
"$WEFT" generate --model $model --prompt x --steps 1 --out foo.png >png.log 2>&1 && fail "--out foo.png"
grep -q 'foo.png: a video is written as .mp4, not .png; --sheet' png.log && [ ! -e foo.png ] || { cat png.log; fail "--out foo.png"; }
grep -q 'foo.avi: a video is written as .mp4, not .avi' avi.log && [ ! -e foo.avi ] || { cat avi.log; fail "--out foo.avi"; }
refuse 'runs/dit is the folder of a training run; its model is runs/dit/model' --model runs/dit
touch plain
refuse 'plain' --model $model --sheet plain/x.png
# only rank 0 writes: its failure ends the other rank at once, too
begin=$SECONDS
ranks 2 "$WEFT" generate --model $model --prompt x --steps 2 --out plain/x.mp4 >out.log 2>&1 && fail "2 ranks: exit code 0"
grep -q 'weft generate: plain is a file' out.log || { cat out.log; fail "2 ranks: no reason"; }
[ $((SECONDS - begin)) -lt 60 ] || fail "2 ranks: the failure of one took $((SECONDS - begin)) s"
if [ "$(id -u)" = 0 ] && mkdir full && mount -t tmpfs -o size=4k tmpfs full 2>/dev/null; then
    "$WEFT" generate --model $model --prompt x --steps 2 --raw --out full/x.mp4 >full.log 2>&1
    status=$?
    left=$(ls -A full | grep -vx 'x\.\(walk\|latents\)\.safetensors') # from which --resume goes on
    umount full
    [ $status = 1 ] && grep -q 'full/x.*No space left.*free some space' full.log || { cat full.log; fail "disk full: status $status"; }
    [ -z "$left" ] || fail "disk full left: $left"
else
    echo "no tmpfs to be had: the full disk was not tried"
    exit 77
fi
exit 0
