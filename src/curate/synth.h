/* The synthetic captioned set: H.264 files of moving shapes with known cuts. */
#ifndef WEFT_CURATE_SYNTH_H
#define WEFT_CURATE_SYNTH_H

#include "base/status.h"
#include "video/shapes.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_synth_options {
    int64_t shots;                  /* in all, without the held-out ones */
    int64_t size;                   /* pixels of a side */
    double radius;                  /* mean radius of the shapes, in 64ths of the side, 4 .. 20 */
    int64_t min_frames, max_frames; /* of a shot, without the frames of a gradual transition */
    double fps;
    int64_t max_per_video;  /* longest video, shots; videos have 2 .. max */
    double single_share;    /* of the shots that get a file of their own */
    double gradual_share;   /* of the boundaries that are dissolves or fades */
    int64_t held_out;       /* combinations kept out of the training set */
    const char *colour;     /* of every shape, also one that no other set has; NULL: all four */
    double nameless;        /* share of the captions that do not name the colour */
    int64_t held_out_clips; /* of each held-out combination */
    uint64_t seed;
    bool quiet; /* no progress line */
} weft_synth_options;

/* What was written. */
typedef struct weft_synth_report {
    int64_t videos, shots, frames, cuts, graduals, held_out_clips;
} weft_synth_report;

/* Writes under `dir` (made if missing; must hold no earlier set):
 *
 *   train/v0000.mp4 + .json   several shots; {"shots": [{"start", "end", "caption", ...}]}, frames,
 *                             end inclusive; frames of a gradual transition belong to no shot
 *   train/s0000.mp4 + .txt    one shot and its caption
 *   heldout/h000.mp4 + .txt   clips of the combinations that train/ never shows
 *   heldout.json              {"held_out": [{"colour", "shape", "direction", "caption"}],
 *                              "training": [...]}
 *   cuts.jsonl                the boundaries of train/v*.mp4, in the form of `weft shots`
 *
 * Everything is a function of the options. Every colour, shape and direction, and each pair of
 * them, is still shown in training; with a colour given each pair with it. */
weft_status weft_synth_write(const char *dir, const weft_synth_options *options,
                             weft_synth_report *report);

/* Chooses the held-out combinations of all four colours, or of the one with index `colour` (-1:
 * all): chosen[i] for 0 .. WEFT_SHAPE_ALL - 1. WEFT_E_ARG when `count` leaves a pair of words
 * without a combination in training. */
weft_status weft_synth_hold_out(int64_t count, int colour, uint64_t seed,
                                bool chosen[WEFT_SHAPE_ALL]);

#endif
