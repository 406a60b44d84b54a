#!/bin/bash
# An interrupted or killed `weft generate` resumes bitwise: with samplers of every kind, temporal
# windows, masks, two experts, fresh noise, batches, feature caches, and on two ranks. Saved latents
# are decoded separately, with less memory after a killed decoding. A list of prompts resumes with
# its missing videos. Saved latents of another model, VAE, prompt or setting are refused.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMPI_MCA_btl=self,vader OMP_NUM_THREADS=1
golden=$SRC/tests/golden/pipelines
wan=$golden/wan_over
size=(--height 32 --width 32)
export PYTHONPATH=$SRC/tests/generate PYTHONDONTWRITEBYTECODE=1
python3 -S -c 'import pictures; pictures.draw_mask("left.png")'
generate() { "$WEFT" generate "$@"; }
on_two() { mpirun -n 2 "$WEFT" generate "$@"; }
source "$SRC/tests/signal_at.sh"
# interrupt SIGNAL OUT COMMAND...: sends the signal when a step has been saved, to rank 0 of several
interrupt() {
    local signal=$1 out=$2
    shift 2
    SIGNAL_RANK=0 signal_at "$signal" "*$out.sampling.safetensors" "$@" --out "$out.mp4" >"$out.stop" 2>&1
    [ -e "$out.sampling.safetensors" ] && [ ! -e "$out.mp4" ] || { cat "$out.stop"; fail "$out: was not interrupted while denoising"; }
}
# resumes NAME SIGNAL COMMAND...: latents and frames are bitwise those of an uninterrupted run
resumes() {
    local name=$1 signal=$2
    shift 2
    "$@" --frames-npy --latents-npy --out "$name-whole.mp4" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
    interrupt "$signal" "$name" "$@" --frames-npy --latents-npy
    "$@" --frames-npy --latents-npy --resume --out "$name.mp4" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name: --resume"; }
    has_message "$name.log" run-resumed "file=$name.*safetensors" 'value=[1-9]*' || fail "$name: started from step 0"
    cmp "$name.latents.npy" "$name-whole.latents.npy" && cmp "$name.npy" "$name-whole.npy" || fail "$name: latents or frames differ after resuming"
    [ -z "$(find . -name "$name.*.safetensors")" ] || fail "$name: saved files were not removed"
}
frames=(--prompt "a red cat" "${size[@]}" --frames 17)
long=("${frames[@]}" --model "$wan" --steps 20)
check resumes_unipc resumes unipc INT generate "${long[@]}"
check resumes_dpmpp resumes dpmpp TERM generate "${long[@]}" --sampler dpmpp --negative-prompt "a dog"
check resumes_ddpm resumes ddpm KILL generate "${long[@]}" --sampler ddpm
check resumes_res resumes res KILL generate "${long[@]}" --sampler res_2ab
check resumes_windows resumes windows INT generate "${long[@]}" --window 9 --sampler ddim --eta 0.5
check resumes_mask resumes mask KILL generate "${long[@]}" --video "$wan/video.png" --mask left.png --sampler heun
check resumes_over resumes over TERM generate "${long[@]}" --video "$wan/video.png" --strength 0.7 --sampler dpmpp
check resumes_experts resumes experts INT generate --prompt cat --model "$golden/wan22" "${size[@]}" --frames 9 --steps 20 --guidance-scale-2 3
check resumes_cached resumes cached INT generate "${long[@]}" --feature-cache attention:3,warm=0
check resumes_cached-twice resumes cached-twice KILL generate "${long[@]}" --feature-cache attention:3 --sampler heun --window 9
check resumes_cached-half resumes cached-half KILL generate --prompt x --model "$golden/mochi" "${size[@]}" --frames 7 --steps 20 --feature-cache block:0.3,warm=0 --guidance-end 0.6
longer=("${frames[@]}" --model "$wan" --steps 20)
check resumes_ranks resumes ranks KILL on_two "${longer[@]}"
check resumes_ranks-int resumes ranks-int INT on_two "${longer[@]}" --sampler dpmpp
check resumes_cached-ranks resumes cached-ranks KILL on_two "${longer[@]}" --feature-cache attention:3 --parallel cfg=2
# One rank cannot save its feature caches: both ranks report that, and the video is made.
a_rank_that_cannot_save_its_caches() {
    mkdir able unable && touch unable/out
    absolute=$(realpath "$wan")
    (cd able && timeout 300 mpirun -n 1 "$WEFT" generate "${frames[@]}" --model "$absolute" --steps 4 --feature-cache attention:3 --parallel cfg=2 --out out/v.mp4 : \
        -n 1 -wdir ../unable "$WEFT" generate "${frames[@]}" --model "$absolute" --steps 4 --feature-cache attention:3 --parallel cfg=2 --out out/v.mp4) >unable.log 2>&1 &&
        [ "$(ls able/out)" = v.mp4 ] && has_message unable.log save-failed file=out && [ "$(count_messages unable.log save-failed)" = 2 ] ||
        { cat unable.log; fail "a rank that cannot save its caches is not reported twice, or the video is missing"; }
}
check a_rank_that_cannot_save_its_caches
caches_that_are_missing_are_named() {
    interrupt INT cached-one generate "${long[@]}" --feature-cache attention:2
    rm cached-one.sampling.cache-*
    "$WEFT" generate "${long[@]}" --feature-cache attention:2 --resume --out cached-one.mp4 >refused.log 2>&1 && fail "saved latents without their caches are accepted"
    has_message refused.log latents-mismatch file=cached-one.sampling.cache-0-of-1-*.safetensors text~=cached-one.sampling.safetensors || fail "the error does not name the missing caches"
}
check caches_that_are_missing_are_named
# Two slices of a layer have the bytes of one, in another order.
caches_in_other_slices_are_refused() {
    local cut=(--prompt cat --model "$golden/latte" --height 64 --width 64 --frames 8 --steps 20 --feature-cache attention:4,warm=0 --parallel cp=2)
    interrupt INT cached-cut on_two "${cut[@]}" --comm-overlap off
    on_two "${cut[@]}" --comm-overlap time=4,space=8 --resume --out cached-cut.mp4 >refused.log 2>&1 && fail "caches of other slices are accepted"
    has_message refused.log latents-mismatch file=cached-cut.sampling.cache-*-of-2-*.safetensors key=cache.0.0.arrangement text~=--comm-overlap ||
        { cat refused.log; fail "the error does not name --comm-overlap"; }
}
check caches_in_other_slices_are_refused
how_to_resume_is_reported() {
    needs resumes_unipc
    has_message unipc.stop run-finished 'value=[1-9]*' text~=20 text~=--resume || fail "the message does not name --resume"
}
check how_to_resume_is_reported

