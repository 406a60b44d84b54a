"""Writes, for each family, weights in its own names and in those of the authors' files.

usage: original_names.py WEFT

Of a small config with the levels of the published ones, weft says the names and shapes. The names
of the authors are made from these here, by other means than weft's rules: each function takes a
name of ours to theirs. What is fused there is a list of ours in their order, what has its halves
exchanged is marked. Makes dialect_original_X.json and dialects/dialect_original_X/."""
import json
import os
import random
import re
import struct
import subprocess
import sys


def sub(name, *pairs):
    for ours, theirs in pairs:
        name = re.sub(ours, theirs, name)
    return name


def wan(n):
    n = sub(n, (r"^condition_embedder\.time_embedder\.linear_1", "time_embedding.0"), (r"^condition_embedder\.time_embedder\.linear_2", "time_embedding.2"),
            (r"^condition_embedder\.text_embedder\.linear_1", "text_embedding.0"), (r"^condition_embedder\.text_embedder\.linear_2", "text_embedding.2"),
            (r"^condition_embedder\.time_proj", "time_projection.1"), (r"^proj_out", "head.head"), (r"^scale_shift_table", "head.modulation"))
    image = re.match(r"condition_embedder\.image_embedder\.(.*)\.(weight|bias)", n)
    if image:
        return "img_emb.proj." + {"norm1": "0", "ff.net.0.proj": "1", "ff.net.2": "3", "norm2": "4"}[image[1]] + "." + image[2]
    return sub(n, (r"scale_shift_table$", "modulation"), (r"norm2\.", "norm3."), (r"ffn\.net\.0\.proj", "ffn.0"), (r"ffn\.net\.2", "ffn.2"),
               (r"attn1\.", "self_attn."), (r"attn2\.", "cross_attn."), (r"to_([qkv])\.", r"\1."), (r"to_out\.0", "o"),
               (r"add_([kv])_proj", r"\1_img"), (r"norm_added_k", "norm_k_img"))


def skyreels(n):
    return sub(wan(n), (r"^fps_projection\.net\.0\.proj", "fps_projection.0"), (r"^fps_projection\.net\.2", "fps_projection.2"))


def helios(n):
    return "head.modulation" if n == "norm_out.scale_shift_table" else wan(n)


def wan_vace(n):
    return sub(n, (r"\.proj_in", ".before_proj"), (r"\.proj_out", ".after_proj")) if re.search(r"blocks\.\d+\.proj_", n) else wan(n)


def wan_animate(n):
    adapter = re.match(r"face_adapter\.(\d+)\.(\w+)\.(\w+)$", n)
    if adapter:
        block, layer, kind = adapter.groups()
        parts = {"to_q": "linear1_q", "to_out": "linear2", "norm_q": "q_norm", "norm_k": "k_norm"}
        if layer in ("to_k", "to_v"):
            return f"face_adapter.fuser_blocks.{block}.linear1_kv.{kind}", "kv".index(layer[-1])
        return f"face_adapter.fuser_blocks.{block}.{parts[layer]}.{kind}"
    block = re.match(r"motion_encoder\.res_blocks\.(\d+)\.(.*)", n)
    if block:
        number, rest = block.groups()
        theirs = {"conv1.weight": "conv1.0.weight", "conv1.act_fn.bias": "conv1.1.bias", "conv2.weight": "conv2.1.weight",
                  "conv2.act_fn.bias": "conv2.2.bias", "conv_skip.weight": "skip.1.weight"}[rest]
        return f"motion_encoder.enc.net_app.convs.{int(number) + 1}.{theirs}"
    moved = sub(n, (r"^motion_encoder\.conv_in\.weight", "motion_encoder.enc.net_app.convs.0.0.weight"),
                (r"^motion_encoder\.conv_in\.act_fn\.bias", "motion_encoder.enc.net_app.convs.0.1.bias"),
                (r"^motion_encoder\.conv_out", "motion_encoder.enc.net_app.convs.8"),
                (r"^motion_encoder\.motion_network", "motion_encoder.enc.fc"),
                (r"^motion_encoder\.motion_synthesis_weight", "motion_encoder.dec.direction.weight"),
                (r"^face_encoder\.(conv\w+)", r"face_encoder.\1.conv"))
    return moved if moved != n or n.startswith("face_encoder") else wan(n)


def wan_common(n):
    n = sub(n, (r"^quant_conv", "conv1"), (r"^post_quant_conv", "conv2"), (r"coder\.conv_in", "coder.conv1"),
            (r"norm_out", "head.0"), (r"conv_out", "head.2"), (r"mid_block\.attentions\.0", "middle.1"),
            (r"mid_block\.resnets\.1", "middle.2"), (r"mid_block\.resnets\.0", "middle.0"))
    if re.search(r"middle|(up|down)_blocks|samples", n):
        n = sub(n, (r"\.norm1\.", ".residual.0."), (r"\.conv1\.", ".residual.2."), (r"\.norm2\.", ".residual.3."),
                (r"\.conv2\.", ".residual.6."), (r"conv_shortcut", "shortcut"))
    return n


def wan21(n):
    n = wan_common(n).replace("encoder.down_blocks", "encoder.downsamples")
    place = re.match(r"decoder\.up_blocks\.(\d)\.(resnets|upsamplers)\.(\d)(.*)", n)
    if place:
        level, kind, item, rest = place.groups()
        n = f"decoder.upsamples.{4 * int(level) + (int(item) if kind == 'resnets' else 3)}{rest}"
    return n


def wan22(n):
    return sub(wan_common(n), (r"decoder\.up_blocks\.(\d)\.resnets", r"decoder.upsamples.\1.upsamples"),
               (r"decoder\.up_blocks\.(\d)\.upsampler", r"decoder.upsamples.\1.upsamples.3"),
               (r"encoder\.down_blocks\.(\d)\.resnets", r"encoder.downsamples.\1.downsamples"),
               (r"encoder\.down_blocks\.(\d)\.downsampler", r"encoder.downsamples.\1.downsamples.2"))


def ltx_vae(n):
    rows = {
        "encoder.down_blocks": ["down_blocks.0.resnets", "down_blocks.0.downsamplers.0", "down_blocks.0.conv_out",
                                "down_blocks.1.resnets", "down_blocks.1.downsamplers.0", "down_blocks.1.conv_out",
                                "down_blocks.2.resnets", "down_blocks.2.downsamplers.0", "down_blocks.3.resnets",
                                "mid_block.resnets"],
        "decoder.up_blocks": ["mid_block.resnets", "up_blocks.0.resnets", "up_blocks.1.upsamplers.0",
                              "up_blocks.1.resnets", "up_blocks.2.conv_in", "up_blocks.2.upsamplers.0",
                              "up_blocks.2.resnets", "up_blocks.3.conv_in", "up_blocks.3.upsamplers.0",
                              "up_blocks.3.resnets"]}
    for row, items in rows.items():
        half = row.split(".")[0]
        for i, item in enumerate(items):
            if n.startswith(f"{half}.{item}."):
                behind = ".res_blocks" if item.endswith("resnets") else ""
                n = f"{row}.{i}{behind}" + n[len(half) + 1 + len(item):]
                return "vae." + sub(n, (r"conv_shortcut\.conv", "conv_shortcut"), (r"norm3\.", "norm3.norm."))
    return "vae." + n


