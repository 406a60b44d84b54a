#include "train/config/train_config.h"

#include "kernel/cpu/table.h"
#include "kernel/device.h"
#include "kernel/host.h"
#include "kernel/kernel.h"
#include "kernel/registry/backend.h"
#include "model/adapter.h"
#include "model/adapter_write.h"
#include "model/critics/patchgan.h"
#include "model/registry.h"
#include "train/config/identity_config.h"
#include "train/config/packing_config.h"
#include "transform/sharding/mesh_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* `...`: the maximum, then further members. */
#define I64(type, field, name, fallback, unit, help, low, ...)                                     \
    {                                                                                              \
        name, WEFT_KEY_I64, offsetof(type, field), fallback, unit, help, .min = low,               \
                                                                         .max = __VA_ARGS__        \
    }
#define F64(type, field, name, fallback, unit, help, low, ...)                                     \
    {                                                                                              \
        name, WEFT_KEY_F64, offsetof(type, field), fallback, unit, help, .min = low,               \
                                                                         .max = __VA_ARGS__        \
    }

/* ---- tables -------------------------------------------------------------------------------- */

/* Keys of all models. */
#define MODEL_KEYS                                                                                 \
    {"class",                                                                                      \
     WEFT_KEY_STRING,                                                                              \
     offsetof(weft_run_model, class_name),                                                         \
     "",                                                                                           \
     "",                                                                                           \
     "class of a new model; `--help models` lists the classes"},                                   \
        {"config", WEFT_KEY_TREE, offsetof(weft_run_model, config),                                \
         .help =                                                                                   \
             "fields of the class's public config.json; a missing field has the public default, "  \
             "and channels and widths follow the connected models"},                               \
    {                                                                                              \
        "weights", WEFT_KEY_STRING, offsetof(weft_run_model, weights), "", "",                     \
            "folder of a trained model (config.json and weights), in place of class and config"    \
    }
#define GONE(name, instead)                                                                        \
    {                                                                                              \
        name, WEFT_KEY_GONE, .help = instead                                                       \
    }

#define TRAINABLE_KEYS                                                                             \
    {"trainable",                                                                                  \
     WEFT_KEY_STRING_LIST,                                                                         \
     offsetof(weft_run_model, trained),                                                            \
     "[]",                                                                                         \
     "",                                                                                           \
     "parameters to train, with weights; names of parameters or modules, ends of names, or "       \
     "patterns with *. Empty: all",                                                                \
     .earlier = "train"},                                                                          \
    {                                                                                              \
        "freeze", WEFT_KEY_STRING_LIST, offsetof(weft_run_model, freeze), "[]", "",                \
            "parameters to freeze, with weights; they have no gradients, moments or EMA and are "  \
            "not in checkpoints"                                                                   \
    }

static const weft_key autoencoder_keys[] = {
    MODEL_KEYS,
    TRAINABLE_KEYS,
    {"tile", WEFT_KEY_STRING, offsetof(weft_run_model, tile), "off", "pixels",
     "size and overlap of the tiles that encode a clip, e.g. 256x256+64, with a "
     "transformer; on: as the model's reference. off: whole clips"},
};
static const weft_section autoencoder_section = {
    "autoencoder", "video autoencoder; trained if no transformer is given", sizeof(weft_run_model),
    autoencoder_keys, WEFT_COUNT(autoencoder_keys)};

static const char *const dtype_names[] = {"f32", "bf16", NULL};
static const char *const precision_names[] = {"f32", "bf16", "auto", "tf32", NULL};
static const weft_key lora_keys[] = {
    {"rank", WEFT_KEY_I64, offsetof(weft_run_lora, rank), "0", "",
     "rank of the LoRA matrices, which are the only parameters that train. 0: no LoRA, the "
     "transformer itself is trained",
     .min = 0, .max = 65536, .also = "r"},
    {"alpha", WEFT_KEY_F64, offsetof(weft_run_lora, alpha), "0", "",
     "scale of LoRA is alpha / rank; 0: scale 1", .min = 0, .max = 1e6, .also = "lora_alpha"},
    {"rslora", WEFT_KEY_BOOL, offsetof(weft_run_lora, rooted), "false", "",
     "scale by alpha / sqrt(rank); the exported file has an alpha with the same effect",
     .also = "use_rslora"},
    {"targets", WEFT_KEY_STRING_LIST, offsetof(weft_run_lora, targets), "[auto]", "",
     "linear layers with LoRA; names, ends of names, or patterns with *. auto: the projections of "
     "attention, by the names of the model's family. all-linear: every layer",
     .also = "target_modules"},
    {"base", WEFT_KEY_ENUM, offsetof(weft_run_lora, base), "f32", "",
     "type of the frozen weights of linear layers in memory; products are f32 in any case",
     .choices = dtype_names},
    {"format", WEFT_KEY_ENUM, offsetof(weft_run_lora, format), "diffusers", "",
     "tensor names of the exported adapter in <out>/adapter", .choices = weft_adapter_formats},
};
static const weft_section lora_section = {"lora",
                                          "train low-rank matrices in place of the weights (LoRA)",
                                          sizeof(weft_run_lora), lora_keys, WEFT_COUNT(lora_keys)};

#define IN_CONFIG "write transformer: {class: CLASS, config: {...}} with it in config"
static const weft_key transformer_keys[] = {
    MODEL_KEYS,
    TRAINABLE_KEYS,
    {"lora", WEFT_KEY_SECTION, offsetof(weft_run_model, lora), .section = &lora_section},
    GONE("num_layers", IN_CONFIG),
    GONE("num_attention_heads", IN_CONFIG),
    GONE("attention_head_dim", IN_CONFIG),
    GONE("ffn_dim", IN_CONFIG),
    GONE("freq_dim", IN_CONFIG),
    GONE("patch_size", IN_CONFIG),
    GONE("init", "write transformer: {weights: FOLDER/transformer}, and text_encoders: [{weights: "
                 "FOLDER/text_encoder, train: true}] to train both further"),
};
static const weft_section transformer_section = {
    "transformer", "the denoiser; if given, the transformer is trained, not the autoencoder",
    sizeof(weft_run_model), transformer_keys, WEFT_COUNT(transformer_keys)};

