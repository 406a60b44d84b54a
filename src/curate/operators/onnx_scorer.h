/* Scores from an ONNX file (onnx_model.h). */
#ifndef WEFT_CURATE_OPERATORS_ONNX_SCORER_H
#define WEFT_CURATE_OPERATORS_ONNX_SCORER_H

#include "curate/operators/operators_config.h"
#include "curate/operators/shot_frames.h"

typedef struct weft_onnx_scorer weft_onnx_scorer;
/* WEFT_E_FORMAT: not a model of this form. */
weft_status weft_onnx_scorer_open(const weft_operator_config *config, weft_onnx_scorer **scorer);
void weft_onnx_scorer_close(weft_onnx_scorer *scorer); /* accepts NULL */
/* Mean over the frames. A model with a fixed size sees the centre of each frame, scaled; another
 * model sees the complete frame. */
weft_status weft_onnx_scorer_score(weft_onnx_scorer *scorer, const weft_shot_frames *frames,
                                   double *score);

#endif
