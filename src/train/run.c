#include "train/run.h"

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

static const weft_key vae_keys[] = {
    I64(weft_run_vae, base_dim, "base_dim", "96", "channels", "width of the first level", 1, 4096),
    I64(weft_run_vae, z_dim, "z_dim", "16", "channels", "latent channels", 1, 64),
    I64(weft_run_vae, num_res_blocks, "num_res_blocks", "2", "", "residual blocks per level", 1,
        16),
    {"dim_mult", WEFT_KEY_I64_LIST, offsetof(weft_run_vae, dim_mult), "[1, 2, 4, 4]", "",
     "width of each level over base_dim; four levels compress by 4x8x8", .min = 1, .max = 1024},
    {"init", WEFT_KEY_STRING, offsetof(weft_run_vae, init), "", "",
     "model folder of an earlier run (with vae/) whose weights to begin with; empty: random "
     "weights"},
};
static const weft_section vae_section = {"vae", "the video autoencoder to train (what: vae)",
                                         sizeof(weft_run_vae), vae_keys, WEFT_COUNT(vae_keys)};

static const weft_key dit_keys[] = {
    I64(weft_run_dit, num_layers, "num_layers", "6", "", "blocks", 0, 512),
    I64(weft_run_dit, num_heads, "num_attention_heads", "6", "", "attention heads", 1, 512),
    I64(weft_run_dit, head_dim, "attention_head_dim", "32", "channels",
        "width of a head, even; heads x width is the model's", 2, 1024),
    I64(weft_run_dit, ffn_dim, "ffn_dim", "768", "channels",
        "inner width of the feed-forward layer", 1, 1 << 20),
    I64(weft_run_dit, freq_dim, "freq_dim", "256", "channels",
        "width of the sinusoidal time embedding, even", 2, 1 << 16),
    {"patch_size", WEFT_KEY_I64_LIST, offsetof(weft_run_dit, patch_size), "[1, 2, 2]", "",
     "latent frames, rows and columns of one token", .min = 1, .max = 64},
    {"init", WEFT_KEY_STRING, offsetof(weft_run_dit, init), "", "",
     "folder of a trained model (with transformer/ and text_encoder/) to begin with; empty: random "
     "weights"},
};
static const weft_section dit_section = {"transformer",
                                         "the diffusion transformer to train (what: dit)",
                                         sizeof(weft_run_dit), dit_keys, WEFT_COUNT(dit_keys)};

static const weft_key text_keys[] = {
    {"path", WEFT_KEY_STRING, offsetof(weft_run_text, path), "", "",
     "folder of a trained text encoder (<model>/text_encoder): it stays as it is, and its "
     "embeddings of the captions are kept with "
     "the latents; empty: one of the sizes below is trained with the transformer"},
    I64(weft_run_text, dim, "dim", "128", "channels", "width; also the transformer's text_dim", 1,
        1 << 16),
    I64(weft_run_text, num_heads, "num_heads", "4", "", "attention heads", 1, 512),
    I64(weft_run_text, num_layers, "num_layers", "2", "", "blocks", 0, 512),
    I64(weft_run_text, ffn_dim, "ffn_dim", "512", "channels",
        "inner width of the feed-forward layer", 1, 1 << 20),
    I64(weft_run_text, max_length, "max_length", "64", "bytes",
        "longest caption; what is longer is cut", 1, 1 << 16),
};
static const weft_section text_section = {
    "text_encoder", "the byte-level text encoder, trained with the transformer or taken as it is",
    sizeof(weft_run_text), text_keys, WEFT_COUNT(text_keys)};

static const weft_key loss_keys[] = {
    F64(weft_run_loss, l1, "l1", "1", "", "weight of the mean absolute error of pixels in [-1, 1]",
        0, 1e6),
    F64(weft_run_loss, l2, "l2", "1", "", "weight of the mean squared error", 0, 1e6),
    F64(weft_run_loss, kl, "kl", "1e-6", "",
        "weight of the KL divergence, summed over a sample's latent, mean over samples", 0, 1e6),
};
static const weft_section loss_section = {"loss", "objective of the autoencoder (what: vae)",
                                          sizeof(weft_run_loss), loss_keys, WEFT_COUNT(loss_keys)};

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
     "what: vae: take a random stretch of a longer clip instead of its beginning"},
    {"random_crop", WEFT_KEY_BOOL, offsetof(weft_run_data, random_crop), "false", "",
     "what: vae: crop at a random place instead of the centre when the aspect differs"},
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
    I64(weft_stage, size.frames, "frames", "0", "frames", "length of a clip; 1 + a multiple of 4",
        0, 65536),
    I64(weft_stage, size.height, "height", "0", "pixels", "multiple of 8 (16 for the transformer)",
        0, 16384),
    I64(weft_stage, size.width, "width", "0", "pixels", "multiple of 8 (16 for the transformer)", 0,
        16384),
    {"buckets", WEFT_KEY_SECTION_LIST, offsetof(weft_stage, buckets),
     .section = &weft_bucket_section},
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

