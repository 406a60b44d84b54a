#include "train/run.h"

#include "kernel/kernel.h"
#include "model/adapter.h"
#include "model/dialect.h"
#include "model/patchgan.h"
#include "pass/parallel_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define I64(type, field, name, fallback, unit, help, low, high)                                    \
    {                                                                                              \
        name, WEFT_KEY_I64, offsetof(type, field), fallback, unit, help, .min = low, .max = high   \
    }
#define F64(type, field, name, fallback, unit, help, low, high)                                    \
    {                                                                                              \
        name, WEFT_KEY_F64, offsetof(type, field), fallback, unit, help, .min = low, .max = high   \
    }

/* ---- tables -------------------------------------------------------------------------------- */

/* Of all models. */
#define MODEL_KEYS                                                                                 \
    {"class",                                                                                      \
     WEFT_KEY_STRING,                                                                              \
     offsetof(weft_run_model, class_name),                                                         \
     "",                                                                                           \
     "",                                                                                           \
     "model class, to begin from nothing; the list is below"},                                     \
        {"config", WEFT_KEY_TREE, offsetof(weft_run_model, config),                                \
         .help = "fields of the class' public config.json; what is left out takes the public "     \
                 "default, channels and widths those of the models beside it"},                    \
    {                                                                                              \
        "weights", WEFT_KEY_STRING, offsetof(weft_run_model, weights), "", "",                     \
            "instead of class and config: folder of a trained model (config.json and weights)"     \
    }
#define GONE(name, instead)                                                                        \
    {                                                                                              \
        name, WEFT_KEY_GONE, .help = instead                                                       \
    }

#define TUNING_KEYS                                                                                \
    {"train",                                                                                      \
     WEFT_KEY_STRING_LIST,                                                                         \
     offsetof(weft_run_model, trained),                                                            \
     "[]",                                                                                         \
     "",                                                                                           \
     "with weights: only these are trained, parameters or modules by their names, ends of names "  \
     "or patterns with *; empty: all"},                                                            \
    {                                                                                              \
        "freeze", WEFT_KEY_STRING_LIST, offsetof(weft_run_model, freeze), "[]", "",                \
            "with weights: these are not; they have no gradients, moments or averages, and are "   \
            "not in checkpoints"                                                                   \
    }

static const weft_key autoencoder_keys[] = {
    MODEL_KEYS,
    TUNING_KEYS,
    {"tile", WEFT_KEY_STRING, offsetof(weft_run_model, tile), "off", "pixels",
     "beside a transformer: clips are encoded one at a time, as a stream and in tiles of so many "
     "pixels, of which so many overlap (256x256+64); on: as the model's reference does; off: a "
     "whole clip at once"},
};
static const weft_section autoencoder_section = {
    "autoencoder", "the video autoencoder: trained, or (beside a transformer) the one it works in",
    sizeof(weft_run_model), autoencoder_keys, WEFT_COUNT(autoencoder_keys)};

static const char *const dtype_names[] = {"f32", "bf16", NULL};
static const weft_key lora_keys[] = {
    {"rank", WEFT_KEY_I64, offsetof(weft_run_lora, rank), "0", "",
     "of the two matrices beside each target, which are all that is trained; 0: none, the "
     "transformer itself is trained",
     .min = 0, .max = 65536, .also = "r"},
    {"alpha", WEFT_KEY_F64, offsetof(weft_run_lora, alpha), "0", "",
     "what they add is scaled by alpha / rank; 0: by 1", .min = 0, .max = 1e6,
     .also = "lora_alpha"},
    {"rslora", WEFT_KEY_BOOL, offsetof(weft_run_lora, rooted), "false", "",
     "scaled by alpha over the root of the rank instead; the finished file has the alpha that says "
     "so",
     .also = "use_rslora"},
    {"targets", WEFT_KEY_STRING_LIST, offsetof(weft_run_lora, targets),
     "[to_q, to_k, to_v, to_out.0]", "",
     "linear layers, by their names, ends of names or patterns with *; all-linear: every one",
     .also = "target_modules"},
    {"base", WEFT_KEY_ENUM, offsetof(weft_run_lora, base), "f32", "",
     "what the weights of linear layers are kept in; products are f32 in any case",
     .choices = dtype_names},
    {"format", WEFT_KEY_ENUM, offsetof(weft_run_lora, format), "diffusers", "",
     "of the finished OUT/adapter: whose names it has", .choices = weft_adapter_formats},
};
static const weft_section lora_section = {
    "lora", "low-rank matrices beside linear layers, trained in the place of the weights (LoRA)",
    sizeof(weft_run_lora), lora_keys, WEFT_COUNT(lora_keys)};

#define IN_CONFIG "write transformer: {class: CLASS, config: {...}} with it in config"
static const weft_key transformer_keys[] = {
    MODEL_KEYS,
    TUNING_KEYS,
    {"lora", WEFT_KEY_SECTION, offsetof(weft_run_model, lora), .section = &lora_section},
    GONE("num_layers", IN_CONFIG),
    GONE("num_attention_heads", IN_CONFIG),
    GONE("attention_head_dim", IN_CONFIG),
    GONE("ffn_dim", IN_CONFIG),
    GONE("freq_dim", IN_CONFIG),
    GONE("patch_size", IN_CONFIG),
    GONE("init", "write transformer: {weights: FOLDER/transformer}, and text_encoders: [{weights: "
                 "FOLDER/text_encoder, train: true}] to go on training that too"),
};
static const weft_section transformer_section = {
    "transformer", "the denoiser; if it is given, it is what is trained", sizeof(weft_run_model),
    transformer_keys, WEFT_COUNT(transformer_keys)};

