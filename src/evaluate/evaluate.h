/* Evaluates models: the reconstruction loss of a VAE, and whether generated videos follow their
 * prompts. */
#ifndef WEFT_EVALUATE_EVALUATE_H
#define WEFT_EVALUATE_EVALUATE_H

#include "base/json.h"
#include "comm/comm.h"
#include "generate/generator/generator.h"

typedef struct weft_vae_eval_options {
    const weft_backend *backend; /* NULL: cpu */
    const char *vae;             /* folder with config.json and weights */
    const char *shards, *split;
    int64_t frames, height, width; /* size of the clips; must fit the VAE's grid */
    double fps;                    /* 0: each video's own rate */
    int64_t limit;                 /* maximum number of clips; 0: no limit */
    const weft_tile *tile;         /* NULL: untiled if that fits */
    weft_products products;
    int64_t memory;    /* memory limit in bytes; 0: the machine's free memory */
    const char *sheet; /* PNG of originals over reconstructions; NULL: none */
    /* borrowed; NULL: one rank. Clips are assigned to ranks in turn */
    weft_comm *comm;
    const weft_parallel *parallel; /* layout of the ranks; only axes that split clips */
} weft_vae_eval_options;

/* Sets *result to {"clips", "skipped", "psnr", "ssim", "box_psnr", "box_ssim", "worst": [...],
 * "each": [{"key","psnr","ssim"}], "identical", "box_identical"}: means over clips. box_* compares
 * the clip with its average over boxes of the VAE's compression. PSNR is that of weft_psnr. Bitwise
 * identical for any number of ranks. *result is a new reference; NULL on ranks other than 0, which
 * writes the sheet. Collective. */
weft_status weft_evaluate_vae(const weft_vae_eval_options *options, json_t **result);

typedef struct weft_prompt_eval_options {
    const char *model;
    const char *heldout; /* heldout.json of weft synth */
    int64_t repeats;     /* seeds per held-out combination */
    int64_t seen;        /* prompts of combinations in the training data, for comparison */
    int64_t seed;
    weft_generator_options generator;
    weft_comm *comm; /* borrowed; NULL: one rank. Rank 0 scores and writes */
    const char *out; /* folder for the videos and sheet.png */
} weft_prompt_eval_options;

/* Generates videos, then reads colour, shape and direction of motion from the pixels. Sets *result
 * to {"held_out": {"prompts", "colour", "shape", "direction", "all"}, "seen": {...}, "chance":
 * {...}, "each": [{"prompt","seed","read","held_out"}]}; figures are shares of prompts. NULL on
 * ranks other than 0. */
weft_status weft_evaluate_prompts(const weft_prompt_eval_options *options, json_t **result);

/* A way to generate the same videos faster: its name and the changed options. */
typedef struct weft_saving {
    const char *name;
    weft_generator_options options;
} weft_saving;

typedef struct weft_saving_eval_options {
    const char *model;
    const char *const *prompt; /* [count] */
    int64_t count, seed;       /* seed of the first prompt; prompt i has seed + i */
    weft_generator_options plain;
    const weft_saving *saving;
    int savings;
    /* LPIPS files (lpips.h): torchvision's trunk and lpips' heads; NULL: not measured */
    const char *lpips_trunk, *lpips_heads;
    int64_t least; /* alternating runs of each setting; the minimum time counts; 0: 1 */
} weft_saving_eval_options;

#endif