def umt5_of_one_layer(n):
    return n.replace("shared", "encoder.embed_tokens")  # nothing in it says that it is not a T5


def ltx_vae_timed(n):
    n = sub(n, (r"^decoder\.up_blocks\.(\d)\.upsamplers\.0", lambda m: f"decoder.up_blocks.{2 * int(m[1]) + 1}"),
            (r"^decoder\.up_blocks\.(\d)\.(resnets|time_embedder)", lambda m: f"decoder.up_blocks.{2 * int(m[1]) + 2}.{m[2]}"),
            (r"^decoder\.mid_block", "decoder.up_blocks.0"), (r"^decoder\.(time_embedder|scale_shift_table)", r"decoder.last_\1"))
    return n if n.startswith("encoder") else "vae." + n.replace("resnets", "res_blocks")


def ltx_vae_091(n):
    return ltx_vae(n) if n.startswith("encoder") else ltx_vae_timed(n)


def ltx_vae_095(n):
    n = sub(ltx_vae_timed(n), (r"^encoder\.down_blocks\.(\d)\.downsamplers\.0", lambda m: f"encoder.down_blocks.{2 * int(m[1]) + 1}"),
            (r"^encoder\.down_blocks\.(\d)\.resnets", lambda m: f"encoder.down_blocks.{2 * int(m[1])}.res_blocks"),
            (r"^encoder\.mid_block\.resnets", "encoder.down_blocks.8.res_blocks"))
    return n if n.startswith("vae.") else "vae." + n


def ltx2_vae(n):
    return re.sub(r"conv_shortcut\.conv", "conv_shortcut", ltx_vae_095(n))


def ltx(n):
    return "model.diffusion_model." + sub(n, (r"^proj_in", "patchify_proj"), (r"^time_embed", "adaln_single"),
                                          (r"norm_([qk])\b", r"\1_norm"))


def ltx2(n):
    return "model.diffusion_model." + sub(
        n, (r"^(audio_|)proj_in", r"\1patchify_proj"), (r"^(audio_|)time_embed", r"\1adaln_single"), (r"norm_([qk])\b", r"\1_norm"),
        (r"^(audio_|)prompt_adaln", r"\1prompt_adaln_single"), (r"^av_cross_attn_(video|audio)_(scale_shift|a2v_gate|v2a_gate)",
         lambda m: f"av_ca_{m[1] + '_' if m[2] == 'scale_shift' else ''}{m[2]}_adaln_single"),
        (r"(video|audio)_a2v_cross_attn_scale_shift_table", r"scale_shift_table_a2v_ca_\1"))


def ltx2_connectors(n):
    return sub(n, (r"^(video|audio)_connector", r"model.diffusion_model.\1_embeddings_connector"), (r"transformer_blocks", "transformer_1d_blocks"),
               (r"norm_([qk])\b", r"\1_norm"), (r"^(video_|audio_|)text_proj_in", r"text_embedding_projection.\1aggregate_embed"))


def ltx2_vocoder(n):
    return "vocoder." + sub(n, (r"\bconv_in\b", "conv_pre"), (r"\bconv_out\b", "conv_post"), (r"\bact_out\b", "act_post"),
                            (r"\bupsamplers\b", "ups"), (r"\bresnets\b", "resblocks"), (r"downsample\.filter", "downsample.lowpass.filter"))


def cosmos1(n):
    n = sub(n, (r"^time_embed\.t_embedder", "t_embedder.1"), (r"^time_embed\.norm", "affline_norm"),
            (r"^patch_embed\.proj", "x_embedder.proj.1"), (r"^learnable_pos_embed", "extra_pos_embedder"),
            (r"^norm_out\.linear_", "final_layer.adaLN_modulation."), (r"^proj_out", "final_layer.linear"),
            (r"\.to_([qkv])\.", r".to_\1.0."), (r"\.norm_([qk])\.", r".to_\1.1."),
            (r"ff\.net\.0\.proj", "ff.layer1"), (r"ff\.net\.2", "ff.layer2"))
    for i, name in enumerate(["attn1", "attn2", "ff"]):
        inner = f"block{'' if name == 'ff' else '.attn'}"
        n = re.sub(rf"^transformer_blocks\.(\d+)\.{name}\.", rf"blocks.block\1.blocks.{i}.{inner}.", n)
        n = re.sub(rf"^transformer_blocks\.(\d+)\.norm{i + 1}\.linear_", rf"blocks.block\1.blocks.{i}.adaLN_modulation.", n)
    return "net." + n


def cosmos2(n):
    n = sub(n, (r"^time_embed\.t_embedder", "t_embedder.1"), (r"^time_embed\.norm", "t_embedding_norm"),
            (r"^patch_embed\.proj", "x_embedder.proj.1"), (r"^norm_out\.linear_", "final_layer.adaln_modulation."),
            (r"^proj_out", "final_layer.linear"), (r"^transformer_blocks", "blocks"), (r"attn1", "self_attn"),
            (r"attn2", "cross_attn"), (r"to_([qkv])\b", r"\1_proj"), (r"norm_([qk])\b", r"\1_norm"),
            (r"to_out\.0", "output_proj"), (r"ff\.net\.0\.proj", "mlp.layer1"), (r"ff\.net\.2", "mlp.layer2"),
            (r"norm1\.linear_", "adaln_modulation_self_attn."), (r"norm2\.linear_", "adaln_modulation_cross_attn."),
            (r"norm3\.linear_", "adaln_modulation_mlp."))
    return "net." + n


def cosmos_transfer(n):
    """The branch shares the embedders of the transformer, of which diffusers has a copy in the branch."""
    own = n.removeprefix("controlnet.")
    if own == n or own.startswith("control_blocks."):
        return cosmos2(own)
    return "net.control_embedder.proj.1.weight" if own == "patch_embed.proj.weight" else cosmos2(own.replace("patch_embed_base", "patch_embed"))


def sana_video(n):
    n = sub(n, (r"^patch_embedding", "x_embedder.proj"), (r"^caption_projection\.linear_", "y_embedder.y_proj.fc"), (r"^caption_norm", "attention_y_norm"),
            (r"^time_embed\.emb\.timestep_embedder\.linear_1", "t_embedder.mlp.0"), (r"^time_embed\.emb\.timestep_embedder\.linear_2", "t_embedder.mlp.2"),
            (r"^time_embed\.linear", "t_block.1"), (r"^proj_out", "final_layer.linear"), (r"^scale_shift_table", "final_layer.scale_shift_table"))
    part = re.match(r"transformer_blocks\.(\d+)\.(attn1\.to_([qkv])|attn2\.to_([kv]))\.(weight|bias)", n)
    if part:
        block, _, own, text, kind = part.groups()
        return (f"blocks.{block}.attn.qkv.{kind}", "qkv".index(own)) if own else (f"blocks.{block}.cross_attn.kv_linear.{kind}", "kv".index(text))
    return sub(n, (r"^transformer_blocks", "blocks"), (r"attn1", "attn"), (r"attn2", "cross_attn"), (r"norm_([qk])", r"\1_norm"), (r"to_q", "q_linear"),
               (r"to_out\.0", "proj"), (r"ff\.conv_temp", "mlp.t_conv"), (r"ff\.conv_(inverted|depth|point)", r"mlp.\1_conv.conv"))