static const weft_key text_keys[] = {
    MODEL_KEYS,
    {"train", WEFT_KEY_BOOL, offsetof(weft_run_model, train), "false", "",
     "with weights: go on training them; otherwise they stay, and their embeddings of the captions "
     "are kept with the latents"},
    {"tokenizer", WEFT_KEY_STRING, offsetof(weft_run_model, tokenizer), "", "",
     "its tokenizer.json, spiece.model, vocab.json or vocab.txt, or their folder; empty: in the "
     "folder of the weights, or beside it in tokenizer. WeftBytesEncoder needs none"},
    I64(weft_run_model, length, "length", "0", "tokens",
        "of a caption: what is longer is cut; 0: as many as the transformer's family is published "
        "with",
        0, 65536),
};
static const weft_section text_section = {"text_encoder",
                                          "beside a transformer: what reads the captions; several "
                                          "where the transformer takes several, in "
                                          "the order of its pipeline",
                                          sizeof(weft_run_model), text_keys, WEFT_COUNT(text_keys)};

static const weft_key identity_keys[] = {
    MODEL_KEYS,
    F64(weft_run_model, dropout, "dropout", "0.1", "",
        "share of samples whose picture is left away; its product with caption_dropout is the "
        "share of those that are told nothing, which guidance leads away from",
        0, 1),
};
static const weft_section identity_section = {
    "identity",
    "beside a transformer: tells it in tokens beside the text's what the first frame of a clip "
    "shows, so that weft generate --identity makes videos of what a picture shows",
    sizeof(weft_run_model), identity_keys, WEFT_COUNT(identity_keys)};

static const weft_key lpips_keys[] = {
    F64(weft_run_lpips, weight, "weight", "0", "",
        "of the distance by the features of a net that was trained on pictures; 0: none", 0, 1e6),
    {"trunk", WEFT_KEY_STRING, offsetof(weft_run_lpips, trunk), "", "",
     "file of that net: torchvision's vgg16 or alexnet (.pth or safetensors)"},
    {"heads", WEFT_KEY_STRING, offsetof(weft_run_lpips, heads), "", "",
     "file of lpips' linear heads for it (weights/v0.1/vgg.pth or alex.pth)"},
};
static const weft_section lpips_section = {"lpips", "LPIPS: how different frames look",
                                           sizeof(weft_run_lpips), lpips_keys,
                                           WEFT_COUNT(lpips_keys)};