static const char *const what_names[] = {"vae", "dit", NULL};
static const char *const dtype_names[] = {"f32", "bf16", NULL};
static const weft_key run_keys[] = {
    {"what", WEFT_KEY_ENUM, offsetof(weft_run, what), NULL, "",
     "train the video autoencoder or the diffusion transformer", .choices = what_names},
    {"out", WEFT_KEY_STRING, offsetof(weft_run, out), NULL, "",
     "folder of the run: checkpoints, metrics, and the finished model in <out>/model"},
    I64(weft_run, seed, "seed", "1", "", "of initial weights, noise and data order", 0, 9e18),
    {"data", WEFT_KEY_SECTION, offsetof(weft_run, data), .section = &data_section},
    {"vae_path", WEFT_KEY_STRING, offsetof(weft_run, vae_path), "", "",
     "what: dit: the trained VAE's folder (config.json and weights)"},
    {"vae", WEFT_KEY_SECTION, offsetof(weft_run, vae), .section = &vae_section},
    {"transformer", WEFT_KEY_SECTION, offsetof(weft_run, dit), .section = &dit_section},
    {"text_encoder", WEFT_KEY_SECTION, offsetof(weft_run, text), .section = &text_section},
    {"loss", WEFT_KEY_SECTION, offsetof(weft_run, loss), .section = &loss_section},
    {"flow", WEFT_KEY_SECTION, offsetof(weft_run, process.flow), .section = &weft_flow_section},
    F64(weft_run, caption_dropout, "caption_dropout", "0.1", "",
        "share of samples whose caption is left away, so that guidance has an unconditional model",
        0, 1),
    {"optimizer", WEFT_KEY_SECTION, offsetof(weft_run, optimizer),
     .section = &weft_optimizer_section},
    {"stages", WEFT_KEY_SECTION_LIST, offsetof(weft_run, stages), .section = &stage_section},
    {"checkpoint", WEFT_KEY_SECTION, offsetof(weft_run, checkpoint),
     .section = &checkpoint_section},
    {"guard", WEFT_KEY_SECTION, offsetof(weft_run, guard), .section = &guard_section},
    {"recompute", WEFT_KEY_STRING_LIST, offsetof(weft_run, recompute), "[]", "",
     "patterns over scopes and op names whose results the backward computes again instead of "
     "keeping"},
    {"passes", WEFT_KEY_SECTION, offsetof(weft_run, passes), .section = &weft_pass_section},
    {"backend", WEFT_KEY_STRING, offsetof(weft_run, backend), "cpu", "",
     "cpu, or ref: the slow f64 reference"},
    {"mesh", WEFT_KEY_STRING, offsetof(weft_run, mesh), "", "",
     "axes of ranks as dp=2; empty: all ranks on dp"},
    F64(weft_run, deadline, "deadline", "120", "s",
        "a wait for other ranks that takes longer fails and names them", 1, 1e6),
    I64(weft_run, log_every, "log_every", "1", "steps", "steps between lines of metrics.jsonl", 1,
        1e9),
    {"model_dtype", WEFT_KEY_ENUM, offsetof(weft_run, model_dtype), "f32", "",
     "how the finished model's weights are written; checkpoints are f32 in any case",
     .choices = dtype_names},
    {"trace", WEFT_KEY_BOOL, offsetof(weft_run, trace), "false", "",
     "write when each kernel and collective of a stage's last step ran: "
     "OUT/trace-<stage>-<rank>.json, for Perfetto"},
};
const weft_section weft_run_section = {"run", "a training run", sizeof(weft_run), run_keys,
                                       WEFT_COUNT(run_keys)};

/* ---- checks -------------------------------------------------------------------------------- */

static bool same_size(const weft_bucket *a, const weft_bucket *b)
{
    return a->frames == b->frames && a->height == b->height && a->width == b->width;
}

static weft_status check_bucket(const weft_run *run, const char *path, const char *where,
                                const weft_bucket *b, int64_t time, int64_t space)
{
    if ((b->frames - 1) % time)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: %s.frames: %lld is not 1 + a multiple of %lld, as the VAE needs",
                         path, where, (long long)b->frames, (long long)time);
    const int64_t sizes[2] = {b->height, b->width};
    for (int i = 0; i < 2; i++) {
        const int64_t step =
            space * (run->what == WEFT_RUN_DIT ? run->dit.patch_size.item[1 + i] : 1);
        if (sizes[i] % step)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: %s.%s: %lld is not a multiple of %lld, as the %s needs", path,
                             where, i ? "width" : "height", (long long)sizes[i], (long long)step,
                             run->what == WEFT_RUN_DIT ? "transformer" : "VAE");
    }
    return WEFT_OK;
}

