#!/bin/bash
# Video continuation: each window is conditioned on the last frames of the window before, in every
# way in which a family takes frames. The first window is the video of --frames 9; the second is the
# video of --image with the last frame of the first. Memory is that of one window. An interrupted
# video resumes bitwise in any window, also on two ranks. Invalid settings are refused.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMPI_MCA_btl=self,vader OMP_NUM_THREADS=1
golden=$SRC/tests/golden/pipelines
ti2v=$golden/wan_ti2v
picture=$ti2v/image.png
size=(--height 32 --width 32)
make() { # OUT OPTIONS...
    local out=$1
    shift
    "$WEFT" generate --prompt "a red cat" --frames-npy --out "$out.mp4" "${size[@]}" "$@" >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate $*"; }
}
export PYTHONPATH=$SRC/tests/generate PYTHONDONTWRITEBYTECODE=1
cat >frames.py <<'PY'
import array, struct
from pictures import write_frame
def load(path):
    """[frame][value], (frames, height, width)"""
    data = open(path + ".npy", "rb").read()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    shape, x = eval(data[10:head])["shape"], array.array("f", data[head:])
    each = len(x) // shape[0]
    return [x[i * each:(i + 1) * each] for i in range(shape[0])], shape[:3]
def seed_of(seed, window):
    """of that window"""
    full = (1 << 64) - 1
    z = seed + 0x9E3779B97F4A7C15 * (window + 1) & full
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & full
    z = (z ^ z >> 27) * 0x94D049BB133111EB & full
    return (z ^ z >> 31) >> 2
def apart(a, b):
    return (sum((u - v) ** 2 for x, y in zip(a, b) for u, v in zip(x, y)) / sum(u * u for x in a for u in x)) ** 0.5
PY

# Frames are inputs on channels and through CLIP (Wan I2V), on channels (CogVideoX), as clean frames
# by timesteps (TI2V, LTX), or as a condition (Cosmos 2).
windows_are_separate_videos() { # M
    local m=$1
    image=$(find "$golden/$m" -name '*.png' | sort | head -1)
    of=(--model "$golden/$m" --steps 3 --seed 5)
    make $m "${of[@]}" --image "$image" --frames 20 --window 9 --window-mode continue
    has_message $m.log job-report value=3 text~=9 text~=1 || fail "$m: windows are not reported"
    make $m-first "${of[@]}" --image "$image" --frames 9
    python3 -S -c "
from frames import *
x, (t, h, w) = load('$m')
assert t == 20, t
write_frame('$m-last.png', w, h, x[8])
print(seed_of(5, 1))" >seed.txt || fail "$m: frames"
    make $m-second --model "$golden/$m" --steps 3 --seed "$(cat seed.txt)" --image $m-last.png --frames 9
    make $m-other --model "$golden/$m" --steps 3 --seed "$(cat seed.txt)" --image "$image" --frames 9
    python3 -S - $m <<'PY' || fail "$m: a window differs from the separate video"
import sys
from frames import *
m = sys.argv[1]
whole, first, second, other = (load(m + n)[0] for n in ("", "-first", "-second", "-other"))
assert all(a == b for a, b in zip(whole, first)), "the first window"  # bitwise
near, far = apart(second[1:], whole[9:17]), apart(other[1:], whole[9:17])
# --image rounds the frame to 8 bits, and random weights amplify that: one 8-bit value per pixel
# moves the frames of TI2V by 0.14 to 0.5
print(m, near, far)
assert near < 0.1 and far > 5 * near, (near, far)
PY
}
for m in wan_i2v cog_i2v wan_ti2v ltx_i2v cosmos2; do check "windows_are_separate_videos_$m" windows_are_separate_videos "$m"; done
# without a first image, and with 5 shared frames
five_frames_are_shared() {
    make five --model "$ti2v" --steps 2 --frames 21 --window 9 --window-overlap 5 --window-mode continue
    has_message five.log job-report value=4 text~=9 text~=5 || fail "5 shared frames"
}
check five_frames_are_shared
# A video of one window is the same as without --window.
one_window_is_a_plain_video() {
    make short --model "$ti2v" --steps 2 --frames 9 --window 9 --window-mode continue
    make plain --model "$ti2v" --steps 2 --frames 9
    cmp short.npy plain.npy || fail "one window of all frames changes the video"
}
check one_window_is_a_plain_video