static const weft_key adversarial_keys[] = {
    F64(weft_run_adversarial, weight, "weight", "0", "",
        "of what a discriminator finds in the reconstruction; 0: there is none", 0, 1e6),
    I64(weft_run_adversarial, start, "start", "0", "steps",
        "of the run before it takes part, and is trained", 0, 1e12),
    I64(weft_run_adversarial, channels, "channels", "64", "",
        "of the discriminator's first layer; they double up to eight times that", 1, 4096),
    I64(weft_run_adversarial, layers, "layers", "3", "",
        "between its first and its last: the more, the larger a patch", 1,
        WEFT_PATCHGAN_MAX_LAYERS),
    {"video", WEFT_KEY_BOOL, offsetof(weft_run_adversarial, video), "false", "",
     "it sees how frames follow one another (3 x 3 x 3 kernels), else each by itself (4 x 4)"},
    {"loss", WEFT_KEY_ENUM, offsetof(weft_run_adversarial, loss), "hinge", "",
     "of the discriminator", .choices = weft_gan_loss_names},
    {"adaptive", WEFT_KEY_BOOL, offsetof(weft_run_adversarial, adaptive), "true", "",
     "the weight is a share: that of the gradient of the other terms at the decoder's last layer"},
    {"weights", WEFT_KEY_STRING, offsetof(weft_run_adversarial, weights), "", "",
     "file or folder of a discriminator to begin from, as a run leaves in "
     "<out>/model/discriminator"},
};
static const weft_section adversarial_section = {
    "adversarial", "PatchGAN: a discriminator that is trained beside the autoencoder",
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
static const weft_section loss_section = {"loss", "objective of the autoencoder",
                                          sizeof(weft_run_loss), loss_keys, WEFT_COUNT(loss_keys)};

static const char *const embedding_names[] = {"cached", "step", NULL};
static const char *const samples_names[] = {"latents", "pixels", NULL};
static const weft_key data_keys[] = {
    {"path", WEFT_KEY_STRING, offsetof(weft_run_data, path), NULL, "",
     "shards that `weft shard` wrote: a folder, or a pattern with {000..012}"},
    {"split", WEFT_KEY_STRING, offsetof(weft_run_data, split), "train", "",
     "only shards whose name begins with this; empty: all"},
    F64(weft_run_data, fps, "fps", "0", "frames/s", "frames are taken at this rate; 0: every frame",
        0, 1000),
    I64(weft_run_data, threads, "threads", "1", "", "decoding threads of each rank", 1, 256),
    I64(weft_run_data, prefetch, "prefetch", "4", "batches", "decoded ahead of training", 1, 1024),
    {"random_start", WEFT_KEY_BOOL, offsetof(weft_run_data, random_start), "true", "",
     "autoencoder: take a random stretch of a longer clip instead of its beginning"},
    {"random_crop", WEFT_KEY_BOOL, offsetof(weft_run_data, random_crop), "false", "",
     "autoencoder: crop at a random place instead of the centre when the aspect differs"},
    I64(weft_run_data, shuffle, "shuffle", "65536", "samples",
        "shards come in random order, and samples are shuffled inside a window of so many; "
        "a set of no more, and 0, as a whole",
        0, 1e12),
    {"verify", WEFT_KEY_BOOL, offsetof(weft_run_data, verify), "true", "",
     "hold what is read against the checksums of the shards' indexes"},
    {"latents", WEFT_KEY_STRING, offsetof(weft_run_data, latents), "", "",
     "folder of encoded clips, which runs may share; empty: <out>/latents"},
    {"embeddings", WEFT_KEY_ENUM, offsetof(weft_run_data, embeddings), "cached", "",
     "captions by text encoders that are not trained: cached with the latents, or made in every "
     "step, which keeps the encoders in memory; the numbers are the same",
     .choices = embedding_names},
    {"samples_from", WEFT_KEY_ENUM, offsetof(weft_run_data, samples_from), "latents", "",
     "a transformer's: latents from the cache, which all ranks fill before a stage; or pixels, "
     "encoded inside of each step, with parallel.cascades",
     .choices = samples_names},
};
static const weft_section data_section = {"data", "what to train on", sizeof(weft_run_data),
                                          data_keys, WEFT_COUNT(data_keys)};

static const char *const lr_names[] = {"constant", "cosine", NULL};
static const weft_key stage_keys[] = {
    {"name", WEFT_KEY_STRING, offsetof(weft_stage, name), "", "", "shown in the progress line"},
    I64(weft_stage, steps, "steps", NULL, "", "optimizer steps", 1, 1e12),
    I64(weft_stage, accumulate, "accumulate", "1", "batches",
        "batches per step: their gradients add up before the optimizer takes its step", 1, 65536),
    I64(weft_stage, size.batch, "batch", "0", "samples", "samples per batch over all ranks", 0,
        65536),
    I64(weft_stage, size.frames, "frames", "0", "frames",
        "length of a clip, as the autoencoder takes it (1 + a multiple of 4)", 0, 65536),
    I64(weft_stage, size.height, "height", "0", "pixels",
        "multiple of the autoencoder's factor and the transformer's patch (16)", 0, 16384),
    I64(weft_stage, size.width, "width", "0", "pixels",
        "multiple of the autoencoder's factor and the transformer's patch (16)", 0, 16384),
    {"buckets", WEFT_KEY_SECTION_LIST, offsetof(weft_stage, buckets),
     .section = &weft_bucket_section},
    I64(weft_stage, tokens, "tokens", "0", "tokens",
        "batches whose size is left away have so many at most, of all their samples; 0: no bound",
        0, 1e12),
    F64(weft_stage, load, "load", "0", "tokens^load_power",
        "bound of B S^load_power for batches whose size is left away, B samples of S tokens each; "
        "so steps of all buckets take about as long. 0: no bound",
        0, 1e30),
    F64(weft_stage, load_power, "load_power", "2", "",
        "1: equal tokens; 2: attention is all; what a model's FLOPs say lies between", 0, 4),
    F64(weft_stage, images, "images", "-1", "",
        "share of the samples that are images, from buckets of one frame; -1: as many as there are",
        -1, 1),
    F64(weft_stage, shift, "shift", "0", "", "flow.shift in this stage; 0: that of the run", 0,
        100),
    F64(weft_stage, lr, "lr", "3e-4", "", "learning rate", 0, 10),
    F64(weft_stage, lr_end, "lr_end", "0.1", "", "the cosine schedule ends at this share of lr", 0,
        1),
    I64(weft_stage, warmup, "warmup", "20", "steps",
        "the learning rate rises linearly from 0 over these, or over all steps if there are fewer",
        0, 1e12),
    {"schedule", WEFT_KEY_ENUM, offsetof(weft_stage, schedule), "cosine", "",
     "learning rate after the warm-up", .choices = lr_names},
};
static const weft_section stage_section = {
    "stage", "one after another: resolution, length, batch, learning rate", sizeof(weft_stage),
    stage_keys, WEFT_COUNT(stage_keys)};

static const weft_key checkpoint_keys[] = {
    I64(weft_run_checkpoint, every, "every", "200", "steps",
        "steps between checkpoints; 0: only at the end", 0, 1e12),
    I64(weft_run_checkpoint, keep, "keep", "2", "", "newest checkpoints that stay", 1, 1e6),
    {"allow_changes", WEFT_KEY_BOOL, offsetof(weft_run_checkpoint, allow_changes), "false", "",
     "go on from a checkpoint although the data, an encoder or the sizes of a stage are others"},
};
static const weft_section checkpoint_section = {"checkpoint", "what is kept to go on from",
                                                sizeof(weft_run_checkpoint), checkpoint_keys,
                                                WEFT_COUNT(checkpoint_keys)};

static const weft_key guard_keys[] = {
    F64(weft_run_guard, factor, "factor", "10", "",
        "a step whose loss or gradient norm is this often its running mean is skipped; 0: only "
        "when not finite",
        0, 1e9),
    I64(weft_run_guard, window, "window", "50", "steps",
        "steps of the running mean; the first ones are never outliers", 1, 1e6),
    I64(weft_run_guard, patience, "patience", "10", "",
        "so many skipped steps in a row stop the run", 1, 1e6),
};
static const weft_section guard_section = {"guard", "what to do about outliers and NaN",
                                           sizeof(weft_run_guard), guard_keys,
                                           WEFT_COUNT(guard_keys)};

static const char *const states_names[] = {"kept", "offload", NULL};
static const weft_key memory_keys[] = {
    {"limit", WEFT_KEY_I64, offsetof(weft_run_room, limit), "0", "bytes",
     "of the whole process of a rank, 6GiB for instance: of what a stage's forward leaves for its "
     "backward so much is made again or moved away that the predicted peak is below; 0: none",
     .min = 0, .max = 9e18},
    {"recompute", WEFT_KEY_STRING_LIST, offsetof(weft_run_room, recompute), "[auto]", "",
     "auto: the limit has made again what costs least time for its bytes; none; or patterns as in "
     "`recompute`, to which the limit adds nothing"},
    {"profile", WEFT_KEY_STRING, offsetof(weft_run_room, profile), "", "",
     "file of `weft profile`: what costs how much time; without one this machine's rates of a "
     "product and of a copy are measured"},
    {"offload", WEFT_KEY_STRING, offsetof(weft_run_room, offload), "none", "",
     "where values may go between forward and backward when the limit needs it: none; "
     "a folder, for a file without a name; host: the host's memory, of a device that has its own; "
     "auto: that, or the run's folder"},
    {"states", WEFT_KEY_ENUM, offsetof(weft_run_room, states), "kept", "",
     "offload: moments and averages are elsewhere, too, and come back for each update",
     .choices = states_names},
    {"ahead", WEFT_KEY_I64, offsetof(weft_run_room, ahead), "0", "bytes",
     "of copies that are under way in one direction, or back before they are read, and of sharded "
     "parameters that are gathered ahead of their use; 0: what the two largest need",
     .min = 0, .max = 9e18},
};
static const weft_section memory_section = {"memory", "what a rank may take", sizeof(weft_run_room),
                                            memory_keys, WEFT_COUNT(memory_keys)};

static const weft_key straggler_keys[] = {
    F64(weft_straggler_config, share, "share", "0.3", "",
        "a rank whose own work takes so much longer than the median of all is named", 0, 1e6),
    I64(weft_straggler_config, steps, "steps", "50", "steps",
        "that are looked at together; 0: nobody looks", 0, 1e9),
};
static const weft_section straggler_section = {"stragglers", "when a rank counts as slow",
                                               sizeof(weft_straggler_config), straggler_keys,
                                               WEFT_COUNT(straggler_keys)};

static const weft_key parallel_keys[] = {
    WEFT_PARALLEL_KEYS(weft_run, parallel),
    {"cascades", WEFT_KEY_SECTION, offsetof(weft_run, cascades), .section = &weft_cascade_section},
};
static const weft_section parallel_section = {
    "parallel",
    "how the run is laid over its ranks: degrees that make their number; heads, tokens, samples "
    "and widths need not divide by any",
    sizeof(weft_run), parallel_keys, WEFT_COUNT(parallel_keys)};

const char *const weft_condition_names[] = {"none", "first_frame", NULL};
static const weft_key run_keys[] = {
    {"out", WEFT_KEY_STRING, offsetof(weft_run, out), NULL, "",
     "folder of the run: checkpoints, metrics, and the finished model in <out>/model"},
    I64(weft_run, seed, "seed", "1", "", "of initial weights, noise and data order", 0, 9e18),
    {"data", WEFT_KEY_SECTION, offsetof(weft_run, data), .section = &data_section},
    {"autoencoder", WEFT_KEY_SECTION, offsetof(weft_run, autoencoder),
     .section = &autoencoder_section},
    {"transformer", WEFT_KEY_SECTION, offsetof(weft_run, transformer),
     .section = &transformer_section},
    {"text_encoders", WEFT_KEY_SECTION_LIST, offsetof(weft_run, text_encoders),
     .section = &text_section},
    {"identity", WEFT_KEY_SECTION, offsetof(weft_run, identity), .section = &identity_section},
    {"loss", WEFT_KEY_SECTION, offsetof(weft_run, loss), .section = &loss_section},
    {"process", WEFT_KEY_ENUM, offsetof(weft_run, process), "flow", "",
     "how data becomes noise, and what the transformer is asked about it",
     .choices = weft_process_names},
    {"flow", WEFT_KEY_SECTION, offsetof(weft_run, noise.flow), .section = &weft_flow_section},
    {"edm", WEFT_KEY_SECTION, offsetof(weft_run, noise.edm), .section = &weft_edm_section},
    {"ddpm", WEFT_KEY_SECTION, offsetof(weft_run, noise.ddpm), .section = &weft_ddpm_section},
    {"sampler", WEFT_KEY_STRING, offsetof(weft_run, noise.sampler), "", "",
     "that the finished model's scheduler names, as weft generate --help lists them; empty: the "
     "process's own"},
    F64(weft_run, noise.from, "noise_from", "0", "",
        "least time that is drawn, of 1: an expert of high noise begins at its boundary", 0, 1),
    F64(weft_run, noise.to, "noise_to", "1", "",
        "highest time that is drawn, of 1: an expert of low noise ends at its boundary", 0, 1),
    F64(weft_run, caption_dropout, "caption_dropout", "0.1", "",
        "share of samples whose caption is left away, so that guidance has an unconditional model",
        0, 1),
    F64(weft_run, guidance, "guidance", "1", "",
        "guidance scale that a transformer with an embedded one (HunyuanVideo, Flux dev) is told "
        "in "
        "training",
        0, 1000),
    {"condition", WEFT_KEY_ENUM, offsetof(weft_run, condition), "none", "",
     "first_frame: the transformer is given the first frame of each clip without noise, in the way "
     "that its family and config have (weft generate --help), and makes videos from an image",
     .choices = weft_condition_names},
    {"optimizer", WEFT_KEY_SECTION, offsetof(weft_run, optimizer),
     .section = &weft_optimizer_section},
    {"stages", WEFT_KEY_SECTION_LIST, offsetof(weft_run, stages), .section = &stage_section},
    {"checkpoint", WEFT_KEY_SECTION, offsetof(weft_run, checkpoint),
     .section = &checkpoint_section},
    {"guard", WEFT_KEY_SECTION, offsetof(weft_run, guard), .section = &guard_section},
    {"recompute", WEFT_KEY_STRING_LIST, offsetof(weft_run, recompute), "[]", "",
     "patterns over scopes and op names whose results the backward computes again instead of "
     "keeping"},
    {"memory", WEFT_KEY_SECTION, offsetof(weft_run, memory), .section = &memory_section},
    {"passes", WEFT_KEY_SECTION, offsetof(weft_run, passes), .section = &weft_pass_section},
    {"backend", WEFT_KEY_STRING, offsetof(weft_run, backend), "cpu", "",
     "cpu; ref: the slow f64 reference; virtual: a rehearsal on a modelled GPU, which computes and "
     "writes nothing and tells step time and memory"},
    {"parallel", WEFT_KEY_SECTION, 0, .section = &parallel_section}, /* of the run itself */
    F64(weft_run, deadline, "deadline", "120", "s",
        "a wait for other ranks that takes longer fails and names them", 1, 1e6),
    {"stragglers", WEFT_KEY_SECTION, offsetof(weft_run, stragglers), .section = &straggler_section},
    I64(weft_run, log_every, "log_every", "1", "steps", "steps between lines of metrics.jsonl", 1,
        1e9),
    {"precision", WEFT_KEY_ENUM, offsetof(weft_run, precision), "f32", "",
     "of what is trained; bf16: weights in use, activations and gradients take half the memory; "
     "parameters, checkpoints, moments, averages and losses stay f32",
     .choices = dtype_names},
    {"gradient_sums", WEFT_KEY_ENUM, offsetof(weft_run, gradient_sums), "f32", "",
     "with precision: bf16: what gradients are added up over ranks in; bf16 sends half the bytes",
     .choices = dtype_names},
    {"model_dtype", WEFT_KEY_ENUM, offsetof(weft_run, model_dtype), "f32", "",
     "how the finished model's weights are written; checkpoints are f32 in any case",
     .choices = dtype_names},
    {"trace", WEFT_KEY_BOOL, offsetof(weft_run, trace), "false", "",
     "write when each kernel and collective of a stage's last step ran: "
     "OUT/trace-<stage>-<rank>.json, for Perfetto"},
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
        return weft_fail(WEFT_E_CONFIG, "%s: %s.frames: %lld is not %s%s, as the autoencoder needs",
                         path, where, (long long)b->frames, weft_grid_rule(grid, rule),
                         patch && patch->factor[0] > 1 ? " with whole patches of the transformer"
                                                       : "");
    if (patch)
        WEFT_TRY(weft_grid_check_statistics(grid, weft_grid_latent_frames(grid, b->frames), where));
    const int64_t sizes[2] = {b->height, b->width};
    for (int i = 0; i < 2; i++) {
        const int64_t step = grid->factor[1 + i] * (patch ? patch->factor[1 + i] : 1);
        if (sizes[i] % step)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: %s.%s: %lld is not a multiple of %lld, as the %s needs", path,
                             where, i ? "width" : "height", (long long)sizes[i], (long long)step,
                             patch ? "transformer" : "autoencoder");
    }
    return WEFT_OK;
}