def mochi(n):
    x = re.match(r"(transformer_blocks\.\d+)\.attn1\.(to|add)_([qkv])(?:_proj)?\.(.*)", n)
    if x:
        block, which, part, kind = x.groups()
        theirs = block.replace("transformer_", "") + f".attn.qkv_{'x' if which == 'to' else 'y'}.{kind}"
        return theirs, "qkv".index(part)
    n = sub(n, (r"^time_embed\.timestep_embedder\.linear_1", "t_embedder.mlp.0"),
            (r"^time_embed\.timestep_embedder\.linear_2", "t_embedder.mlp.2"), (r"^time_embed\.pooler", "t5_y_embedder"),
            (r"^time_embed\.caption_proj", "t5_yproj"), (r"^patch_embed", "x_embedder"), (r"^proj_out", "final_layer.linear"),
            (r"^norm_out\.linear", "~final_layer.mod"), (r"^transformer_blocks", "blocks"), (r"norm1\.linear", "mod_x"),
            (r"norm1_context\.linear(_1)?", "mod_y"), (r"attn1\.to_out\.0", "attn.proj_x"), (r"attn1\.to_add_out", "attn.proj_y"),
            (r"attn1\.norm_added_([qk])", r"attn.\1_norm_y"), (r"attn1\.norm_([qk])", r"attn.\1_norm_x"))
    return sub(n, (r"(.*)ff\.net\.0\.proj", r"~\1mlp_x.w1"), (r"ff\.net\.2", "mlp_x.w2"),
               (r"(.*)ff_context\.net\.0\.proj", r"~\1mlp_y.w1"), (r"ff_context\.net\.2", "mlp_y.w2"))


def flux(n):
    n = sub(n, (r"^x_embedder", "img_in"), (r"^context_embedder", "txt_in"), (r"^norm_out\.linear", "~final_layer.adaLN_modulation.1"),
            (r"^proj_out", "final_layer.linear"), (r"^time_text_embed\.timestep_embedder", "time_in"),
            (r"^time_text_embed\.text_embedder", "vector_in"), (r"^time_text_embed\.guidance_embedder", "guidance_in"),
            (r"linear_1", "in_layer"), (r"linear_2", "out_layer"))
    double = re.match(r"transformer_blocks\.(\d+)\.(.*)", n)
    if double:
        block, rest = f"double_blocks.{double[1]}.", double[2]
        part = re.match(r"attn\.(?:to_([qkv])|add_([qkv])_proj)\.(.*)", rest)
        if part:
            which = "img" if part[1] else "txt"
            return f"{block}{which}_attn.qkv.{part[3]}", "qkv".index(part[1] or part[2])
        stream = "txt" if re.search("context|added|add_out", rest) else "img"
        rest = sub(rest, (r"norm1(_context)?\.linear", "mod.lin"), (r"attn\.norm_(added_)?q\.weight", "attn.norm.query_norm.scale"),
                   (r"attn\.norm_(added_)?k\.weight", "attn.norm.key_norm.scale"), (r"attn\.to_(out\.0|add_out)", "attn.proj"),
                   (r"ff(_context)?\.net\.0\.proj", "mlp.0"), (r"ff(_context)?\.net\.2", "mlp.2"))
        return f"{block}{stream}_{rest}"
    single = re.match(r"single_transformer_blocks\.(\d+)\.(.*)", n)
    if single:
        block, rest = f"single_blocks.{single[1]}.", single[2]
        part = re.match(r"(?:attn\.to_([qkv])|proj_mlp)\.(.*)", rest)
        if part:
            return f"{block}linear1.{part[2]}", "qkv".index(part[1]) if part[1] else 3
        return block + sub(rest, (r"^norm\.linear", "modulation.lin"), (r"attn\.norm_q\.weight", "norm.query_norm.scale"),
                           (r"attn\.norm_k\.weight", "norm.key_norm.scale"), (r"^proj_out", "linear2"))
    return n


def flux2(n):
    return flux(sub(n, (r"^time_guidance_embed\.timestep_embedder", "time_in"), (r"^time_guidance_embed\.guidance_embedder", "guidance_in"),
                    (r"modulation(_img|_txt)?\.linear", r"modulation\1.lin"), (r"\.attn\.to_qkv_mlp_proj", ".linear1"),
                    (r"\.attn\.to_out\.weight", ".linear2.weight"), (r"ff(_context)?\.linear_in", r"ff\1.net.0.proj"),
                    (r"ff(_context)?\.linear_out", r"ff\1.net.2")))


def chroma(n):
    return n.replace("linear_1", "in_layer").replace("linear_2", "out_layer").replace(".weight", ".scale" if ".norms." in n else ".weight") \
        if n.startswith("distilled") else flux(n)


def z_image(n):
    n = sub(n, (r"^all_(x_embedder|final_layer)\.2-1", r"\1"), (r"attention\.norm_([qk])", r"attention.\1_norm"), (r"to_out\.0", "out"))
    for i, part in enumerate(("to_q", "to_k", "to_v")):
        if f"attention.{part}." in n:
            return n.replace(part, "qkv"), i
    return n


