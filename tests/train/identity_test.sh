#!/bin/bash
# `identity`: an image encoder is trained with the transformer; its tokens precede the text tokens.
# Losses on ranks are those of one rank (1e-5). Checkpoints do not change the run, the encoder is
# exported, and it trains with LoRA and with a frozen transformer. `weft generate --identity-image`
# uses it. Invalid settings are refused with the remedy.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >identity.yaml <<'Y'
identity:
  class: WeftIdentityEncoder
  config: {num_tokens: 4, dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 24}
  dropout: 0.3
Y
cat dit.yaml identity.yaml >id.yaml
train() { # train NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" train id.yaml --set "out=runs/$name" "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
}
same() { # same A B: losses of two runs
    losses "runs/$1" >one.txt
    losses "runs/$2" >two.txt
    python3 -S - <<'PY' || fail "losses of $1 and $2 differ"
for a, b in zip(open("one.txt"), open("two.txt"), strict=True):
    a, b = float(a.split()[1]), float(b.split()[1])
    assert abs(a - b) <= 1e-5 * abs(a), (a, b)
PY
}
train id
identity_and_dropout_have_effect() {
    "$WEFT" train dit.yaml --set out=runs/none >none.log 2>&1 || { cat none.log; fail "training without an identity encoder"; }
    losses runs/id >one.txt
    losses runs/none >two.txt
    cmp -s one.txt two.txt && fail "the identity encoder has no effect on the losses"
    train always --set identity.dropout=0
    losses runs/always >two.txt
    ! cmp -s one.txt two.txt || fail "identity.dropout has no effect on the losses"
}
check identity_and_dropout_have_effect
ranks_have_the_losses_of_one() { # LAYOUT
    local layout=$1
    ranks 2 "$WEFT" train id.yaml --set "out=runs/$layout" --set "parallel.$layout=2" >"$layout.log" 2>&1 || { cat "$layout.log"; fail "$layout"; }
    same id "$layout"
}
for layout in dp tp fsdp pp; do check "ranks_have_the_losses_of_one_$layout" ranks_have_the_losses_of_one "$layout"; done
# the encoder has its own weights file and config, and model_index.json lists it
its_files_are_written() {
    for file in config.json model.safetensors; do
        [ -s "runs/id/model/identity/$file" ] || fail "no identity/$file"
    done
    grep -q '"WeftIdentityEncoder"' runs/id/model/model_index.json || fail "model_index.json does not list the encoder"
    "$WEFT" inspect model runs/id/model/identity --tensors >tensors.txt || fail "inspect"
    grep -q '^ *queries .*4.*16' tensors.txt || { cat tensors.txt; fail "the tensors of the encoder"; }
}
check its_files_are_written
# images
make_pictures
make() { # make NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" generate --prompt "a circle" --steps 2 --guidance-scale 2 --latents-npy --out "$name.mp4" "$@" >out.log 2>&1 || { cat out.log; fail "generate $name"; }
}
generate_uses_an_image() {
    needs identity_and_dropout_have_effect
    make red --model runs/id/model --identity-image red.png
    make blue --model runs/id/model --identity-image blue.png
    make plain --model runs/id/model
    make zero --model runs/id/model --identity-image red.png --identity-scale 0
    make half --model runs/id/model --identity-image red.png --identity-scale 0.5
    make module --model runs/none/model --identity-image red.png --identity-encoder runs/id/model/identity
    cmp -s red.latents.npy blue.latents.npy && fail "the image has no effect"
    cmp -s red.latents.npy half.latents.npy && fail "the scale has no effect"
    cmp -s plain.latents.npy zero.latents.npy || fail "scale 0 differs from a video without an image"
    ranks 2 "$WEFT" generate --model runs/id/model --prompt "a circle" --steps 2 --guidance-scale 2 --latents-npy --identity-image red.png --parallel cfg=2 --out ranks.mp4 \
        >out.log 2>&1 || { cat out.log; fail "generate on ranks"; }
    cmp red.latents.npy ranks.latents.npy || fail "CFG branches on two ranks give other latents"
}
check generate_uses_an_image
# from trained weights: with LoRA, and with a frozen transformer
python3 -S - <<'PY'
import re
text = open("id.yaml").read()
text = re.sub(r"transformer:\n  class: .*\n  config: .*", "transformer: {weights: runs/none/model/transformer, TUNED}", text)
text = re.sub(r"text_encoders:\n  - class: .*\n    config: .*", "text_encoders: [{weights: runs/none/model/text_encoder}]", text)
open("lora.yaml", "w").write(text.replace("TUNED", "lora: {rank: 2}").replace("runs/dit", "runs/lora"))
open("frozen.yaml", "w").write(text.replace("TUNED", 'freeze: ["*"]').replace("runs/dit", "runs/frozen"))
PY
with_lora_and_a_frozen_transformer() {
    needs identity_and_dropout_have_effect
    for mode in lora frozen; do
        "$WEFT" train $mode.yaml >$mode.log 2>&1 || { cat $mode.log; fail "$mode"; }
    done
    make lora --model runs/none/model --lora runs/lora/adapter --identity-image red.png --identity-encoder runs/lora/identity
    cmp runs/none/model/transformer/diffusion_pytorch_model.safetensors runs/frozen/model/transformer/diffusion_pytorch_model.safetensors ||
        fail "the frozen transformer changed"
    ! cmp -s runs/id/model/identity/model.safetensors runs/frozen/model/identity/model.safetensors || fail "frozen: the identity encoder was not trained"
}
check with_lora_and_a_frozen_transformer
# families with attention masks and joint attention
every_kind_of_family() {
    for family in 'CogVideoXTransformer3DModel {num_layers: 1, num_attention_heads: 2, attention_head_dim: 16, time_embed_dim: 32, use_rotary_positional_embeddings: true}' \
        'LTXVideoTransformer3DModel {num_layers: 1, num_attention_heads: 2, attention_head_dim: 16}' \
        'STDiT3 {depth: 1, num_heads: 2, hidden_size: 32, pred_sigma: false}'; do
        class=${family%% *}
        sed "s/class: WanTransformer3DModel/class: $class/; s/  config: {num_layers: 2, num_att.*/  config: ${family#* }/" id.yaml >"$class.yaml"
        "$WEFT" train "$class.yaml" --set "out=runs/$class" --set stages.0.steps=2 --set stages.1.steps=2 >"$class.log" 2>&1 || { cat "$class.log"; fail "$class"; }
        make "$class" --model "runs/$class/model" --identity-image red.png
    done
}
check every_kind_of_family
# saved in checkpoints: they do not change the run
a_run_with_checkpoints_is_the_same() {
    "$WEFT" train id.yaml --set out=runs/two --set checkpoint.interval=6 >two.log 2>&1 || { cat two.log; fail "checkpoints"; }
    cmp runs/id/model/identity/model.safetensors runs/two/model/identity/model.safetensors || fail "checkpoints changed the run"
}
check a_run_with_checkpoints_is_the_same
refuse() { # ID [FIELD=VALUE...] -- COMMAND...
    take_message "$@"
    set -- "${rest[@]}"
    "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    needs identity_and_dropout_have_effect
    refuse model-input-unsupported file=runs/none/model key=--identity-image text~=--identity-encoder -- "$WEFT" generate --model runs/none/model --prompt x --identity-image red.png --out no.mp4
    refuse option-no-effect key=--identity-scale text~=2 'text~=--identity-image FILE' -- "$WEFT" generate --model runs/id/model --prompt x --identity-scale 2 --out no.mp4
    refuse config-conflict file=id.yaml key=identity 'text~=3 channels' text~=4 -- "$WEFT" train id.yaml --set out=runs/no --set identity.config.in_channels=3
    refuse text-encoder-mismatch 'text~=width 9;' 'text~=WanTransformer3DModel have 16' -- "$WEFT" train id.yaml --set out=runs/no --set identity.config.text_dim=9
    refuse text-encoder-unsupported 'text~=positions for' 'text~=tokens of text' -- "$WEFT" train id.yaml --set out=runs/no --set transformer.class=CogVideoXTransformer3DModel \
        --set 'transformer.config={num_layers: 1, num_attention_heads: 2, attention_head_dim: 16, max_text_seq_length: 32}'
    cat vae.yaml identity.yaml >wrong.yaml
    refuse config-no-effect file=wrong.yaml key=identity -- "$WEFT" train wrong.yaml
}
check refusals
finish