static const weft_key text_keys[] = {
    MODEL_KEYS,
    {"train", WEFT_KEY_BOOL, offsetof(weft_run_model, train), "false", "",
     "train the text encoder, with weights; otherwise it is frozen and its embeddings of "
     "captions are cached with the latents"},
    {"tokenizer", WEFT_KEY_STRING, offsetof(weft_run_model, tokenizer), "", "",
     "tokenizer.json, spiece.model, vocab.json or vocab.txt, or their folder; empty: the "
     "folder of the weights, or `tokenizer` next to it. WeftBytesEncoder needs none"},
    {"connectors", WEFT_KEY_STRING, offsetof(weft_run_model, connectors), "", "",
     "folder of the frozen text connectors between the encoder and LTX-2; empty: `connectors` "
     "next to the weights"},
    I64(weft_run_model, length, "max_length", "0", "tokens",
        "maximum length of a caption; longer captions are truncated. 0: the length with which "
        "the transformer's family is published",
        0, 65536, .earlier = "length"),
};
static const weft_section text_section = {
    "text_encoder",
    "text encoders of the transformer; in the order of its pipeline if the transformer "
    "takes several",
    sizeof(weft_run_model), text_keys, WEFT_COUNT(text_keys)};

static const weft_key identity_keys[] = {
    MODEL_KEYS,
    F64(weft_run_model, dropout, "dropout", "0.1", "",
        "share of samples without the images; its product with caption_dropout is the share "
        "without any conditioning, which trains the unconditional branch",
        0, 1),
    {"images", WEFT_KEY_STRING_LIST, offsetof(weft_run_model, images), "[]", "",
     "data sets with reference images of the clips, under the keys of data.path; a set may lack "
     "clips, but each clip needs an image of some set. Empty: the clip's first frame"},
    {"image_encoder", WEFT_KEY_STRING, offsetof(weft_run_model, image_encoder), "", "",
     "folder of a CLIP image encoder (CLIPVisionModel, CLIPVisionModelWithProjection or "
     "CLIPModel), which is frozen; config.features chooses its features. Empty: the identity "
     "encoder reads the autoencoder's latents"},
};
static const weft_section identity_section = {
    "identity",
    "identity encoder; its tokens of reference images, or of a clip's first frame, are added to "
    "the tokens of the text, for `weft generate --identity-image`",
    sizeof(weft_run_model), identity_keys, WEFT_COUNT(identity_keys)};

static const weft_key lpips_keys[] = {
    F64(weft_run_lpips, weight, "weight", "0", "", "weight of the LPIPS distance. 0: no LPIPS", 0,
        1e6),
    {"backbone", WEFT_KEY_STRING, offsetof(weft_run_lpips, trunk), "", "",
     "file of the backbone; torchvision's vgg16 or alexnet (.pth or safetensors)",
     .earlier = "trunk"},
    {"heads", WEFT_KEY_STRING, offsetof(weft_run_lpips, heads), "", "",
     "file of the linear heads of the package lpips (weights/v0.1/vgg.pth or alex.pth)"},
};
static const weft_section lpips_section = {"lpips", "perceptual distance of frames (LPIPS)",
                                           sizeof(weft_run_lpips), lpips_keys,
                                           WEFT_COUNT(lpips_keys)};

static const weft_key adversarial_keys[] = {
    F64(weft_run_adversarial, weight, "weight", "0", "",
        "weight of the discriminator's loss. 0: no discriminator", 0, 1e6),
    I64(weft_run_adversarial, start, "start_step", "0", "steps",
        "step at which the discriminator starts to train and to count", 0, 1e12,
        .earlier = "start"),
    I64(weft_run_adversarial, channels, "base_channels", "64", "",
        "channels of the first layer; they double up to eight times this number", 1, 4096,
        .earlier = "channels"),
    I64(weft_run_adversarial, layers, "layers", "3", "",
        "layers between the first and the last; more layers see a larger patch", 1,
        WEFT_PATCHGAN_MAX_LAYERS),
    {"temporal", WEFT_KEY_BOOL, offsetof(weft_run_adversarial, video), "false", "",
     "use 3x3x3 kernels, which see motion; false: 4x4 kernels on single frames",
     .earlier = "video"},
    {"loss", WEFT_KEY_ENUM, offsetof(weft_run_adversarial, loss), "hinge", "",
     "loss of the discriminator", .choices = weft_gan_loss_names},
    {"adaptive", WEFT_KEY_BOOL, offsetof(weft_run_adversarial, adaptive), "true", "",
     "make the weight relative to the gradient of the other terms at the decoder's last "
     "layer"},
    {"weights", WEFT_KEY_STRING, offsetof(weft_run_adversarial, weights), "", "",
     "file or folder of initial weights, such as <out>/model/discriminator of a run"},
};
static const weft_section adversarial_section = {
    "adversarial", "a PatchGAN discriminator that trains with the autoencoder",
    sizeof(weft_run_adversarial), adversarial_keys, WEFT_COUNT(adversarial_keys)};

static const weft_key loss_keys[] = {
    F64(weft_run_loss, l1, "l1", "1", "", "weight of the mean absolute error of pixels in [-1, 1]",
        0, 1e6),
    F64(weft_run_loss, l2, "l2", "1", "", "weight of the mean squared error", 0, 1e6),
    F64(weft_run_loss, kl, "kl", "1e-6", "",
        "weight of the KL divergence, summed over a sample's latent, mean over samples", 0, 1e6),
    {"lpips", WEFT_KEY_SECTION, offsetof(weft_run_loss, lpips), .section = &lpips_section},
    {"adversarial", WEFT_KEY_SECTION, offsetof(weft_run_loss, adversarial),
     .section = &adversarial_section},
};
static const weft_section loss_section = {
    "loss", "objective of the autoencoder; l1, l2, kl, lpips, adversarial", sizeof(weft_run_loss),
    loss_keys, WEFT_COUNT(loss_keys)};

