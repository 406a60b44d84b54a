#include "curate/shots/shots_classic.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AREA = WEFT_SHOT_WIDTH * WEFT_SHOT_HEIGHT, WINDOW = 2, SCORES = 2 * WINDOW + 1 };

struct weft_classic_shots {
    weft_shot_options options;
    uint8_t hsv[AREA][3]; /* previous frame */
    int64_t frames, last_cut;
    double score[SCORES]; /* the newest content scores, adaptive */
    bool dark;            /* fade: below the threshold */
    int64_t dark_from;
    weft_boundary *list;
    int64_t count, capacity;
};

weft_status weft_classic_shots_create(const weft_shot_options *options, weft_classic_shots **out)
{
    weft_classic_shots *c;
    WEFT_TRY(WEFT_NEW(c, 1, "the shot detector"));
    static const double usual[WEFT_SHOTS_METHODS] = {1, 27, 3, 12, 0.5};
    c->options = *options;
    if (c->options.threshold <= 0)
        c->options.threshold = usual[options->method];
    if (c->options.min_frames == 0)
        c->options.min_frames = 15;
    *out = c;
    return WEFT_OK;
}

void weft_classic_shots_free(weft_classic_shots *c)
{
    if (!c)
        return;
    weft_free(c->list);
    weft_free(c);
}

/* Full-range BT.601 to hue (0 .. 179, as OpenCV), saturation and value (0 .. 255). */
static void to_hsv(int y, int cb, int cr, uint8_t hsv[3])
{
    const float u = (float)cb - 128, v = (float)cr - 128;
    float c[3] = {(float)y + 1.402f * v, (float)y - 0.344f * u - 0.714f * v, (float)y + 1.772f * u};
    for (int k = 0; k < 3; k++)
        c[k] = c[k] < 0 ? 0 : c[k] > 255 ? 255 : c[k];
    const float most = fmaxf(c[0], fmaxf(c[1], c[2])), least = fminf(c[0], fminf(c[1], c[2]));
    const float range = most - least;
    float hue = 0;
    if (range > 0)
        hue = most == c[0]   ? (c[1] - c[2]) / range
              : most == c[1] ? 2 + (c[2] - c[0]) / range
                             : 4 + (c[0] - c[1]) / range;
    hsv[0] = (uint8_t)((hue < 0 ? hue + 6 : hue) * 30 * 0.9999f);
    hsv[1] = (uint8_t)(most > 0 ? 255 * range / most : 0);
    hsv[2] = (uint8_t)most;
}

static weft_status add(weft_classic_shots *c, weft_boundary b)
{
    WEFT_TRY(weft_grow((void **)&c->list, c->count, &c->capacity, sizeof *c->list));
    c->list[c->count++] = b;
    c->last_cut = b.end;
    return WEFT_OK;
}

/* Mean of the absolute differences of hue, saturation and value to the frame before. */
static double content_score(weft_classic_shots *c, const weft_video_frame *frame)
{
    int64_t sum = 0;
    for (int i = 0; i < AREA; i++) {
        const int64_t x = i % WEFT_SHOT_WIDTH, y = i / WEFT_SHOT_WIDTH;
        uint8_t now[3];
        to_hsv(frame->plane[0][y * frame->stride[0] + x], frame->plane[1][y * frame->stride[1] + x],
               frame->plane[2][y * frame->stride[2] + x], now);
        for (int k = 0; k < 3; k++) {
            sum += abs(now[k] - c->hsv[i][k]);
            c->hsv[i][k] = now[k];
        }
    }
    return c->frames ? (double)sum / (3 * AREA) : 0;
}

static weft_status push_fade(weft_classic_shots *c, const weft_video_frame *frame)
{
    int64_t sum = 0;
    for (int y = 0; y < WEFT_SHOT_HEIGHT; y++)
        for (int x = 0; x < WEFT_SHOT_WIDTH; x++)
            sum += frame->plane[0][y * frame->stride[0] + x];
    const bool dark = (double)sum / AREA < c->options.threshold;
    if (dark && !c->dark)
        c->dark_from = c->frames;
    if (!dark && c->dark && c->dark_from > 0 && c->dark_from - c->last_cut >= c->options.min_frames)
        WEFT_TRY(
            add(c, (weft_boundary){
                       .start = c->dark_from, .end = c->frames - 1, .gradual = true, .score = 1}));
    c->dark = dark;
    return WEFT_OK;
}

/* Decides about the frame `back` frames ago, when its neighbours on both sides are known. */
static weft_status decide_adaptive(weft_classic_shots *c, int64_t back)
{
    const int64_t frame = c->frames - back;
    const double score = c->score[SCORES - 1 - back];
    double around = 0;
    for (int k = 0; k < SCORES; k++)
        around += k == SCORES - 1 - back ? 0 : c->score[k];
    const double ratio = score / fmax(around / (SCORES - 1), 1e-6);
    if (frame > 0 && ratio >= c->options.threshold && score >= 15 &&
        frame - c->last_cut >= c->options.min_frames)
        WEFT_TRY(add(c, (weft_boundary){
                            .start = frame, .end = frame, .score = ratio / c->options.threshold}));
    return WEFT_OK;
}

weft_status weft_classic_shots_push(weft_classic_shots *c, const weft_video_frame *frame)
{
    weft_status_code status = WEFT_OK;
    if (c->options.method == WEFT_SHOTS_FADE) {
        status = push_fade(c, frame);
    } else {
        const double score = content_score(c, frame);
        if (c->options.method == WEFT_SHOTS_ADAPTIVE) {
            memmove(c->score, c->score + 1, (SCORES - 1) * sizeof *c->score);
            c->score[SCORES - 1] = score;
            if (c->frames >= SCORES - 1)
                status = decide_adaptive(c, WINDOW);
        } else if (c->frames && score >= c->options.threshold &&
                   c->frames - c->last_cut >= c->options.min_frames) {
            status = add(c, (weft_boundary){.start = c->frames,
                                            .end = c->frames,
                                            .score = score / c->options.threshold});
        }
    }
    c->frames++;
    return status;
}

weft_status weft_classic_shots_finish(weft_classic_shots *c, weft_boundary **list, int64_t *count)
{
    weft_free(*list);
    *list = c->list;
    *count = c->count;
    c->list = NULL;
    c->count = c->capacity = 0;
    return WEFT_OK;
}