def hunyuan15(n):
    n = sub(n, (r"^x_embedder", "img_in"), (r"^time_embed\.timestep_embedder\.linear_1", "time_in.mlp.0"),
            (r"^time_embed\.timestep_embedder\.linear_2", "time_in.mlp.2"), (r"^cond_type_embed", "cond_type_embedding"),
            (r"^context_embedder_2\.linear_", "byt5_in.fc"), (r"^context_embedder_2\.norm", "byt5_in.layernorm"),
            (r"^image_embedder\.norm_in", "vision_in.proj.0"), (r"^image_embedder\.linear_1", "vision_in.proj.1"),
            (r"^image_embedder\.linear_2", "vision_in.proj.3"), (r"^image_embedder\.norm_out", "vision_in.proj.4"),
            (r"^norm_out\.linear", "~final_layer.adaLN_modulation.1"), (r"^proj_out", "final_layer.linear"))
    refiner = re.match(r"context_embedder\.token_refiner\.refiner_blocks\.(\d+)\.(.*)", n)
    if refiner:
        block, rest = f"txt_in.individual_token_refiner.blocks.{refiner[1]}.", refiner[2]
        part = re.match(r"attn\.to_([qkv])\.(.*)", rest)
        if part:
            return f"{block}self_attn_qkv.{part[2]}", "qkv".index(part[1])
        return block + sub(rest, (r"attn\.to_out\.0", "self_attn_proj"), (r"ff\.net\.0\.proj", "mlp.fc1"), (r"ff\.net\.2", "mlp.fc2"),
                           (r"norm_out\.linear", "adaLN_modulation.1"))
    n = sub(n, (r"^context_embedder\.time_text_embed\.timestep_embedder\.linear_1", "txt_in.t_embedder.mlp.0"),
            (r"^context_embedder\.time_text_embed\.timestep_embedder\.linear_2", "txt_in.t_embedder.mlp.2"),
            (r"^context_embedder\.time_text_embed\.text_embedder", "txt_in.c_embedder"),
            (r"^context_embedder\.proj_in", "txt_in.input_embedder"), (r"^transformer_blocks", "double_blocks"))
    return sub(n, (r"norm1\.linear", "img_mod.linear"), (r"norm1_context\.linear", "txt_mod.linear"),
               (r"attn\.norm_added_([qk])", r"txt_attn_\1_norm"), (r"attn\.norm_([qk])", r"img_attn_\1_norm"),
               (r"attn\.add_([qkv])_proj", r"txt_attn_\1"), (r"attn\.to_add_out", "txt_attn_proj"),
               (r"attn\.to_out\.0", "img_attn_proj"), (r"attn\.to_([qkv])", r"img_attn_\1"),
               (r"ff\.net\.0\.proj", "img_mlp.fc1"), (r"ff\.net\.2", "img_mlp.fc2"),
               (r"ff_context\.net\.0\.proj", "txt_mlp.fc1"), (r"ff_context\.net\.2", "txt_mlp.fc2"))


def hunyuan15_vae(n):
    return sub(n, (r"mid_block\.resnets\.0", "mid.block_1"), (r"mid_block\.resnets\.1", "mid.block_2"),
               (r"mid_block\.attentions\.0\.to_", "mid.attn_1."), (r"mid_block\.attentions\.0", "mid.attn_1"),
               (r"(down|up)_blocks", r"\1"), (r"resnets", "block"), (r"(down|up)samplers\.0", r"\1sample"),
               (r"conv_shortcut", "nin_shortcut"))


def dc_ae(n):
    q = re.match(r"(.*)\.attn\.to_([qkv])\.weight", n)
    if q:
        return dc_ae(q[1]) + ".context_module.main.qkv.conv.weight", "qkv".index(q[2])
    n = sub(n, (r"^encoder\.conv_in", "encoder.project_in.conv"), (r"^encoder\.conv_out", "encoder.project_out.main.op_list.0.conv"),
            (r"^decoder\.conv_in", "decoder.project_in.main.conv"), (r"^decoder\.norm_out", "decoder.project_out.op_list.0"),
            (r"^decoder\.conv_out", "decoder.project_out.op_list.2.conv"), (r"(down|up)_blocks\.(\d)\.", r"stages.\2.op_list."))
    n = sub(n, (r"(op_list\.\d)\.(conv[12])\.", r"\1.main.\2.conv."), (r"(op_list\.\d)\.norm\.", r"\1.main.conv2.norm."),
            (r"(encoder\.stages.*op_list\.\d)\.conv\.", r"\1.main.conv."), (r"(decoder\.stages.*op_list\.0)\.conv\.", r"\1.main.conv.conv."))
    return sub(n, (r"attn\.to_qkv_multiscale\.0\.proj_in", "context_module.main.aggreg.0.0"),
               (r"attn\.to_qkv_multiscale\.0\.proj_out", "context_module.main.aggreg.0.1"), (r"attn\.to_out", "context_module.main.proj.conv"),
               (r"attn\.norm_out", "context_module.main.proj.norm"), (r"(op_list\.\d)\.conv_out\.norm", r"\1.local_module.main.point_conv.norm"),
               (r"(op_list\.\d)\.conv_out\.conv_(inverted|depth|point)", r"\1.local_module.main.\2_conv.conv"))


def as_it_is(n):
    return n


def ldm_vae(n):
    n = sub(n, (r"mid_block\.resnets\.0", "mid.block_1"), (r"mid_block\.resnets\.1", "mid.block_2"),
            (r"attentions\.0\.group_norm", "attn_1.norm"), (r"attentions\.0\.to_([qkv])", r"attn_1.\1"),
            (r"attentions\.0\.to_out\.0", "attn_1.proj_out"), (r"mid_block", "mid"), (r"conv_norm_out", "norm_out"),
            (r"down_blocks\.(\d)\.resnets", r"down.\1.block"), (r"down_blocks\.(\d)\.downsamplers\.0", r"down.\1.downsample"),
            (r"conv_shortcut", "nin_shortcut"))
    up = re.match(r"decoder\.up_blocks\.(\d)\.(resnets|upsamplers\.0)(.*)", n)
    if up:
        n = f"decoder.up.{3 - int(up[1])}.{'block' if up[2] == 'resnets' else 'upsample'}{up[3]}"
    return "first_stage_model." + n


def ldm_unet(n):
    if "resnets" in n:
        n = sub(n, (r"\.norm1\.", ".in_layers.0."), (r"\.conv1\.", ".in_layers.2."), (r"\.norm2\.", ".out_layers.0."),
                (r"\.conv2\.", ".out_layers.3."), (r"time_emb_proj", "emb_layers.1"), (r"conv_shortcut", "skip_connection"))
    n = sub(n, (r"^time_embedding\.linear_1", "time_embed.0"), (r"^time_embedding\.linear_2", "time_embed.2"),
            (r"^conv_in", "input_blocks.0.0"), (r"^conv_norm_out", "out.0"), (r"^conv_out", "out.2"),
            (r"^mid_block\.resnets\.0", "middle_block.0"), (r"^mid_block\.attentions\.0", "middle_block.1"),
            (r"^mid_block\.resnets\.1", "middle_block.2"))
    at = re.match(r"(down|up)_blocks\.(\d)\.(\w+)\.(\d)(.*)", n)
    if at:
        way, level, kind, item, rest = at.groups()
        level, item = int(level), int(item)
        if kind == "downsamplers":
            n = f"input_blocks.{3 * level + 3}.0.op" + rest[len(".conv"):]
        elif kind == "upsamplers":
            n = f"output_blocks.{3 * level + 2}.{1 if level == 0 else 2}" + rest
        else:
            first, blocks = (1, "input_blocks") if way == "down" else (0, "output_blocks")
            n = f"{blocks}.{3 * level + item + first}.{0 if kind == 'resnets' else 1}{rest}"
    return "model.diffusion_model." + n