static const char *const lr_names[] = {"constant", "cosine", NULL};
static const weft_key train_stage_keys[] = {
    {"name", WEFT_KEY_STRING, offsetof(weft_train_stage, name), "", "", "name in progress lines"},
    I64(weft_train_stage, steps, "steps", NULL, "", "optimizer steps", 1, 1e12),
    I64(weft_train_stage, accumulate, "gradient_accumulation_steps", "1", "batches",
        "batches per step, whose gradients are added before the optimizer step", 1, 65536,
        .earlier = "accumulate"),
    I64(weft_train_stage, size.batch, "batch", "0", "samples", "samples per batch over all ranks",
        0, 65536),
    I64(weft_train_stage, size.frames, "frames", "0", "frames",
        "frames of a clip; must fit the autoencoder (1 + a multiple of 4)", 0, 65536),
    I64(weft_train_stage, size.height, "height", "0", "pixels",
        "multiple of the autoencoder's factor and the transformer's patch (16)", 0, 16384),
    I64(weft_train_stage, size.width, "width", "0", "pixels",
        "multiple of the autoencoder's factor and the transformer's patch (16)", 0, 16384),
    {"buckets", WEFT_KEY_SECTION_LIST, offsetof(weft_train_stage, buckets),
     .section = &weft_bucket_section},
    I64(weft_train_stage, tokens, "max_tokens", "0", "tokens",
        "upper bound of tokens for buckets without a batch size, over all samples of the "
        "batch. 0: no bound",
        0, 1e12, .earlier = "tokens"),
    F64(weft_train_stage, load, "max_load", "0", "tokens^load_exponent",
        "upper bound of B S^load_exponent for buckets without a batch size, with B samples of "
        "S tokens. Steps of all buckets then take similar time. 0: no bound",
        0, 1e30, .earlier = "load"),
    F64(weft_train_stage, load_power, "load_exponent", "2", "",
        "exponent of max_load; 1: equal tokens, 2: attention dominates. The FLOPs of a model "
        "are between these",
        0, 4, .earlier = "load_power"),
    F64(weft_train_stage, images, "image_share", "-1", "",
        "share of image samples, from buckets of one frame; -1: the share in the data", -1, 1,
        .earlier = "images"),
    F64(weft_train_stage, last_images, "image_share_end", "-1", "",
        "image_share in the last batch of the stage, to which the share changes linearly; -1: the "
        "same share in all batches",
        -1, 1),
    F64(weft_train_stage, shift, "shift", "0", "",
        "flow.shift in this training stage; 0: the run's", 0, 100),
    F64(weft_train_stage, lr, "lr", "3e-4", "", "learning rate", 0, 10),
    F64(weft_train_stage, lr_end, "min_lr_ratio", "0.1", "",
        "final learning rate of the cosine schedule, as a share of lr", 0, 1, .earlier = "lr_end"),
    I64(weft_train_stage, warmup, "warmup_steps", "20", "steps",
        "steps in which the learning rate rises linearly from 0; at most all steps", 0, 1e12,
        .earlier = "warmup"),
    {"lr_schedule", WEFT_KEY_ENUM, offsetof(weft_train_stage, schedule), "cosine", "",
     "learning rate schedule after the warmup", .choices = lr_names, .earlier = "schedule"},
};
static const weft_section train_stage_section = {
    "stage", "training stages in sequence; steps, clip sizes, batch, learning rate",
    sizeof(weft_train_stage), train_stage_keys, WEFT_COUNT(train_stage_keys)};

static const weft_key checkpoint_keys[] = {
    I64(weft_run_checkpoint, every, "interval", "200", "steps",
        "steps between checkpoints; 0: only at the end", 0, 1e12, .earlier = "every"),
    I64(weft_run_checkpoint, keep_latest, "keep_latest", "2", "",
        "number of newest checkpoints to keep", 1, 1e6, .earlier = "keep"),
    {"allow_changes", WEFT_KEY_BOOL, offsetof(weft_run_checkpoint, allow_changes), "false", "",
     "resume although data, an encoder or the sizes of a training stage have changed"},
};
static const weft_section checkpoint_section = {"checkpoint", "interval and number of checkpoints",
                                                sizeof(weft_run_checkpoint), checkpoint_keys,
                                                WEFT_COUNT(checkpoint_keys)};

static const weft_key guard_keys[] = {
    F64(weft_run_guard, factor, "factor", "10", "",
        "ratio of loss or gradient norm to its running mean above which a step is skipped; 0: "
        "skip only values that are not finite",
        0, 1e9),
    I64(weft_run_guard, window, "window", "50", "steps",
        "steps of the running mean; the first ones are never outliers", 1, 1e6),
    I64(weft_run_guard, patience, "patience", "10", "",
        "number of skipped steps in a row that stops the run", 1, 1e6),
};
static const weft_section guard_section = {
    "guard", "outlier steps, slow ranks; when a step is skipped", sizeof(weft_run_guard),
    guard_keys, WEFT_COUNT(guard_keys)};

static const char *const states_names[] = {"resident", "offload", NULL};
static const weft_key memory_keys[] = {
    {"limit", WEFT_KEY_I64, offsetof(weft_memory_config, limit), "0", "bytes",
     "peak memory of a rank's process, e.g. 6GiB; activations are recomputed or offloaded "
     "until the predicted peak fits. 0: no limit. auto: the free memory of the GPU",
     .min = 0, .max = 9e18, .flag_word = "auto", .flag = offsetof(weft_memory_config, limit_auto)},
    {"recompute", WEFT_KEY_STRING_LIST, offsetof(weft_memory_config, recompute), "[auto]", "",
     "patterns of scopes and op names whose results are recomputed in the backward; after "
     "auto, the limit adds the results with the least time per byte. The word auto or none may be "
     "the "
     "whole value"},
    {"profile", WEFT_KEY_STRING, offsetof(weft_memory_config, profile), "", "",
     "profile of `weft profile` for the time of recompute and offload; empty: rates of "
     "this machine, measured at the start"},
    {"offload", WEFT_KEY_STRING, offsetof(weft_memory_config, offload), "none", "",
     "where activations are offloaded if the limit needs it; none, a folder (an unnamed "
     "file is made there), host: host memory of a device with its own. auto: host, or the run's "
     "folder"},
    {"optimizer_states", WEFT_KEY_ENUM, offsetof(weft_memory_config, states), "resident", "",
     "place of moments and EMA; resident, or offload: fetched for each update",
     .choices = states_names, .earlier = "states", .also_values = "kept=resident"},
    {"prefetch_budget", WEFT_KEY_I64, offsetof(weft_memory_config, prefetch_bytes), "0", "bytes",
     "buffers for copies in flight per direction, for values fetched before their use, and "
     "for sharded parameters gathered in advance. 0 (default): bytes of the two largest",
     .min = 0, .max = 9e18, .earlier = "ahead"},
};
static const weft_section memory_section = {"memory", "memory limit, recompute, offload",
                                            sizeof(weft_memory_config), memory_keys,
                                            WEFT_COUNT(memory_keys)};

