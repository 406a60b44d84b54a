/* Boxes of text in the output of a text detection network with differentiable binarization (DB,
 * Liao et al. 2020), as PaddleOCR and RapidOCR compute them:
 *
 *     probability > threshold ── dilated by a pixel ──> connected areas ── smallest rectangle ──>
 *     mean probability inside >= box threshold ── expanded by area * ratio / length ──> box */
#ifndef WEFT_CURATE_OPERATORS_TEXT_BOXES_H
#define WEFT_CURATE_OPERATORS_TEXT_BOXES_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_TEXT_MOST_BOXES = 1000 };

/* Corners in order, in pixels of the map. */
typedef struct weft_text_box {
    double x[4], y[4];
    double score; /* mean probability before the expansion */
} weft_text_box;

/* Finds the boxes of a map of probabilities [height, width], from top to bottom. *boxes is owned by
 * the caller. WEFT_E_MEMORY. */
weft_status weft_text_boxes_find(const float *map, int64_t width, int64_t height,
                                 weft_text_box **boxes, int64_t *count);
/* Share of the rows `from` to `to` - 1 of a frame [height, width] that the boxes cover. Boxes
 * completely outside of the rows do not count. WEFT_E_MEMORY. */
weft_status weft_text_boxes_area(const weft_text_box *boxes, int64_t count, int64_t width,
                                 const int64_t rows[2], double *area);
/* Narrows the rows rows[0] .. rows[1] - 1 of a frame of `height` rows. Bands of text at the top and
 * at the bottom are outside then, each at most the share `most` of the height. A band ends where
 * the boxes end that are completely inside the largest band. */
void weft_text_boxes_narrow(const weft_text_box *boxes, int64_t count, int64_t height, double most,
                            int64_t rows[2]);
double weft_text_box_top(const weft_text_box *box);
double weft_text_box_bottom(const weft_text_box *box);

#endif
