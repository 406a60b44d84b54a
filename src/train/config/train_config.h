/* The config of `weft train`: one table per section. */
#ifndef WEFT_TRAIN_CONFIG_TRAIN_CONFIG_H
#define WEFT_TRAIN_CONFIG_TRAIN_CONFIG_H

#include "data/loader.h"
#include "diffusion/process.h"
#include "model/model.h"
#include "prompt/text_conditioning.h"
#include "train/config/cascade_config.h"
#include "train/config/control_config.h"
#include "train/config/data_config.h"
#include "train/config/distill_config.h"
#include "train/config/history_config.h"
#include "train/config/optimizer_config.h"
#include "train/config/preference_config.h"
#include "train/config/sound_config.h"
#include "transform/numeric/trainable.h"
#include "transform/passes.h"
#include "transform/sharding/mesh_config.h"

typedef struct weft_straggler_config {
    double share;  /* relative excess over the median step time */
    int64_t steps; /* steps of the averaging window; 0: off */
} weft_straggler_config;

typedef enum weft_model_dtype { WEFT_MODEL_F32, WEFT_MODEL_BF16 } weft_model_dtype;
typedef enum weft_precision {
    WEFT_PRECISION_F32,
    WEFT_PRECISION_BF16,
    WEFT_PRECISION_AUTO, /* chosen when the run starts (estimate/training/resolve_precision.h) */
    WEFT_PRECISION_TF32
} weft_precision;
/* Conditioning of a transformer on images (model/family.h): none; the first frame, which trains
 * image-to-video generation; a control video; the clip itself without noise, of which a block of
 * frames sees earlier blocks (teacher forcing); other frames of the clip as the history of a
 * section. */
typedef enum weft_run_condition {
    WEFT_CONDITION_NONE,
    WEFT_CONDITION_FIRST_FRAME,
    WEFT_CONDITION_CONTROL,
    WEFT_CONDITION_CLEAN_BLOCKS,
    WEFT_CONDITION_HISTORY
} weft_run_condition;
typedef enum weft_lr_kind { WEFT_LR_CONSTANT, WEFT_LR_COSINE } weft_lr_kind;

/* LoRA: low-rank matrices that are trained instead of the transformer's weights (trainable.h). */
typedef struct weft_run_lora {
    int64_t rank;             /* rank of the matrices; 0: LoRA is off */
    double alpha;             /* 0: the rank */
    bool rooted;              /* divide alpha by the square root of the rank (rsLoRA) */
    weft_string_list targets; /* layers with matrices; only "auto": as its family has */
    /* Layers that "auto" was in the checkpoints of the run; empty (default): no checkpoint. Not a
     * key */
    weft_string_list recorded;
    int base;   /* weft_model_dtype of the frozen linear weights */
    int format; /* weft_adapter_format of the finished file */
} weft_run_lora;

/* A model of the run: a class and its config for a new model, or the folder of a trained model. The
 * family's table checks the config. Channels and widths that follow from the run's other models may
 * be omitted. */
typedef struct weft_run_model {
    const char *class_name; /* "": from `weights` */
    weft_config_tree config;
    const char *weights; /* folder with config.json and weights; "": new model */
    /* weft.json of the pipeline of `weights`, if only `weights` were copied. NULL (default): the
     * parent folder has the file. Not a key */
    const char *settings;
    /* Name patterns of trainable and frozen parameters, for the trained model with `weights`. */
    weft_string_list trained, freeze;
    weft_run_lora lora; /* transformers only */
    /* Autoencoders with a transformer: tile size for encoding (model/tiling.h). */
    const char *tile;
    /* Text encoders: */
    bool train;             /* continue training `weights` */
    const char *tokenizer;  /* file or folder; "": in or next to `weights` */
    const char *connectors; /* folder of text connectors; "": next to `weights` */
    int64_t length;         /* tokens of a caption; 0: from the transformer or the encoder */
    /* Identity encoders: share of samples whose reference images are dropped. */
    double dropout;
    weft_string_list images;   /* data sets of reference images; empty: a clip's first frame */
    const char *image_encoder; /* folder of the frozen encoder of images; "": latents are read */
} weft_run_model;
bool weft_run_model_given(const weft_run_model *model);

