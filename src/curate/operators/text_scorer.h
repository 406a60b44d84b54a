/* The share of a frame that text covers, by PP-OCR's detection network in an ONNX file. */
#ifndef WEFT_CURATE_OPERATORS_TEXT_SCORER_H
#define WEFT_CURATE_OPERATORS_TEXT_SCORER_H

#include "base/json.h"
#include "curate/operators/operators_config.h"
#include "curate/operators/shot_frames.h"

typedef struct weft_text_scorer weft_text_scorer;
/* WEFT_E_FORMAT: not a model of this form. */
weft_status weft_text_scorer_open(const weft_operator_config *config, weft_text_scorer **scorer);
void weft_text_scorer_close(weft_text_scorer *scorer); /* accepts NULL */
/* Text of a shot. */
typedef struct weft_text_found {
    double share;   /* of the rows that remain, covered by text; the mean over the frames */
    double rows[2]; /* first and last row that remain, as shares of the height; 0, 1: no crop */
    /* New reference: a list of [frame, x, y, x, y, x, y, x, y]: the frame's index in the video, and
     * the corners as shares of the frame's sides. */
    json_t *boxes;
} weft_text_found;
weft_status weft_text_scorer_score(weft_text_scorer *scorer, const weft_shot_frames *frames,
                                   weft_text_found *found);

#endif
