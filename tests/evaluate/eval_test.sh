#!/bin/bash
# weft eval and weft report with models trained for seconds, on one rank and on several. `weft
# generate` refuses damaged weights.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }

"$WEFT" eval vae --model runs/vae/model/vae --shards shards --split "" --frames 5 --height 32 --width 32 --limit 6 --sheet vae.png --json vae.json >vae.txt 2>eval.log ||
    fail_with eval.log "weft eval vae"
# Clips are split over ranks: results, contact sheet and the counted clips are those of one rank.
ranks_have_the_results_of_one() { # N
    local n=$1
    ranks $n "$WEFT" eval vae --model runs/vae/model/vae --shards shards --split "" --frames 5 --height 32 --width 32 --limit 6 --sheet vae$n.png --json vae$n.json \
        --parallel dp=$n >vae$n.txt 2>eval$n.log || fail_with eval$n.log "weft eval vae on $n ranks"
    diff vae.txt vae$n.txt || fail "$n ranks: other lines of results than one rank"
    cmp vae.json vae$n.json && cmp vae.png vae$n.png || fail "$n ranks: results or contact sheet differ from one rank"
}
for n in 2 4; do check "ranks_have_the_results_of_one_$n" ranks_have_the_results_of_one "$n"; done
tp_of_an_autoencoder_is_refused() {
    ranks 2 "$WEFT" eval vae --model runs/vae/model/vae --shards shards --split "" --frames 5 --height 32 --width 32 --parallel tp=2 >eval.log 2>&1 && fail "tp is accepted for an autoencoder"
    has_message eval.log layout-invalid key=tp text~=dp=2 || fail "the error does not name dp=2"
}
check tp_of_an_autoencoder_is_refused
a_missing_autoencoder_is_named() {
    "$WEFT" eval vae --model nothere --shards shards --frames 5 --height 32 --width 32 >eval.log 2>&1 && fail "a missing model is accepted"
    has_message eval.log file-not-found file=nothere 'text~=Give the folder of a model' || fail "the error of a missing model has no remedy"
}
check a_missing_autoencoder_is_named
links_of_a_shard_are_reported() {
    mkdir links
    cp shards/train-000000.tar links
    ln -s s0000.mp4 links/z.mp4
    tar -C links -rf links/train-000000.tar z.mp4
    "$WEFT" eval vae --model runs/vae/model/vae --shards links --split train --frames 5 --height 32 --width 32 --limit 1 >eval.log 2>&1 || fail_with eval.log "a shard with a link"
    has_message eval.log shard-partly-used level=warning file=links/train-000000.tar value=z.mp4 'text~=1 link in' text~=--dereference || { cat eval.log; fail "the link is not reported"; }
}
check links_of_a_shard_are_reported
"$WEFT" eval prompts --model runs/dit/model --heldout raw/heldout.json --seeds 1 --training-combinations 2 --steps 2 --out evaluated --json prompts.json >prompts.txt 2>prompts.log ||
    fail_with prompts.log "weft eval prompts"
ranks 2 "$WEFT" eval prompts --model runs/dit/model --heldout raw/heldout.json --seeds 1 --training-combinations 2 --steps 2 --out two --json two.json --parallel cfg=2 \
    >two.txt 2>two.log || fail_with two.log "weft eval prompts on two ranks"
ranks_make_the_same_videos() {
    diff prompts.txt two.txt || fail "two ranks: other lines of results than one rank"
    diff <(ls evaluated) <(ls two) || fail "two ranks: other videos than one rank"
}
check ranks_make_the_same_videos
images_have_no_direction() {
    cp -r runs/dit/model pictures
    sed -i 's/"frames": [0-9]*/"frames": 1/' pictures/weft.json
    "$WEFT" eval prompts --model pictures --heldout raw/heldout.json --seeds 1 --training-combinations 2 --steps 2 --out stills --json stills.json >stills.txt 2>stills.log ||
        fail_with stills.log "weft eval prompts of images"
    python3 -S -c '
import json
stills = json.load(open("stills.json"))
assert stills["held_out"]["direction"] is None and stills["held_out"]["colour"] is not None, stills' || fail "images have a direction"
}
check images_have_no_direction
a_config_is_not_a_model() {
    "$WEFT" inspect model dit.yaml >inspect.log 2>&1 && fail "a config of weft train is accepted as a model"
    has_message inspect.log '*' level=error "text~=weft inspect graph dit.yaml" || fail "the error does not name weft inspect graph"
}
check a_config_is_not_a_model
ranks_measure_the_same() {
    cmp prompts.json two.json || fail "two ranks measure other values in the videos"
}
check ranks_measure_the_same
echo '{"step": "train", "seconds": 3}' >times.jsonl
"$WEFT" report --out page.html --run "VAE=runs/vae" --run "DiT=runs/dit" --vae-eval vae.json --prompt-eval prompts.json --videos evaluated \
    --picture "Reconstructions=vae.png" --step-times times.jsonl >report.log 2>&1 || { cat report.log; fail "weft report"; }
