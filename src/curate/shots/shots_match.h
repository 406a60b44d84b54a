/* Structural comparison of two small frames, and statistics of one. Private to shot detection. */
#ifndef WEFT_CURATE_SHOTS_SHOTS_MATCH_H
#define WEFT_CURATE_SHOTS_SHOTS_MATCH_H

#include "curate/shots/shots.h"

enum {
    SHOT_W = WEFT_SHOT_WIDTH,
    SHOT_H = WEFT_SHOT_HEIGHT,
    SHOT_AREA = SHOT_W * SHOT_H,
    COARSE_W = SHOT_W / 2,
    COARSE_H = SHOT_H / 2,
    COARSE_AREA = COARSE_W * COARSE_H
};

typedef struct weft_shot_frame {
    uint8_t plane[3][SHOT_AREA];     /* Y, Cb, Cr */
    uint8_t coarse[3 * COARSE_AREA]; /* 2 x 2 means of the three planes */
    uint32_t sum[(SHOT_W + 1) * (SHOT_H + 1)],
        square[(SHOT_W + 1) * (SHOT_H + 1)]; /* integrals of Y */
    float mean, deviation;                   /* of Y, without the bars */
    float spread; /* mean absolute deviation of all planes from their medians: 0 is uniform */
    float edges;  /* mean absolute horizontal and vertical difference of Y */
} weft_shot_frame;

void weft_shot_frame_fill(weft_shot_frame *f, const weft_video_frame *from);

/* Structural difference. 0: same content up to motion within +-reach_x, +-reach_y pixels and a
 * change of light; about 0.5 and more: different content. */
float weft_shot_mismatch(const weft_shot_frame *a, const weft_shot_frame *b, int reach_x,
                         int reach_y);

/* Mean absolute difference of the coarse planes, 0 .. 255. */
float weft_shot_difference(const weft_shot_frame *a, const weft_shot_frame *b);

#endif
