#!/bin/bash
# Captions through text encoders with tokenizer files: one and two encoders, trainable and frozen.
# Losses with cached embeddings are those with embeddings computed in the step (1e-6). Truncated
# captions and prompts are reported, trained encoders are exported, and the models generate.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
TOK=$PWD/tokenizers
# Tokenizers of single letters: unigram (umt5), bytes (llama3) and CLIP's. HunyuanVideo puts a
# template before the text (the last of its two; the other surrounds an image) and crops its first
# 95 tokens. A part of the template is one special token, so that the template has these 95.
python3 -S - <<'PY' || fail "tokenizers"
import json, os, re
for name in "umt5", "llama3", "clip":
    os.makedirs("tokenizers/" + name)
source = open(os.environ["SRC"] + "/src/model/denoisers/hunyuan_video_dit.c").read()
aspects = source[source.index("#define ASPECTS"):source.index("static const weft_vision_input")]
before = source[source.rindex(".before = "):source.rindex(".after = ")].replace("ASPECTS", aspects)
before = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', before)).replace("\\n", "\n")
special = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
special.append(before[:before.rindex("<|eot_id|>") - 84])
letters = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
byte = {b: chr(b) for b in letters}
for b in range(256):
    byte.setdefault(b, chr(256 + len(byte) - len(letters)))
end = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}], "special_tokens": {"</s>": {"ids": [1]}}}
words = ["\u2581"] + [chr(c) for c in range(33, 127)] + ["\u2581red", "\u2581moving", "\u2581very"]
json.dump({"added_tokens": [{"id": 0, "content": "<pad>"}, {"id": 1, "content": "</s>"}], "normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAAA"},
           "pre_tokenizer": {"type": "Metaspace"}, "post_processor": end,
           "model": {"type": "Unigram", "unk_id": 2, "vocab": [["<pad>", 0], ["</s>", 0], ["<unk>", 0]] + [[w, -3] for w in words]}}, open("tokenizers/umt5/tokenizer.json", "w"))
split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
begin = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": special[0]}}, {"Sequence": {"id": "A"}}], "special_tokens": {special[0]: {"ids": [256]}}}
json.dump({"added_tokens": [{"id": 256 + i, "content": t} for i, t in enumerate(special)], "pre_tokenizer": {"type": "Split", "pattern": {"Regex": split}},
           "post_processor": begin, "model": {"type": "BPE", "merges": [], "vocab": {byte[b]: b for b in range(256)}}}, open("tokenizers/llama3/tokenizer.json", "w"))
vocab = {byte[b] + tail: b + 256 * i for i, tail in enumerate(["", "</w>"]) for b in range(256)}
json.dump({**vocab, "<|startoftext|>": 512, "<|endoftext|>": 513}, open("tokenizers/clip/vocab.json", "w"))
open("tokenizers/clip/merges.txt", "w").write("#version: 0.2\n")
PY
run() { # run NAME CONFIG [--set ...]
    local name=$1 config=$2
    shift 2
    "$WEFT" train "$config" --set out="runs/$name" "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
}
same_losses() { # same_losses A B: to 1e-6
    python3 -S - <(losses "runs/$1") <(losses "runs/$2") <<'PY' || fail "losses of $1 and $2"
import sys
a, b = ([list(map(float, l.split())) for l in open(f)] for f in sys.argv[1:])
assert len(a) == len(b) > 0, (len(a), len(b))
worst = max(abs(x - y) / abs(x) for p, q in zip(a, b) for x, y in zip(p, q) if x)
assert worst < 1e-6, worst
PY
}
short='s/steps: 12/steps: 4/; s/steps: 8, batch: 5/steps: 3, batch: 5/'
# Wan with UMT5: zeros follow the text. The encoder is trained from random weights first.
sed -e "$short" -e '/class: WeftBytesEncoder/,/config: {dim/d' dit.yaml |
    sed "s|^text_encoders:|text_encoders:\n  - class: UMT5EncoderModel\n    config: {vocab_size: 101, d_model: 16, d_kv: 8, d_ff: 32, num_layers: 2, num_heads: 2}\n    tokenizer: $TOK/umt5/tokenizer.json\n    length: 48|" >wan.yaml
