/* What text encoders with a mask of their tokens share. */
#ifndef WEFT_MODEL_TEXT_ENCODER_H
#define WEFT_MODEL_TEXT_ENCODER_H

#include "model/model.h"

/* Of tokens and their mask, (B,L). */
weft_shape weft_text_encoder_shape(const void *config, const weft_model_size *size, weft_port port);

/* A table of vectors: words, places. */
weft_value weft_text_encoder_table(weft_graph *g, const char *name, int64_t rows, int64_t width);

#endif