typedef struct weft_run_lpips {
    double weight;             /* weight of the LPIPS term; 0: off */
    const char *trunk, *heads; /* weights files */
} weft_run_lpips;

typedef struct weft_run_adversarial {
    double weight;    /* weight of the adversarial term; 0: off */
    int64_t start;    /* steps of the run before the term is active */
    int64_t channels; /* channels of the first layer */
    int64_t layers;
    bool video;          /* the discriminator sees several frames at once */
    int loss;            /* weft_gan_loss */
    bool adaptive;       /* scale the weight by the other terms' gradient norm */
    const char *weights; /* initial weights, file or folder; "": none */
} weft_run_adversarial;

typedef struct weft_run_loss {
    double l1, l2, kl; /* autoencoder: weights of |x-y|, (x-y)^2, and the KL divergence */
    weft_run_lpips lpips;
    weft_run_adversarial adversarial;
} weft_run_loss;

typedef struct weft_train_stage {
    const char *name;
    int64_t steps;
    int64_t accumulate;        /* batches per step */
    weft_bucket size;          /* size of every step, unless `buckets` is set */
    weft_section_list buckets; /* weft_bucket: sizes of the steps */
    int64_t tokens;            /* maximum tokens of a batch without a set size; 0: unlimited */
    double load, load_power;   /* maximum B S^power for B samples of S tokens; 0: unlimited */
    double images;             /* share of images among the samples; -1: as in the data */
    double last_images;        /* share at the end of the stage; -1: the same */
    double shift;              /* timestep shift of flow matching; 0: the run's */
    double lr;
    double lr_end; /* final learning rate of COSINE, as a share of lr */
    int64_t warmup;
    int schedule; /* weft_lr_kind */
} weft_train_stage;

typedef struct weft_run_checkpoint {
    int64_t every; /* steps; 0: at the end only */
    int64_t keep_latest;
    bool allow_changes; /* resume although data, encoders or sizes changed */
} weft_run_checkpoint;

typedef struct weft_run_guard {
    /* a loss or norm above factor x its running mean is an outlier; 0: only NaN */
    double factor;
    int64_t window;   /* steps of the running mean */
    int64_t patience; /* consecutive outliers that stop the run */
} weft_run_guard;

/* Memory limit of a rank, and the means to stay below it. */
typedef struct weft_memory_config {
    int64_t limit;              /* bytes; 0: unlimited */
    bool limit_auto;            /* training replaces the limit of 0 (train/estimate/auto_limit.h) */
    weft_string_list recompute; /* "auto" or "none", then patterns: weft_run_recomputes */
    const char *profile;
    const char *offload;    /* "none", "auto", "host" or a folder: weft_run_offload_target */
    int states;             /* 1: offload optimizer states between updates */
    int64_t prefetch_bytes; /* budget for gathered parameters in flight; 0: the two largest */
} weft_memory_config;