static weft_status check_stage(const weft_run *run, const char *path, int64_t index,
                               const weft_grid *grid, const weft_grid *patch)
{
    const weft_stage *s = (const weft_stage *)run->stages.item + index;
    const long long at = (long long)index;
    for (int i = 0; i < weft_stage_bucket_count(s); i++) {
        char where[64];
        snprintf(where, sizeof where, s->buckets.count ? "stages.%lld.buckets.%d" : "stages.%lld",
                 at, i);
        WEFT_TRY(check_bucket(path, where, weft_stage_bucket(s, i), grid, patch));
        for (int k = 0; k < i; k++)
            if (same_size(weft_stage_bucket(s, i), weft_stage_bucket(s, k)))
                return weft_fail(
                    WEFT_E_CONFIG,
                    "%s: %s: has the size of bucket %d; a clip would not know where it belongs",
                    path, where, k);
    }
    return WEFT_OK;
}

weft_status weft_run_check_sizes(const weft_run *run, const char *path, const weft_grid *grid,
                                 const weft_grid *patch)
{
    for (int64_t i = 0; i < run->stages.count; i++)
        WEFT_TRY(check_stage(run, path, i, grid, patch));
    return WEFT_OK;
}

static weft_status check_buckets_given(const weft_run *run, const char *path)
{
    for (int64_t i = 0; i < run->stages.count; i++) {
        const weft_stage *s = (const weft_stage *)run->stages.item + i;
        const weft_bucket *own = &s->size;
        const bool bound = s->tokens > 0 || s->load > 0;
        if (s->buckets.count
                ? own->batch || own->frames || own->height || own->width
                : (!own->batch && !bound) || !own->frames || !own->height || !own->width)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: stages.%lld: give batch, frames, height and width, or buckets, a "
                             "list of such, %s",
                             path, (long long)i,
                             s->buckets.count ? "but not both" : "all four of them above 0");
        for (int k = 0; k < (int)s->buckets.count; k++)
            if (!weft_stage_bucket(s, k)->batch && !bound)
                return weft_fail(WEFT_E_CONFIG,
                                 "%s: stages.%lld.buckets.%d: give batch, or the stage's tokens or "
                                 "load, by which it is chosen",
                                 path, (long long)i, k);
        if (s->images > -1 && s->images < 0)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: stages.%lld.images: %g is neither a share nor -1, as many as "
                             "there are",
                             path, (long long)i, s->images);
        if (s->shift > 0 &&
            (weft_run_process(run) != &weft_process_flow || run->noise.flow.by_resolution))
            return weft_fail(WEFT_E_CONFIG,
                             "%s: stages.%lld.shift: %g goes with process: flow without "
                             "shift_by_resolution",
                             path, (long long)i, s->shift);
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
        return weft_fail(WEFT_E_CONFIG,
                         "%s: %s: give class and config to begin from nothing, or weights, but not "
                         "both; the folder of weights has its own config",
                         path, key);
    if (m->weights[0] && weft_path_exists(m->weights) && !weft_path_is_dir(m->weights))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: %s.weights: %s is a file, and a folder is wanted: one with a "
                         "config.json and the weights beside it",
                         path, key, m->weights);
    if (m->weights[0] || m->class_name[0])
        return WEFT_OK;
    weft_buf known = {0};
    weft_family_list(role, &known);
    const weft_status_code status =
        weft_fail(WEFT_E_CONFIG, "%s: %s.class: a class is needed (%s), or weights: FOLDER", path,
                  key, known.data ? known.data : "?");
    weft_buf_free(&known);
    return status;
}

