#!/bin/bash
# The same seed gives the same video: bitwise on one rank, alone or in a list, and within 1e-5 on
# several ranks with every layout, because the order of summation differs. Also VAE tiles, which are
# chosen when memory is short, and temporal tiles.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
generate() { # generate RANKS OUT OPTIONS...
    local n=$1 out=$2
    shift 2
    ranks "$n" "$WEFT" generate --model runs/dit/model --seed 7 --steps 6 --frames-npy --out "$out" "$@" >generate.log 2>&1 || { cat generate.log; fail "generate on $n ranks"; }
}
prompts=(--prompt "a red circle moving left" --prompt "a blue square moving up" --prompt "")
generate 1 one "${prompts[@]}" --sheet one.png
the_peak_is_predicted() { has_message generate.log job-report 'videos=?*' 'value=?*' || fail "the predicted peak is not reported"; }
check the_peak_is_predicted
generate 1 again "${prompts[@]}"
generate 1 alone.mp4 --prompt "a red circle moving left"
generate 2 two "${prompts[@]}"
generate 2 tp "${prompts[@]}" --parallel tp=2
generate 2 fsdp "${prompts[@]}" --parallel fsdp=2
generate 2 halves "${prompts[@]}" --parallel cfg=2
generate 4 both "${prompts[@]}" --batch-size 2 --parallel cfg=2 --parallel tp=2
generate 2 ring "${prompts[@]}" --parallel cp=2 --parallel context=ring
generate 4 mixed "${prompts[@]}" --batch-size 3 --parallel tp=2 --parallel sequence_parallel=true # and dp=2
refused() { # ID [FIELD=VALUE...] -- RANKS OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    local n=$1
    shift
    ranks "$n" "$WEFT" generate --model runs/dit/model --prompt x --out no "$@" >generate.log 2>&1 && fail "$*: not refused"
    has_message generate.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    ranks 2 "$WEFT" generate --model runs/dit/model --prompt x --out no --parallel tp=3 >generate.log 2>&1 && fail "tp=3 on 2 ranks"
    has_message generate.log layout-invalid text~=3 text~=2 || fail "the error does not name both rank counts"
    refused layout-invalid key=*pp text~=fsdp=2 -- 2 --parallel pp=2
    refused config-value 'text~=--parallel cp=x: cp:' -- 2 --parallel cp=x # the error names the option
    refused config-value 'text~=--comm-overlap 4:' -- 2 --comm-overlap 4,4,1,3 --parallel cp=2
    refused layout-invalid key=*cfg 'text~=this guidance has 1 part' -- 2 --parallel cfg=2 --guidance-scale 1
    refused layout-invalid key=*cfg 'text~=start 4 ranks' -- 2 --parallel cfg=2 --parallel tp=2
}
check refusals
the_same_command_is_bitwise_identical() {
    for i in 0 1 2; do
        cmp "one/000$i.npy" "again/000$i.npy" || fail "the same command gave other frames"
        cmp "one/000$i.mp4" "again/000$i.mp4" || fail "the same command gave another file"
    done
}
check the_same_command_is_bitwise_identical
a_video_does_not_depend_on_others() {
    cmp one/0000.npy alone.npy || fail "a video depends on the other videos of the list"
    [ -s one.png ] || fail "the contact sheet was not written"
    [ "$(ffprobe -v error -show_entries format_tags=seed -of csv=p=0 one/0001.mp4)" = 8 ] || fail "no seed in the metadata"
}
check a_video_does_not_depend_on_others
every_layout_is_within_rounding() {
    python3 -S - <<'PY' || fail "one rank and several differ"
import array, struct
def load(path):
    data = open(path, "rb").read()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    assert b"'<f4'" in data[:head] and b"(5, 32, 32, 3" in data[:head], data[:head]
    return array.array("f", data[head:])
for i in range(3):
    a = load(f"one/000{i}.npy")
    assert len(a) == 5 * 32 * 32 * 3
    for many in "two", "tp", "fsdp", "halves", "both", "ring", "mixed":
        b = load(f"{many}/000{i}.npy")
        error = sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(x * x for x in a) ** 0.5
        print(many, i, error)
        assert error <= 1e-5, error
PY
}
check every_layout_is_within_rounding