# A state has the scales of weakened passes only with such a pass, so that states of weft without
# them resume: the file has exactly the settings of a state before the passes were added.
only_weakened_passes_have_scales() {
    interrupt INT plain generate "${long[@]}"
    python3 -S - plain.sampling.safetensors <<'PY' || fail "the settings of the state"
import json, struct, sys
data = open(sys.argv[1], "rb").read()
header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
settings = json.loads(header["__metadata__"]["weft.saved_latents"])["settings"]
assert settings["guidance"] == 4, settings
added = {"stg_scale", "audio_stg_scale", "modality_scale", "audio_modality_scale", "stg_blocks", "audio_guidance_rescale"}
assert not added & set(settings), settings
PY
    generate "${long[@]}" --resume --out plain.mp4 >plain.log 2>&1 && has_message plain.log run-resumed 'value=[1-9]*' || { cat plain.log; fail "a state without the scales does not resume"; }
}
check only_weakened_passes_have_scales

# previews do not change the video
previews_change_nothing() {
    needs resumes_unipc
    generate "${long[@]}" --preview-interval 7 --frames-npy --out seen.mp4 >seen.log 2>&1 || { cat seen.log; fail "--preview-interval"; }
    generate "${long[@]}" --preview-interval 999 --out refused.mp4 >refused.log 2>&1 && fail "--preview-interval 999 is accepted for 20 steps"
    has_message refused.log option-invalid key=--preview-interval text~=999 'text~=20 steps' || fail "the error of --preview-interval does not name the number of steps"
    mkdir blind.preview.png # cannot be written
    generate "${long[@]}" --preview-interval 7 --frames-npy --out blind.mp4 >blind.log 2>&1 && cmp blind.npy unipc.npy && [ "$(count_messages blind.log save-failed 'file=blind.preview.png*')" = 1 ] ||
        { cat blind.log; fail "a preview that cannot be written changes the video or is not reported once"; }
    cmp seen.npy unipc.npy && [ "$(head -c 8 seen.preview.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || { cat seen.log; fail "--preview-interval"; }
    has_message seen.log estimate "text~=20 steps" || fail "the predicted seconds are not reported"
}
check previews_change_nothing

# Saved latents of other settings or models are refused with the changed key. The files are kept.
interrupt INT other generate "${long[@]}" --seed 3
refuse_resume() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate "$@" --resume --out other.mp4 >other.log 2>&1 && fail "$* is accepted"
    has_message other.log "${wanted[@]}" || fail "$*: another message than expected"
    [ -e other.sampling.safetensors ] || fail "$*: the saved latents were removed"
}
other_settings_are_refused() {
    refuse_resume latents-mismatch file=other.sampling.safetensors key=seed text~=3, text~=4 -- "${long[@]}" --seed 4
    refuse_resume latents-mismatch file=other.sampling.safetensors key=guidance text~=4.0, text~=5.0. -- "${long[@]}" --seed 3 --guidance-scale 5
    refuse_resume latents-mismatch file=other.sampling.safetensors key=sampler 'text~="unipc",' 'text~="euler"' -- "${long[@]}" --seed 3 --sampler euler
}
check other_settings_are_refused
cp -r "$wan" model
chmod -R u+w model
python3 -S - <<'PY'
import glob
for part in ("transformer", "vae"):
    path = glob.glob("model/%s/*.safetensors" % part)[0]
    data = bytearray(open(path, "rb").read())
    data[-4:] = bytes(4)
    open(path + "." + part, "wb").write(data)
