#include "generate/generator/temporal_windows.h"

#include "base/rng.h"

weft_temporal_windows weft_temporal_windows_arrange(int64_t frames, int64_t window, int64_t overlap)
{
    const int64_t step = window - overlap, rest = frames - window;
    if (rest <= 0)
        return (weft_temporal_windows){frames, frames, 0, 1};
    return (weft_temporal_windows){frames, window, overlap, 1 + (rest + step - 1) / step};
}

int64_t weft_temporal_windows_first(const weft_temporal_windows *w, int64_t i)
{
    const int64_t first = i * (w->window - w->overlap), last = w->frames - w->window;
    return first < last ? first : last;
}

/* Distance in frames, from 1, to the nearest edge of window i that is inside the video; at most
 * overlap + 1. 0 outside the window. */
static double weight(const weft_temporal_windows *w, int64_t i, int64_t frame)
{
    const int64_t at = frame - weft_temporal_windows_first(w, i);
    int64_t least = w->overlap + 1;
    if (at < 0 || at >= w->window)
        return 0;
    if (i > 0 && at + 1 < least)
        least = at + 1;
    if (i + 1 < w->count && w->window - at < least)
        least = w->window - at;
    return (double)least;
}

double weft_temporal_windows_share(const weft_temporal_windows *w, int64_t i, int64_t frame)
{
    double all = 0;
    for (int64_t k = 0; k < w->count; k++)
        all += weight(w, k, frame);
    return weight(w, i, frame) / all;
}

int64_t weft_temporal_windows_noise(const weft_temporal_windows *w, int64_t first_source,
                                    uint64_t seed, int64_t frame)
{
    const int64_t period = w->window - first_source, step = w->window - w->overlap;
    if (w->count < 2 || frame < w->window || period < 1)
        return frame;
    const int64_t at = frame - first_source, cycle = at / period, place = at % period,
                  block = place / step * step, size = period - block < step ? period - block : step;
    /* a shuffle of 0 .. size - 1: each draw swaps an item with an earlier one */
    int64_t item = place - block;
    for (int64_t k = size - 1; k > 0; k--) {
        const uint64_t draw = (uint64_t)((cycle * period + block) * w->window + k);
        const int64_t other =
            (int64_t)(weft_random_uniform(seed, WEFT_RNG_SHUFFLE, draw) * (float)(k + 1));
        item = item == k ? other : item == other ? k : item;
    }
    return first_source + block + item;
}

void weft_temporal_windows_mean(const weft_temporal_windows *w, int64_t first_source,
                                const weft_window_values *v, float *mean)
{
    const int64_t cells = (w->window - first_source) * v->cells;
    for (int64_t c = 0; c < v->channels; c++) {
        double sum = 0;
        for (int64_t k = first_source * v->cells; k < w->window * v->cells; k++)
            sum += v->skip * (double)v->x[k * v->channels + c] +
                   v->scale * (double)v->out[k * v->channels + c];
        mean[c] = cells > 0 ? (float)(sum / (double)cells) : 0;
    }
}

void weft_temporal_windows_shift(const weft_window_values *v, const float *first, float *mean)
{
    for (int64_t c = 0; c < v->channels; c++)
        mean[c] = v->scale != 0 ? (float)(((double)first[c] - (double)mean[c]) / v->scale) : 0;
}
