/* Temporal windows: a video longer than its model was trained for is denoised in overlapping
 * windows. Their predictions are blended in every step (MultiDiffusion, Bar-Tal et al.).
 *
 *     window 0   ########\\\\
 *     window 1           ////####\\\\       shares of all windows at a frame add up to 1
 *     window 2                   ////######## */
#ifndef WEFT_GENERATE_GENERATOR_TEMPORAL_WINDOWS_H
#define WEFT_GENERATE_GENERATOR_TEMPORAL_WINDOWS_H

#include <stdint.h>

/* Temporal windows; sizes in latent frames. */
typedef struct weft_temporal_windows {
    int64_t frames, window, overlap, count;
} weft_temporal_windows;

/* Requires overlap < window. If `window` covers all frames, it is the only one. */
weft_temporal_windows weft_temporal_windows_arrange(int64_t frames, int64_t window,
                                                    int64_t overlap);
/* First frame of window i. The last window ends with the video, and may overlap more. */
int64_t weft_temporal_windows_first(const weft_temporal_windows *w, int64_t i);
/* Weight of window i at `frame`: ramps over the overlap, 0 outside the window. */
double weft_temporal_windows_share(const weft_temporal_windows *w, int64_t i, int64_t frame);
/* Frame of the first window whose noise `frame` begins with (FreeNoise, Qiu et al.): the frames of
 * the first window in turn, from `first_source` on, shuffled within the steps of windows by the
 * seed. Frames of the first window have their own noise, as have all frames with one window: those
 * of sections and reasoning frames, which the window does not cover. */
int64_t weft_temporal_windows_noise(const weft_temporal_windows *w, int64_t first_source,
                                    uint64_t seed, int64_t frame);

/* Values of one window: (window, cells, channels). */
typedef struct weft_window_values {
    const float *x;   /* sample */
    const float *out; /* prediction */
    int64_t cells, channels;
    double skip, scale; /* denoised = skip x + scale prediction */
} weft_window_values;

/* Mean of each channel of the denoised window, over all frames from `first_source` on. */
void weft_temporal_windows_mean(const weft_temporal_windows *w, int64_t first_source,
                                const weft_window_values *values, float *mean);
/* Replaces the means of a window by the shift of its prediction that gives it the means `first` of
 * the first window. */
void weft_temporal_windows_shift(const weft_window_values *values, const float *first, float *mean);

#endif