weft_tuning weft_run_tuning(const weft_run *run, const char *scope)
{
    const weft_run_model *m =
        weft_run_model_given(&run->transformer) ? &run->transformer : &run->autoencoder;
    return (weft_tuning){.scope = scope,
                         .train = m->trained,
                         .freeze = m->freeze,
                         .beside = weft_run_model_given(&run->identity),
                         .rank = m->lora.rank,
                         .alpha = (m->lora.alpha > 0 ? m->lora.alpha : (double)m->lora.rank) *
                                  (m->lora.rooted ? sqrt((double)m->lora.rank) : 1),
                         .targets = m->lora.targets,
                         .narrow = m->lora.base == WEFT_MODEL_BF16};
}

/* What is not trained must come from somewhere that stays. */
static weft_status check_tuning(const weft_run *run, const char *path)
{
    const bool denoises = weft_run_model_given(&run->transformer);
    const weft_run_model *m = denoises ? &run->transformer : &run->autoencoder;
    const char *key = denoises ? "transformer" : "autoencoder";
    const weft_tuning tuning = weft_run_tuning(run, "");
    if (denoises && (run->autoencoder.trained.count || run->autoencoder.freeze.count))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: autoencoder: nothing of it is trained beside a transformer; leave "
                         "train and freeze out",
                         path);
    if (m->lora.alpha > 0 && !m->lora.rank)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: %s.lora.rank: alpha needs a rank, as in lora: {rank: "
                         "16, alpha: 16}",
                         path, key);
    if (m->lora.rank && (m->trained.count || m->freeze.count))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: %s: with lora all weights stay, and lora.targets says where "
                         "matrices are; leave train and freeze out",
                         path, key);
    if (weft_tuning_given(&tuning) && !m->weights[0])
        return weft_fail(WEFT_E_CONFIG,
                         "%s: %s.weights: %s leaves weights as they are, so they must come from "
                         "somewhere: give the folder of a trained model",
                         path, key, m->lora.rank ? "lora" : "train or freeze");
    for (int r = 0; r < (int)run->text_encoders.count && m->lora.rank; r++)
        if (!weft_run_text(run, r)->weights[0] || weft_run_text(run, r)->train)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: text_encoders.%d: with lora only the matrices are trained; give "
                             "weights: FOLDER, and leave train out",
                             path, r);
    return WEFT_OK;
}

