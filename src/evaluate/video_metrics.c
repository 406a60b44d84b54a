#include "evaluate/video_metrics.h"

#include "base/memory.h"
#include "base/message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- flicker -------------------------------------------------------------------------------- */

weft_status weft_flicker_add(weft_flicker *f, const uint8_t *rgb, int64_t values)
{
    int64_t sum = 0;
    if (!f->last) {
        WEFT_TRY(WEFT_NEW(f->last, values, "a frame"));
        f->values = values;
    } else {
        for (int64_t i = 0; i < values; i++)
            sum += abs(rgb[i] - f->last[i]);
        f->sum += (double)sum / (double)values;
        f->pairs++;
    }
    memcpy(f->last, rgb, (size_t)values);
    return WEFT_OK;
}

double weft_flicker_score(const weft_flicker *f)
{
    return f->pairs ? 1 - f->sum / (double)f->pairs / 255 : (double)NAN;
}

void weft_flicker_free(weft_flicker *f)
{
    weft_free(f->last);
    *f = (weft_flicker){0};
}

/* ---- motion --------------------------------------------------------------------------------- */

weft_status weft_smoothness_add(weft_smoothness *m, weft_frame_interpolation *network,
                                const uint8_t *rgb, int64_t height, int64_t width)
{
    const int64_t values = height * width * 3, number = m->frames++;
    int64_t sum = 0;
    if (height < WEFT_INTERPOLATION_LEAST || width < WEFT_INTERPOLATION_LEAST)
        return WEFT_OK;
    if (!m->even) {
        WEFT_TRY(WEFT_NEW(m->even, values, "a frame"));
        WEFT_TRY(WEFT_NEW(m->odd, values, "a frame"));
        WEFT_TRY(WEFT_NEW(m->middle, values, "a frame"));
    }
    if (number % 2) {
        memcpy(m->odd, rgb, (size_t)values);
        return WEFT_OK;
    }
    if (number) {
        WEFT_TRY(weft_frame_interpolation_run(network, m->even, rgb, height, width, m->middle));
        for (int64_t i = 0; i < values; i++)
            sum += abs(m->middle[i] - m->odd[i]);
        m->sum += (double)sum / (double)values;
        m->compared++;
    }
    memcpy(m->even, rgb, (size_t)values);
    return WEFT_OK;
}

double weft_smoothness_score(const weft_smoothness *m)
{
    return m->compared ? 1 - m->sum / (double)m->compared / 255 : (double)NAN;
}

void weft_smoothness_free(weft_smoothness *m)
{
    weft_free(m->even);
    weft_free(m->odd);
    weft_free(m->middle);
    *m = (weft_smoothness){0};
}

/* ---- consistency ---------------------------------------------------------------------------- */

double weft_cosine(const float *a, const float *b, int64_t width)
{
    double sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

weft_status weft_unit_vector(const float *from, int64_t width, float *to)
{
    const double length = sqrt(weft_cosine(from, from, width));
    if (!isfinite(length) || length == 0)
        return weft_error(WEFT_MSG_VALUE_NOT_FINITE, WEFT_AT(.key = "features"),
                          "the features of a frame are zero or not finite numbers");
    for (int64_t i = 0; i < width; i++)
        to[i] = (float)(from[i] / length);
    return WEFT_OK;
}

weft_status weft_consistency_add(weft_consistency *c, const float *unit, int64_t width)
{
    if (c->frames) {
        c->sum += (fmax(0, weft_cosine(c->last, unit, width)) +
                   fmax(0, weft_cosine(c->first, unit, width))) /
                  2;
    } else {
        WEFT_TRY(WEFT_NEW(c->first, width, "features"));
        WEFT_TRY(WEFT_NEW(c->last, width, "features"));
        memcpy(c->first, unit, (size_t)width * sizeof *unit);
        c->width = width;
    }
    memcpy(c->last, unit, (size_t)width * sizeof *unit);
    c->frames++;
    return WEFT_OK;
}

double weft_consistency_score(const weft_consistency *c)
{
    return c->frames > 1 ? c->sum / (double)(c->frames - 1) : (double)NAN;
}

void weft_consistency_free(weft_consistency *c)
{
    weft_free(c->first);
    weft_free(c->last);
    *c = (weft_consistency){0};
}
