/* Smoothing of layers in int8 (SmoothQuant, Xiao et al.), from the inputs of calibration videos.
 *
 *     videos in f32 ── largest |x| and |w| of each channel ──> factor = sqrt(|x| / |w|)
 *     videos in bf16 ── some rows of x: error of the layer in int8, with and without factors
 *
 * A block of inputs has one scale, so a channel with large values rounds the others of its block
 * coarsely. Inputs are divided by the factors and weights multiplied, which makes both equally
 * large. */
#ifndef WEFT_EVALUATE_INT8_SMOOTHING_H
#define WEFT_EVALUATE_INT8_SMOOTHING_H

#include "base/json.h"
#include "exec/program.h"

typedef struct weft_int8_smoothing weft_int8_smoothing;

weft_status weft_int8_smoothing_create(weft_int8_smoothing **out);
void weft_int8_smoothing_free(weft_int8_smoothing *s); /* accepts NULL */

/* Observers of programs (exec/program.h); `user`: the smoothing. Failures are reported by
 * weft_int8_smoothing_choose. */
void weft_int8_smoothing_record(void *user, const weft_graph *graph, const weft_node *node,
                                const weft_kernel_args *args);
void weft_int8_smoothing_measure(void *user, const weft_graph *graph, const weft_node *node,
                                 const weft_kernel_args *args);

/* Sets *smoothed to an object: names of the layers whose measured error is smaller by a tenth with
 * factors -> their strings (int8_layers.h). A new reference. */
weft_status weft_int8_smoothing_choose(const weft_int8_smoothing *s, json_t **smoothed);

#endif
