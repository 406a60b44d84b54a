#!/bin/bash
# What was stopped or killed goes on to the same bits: by every kind of sampler, with windows, masks, two experts, fresh noise,
# batches and on two ranks; latents that were kept are decoded alone, in less memory where decoding was killed; lists of prompts go
# on where they were; what is of another model, VAE, prompt or setting is refused by name.
set -u
export OMPI_MCA_btl=self,vader OMP_NUM_THREADS=1
fail() { echo "FAILED: $*"; exit 1; }
golden=$SRC/tests/golden/pipelines
wan=$golden/wan_over
size=(--height 32 --width 32)
export PYTHONPATH=$SRC/tests/generate PYTHONDONTWRITEBYTECODE=1
python3 -c 'import pictures; pictures.draw_mask("left.png")'
generate() { "$WEFT" generate "$@"; }
on_two() { mpirun -n 2 "$WEFT" generate "$@"; }
source "$SRC/tests/signal_at.sh"
# stopped SIGNAL OUT COMMAND...: ended by the signal when a step is kept; of several ranks the first gets it
stopped() {
    local signal=$1 out=$2
    shift 2
    SIGNAL_RANK=0 signal_at "$signal" "*$out.walk.safetensors" "$@" --out "$out.mp4" >"$out.stop" 2>&1
    [ -e "$out.walk.safetensors" ] && [ ! -e "$out.mp4" ] || { cat "$out.stop"; fail "$out: was not stopped in a walk"; }
}
# goes_on NAME SIGNAL COMMAND...: the same latents and frames as of the run that nobody stopped
goes_on() {
    local name=$1 signal=$2
    shift 2
    "$@" --raw --latents --out "$name-whole.mp4" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
    stopped "$signal" "$name" "$@" --raw --latents
    "$@" --raw --latents --resume --out "$name.mp4" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name: --resume"; }
    grep -qE "goes on after step [1-9]" "$name.log" || { cat "$name.log"; fail "$name: began anew"; }
    cmp "$name.latents.npy" "$name-whole.latents.npy" && cmp "$name.npy" "$name-whole.npy" || fail "$name: not the same bits"
    [ -z "$(find . -name "$name.*.safetensors")" ] || fail "$name: what was kept stays"
}
frames=(--prompt "a red cat" "${size[@]}" --frames 17)
long=("${frames[@]}" --model "$wan" --steps 20)
goes_on unipc INT generate "${long[@]}"
goes_on dpmpp TERM generate "${long[@]}" --sampler dpmpp --negative "a dog"
goes_on ddpm KILL generate "${long[@]}" --sampler ddpm
goes_on res KILL generate "${long[@]}" --sampler res_2ab
goes_on windows INT generate "${long[@]}" --window 9 --sampler ddim --eta 0.5
goes_on mask KILL generate "${long[@]}" --video "$wan/video.png" --mask left.png --sampler heun
goes_on over TERM generate "${long[@]}" --video "$wan/video.png" --strength 0.7 --sampler dpmpp
goes_on experts INT generate --prompt cat --model "$golden/wan22" "${size[@]}" --frames 9 --steps 20 --guidance-low 3
goes_on cached INT generate "${long[@]}" --cache attention:3,warm=0
goes_on cached-twice KILL generate "${long[@]}" --cache attention:3 --sampler heun --window 9
goes_on cached-half KILL generate --prompt x --model "$golden/mochi" "${size[@]}" --frames 7 --steps 20 --cache block:0.3,warm=0 --guidance-until 0.6
longer=("${frames[@]}" --model "$wan" --steps 20)
goes_on ranks KILL on_two "${longer[@]}"
goes_on ranks-int INT on_two "${longer[@]}" --sampler dpmpp
goes_on cached-ranks KILL on_two "${longer[@]}" --cache attention:3 --parallel cfg=2
# one rank cannot keep its caches: it says so, the other hears of it, and the video is made
mkdir able unable && touch unable/out
absolute=$(realpath "$wan")
(cd able && timeout 300 mpirun -n 1 "$WEFT" generate "${frames[@]}" --model "$absolute" --steps 4 --cache attention:3 --parallel cfg=2 --out out/v.mp4 : \
    -n 1 -wdir ../unable "$WEFT" generate "${frames[@]}" --model "$absolute" --steps 4 --cache attention:3 --parallel cfg=2 --out out/v.mp4) >unable.log 2>&1 &&
    [ "$(ls able/out)" = v.mp4 ] && grep -q 'out is a file, and a folder is wanted there.*the walk goes on' unable.log && grep -q 'another rank could not keep the walk; the walk goes on' unable.log ||
    { cat unable.log; fail "a rank that cannot keep its caches"; }