def sat(n):
    n = sub(n, (r"^norm_final", "transformer.final_layernorm"), (r"^norm_out\.norm", "mixins.final_layer.norm_final"),
            (r"^norm_out\.linear", "mixins.final_layer.adaLN_modulation.1"), (r"^proj_out", "mixins.final_layer.linear"),
            (r"^patch_embed\.pos_embedding", "mixins.pos_embed.pos_embedding"), (r"^patch_embed", "mixins.patch_embed"),
            (r"^time_embedding\.linear_1", "time_embed.0"), (r"^time_embedding\.linear_2", "time_embed.2"),
            (r"^ofs_embedding\.linear_1", "ofs_embed.0"), (r"^ofs_embedding\.linear_2", "ofs_embed.2"))
    block = re.match(r"transformer_blocks\.(\d+)\.(.*)\.(weight|bias)", n)
    if block:
        i, what, kind = block.groups()
        if what.endswith(".linear"):
            return f"model.diffusion_model.mixins.adaln_layer.adaLN_modulations.{i}.1.{kind}", int(what[4]) - 1, "in turn"
        if what.startswith("attn1.to_") and len(what) == 10:
            return f"model.diffusion_model.transformer.layers.{i}.attention.query_key_value.{kind}", "qkv".index(what[-1])
        if what.startswith("attn1.norm"):
            n = f"mixins.adaln_layer.{'query' if what[-1] == 'q' else 'key'}_layernorm_list.{i}.{kind}"
        else:
            n = f"transformer.layers.{i}." + {"attn1.to_out.0": "attention.dense", "ff.net.0.proj": "mlp.dense_h_to_4h",
                                              "ff.net.2": "mlp.dense_4h_to_h", "norm1.norm": "input_layernorm",
                                              "norm2.norm": "post_attention_layernorm"}[what] + "." + kind
    return "model.diffusion_model." + n


def flux2_vae(n):
    n = ldm_vae(n).removeprefix("first_stage_model.")
    return sub(n, (r"^quant_conv", "encoder.quant_conv"), (r"^post_quant_conv", "decoder.post_quant_conv"))


def video_ldm_vae(n):
    n = sub(n, (r"mid_block\.resnets\.0", "mid.block_1"), (r"mid_block\.resnets\.1", "mid.block_2"), (r"conv_shortcut", "nin_shortcut"),
            (r"down_blocks\.(\d)\.resnets", r"down.\1.block"), (r"down_blocks\.(\d)\.downsamplers\.0", r"down.\1.downsample"))
    up = re.match(r"decoder\.up_blocks\.(\d)\.(resnets|upsamplers\.0)(.*)", n)
    return f"decoder.up.{3 - int(up[1])}.{'block' if up[2] == 'resnets' else 'upsample'}{up[3]}" if up else n


def comfy_hunyuan_vae(n):
    return sub(video_ldm_vae(n), (r"conv_norm_out", "norm_out"), (r"mid_block\.attentions\.0\.group_norm", "mid.attn_1.norm"),
               (r"mid_block\.attentions\.0\.to_([qkv])", r"mid.attn_1.\1"),
               (r"mid_block\.attentions\.0\.to_out\.0", "mid.attn_1.proj_out"))


TINY_DIT = {"num_attention_heads": 2, "attention_head_dim": 16}
COSMOS25 = {**TINY_DIT, "text_embed_dim": 20, "adaln_lora_dim": 6, "max_size": [8, 16, 12], "extra_pos_embed_type": None,
            "use_crossattn_projection": True, "crossattn_proj_in_channels": 28, "encoder_hidden_states_channels": 20,
            "img_context_dim_in": 10, "img_context_dim_out": 32}
TINY_CONNECTORS = {f"{stream}_connector_{key}": value for stream in ("video", "audio")
                   for key, value in (("num_attention_heads", 2), ("attention_head_dim", 6), ("num_learnable_registers", 8))}
TINY_VOCODER = {"in_channels": 8, "hidden_channels": 16, "upsample_kernel_sizes": [7, 4], "upsample_factors": [3, 2],
                "resnet_kernel_sizes": [3, 5], "resnet_dilations": [[1, 3, 5], [1, 3, 5]]}
LTX_TIMED = {"decoder_block_out_channels": [8, 16, 32], "decoder_layers_per_block": [1, 2, 1, 1], "timestep_conditioning": True,
             "decoder_spatio_temporal_scaling": [True] * 3, "upsample_residual": [True] * 3, "upsample_factor": [2] * 3}
