"""Videos by diffusers' modules in PyTorch, with the weights of weft generate, eager, f32 (bf16: the transformer in bf16).

    peer_generate.py make NAME FOLDER               a pipeline of random weights: wan, hunyuan, latte, vae (Wan 2.1's at full width)
    peer_generate.py run FOLDER FRAMES HEIGHT WIDTH STEPS [bf16]
    peer_generate.py decode FOLDER FRAMES HEIGHT WIDTH [tiled]

run and decode print "seconds of a step<TAB>seconds of decoding<TAB>peak memory in MiB" of a process
that does nothing else. make also needs transformers and runs from the root of the checkout."""
import os
import resource
import sys
import time

import torch

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
torch.manual_seed(0)
torch.set_grad_enabled(False)


def make(name, folder):
    sys.path.insert(0, "tools")
    sys.argv[1:] = ["nothing"]  # else it makes the golden files of that name anew
    import golden_pipeline as g
    vae = g.AutoencoderKLWan() if name == "vae" else g.AutoencoderKLWan(base_dim=32, num_res_blocks=1)
    if name in ("wan", "vae"):
        wide = dict(num_attention_heads=8, attention_head_dim=64, ffn_dim=2048, num_layers=8) if name == "wan" else \
            dict(num_attention_heads=1, attention_head_dim=12, ffn_dim=16, num_layers=1)
        dit = g.WanTransformer3DModel(patch_size=(1, 2, 2), in_channels=16, out_channels=16, text_dim=16, freq_dim=256, **wide)
        pipe = g.WanPipeline(tokenizer=g.unigram(), text_encoder=g.umt5(), transformer=g.weights(dit, 1), vae=g.weights(vae, 2),
                             scheduler=g.unipc())
    elif name == "hunyuan":
        dit = g.HunyuanVideoTransformer3DModel(num_attention_heads=8, attention_head_dim=64, num_layers=3, num_single_layers=6,
                                               num_refiner_layers=1, text_embed_dim=16, pooled_projection_dim=8, rope_axes_dim=(16, 24, 24))
        vae = g.AutoencoderKLHunyuanVideo(block_out_channels=(32, 64, 128, 128), layers_per_block=1, norm_num_groups=8)
        llama = g.LlamaModel(g.LlamaConfig(vocab_size=262, hidden_size=16, intermediate_size=32, num_hidden_layers=3,
                                           num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5, pad_token_id=0))
        clip = g.CLIPTextModel(g.CLIPTextConfig(vocab_size=262, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
                                                num_attention_heads=2, eos_token_id=4, bos_token_id=1, pad_token_id=0))
        pipe = g.HunyuanVideoPipeline(text_encoder=g.weights(llama, 3), tokenizer=g.llama(), transformer=g.weights(dit, 1),
                                      vae=g.weights(vae, 2), scheduler=g.FlowMatchEulerDiscreteScheduler(shift=7.0),
                                      text_encoder_2=g.weights(clip, 4), tokenizer_2=g.llama())
    elif name == "latte":
        dit = g.LatteTransformer3DModel(num_attention_heads=8, attention_head_dim=64, in_channels=4, out_channels=8, num_layers=8,
                                        cross_attention_dim=512, attention_bias=True, sample_size=24, patch_size=2, video_length=16,
                                        norm_type="ada_norm_single", norm_elementwise_affine=False, activation_fn="gelu-approximate",
                                        caption_channels=16)
        vae = g.AutoencoderKL(block_out_channels=(32, 64, 128, 128), down_block_types=("DownEncoderBlock2D",) * 4,
                              up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, latent_channels=4, norm_num_groups=8)
        pipe = g.LattePipeline(tokenizer=g.unigram(), text_encoder=g.umt5(g.T5EncoderModel, g.T5Config), transformer=g.weights(dit, 1),
                               vae=g.weights(vae, 2), scheduler=g.DDIMScheduler(beta_schedule="linear", clip_sample=False))
    else:
        sys.exit(f"{name}: known are wan, hunyuan, latte and vae")
    pipe.save_pretrained(folder)