static const weft_key straggler_keys[] = {
    F64(weft_straggler_config, share, "threshold", "0.3", "",
        "relative excess over the median compute time at which a rank is reported", 0, 1e6,
        .earlier = "share"),
    I64(weft_straggler_config, steps, "window", "50", "steps",
        "steps to average before ranks are compared. 0: no straggler detection", 0, 1e9,
        .earlier = "steps"),
};
static const weft_section straggler_section = {
    "stragglers", "outlier steps, slow ranks; when a rank is reported as slow",
    sizeof(weft_straggler_config), straggler_keys, WEFT_COUNT(straggler_keys)};

static const weft_key parallel_keys[] = {
    WEFT_PARALLEL_KEYS(weft_run, parallel),
    {"cascades", WEFT_KEY_SECTION, offsetof(weft_run, cascades), .section = &weft_cascade_section},
};
static const weft_section parallel_section = {
    "parallel",
    "mesh degrees, pipeline schedule, cascades; the degrees multiply to the number of "
    "ranks. Heads, tokens, samples and widths need not be divisible",
    sizeof(weft_run), parallel_keys, WEFT_COUNT(parallel_keys)};

const char *const weft_condition_names[] = {"none",         "first_frame", "control",
                                            "clean_blocks", "history",     NULL};
static const char *const recompute_words[] = {"auto", "none", NULL};
static const weft_key run_keys[] = {
    {"out", WEFT_KEY_STRING, offsetof(weft_run, out), NULL, "",
     "folder of the run; checkpoints, metrics, and the finished model in <out>/model"},
    I64(weft_run, seed, "seed", "1", "", "random seed of initial weights, noise and data order", 0,
        9e18),
    {"data", WEFT_KEY_SECTION, offsetof(weft_run, data), .section = &weft_run_data_section},
    {"autoencoder", WEFT_KEY_SECTION, offsetof(weft_run, autoencoder),
     .section = &autoencoder_section},
    {"transformer", WEFT_KEY_SECTION, offsetof(weft_run, transformer),
     .section = &transformer_section},
    {"text_encoders", WEFT_KEY_SECTION_LIST, offsetof(weft_run, text_encoders),
     .section = &text_section},
    {"identity", WEFT_KEY_SECTION, offsetof(weft_run, identity), .section = &identity_section},
    {"loss", WEFT_KEY_SECTION, offsetof(weft_run, loss), .section = &loss_section},
    {"process", WEFT_KEY_ENUM, offsetof(weft_run, noise_process), "flow", "",
     "noise process of the transformer", .choices = weft_noise_process_names},
    {"flow", WEFT_KEY_SECTION, offsetof(weft_run, noise.flow), .section = &weft_flow_section},
    {"edm", WEFT_KEY_SECTION, offsetof(weft_run, noise.edm), .section = &weft_edm_section},
    {"ddpm", WEFT_KEY_SECTION, offsetof(weft_run, noise.ddpm), .section = &weft_ddpm_section},
    {"sampler", WEFT_KEY_STRING, offsetof(weft_run, noise.sampler), "", "",
     "sampler in the finished model's scheduler (`weft generate --help samplers`); empty: "
     "the sampler of the noise process"},
    F64(weft_run, noise.from, "timestep_min", "0", "",
        "smallest timestep to train on, 0 to 1; for a high-noise expert, its boundary", 0, 1,
        .earlier = "noise_from"),
    F64(weft_run, noise.to, "timestep_max", "1", "",
        "largest timestep to train on, 0 to 1; for a low-noise expert, its boundary", 0, 1,
        .earlier = "noise_to"),
    F64(weft_run, caption_dropout, "caption_dropout", "0.1", "",
        "share of samples without their caption, which trains the unconditional branch of "
        "guidance",
        0, 1),
    F64(weft_run, guidance, "embedded_guidance", "1", "",
        "guidance scale that a transformer with embedded guidance (HunyuanVideo, Flux dev) "
        "gets in training",
        0, 1000, .earlier = "guidance"),
    {"condition", WEFT_KEY_ENUM, offsetof(weft_run, condition), "none", "",
     "image conditioning; first_frame: the first frame of each clip without noise, control: a "
     "control video of each clip, in the way of the family and config (`weft generate --help "
     "image-models`); clean_blocks: teacher forcing, where a block of frames of a causal model "
     "sees earlier blocks without noise; history: a section of each clip, with other frames of "
     "the clip as its history (Framepack, Helios)",
     .choices = weft_condition_names},
    {"control", WEFT_KEY_SECTION, offsetof(weft_run, control), .section = &weft_control_section},
    {"history", WEFT_KEY_SECTION, offsetof(weft_run, history), .section = &weft_history_section},
    {"sound", WEFT_KEY_SECTION, offsetof(weft_run, sound), .section = &weft_sound_section},
    {"preference", WEFT_KEY_SECTION, offsetof(weft_run, preference),
     .section = &weft_preference_section},
    {"distill", WEFT_KEY_SECTION, 0, .section = &weft_distill_section}, /* keys of the run itself */
    {"optimizer", WEFT_KEY_SECTION, offsetof(weft_run, optimizer),
     .section = &weft_optimizer_section},
    {"stages", WEFT_KEY_SECTION_LIST, offsetof(weft_run, train_stages),
     .section = &train_stage_section},
    {"checkpoint", WEFT_KEY_SECTION, offsetof(weft_run, checkpoint),
     .section = &checkpoint_section},
    {"guard", WEFT_KEY_SECTION, offsetof(weft_run, guard), .section = &guard_section},
    {"recompute", WEFT_KEY_MOVED, .moved = "memory.recompute", .choices = recompute_words},
    {"memory", WEFT_KEY_SECTION, offsetof(weft_run, memory), .section = &memory_section},
    {"passes", WEFT_KEY_SECTION, offsetof(weft_run, passes), .section = &weft_pass_section},
    {"backend", WEFT_KEY_STRING, offsetof(weft_run, backend), "cpu", "",
     "kernels; cpu, cuda: NVIDIA GPUs, auto: cuda if every rank has a GPU whose kernels pass, "
     "otherwise cpu, ref: slow f64 reference, virtual: dry run on a simulated GPU, which predicts "
     "step time and memory and writes nothing"},
    {"parallel", WEFT_KEY_SECTION, 0, .section = &parallel_section}, /* keys of the run itself */
    F64(weft_run, deadline, "comm_timeout", "120", "s",
        "longest wait for other ranks; after it the run fails and names them", 1, 1e6,
        .earlier = "deadline"),
    {"stragglers", WEFT_KEY_SECTION, offsetof(weft_run, stragglers), .section = &straggler_section},
    I64(weft_run, log_every, "log_interval", "1", "steps", "steps between lines of metrics.jsonl",
        1, 1e9, .earlier = "log_every"),
    {"precision", WEFT_KEY_ENUM, offsetof(weft_run, precision), "f32", "",
     "type of computation; bf16: weights in use, activations and gradients need half the "
     "memory. Parameters, checkpoints, moments, EMA and losses stay f32. auto: bf16 if the first "
     "start predicts at least a tenth less time, else f32. tf32: f32, except that GPUs round "
     "the operands of products, convolutions and attention to 10 bits; cpu computes as for f32",
     .choices = precision_names},
    {"grad_reduce_dtype", WEFT_KEY_ENUM, offsetof(weft_run, grad_reduce_dtype), "f32", "",
     "type of the all-reduce of gradients, with precision: bf16; bf16 sends half the bytes",
     .choices = dtype_names, .earlier = "gradient_sums"},
    {"export_dtype", WEFT_KEY_ENUM, offsetof(weft_run, model_dtype), "f32", "",
     "type of the finished model's weights; checkpoints are f32 in any case",
     .choices = dtype_names, .earlier = "model_dtype"},
    {"trace", WEFT_KEY_BOOL, offsetof(weft_run, trace), "false", "",
     "write the timeline of the last step of each training stage to "
     "<out>/trace-<stage>-<rank>.json, for Perfetto"},
    GONE("mesh", "write parallel: {dp: 2, tp: 2}, with its other keys in `weft train --help`"),
    GONE("what", "a transformer is trained if `transformer` is given, else the autoencoder"),
    GONE("vae_path", "write autoencoder: {weights: FOLDER}"),
    GONE("vae", "write autoencoder: {class: CLASS, config: {base_dim: ...}}, or to begin "
                "with the weights of a folder autoencoder: {weights: FOLDER}"),
    GONE("text_encoder", "write text_encoders: [{class: CLASS, config: {dim: ...}}], or "
                         "for a trained one text_encoders: [{weights: FOLDER}]"),
};
const weft_section weft_run_section = {"run", "a training run", sizeof(weft_run), run_keys,
                                       WEFT_COUNT(run_keys)};

