#!/bin/bash
# Video with sound by LTX-2's pipelines: the waveform and the frames equal the files of diffusers
# (tools/golden_ltx2_pipeline.py) within 3e-5, as the latents in pipelines_test.sh. The track of a
# video file ends with the waveform, and its samples correlate with the waveform. Sound is bitwise the
# same decoded from saved latents and after an interruption; batches and several ranks are within 1e-5,
# because the order of summation differs.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMPI_MCA_btl=self,vader OMP_NUM_THREADS=1
golden=$SRC/tests/golden/pipelines
export PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1
cat >arrays.py <<'PY'
import array, math, struct


def load(path):
    data = open(path, "rb").read()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    return eval(data[10:head])["shape"], array.array("f", data[head:])


def error(reference, ours):
    """Relative error of two arrays of the same length."""
    assert len(reference) == len(ours), (len(reference), len(ours))
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(reference, ours)) / sum(a * a for a in reference))
PY
size=(--height 64 --width 64 --frames 9 --fps 5 --max-sequence-length 32)
run() { # LOG COMMAND...
    local log=$1
    shift
    "$@" >"$log" 2>&1 || { cat "$log"; fail "$*"; }
}
# golden NAME OUT [OPTIONS...]: generates what the golden files have, with arrays next to OUT
golden() {
    local name=$1 out=$2
    local given=(--prompt "a red cat walks &amp; sleeps" --negative-prompt blurry --steps 5 --guidance-scale 3 --init-latents "$golden/$name/noise.npy")
    [ "$name" = ltx2 ] || given+=(--audio-guidance-scale 5)
    run "${out%.*}.log" ${by_ranks-} "$WEFT" generate --model "$golden/$name" "${size[@]}" "${given[@]}" --latents-npy --frames-npy --out "$out" "${@:3}"
}
decodes_as_diffusers() { # NAME
    golden "$1" "$1.mp4"
    python3 -S - "$golden/$1" "$1" <<'PY' || fail "the waveform or the frames of $1"
import sys
from arrays import error, load
folder, name = sys.argv[1:]
(shape, theirs), (own, ours) = load(folder + "/waveform.npy"), load(name + ".sound.npy")
assert shape == own, (shape, own)
waveform = error(theirs, ours)
(few, theirs), (dim, ours) = load(folder + "/frames.npy"), load(name + ".npy")
frames, rows, columns, _ = dim
assert few == (-(-frames // 4), rows // 8, columns // 8, 3), (few, dim)
some = [ours[((f * rows + y) * columns + x) * 3 + c] for f in range(0, frames, 4) for y in range(0, rows, 8) for x in range(0, columns, 8) for c in range(3)]
pixels = error(theirs, some)
print(f"waveform {waveform:.2g}, frames {pixels:.2g} of the norm")
assert waveform < 3e-5 and pixels < 3e-5
PY
}
for name in ltx2 ltx23; do check "${name}_decodes" decodes_as_diffusers $name; done

# has_track NAME FILE CODEC RATE: the file has the sound of NAME.sound.npy
has_track() {
    command -v ffmpeg ffprobe >/dev/null || skip "ffmpeg is not installed"
    local track
    track=$(ffprobe -v error -select_streams a -show_entries stream=codec_name,sample_rate,channels -of csv=p=0 "$2")
    [ "$track" = "$3,$4,2" ] || fail "$2: the track of sound is $track"
    ffmpeg -v error -y -i "$2" -map 0:a -f f32le -ar "$4" "$2.raw" || fail "$2: the sound cannot be decoded"
    python3 -S - "$1.sound.npy" "$2" "$4" <<'PY' || fail "the sound of $2"
import array, math, subprocess, sys
from arrays import load
path, video, rate = sys.argv[1], sys.argv[2], int(sys.argv[3])
(channels, count), samples = load(path)
raw = array.array("f", open(video + ".raw", "rb").read())
seconds = 69 / 40  # steps of the spectrogram, of which 40 are a second
own = count / seconds
decoded = len(raw) / channels / rate
opus = rate == 48000
frame = 0.02 if opus else 1024 / rate
norm = lambda x: math.sqrt(sum(v * v for v in x))
print(f"{video}: {decoded:.3f} s of sound, waveform {seconds:.3f} s")
# AAC and Opus fill the last audio frame with silence
assert seconds - 1e-3 < decoded < seconds + frame + 1e-3
# the video has 9 frames at 5 per second; its sound is 3 steps of the spectrogram shorter
assert abs(9 / 5 - decoded) < 3 / 40 + frame
def waveform(c):
    """Channel c at the rate of the track. Opus removes frequencies below 3 Hz (dc_reject of libopus)."""
    low = 0
    one = array.array("f", samples[c * count:(c + 1) * count]).tobytes()
    resample = ["ffmpeg", "-v", "error", "-f", "f32le", "-ar", str(round(own)), "-ac", "1", "-i", "-", "-f", "f32le", "-ar", str(rate), "-"]
    for here in array.array("f", subprocess.run(resample, input=one, stdout=subprocess.PIPE, check=True).stdout)[:int(seconds * rate)]:
        yield here - low
        if opus:
            low += 6.3 * 3 / rate * (here - low)
def correlation(a, b):
    n = len(a)
    mean, other = sum(a) / n, sum(b) / n
    dot = sum((x - mean) * (y - other) for x, y in zip(a, b))
    return dot / math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - other) ** 2 for y in b))
