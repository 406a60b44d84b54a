#include "video/shapes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const colour_names[WEFT_SHAPE_PALETTE] = {"red", "green", "blue", "yellow",
                                                             "purple"};
static const char *const kind_names[WEFT_SHAPE_KINDS] = {"circle", "square", "triangle"};
static const char *const direction_names[WEFT_SHAPE_DIRECTIONS] = {"left", "right", "up", "down"};
static const float palette[WEFT_SHAPE_PALETTE][3] = {
    {214, 44, 40}, {36, 164, 62}, {48, 84, 218}, {236, 206, 44}, {156, 52, 190}};

const char *weft_shape_colour_name(int colour)
{
    return colour_names[colour];
}

int weft_shape_colour(const char *name)
{
    for (int i = 0; i < WEFT_SHAPE_PALETTE; i++)
        if (strcmp(name, colour_names[i]) == 0)
            return i;
    return -1;
}

const char *weft_shape_kind_name(int shape)
{
    return kind_names[shape];
}

const char *weft_shape_direction_name(int direction)
{
    return direction_names[direction];
}

weft_shape_words weft_shape_words_of(int combination)
{
    return (weft_shape_words){.colour = combination / (WEFT_SHAPE_KINDS * WEFT_SHAPE_DIRECTIONS),
                              .shape = combination / WEFT_SHAPE_DIRECTIONS % WEFT_SHAPE_KINDS,
                              .direction = combination % WEFT_SHAPE_DIRECTIONS};
}

int weft_shape_combination(weft_shape_words w)
{
    return (w.colour * WEFT_SHAPE_KINDS + w.shape) * WEFT_SHAPE_DIRECTIONS + w.direction;
}

const char *weft_shape_caption(weft_shape_words w, char text[64])
{
    snprintf(text, 64, "a %s%s%s moving %s", w.colour < 0 ? "" : colour_names[w.colour],
             w.colour < 0 ? "" : " ", kind_names[w.shape], direction_names[w.direction]);
    return text;
}

/* Index of the first of `names` that occurs in `text` as a word; -1: none. */
static int find_word(const char *text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        const size_t n = strlen(names[i]);
        for (const char *at = strstr(text, names[i]); at; at = strstr(at + 1, names[i])) {
            const bool begins = at == text || at[-1] == ' ';
            const bool ends = at[n] == 0 || strchr(" .,;!\n", at[n]);
            if (begins && ends)
                return i;
        }
    }
    return -1;
}

weft_shape_words weft_shape_parse(const char *caption)
{
    return (weft_shape_words){find_word(caption, colour_names, WEFT_SHAPE_PALETTE),
                              find_word(caption, kind_names, WEFT_SHAPE_KINDS),
                              find_word(caption, direction_names, WEFT_SHAPE_DIRECTIONS)};
}

weft_shape_scene weft_shape_scene_make(weft_rng *rng, weft_shape_words words, int64_t size,
                                       double radius, int64_t frames, double back_luma)
{
    const double unit = (double)size / 64;
    weft_shape_scene s = {.words = words};
    s.radius = radius * (0.85 + 0.3 * weft_rng_f64(rng)) * unit;
    /* The centre's range keeps the whole shape two pixels inside. */
    const double low = s.radius + 2 * unit, high = (double)size - s.radius - 2 * unit;
    const double range = high - low;
    const double steps = frames > 1 ? (double)(frames - 1) : 1;
    const double travel = fmin(range * (0.75 + 0.25 * weft_rng_f64(rng)), steps * 2 * unit);
    const double along = low + (range - travel) * weft_rng_f64(rng);
    const double across = low + range * weft_rng_f64(rng);
    const bool backward = words.direction == 0 || words.direction == 2;
    const double start = backward ? along + travel : along;
    const double step = (backward ? -travel : travel) / steps;
    const bool horizontal = words.direction < 2;
    s.x = horizontal ? start : across;
    s.y = horizontal ? across : start;
    s.step_x = horizontal ? step : 0;
    s.step_y = horizontal ? 0 : step;
    for (int c = 0; c < 3; c++)
        s.colour[c] = palette[words.colour][c] + (float)(16 * weft_rng_f64(rng) - 8);
    /* Plain, or shaded between two ends; tints are faint, so that the shape's hue is distinct. */
    const double shade = weft_rng_below(rng, 2) ? 18 + 22 * weft_rng_f64(rng) : 0;
    for (int end = 0; end < 2; end++)
        for (int c = 0; c < 3; c++) {
            const double v = back_luma + (end ? 0.5 : -0.5) * shade + 20 * weft_rng_f64(rng) - 10;
            s.back[end][c] = (float)(v < 8 ? 8 : v > 247 ? 247 : v);
        }
    if (shade <= 0)
        memcpy(s.back[1], s.back[0], sizeof s.back[0]);
    const double angle = 6.283185307179586 * weft_rng_f64(rng);
    s.back_dx = cos(angle);
    s.back_dy = sin(angle);
    return s;
}

/* True if the point (x, y), in units of the radius from the centre, is inside the shape. */
static bool inside(int shape, double x, double y)
{
    switch (shape) {
    case 0: return x * x + y * y <= 1;
    case 1: return fabs(x) <= 0.88 && fabs(y) <= 0.88;
    default: return y <= 0.85 && fabs(x) <= (y + 1) * 0.56; /* apex up at y = -1 */
    }
}

void weft_shape_scene_draw(const weft_shape_scene *s, int64_t size, double t, uint8_t *rgb)
{
    enum { SUB = 4 };
    const double cx = s->x + s->step_x * t, cy = s->y + s->step_y * t;
    for (int64_t y = 0; y < size; y++)
        for (int64_t x = 0; x < size; x++) {
            int hits = 0;
            const double nx = ((double)x + 0.5 - cx) / s->radius;
            const double ny = ((double)y + 0.5 - cy) / s->radius;
            if (fabs(nx) < 1.2 && fabs(ny) < 1.2)
                for (int k = 0; k < SUB * SUB; k++) {
                    const double px = (double)x + (k % SUB + 0.5) / SUB;
                    const double py = (double)y + (k / SUB + 0.5) / SUB;
                    hits += inside(s->words.shape, (px - cx) / s->radius, (py - cy) / s->radius);
                }
            const float coverage = (float)hits / (SUB * SUB);
            const double u = ((double)x / (double)size - 0.5) * s->back_dx +
                             ((double)y / (double)size - 0.5) * s->back_dy + 0.5;
            const float mix = (float)(u < 0 ? 0 : u > 1 ? 1 : u);
            for (int c = 0; c < 3; c++) {
                const float back = s->back[0][c] + mix * (s->back[1][c] - s->back[0][c]);
                rgb[(y * size + x) * 3 + c] =
                    (uint8_t)(back + coverage * (s->colour[c] - back) + 0.5f);
            }
        }
}