/* ---- checks -------------------------------------------------------------------------------- */

static bool same_size(const weft_bucket *a, const weft_bucket *b)
{
    return a->frames == b->frames && a->height == b->height && a->width == b->width;
}

static weft_status check_bucket(const char *path, const char *where, const weft_bucket *b,
                                const weft_grid *grid, const weft_grid *patch)
{
    char rule[32];
    if (!weft_grid_takes_frames(grid, b->frames) ||
        (patch && weft_grid_latent_frames(grid, b->frames) % patch->factor[0]))
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "%s.frames", where),
                    WEFT_NUMBER(b->frames)),
            "%" PRId64 " is not %s%s, as the autoencoder needs", b->frames,
            weft_grid_rule(grid, rule),
            patch && patch->factor[0] > 1 ? " with whole patches of the transformer" : "");
    if (patch)
        WEFT_TRY(weft_grid_check_statistics(grid, weft_grid_latent_frames(grid, b->frames),
                                            WEFT_AT(.file = path, .key = where)));
    const int64_t sizes[2] = {b->height, b->width};
    for (int i = 0; i < 2; i++) {
        const int64_t step = grid->factor[1 + i] * (patch ? patch->factor[1 + i] : 1);
        if (sizes[i] % step)
            return weft_error(WEFT_MSG_CONFIG_VALUE,
                              WEFT_AT(.file = path,
                                      .key = weft_message_key((char[64]){0}, "%s.%s", where,
                                                              i ? "width" : "height"),
                                      WEFT_NUMBER(sizes[i])),
                              "%" PRId64 " is not a multiple of %" PRId64 ", as the %s needs",
                              sizes[i], step, patch ? "transformer" : "autoencoder");
    }
    return WEFT_OK;
}

static weft_status check_train_stage(const weft_run *run, const char *path, int64_t index,
                                     const weft_grid *grid, const weft_grid *patch)
{
    const weft_train_stage *s = (const weft_train_stage *)run->train_stages.item + index;
    for (int i = 0; i < weft_train_stage_bucket_count(s); i++) {
        char where[64];
        weft_train_stage_bucket_key(s, index, i, where);
        WEFT_TRY(check_bucket(path, where, weft_train_stage_bucket(s, i), grid, patch));
        for (int k = 0; k < i; k++)
            if (same_size(weft_train_stage_bucket(s, i), weft_train_stage_bucket(s, k)))
                return weft_error(
                    WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = where),
                    "bucket %d has the same size, so a clip would fit both; remove one of them", k);
    }
    return WEFT_OK;
}

weft_status weft_run_conflict(const char *path, const char *key, const char *other)
{
    return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = key),
                      "it cannot be combined with %s. Remove one of the two.", other);
}

weft_status weft_run_check_sizes(const weft_run *run, const char *path, const weft_grid *grid,
                                 const weft_grid *patch)
{
    for (int64_t i = 0; i < run->train_stages.count; i++)
        WEFT_TRY(check_train_stage(run, path, i, grid, patch));
    return WEFT_OK;
}

/* Checks image_share, image_share_end, and the shares of buckets, which are another way to divide
 * the samples. */
static weft_status check_shares(const weft_train_stage *s, const char *path, int64_t index)
{
    const double images[2] = {s->images, s->last_images};
    double given = 0;
    int without = 0;
    for (int i = 0; i < 2; i++)
        if (images[i] > -1 && images[i] < 0)
            return weft_error(
                WEFT_MSG_CONFIG_VALUE,
                WEFT_AT(.file = path,
                        .key = weft_message_key((char[64]){0}, "stages.%" PRId64 ".image_share%s",
                                                index, i ? "_end" : ""),
                        WEFT_NUMBER(images[i])),
                "%g is not from 0 to 1, or -1 (%s)", images[i],
                i ? "the same in all batches" : "as many as exist");
    for (int i = 0; i < weft_train_stage_bucket_count(s); i++) {
        given += weft_train_stage_bucket(s, i)->share;
        without += weft_train_stage_bucket(s, i)->share <= 0;
    }
    char key[64];
    if (s->last_images >= 0 && s->images < 0)
        return weft_error(
            WEFT_MSG_CONFIG_MISSING_KEY,
            WEFT_AT(.file = path,
                    .key = weft_message_key(key, "stages.%" PRId64 ".image_share", index)),
            "image_share_end needs the share at the begin of the stage. Add image_share.");
    if (given > 0 && s->images >= 0)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = path, .key = weft_message_key(key, "stages.%" PRId64, index)),
            "image_share and shares of buckets both divide the samples. Remove one of the two.");
    if (given > 0 && (given > 1 + 1e-6 || (given < 1 - 1e-6) == !without))
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = weft_message_key(key, "stages.%" PRId64, index),
                    WEFT_NUMBER(given)),
            "the shares of the buckets add up to %g. Give all buckets a share, with the sum 1, or "
            "leave a part for the buckets without a share.",
            given);
    return WEFT_OK;
}

