#!/bin/bash
# The feature cache with complete sampling trajectories of many model families, in the folders of
# diffusers (tests/golden/pipelines), and `weft eval savings`. If every step refreshes, the latents
# are bitwise those without a cache. Layouts give the latents of one rank. A model that cannot be
# cached is refused with the remedy.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
golden=$SRC/tests/golden/pipelines
make() { # OUT FOLDER OPTIONS...
    local out=$1 folder=$golden/$2
    shift 2
    mapfile -t options < <(python3 -S - "$folder/asked.json" <<'PY'
import json, os, sys
case, folder = json.load(open(sys.argv[1])), os.path.dirname(sys.argv[1])
for option, value in case["options"].items():
    print(option, value, sep="\n")
for option, files in case.get("files", {}).items():
    for file in files:
        print(option, f"{folder}/{file}", sep="\n")
PY
    )
    local run=()
    [ "${ranks:-1}" = 1 ] || run=("$MPIRUN" --oversubscribe -n "$ranks")
    "${run[@]}" "$WEFT" generate --model "$folder" --latents-npy --out "$out.mp4" "${options[@]}" "$@" >"$out.log" 2>&1
}
# reused LOG: prints which steps refreshed (R) and which reused (.)
reused() { message_field message "$1" job-report "text~=cache " | grep -o "[R.][R.][R.]*"; }
a_cache_that_always_refreshes_is_exact() { # NAME
    local name=$1
    make off-$name $name || { cat off-$name.log; fail "$name"; }
    make all $name --feature-cache every:1,front=0 || { cat all.log; fail "$name, every:1"; }
    cmp -s off-$name.latents.npy all.latents.npy || fail "$name: other latents although every step refreshes"
}
for name in wan22 wan_ti2v hunyuan flux ltx_i2v mochi cog15 cosmos2; do check "a_cache_that_always_refreshes_is_exact_$name" a_cache_that_always_refreshes_is_exact "$name"; done
a_cache_skips_steps() { # NAME
    local name=$1
    needs "a_cache_that_always_refreshes_is_exact_$name"
    make half $name --feature-cache every:2,front=0,warm=0,last=0 || { cat half.log; fail "$name, every:2"; }
    cmp -s off-$name.latents.npy half.latents.npy && fail "$name: the cache has no effect"
    has_message half.log job-report text~=R.R || fail "$name: no step reused the cache"
}
for name in wan22 ltx_i2v cosmos2; do check "a_cache_skips_steps_$name" a_cache_skips_steps $name; done
two_experts_have_two_caches() {
    make two wan22 --feature-cache attention:2,warm=0 && [ "$(count_messages two.log job-report "text~=cache attention:2")" = 2 ] && has_message two.log job-report text~=transformer_2 ||
        { cat two.log; fail "two experts do not have a cache each"; }
}
check two_experts_have_two_caches
every_rule_runs() { # NAME
    local name=$1 rule
    needs "a_cache_that_always_refreshes_is_exact_$name"
    for rule in block:0 fast; do
        make rule $name --feature-cache $rule || { cat rule.log; fail "$name, $rule"; }
        [ $rule != block:0 ] || cmp -s off-$name.latents.npy rule.latents.npy || fail "$name: block:0 gives other latents"
    done
}
for name in hunyuan flux mochi; do check "every_rule_runs_$name" every_rule_runs $name; done
measured_rules_run() { # NAME THRESHOLD
    make fast "$1" --feature-cache fast || { cat fast.log; fail "$1, fast"; }
    has_message fast.log job-report "text~=cache block:$2," || { cat fast.log; fail "$1: another threshold than $2"; }
}
check measured_rules_run_longcat measured_rules_run longcat 0.2
check measured_rules_run_sana measured_rules_run sana 0.16
check measured_rules_run_wan_animate measured_rules_run wan_animate 0.2
check measured_rules_run_wan_vace measured_rules_run wan_vace 0.04
check measured_rules_run_cosmos25_transfer measured_rules_run cosmos25_transfer 0.09
check measured_rules_run_motif measured_rules_run motif 0.08
check measured_rules_run_hunyuan15 measured_rules_run hunyuan15 0.2
check measured_rules_run_qwen_image measured_rules_run qwen_image 0.2
check measured_rules_run_flux2 measured_rules_run flux2 0.2
check measured_rules_run_chroma measured_rules_run chroma 0.2
check measured_rules_run_z_image measured_rules_run z_image 0.04
# Blocks add to the main stream only after blocks with a stream of their own: control blocks of Wan
# VACE, the encoder of Motif-Video. With experts, blocks also sum their load (HiDream-I1).
first_block_has_a_stream_of_its_own() { # NAME
    make off "$1" || { cat off.log; fail "$1"; }
    make same "$1" --feature-cache block:0,warm=0,last=0 || { cat same.log; fail "$1, block:0"; }
    cmp -s off.latents.npy same.latents.npy || fail "$1: block:0 gives other latents"
    make half "$1" --feature-cache block:10,warm=0,last=0 || { cat half.log; fail "$1, block:10"; }
    reused half.log | grep -q "[.]" || { cat half.log; fail "$1: no step reuses"; }
}
for name in wan_vace motif hidream; do check "first_block_has_a_stream_of_its_own_$name" first_block_has_a_stream_of_its_own $name; done
one_block_cannot_be_cached() {
    make one wan22 --feature-cache fast && fail "a cache after the first block is accepted for a model of one block"
    has_message one.log '*' level=error "text~=1 block" || fail "the error does not name the number of blocks"
}
check one_block_cannot_be_cached
an_empty_interval_is_refused() {
    make late wan22 --guidance-start 0.5 --guidance-end 0.2 && fail "an empty guidance interval is accepted"
    has_message late.log option-invalid key=--guidance-start || fail "the error does not name --guidance-start"
}
check an_empty_interval_is_refused

