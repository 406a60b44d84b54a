/* LAION's heads that predict an aesthetic score from the unit vector of a CLIP image embedding:
 *
 *     linear   weight [1, width], bias [1]
 *     MLP      layers.0, .2, .4, .6, .7 (linear layers; the ones between were dropout)
 *
 * Neither has an activation, so the score of the mean of unit vectors is the mean of their
 * scores. */
#ifndef WEFT_CURATE_OPERATORS_AESTHETICS_HEAD_H
#define WEFT_CURATE_OPERATORS_AESTHETICS_HEAD_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_aesthetics_head weft_aesthetics_head;
/* `path`: safetensors or a file of torch.save. WEFT_E_FORMAT: no head. */
weft_status weft_aesthetics_head_open(const char *path, weft_aesthetics_head **head);
void weft_aesthetics_head_close(weft_aesthetics_head *head); /* accepts NULL */
/* The score of an embedding [width], a mean of unit vectors. WEFT_E_FORMAT: the head is for another
 * width. */
weft_status weft_aesthetics_head_score(const weft_aesthetics_head *head, const float *embedding,
                                       int64_t width, double *score);

#endif