stopped INT cached-one generate "${long[@]}" --cache attention:2
rm cached-one.walk.cache-*
"$WEFT" generate "${long[@]}" --cache attention:2 --resume --out cached-one.mp4 >refused.log 2>&1 && fail "a walk without its caches was taken"
grep -q 'cached-one.walk.cache-0-of-1-[0-9]*.safetensors: there is no such file: .* remove cached-one.walk.safetensors' refused.log || { cat refused.log; fail "caches that are gone"; }
grep -q 'stopped after step [1-9][0-9]* of 20 of prompt 1.*--resume' unipc.stop || { cat unipc.stop; fail "how to go on is not said"; }

# pictures on the way: nothing else changes
generate "${long[@]}" --preview 7 --raw --out seen.mp4 >seen.log 2>&1 || { cat seen.log; fail "--preview"; }
generate "${long[@]}" --preview 999 --out refused.mp4 >refused.log 2>&1 && fail "a preview behind step 999"
grep -q -e "--preview 999: none of [0-9]* steps would be shown" refused.log || { cat refused.log; fail "--preview of more than the steps"; }
mkdir blind.preview.png # cannot be written
generate "${long[@]}" --preview 7 --raw --out blind.mp4 >blind.log 2>&1 && cmp blind.npy unipc.npy && [ "$(grep -c "goes on without --preview" blind.log)" = 1 ] ||
    { cat blind.log; fail "a picture of --preview that cannot be written"; }