def modules(folder):
    import json

    import diffusers
    from safetensors.torch import load_file
    index = json.load(open(f"{folder}/model_index.json"))

    def load(part):  # not from_pretrained, which wants accelerate for some
        kind = getattr(diffusers, index[part][1])
        model = kind.from_config(kind.load_config(f"{folder}/{part}"))
        model.load_state_dict(load_file(f"{folder}/{part}/diffusion_pytorch_model.safetensors"), assign=True)
        return model

    return index, load


def latents(vae, frames, height, width):
    if "block_out_channels" in vae.config and vae.config._class_name == "AutoencoderKL":  # of pictures, one by one
        return torch.randn(1, vae.config.latent_channels, frames, height // 8, width // 8)
    t, s = (vae.config.scale_factor_temporal, vae.config.scale_factor_spatial) if hasattr(vae.config, "scale_factor_temporal") else \
        (vae.config.temporal_compression_ratio, vae.config.spatial_compression_ratio)
    channels = vae.config.get("z_dim") or vae.config.latent_channels
    return torch.randn(1, channels, (frames - 1) // t + 1, height // s, width // s)


def told(index, dit):
    """A prompt of 226 tokens: what the transformer is given beside latents and time."""
    c = dit.config
    if index["transformer"][1] == "HunyuanVideoTransformer3DModel":
        return 1, {"encoder_hidden_states": torch.randn(1, 256, c.text_embed_dim), "pooled_projections": torch.randn(1, c.pooled_projection_dim),
                   "encoder_attention_mask": torch.ones(1, 256, dtype=torch.long), "guidance": torch.tensor([6000.0])}
    if index["transformer"][1] == "LatteTransformer3DModel":
        return 2, {"encoder_hidden_states": torch.randn(2, 6, c.caption_channels), "enable_temporal_attentions": True}
    return 2, {"encoder_hidden_states": torch.randn(2, 512, c.text_dim)} # two guidance halves


def report(step, decode):
    print(f"{step:.4f}\t{decode:.3f}\t{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def decode_of(vae, x):
    begin = time.perf_counter()
    if vae.config._class_name == "AutoencoderKL":
        for t in range(0, x.shape[2], 14):  # as its pipeline does
            vae.decode(x[0, :, t:t + 14].transpose(0, 1))
    else:
        vae.decode(x)
    return time.perf_counter() - begin


def run(folder, frames, height, width, steps, bf16=False):
    index, load = modules(folder)
    dit, vae = load("transformer").eval(), load("vae").eval()
    x = latents(vae, frames, height, width)
    rows, given = told(index, dit)
    if bf16:
        dit, x = dit.bfloat16(), x.bfloat16()
        given = {name: v.bfloat16() if torch.is_tensor(v) and v.is_floating_point() else v for name, v in given.items()}
    took = []
    for i in range(steps):
        begin = time.perf_counter()
        answer = dit(hidden_states=x.expand(rows, -1, -1, -1, -1), timestep=torch.full((rows,), 900.0 - i), return_dict=False, **given)[0]
        answer = answer[:, :x.shape[1]]  # Latte's has a variance behind it
        if rows == 2:
            answer = answer[1:] + 4 * (answer[:1] - answer[1:])
        x = x - answer / steps
        took.append(time.perf_counter() - begin)
    report(sum(took) / len(took), decode_of(vae, x.float()))


def decode(folder, frames, height, width, tiled):
    _, load = modules(folder)
    vae = load("vae").eval()
    if tiled:
        vae.enable_tiling()
    report(0, decode_of(vae, latents(vae, frames, height, width)))


if sys.argv[1] == "make":
    make(*sys.argv[2:])
elif sys.argv[1] == "run":
    run(sys.argv[2], *map(int, sys.argv[3:7]), sys.argv[7:] == ["bf16"])
else:
    decode(sys.argv[2], *map(int, sys.argv[3:6]), sys.argv[6:] == ["tiled"])