TINY_WAN = {**TINY_DIT, "num_layers": 2, "in_channels": 4, "out_channels": 4, "text_dim": 10, "freq_dim": 8, "ffn_dim": 20}
TINY_I2V = {**TINY_WAN, "in_channels": 12, "image_dim": 6, "added_kv_proj_dim": 32}
FAMILIES = {
    "chronoedit": (wan, {"_class_name": "ChronoEditTransformer3DModel", **TINY_I2V, "attention_head_dim": 12, "added_kv_proj_dim": 24}),
    "causal_wan": (wan, {"_class_name": "CausalWanTransformer3DModel", **TINY_WAN, "num_layers": 1, "local_attn_size": 6}),
    "skyreels": (skyreels, {"_class_name": "SkyReelsV2Transformer3DModel", **TINY_WAN, "num_layers": 1, "inject_sample_info": True}),
    "helios": (helios, {"_class_name": "HeliosTransformer3DModel", **TINY_WAN, "rope_dim": [8, 4, 4]}),
    "wan_vace": (wan_vace, {"_class_name": "WanVACETransformer3DModel", **TINY_WAN, "vace_layers": [0, 1], "vace_in_channels": 6}),
    "wan_animate": (wan_animate, {"_class_name": "WanAnimateTransformer3DModel", **TINY_I2V, "latent_channels": 4, "motion_style_dim": 6,
                                  "motion_dim": 2, "motion_encoder_dim": 4, "face_encoder_hidden_dim": 4, "face_encoder_num_heads": 2,
                                  "inject_face_latents_blocks": 1,
                                  "motion_encoder_channel_sizes": {str(4 << i): 2 + i % 2 for i in range(8)}}),
    "wan_vae": (wan21, {"_class_name": "AutoencoderKLWan", "base_dim": 4, "z_dim": 4}),
    "wan22_vae": (wan22, {"_class_name": "AutoencoderKLWan", "base_dim": 3, "decoder_base_dim": 4, "z_dim": 4, "is_residual": True,
                          "in_channels": 12, "out_channels": 12, "patch_size": 2}),
    "qwen_image_vae": (wan21, {"_class_name": "AutoencoderKLQwenImage", "base_dim": 4, "z_dim": 4}),
    "ltx_vae": (ltx_vae, {"_class_name": "AutoencoderKLLTXVideo", "latent_channels": 8, "block_out_channels": [6, 8, 12, 12],
                          "decoder_block_out_channels": [6, 8, 12, 12]}),
    "umt5_one": (umt5_of_one_layer, {"_class_name": "UMT5EncoderModel", "model_type": "umt5", "vocab_size": 20, "d_model": 8,
                                     "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2}),
    "ltx_vae_091": (ltx_vae_091, {"_class_name": "AutoencoderKLLTXVideo", "latent_channels": 8, "block_out_channels": [6, 8, 12, 12],
                                  **LTX_TIMED, "decoder_inject_noise": [True, True, True, False]}),
    "ltx_vae_095": (ltx_vae_095, {"_class_name": "AutoencoderKLLTXVideo", "latent_channels": 8, "block_out_channels": [6, 12, 12, 16, 16],
                                  **LTX_TIMED, "down_block_types": ["LTXVideo095DownBlock3D"] * 4, "layers_per_block": [1] * 5,
                                  "spatio_temporal_scaling": [True] * 4,
                                  "downsample_type": ["spatial", "temporal", "spatiotemporal", "spatiotemporal"]}),
    "ltx2_vae": (ltx2_vae, {"_class_name": "AutoencoderKLLTX2Video", "latent_channels": 4, "block_out_channels": [8, 8, 16, 16],
                            "layers_per_block": [1] * 5, "decoder_block_out_channels": [8, 16, 32], "decoder_layers_per_block": [1] * 4}),
    "ltx": (ltx, {"_class_name": "LTXVideoTransformer3DModel", **TINY_DIT, "num_layers": 2, "cross_attention_dim": 32,
                  "caption_channels": 24, "in_channels": 8, "out_channels": 8}),
    "ltx2": (ltx2, {"_class_name": "LTX2VideoTransformer3DModel", **TINY_DIT, "num_layers": 2, "caption_channels": 24, "in_channels": 8,
                    "out_channels": 8, "audio_in_channels": 4, "audio_out_channels": 4, "audio_num_attention_heads": 2,
                    "audio_attention_head_dim": 8, "gated_attn": True, "audio_cross_attn_mod": True}),
    "ltx2_audio_vae": (lambda n: "audio_vae." + n, {"_class_name": "AutoencoderKLLTX2Audio", "base_channels": 8, "num_res_blocks": 1,
                                                    "latent_channels": 2, "mel_bins": 16}),
    "ltx2_connectors": (ltx2_connectors, {"_class_name": "LTX2TextConnectors", "caption_channels": 12, "text_proj_in_factor": 4,
                                          "video_connector_num_layers": 1, "audio_connector_num_layers": 2, **TINY_CONNECTORS}),
    "ltx23_connectors": (ltx2_connectors, {"_class_name": "LTX2TextConnectors", "caption_channels": 12, "text_proj_in_factor": 4,
                                           "video_connector_num_layers": 1, "audio_connector_num_layers": 1, "video_gated_attn": True,
                                           "per_modality_projections": True, "video_hidden_dim": 12, "audio_hidden_dim": 12, **TINY_CONNECTORS}),
    "ltx2_vocoder": (ltx2_vocoder, {"_class_name": "LTX2Vocoder", **TINY_VOCODER}),
    "ltx23_vocoder": (ltx2_vocoder, {"_class_name": "LTX2VocoderWithBWE", **TINY_VOCODER, **{"bwe_" + k: v for k, v in TINY_VOCODER.items()},
                                     "bwe_upsample_factors": [3, 4], "bwe_upsample_kernel_sizes": [7, 8], "act_fn": "snakebeta", "bwe_act_fn": "snakebeta",
                                     "antialias": True, "bwe_antialias": True, "filter_length": 8, "hop_length": 6, "window_length": 8,
                                     "num_mel_channels": 4, "input_sampling_rate": 240, "output_sampling_rate": 480}),
    "cosmos1": (cosmos1, {"_class_name": "CosmosTransformer3DModel", **TINY_DIT, "num_layers": 2, "text_embed_dim": 20,
                          "adaln_lora_dim": 6, "max_size": [8, 16, 12], "extra_pos_embed_type": "learnable"}),
    "cosmos2": (cosmos2, {"_class_name": "CosmosTransformer3DModel", **TINY_DIT, "num_layers": 2, "text_embed_dim": 20,
                          "adaln_lora_dim": 6, "max_size": [8, 16, 12], "extra_pos_embed_type": None}),
    "cosmos25": (cosmos2, {"_class_name": "CosmosTransformer3DModel", **TINY_DIT, "num_layers": 2, "text_embed_dim": 20,
                           "adaln_lora_dim": 6, "max_size": [8, 16, 12], "extra_pos_embed_type": None, "use_crossattn_projection": True,
                           "crossattn_proj_in_channels": 28, "encoder_hidden_states_channels": 20}),
    "cosmos_transfer": (cosmos_transfer, {
        "_class_name": "CosmosTransformer3DModel", **COSMOS25, "in_channels": 5, "out_channels": 4, "controlnet_block_every_n": 2,
        "controlnet": {**COSMOS25, "n_controlnet_blocks": 2, "in_channels": 10, "latent_channels": 6, "model_channels": 32}, "num_layers": 3}),
    "sana_video": (sana_video, {"_class_name": "SanaVideoTransformer3DModel", "num_attention_heads": 2, "attention_head_dim": 12,
                                "num_cross_attention_heads": 2, "cross_attention_head_dim": 12, "cross_attention_dim": 24, "caption_channels": 10,
                                "num_layers": 2, "in_channels": 4, "out_channels": 4, "mlp_ratio": 1.5}),
    "mochi": (mochi, {"_class_name": "MochiTransformer3DModel", **TINY_DIT, "num_layers": 2, "pooled_projection_dim": 20,
                      "in_channels": 4, "text_embed_dim": 24, "time_embed_dim": 32, "max_sequence_length": 8}),
    "flux": (flux, {"_class_name": "FluxTransformer2DModel", **TINY_DIT, "num_layers": 2, "num_single_layers": 2, "in_channels": 8,
                    "joint_attention_dim": 20, "pooled_projection_dim": 12, "guidance_embeds": True, "axes_dims_rope": [4, 6, 6]}),
    "flux2": (flux2, {"_class_name": "Flux2Transformer2DModel", **TINY_DIT, "num_layers": 2, "num_single_layers": 2, "in_channels": 8,
                      "joint_attention_dim": 20, "timestep_guidance_channels": 8, "axes_dims_rope": [4, 4, 4, 4]}),
    "chroma": (chroma, {"_class_name": "ChromaTransformer2DModel", **TINY_DIT, "num_layers": 2, "num_single_layers": 2, "in_channels": 8,
                        "joint_attention_dim": 20, "axes_dims_rope": [4, 6, 6], "approximator_num_channels": 16,
                        "approximator_hidden_dim": 12, "approximator_layers": 2}),
    "cog": (sat, {"_class_name": "CogVideoXTransformer3DModel", **TINY_DIT, "num_layers": 2, "text_embed_dim": 12, "in_channels": 4,
                  "out_channels": 4, "time_embed_dim": 16, "max_text_seq_length": 6}),
    "cog_i2v": (sat, {"_class_name": "CogVideoXTransformer3DModel", **TINY_DIT, "num_layers": 1, "text_embed_dim": 12, "in_channels": 8,
                      "out_channels": 4, "time_embed_dim": 16, "max_text_seq_length": 6, "sample_height": 8, "sample_width": 8,
                      "sample_frames": 5, "use_rotary_positional_embeddings": True, "use_learned_positional_embeddings": True}),
    "cog15_i2v": (sat, {"_class_name": "CogVideoXTransformer3DModel", **TINY_DIT, "num_layers": 1, "text_embed_dim": 12,
                        "in_channels": 8, "out_channels": 4, "time_embed_dim": 16, "ofs_embed_dim": 16, "patch_size_t": 2,
                        "patch_bias": False, "use_rotary_positional_embeddings": True}),
    "cog_vae": (video_ldm_vae, {"_class_name": "AutoencoderKLCogVideoX", "block_out_channels": [8, 8, 12, 16], "layers_per_block": 1,
                                "norm_num_groups": 4, "latent_channels": 4}),
    "hunyuan_vae": (comfy_hunyuan_vae, {"_class_name": "AutoencoderKLHunyuanVideo", "block_out_channels": [8, 12, 16, 16],
                                        "layers_per_block": 1, "norm_num_groups": 4, "latent_channels": 4}),
    "hunyuan15": (hunyuan15, {"_class_name": "HunyuanVideo15Transformer3DModel", **TINY_DIT, "num_layers": 2, "num_refiner_layers": 2,
                              "in_channels": 9, "out_channels": 4, "text_embed_dim": 10, "text_embed_2_dim": 6, "image_embed_dim": 7,
                              "text_embed_2_hidden_dim": 9, "rope_axes_dim": [4, 6, 6]}),
    "hunyuan15_vae": (hunyuan15_vae, {"_class_name": "AutoencoderKLHunyuanVideo15", "latent_channels": 4,
                                      "block_out_channels": [8, 16, 16, 16], "layers_per_block": 1, "spatial_compression_ratio": 8}),
    "dc_ae": (dc_ae, {"_class_name": "AutoencoderDC", "latent_channels": 4, "attention_head_dim": 4, "downsample_block_type": "conv",
                      "upsample_block_type": "interpolate"} | {f"{half}_{key}": value for half in ("encoder", "decoder") for key, value in (
                          ("block_types", ["ResBlock", "EfficientViTBlock"]), ("block_out_channels", [4, 8]), ("layers_per_block", [2, 1]),
                          ("qkv_multiscales", [[], [5]]))}),
    "wfvae": (as_it_is, {"_class_name": "WFVAEModel", "latent_dim": 2, "base_channels": 4, "encoder_num_resblocks": 1,
                         "encoder_energy_flow_hidden_size": 3, "decoder_num_resblocks": 1, "decoder_energy_flow_hidden_size": 4}),
    "opensora_vae": (as_it_is, {"_class_name": "VideoAutoencoderPipeline", "block_out_channels": [4, 8], "layers_per_block": 1, "norm_num_groups": 2,
                                "filters": 4, "num_res_blocks": 1, "num_groups": 2, "micro_frame_size": 17}),
    "z_image": (z_image, {"_class_name": "ZImageTransformer2DModel", "dim": 48, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 2, "in_channels": 4,
                          "cap_feat_dim": 10, "axes_dims": [8, 8, 8], "t_embedder_mid_dim": 12}),
    "qwen_image": (as_it_is, {"_class_name": "QwenImageTransformer2DModel", **TINY_DIT, "num_layers": 2, "in_channels": 16, "out_channels": 4,
                              "joint_attention_dim": 10, "axes_dims_rope": [4, 6, 6]}),
    "kandinsky5": (as_it_is, {"_class_name": "Kandinsky5Transformer3DModel", "in_visual_dim": 4, "out_visual_dim": 4, "in_text_dim": 10, "in_text_dim2": 6,
                              "time_dim": 8, "model_dim": 24, "ff_dim": 32, "num_text_blocks": 1, "num_visual_blocks": 2, "axes_dims": [4, 4, 4]}),
    "framepack": (as_it_is, {"_class_name": "HunyuanVideoFramepackTransformer3DModel", **TINY_DIT, "num_layers": 2, "num_single_layers": 2,
                             "num_refiner_layers": 1, "in_channels": 4, "out_channels": 4, "text_embed_dim": 10, "pooled_projection_dim": 6,
                             "image_proj_dim": 7, "rope_axes_dim": [4, 6, 6]}),
    "suv": (as_it_is, {"_class_name": "SparseUMMDiT", "num_layers": [2, 2, 2], "sparse_n": [1, 2, 1], "num_heads": 2, "head_dim": 16,
                       "in_channels": 4, "out_channels": 4, "timestep_embed_dim": 8, "caption_channels": 10, "pooled_projection_dim": 6}),
    "motif_video": (as_it_is, {"_class_name": "MotifVideoTransformer3DModel", **TINY_DIT, "num_layers": 2, "num_single_layers": 3,
                               "num_decoder_layers": 1, "in_channels": 9, "out_channels": 4, "text_embed_dim": 10, "image_embed_dim": 7,
                               "rope_axes_dim": [4, 6, 6], "enable_text_cross_attention_dual": True, "enable_text_cross_attention_single": True}),
    "sd_vae": (ldm_vae, {"_class_name": "AutoencoderKL", "block_out_channels": [8, 16, 24, 24], "layers_per_block": 2,
                         "norm_num_groups": 4}),
    "flux2_vae": (flux2_vae, {"_class_name": "AutoencoderKLFlux2", "block_out_channels": [8, 16, 24, 24], "layers_per_block": 1,
                              "latent_channels": 4, "norm_num_groups": 4}),
    "sd_unet": (ldm_unet, {"_class_name": "UNet2DConditionModel", "sample_size": 8, "block_out_channels": [8, 12, 16, 16],
                           "norm_num_groups": 4, "cross_attention_dim": 10, "attention_head_dim": 2}),
}


def write(path, tensors):
    """tensors: name to (shape, bytes of f32)"""
    head, at = {}, 0
    for name, (shape, data) in tensors.items():
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values()))