cmp seen.npy unipc.npy && [ "$(head -c 8 seen.preview.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || { cat seen.log; fail "--preview"; }
grep -q 'predicted from the first two steps' seen.log || { cat seen.log; fail "no seconds are predicted"; }

# of other settings, prompts, models: named, and the walk stays
stopped INT other generate "${long[@]}" --seed 3
other() { # PATTERN OPTIONS...
    local pattern=$1
    shift
    "$WEFT" generate "$@" --resume --out other.mp4 >other.log 2>&1 && fail "$* was taken"
    grep -qE -e "$pattern" other.log || { cat other.log; fail "no '$pattern'"; }
    [ -e other.walk.safetensors ] || fail "$*: the walk is gone"
}
other 'other.walk.safetensors: it was made with seed 3, and this command says 4' "${long[@]}" --seed 4
other 'made with guidance 4.0, and this command says 5.0' "${long[@]}" --seed 3 --guidance 5
other 'made with sampler "unipc", and this command says "euler"' "${long[@]}" --seed 3 --sampler euler
cp -r "$wan" model
chmod -R u+w model
python3 - <<'PY'
import glob
for part in ("transformer", "vae"):
    path = glob.glob("model/%s/*.safetensors" % part)[0]
    data = bytearray(open(path, "rb").read())
    data[-4:] = bytes(4)
    open(path + "." + part, "wb").write(data)
PY
for part in transformer vae; do # another one of either
    cp -r model "model-$part"
    mv model-$part/$part/*.safetensors.$part "$(ls model-$part/$part/*.safetensors)"
    rm -f model-*/*/*.safetensors.*
done
rm -f model/*/*.safetensors.*
other 'made with another model than this model folder has' "${frames[@]}" --steps 20 --seed 3 --model model-transformer
generate "${frames[@]}" --model "$wan" --steps 3 --keep-latents --raw --out kept.mp4 >kept.log 2>&1 || { cat kept.log; fail "--keep-latents"; }
decode() { "$WEFT" generate --decode kept.latents.safetensors "$@"; }
decode --model "$wan" --raw --out decoded.mp4 --sheet decoded.png >decoded.log 2>&1 && cmp decoded.npy kept.npy && [ -s decoded.png ] ||
    { cat decoded.log; fail "--decode"; }
grep -q 'did not come to an end' decoded.log && { cat decoded.log; fail "a decoding that came to its end is told as one that did not"; }
"$WEFT" generate "${frames[@]}" --model "$wan" --steps 4 --resume --out kept.mp4 >refused.log 2>&1 && fail "latents of 3 steps for a video of 4"
grep -q 'kept.latents.safetensors: it was made with steps 3, and this command says 4' refused.log || { cat refused.log; fail "latents of other steps"; }
decode --model model-vae --out refused.mp4 >refused.log 2>&1 && fail "another VAE"
grep -q 'kept.latents.safetensors: made for another VAE (.*) than the one in model-vae/vae' refused.log || { cat refused.log; fail "another VAE is not named"; }
"$WEFT" generate --decode seen.mp4 --model "$wan" --out refused.mp4 >refused.log 2>&1 && fail "a video was decoded"
grep -q "seen.mp4.*; kept latents are in .latents.safetensors" refused.log || { cat refused.log; fail "not told: what is decoded"; }
"$WEFT" generate --decode other.walk.safetensors --model "$wan" --out refused.mp4 >refused.log 2>&1 && fail "a walk was decoded"
grep -q 'a walk after step [0-9]* of 20, not yet denoised' refused.log || { cat refused.log; fail "a walk"; }
head -c -40 kept.latents.safetensors >cut.safetensors
"$WEFT" generate --decode cut.safetensors --model "$wan" --out refused.mp4 >refused.log 2>&1 && fail "a cut file was decoded"
"$WEFT" generate --decode "$wan/vae/diffusion_pytorch_model.safetensors" --model "$wan" --out refused.mp4 >refused.log 2>&1 && fail "weights were decoded"
grep -q 'no kept latents: weft generate leaves them' refused.log || { cat refused.log; fail "no kept latents"; }
decode --model "$wan" --tile 16x16+16 --out refused.mp4 >refused.log 2>&1 && fail "tiles that are all overlap"
[ ! -e refused.mp4 ] || fail "something came of what was refused"

# decoding that was killed is tried in less memory: the file says what it took. 256 x 256 whole takes more than tiles
big=(--model "$wan" --height 256 --width 256 --frames 5 --steps 1 --prompt x --tile off)
generate "${big[@]}" --keep-latents --out big.mp4 >big.log 2>&1 || { cat big.log; fail "a large picture"; }
rm big.mp4
"$WEFT" generate --model "$wan" --decode big.latents.safetensors --tile off --memory 1KiB --out refused.mp4 >refused.log 2>&1 && fail "1 KiB"
tried=$(python3 - <<'PY'
import json, re, struct
number, unit = re.search("would take ([0-9.]+) ([KM]iB)", open("refused.log").read()).groups()
tried = int(float(number) * 0.98 * {"KiB": 1 << 10, "MiB": 1 << 20}[unit])
data = open("big.latents.safetensors", "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:end])
kept = json.loads(head["__metadata__"]["weft.kept"])
assert kept["tried"] == 0, kept # the decoding above came to its end
kept["tried"] = tried
head["__metadata__"]["weft.kept"] = json.dumps(kept)
text = json.dumps(head).encode()
text += b" " * (-len(text) % 64)
open("big.latents.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[end:])
print(tried)
PY
)
generate "${big[@]:0:12}" --resume --memory $((tried * 3 / 2 / 1024))KiB --out big.mp4 >big.log 2>&1 || { cat big.log; fail "decoding in less"; }
grep -q 'did not come to an end; once more in less' big.log && grep -qE 'is decoded in [0-9]+ tiles of' big.log && [ -s big.mp4 ] || { cat big.log; fail "no smaller tiles"; }

# a video that is finished stays; of another seed it is made
one=(--prompt "a red cat" --model "$wan" "${size[@]}" --frames 9 --steps 2 --negative "a dog")
generate "${one[@]}" --out one.mp4 >one.log 2>&1 || { cat one.log; fail "one video"; }
cp one.mp4 first.mp4
generate "${one[@]}" --resume --out one.mp4 >one.log 2>&1 || { cat one.log; fail "--resume of a finished video"; }
grep -q 'one.mp4: is there already, of this prompt' one.log && ! grep -q 'denoising step' one.log && cmp one.mp4 first.mp4 || { cat one.log; fail "a finished video is made again"; }
generate "${one[@]}" --seed 1 --resume --out one.mp4 >one.log 2>&1 && ! cmp -s one.mp4 first.mp4 || { cat one.log; fail "another seed is not made"; }
decode --model "$wan" --steps 3 --out refused.mp4 >refused.log 2>&1 && fail "--steps beside --decode"
grep -q -e '--steps: does nothing beside --decode' refused.log || { cat refused.log; fail "--steps beside --decode"; }

# a list: what is there stays, what is not is made
cat >list.jsonl <<'LIST'
{"prompt": "a dog", "seed": 7}
# a comment
{"prompt": "a cat", "frames": 5, "out": "cats/x.mp4", "negative": "ugly"}
{"prompt": "a rat", "steps": 3}
{"prompt": "a hat", "guidance": 1}
{"prompt": "a bat"}
LIST
list=(--model "$wan" "${size[@]}" --frames 9 --steps 4 --prompts list.jsonl --latents)
generate "${list[@]}" --out list >list.log 2>&1 || { cat list.log; fail "a list"; }
[ "$(find list -name '*.mp4' | sort | tr '\n' ' ')" = "list/0000.mp4 list/0002.mp4 list/0003.mp4 list/0004.mp4 list/cats/x.mp4 " ] || { find list; fail "names"; }
cp -r list before
rm list/0002.mp4
head -c -20 before/prompts.jsonl >list/prompts.jsonl # killed while the last line was written
generate "${list[@]}" --resume --out list >list.log 2>&1 || { cat list.log; fail "a list with --resume"; }
grep -q 'list: 3 of 5 videos are there' list.log || { cat list.log; fail "not 3 of 5"; }
# killed behind a video's line, it has left what was kept of the video; a walk is of a batch, and needed till all of it is there
left=(0000.latents.safetensors cats/x.window0000.latents.safetensors 0003.walk.cache-0-of-1-2.safetensors 0003.walk.safetensors)
touch "${left[@]/#/list/}"
generate "${list[@]}" --resume --out list >list.log 2>&1 && [ -z "$(find list -name '*.safetensors')" ] || { cat list.log; find list; fail "what was left behind a line stays"; }
printf 'one\ntwo\n' >two.txt
two=(--model "$wan" "${size[@]}" --frames 9 --steps 2 --prompts two.txt --batch 2)
generate "${two[@]}" --out two >two.log 2>&1 || { cat two.log; fail "a batch of two"; }
rm two/0001.mp4
touch two/0000.walk.safetensors
generate "${two[@]}" --resume --out two >two.log 2>&1 && [ -s two/0001.mp4 ] && grep -q 'two/0000.walk.safetensors.*made again' two.log ||
    { cat two.log; fail "the walk of a batch went before all of its videos were there"; }
on_two "${list[@]}" --out ranks >ranks.log 2>&1 || { cat ranks.log; fail "a list on two ranks"; }
grep -q '2 ranks make videos each for itself' ranks.log || { cat ranks.log; fail "ranks share"; }
python3 - <<'PY' || fail "lines of prompts.jsonl"
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
for f in 0000 0002 0003 0004 cats/x; do # each rank for itself: one rank's bits
    cmp before/$f.latents.npy list/$f.latents.npy && cmp before/$f.latents.npy ranks/$f.latents.npy || fail "latents of $f"
done
bad() { # PATTERN LINE
    printf '%s\n' '{"prompt": "good"}' "$2" >bad.jsonl
    "$WEFT" generate --model "$wan" "${size[@]}" --frames 9 --steps 1 --prompts bad.jsonl --out bad >bad.log 2>&1 && fail "$2 was taken"
    grep -qE -e "$1" bad.log && [ ! -e bad ] || { cat bad.log; fail "$2"; }
}
bad 'bad.jsonl:2: there is no key "sead"; did you mean "seed"' '{"prompt": "x", "sead": 3}'
bad 'bad.jsonl:2: .*"prompt"' '{"seed": 3}'
bad 'bad.jsonl:2:[0-9]+: not valid JSON' '{"prompt": "x", '
bad 'bad.jsonl:2: "frames": 0; from 1' '{"prompt": "x", "frames": 0}'
bad 'bad.jsonl:2: "guidance": -1; from 0' '{"prompt": "x", "guidance": -1}'
bad 'bad.jsonl:2: "out": x.avi: a video is written as .mp4' '{"prompt": "x", "out": "x.avi"}'
bad 'bad.jsonl:2: "out": \.\./x.mp4: give a name below' '{"prompt": "x", "out": "../x.mp4"}'
bad 'bad.jsonl:2: not an object' '["x"]'
bad 'bad.jsonl:2: --frames 6: this model makes 1 \+ 4 n; the nearest is' '{"prompt": "x", "frames": 6}' # before the first is made
bad 'bad.jsonl:2: --width 40: this model makes multiples of 16' '{"prompt": "x", "width": 40}'
bad 'bad.jsonl:2: the video would be written to 0000.mp4, and so would that of bad.jsonl:1' '{"prompt": "x", "out": "./0000.mp4"}'
printf 'one\n \t\n\ntwo\n' >blank.txt # a line of blanks is no prompt; ranks of a config's layout work on each video
printf 'parallel: {tp: 2}\n' >tp.yaml
on_two --model "$wan" "${size[@]}" --frames 5 --steps 1 --prompts blank.txt --config tp.yaml --out blank >blank.log 2>&1 || { cat blank.log; fail "a list with --config"; }
grep -q '2 ranks: tp=2' blank.log && [ "$(ls blank/*.mp4 | tr '\n' ' ')" = "blank/0000.mp4 blank/0001.mp4 " ] || { cat blank.log; fail "a list with --config"; }
generate --model "$wan" "${size[@]}" --frames 9 --window 4 --prompt x --out refused.mp4 >refused.log 2>&1 && fail "--window 4"
grep -q 'the nearest is 5' refused.log || { cat refused.log; fail "--window 4: another is named that is refused, too"; }
"$WEFT" generate "${list[@]}" --seed 9 --resume --out list >list.log 2>&1 && fail "another seed"
grep -q 'list/cats/x.mp4: it was made with seed 1, and this command says 10' list.log || { cat list.log; fail "another seed is not named"; }
exit 0
