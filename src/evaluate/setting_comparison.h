#ifndef WEFT_EVALUATE_SETTING_COMPARISON_H
#define WEFT_EVALUATE_SETTING_COMPARISON_H

#include "base/json.h"
#include "evaluate/evaluate.h"

/* Sets *result to {"seconds", "each":
 * [{"name","seconds","speedup","reused","predicted","psnr","psnr_least",
 * "identical","ssim","lpips"}]}. Seconds are for denoising one video. Scores compare the decoded
 * videos with the plain ones, as means over prompts. PSNR is over 8-bit RGB frames, the mean over
 * the videos that differ, null if all are identical. SSIM is of the luma. With a cache, "reused" is
 * the share of reused evaluations and "predicted" the speedup by FLOPs. "lpips" is present if
 * measured. *result is a new reference. One rank. */
weft_status weft_evaluate_savings(const weft_saving_eval_options *options, json_t **result);

#endif