# Memory is that of one window. The system maps and takes back pages of libraries and weights while a
# process runs, so the least difference of three attempts counts. Windows that stay in memory would
# stay in each attempt.
long() { # WINDOWS
    python3 -S - "resident$1" "$WEFT" generate --prompt x --model "$ti2v" "${size[@]}" --steps 1 --window 9 --window-mode continue --frames $(($1 * 8 + 1)) --out "long$1.mp4" >"long$1.log" 2>&1 <<'PY'
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=open(sys.argv[1], "w")) # KiB
sys.exit(code)
PY
    [ $? = 0 ] || { cat "long$1.log"; fail "$1 windows"; }
    message_field value "long$1.log" job-report rank= text~=peak >"predicted$1"
}
memory_is_that_of_one_window() {
    for _ in 1 2 3; do
        long 3
        long 30
        cmp predicted3 predicted30 && [ -s predicted3 ] || fail "predicted: $(cat predicted3) and $(cat predicted30)"
        few=$(cat resident3) many=$(cat resident30)
        echo "resident $few KiB for 3 windows, $many KiB for 30"
        [ $((many - few)) -ge 3000 ] || return 0
    done
    fail "$few KiB for 3 windows, $many KiB for 30"
}
check memory_is_that_of_one_window

# interrupted and killed in the second window
goes=(--model "$ti2v" --steps 40 --seed 5 --frames 25 --window 9 --window-mode continue)
make whole "${goes[@]}"
source "$SRC/tests/signal_at.sh"
a_stopped_video_resumes_bitwise() { # SIGNAL
    local signal=$1
    rm -f stopped.*
    signal_at $signal "*stopped.window0000.latents.safetensors" "$WEFT" generate --prompt "a red cat" --frames-npy --out stopped.mp4 "${size[@]}" "${goes[@]}" >stopped.log 2>&1
    [ -e stopped.window0000.latents.safetensors ] && [ ! -e stopped.mp4 ] || { cat stopped.log; fail "was not interrupted"; }
    make stopped "${goes[@]}" --resume
    has_message stopped.log run-resumed file=stopped.window0000.latents.safetensors || fail "the first window was not resumed"
    cmp stopped.npy whole.npy || fail "$signal: the frames differ after resuming"
    [ -z "$(find . -name 'stopped.*.safetensors')" ] || fail "saved latents were not removed"
}
for signal in INT KILL; do check "a_video_stopped_by_SIG${signal}_resumes_bitwise" a_stopped_video_resumes_bitwise $signal; done
# truncated latents of a window are computed from scratch
a_truncated_window_is_recomputed() {
    signal_at KILL "*cut.window0000.latents.safetensors" "$WEFT" generate --prompt "a red cat" --frames-npy --out cut.mp4 "${size[@]}" "${goes[@]}" >cut.log 2>&1
    truncate -s -40 cut.window0000.latents.safetensors
    make cut "${goes[@]}" --resume
    has_message cut.log latents-rebuilt file=cut.window0000.latents.safetensors || fail "the truncated window is not reported"
    cmp cut.npy whole.npy || fail "the frames differ after the truncated window was recomputed"
}
check a_truncated_window_is_recomputed
saved_windows_are_decoded() {
    make kept --model "$ti2v" --steps 2 --frames 25 --window 9 --window-mode continue --save-latents
    [ "$(find . -name 'kept.window*.latents.safetensors' | wc -l)" = 3 ] || { ls; fail "--save-latents"; }
    "$WEFT" generate --model "$ti2v" --decode-latents kept.window0000.latents.safetensors --frames-npy --out window.mp4 >window.log 2>&1 || { cat window.log; fail "--decode-latents of a window"; }
    python3 -S -c "
from frames import *
a, b = load('kept')[0], load('window')[0]
assert len(b) == 9 and all(x == y for x, y in zip(a, b))" || fail "the decoded window differs from the frames of the video"
}
check saved_windows_are_decoded