static weft_status check_buckets_set(const weft_run *run, const char *path)
{
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        const weft_train_stage *s = (const weft_train_stage *)run->train_stages.item + i;
        const weft_bucket *own = &s->size;
        const bool bound = s->tokens > 0 || s->load > 0 || weft_run_packs(run);
        if (s->buckets.count
                ? own->batch || own->frames || own->height || own->width
                : (!own->batch && !bound) || !own->frames || !own->height || !own->width)
            return weft_error(
                s->buckets.count ? WEFT_MSG_CONFIG_CONFLICT : WEFT_MSG_CONFIG_MISSING_KEY,
                WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "stages.%" PRId64, i)),
                "a stage needs batch, frames, height and width above 0, or a list of buckets with "
                "these keys%s",
                s->buckets.count ? ", not both" : "");
        for (int k = 0; k < (int)s->buckets.count; k++)
            if (!weft_train_stage_bucket(s, k)->batch && !bound)
                return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                                  WEFT_AT(.file = path, .key = weft_message_key(
                                                            (char[64]){0},
                                                            "stages.%" PRId64 ".buckets.%d", i, k)),
                                  "a bucket needs batch, or the stage needs max_tokens or "
                                  "max_load, which determine it");
        WEFT_TRY(check_shares(s, path, i));
        if (s->shift > 0 &&
            (weft_run_process(run) != &weft_noise_process_flow || run->noise.flow.by_resolution))
            return weft_error(
                WEFT_MSG_CONFIG_CONFLICT,
                WEFT_AT(.file = path,
                        .key = weft_message_key((char[64]){0}, "stages.%" PRId64 ".shift", i),
                        WEFT_NUMBER(s->shift)),
                "%g needs process: flow without shift_by_resolution", s->shift);
    }
    return WEFT_OK;
}

bool weft_run_model_given(const weft_run_model *m)
{
    return m->class_name[0] || m->weights[0] || m->config.json;
}

const weft_run_model *weft_run_text(const weft_run *run, int index)
{
    return (const weft_run_model *)run->text_encoders.item + index;
}

static weft_status check_model(const weft_run_model *m, weft_role role, const char *path,
                               const char *key)
{
    if (m->weights[0] && (m->class_name[0] || m->config.json))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = key),
                          "give class and config to train a new model, or weights to start from, "
                          "but not both; the folder of weights has its own config");
    if (m->weights[0] && weft_path_exists(m->weights) && !weft_path_is_dir(m->weights))
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "%s.weights", key),
                    .value = m->weights),
            "%s is a file, not a folder; give the folder that has config.json and the weights",
            m->weights);
    if (m->weights[0] || m->class_name[0])
        return WEFT_OK;
    weft_buf known = {0};
    weft_family_list(role, &known);
    const weft_status_code status =
        weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                   WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "%s.class", key)),
                   "a class is needed (%s), or weights: FOLDER", known.data ? known.data : "?");
    weft_buf_free(&known);
    return status;
}

bool weft_run_lora_is_auto(const weft_run_lora *lora)
{
    return lora->targets.count == 1 && !strcmp(lora->targets.item[0], "auto");
}

weft_trainable weft_run_trainable(const weft_run *run, const weft_family *family, const char *scope)
{
    const weft_run_model *m =
        weft_run_model_given(&run->transformer) ? &run->transformer : &run->autoencoder;
    const bool is_auto = weft_run_lora_is_auto(&m->lora);
    const weft_string_list chosen =
        m->lora.recorded.count ? m->lora.recorded : weft_family_lora_targets(family);
    return (weft_trainable){.scope = scope,
                            .train = m->trained,
                            .freeze = m->freeze,
                            .others_trained = weft_run_model_given(&run->identity),
                            .rank = m->lora.rank,
                            .alpha = (m->lora.alpha > 0 ? m->lora.alpha : (double)m->lora.rank) *
                                     (m->lora.rooted ? sqrt((double)m->lora.rank) : 1),
                            .targets = is_auto ? chosen : m->lora.targets,
                            .auto_targets = is_auto,
                            .bf16_base = m->lora.base == WEFT_MODEL_BF16};
}

/* Checks trainable, freeze and lora. Frozen weights must come from a trained model. */
static weft_status check_trainable(const weft_run *run, const char *path)
{
    const bool denoises = weft_run_model_given(&run->transformer);
    const weft_run_model *m = denoises ? &run->transformer : &run->autoencoder;
    const char *key = denoises ? "transformer" : "autoencoder";
    const weft_trainable trainable = weft_run_trainable(run, NULL, "");
    if (denoises && (run->autoencoder.trained.count || run->autoencoder.freeze.count))
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = "autoencoder"),
                          "an autoencoder is not trained together with a transformer; remove "
                          "trainable and freeze");
    if (m->lora.alpha > 0 && !m->lora.rank)
        return weft_error(
            WEFT_MSG_CONFIG_MISSING_KEY,
            WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "%s.lora.rank", key)),
            "alpha needs a rank, as in lora: {rank: 16, alpha: 16}");
    for (int64_t i = 0; i < m->lora.targets.count && m->lora.targets.count > 1; i++)
        if (!strcmp(m->lora.targets.item[i], "auto"))
            return weft_error(
                WEFT_MSG_CONFIG_VALUE,
                WEFT_AT(.file = path,
                        .key = weft_message_key((char[64]){0}, "%s.lora.targets", key),
                        .value = "auto"),
                "auto must be the only item of the list; write the names of all layers instead");
    if (m->lora.rank && (m->trained.count || m->freeze.count))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = key),
                          "with lora all weights are frozen, and lora.targets chooses where "
                          "matrices are added; remove trainable and freeze");
    if (weft_trainable_given(&trainable) && !m->weights[0])
        return weft_error(
            WEFT_MSG_CONFIG_MISSING_KEY,
            WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "%s.weights", key)),
            "%s freezes weights, so the model must be a trained one; give its folder",
            m->lora.rank ? "lora" : "trainable or freeze");
    for (int r = 0; r < (int)run->text_encoders.count && m->lora.rank; r++)
        if (!weft_run_text(run, r)->weights[0] || weft_run_text(run, r)->train)
            return weft_error(
                WEFT_MSG_CONFIG_CONFLICT,
                WEFT_AT(.file = path,
                        .key = weft_message_key((char[64]){0}, "text_encoders.%d", r)),
                "with lora only the matrices are trained; give weights: FOLDER, and remove train");
    return WEFT_OK;
}

