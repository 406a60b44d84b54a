/* TransNetV2 (Soucek and Lokoc 2020), a network that says of every frame whether a shot ends there:
 * a graph on weft's engine, with the weights and names of its published PyTorch file.
 *
 *   frames      f f f|0 1 2 ...                                 ... N-1|l l l     f, l: copies of
 *   window 0 [25 | 50 say something | 25]                                          the first, last
 *   window 1           [25 | 50 say something | 25]
 *
 * Memory is that of one window, whatever the length of the film. */
#ifndef WEFT_CURATE_TRANSNET_H
#define WEFT_CURATE_TRANSNET_H

#include "format/tensors.h"
#include "runtime/runtime.h"

enum {
    WEFT_TRANSNET_WIDTH = 48,
    WEFT_TRANSNET_HEIGHT = 27,
    WEFT_TRANSNET_BYTES = 3 * WEFT_TRANSNET_WIDTH * WEFT_TRANSNET_HEIGHT, /* of a frame */
    WEFT_TRANSNET_WINDOW = 100,
    WEFT_TRANSNET_STEP = 50,
    WEFT_TRANSNET_MARGIN = 25,
};

/* Sizes, which the shapes of the weights tell. */
typedef struct weft_transnet_config {
    int64_t filters, stacks, blocks, dense; /* F, L, S, D in the paper's code */
    int64_t lookup, similarity, output;     /* frames that one is compared with; widths */
} weft_transnet_config;

/* What the network thinks of a frame: probabilities that a shot ends there, and that the frame
 * belongs to a transition. */
typedef struct weft_transnet_said {
    int64_t frame;
    float single, many;
} weft_transnet_said;
typedef weft_status (*weft_transnet_listener)(void *user, const weft_transnet_said *said);

typedef struct weft_transnet weft_transnet;

/* Weights are tensors named `prefix` and the published name; they are copied. `listener` is told of
 * every frame in order, up to a hundred behind the last pushed. WEFT_E_FORMAT: a tensor is missing,
 * or of another shape. `backend` NULL: cpu; `threads` 0: as many as the calling thread has. */
weft_status weft_transnet_create(const weft_tensors *weights, const char *prefix,
                                 const weft_backend *backend, int threads,
                                 weft_transnet_listener listener, void *user, weft_transnet **out);
void weft_transnet_free(weft_transnet *t); /* accepts NULL */
const weft_transnet_config *weft_transnet_sizes(const weft_transnet *t);
/* rgb[27][48][3], upright, of the whole picture. */
weft_status weft_transnet_push(weft_transnet *t, const uint8_t *rgb);
weft_status weft_transnet_finish(weft_transnet *t);
/* Of the window that ran last, one of each of its frames, before the sigmoid; valid until the next.
 * `many`: of transitions. */
const float *weft_transnet_logits(const weft_transnet *t, bool many);

/* Runs of frames above the threshold, fed in order. By the published rule a shot ends with the
 * first frame of a run, and the next begins behind its last. */
typedef struct weft_transnet_run {
    double threshold;
    int64_t first; /* of the last run */
    bool on;
    float best; /* probability in it */
} weft_transnet_run;
/* True: the last run ended before this frame. */
bool weft_transnet_run_add(weft_transnet_run *run, int64_t frame, float probability);

#endif