# VAE tiles: two ranks give the frames of one. Tiles are chosen when memory is short; invalid sizes
# are refused before the first step.
large=(--prompt "a red circle moving left" --height 128 --width 128)
generate 1 whole.mp4 "${large[@]}"
peak() { message_field value generate.log job-report 'videos=?*' 'value=?*'; } # prints bytes
whole=$(peak)
generate 1 tiled.mp4 "${large[@]}" --vae-tile 64x64+16
tiles_are_reported() {
    has_message generate.log job-report 'tiles=9 tiles of 64x64' || fail "the tiles are not reported"
}
check tiles_are_reported
tiled=$(peak)
generate 2 tiled2.mp4 "${large[@]}" --vae-tile 64x64+16
tiles_are_within_rounding_and_save_memory() {
    python3 -S - "$whole" "$tiled" <<'PY' || fail "frames of tiles differ between ranks, or the predicted peak is not smaller"
import array, struct, sys
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
def error(a, b): return sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(x * x for x in a) ** 0.5
one, two, whole = load("tiled.npy"), load("tiled2.npy"), load("whole.npy")
print(error(one, two), error(one, whole), sys.argv)
assert len(one) == len(whole) and error(one, two) <= 1e-5 and 0 < error(one, whole) < 0.5
assert int(sys.argv[2]) < 0.6 * int(sys.argv[1])
PY
}
check tiles_are_within_rounding_and_save_memory
tiles_are_chosen_when_memory_is_short() {
    generate 1 short.mp4 "${large[@]}" --memory-limit $((tiled + 20000))
    has_message generate.log job-report 'tiles=9 tiles of 64x64' || fail "no tiles are chosen although memory is short"
}
check tiles_are_chosen_when_memory_is_short
refusals_of_memory_and_tiles() {
    refused '*' 'text~=in the smallest,' -- 1 --height 128 --width 128 --memory-limit 2MiB
    [ "$(count_messages generate.log job-report)" != 0 ] && fail "the work began although memory is short"
    refused memory-needed file=runs/dit/model 'text~=100.00 KiB' -- 1 --memory-limit 100KiB
    refused option-invalid key=--vae-tile text~=64 'text~=auto, on, off' -- 1 --vae-tile 64
    refused '*' 'text~=multiples of 8' -- 1 --height 128 --width 128 --vae-tile 64x64+20
}
check refusals_of_memory_and_tiles
# The VAE of HunyuanVideo decodes 17 frames in two temporal tiles. Temporal tiles alone run on the
# first rank; with spatial tiles, all ranks participate.
hunyuan() { # RANKS OUT OPTIONS...
    local n=$1 out=$2
    shift 2
    ranks "$n" "$WEFT" generate --model "$SRC/tests/golden/pipelines/hunyuan" --prompt x --height 32 --width 32 --frames 17 --steps 1 \
        --frames-npy --out "$out" "$@" >generate.log 2>&1 || { cat generate.log; fail "temporal tiles on $n ranks: $*"; }
}
temporal_tiles() {
    hunyuan 1 time.mp4
    hunyuan 2 time2.mp4 --parallel tp=2
    hunyuan 1 both.mp4 --vae-tile 24x24+8
    hunyuan 2 both2.mp4 --vae-tile 24x24+8 --parallel tp=2
    python3 -S - <<'PY' || fail "temporal tiles on two ranks differ from one rank"
import array, struct
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
for name in "time", "both":
    a, b = load(name + ".npy"), load(name + "2.npy")
    error = sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(x * x for x in a) ** 0.5
    print(name, error)
    assert len(a) == len(b) == 17 * 32 * 32 * 3 and error <= 1e-5
PY
}
check temporal_tiles
finish