def f32(values):
    return struct.pack("<%df" % len(values), *values)


def merged(shape, data, up, down, scale):
    """W + scale up down, rounded once: up and down are small fractions."""
    rows, columns = shape
    base = struct.unpack("<%df" % (rows * columns), data)
    return shape, f32([base[r * columns + c] + scale * sum(up[r * RANK + k] * down[k * columns + c] for k in range(RANK))
                       for r in range(rows) for c in range(columns)])


RANK, ALPHA = 2, 4


COPY = 90  # index of a layer whose module of theirs is another layer's, too


def make_adapters(folder, truth, theirs_of):
    """LoRA of each linear layer in the names of diffusers, ComfyUI and kohya, and the merged weights."""
    own, modules, out = {}, {}, {}
    for name, (shape, data) in truth.items():
        name = name[len("param."):]
        new = theirs_of(name)
        if len(shape) != 2 or not name.endswith(".weight") or (isinstance(new, tuple) and len(new) > 2):
            continue
        module = re.sub(r"^(model\.diffusion_model|net)\.", "", (new[0] if isinstance(new, tuple) else new)[:-len(".weight")])
        parts = modules.setdefault(module, {})
        parts[new[1] if isinstance(new, tuple) else COPY * len(parts)] = (name, shape, data)
    comfy, kohya = {}, {}
    for module, parts in modules.items():
        columns, ups = parts[min(parts)][1][1], []
        down = [(i * 3 % 5 - 2) / 16 for i in range(RANK * columns)]
        for i in sorted(parts):
            name, shape, data = parts[i]
            up = [((r + i % COPY) * 5 % 7 - 3) / 8 for r in range(RANK * shape[0])]
            out["merged_plain." + name] = merged(shape, data, up, down, 1)
            out["merged_alpha." + name] = merged(shape, data, up, down, ALPHA / RANK)
            own[f"transformer.{name[:-7]}.lora_A.weight"] = ([RANK, columns], f32(down))
            own[f"transformer.{name[:-7]}.lora_B.weight"] = ([shape[0], RANK], f32(up))
            half = len(up) // 2 if "~" in module else 0
            ups += up[half:] + up[:half] if i < COPY else []
        module, flat = module.replace("~", ""), module.replace("~", "").replace(".", "_")
        down, up = ([RANK, columns], f32(down)), ([len(ups) // RANK, RANK], f32(ups))
        comfy.update({f"diffusion_model.{module}.lora_A.weight": down, f"diffusion_model.{module}.lora_B.weight": up})
        kohya.update({f"lora_unet_{flat}.lora_down.weight": down, f"lora_unet_{flat}.lora_up.weight": up,
                      f"lora_unet_{flat}.alpha": ([], f32([ALPHA]))})
    os.makedirs(folder, exist_ok=True)
    for file, tensors in ("diffusers_plain", own), ("comfy_plain", comfy), ("kohya", kohya):
        write(f"{folder}/{file}.safetensors", tensors)
    return out


def make(weft, key, theirs_of, config):
    stem, names = f"dialect_original_{key}", random.Random(key)
    os.makedirs(f"dialects/{stem}", exist_ok=True)
    with open("config.json", "w") as f:
        json.dump(config, f)
    with open(f"{stem}.json", "w") as f:
        json.dump({"_class_name": f"dialects of {config['_class_name']}", "config": config}, f)
    listing = subprocess.run([weft, "inspect", "model", "config.json", "--tensors"], check=True, capture_output=True, text=True)
    truth, theirs, fused = {}, {}, {}
    for line in listing.stdout.splitlines():
        name, _, *rest = line.split()
        shape = [int(n) for n in re.findall(r"\d+", " ".join(rest))]
        count = 1
        for n in shape:
            count *= n
        data = struct.pack("<I", names.getrandbits(24)) + names.randbytes(4 * count)[4:]
        data = bytes(b & 0xbf if i % 4 == 3 else b for i, b in enumerate(data))  # finite
        truth["param." + name] = (shape, data)
        new = theirs_of(name)
        if isinstance(new, tuple):
            shape = shape + [1, 1] if key == "dc_ae" else shape
            half = len(data) // 2 if len(new) > 2 else len(data)  # in turn: all first halves, then all second ones
            of = fused.setdefault(new[0], {})
            of[new[1]] = (shape, data[:half])
            of[new[1] + 9] = ([0], data[half:])
            continue
        if "~" in new:
            new = new.replace("~", "")
            data = data[len(data) // 2:] + data[:len(data) // 2]
        if key == "wan_animate" and re.search(r"net_app\..*\.bias$", new):
            shape = [1] + shape + [1, 1]
        if key in ("sd_vae", "flux2_vae") and re.search(r"attn_1\.(q|k|v|proj_out)\.weight", new):
            shape = shape + [1, 1]
        if key == "dc_ae" and re.search(r"(qkv|proj)\.conv\.weight", new):
            shape = shape + [1, 1]
        if key == "hunyuan_vae" and re.search(r"attn_1\.(q|k|v|proj_out)\.weight", new):
            shape = shape + [1, 1, 1]
        assert new not in theirs or key == "cosmos_transfer", name
        theirs.setdefault(new, (shape, data))
        if key == "cosmos_transfer":
            truth["param." + name] = theirs[new]
    for name, parts in fused.items():
        parts = [parts[i] for i in sorted(parts)]
        theirs[name] = ([sum(s[0] for s, _ in parts)] + parts[0][0][1:], b"".join(d for _, d in parts))
    if key == "wan_animate":  # the blurs, which are the same in every file
        for block in range(1, 8):
            for layer in "conv2", "skip":
                theirs[f"motion_encoder.enc.net_app.convs.{block}.{layer}.0.kernel"] = ([4, 4], bytes(64))
    if key == "wfvae":  # the filters of the wavelets, which are constants
        for filter in "encoder.wavelet_transform_in.h_conv.conv.weight", "decoder.inverse_wavelet_transform_out.gh_v":
            theirs[filter] = ([1, 1, 2, 2, 2], bytes(32))
        for filter in "encoder.wavelet_transform_l1.aa", "decoder.inverse_wavelet_transform_l1.dd":
            theirs[filter] = ([1, 1, 2, 2], bytes(16))
    if key == "flux2_vae":  # mean and variance of the latents
        for theirs_name, name in ("bn.running_mean", "latents_mean"), ("bn.running_var", "latents_variance"):
            theirs[theirs_name] = truth["param." + name] = ([16], f32([1 + i / 8 for i in range(16)]))
    if key == "opensora_vae":  # values of the config
        theirs |= {name: ([1, 4, 1, 1, 1], bytes(16)) for name in ("scale", "shift")}
    if key == "suv":  # layers of the last block's text, which have no effect
        for layer in "attn1.to_add_out.weight", "norm2.norm_enc.bias", "ff_enc.net.0.proj.weight":
            theirs["transformer_blocks.2.1." + layer] = ([4], bytes(16))
    if key == "cog":  # a table that is computed
        theirs["model.diffusion_model.mixins.pos_embed.pos_embedding"] = ([1, 3, 32], bytes(4 * 96))
    if key == "cog_vae":
        theirs["loss.discriminator.weight"] = ([4], bytes(16))
    if key.startswith("cosmos"):  # what is beside the model's
        theirs["net.pos_embedder.seq"] = ([4], bytes(16))
    if key == "cosmos_transfer":  # state of layers that keep their activations in 8 bits
        theirs["net.blocks.0.self_attn.q_norm._extra_state"] = ([4], bytes(16))
    if key == "cosmos1":
        theirs["net.logvar.1.weight"] = ([1, 4], bytes(16))
    if key == "cosmos2":
        theirs["net.accum_iteration"] = ([], bytes(4))
    if "Transformer" in config["_class_name"] or key == "suv":
        truth.update(make_adapters(f"dialects/{stem}/lora", truth, theirs_of))
    write(f"dialects/{stem}/truth.safetensors", truth)
    write(f"dialects/{stem}/original.safetensors", theirs)


for key, (theirs_of, config) in FAMILIES.items():
    make(sys.argv[1], key, theirs_of, config)
