/* weft eval int8: chooses the layers of a model that keep the type of their files with
 * --weights int8, from errors measured on eight prompts. Smooths the inputs of layers whose error
 * falls (int8_smoothing.h).
 *
 *     f32 ─────────────> videos ──┐
 *     bf16 ────────────> videos ──┼─> squared error of bf16
 *     int8 and bf16 ───> videos ──┼─> ... of all layers in int8: the goal is met, or
 *     int8 of one layer > videos ─┴─> ... of each layer
 *
 * Errors of layers add up. The layers with the largest error per FLOP are kept until the predicted
 * PSNR meets the goal. Videos of the choice confirm the goal, or more layers are kept. */
#ifndef WEFT_EVALUATE_INT8_CALIBRATION_H
#define WEFT_EVALUATE_INT8_CALIBRATION_H

#include "base/json.h"
#include "evaluate/evaluate.h"

/* Calibrates where all else computes in f32, and in bf16. Writes both choices to the model's folder
 * (int8_layers.h). `goal`: least mean PSNR of the videos in dB, against f32 without int8; a video
 * may have 3 dB less. Sets *result to the content of the file, a new reference:
 *
 *     {"goal", "prompts", "layers", "frames", "height", "width", "steps",
 *      "smoothed": {NAME: steps of the factors, ...} (int8_layers.h),
 *      "f32":  {"psnr", "psnr_least", "psnr_none", "psnr_all", "flops", "kept"},
 *      "bf16": {...}}
 *
 * psnr_none, psnr_all: with no and with all layers in int8. flops: the share of the layers' FLOPs
 * that is int8. kept: names of layers. One rank. WEFT_MSG_KERNEL_UNSUPPORTED: the host must not
 * access the memory of the backend's device. */
weft_status weft_calibrate_int8(const weft_saving_eval_options *options, double goal,
                                json_t **result);

#endif
