/* The config of `weft train`: one table per section. */
#ifndef WEFT_TRAIN_RUN_H
#define WEFT_TRAIN_RUN_H

#include "data/loader.h"
#include "diffusion/process.h"
#include "model/model.h"
#include "pass/parallel.h"
#include "pass/passes.h"
#include "pass/tune.h"
#include "prompt/captions.h"
#include "train/cascade_config.h"
#include "train/optimizer.h"
#include "train/stragglers.h"

typedef enum weft_model_dtype { WEFT_MODEL_F32, WEFT_MODEL_BF16 } weft_model_dtype;
typedef enum weft_precision { WEFT_PRECISION_F32, WEFT_PRECISION_BF16 } weft_precision;
/* Embeddings of captions by encoders that are not trained: made once, or in every step. */
typedef enum weft_run_embeddings {
    WEFT_EMBEDDINGS_CACHED,
    WEFT_EMBEDDINGS_STEP
} weft_run_embeddings;
/* What a transformer's samples are read as. */
typedef enum weft_run_samples { WEFT_FROM_LATENTS, WEFT_FROM_PIXELS } weft_run_samples;
/* What a transformer is given beside the noise (model/family.h): nothing, or a video's first frame,
 * so that the model makes videos from an image. */
typedef enum weft_run_condition {
    WEFT_CONDITION_NONE,
    WEFT_CONDITION_FIRST_FRAME
} weft_run_condition;
typedef enum weft_lr_kind { WEFT_LR_CONSTANT, WEFT_LR_COSINE } weft_lr_kind;

/* Low-rank matrices that are trained in the place of a transformer (pass/tune.h). */
typedef struct weft_run_lora {
    int64_t rank; /* 0: none */
    double alpha; /* 0: the rank */
    bool rooted;  /* alpha is divided by the root of the rank (rsLoRA) */
    weft_string_list targets;
    int base;   /* weft_model_dtype: of the weights of linear layers beside them */
    int format; /* weft_adapter_format: of the finished file */
} weft_run_lora;

/* A model of the run: a class and its config to begin from nothing, or the folder of a trained one.
 * The config is checked by the family's own table; channels and widths that the models beside it
 * decide may be left out. */
typedef struct weft_run_model {
    const char *class_name; /* "": `weights` has it */
    weft_config_tree config;
    const char *weights; /* folder with config.json and weights; "": from nothing */
    /* the one that is trained, with weights: what of it */
    weft_string_list trained, freeze;
    weft_run_lora lora; /* transformers */
    /* autoencoders beside a transformer: pictures are encoded in such tiles (model/tiling.h) */
    const char *tile;
    /* text encoders: */
    bool train;            /* with weights: go on training them */
    const char *tokenizer; /* file or folder; "": in `weights` or beside it */
    int64_t length;        /* tokens of a caption; 0: the transformer's or the encoder's own */
    double dropout;        /* an identity encoder's: share of samples whose picture is left away */
} weft_run_model;
bool weft_run_model_given(const weft_run_model *model);

typedef struct weft_run_lpips {
    double weight;             /* 0: none */
    const char *trunk, *heads; /* files */
} weft_run_lpips;

typedef struct weft_run_adversarial {
    double weight;    /* 0: there is no discriminator */
    int64_t start;    /* steps of the run before it takes part */
    int64_t channels; /* of its first layer */
    int64_t layers;
    bool video;          /* it sees several frames at once */
    int loss;            /* weft_gan_loss */
    bool adaptive;       /* the weight is a share of the gradient of the other terms */
    const char *weights; /* file or folder to begin from; "": from nothing */
} weft_run_adversarial;

typedef struct weft_run_loss {
    double l1, l2, kl; /* autoencoder: weights of |x-y|, (x-y)^2, and the KL divergence */
    weft_run_lpips lpips;
    weft_run_adversarial adversarial;
} weft_run_loss;

typedef struct weft_run_data {
    const char *path, *split; /* as for weft_dataset_open */
    double fps;               /* 0: every frame */
    int64_t threads;          /* decoders per rank */
    int64_t prefetch;         /* batches decoded ahead */
    int64_t shuffle;          /* window of samples, as in weft_loader_config */
    bool random_start, random_crop;
    bool verify;         /* what is read is held against the shards' checksums */
    const char *latents; /* folder of the cache of latents; "": <out>/latents */
    int embeddings;      /* weft_run_embeddings */
    int samples_from;    /* weft_run_samples */
} weft_run_data;

typedef struct weft_stage {
    const char *name;
    int64_t steps;
    int64_t accumulate;        /* batches per step */
    weft_bucket size;          /* of every step, or */
    weft_section_list buckets; /* weft_bucket: sizes that take turns */
    int64_t tokens;            /* most of a batch whose size is not given; 0: any number */
    double load, load_power;   /* B S^power of such a batch of B times S tokens; 0: any */
    double images;             /* share of samples; -1: as they are */
    double shift;              /* of flow matching; 0: the run's */
    double lr;
    double lr_end; /* COSINE ends here, as a share of lr */
    int64_t warmup;
    int schedule; /* weft_lr_kind */
} weft_stage;