PY
for part in transformer vae; do # a model with other transformer weights, and one with other VAE weights
    cp -r model "model-$part"
    mv model-$part/$part/*.safetensors.$part "$(ls model-$part/$part/*.safetensors)"
    rm -f model-*/*/*.safetensors.*
done
rm -f model/*/*.safetensors.*
another_model_is_refused() {
    refuse_resume latents-mismatch file=other.sampling.safetensors key=model -- "${frames[@]}" --steps 20 --seed 3 --model model-transformer
}
check another_model_is_refused
generate "${frames[@]}" --model "$wan" --steps 3 --save-latents --frames-npy --out kept.mp4 >kept.log 2>&1 || { cat kept.log; fail "--save-latents"; }
decode() { "$WEFT" generate --decode-latents kept.latents.safetensors "$@"; }
saved_latents_are_decoded() {
    decode --model "$wan" --frames-npy --out decoded.mp4 --sheet decoded.png >decoded.log 2>&1 && cmp decoded.npy kept.npy && [ -s decoded.png ] ||
        { cat decoded.log; fail "--decode-latents"; }
    [ "$(count_messages decoded.log run-resumed file=kept.latents.safetensors)" = 0 ] || { cat decoded.log; fail "a complete decoding is reported as interrupted"; }
}
check saved_latents_are_decoded
other_files_as_latents_are_refused() {
    "$WEFT" generate "${frames[@]}" --model "$wan" --steps 4 --resume --out kept.mp4 >refused.log 2>&1 && fail "latents of 3 steps are accepted for a video of 4"
    has_message refused.log latents-mismatch file=kept.latents.safetensors key=steps text~=3, text~=4 || fail "the error does not name both step counts"
    decode --model model-vae --out refused.mp4 >refused.log 2>&1 && fail "another VAE is accepted"
    has_message refused.log latents-mismatch file=kept.latents.safetensors key=vae text~=model-vae/vae || fail "another VAE is not named"
    "$WEFT" generate --decode-latents seen.mp4 --model "$wan" --out refused.mp4 >refused.log 2>&1 && fail "a video is accepted as latents"
    has_message refused.log '*' level=error text~=seen.mp4 text~=.latents.safetensors || fail "the error does not name the expected file"
    "$WEFT" generate --decode-latents other.sampling.safetensors --model "$wan" --out refused.mp4 >refused.log 2>&1 && fail "a saved sampler state is accepted as latents"
    has_message refused.log latents-mismatch file=other.sampling.safetensors text~=step 'text~=of 20' text~=--resume || fail "the error of a saved sampler state does not name the step and --resume"
    head -c -40 kept.latents.safetensors >cut.safetensors
    "$WEFT" generate --decode-latents cut.safetensors --model "$wan" --out refused.mp4 >refused.log 2>&1 && fail "a truncated file is accepted"
    "$WEFT" generate --decode-latents "$wan/vae/diffusion_pytorch_model.safetensors" --model "$wan" --out refused.mp4 >refused.log 2>&1 && fail "weights are accepted as latents"
    has_message refused.log latents-invalid file=*/vae/diffusion_pytorch_model.safetensors || fail "the error of weights as latents"
    decode --model "$wan" --vae-tile 16x16+16 --out refused.mp4 >refused.log 2>&1 && fail "tiles without a part that does not overlap are accepted"
    [ ! -e refused.mp4 ] || fail "a refused command wrote a video"
}
check other_files_as_latents_are_refused

