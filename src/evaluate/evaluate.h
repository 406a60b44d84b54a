/* Judging models: what the VAE loses, and whether generated videos follow their prompts. */
#ifndef WEFT_GENERATE_EVALUATE_H
#define WEFT_GENERATE_EVALUATE_H

#include "base/json.h"
#include "generate/generator.h"

typedef struct weft_vae_eval_options {
    const char *vae; /* folder with config.json and weights */
    const char *shards, *split;
    int64_t frames, height, width; /* of the clips; as the grid takes them */
    double fps;                    /* 0: each video's own */
    int64_t limit;                 /* clips at most; 0: all */
    const weft_tile *tile;         /* NULL: whole where that fits */
    int64_t memory;                /* bytes for it; 0: what the machine has free */
    const char *sheet;             /* PNG: originals over reconstructions; NULL: none */
    /* borrowed; NULL: one rank. Each rank takes clips of its own, dealt in turn */
    weft_comm *comm;
    const weft_parallel *parallel; /* of these ranks; axes that split clips only */
} weft_vae_eval_options;

/* {"clips", "skipped", "psnr", "ssim", "box_psnr", "box_ssim", "worst": [...], "each":
 * [{"key","psnr","ssim"}], "identical", "box_identical"}: mean over clips; box_* is the clip
 * averaged over boxes of the VAE's compression. PSNR as below. Bitwise the same on any number of
 * ranks. New reference; NULL on ranks other than 0, which writes the sheet. Collective. */
weft_status weft_evaluate_vae(const weft_vae_eval_options *options, json_t **result);

typedef struct weft_prompt_eval_options {
    const char *model;
    const char *heldout; /* heldout.json of weft synth */
    int64_t repeats;     /* seeds per held-out combination */
    int64_t seen;        /* prompts of combinations that training shows, for comparison */
    int64_t seed;
    weft_generator_options generator;
    weft_comm *comm; /* borrowed; NULL: one rank. Rank 0 judges and writes */
    const char *out; /* folder for the videos and sheet.png */
} weft_prompt_eval_options;

/* Generates, then reads colour, shape and direction of motion from the pixels. {"held_out":
 * {"prompts", "colour", "shape", "direction", "all"}, "seen": {...}, "chance": {...}, "each":
 * [{"prompt","seed","read","held_out"}]}; shares of prompts. On other ranks than 0 *result is NULL.
 */
weft_status weft_evaluate_prompts(const weft_prompt_eval_options *options, json_t **result);

/* A way to make the same videos sooner: what it changes in the options. */
typedef struct weft_saving {
    const char *name;
    weft_generator_options options;
} weft_saving;

typedef struct weft_saving_eval_options {
    const char *model;
    const char *const *prompt; /* [count] */
    int64_t count, seed;       /* seed of the first; the next ones take seed + 1, ... */
    weft_generator_options plain;
    const weft_saving *saving;
    int savings;
    /* files of LPIPS (model/lpips.h): torchvision's trunk and lpips' heads; NULL: not measured */
    const char *lpips_trunk, *lpips_heads;
    int64_t least; /* runs of each, by turns, of which the least seconds are taken; 0: 1 */
} weft_saving_eval_options;

/* {"seconds", "each": [{"name","seconds","speedup","reused","predicted","psnr","psnr_least",
 * "identical","ssim","lpips"}]}: seconds of denoising a video; scores of the decoded videos against
 * the plain ones, means over prompts. PSNR is over 8-bit RGB frames, the mean over the videos that
 * differ, null if all are identical; SSIM is of the luma. With a cache "reused" is the share of its
 * runs and "predicted" the gain that its FLOPs promise; "lpips" where it is measured. New
 * reference. One rank. */
weft_status weft_evaluate_savings(const weft_saving_eval_options *options, json_t **result);

#endif