typedef struct weft_run_checkpoint {
    int64_t every; /* steps; 0: at the end only */
    int64_t keep;
    bool allow_changes; /* go on although data, encoders or sizes are others */
} weft_run_checkpoint;

typedef struct weft_run_guard {
    double factor;    /* loss or norm above factor x its running mean is an outlier; 0: only NaN */
    int64_t window;   /* steps of that mean */
    int64_t patience; /* outliers in a row that stop the run */
} weft_run_guard;

/* What a rank may take, and how it comes to that. */
typedef struct weft_run_room {
    int64_t limit;              /* bytes; 0: none */
    weft_string_list recompute; /* "auto", "none" or patterns: weft_run_recomputes */
    const char *profile;
    const char *offload; /* "none", "auto", "host" or a folder: weft_run_away */
    int states;          /* 1: the optimizer's are elsewhere between its updates */
    int64_t ahead; /* bytes of copies under way, of gathered parameters; 0: the two largest's */
} weft_run_room;

typedef struct weft_run {
    const char *out;
    int64_t seed;
    weft_run_data data;
    weft_run_model autoencoder;      /* trained, or with a transformer the one that it works in */
    weft_run_model transformer;      /* given: it is trained */
    weft_section_list text_encoders; /* weft_run_model, beside a transformer */
    weft_run_model identity;         /* given: it is trained beside the transformer */
    weft_run_loss loss;
    int process; /* index into weft_processes */
    weft_process_config noise;
    double caption_dropout;
    double guidance; /* scale that models which embed one are told */
    int condition;   /* weft_run_condition */
    weft_optimizer_config optimizer;
    weft_section_list stages; /* weft_stage */
    weft_run_checkpoint checkpoint;
    weft_run_guard guard;
    weft_string_list recompute; /* patterns of scopes or ops that the backward computes again */
    weft_run_room memory;
    weft_pass_switches passes;
    const char *backend;
    weft_parallel parallel;
    weft_cascade_config cascades; /* parallel.cascades */
    double deadline;              /* seconds */
    weft_straggler_config stragglers;
    int64_t log_every;
    bool trace;
    int precision;     /* weft_precision: what models compute in */
    int gradient_sums; /* weft_precision: what of gradients is added up over ranks in */
    int model_dtype;   /* weft_model_dtype: of the finished model's files */
} weft_run;
extern const weft_section weft_run_section;
extern const char *const weft_condition_names[]; /* by weft_run_condition */

/* What the table cannot say: stages present, models that are given as they can be. */
weft_status weft_run_check(const weft_run *run, const char *path);
/* Text encoder `index`. */
const weft_run_model *weft_run_text(const weft_run *run, int index);
/* The model that `m` describes, of this role; `key` is its section's name in messages. Fields that
 * follow others are taken from `channels` and `text_width` (0: nothing to follow). */
weft_status weft_run_model_read(const weft_run_model *m, weft_role role, const char *path,
                                const char *key, int64_t channels, int64_t text_width,
                                weft_model *model);
/* What of the trained model, which has this scope, is trained. */
weft_tuning weft_run_tuning(const weft_run *run, const char *scope);
/* Every bucket of every stage fits the grids; `patch` NULL: there is no denoiser. */
weft_status weft_run_check_sizes(const weft_run *run, const char *path, const weft_grid *grid,
                                 const weft_grid *patch);

/* Patterns of what the backward makes again, whatever the limit; *chosen: memory.limit may choose
 * more. */
const weft_string_list *weft_run_recomputes(const weft_run *run, bool *chosen);
/* Where values go that are moved away; none: nowhere. `dir` NULL: to the host's memory. */
typedef struct weft_run_place {
    bool values, states;
    const char *dir;
} weft_run_place;
weft_run_place weft_run_away(const weft_run *run);
/* How data becomes noise: its row. */
const weft_process *weft_run_process(const weft_run *run);

/* The sizes of a stage's steps: its buckets, or the one that it gives itself. */
int weft_stage_bucket_count(const weft_stage *stage);
const weft_bucket *weft_stage_bucket(const weft_stage *stage, int index);
/* Index of the one with the most pixels: what the model is for. */
int weft_stage_largest(const weft_stage *stage);
/* The run as it is in `stage`: its own shift. */
weft_run weft_stage_run(const weft_run *run, const weft_stage *stage);
/* Samples of a batch of `tokens` each that the stage's bounds allow, at least one. */
int64_t weft_stage_batch(const weft_stage *stage, int64_t tokens);
/* Learning rate of step `step` (from 0) inside a stage. */
double weft_stage_lr(const weft_stage *stage, int64_t step);
/* Steps before stage `index`, or of all for index = count. */
int64_t weft_run_first_step(const weft_run *run, int64_t index);

#endif
