/* Evaluates videos without their model: alone, by prompts, and by features of real videos. */
#ifndef WEFT_EVALUATE_VIDEO_EVALUATION_H
#define WEFT_EVALUATE_VIDEO_EVALUATION_H

#include "base/json.h"

typedef struct weft_video_eval_options {
    const char *videos;  /* folder of videos, or one video; NULL: features only */
    const char *prompts; /* one line per video in the order of names; NULL: the videos' own */
    /* paths and prompts, [count], borrowed; replace `videos` and `prompts`. NULL: not used */
    const char *const *path, *const *prompt;
    int64_t count;
    const char *clip; /* folder of a CLIPModel: CLIP score, background consistency; NULL: none */
    const char *dino; /* folder of a ViTModel: subject consistency; NULL: none */
    const char *amt;  /* weights of AMT-S: motion smoothness; NULL: none */
    /* .npy or .safetensors of [videos, width] each: Frechet distance; NULL: none */
    const char *features, *reference_features;
} weft_video_eval_options;

/* Sets *result (new reference) to
 *
 *     {"videos": N, "flicker", "motion_smoothness", "clip_score", "background_consistency",
 *      "subject_consistency", "frechet_distance", "without_prompt": N,
 *      "each": [{"file", "frames", "flicker", ..., "prompt"}]}
 *
 * with the means over videos. A figure that was not asked for is absent, and one that a video
 * cannot have (one frame, no prompt) is null. Consistencies are means over all frames, as in
 * VBench. CLIP score: 100 x the cosine of prompt and frame, at least 0, mean over frames (Hessel et
 * al. 2021 with weight 100, as torchmetrics has it). */
weft_status weft_evaluate_videos(const weft_video_eval_options *options, json_t **result);

#endif