for c in range(channels):
    theirs = list(waveform(c))
    ours = [raw[i * channels + c] for i in range(len(theirs))]
    late = rate // 150  # and less if the sound is moved
    same, moved = correlation(ours, theirs), max(correlation(ours[late:], theirs[:-late]), correlation(ours[:-late], theirs[late:]))
    print(f"channel {c}: correlation {same:.4f}, moved {moved:.4f}, norm {norm(ours) / norm(theirs):.3f}")
    # AAC of so low a rate loses more
    assert same > (0.999 if opus else 0.98) and moved < 0.98 and abs(norm(ours) / norm(theirs) - 1) < 0.03
PY
}
mp4_has_the_sound() {
    needs "$1_decodes"
    has_track "$1" "$1.mp4" aac 7350
}
webm_has_the_sound() {
    golden "$1" "$1-webm.webm"
    cmp "$1-webm.sound.npy" "$1.sound.npy" || fail "the waveform depends on the file format"
    has_track "$1" "$1-webm.webm" opus 48000
}
for name in ltx2 ltx23; do
    check "${name}_mp4" mp4_has_the_sound $name
    check "${name}_webm" webm_has_the_sound $name
done
# Saved latents hold both streams.
saved_latents_have_the_sound() {
    golden ltx23 kept.mp4 --save-latents
    run decoded.log "$WEFT" generate --model "$golden/ltx23" --decode-latents kept.latents.safetensors --frames-npy --out decoded.mp4
    cmp decoded.npy kept.npy && cmp decoded.sound.npy kept.sound.npy || fail "frames or sound of saved latents"
    cmp decoded.sound.npy ltx23.sound.npy || fail "--save-latents changes the sound"
    ffprobe -v error -select_streams a -show_entries stream=codec_name -of csv=p=0 decoded.mp4 | grep -qx aac || fail "decoded.mp4 has no sound"
    # the second file of a command is decoded by the decoder of the first one
    cp kept.latents.safetensors again.latents.safetensors
    run both.log "$WEFT" generate --model "$golden/ltx23" --decode-latents kept.latents.safetensors --decode-latents again.latents.safetensors --frames-npy --out both
    for one in both/kept both/again; do cmp "$one.sound.npy" kept.sound.npy || fail "sound of two files"; done
    command -v mpirun >/dev/null || return 0
    run two_ranks.log mpirun --oversubscribe -n 2 "$WEFT" generate --model "$golden/ltx23" --decode-latents kept.latents.safetensors --frames-npy --out two_ranks.mp4
    cmp two_ranks.sound.npy kept.sound.npy || fail "sound of saved latents on two ranks"
}
check saved_latents_have_the_sound

