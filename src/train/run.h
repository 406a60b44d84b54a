/* The config of `weft train`: one table per section. */
#ifndef WEFT_TRAIN_RUN_H
#define WEFT_TRAIN_RUN_H

#include "data/loader.h"
#include "diffusion/process.h"
#include "model/model.h"
#include "pass/passes.h"
#include "train/optimizer.h"

typedef enum weft_run_what { WEFT_RUN_VAE, WEFT_RUN_DIT } weft_run_what;
typedef enum weft_model_dtype { WEFT_MODEL_F32, WEFT_MODEL_BF16 } weft_model_dtype;
typedef enum weft_lr_kind { WEFT_LR_CONSTANT, WEFT_LR_COSINE } weft_lr_kind;

/* Sizes of a Wan VAE trained from nothing; field names are those of its public config.json. */
typedef struct weft_run_vae {
    int64_t base_dim, z_dim, num_res_blocks;
    weft_i64_list dim_mult;
    const char *init; /* folder of weights to begin with; "": from nothing */
} weft_run_vae;

typedef struct weft_run_dit {
    int64_t num_layers, num_heads, head_dim, ffn_dim, freq_dim;
    weft_i64_list patch_size;
    const char *init;
} weft_run_dit;

typedef struct weft_run_text {
    const char *path; /* folder of a trained encoder that stays as it is; "": trained with the
                         transformer */
    int64_t dim, num_heads, num_layers, ffn_dim, max_length;
} weft_run_text;

typedef struct weft_run_loss {
    double l1, l2,
        kl; /* VAE: weights of |x-y|, (x-y)^2, and the KL divergence per latent element */
} weft_run_loss;

typedef struct weft_run_data {
    const char *path, *split; /* as for weft_dataset_open */
    double fps;               /* 0: every frame */
    int64_t threads;          /* decoders per rank */
    int64_t prefetch;         /* batches decoded ahead */
    bool random_start, random_crop;
} weft_run_data;

typedef struct weft_stage {
    const char *name;
    int64_t steps;
    int64_t accumulate;        /* batches per step */
    weft_bucket size;          /* of every step, or */
    weft_section_list buckets; /* weft_bucket: sizes that take turns */
    double lr;
    double lr_end; /* COSINE ends here, as a share of lr */
    int64_t warmup;
    int schedule; /* weft_lr_kind */
} weft_stage;

typedef struct weft_run_checkpoint {
    int64_t every; /* steps; 0: at the end only */
    int64_t keep;
} weft_run_checkpoint;

typedef struct weft_run_guard {
    double factor;    /* loss or norm above factor x its running mean is an outlier; 0: only NaN */
    int64_t window;   /* steps of that mean */
    int64_t patience; /* outliers in a row that stop the run */
} weft_run_guard;

typedef struct weft_run {
    int what; /* weft_run_what */
    const char *out;
    int64_t seed;
    weft_run_data data;
    const char *vae_path; /* what: dit */
    weft_run_vae vae;
    weft_run_dit dit;
    weft_run_text text;
    weft_run_loss loss;
    weft_process_config process;
    double caption_dropout;
    weft_optimizer_config optimizer;
    weft_section_list stages; /* weft_stage */
    weft_run_checkpoint checkpoint;
    weft_run_guard guard;
    weft_string_list recompute; /* patterns of scopes or ops that the backward computes again */
    weft_pass_switches passes;
    const char *backend;
    const char *mesh; /* "": all ranks on axis dp */
    double deadline;  /* seconds */
    int64_t log_every;
    bool trace;
    int model_dtype; /* weft_model_dtype: of the finished model's files */
} weft_run;
extern const weft_section weft_run_section;

/* What the table cannot say: stages present, sizes that the model can take, the paths that `what`
 * needs. */
weft_status weft_run_check(const weft_run *run, const char *path);

/* How data becomes noise: its row. */
const weft_process *weft_run_process(const weft_run *run);

/* The sizes of a stage's steps: its buckets, or the one that it gives itself. */
int weft_stage_bucket_count(const weft_stage *stage);
const weft_bucket *weft_stage_bucket(const weft_stage *stage, int index);
/* Index of the one with the most pixels: what the model is for. */
int weft_stage_largest(const weft_stage *stage);
/* Learning rate of step `step` (from 0) inside a stage. */
double weft_stage_lr(const weft_stage *stage, int64_t step);
/* Steps before stage `index`, or of all for index = count. */
int64_t weft_run_first_step(const weft_run *run, int64_t index);
/* The stage of global step `step`. */
int64_t weft_run_stage_at(const weft_run *run, int64_t step);

/* The models that the config describes, checked by the readers of the public config.json; `path`
 * names the config in messages. The transformer takes its channels from the VAE it is given. */
weft_status weft_run_vae_model(const weft_run *run, const char *path, weft_model *vae);
weft_status weft_run_text_model(const weft_run *run, const char *path, weft_model *text);
weft_status weft_run_dit_model(const weft_run *run, const char *path, int64_t channels,
                               int64_t text_dim, weft_model *dit);

#endif
