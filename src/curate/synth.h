/* Synthetic captioned data set: H.264 files of moving shapes with known cuts. */
#ifndef WEFT_CURATE_SYNTH_H
#define WEFT_CURATE_SYNTH_H

#include "base/status.h"
#include "video/shapes.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_synth_options {
    int64_t shots;                  /* all shots, without the held-out ones */
    int64_t size;                   /* side in pixels */
    double radius;                  /* mean radius of the shapes, in 64ths of the side, 4 .. 20 */
    int64_t min_frames, max_frames; /* frames of a shot, without gradual transitions */
    double fps;
    int64_t max_per_video; /* shots of the longest video; videos have 2 .. max */
    double single_share;   /* share of shots in a file of one shot */
    double gradual_share;  /* share of boundaries that are dissolves or fades */
    int64_t held_out;      /* combinations excluded from the training set */
    /* colour of every shape, including the fifth (purple); NULL: all four */
    const char *colour;
    double nameless;        /* share of captions without the colour */
    int64_t held_out_clips; /* clips of each held-out combination */
    uint64_t seed;
    bool quiet; /* no progress line */
} weft_synth_options;

/* Counts of the written data set. */
typedef struct weft_synth_report {
    int64_t videos, shots, frames, cuts, graduals, held_out_clips;
} weft_synth_report;

/* Writes under `dir` (created if missing; must not hold an earlier set):
 *
 *   train/v0000.mp4 + .json   several shots; {"shots": [{"start", "end", "caption", ...}]}, frames,
 *                             end inclusive; frames of a gradual transition belong to no shot
 *   train/s0000.mp4 + .txt    one shot and its caption
 *   heldout/h000.mp4 + .txt   clips of the combinations that train/ never shows
 *   heldout.json              {"held_out": [{"colour", "shape", "direction", "caption"}],
 *                             "training": [...]}
 *   cuts.jsonl                the boundaries of train/v*.mp4, in the form of `weft shots`
 *
 * The files depend only on the options. Training shows every colour, shape and direction, and every
 * pair of them. With a colour set, training shows every pair with this colour. */
weft_status weft_synth_write(const char *dir, const weft_synth_options *options,
                             weft_synth_report *report);

/* Chooses the held-out combinations among all four colours, or of the colour with index `colour`
 * (-1: all), such that each pair of words loses as few combinations as possible: a pair with one
 * left is learned only together with the third word of that one. Sets chosen[i] for i in
 * 0 .. WEFT_SHAPE_ALL - 1. WEFT_E_ARG: `count` leaves a pair of words without a combination in
 * training. */
weft_status weft_synth_hold_out(int64_t count, int colour, uint64_t seed,
                                bool chosen[WEFT_SHAPE_ALL]);

#endif