. "$SRC/tests/signal_at.sh"
resumes() { # NAME SIGNAL [OPTIONS...]
    local name=$1 signal=$2 model=$golden/$1
    shift 2
    local command=("$WEFT" generate --model "$model" --prompt "a red cat" --negative-prompt blurry "${size[@]}" --steps 20 --latents-npy --frames-npy "$@")
    run "$name-whole.log" "${command[@]}" --out "$name-whole.mp4"
    signal_at "$signal" "*$name-part.sampling.safetensors" "${command[@]}" --out "$name-part.mp4" >"$name-part.log" 2>&1
    [ -e "$name-part.sampling.safetensors" ] && [ ! -e "$name-part.mp4" ] || { cat "$name-part.log"; fail "was not interrupted while denoising"; }
    run "$name-part.log" "${command[@]}" --resume --out "$name-part.mp4"
    has_message "$name-part.log" run-resumed "file=$name-part.*safetensors" 'value=[1-9]*' || fail "started from step 0"
    for array in latents.npy audio-latents.npy npy sound.npy; do
        cmp "$name-part.$array" "$name-whole.$array" || fail "$array differs after resuming"
    done
}
check ltx2_resumes resumes ltx2 KILL --sampler dpmpp
check ltx23_resumes resumes ltx23 INT --image "$golden/ltx23/image_i2v.png" --audio-guidance-scale 5

# Each video of a batch has its own sound, also resumed from states of single videos. A batch rounds
# otherwise than a video alone.
a_batch_has_its_sounds() {
    local command=("$WEFT" generate --model "$golden/ltx2" "${size[@]}" --steps 12 --sampler dpmpp --frames-npy)
    local two=("${command[@]}" --seed 7 --prompt "a red cat" --prompt "a dog" --batch-size 2 --split-states)
    run list.log "${two[@]}" --out list
    run alone.log "${command[@]}" --seed 8 --prompt "a dog" --out alone.mp4
    python3 -S - <<'PY' || fail "a video of a batch differs from the same video alone"
from arrays import error, load
for array in ".npy", ".sound.npy":
    alone, second, first = (load(name + array)[1] for name in ("alone", "list/0001", "list/0000"))
    print(array, f"{error(alone, second):.2g}, another video {error(alone, first):.2g}")
    assert error(alone, second) < 1e-5 < 1e-3 < error(alone, first)
PY
    signal_at KILL "*parts/0001.sampling.safetensors" "${two[@]}" --out parts >parts.log 2>&1
    [ -e parts/0001.sampling.safetensors ] && [ ! -e parts/0001.mp4 ] || { cat parts.log; fail "was not interrupted while denoising"; }
    run parts.log "${two[@]}" --resume --out parts
    for array in npy sound.npy; do
        cmp parts/0000.$array list/0000.$array && cmp parts/0001.$array list/0001.$array || fail "$array differs after resuming"
    done
}
check a_batch_has_its_sounds

# Layouts: the order of summation differs.
same_by_ranks() { # NAME RANKS LAYOUT...
    local name=$1 ranks=$2 out parallel=()
    shift 2
    out=$(tr '= ' -- <<<"$name-$*")
    for layout; do parallel+=(--parallel "$layout"); done
    command -v mpirun >/dev/null || skip "no mpirun"
    needs "${name}_decodes"
    by_ranks="mpirun --oversubscribe -n $ranks" golden "$name" "$out.mp4" "${parallel[@]}" "${weakened[@]}"
    python3 -S - "$name" "$out" <<'PY' || fail "$out and one rank differ"
import sys
from arrays import error, load
name, out = sys.argv[1:]
for array in "latents.npy", "audio-latents.npy":
    (shape, one), (own, many) = load(f"{name}.{array}"), load(f"{out}.{array}")
    assert shape == own, (shape, own)
    print(out, array, f"{error(one, many):.2g}")
    assert error(one, many) < 1e-5, array
PY
}
for name in ltx2 ltx23; do
    check "${name}_tp" same_by_ranks $name 2 tp=2
    check "${name}_cp" same_by_ranks $name 2 cp=2
    check "${name}_ring" same_by_ranks $name 2 cp=2 context=ring
    check "${name}_cfg" same_by_ranks $name 2 cfg=2