# A killed decoding is repeated with less memory: the file of the latents has the bytes that the
# killed attempt needed. 256 x 256 without tiles needs more memory than with tiles.
decoding_is_retried_with_less_memory() {
    big=(--model "$wan" --height 256 --width 256 --frames 5 --steps 1 --prompt x --vae-tile off)
    generate "${big[@]}" --save-latents --out big.mp4 >big.log 2>&1 || { cat big.log; fail "making a large video"; }
    rm big.mp4
    "$WEFT" generate --model "$wan" --decode-latents big.latents.safetensors --vae-tile off --memory-limit 1KiB --out refused.mp4 >refused.log 2>&1 && fail "a memory limit of 1 KiB is accepted"
    tried=$(python3 -S - <<'PY'
import json, re, struct
number, unit = re.search("([0-9.]+) ([KM]iB)", [json.loads(l)["message"] for l in open("refused.log") if '"level":"error"' in l][-1].split("the VAE needs")[1]).groups()
tried = int(float(number) * 0.98 * {"KiB": 1 << 10, "MiB": 1 << 20}[unit])
data = open("big.latents.safetensors", "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:end])
kept = json.loads(head["__metadata__"]["weft.saved_latents"])
assert kept["tried"] == 0, kept # the decoding above was complete
kept["tried"] = tried
head["__metadata__"]["weft.saved_latents"] = json.dumps(kept)
text = json.dumps(head).encode()
text += b" " * (-len(text) % 64)
open("big.latents.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[end:])
print(tried)
PY
    )
    generate "${big[@]:0:12}" --resume --memory-limit $((tried * 3 / 2 / 1024))KiB --out big.mp4 >big.log 2>&1 || { cat big.log; fail "resuming with less memory"; }
    has_message big.log run-resumed file=big.latents.safetensors && has_message big.log job-report 'file=big*' text~=tiles && [ -s big.mp4 ] || { cat big.log; fail "the repeated decoding does not use tiles"; }
}
check decoding_is_retried_with_less_memory

# --resume keeps a finished video. With another seed the video is made.
a_finished_video_is_kept() {
    one=(--prompt "a red cat" --model "$wan" "${size[@]}" --frames 9 --steps 2 --negative-prompt "a dog")
    generate "${one[@]}" --out one.mp4 >one.log 2>&1 || { cat one.log; fail "one video"; }
    cp one.mp4 first.mp4
    generate "${one[@]}" --resume --out one.mp4 >one.log 2>&1 || { cat one.log; fail "--resume of a finished video"; }
    has_message one.log run-finished file=one.mp4 && ! is_progress one.log && cmp one.mp4 first.mp4 || { cat one.log; fail "--resume made a finished video from scratch"; }
    generate "${one[@]}" --seed 1 --resume --out one.mp4 >one.log 2>&1 && ! cmp -s one.mp4 first.mp4 || { cat one.log; fail "the video of another seed was not made"; }
    decode --model "$wan" --steps 3 --out refused.mp4 >refused.log 2>&1 && fail "--steps is accepted with --decode-latents"
    has_message refused.log option-no-effect key=--steps text~=--decode-latents || fail "the error of --steps with --decode-latents"
}
check a_finished_video_is_kept

# a list: --resume keeps finished videos and makes the missing ones
cat >list.jsonl <<'LIST'
{"prompt": "a dog", "seed": 7}
# a comment
{"prompt": "a cat", "frames": 5, "out": "cats/x.mp4", "negative": "ugly"}
{"prompt": "a rat", "steps": 3}
{"prompt": "a hat", "guidance": 1}
{"prompt": "a bat"}
LIST
list=(--model "$wan" "${size[@]}" --frames 9 --steps 4 --prompts list.jsonl --latents-npy)
generate "${list[@]}" --out list >list.log 2>&1 || { cat list.log; fail "a list"; }
[ "$(find list -name '*.mp4' | sort | tr '\n' ' ')" = "list/0000.mp4 list/0002.mp4 list/0003.mp4 list/0004.mp4 list/cats/x.mp4 " ] || { find list; fail "names of the videos"; }
a_list_resumes() {
    cp -r list before
    rm list/0002.mp4
    head -c -20 before/prompts.jsonl >list/prompts.jsonl # as if killed while the last line was written
    generate "${list[@]}" --resume --out list >list.log 2>&1 || { cat list.log; fail "a list with --resume"; }
    has_message list.log run-resumed file=list value=3 || fail "did not resume with 3 of 5 videos"
}
check a_list_resumes
# A run that was killed after it wrote the line of a video leaves saved files of this video; the
# next run removes them. A saved sampler state is of a batch: it stays until all videos of the batch
# exist.
leftovers_of_a_list_are_removed() {
    needs a_list_resumes
    left=(0000.latents.safetensors cats/x.window0000.latents.safetensors 0003.sampling.cache-0-of-1-2.safetensors 0003.sampling.safetensors)
    touch "${left[@]/#/list/}"
    generate "${list[@]}" --resume --out list >list.log 2>&1 && [ -z "$(find list -name '*.safetensors')" ] || { cat list.log; find list; fail "saved files of finished videos were not removed"; }
}
check leftovers_of_a_list_are_removed
the_state_of_a_batch_is_kept() {
    printf 'one\ntwo\n' >two.txt
    two=(--model "$wan" "${size[@]}" --frames 9 --steps 2 --prompts two.txt --batch-size 2)
    generate "${two[@]}" --out two >two.log 2>&1 || { cat two.log; fail "a batch of two"; }
    rm two/0001.mp4
    touch two/0000.sampling.safetensors
    generate "${two[@]}" --resume --out two >two.log 2>&1 && [ -s two/0001.mp4 ] && has_message two.log latents-rebuilt file=two/0000.sampling.safetensors ||
        { cat two.log; fail "the saved state of a batch was removed before all videos of the batch existed"; }
}
check the_state_of_a_batch_is_kept
ranks_share_a_list() {
    on_two "${list[@]}" --out ranks >ranks.log 2>&1 || { cat ranks.log; fail "a list on two ranks"; }
    has_message ranks.log job-report value=2 text~=5 || fail "the ranks do not share the list"
}
check ranks_share_a_list
every_line_of_prompts_is_right() {
    needs a_list_resumes ranks_share_a_list
    python3 -S - <<'PY' || fail "lines of prompts.jsonl"
import json
for name in ("before", "list", "ranks"):
    lines = [json.loads(line) for line in open(name + "/prompts.jsonl")]
    by = {line["file"]: line for line in lines}
    assert sorted(by) == ["0000.mp4", "0002.mp4", "0003.mp4", "0004.mp4", "cats/x.mp4"], (name, sorted(by))
    x = by["cats/x.mp4"]
    assert (x["prompt"], x["negative"], x["seed"], x["frames"], x["height"], x["steps"], x["guidance"]) == ("a cat", "ugly", 1, 5, 32, 4, 4.0), x
    assert by["0000.mp4"]["seed"] == 7 and by["0002.mp4"]["steps"] == 3 and by["0003.mp4"]["guidance"] == 1
    assert all(line["seconds"]["denoise"] > 0 and line["seconds"]["decode"] >= 0 for line in lines)
assert {line["team"] for line in lines} == {0, 1}
PY
    for f in 0000 0002 0003 0004 cats/x; do # each rank makes complete videos: bitwise those of one rank
        cmp before/$f.latents.npy list/$f.latents.npy && cmp before/$f.latents.npy ranks/$f.latents.npy || fail "latents of $f"
    done
}
check every_line_of_prompts_is_right
bad() { check "refuses ${*: -1}" refused_job "$@"; }
refused_job() { # ID [FIELD=VALUE...] -- LINE
    take_message "$@"
    set -- "${rest[@]}"
    printf '%s\n' '{"prompt": "good"}' "$1" >bad.jsonl
    "$WEFT" generate --model "$wan" "${size[@]}" --frames 9 --steps 1 --prompts bad.jsonl --out bad >bad.log 2>&1 && fail "$1 is accepted"
    has_message bad.log "${wanted[@]}" && [ ! -e bad ] || fail "$1: another message than expected, or a folder was created"
}
bad json-value file=bad.jsonl line=2 key=sead 'text~="seed"' -- '{"prompt": "x", "sead": 3}'
bad json-value file=bad.jsonl line=2 key=prompt -- '{"seed": 3}'
bad json-syntax file=bad.jsonl line=2 -- '{"prompt": "x", '
bad json-value file=bad.jsonl line=2 key=frames text~=0 'text~=1 to' -- '{"prompt": "x", "frames": 0}'
bad json-value file=bad.jsonl line=2 key=guidance text~=-1 'text~=0 to 100' -- '{"prompt": "x", "guidance": -1}'
bad file-name file=x.avi text~=bad.jsonl:2 -- '{"prompt": "x", "out": "x.avi"}'
bad json-value file=bad.jsonl line=2 key=out text~=../x.mp4 -- '{"prompt": "x", "out": "../x.mp4"}'
bad json-value file=bad.jsonl line=2 -- '["x"]'
bad video-size file=bad.jsonl line=2 key=--frames 'text~=1 + 4 n' 'text~=6;' text~=5 -- '{"prompt": "x", "frames": 6}' # refused before the first video is made
bad video-size file=bad.jsonl line=2 key=--width text~=40 text~=16, -- '{"prompt": "x", "width": 40}'
bad job-invalid file=bad.jsonl line=2 key=out text~=0000.mp4, text~=bad.jsonl:1 text~=0000.mp4 -- '{"prompt": "x", "out": "./0000.mp4"}'
a_config_sets_the_layout_of_a_list() {
    printf 'one\n \t\n\ntwo\n' >blank.txt # a blank line is not a prompt
    printf 'parallel: {tp: 2}\n' >tp.yaml
    on_two --model "$wan" "${size[@]}" --frames 5 --steps 1 --prompts blank.txt --config tp.yaml --out blank >blank.log 2>&1 || { cat blank.log; fail "a list with the layout of --config"; }
    has_message blank.log job-report text~=tp=2 && [ "$(ls blank/*.mp4 | tr '\n' ' ')" = "blank/0000.mp4 blank/0001.mp4 " ] || { cat blank.log; fail "a list with the layout of --config"; }
}
check a_config_sets_the_layout_of_a_list
another_window_is_suggested() {
    generate --model "$wan" "${size[@]}" --frames 9 --window 4 --prompt x --out refused.mp4 >refused.log 2>&1 && fail "--window 4 is accepted"
    has_message refused.log video-size key=--window 'text~=4;' text~=5 || fail "the error of --window 4 does not name a valid value"
}
check another_window_is_suggested
another_seed_is_named() {
    needs a_list_resumes
    "$WEFT" generate "${list[@]}" --seed 9 --resume --out list >list.log 2>&1 && fail "another seed is accepted"
    has_message list.log latents-mismatch file=list/cats/x.mp4 key=seed text~=1, text~=10 || fail "another seed is not named"
}
check another_seed_is_named
finish