# Only the truncated window and the missing one are recomputed, also on two ranks.
recomputes_damaged_windows() { # OUT COMMAND...: makes three windows; truncates the second and removes the third
    local out=$1
    shift
    "$@" --out "$out.mp4" "${cut[@]}" --save-latents >"$out.log" 2>&1 || { cat "$out.log"; fail "$*"; }
    mv $out.npy $out-whole.npy
    rm $out.mp4 $out.window0002.latents.safetensors
    truncate -s -8 $out.window0001.latents.safetensors
    touch "$out.window0001.latents.safetensors.tmp.$dead" "$out.sampling.safetensors.tmp.$dead" "$out.preview.png.tmp.$$" "other.npy.tmp.$dead"
    "$@" --out "$out.mp4" "${cut[@]}" --resume >"$out.log" 2>&1 || { cat "$out.log"; fail "$*: resuming with a damaged window"; }
    has_message $out.log latents-rebuilt "file=$out.window0001.latents.safetensors" || fail "the damaged window is not reported"
    has_message $out.log run-resumed "file=$out.window0000.latents.safetensors" || fail "the intact first window was not resumed"
    cmp $out.npy $out-whole.npy || fail "the frames differ after the damaged window was recomputed"
    # temporary files of the killed process are removed; files of living processes stay
    [ "$(echo *.tmp.*)" = "$(echo other.npy.tmp.$dead $out.preview.png.tmp.$$ | tr ' ' '\n' | sort | xargs)" ] || fail "other temporary files than expected: $(echo *.tmp.*)"
    rm -f *.tmp.*
}
dead=$(bash -c 'echo $$')
cut=(--prompt "a red cat" --frames-npy "${size[@]}" --model "$ti2v" --steps 2 --frames 25 --window 9 --window-mode continue)
check a_damaged_window_is_recomputed recomputes_damaged_windows damaged "$WEFT" generate
check a_damaged_window_is_recomputed_on_two_ranks recomputes_damaged_windows damaged2 mpirun -n 2 "$WEFT" generate --parallel cfg=2

two_ranks_make_the_same_windows() {
    mpirun -n 2 "$WEFT" generate --prompt "a red cat" --frames-npy --out ranks.mp4 "${size[@]}" --model "$golden/wan_i2v" --image "$picture" --steps 3 --frames 20 --window 9 --window-mode continue --parallel cfg=2 >ranks.log 2>&1 || { cat ranks.log; fail "2 ranks"; }
    make rank --model "$golden/wan_i2v" --image "$picture" --steps 3 --frames 20 --window 9 --window-mode continue
    python3 -S -c "
from frames import *
assert apart(load('rank')[0], load('ranks')[0]) < 1e-5" || fail "2 ranks"
}
check two_ranks_make_the_same_windows

refuse() { check "refuses $*" refused "$@"; }
refused() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate --prompt x --out refused.mp4 "${size[@]}" --frames 20 --steps 1 --window-mode continue "$@" >out.log 2>&1 && fail "weft generate $*: not refused"
    has_message out.log "${wanted[@]}" || fail "$*: another message than expected"
    [ ! -e refused.mp4 ] || fail "weft generate $*: refused, but a video was written"
}
refuse option-required key=--window -- --model "$ti2v"
refuse model-input-unsupported key=--window-mode text~=HunyuanVideo 'text~=WanTransformer3DModel (I2V' 'text~=--window-mode blend' -- --model "$golden/hunyuan" --window 9
refuse model-input-unsupported file=*wan_over key=--window-mode 'text~=--window-mode blend' -- --model "$golden/wan_over" --window 9
refuse video-input file=*wan_i2v key=--image -- --model "$golden/wan_i2v" --window 9
refuse option-invalid key=--window-overlap text~=WanTransformer3DModel 'text~=1 frame, not 5' -- --model "$golden/wan_i2v" --image "$picture" --window 9 --window-overlap 5
refuse video-size key=--window-overlap text~=4 'text~=1 + 4 n' -- --model "$ti2v" --window 9 --window-overlap 4
refuse video-size key=--window-overlap text~=9 'text~=at most 5' -- --model "$ti2v" --window 9 --window-overlap 9
refuse video-size key=--window text~=1 'text~=at least 5' -- --model "$ti2v" --window 1
refuse video-size key=--window 'text~=1 + 4 n frames, not 8;' text~=9 -- --model "$ti2v" --window 8
refuse option-conflict key=--window-mode text~=--last-image -- --model "$golden/wan_i2v" --window 9 --image "$picture" --last-image "$picture"
refuse option-conflict key=--window-mode text~=--video -- --model "$ti2v" --window 9 --video "$picture"
refuse video-size key=--window 'text~=2 latent frames,' text~=9 text~=13 -- --model "$golden/cog15_i2v" --image "$picture" --window 9
refuse latents-invalid file=*noise.npy 'text~=3 x 3 frames' -- --model "$ti2v" --window 9 --init-latents "$ti2v/noise.npy"
refuse option-conflict key=--batch-size 'text~=--batch-size 2' -- --model "$ti2v" --window 9 --batch-size 2
finish