static weft_status check_models(const weft_run *run, const char *path)
{
    const bool denoises = weft_run_model_given(&run->transformer);
    if (!denoises && !weft_run_model_given(&run->autoencoder))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: nothing to train: give autoencoder: {class: ..., config: {...}}, or "
                         "a transformer with autoencoder: {weights: FOLDER}",
                         path);
    if (!denoises) {
        if (weft_run_model_given(&run->identity))
            return weft_fail(WEFT_E_CONFIG,
                             "%s: identity: it tells a transformer what a picture shows; an "
                             "autoencoder is told nothing",
                             path);
        if (run->text_encoders.count)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: text_encoders: an autoencoder reads no captions; they are for a "
                             "transformer",
                             path);
        return check_model(&run->autoencoder, WEFT_ROLE_AUTOENCODER, path, "autoencoder");
    }
    if (!run->autoencoder.weights[0])
        return weft_fail(WEFT_E_CONFIG,
                         "%s: autoencoder.weights: training a transformer needs the folder of a "
                         "trained autoencoder, as in autoencoder: {weights: runs/vae/model/vae}",
                         path);
    WEFT_TRY(check_model(&run->autoencoder, WEFT_ROLE_AUTOENCODER, path, "autoencoder"));
    WEFT_TRY(check_model(&run->transformer, WEFT_ROLE_DENOISER, path, "transformer"));
    if (run->text_encoders.count < 1 || run->text_encoders.count > WEFT_MAX_READERS)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: text_encoders: a transformer needs one, %lld are given, as in\n"
                         "  text_encoders:\n    - {class: CLASS, config: {...}}",
                         path, (long long)run->text_encoders.count);
    if (weft_run_model_given(&run->identity))
        WEFT_TRY(check_model(&run->identity, WEFT_ROLE_IDENTITY_ENCODER, path, "identity"));
    for (int r = 0; r < (int)run->text_encoders.count; r++) {
        char key[32];
        snprintf(key, sizeof key, "text_encoders.%d", r);
        WEFT_TRY(check_model(weft_run_text(run, r), WEFT_ROLE_TEXT_ENCODER, path, key));
    }
    return WEFT_OK;
}