a_damaged_log_is_named() {
    mkdir -p torn && head -n 2 runs/dit/metrics.jsonl >torn/metrics.jsonl && echo '{"step": 3, "lo' >>torn/metrics.jsonl
    if "$WEFT" report --out torn.html --run torn=torn >torn.log 2>&1; then fail "a damaged metrics.jsonl is accepted"; fi
    has_message torn.log '*' level=error file=torn/metrics.jsonl line=3 && [ ! -e torn.html ] || { cat torn.log; fail "the damaged line is not named"; }
}
check a_damaged_log_is_named
results_and_page_are_right() {
    python3 -S - <<'PY' || fail "the results of weft eval, or the report page"
import html.parser, json, re, struct
vae = json.load(open("vae.json"))
assert vae["clips"] == 6 == len(vae["each"]) and vae["skipped"] == 0, vae
for name in ("psnr", "ssim"):
    assert abs(sum(c[name] for c in vae["each"]) / 6 - vae[name]) < 1e-6, name
assert 3 < vae["psnr"] < 60 and -1 <= vae["ssim"] <= 1 and 10 < vae["box_psnr"] < 60, vae
prompts = json.load(open("prompts.json"))
held = [r for r in prompts["each"] if r["held_out"]]
assert len(held) == prompts["held_out"]["prompts"] > 0 and prompts["seen"]["prompts"] == 2
for what in ("colour", "shape", "direction"):
    assert abs(sum(r[what] for r in held) / len(held) - prompts["held_out"][what]) < 1e-9, what
assert struct.unpack(">4s", open("vae.png", "rb").read()[1:5])[0].startswith(b"PNG")
page = open("page.html").read()
html.parser.HTMLParser().feed(page)
assert "<svg" in page and "data:image/png;base64," in page and "data:video/mp4;base64," in page
assert not re.search(r'(src|href)="(?!data:|#)', page), "the page loads external files"
PY
}
check results_and_page_are_right

# refuse ID [FIELD=VALUE...] --: weft generate refuses the model in ./broken with this message
refuse() {
    take_message "$@"
    "$WEFT" generate --model broken --prompt x --steps 1 --out never.mp4 >out.log 2>&1
    local status=$?
    [ $status = 1 ] && has_message out.log "${wanted[@]}" && [ ! -e never.mp4 ] || fail "status $status, expected 1, or another message than expected, or a video was written"
}
edit() { # PYTHON: runs it on the tensors {name: (dtype, shape, bytes)} of the transformer in a new copy
    rm -rf broken
    cp -r runs/dit/model broken
    python3 -S - "$1" <<'PY'
import json, struct, sys
path = "broken/transformer/diffusion_pytorch_model.safetensors"
data = open(path, "rb").read()
n = struct.unpack("<Q", data[:8])[0]
t = {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
     for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
exec(sys.argv[1])
head, body = {}, b""
for k, (dtype, shape, raw) in t.items():
    head[k] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
    body += raw
text = json.dumps(head).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
}
damaged_weights_are_refused() {
    edit 'del t["blocks.1.attn1.to_q.bias"]'
    refuse tensor-missing file=*transformer* 'text~=1 of' 'text~=: blocks.1.attn1.to_q.bias' --
    edit 't["blocks.7.extra"] = ("F32", [2], bytes(8))'
    refuse tensor-names 'text~=1 tensors' 'text~=: blocks.7.extra' --
    edit 'd, s, raw = t["proj_out.weight"]; t["proj_out.weight"] = (d, s[::-1], raw)'
    refuse tensor-shape text~=proj_out.weight --
    edit 'd, s, raw = t["proj_out.bias"]; t["proj_out.bias"] = ("I32", s, raw)'
    refuse '*' text~=proj_out.bias text~=i32 --
    edit 'pass'
    truncate -s -100 broken/transformer/diffusion_pytorch_model.safetensors
    refuse '*' text~=diffusion_pytorch_model.safetensors --
    rm -rf broken && cp -r runs/dit/model broken && rm -r broken/text_encoder
    refuse '*' text~=broken/text_encoder --
}
check damaged_weights_are_refused
another_height_is_refused() {
    "$WEFT" generate --model runs/dit/model --prompt x --steps 1 --height 30 --out never.mp4 >out.log 2>&1 && fail "height 30 is accepted"
    has_message out.log '*' level=error text~=30 || fail "height 30 is not named"
}
check another_height_is_refused
finish
