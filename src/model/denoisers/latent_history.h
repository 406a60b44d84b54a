/* Other latent frames of a video as tokens, in three sizes of patches (Framepack, Helios): a token
 * is 1x2x2, 2x4x4 or 4x8x8 latents. Every latent frame has a given time position. The rotary tables
 * of larger tokens are means of cosines and of sines over the places of 1x2x2 latents. Latents and
 * places are repeated at the end up to whole tokens.
 *
 * Shape letters: B batch, N frames, S tokens, D head width. */
#ifndef WEFT_MODEL_DENOISERS_LATENT_HISTORY_H
#define WEFT_MODEL_DENOISERS_LATENT_HISTORY_H

#include "model/family.h"

enum { WEFT_LATENT_HISTORIES = 3 };

typedef struct weft_latent_history {
    int64_t width; /* of a token */
    const char *const
        *layer; /* [WEFT_LATENT_HISTORIES] names of the patch layers, smallest first */
    double theta;
    const int64_t *axes; /* [3] channels of a head that frames, rows and columns rotate */
    int64_t size[2];     /* rows and columns of 1x2x2 tokens */
} weft_latent_history;

/* Latents (B,N,Y,X,C) and their time positions (B,N), or WEFT_NONE. */
typedef struct weft_history_part {
    weft_value latents, index;
} weft_history_part;

/* The input of history `at`, smallest patches first. Latents that are not given are zeros of the
 * published number of frames, in the size of `latents` (B,T,Y,X,C). */
weft_history_part weft_latent_history_part(weft_graph *g, const weft_ports *in, int at,
                                           weft_value latents);
/* `index`, or if it is WEFT_NONE the positions of `frames` frames from `first` on, (B,frames), for
 * the batch of `latents`. */
weft_value weft_latent_history_index(weft_graph *g, weft_value index, weft_value latents,
                                     int64_t first, int64_t frames);
/* Rotary tables (B,S,1,D/2) of the tokens of frames at `index` (B,N), with patches of `by` frames
 * and 2 `by` rows and columns of latents. */
void weft_latent_history_rope(weft_graph *g, const weft_latent_history *h, weft_value index,
                              int64_t by, weft_value cos_sin[WEFT_MAX_OUTPUTS]);
/* Tokens (B,S,width) of all parts, the largest patches first, and their rotary tables. */
weft_value weft_latent_history_tokens(weft_graph *g, const weft_latent_history *h,
                                      const weft_history_part part[WEFT_LATENT_HISTORIES],
                                      weft_value cos_sin[WEFT_MAX_OUTPUTS]);
/* Shapes of the ports of the history and of WEFT_PORT_INDEX; rank 0: another port. */
weft_shape weft_latent_history_shape(const weft_model_size *s, weft_port port, int64_t channels);

#endif
