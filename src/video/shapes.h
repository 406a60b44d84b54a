/* The synthetic world of moving shapes: words, drawing, and results of the shape reader.
 *
 * A scene is one coloured shape that moves in one direction over a plain or shaded background. The
 * synthetic data set consists of scenes. The shape reader judges real and generated videos from
 * their pixels alone. */
#ifndef WEFT_VIDEO_SHAPES_H
#define WEFT_VIDEO_SHAPES_H

#include "base/rng.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_SHAPE_COLOURS = 4,    /* red, green, blue, yellow */
    WEFT_SHAPE_KINDS = 3,      /* circle, square, triangle */
    WEFT_SHAPE_DIRECTIONS = 4, /* left, right, up, down */
    WEFT_SHAPE_COMBINATIONS = WEFT_SHAPE_COLOURS * WEFT_SHAPE_KINDS * WEFT_SHAPE_DIRECTIONS,
    /* One more colour than the four, shown only on request, to adapt a model to a new colour. */
    WEFT_SHAPE_PALETTE = 5, /* purple */
    WEFT_SHAPE_ALL = WEFT_SHAPE_PALETTE * WEFT_SHAPE_KINDS * WEFT_SHAPE_DIRECTIONS,
};

/* Indices into the lists above. */
typedef struct weft_shape_words {
    int colour, shape, direction;
} weft_shape_words;

const char *weft_shape_colour_name(int colour);
const char *weft_shape_kind_name(int shape);
const char *weft_shape_direction_name(int direction);
/* Index of a colour of the palette; -1: unknown name. */
int weft_shape_colour(const char *name);
/* Combination 0 .. WEFT_SHAPE_ALL - 1 and back: (colour * 3 + shape) * 4 + direction. */
weft_shape_words weft_shape_words_of(int combination);
int weft_shape_combination(weft_shape_words words);
/* "a red circle moving left" in text[64], without the colour if its index is -1; returns text. */
const char *weft_shape_caption(weft_shape_words words, char text[64]);
/* Finds the words in a caption; a missing word has index -1. */
weft_shape_words weft_shape_parse(const char *caption);

typedef struct weft_shape_scene {
    weft_shape_words words;
    double radius;               /* half the extent, pixels */
    double x, y, step_x, step_y; /* centre at frame 0, and per frame; pixels */
    float colour[3];
    float back[2][3];        /* background colours of the two ends */
    double back_dx, back_dy; /* unit direction of the shading */
} weft_shape_scene;

/* A scene for `frames` frames of size x size that keeps the shape inside. `back_luma` is the mean
 * luma of the background (0 .. 255); `radius` the mean radius in 64ths of the side, drawn within
 * 15 percent. */
weft_shape_scene weft_shape_scene_make(weft_rng *rng, weft_shape_words words, int64_t size,
                                       double radius, int64_t frames, double back_luma);
/* Frame `t` as u8 [size, size, 3], anti-aliased. */
void weft_shape_scene_draw(const weft_shape_scene *scene, int64_t size, double t, uint8_t *rgb);

typedef struct weft_shape_reading {
    weft_shape_words words; /* always legal indices; see the confidences */
    bool found;             /* an object differs from the background */
    /* Margin of the best answer over the second, 0 .. 1. Below 0.1 the answer is a guess. */
    double colour_confidence, shape_confidence, direction_confidence;
    double speed; /* pixels per frame */
} weft_shape_reading;

#endif