static weft_status check_models(const weft_run *run, const char *path)
{
    const bool denoises = weft_run_model_given(&run->transformer);
    if (!denoises && !weft_run_model_given(&run->autoencoder))
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "autoencoder"),
                          "the config has nothing to train: give autoencoder: {class: ..., config: "
                          "{...}}, or a transformer with autoencoder: {weights: FOLDER}");
    if (!denoises) {
        if (weft_run_model_given(&run->identity))
            return weft_error(
                WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = "identity"),
                "an identity encoder is for a transformer; an autoencoder has no such input");
        if (run->text_encoders.count)
            return weft_error(
                WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = "text_encoders"),
                "text encoders are for a transformer; an autoencoder reads no captions");
        return check_model(&run->autoencoder, WEFT_ROLE_AUTOENCODER, path, "autoencoder");
    }
    if (!run->autoencoder.weights[0])
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = path, .key = "autoencoder.weights"),
                          "training a transformer needs the folder of a trained autoencoder, as in "
                          "autoencoder: {weights: runs/vae/model/vae}");
    WEFT_TRY(check_model(&run->autoencoder, WEFT_ROLE_AUTOENCODER, path, "autoencoder"));
    WEFT_TRY(check_model(&run->transformer, WEFT_ROLE_DENOISER, path, "transformer"));
    if (run->text_encoders.count < 1 || run->text_encoders.count > WEFT_MAX_TEXT_ENCODERS)
        return weft_error(
            run->text_encoders.count ? WEFT_MSG_CONFIG_VALUE : WEFT_MSG_CONFIG_MISSING_KEY,
            WEFT_AT(.file = path, .key = "text_encoders", WEFT_NUMBER(run->text_encoders.count)),
            "a transformer needs one, %" PRId64
            " are given, as in\n text_encoders:\n - {class: CLASS, "
            "config: {...}}",
            run->text_encoders.count);
    if (weft_run_model_given(&run->identity))
        WEFT_TRY(check_model(&run->identity, WEFT_ROLE_IDENTITY_ENCODER, path, "identity"));
    for (int r = 0; r < (int)run->text_encoders.count; r++) {
        char key[32];
        snprintf(key, sizeof key, "text_encoders.%d", r);
        WEFT_TRY(check_model(weft_run_text(run, r), WEFT_ROLE_TEXT_ENCODER, path, key));
    }
    return WEFT_OK;
}

/* Whether item `i` of the list is `word`. */
static bool is_word(const weft_string_list *list, int64_t i, const char *word)
{
    return i < list->count && !strcmp(list->item[i], word);
}

weft_string_list weft_run_recomputes(const weft_run *run, bool *is_auto)
{
    const weft_string_list *own = &run->memory.recompute;
    *is_auto = is_word(own, 0, "auto");
    const int64_t words = *is_auto || is_word(own, 0, "none");
    return (weft_string_list){own->count - words, own->item + words};
}

static weft_status check_recompute(const weft_run *run, const char *path)
{
    const weft_string_list *own = &run->memory.recompute;
    for (int64_t i = 1; i < own->count; i++)
        if (is_word(own, i, "auto") || is_word(own, i, "none"))
            return weft_error(
                WEFT_MSG_CONFIG_VALUE,
                WEFT_AT(.file = path,
                        .key = weft_message_key((char[64]){0}, "memory.recompute.%" PRId64, i),
                        .value = own->item[i]),
                "%s must be the first item of the list, before the patterns", own->item[i]);
    return WEFT_OK;
}

static weft_status check_memory(const weft_run *run, const char *path)
{
    WEFT_TRY(check_recompute(run, path));
    const weft_backend *backend = weft_backend_find(run->backend);
    const bool cpu = backend == &weft_backend_cpu, host = backend->device == &weft_device_host;
    if (host && !strcmp(run->memory.offload, "host"))
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = "memory.offload", .value = run->memory.offload),
            "backend %s computes in host memory, so offload to the host frees nothing; give a "
            "folder, or auto for the folder of the run",
            run->backend);
    if (run->memory.states && !cpu && !weft_device_is_apart(backend->device))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = path, .key = "memory.optimizer_states"),
                          "offload is for memory that can be copied, and backend %s computes in "
                          "f64 or without values; use another backend, or remove this key",
                          run->backend);
    const bool limited = run->memory.limit || run->memory.limit_auto;
    if (strcmp(run->memory.offload, "none") && !limited && !run->memory.states)
        return weft_error(
            WEFT_MSG_CONFIG_NO_EFFECT,
            WEFT_AT(.file = path, .key = "memory.offload", .value = run->memory.offload),
            "without memory.limit nothing is offloaded; give one, as in memory: {limit: 6GiB, "
            "offload: %s}",
            run->memory.offload);
    if (run->memory.profile[0] && !limited)
        return weft_error(
            WEFT_MSG_CONFIG_NO_EFFECT,
            WEFT_AT(.file = path, .key = "memory.profile", .value = run->memory.profile),
            "%s is used to choose what is recomputed below memory.limit, which is not set; set it, "
            "or remove memory.profile",
            run->memory.profile);
    return WEFT_OK;
}

weft_offload_target weft_run_offload_target(const weft_run *run)
{
    const weft_memory_config *m = &run->memory;
    const weft_backend *backend = weft_backend_find(run->backend);
    const bool named = strcmp(m->offload, "none") && strcmp(m->offload, "auto") &&
                       strcmp(m->offload, "host"),
               host = !backend || backend->device == &weft_device_host;
    return (weft_offload_target){.values = strcmp(m->offload, "none") && m->limit,
                                 .states = m->states,
                                 .dir = !host   ? NULL
                                        : named ? m->offload
                                                : run->out};
}

