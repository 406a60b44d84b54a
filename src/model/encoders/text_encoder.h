/* Shared parts of text encoders with a token mask. */
#ifndef WEFT_MODEL_ENCODERS_TEXT_ENCODER_H
#define WEFT_MODEL_ENCODERS_TEXT_ENCODER_H

#include "model/model.h"

/* Shape (B,L) of the tokens and of their mask. */
weft_shape weft_text_encoder_shape(const void *config, const weft_model_size *size, weft_port port);

/* Embedding table for tokens or positions. */
weft_value weft_text_encoder_table(weft_graph *g, const char *name, int64_t rows, int64_t width);

#endif