# several FOLDER RULE OPTIONS...: two ranks give the latents of one, reuse in the same steps, and
# reuse at least once
several() {
    local name=$1 rule=$2
    shift 2
    ranks=2 make two $name --feature-cache $rule "$@" || { cat two.log; fail "$name on two ranks: --feature-cache $rule $*"; }
    reused two.log | grep -q "[.]" || { cat two.log; fail "$name on two ranks, --feature-cache $rule $*: no step reuses"; }
    diff <(reused one.log) <(reused two.log) || fail "$name, --feature-cache $rule $*: other steps reuse than on one rank"
    python3 -S - <<'PY' || fail "$name, --feature-cache $rule $*: two ranks give other latents than one"
import array, struct
def load(name):
    data = open(name + ".latents.npy", "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
one, two = load("one"), load("two")
error = sum((x - y) ** 2 for x, y in zip(one, two)) ** 0.5 / sum(x * x for x in one) ** 0.5
print(error)
assert len(one) == len(two) and error <= 1e-5, error
PY
}
latte_on_ranks() { # RULE
    local rule=$1
    make one latte --feature-cache $rule || { cat one.log; fail "latte: --feature-cache $rule"; }
    several latte $rule --parallel cp=2 --comm-overlap off
    several latte $rule --parallel cp=2
    several latte $rule --parallel tp=2
}
for rule in every:2,warm=0 block:0.7,warm=0 attention:2,warm=0; do check "latte_on_ranks_$rule" latte_on_ranks $rule; done
hunyuan_on_ranks() { # RULE
    local rule=$1
    make one hunyuan --feature-cache $rule || { cat one.log; fail "hunyuan: --feature-cache $rule"; }
    several hunyuan $rule --parallel tp=2
    several hunyuan $rule --parallel tp=2 --parallel sequence_parallel=true
    several hunyuan $rule --parallel cp=2 --parallel context=ring
}
for rule in every:2,warm=0 block:0.9,warm=0; do check "hunyuan_on_ranks_$rule" hunyuan_on_ranks $rule; done
hidream_on_ranks() {
    make one hidream --feature-cache block:10,warm=0 || { cat one.log; fail "hidream: --feature-cache block:10"; }
    several hidream block:10,warm=0 --parallel tp=2
    several hidream block:10,warm=0 --parallel cp=2
}
check hidream_on_ranks

# weft eval savings reports speed and similarity, as a table and as JSON
eval_cache_measures_gain_and_loss() {
    printf 'a red cat\n# no prompt\na blue dog\n' >prompts.txt
    "$WEFT" eval savings --model "$golden/flux" --prompts prompts.txt --frames 1 --height 64 --width 96 --steps 6 --setting feature-cache=block:0 \
        --setting "feature-cache=every:2,warm=0" --setting "sampler=unipc steps=3" --setting precision=bf16 \
        --setting weights=int8 --json table.json >table.log 2>&1 || { cat table.log; fail "weft eval savings"; }
    [ "$(count_messages table.log job-report key=warm-up)" = 1 ] || { cat table.log; fail "the first timing has the start-up"; }
    python3 -S - <<'PY' || { cat table.log; fail "the results of weft eval savings"; }
import json
t = json.load(open("table.json"))
same, half, fewer, bf16, int8 = t["each"]
assert same["psnr"] is None and same["psnr_least"] is None and same["identical"] == 2 and same["ssim"] == 1 and same["reused"] == 0, same
assert half["identical"] == 0 and half["psnr"] < 100 and abs(half["reused"] - 1 / 3) < 0.01 and half["predicted"] > 1, half
assert fewer["psnr"] < 100 and "reused" not in fewer, fewer
for narrow in bf16, int8:  # 53 and 51 dB
    assert 45 < narrow["psnr"] < 60, narrow
PY
    "$WEFT" eval savings --model "$golden/flux" --prompts prompts.txt --frames 1 --height 64 --width 96 --setting "feature-cache=fast faster=1" >bad.log 2>&1 && fail "the unknown key faster is accepted"
    has_message bad.log '*' level=error text~=faster || fail "an unknown key is not named"
}
check eval_cache_measures_gain_and_loss
finish