static bool is_word(const weft_string_list *list, const char *word)
{
    return list->count == 1 && !strcmp(list->item[0], word);
}

const weft_string_list *weft_run_recomputes(const weft_run *run, bool *chosen)
{
    const weft_string_list *own = &run->memory.recompute;
    *chosen = is_word(own, "auto");
    return *chosen || is_word(own, "none") ? &run->recompute : own;
}

static weft_status check_memory(const weft_run *run, const char *path)
{
    bool chosen;
    if (weft_run_recomputes(run, &chosen) != &run->recompute && run->recompute.count)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: recompute and memory.recompute both have patterns: they mean the "
                         "same, give them in one place",
                         path);
    const weft_backend *backend = weft_backend_find(run->backend);
    const bool cpu = backend == &weft_backend_cpu,
               host = backend && backend->device == &weft_device_host;
    if (host && !strcmp(run->memory.offload, "host"))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: memory.offload: host: backend %s computes in the host's memory; name "
                         "a folder, or auto for that of the run",
                         path, run->backend);
    if (run->memory.states && !cpu)
        return weft_fail(WEFT_E_CONFIG, "%s: memory.states: offload is for backend cpu, this is %s",
                         path, run->backend);
    if (strcmp(run->memory.offload, "none") && !run->memory.limit && !run->memory.states)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: memory.offload: nothing has to go without memory.limit; give one, as "
                         "in memory: {limit: 6GiB, offload: %s}",
                         path, run->memory.offload);
    if (run->memory.profile[0] && !run->memory.limit)
        return weft_fail(
            WEFT_E_CONFIG,
            "%s: memory.profile: %s chooses what is made again below memory.limit, and "
            "there is none; give one, or leave memory.profile out",
            path, run->memory.profile);
    return WEFT_OK;
}

weft_run_place weft_run_away(const weft_run *run)
{
    const weft_run_room *m = &run->memory;
    const weft_backend *backend = weft_backend_find(run->backend);
    const bool named = strcmp(m->offload, "none") && strcmp(m->offload, "auto") &&
                       strcmp(m->offload, "host"),
               host = !backend || backend->device == &weft_device_host;
    return (weft_run_place){.values = strcmp(m->offload, "none") && m->limit,
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
        return weft_fail(WEFT_E_CONFIG,
                         "%s: loss.%s: it judges what an autoencoder makes, and with a transformer "
                         "none is trained; take it out",
                         path, perceives ? "lpips" : "adversarial");
    if (perceives && (!l->lpips.trunk[0] || !l->lpips.heads[0]))
        return weft_fail(
            WEFT_E_CONFIG,
            "%s: loss.lpips.%s: a file is needed, as in loss: {lpips: {weight: 1, "
            "trunk: vgg16-397923af.pth, heads: vgg.pth}}: torchvision's net and lpips' "
            "heads for it",
            path, l->lpips.trunk[0] ? "heads" : "trunk");
    if (!perceives && (l->lpips.trunk[0] || l->lpips.heads[0]))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: loss.lpips: files without a weight do nothing; give weight: 1", path);
    return WEFT_OK;
}

static weft_status check_cascades(const weft_run *run, const char *path)
{
    const bool planned = weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE;
    WEFT_TRY(weft_cascades_check(&run->cascades, &run->parallel, 0, path));
    if (run->data.samples_from == WEFT_FROM_PIXELS && !planned)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: data.samples_from: pixels are encoded by cascades; add parallel: "
                         "{cascades: {plan: every-iteration}}, or leave it out",
                         path);
    if (planned && !weft_run_model_given(&run->transformer))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.cascades: they are of a transformer's samples; an "
                         "autoencoder is trained with dp or fsdp",
                         path);
    return WEFT_OK;
}

weft_status weft_run_check(const weft_run *run, const char *path)
{
    if (run->stages.count == 0)
        return weft_fail(
            WEFT_E_CONFIG,
            "%s: stages: at least one stage is needed, as in\n"
            "  stages:\n    - {steps: 1000, batch: 8, frames: 17, height: 64, width: 64}",
            path);
    if (!run->out[0])
        return weft_fail(WEFT_E_CONFIG, "%s: out: a folder for the run is needed", path);
    if (run->gradient_sums && !run->precision)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: gradient_sums: gradients are f32 without precision: bf16, and are "
                         "added up as such",
                         path);
    WEFT_TRY(weft_process_check(weft_run_process(run), &run->noise, path));
    WEFT_TRY(check_buckets_given(run, path));
    WEFT_TRY(check_cascades(run, path));
    WEFT_TRY(check_memory(run, path));
    WEFT_TRY(check_models(run, path));
    WEFT_TRY(check_loss(run, path));
    return check_tuning(run, path);
}

/* ---- stages -------------------------------------------------------------------------------- */

int weft_stage_bucket_count(const weft_stage *stage)
{
    return stage->buckets.count ? (int)stage->buckets.count : 1;
}

const weft_bucket *weft_stage_bucket(const weft_stage *stage, int index)
{
    return stage->buckets.count ? (const weft_bucket *)stage->buckets.item + index : &stage->size;
}