static weft_status check_stage(const weft_run *run, const char *path, int64_t index, int64_t time,
                               int64_t space)
{
    const weft_stage *s = (const weft_stage *)run->stages.item + index;
    const long long at = (long long)index;
    const weft_bucket *own = &s->size;
    if (s->buckets.count ? own->batch || own->frames || own->height || own->width
                         : !own->batch || !own->frames || !own->height || !own->width)
        return weft_fail(
            WEFT_E_CONFIG,
            "%s: stages.%lld: give batch, frames, height and width, or buckets, a list of such, %s",
            path, at, s->buckets.count ? "but not both" : "all four of them above 0");
    for (int i = 0; i < weft_stage_bucket_count(s); i++) {
        char where[64];
        snprintf(where, sizeof where, s->buckets.count ? "stages.%lld.buckets.%d" : "stages.%lld",
                 at, i);
        WEFT_TRY(check_bucket(run, path, where, weft_stage_bucket(s, i), time, space));
        for (int k = 0; k < i; k++)
            if (same_size(weft_stage_bucket(s, i), weft_stage_bucket(s, k)))
                return weft_fail(
                    WEFT_E_CONFIG,
                    "%s: %s: has the size of bucket %d; a clip would not know where it belongs",
                    path, where, k);
    }
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
    if (run->what == WEFT_RUN_DIT && !run->vae_path[0])
        return weft_fail(WEFT_E_CONFIG,
                         "%s: vae_path: training the transformer needs a trained VAE's folder",
                         path);
    if (run->dit.patch_size.count != 3)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: transformer.patch_size: three numbers are needed, %lld are given",
                         path, (long long)run->dit.patch_size.count);
    for (int64_t i = 0; i < run->stages.count; i++)
        WEFT_TRY(check_stage(run, path, i, 4, 8));
    if (run->what == WEFT_RUN_VAE) {
        weft_model vae;
        return weft_run_vae_model(run, path, &vae);
    }
    weft_model text;
    weft_model dit;
    WEFT_TRY(weft_run_text_model(run, path, &text));
    return weft_run_dit_model(run, path, 16, weft_model_text(&text).width, &dit);
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

int64_t weft_run_stage_at(const weft_run *run, int64_t step)
{
    int64_t index = 0;
    while (index + 1 < run->stages.count && weft_run_first_step(run, index + 1) <= step)
        index++;
    return index;
}

/* ---- models -------------------------------------------------------------------------------- */

/* Through the reader of the public config.json, so that its limits and defaults hold here too. */
static weft_status from_json(json_t *json, const char *where, weft_model *model)
{
    if (!json)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", where);
    const weft_status_code status = weft_model_read(json, where, model);
    json_decref(json);
    return status == WEFT_E_FORMAT ? WEFT_E_CONFIG : status;
}

static json_t *json_i64s(const weft_i64_list *list)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && i < list->count; i++)
        json_array_append_new(array, json_integer(list->item[i]));
    return array;
}

weft_status weft_run_vae_model(const weft_run *run, const char *path, weft_model *vae)
{
    const weft_run_vae *c = &run->vae;
    if (c->dim_mult.count != 4)
        return weft_fail(
            WEFT_E_CONFIG,
            "%s: vae.dim_mult: four levels are needed (4x8x8 compression), %lld are given", path,
            (long long)c->dim_mult.count);
    json_t *json =
        json_pack("{s:s, s:I, s:I, s:I, s:o}", "_class_name", "AutoencoderKLWan", "base_dim",
                  (json_int_t)c->base_dim, "z_dim", (json_int_t)c->z_dim, "num_res_blocks",
                  (json_int_t)c->num_res_blocks, "dim_mult", json_i64s(&c->dim_mult));
    return from_json(json, path, vae);
}

weft_status weft_run_text_model(const weft_run *run, const char *path, weft_model *text)
{
    const weft_run_text *c = &run->text;
    if (c->path[0]) {
        const weft_status_code status = weft_model_open_as(c->path, WEFT_ROLE_TEXT_ENCODER, text);
        return status == WEFT_OK ? status
                                 : weft_fail_context(status, "%s: text_encoder.path", path);
    }
    return from_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "_class_name", "WeftBytesEncoder",
                               "dim", (json_int_t)c->dim, "num_heads", (json_int_t)c->num_heads,
                               "num_layers", (json_int_t)c->num_layers, "ffn_dim",
                               (json_int_t)c->ffn_dim, "max_length", (json_int_t)c->max_length),
                     path, text);
}

weft_status weft_run_dit_model(const weft_run *run, const char *path, int64_t channels,
                               int64_t text_dim, weft_model *dit)
{
    const weft_run_dit *c = &run->dit;
    return from_json(json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "_class_name",
                               "WanTransformer3DModel", "patch_size", json_i64s(&c->patch_size),
                               "num_attention_heads", (json_int_t)c->num_heads,
                               "attention_head_dim", (json_int_t)c->head_dim, "in_channels",
                               (json_int_t)channels, "out_channels", (json_int_t)channels,
                               "text_dim", (json_int_t)text_dim, "freq_dim",
                               (json_int_t)c->freq_dim, "ffn_dim", (json_int_t)c->ffn_dim,
                               "num_layers", (json_int_t)c->num_layers),
                     path, dit);
}

const weft_process *weft_run_process(const weft_run *run)
{
    (void)run;
    return &weft_process_flow;
}