done
# The same with both weakened passes, which are branches of guidance.
weakened=(--stg-scale 1 --stg-blocks 1 --modality-scale 3)
weakened_decodes() { golden ltx2 ltx2-weakened.mp4 "${weakened[@]}"; }
check weakened_decodes
weakened_by_ranks() { # RANKS LAYOUT...
    needs weakened_decodes
    mkdir -p "weakened-$2" && cd "weakened-$2" || return
    for kind in latents audio-latents; do ln -s "../ltx2-weakened.$kind.npy" "ltx2.$kind.npy"; done
    needs() { :; }
    same_by_ranks ltx2 "$@"
}
for layout in tp=2 cp=2 cfg=4; do check "weakened_${layout%=*}" weakened_by_ranks "${layout#*=}" "$layout"; done
weakened=()

refuses() { # OPTION VALUE [OPTIONS...]: the error names the option, the model and the reason
    expect_error model-input-unsupported key="$1" text~=LTX2VideoTransformer3DModel text~=sound -- \
        "$WEFT" generate --model "$golden/ltx2" --prompt cat --height 64 --width 64 --max-sequence-length 32 --steps 2 --out refused.mp4 "$@" || fail "$1"
    [ ! -e refused.mp4 ] || fail "a refused command wrote a video"
}
refusals() {
    local image=$golden/ltx2/image_i2v.png
    refuses --video "$image" --frames 9
    refuses --control "$image" --frames 9
    refuses --feature-cache attention:2 --frames 9
    refuses --identity-image "$image" --frames 9
    refuses --window 17 --frames 25
    expect_error option-no-effect key=--audio-guidance-scale text~=WanTransformer3DModel -- \
        "$WEFT" generate --model "$golden/wan_over" --prompt cat --height 32 --width 32 --frames 5 --steps 1 --audio-guidance-scale 2 --out refused.mp4 || fail --audio-guidance-scale
}
check refusals
# The predicted peak and seconds of decoding count the decoder of sound: only the vocoder differs.
the_estimate_counts_the_sound() {
    mkdir -p wider
    ln -sf "$golden"/ltx2/* wider
    rm wider/vocoder
    ln -s "$golden/ltx23/vocoder" wider
    "$WEFT" estimate --model "$golden/ltx2" --height 64 --width 64 --frames 9 --max-sequence-length 32 --json >narrow.json || fail "weft estimate"
    "$WEFT" estimate --model wider --height 64 --width 64 --frames 9 --max-sequence-length 32 --json >wider.json || fail "weft estimate with another vocoder"
    python3 -S - <<'PY' || fail "the vocoder is not counted"
import json, os
narrow, wider = json.load(open("narrow.json")), json.load(open("wider.json"))
size = lambda folder: os.path.getsize(folder + "/vocoder/diffusion_pytorch_model.safetensors")
print({key: (narrow[key], wider[key]) for key in ("peak_bytes", "decode_seconds", "video_seconds", "step_seconds")})
assert wider["step_seconds"] == narrow["step_seconds"]
# the peak has at least the weights, whose header in the file is below 20 KiB
assert wider["peak_bytes"] - narrow["peak_bytes"] > size("wider") - size(os.environ["SRC"] + "/tests/golden/pipelines/ltx2") - 20480 > 0
assert wider["decode_seconds"] > narrow["decode_seconds"]
assert wider["video_seconds"] - narrow["video_seconds"] > 0.99 * (wider["decode_seconds"] - narrow["decode_seconds"])
PY
}
check the_estimate_counts_the_sound
finish