weft_run weft_stage_run(const weft_run *run, const weft_stage *stage)
{
    weft_run own = *run;
    if (stage->shift > 0)
        own.noise.flow.shift = stage->shift;
    return own;
}

int64_t weft_stage_batch(const weft_stage *stage, int64_t tokens)
{
    double most = INT16_MAX;
    if (stage->tokens > 0)
        most = fmin(most, (double)(stage->tokens / tokens));
    if (stage->load > 0)
        most = fmin(most, floor(stage->load / pow((double)tokens, stage->load_power) + 1e-9));
    return most < 1 ? 1 : (int64_t)most;
}

static int64_t bucket_pixels(const weft_bucket *b)
{
    return b->frames * b->height * b->width;
}

int weft_stage_largest(const weft_stage *stage)
{
    int best = 0;
    for (int i = 1; i < weft_stage_bucket_count(stage); i++)
        if (bucket_pixels(weft_stage_bucket(stage, i)) >
            bucket_pixels(weft_stage_bucket(stage, best)))
            best = i;
    return best;
}

double weft_stage_lr(const weft_stage *stage, int64_t step)
{
    const int64_t warmup = stage->warmup < stage->steps ? stage->warmup : stage->steps;
    if (step < warmup)
        return stage->lr * (double)(step + 1) / (double)warmup;
    if (stage->schedule == WEFT_LR_CONSTANT)
        return stage->lr;
    const int64_t span = stage->steps - warmup;
    const double done = span > 1 ? (double)(step - warmup) / (double)(span - 1) : 1;
    const double low = stage->lr * stage->lr_end;
    return low + (stage->lr - low) * 0.5 * (1 + cos(3.14159265358979323846 * fmin(done, 1)));
}

int64_t weft_run_first_step(const weft_run *run, int64_t index)
{
    const weft_stage *stage = run->stages.item;
    int64_t first = 0;
    for (int64_t i = 0; i < index && i < run->stages.count; i++)
        first += stage[i].steps;
    return first;
}

/* ---- models -------------------------------------------------------------------------------- */

/* Fields that the config leaves out and the models beside it decide. */
static void follow(const weft_family *family, json_t *json, int64_t channels, int64_t text_width)
{
    for (int i = 0; i < family->fields; i++) {
        const weft_field *f = &family->field[i];
        const int64_t value = f->follows == WEFT_FOLLOWS_LATENTS ? channels
                              : f->follows == WEFT_FOLLOWS_TEXT  ? text_width
                                                                 : 0;
        if (value > 0 && !json_object_get(json, f->key))
            json_object_set_new(json, f->key, json_integer(value));
    }
}

static weft_status from_nothing(const weft_run_model *m, weft_role role, const char *path,
                                const char *key, int64_t channels, int64_t text_width,
                                weft_model *model)
{
    const weft_family *family = weft_family_find(m->class_name);
    if (!family || family->role != role) {
        weft_buf known = {0};
        weft_family_list(role, &known);
        const weft_status_code status = weft_fail(
            WEFT_E_CONFIG, "%s: %s.class: \"%s\" is no %s that is built in; known are %s", path,
            key, m->class_name, weft_role_name(role), known.data ? known.data : "?");
        weft_buf_free(&known);
        return status;
    }
    const weft_config_tree *c = &m->config;
    const char *text = c->json ? c->json : "{}";
    const weft_places places = {.where = c->json ? c->where : path,
                                .count = c->count,
                                .key = c->key,
                                .key_where = c->key_where,
                                .strict = true};
    json_t *json;
    WEFT_TRY(weft_json_parse(text, (int64_t)strlen(text), places.where, &json));
    follow(family, json, channels, text_width);
    const weft_status_code status = weft_model_read_as(m->class_name, json, &places, model);
    json_decref(json);
    return status == WEFT_E_FORMAT ? WEFT_E_CONFIG : status;
}

/* The folder of a run or of its finished models is easily taken for that of one of them. */
static weft_status look_beneath(const char *folder, weft_role role, const char *path,
                                const char *key)
{
    static const char *const beneath[] = {"", "model/"};
    for (int i = 0; weft_families[i]; i++)
        for (int k = 0; k < WEFT_COUNT(beneath) && weft_families[i]->role == role; k++) {
            char config[1024];
            const char *scope = weft_families[i]->scope;
            snprintf(config, sizeof config, "%s/%s%s/config.json", folder, beneath[k], scope);
            if (weft_path_exists(config))
                return weft_fail(
                    WEFT_E_CONFIG,
                    "%s: %s.weights: %s is not the folder of a %s; there is one in it: "
                    "write %s/%s%s",
                    path, key, folder, weft_role_name(role), folder, beneath[k], scope);
        }
    return WEFT_OK;
}

weft_status weft_run_model_read(const weft_run_model *m, weft_role role, const char *path,
                                const char *key, int64_t channels, int64_t text_width,
                                weft_model *model)
{
    if (!m->weights[0])
        return from_nothing(m, role, path, key, channels, text_width, model);
    const weft_status_code status = weft_model_open_as(m->weights, role, model);
    if (status == WEFT_OK)
        return role == WEFT_ROLE_AUTOENCODER ? weft_dialect_statistics(m->weights, model) : WEFT_OK;
    WEFT_TRY(look_beneath(m->weights, role, path, key));
    return weft_fail_context(status, "%s: %s.weights", path, key);
}

const weft_process *weft_run_process(const weft_run *run)
{
    return weft_processes[run->process];
}