static weft_status check_loss(const weft_run *run, const char *path)
{
    const weft_run_loss *l = &run->loss;
    const bool perceives = l->lpips.weight > 0, fights = l->adversarial.weight > 0;
    if ((perceives || fights) && weft_run_model_given(&run->transformer))
        return weft_error(
            WEFT_MSG_CONFIG_NO_EFFECT,
            WEFT_AT(.file = path, .key = perceives ? "loss.lpips" : "loss.adversarial"),
            "this loss is for the output of an autoencoder, which is not trained together with a "
            "transformer; remove it");
    if (perceives && (!l->lpips.trunk[0] || !l->lpips.heads[0]))
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = path, .key = l->lpips.trunk[0] ? "loss.lpips.heads"
                                                                         : "loss.lpips.backbone"),
                          "a file is needed, as in loss: {lpips: {weight: 1, backbone: "
                          "vgg16-397923af.pth, heads: "
                          "vgg.pth}}: the network of torchvision, and the heads of lpips for it");
    if (!perceives && (l->lpips.trunk[0] || l->lpips.heads[0]))
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = "loss.lpips"),
                          "files have no effect without a weight; give weight: 1");
    return WEFT_OK;
}

static weft_status check_cascades(const weft_run *run, const char *path)
{
    const bool planned = weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE;
    WEFT_TRY(weft_cascades_check(&run->cascades, &run->parallel, 0, path));
    if (run->data.samples_from == WEFT_FROM_PIXELS && !planned)
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "data.input"),
                          "cascades encode pixels; add parallel: {cascades: {plan: "
                          "every-iteration}}, or remove data.input");
    if (run->data.samples_from != WEFT_FROM_PIXELS && run->cascades.encoders == WEFT_ENCODERS_AHEAD)
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT,
                          WEFT_AT(.file = path, .key = "parallel.cascades.encoders"),
                          "latents of the cache need no encoder. Set data.input: pixels, or remove "
                          "encoders");
    if (planned && !weft_run_model_given(&run->transformer))
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "parallel.cascades"),
            "cascades are for samples of a transformer; train an autoencoder with dp or fsdp");
    return WEFT_OK;
}

weft_status weft_run_check(const weft_run *run, const char *path)
{
    if (run->train_stages.count == 0)
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "stages"),
                          "at least one stage is needed, as in\n stages:\n - {steps: 1000, batch: "
                          "8, frames: 17, height: 64, width: 64}");
    if (!run->out[0])
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "out"),
                          "a folder for the run is needed");
    if (!weft_backend_find(run->backend))
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = path, .key = "backend", .value = run->backend),
                          "'%.80s' is not one of %s", run->backend, weft_backend_names());
    if (run->grad_reduce_dtype &&
        (run->precision == WEFT_PRECISION_F32 || run->precision == WEFT_PRECISION_TF32))
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "grad_reduce_dtype"),
            "without precision: bf16 gradients and their sums are f32; remove grad_reduce_dtype");
    WEFT_TRY(weft_noise_process_check(weft_run_process(run), &run->noise, path));
    WEFT_TRY(weft_run_data_check(&run->data, path));
    WEFT_TRY(weft_row_packing_check(run, path));
    WEFT_TRY(check_buckets_set(run, path));
    WEFT_TRY(check_cascades(run, path));
    WEFT_TRY(check_memory(run, path));
    WEFT_TRY(check_models(run, path));
    WEFT_TRY(check_loss(run, path));
    WEFT_TRY(weft_distill_check(run, path));
    WEFT_TRY(weft_preference_check(run, path));
    WEFT_TRY(weft_control_check(run, path));
    WEFT_TRY(weft_history_check(run, path));
    WEFT_TRY(weft_identity_check(run, path));
    WEFT_TRY(weft_sound_check(run, path));
    return check_trainable(run, path);
}

/* ---- training stages ----------------------------------------------------------------------- */

int weft_train_stage_bucket_count(const weft_train_stage *train_stage)
{
    return train_stage->buckets.count ? (int)train_stage->buckets.count : 1;
}

const weft_bucket *weft_train_stage_bucket(const weft_train_stage *train_stage, int index)
{
    return train_stage->buckets.count ? (const weft_bucket *)train_stage->buckets.item + index
                                      : &train_stage->size;
}

const char *weft_train_stage_bucket_key(const weft_train_stage *train_stage, int64_t index,
                                        int bucket, char key[64])
{
    return weft_message_key(
        key, train_stage->buckets.count ? "stages.%" PRId64 ".buckets.%d" : "stages.%" PRId64,
        index, bucket);
}

weft_run weft_train_stage_run(const weft_run *run, const weft_train_stage *train_stage)
{
    weft_run own = *run;
    if (train_stage->shift > 0)
        own.noise.flow.shift = train_stage->shift;
    return own;
}

int64_t weft_train_stage_batch(const weft_train_stage *train_stage, int64_t tokens)
{
    double most = INT16_MAX;
    if (train_stage->tokens > 0)
        most = fmin(most, (double)(train_stage->tokens / tokens));
    if (train_stage->load > 0)
        most = fmin(most,
                    floor(train_stage->load / pow((double)tokens, train_stage->load_power) + 1e-9));
    return most < 1 ? 1 : (int64_t)most;
}

static int64_t bucket_pixels(const weft_bucket *b)
{
    return b->frames * b->height * b->width;
}

int weft_train_stage_largest(const weft_train_stage *train_stage)
{
    int best = 0;
    for (int i = 1; i < weft_train_stage_bucket_count(train_stage); i++)
        if (bucket_pixels(weft_train_stage_bucket(train_stage, i)) >
            bucket_pixels(weft_train_stage_bucket(train_stage, best)))
            best = i;
    return best;
}

double weft_train_stage_lr(const weft_train_stage *train_stage, int64_t step)
{
    const int64_t warmup =
        train_stage->warmup < train_stage->steps ? train_stage->warmup : train_stage->steps;
    if (step < warmup)
        return train_stage->lr * (double)(step + 1) / (double)warmup;
    if (train_stage->schedule == WEFT_LR_CONSTANT)
        return train_stage->lr;
    const int64_t span = train_stage->steps - warmup;
    const double done = span > 1 ? (double)(step - warmup) / (double)(span - 1) : 1;
    const double low = train_stage->lr * train_stage->lr_end;
    return low + (train_stage->lr - low) * 0.5 * (1 + cos(3.14159265358979323846 * fmin(done, 1)));
}

int64_t weft_run_first_step(const weft_run *run, int64_t index)
{
    const weft_train_stage *train_stage = run->train_stages.item;
    int64_t first = 0;
    for (int64_t i = 0; i < index && i < run->train_stages.count; i++)
        first += train_stage[i].steps;
    return first;
}

const weft_noise_process *weft_run_process(const weft_run *run)
{
    return weft_processes[run->noise_process];
}
