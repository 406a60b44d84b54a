/* TransNetV2 (Soucek and Lokoc 2020), a network that predicts for every frame whether a shot ends
 * there: a graph on weft's engine, with the weights and names of its published PyTorch file.
 *
 *   frames      f f f|0 1 2 ...                                 ... N-1|l l l     f, l: copies of
 *   window 0 [25 | 50 predicted  | 25]                                             the first, last
 *   window 1           [25 | 50 predicted  | 25]
 *
 * Memory is that of one window, independent of the length of the video. */
#ifndef WEFT_CURATE_SHOTS_TRANSNET_H
#define WEFT_CURATE_SHOTS_TRANSNET_H

#include "format/tensors/tensors.h"
#include "kernel/kernel.h"

enum {
    WEFT_TRANSNET_WIDTH = 48,
    WEFT_TRANSNET_HEIGHT = 27,
    WEFT_TRANSNET_BYTES = 3 * WEFT_TRANSNET_WIDTH * WEFT_TRANSNET_HEIGHT, /* bytes of a frame */
    WEFT_TRANSNET_WINDOW = 100,
    WEFT_TRANSNET_STEP = 50,
    WEFT_TRANSNET_MARGIN = 25,
};

/* Sizes of the network, derived from the shapes of the weights. */
typedef struct weft_transnet_config {
    int64_t filters, stacks, blocks, dense; /* F, L, S, D in the paper's code */
    int64_t lookup, similarity, output;     /* frames compared with each frame; layer widths */
} weft_transnet_config;

/* Predictions for a frame: probabilities that a shot ends there, and that the frame belongs to a
 * transition. */
typedef struct weft_transnet_said {
    int64_t frame;
    float single, many;
} weft_transnet_said;
typedef weft_status (*weft_transnet_listener)(void *user, const weft_transnet_said *said);

typedef struct weft_transnet weft_transnet;

/* Creates the network from tensors named `prefix` + published name; copies the tensors. Calls
 * `listener` for every frame in order, up to 100 frames after the frame was pushed. WEFT_E_FORMAT:
 * a tensor is missing or has another shape. `backend` NULL: cpu; `threads` 0: the calling thread's
 * number. */
weft_status weft_transnet_create(const weft_tensors *weights, const char *prefix,
                                 const weft_backend *backend, int threads,
                                 weft_transnet_listener listener, void *user, weft_transnet **out);
void weft_transnet_free(weft_transnet *t); /* accepts NULL */
const weft_transnet_config *weft_transnet_sizes(const weft_transnet *t);
/* Takes the next frame: rgb[27][48][3], upright, the complete frame. */
weft_status weft_transnet_push(weft_transnet *t, const uint8_t *rgb);
weft_status weft_transnet_finish(weft_transnet *t);
/* Logits of the last window, one for each of its frames, before the sigmoid; valid until the next
 * window. `many`: the logits of transitions. */
const float *weft_transnet_logits(const weft_transnet *t, bool many);

/* Finds runs of frames above the threshold; frames come in order. By the published rule, a shot
 * ends with the first frame of a run, and the next shot begins after its last. */
typedef struct weft_transnet_run {
    double threshold;
    int64_t first; /* first frame of the last run */
    bool on;
    float best; /* highest probability in the run */
} weft_transnet_run;
/* True if the last run ended before this frame. */
bool weft_transnet_run_add(weft_transnet_run *run, int64_t frame, float probability);

#endif
