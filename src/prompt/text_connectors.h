/* Text connectors: a model between a text encoder and the denoiser (weft_text_encoder_row
 * .connectors), with an output for each stream of the denoiser. */
#ifndef WEFT_PROMPT_TEXT_CONNECTORS_H
#define WEFT_PROMPT_TEXT_CONNECTORS_H

#include "prompt/text_conditioning.h"

enum { WEFT_TEXT_STREAMS = 2 }; /* video, audio */

/* Port of the denoiser, and width of the connectors' output, for a stream. */
weft_port weft_text_connectors_port(const weft_text_encoder_row *row, int stream);
int64_t weft_text_connectors_width(const weft_text_encoder *encoder, int stream);
/* Checks that the connectors fit the encoder and the denoiser. The error begins with `where`. */
weft_status weft_text_connectors_check(const weft_model *denoiser, const weft_text_encoder *encoder,
                                       const char *where);
/* Sets the denoiser's ports from the hidden states (N,B,L,D) and the mask (B,L) of the text, in a
 * scope named as the connectors' folder. The denoiser gets no mask, because embeddings of the
 * connectors replace padding. `stays`: the connectors are frozen. */
void weft_text_connectors_call(weft_graph *g, const weft_text_encoder *encoder,
                               weft_value states_nbld, weft_value real_bl, bool stays,
                               weft_ports *ports);

#endif