typedef struct weft_run {
    const char *out;
    int64_t seed;
    weft_run_data data;
    weft_run_model autoencoder;      /* trained; with a transformer: makes its latents */
    weft_run_model transformer;      /* trained if set */
    weft_section_list text_encoders; /* weft_run_model, with a transformer */
    weft_run_model identity;         /* trained with the transformer if set */
    weft_run_loss loss;
    int noise_process; /* index into weft_processes */
    weft_noise_process_config noise;
    double caption_dropout;
    double guidance; /* embedded guidance scale during training */
    int condition;   /* weft_run_condition */
    weft_control_config control;
    weft_history_config history;
    weft_sound_config sound;
    weft_distill_config distill;
    weft_preference_config preference;
    weft_optimizer_config optimizer;
    weft_section_list train_stages; /* weft_train_stage */
    weft_run_checkpoint checkpoint;
    weft_run_guard guard;
    weft_memory_config memory;
    weft_pass_switches passes;
    const char *backend;
    const char *metrics; /* address of /metrics; NULL: none. Not a key */
    /* Buckets in place of which the run has folders; NULL: not opened. Not a key */
    const struct weft_run_places *places;
    weft_parallel parallel;
    weft_cascade_config cascades; /* parallel.cascades */
    double deadline;              /* communication timeout in seconds */
    weft_straggler_config stragglers;
    int64_t log_every;
    bool trace;
    int precision;         /* weft_precision of the computation */
    int grad_reduce_dtype; /* weft_precision of the gradient reduction */
    int model_dtype;       /* weft_model_dtype of the finished model's files */
} weft_run;
extern const weft_section weft_run_section;
extern const char *const weft_condition_names[]; /* names by weft_run_condition */

/* Checks that the config table cannot express: training stages exist, and models are set in valid
 * combinations. */
weft_status weft_run_check(const weft_run *run, const char *path);
/* Returns the error that `key` cannot be combined with `other`, a key or "KEY: VALUE". */
weft_status weft_run_conflict(const char *path, const char *key, const char *other);
/* Whether the run trains with pairs of clips (preference.rejected). */
static inline bool weft_run_prefers(const weft_run *run)
{
    return run->preference.rejected && run->preference.rejected[0];
}
/* Text encoder `index`. */
const weft_run_model *weft_run_text(const weft_run *run, int index);
/* Whether lora.targets is auto. */
bool weft_run_lora_is_auto(const weft_run_lora *lora);
/* Trainable parameters of the trained model, whose scope is `scope`. `family`: of the model, for
 * the layers with LoRA; NULL: not known yet. */
weft_trainable weft_run_trainable(const weft_run *run, const weft_family *family,
                                  const char *scope);
/* Checks that every bucket of every training stage fits the grids. `patch` NULL: no denoiser. */
weft_status weft_run_check_sizes(const weft_run *run, const char *path, const weft_grid *grid,
                                 const weft_grid *patch);

/* Patterns of nodes that the backward always recomputes. *is_auto: memory.limit may select more
 * nodes. */
weft_string_list weft_run_recomputes(const weft_run *run, bool *is_auto);
/* Values that memory.offload and memory.states offload, and their target. `dir` NULL: host
 * memory. */
typedef struct weft_offload_target {
    bool values, states;
    const char *dir;
} weft_offload_target;
weft_offload_target weft_run_offload_target(const weft_run *run);
/* The noise process that the run selects. */
const weft_noise_process *weft_run_process(const weft_run *run);

/* The sizes of a training stage's steps: its buckets, or its single size. */
int weft_train_stage_bucket_count(const weft_train_stage *train_stage);
const weft_bucket *weft_train_stage_bucket(const weft_train_stage *train_stage, int index);
/* The config key of a bucket of training stage `index`, for messages. Returns `key`. */
const char *weft_train_stage_bucket_key(const weft_train_stage *train_stage, int64_t index,
                                        int bucket, char key[64]);
/* Index of the bucket with the most pixels, for which the model is exported. */
int weft_train_stage_largest(const weft_train_stage *train_stage);
/* A copy of the run with the shift of `train_stage`. */
weft_run weft_train_stage_run(const weft_run *run, const weft_train_stage *train_stage);
/* Largest batch of samples of `tokens` tokens within the training stage's limits, at least 1. */
int64_t weft_train_stage_batch(const weft_train_stage *train_stage, int64_t tokens);
/* Learning rate of step `step` (from 0) of a training stage. */
double weft_train_stage_lr(const weft_train_stage *train_stage, int64_t step);
/* Number of steps before training stage `index`; index = count: of all training stages. */
int64_t weft_run_first_step(const weft_run *run, int64_t index);

#endif
