/* Selects the clips that are held out of training.
 *
 * A clip is held out if a random number of its source video is below the requested share. The split
 * is thus a function of the source's name and does not depend on the other clips. Exceptions are
 * stored in split.json, in the folder of the shards and in the folder of the clips. They hold in
 * later runs: a clip that was held out stays held out. */
#ifndef WEFT_DATA_HELDOUT_H
#define WEFT_DATA_HELDOUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_split_clip {
    const char *id, *source; /* borrowed; source: the clip's own id where no source is known */
    int64_t first, last;     /* frames in the source; -1: not known */
    double draw, own_draw;   /* 0 to 1, of the source and of the clip */
    bool heldout;            /* the result */
} weft_split_clip;

/* A source of which something was rejected as a copy of another source: the footage of a held-out
 * clip may be kept under another name. */
typedef struct weft_split_copy {
    const char *kept, *rejected; /* names of both sources; borrowed */
    double draw;                 /* random number of the rejected copy */
} weft_split_copy;

typedef struct weft_split_request {
    const char *in, *out; /* folders of the clips and of the shards */
    double share;         /* 0: nothing is held out */
    int64_t seed;
    const weft_split_copy *copy; /* ascending by `kept` */
    int64_t copies;
} weft_split_request;

/* Holds out all clips of a source or none, with two exceptions: clips of the only source are split
 * individually, and at least one of two or more clips is held out. Warns if the achieved share
 * differs much from the requested one. Writes split.json. */
weft_status weft_split_choose(const weft_split_request *request, weft_split_clip *clip,
                              int64_t count);

#endif