run begin wan.yaml
a_trained_encoder_is_exported() {
    for part in text_encoder/model.safetensors tokenizer/tokenizer.json transformer/config.json; do
        test -s "runs/begin/model/$part" || fail "no $part in the finished model"
    done
    python3 -S -c 'import json; assert json.load(open("runs/begin/model/model_index.json"))["tokenizer"] == ["transformers", "T5TokenizerFast"]' || fail "tokenizer in model_index.json"
}
check a_trained_encoder_is_exported
a_truncated_prompt_is_reported() {
    "$WEFT" generate --model runs/begin/model --prompt "a red circle that moves left and then $(printf 'very %.0s' {1..40})far" --steps 2 --out a.mp4 >generate.log 2>&1 ||
        { cat generate.log; fail "generate with UMT5"; }
    has_message generate.log prompt-truncated "text~=prompt 1" text~=48 text~=UMT5EncoderModel 'text~=very far"' || fail "the truncated text is not reported"
}
check a_truncated_prompt_is_reported
# the same encoder frozen: embeddings from the cache, and computed in every step
sed '/class: UMT5/,/config:/d' wan.yaml | sed 's|^    tokenizer: .*|  - weights: runs/begin/model/text_encoder|' >stays.yaml
a_fixed_encoder_is_cached_or_in_the_step() {
    run cached stays.yaml
    run step stays.yaml --set data.text_embeddings=step
    same_losses cached step
    test -d runs/step/checkpoints/step-00000007/transformer || fail "no checkpoint"
    test -e runs/step/checkpoints/step-00000007/text_encoder && fail "a frozen text encoder is in the checkpoint"
    [ "$(count_messages cached.log prompt-truncated)" = 0 ] || fail "captions were truncated"
}
check a_fixed_encoder_is_cached_or_in_the_step
truncated_captions_are_reported() {
    run cut stays.yaml --set text_encoders.0.max_length=6
    has_message cut.log prompt-truncated 'text~=6 tokens that text_encoder takes' || fail "truncated captions are not reported"
}
check truncated_captions_are_reported
# HunyuanVideo: a language model with its template, and CLIP's pooled vector. First both are
# trained, then both are frozen, then CLIP alone is trained.
cat >hunyuan.sed <<S
s/class: WanTransformer3DModel/class: HunyuanVideoTransformer3DModel/
s/  config: {num_layers: 2, num_att.*/  config: {num_layers: 1, num_single_layers: 1, num_refiner_layers: 1, num_attention_heads: 2, attention_head_dim: 16, rope_axes_dim: [4, 6, 6], pooled_projection_dim: 24, guidance_embeds: false}/
/class: WeftBytesEncoder/,/config: {dim/d
s|^text_encoders:|text_encoders:\n  - class: LlamaModel\n    config: {vocab_size: 1300, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 3, num_attention_heads: 2, num_key_value_heads: 1}\n    tokenizer: $TOK/llama3\n    length: 16\n  - class: CLIPTextModel\n    config: {vocab_size: 1200, hidden_size: 24, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2, eos_token_id: 2}\n    tokenizer: $TOK/clip|
S
sed -e "$short" -f hunyuan.sed dit.yaml >hunyuan.yaml
run hunyuan hunyuan.yaml
two_encoders_generate() {
    "$WEFT" generate --model runs/hunyuan/model --prompt "a red circle" --steps 2 --out h.mp4 >generate.log 2>&1 || { cat generate.log; fail "generate with two encoders"; }
}
check two_encoders_generate
sed -e '/class: LlamaModel/,/config:/d' -e '/class: CLIPTextModel/,/config:/d' -e "s|^    tokenizer: $TOK/llama3|  - weights: runs/hunyuan/model/text_encoder|" \
    -e "s|^    tokenizer: $TOK/clip|  - weights: runs/hunyuan/model/text_encoder_2|" hunyuan.yaml >two.yaml
two_fixed_encoders() {
    run two_cached two.yaml
    run two_step two.yaml --set data.text_embeddings=step
    same_losses two_cached two_step
}
check two_fixed_encoders
a_trained_and_a_fixed_encoder() {
    run two_half two.yaml --set text_encoders.1.train=true
    test -d runs/two_half/checkpoints/step-00000007/text_encoder_2 || fail "the trained encoder is not in the checkpoint"
}
check a_trained_and_a_fixed_encoder
two_ranks_have_the_losses_of_one() {
    needs two_fixed_encoders
    ranks 2 "$WEFT" train two.yaml --set out=runs/two_ranks >ranks.log 2>&1 || { cat ranks.log; fail "two ranks"; }
    python3 -S - <(losses runs/two_cached) <(losses runs/two_ranks) <<'PY' || fail "losses on two ranks"
import sys
a, b = ([float(l.split()[1]) for l in open(f)] for f in sys.argv[1:])
assert len(a) == len(b) and max(abs(x - y) / x for x, y in zip(a, b)) < 1e-5, (a, b)
PY
}
check two_ranks_have_the_losses_of_one
# Flux: images, T5 and CLIP's pooled vector. Two pipeline stages have the losses of one rank.
cat >flux.sed <<S
s/class: WanTransformer3DModel/class: FluxTransformer2DModel/
s/  config: {num_layers: 2, num_att.*/  config: {in_channels: 16, num_layers: 2, num_single_layers: 2, num_attention_heads: 2, attention_head_dim: 16, axes_dims_rope: [4, 6, 6], pooled_projection_dim: 24}/
s/frames: [59]/frames: 1/
/class: WeftBytesEncoder/,/config: {dim/d
s|^text_encoders:|text_encoders:\n  - class: T5EncoderModel\n    config: {vocab_size: 101, d_model: 16, d_kv: 8, d_ff: 32, num_layers: 2, num_heads: 2}\n    tokenizer: $TOK/umt5/tokenizer.json\n    length: 48\n  - class: CLIPTextModel\n    config: {vocab_size: 1200, hidden_size: 24, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2, eos_token_id: 2}\n    tokenizer: $TOK/clip|
S
sed -e "$short" -f flux.sed dit.yaml >flux.yaml
run flux flux.yaml
flux_generates_and_has_stages() {
    "$WEFT" generate --model runs/flux/model --prompt "a red circle" --steps 2 --out f.mp4 >generate.log 2>&1 || { cat generate.log; fail "generate with Flux"; }
    ranks 2 "$WEFT" train flux.yaml --set out=runs/flux_stages --set parallel.pp=2 >ranks.log 2>&1 || { cat ranks.log; fail "Flux in two stages"; }
    same_losses flux flux_stages
}
check flux_generates_and_has_stages
# each refusal names the missing file or encoder
refused() { # ID [FIELD=VALUE...] -- CONFIG [--set ...]
    take_message "$@"
    set -- "${rest[@]}"
    local config=$1
    shift
    "$WEFT" train "$config" --set out=runs/refused "$@" >refused.log 2>&1 && fail "not refused: ${wanted[*]}"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
sed '/text_encoder_2/d' two.yaml >one.yaml
refusals() {
    refused text-encoder-mismatch 'text~=takes 2 text encoders (one for the text, then one for its pooled vector), not 1' -- one.yaml
    mkdir bare && cp runs/begin/model/text_encoder/* bare/
    refused model-not-found text~=tokenizer text~=bare -- stays.yaml --set text_encoders.0.weights=bare
    refused text-encoder-mismatch "text~=$TOK/llama3" -- stays.yaml --set text_encoders.0.tokenizer="$TOK/llama3"
}
check refusals
finish
