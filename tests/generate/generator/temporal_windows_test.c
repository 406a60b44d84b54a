#include "generate/generator/temporal_windows.h"

#include <criterion/criterion.h>
#include <math.h>

Test(windows, all_frames_are_covered_and_shares_add_up)
{
    for (int64_t frames = 1; frames < 24; frames++)
        for (int64_t window = 1; window < 26; window++)
            for (int64_t overlap = 0; overlap < window; overlap++) {
                const weft_temporal_windows w =
                    weft_temporal_windows_arrange(frames, window, overlap);
                cr_assert_leq(w.window, frames);
                cr_assert_eq(weft_temporal_windows_first(&w, 0), 0);
                cr_assert_eq(weft_temporal_windows_first(&w, w.count - 1) + w.window, frames);
                for (int64_t f = 0; f < frames; f++) {
                    double sum = 0;
                    for (int64_t i = 0; i < w.count; i++) {
                        const double share = weft_temporal_windows_share(&w, i, f);
                        const int64_t at = f - weft_temporal_windows_first(&w, i);
                        cr_assert_eq(share > 0, at >= 0 && at < w.window);
                        sum += share;
                    }
                    cr_assert_float_eq(sum, 1, 1e-12);
                }
                for (int64_t i = 1; i < w.count; i++) /* neighbours share enough frames */
                    cr_assert_geq(weft_temporal_windows_first(&w, i - 1) + w.window -
                                      weft_temporal_windows_first(&w, i),
                                  overlap);
            }
}

/* After the first window, each period has the frames of the first window from `first` on, each
 * once. Frames of the first window have their own noise. */
Test(windows, noise_of_the_first_window_returns)
{
    for (int64_t window = 2; window < 9; window++)
        for (int64_t overlap = 1; overlap < window; overlap++)
            for (int64_t first = 0; first < 2; first++) {
                const weft_temporal_windows w =
                    weft_temporal_windows_arrange(first + 5 * (window - first), window, overlap);
                const int64_t period = window - first;
                uint64_t seen = 0;
                for (int64_t t = 0; t < w.frames; t++) {
                    const int64_t from = weft_temporal_windows_noise(&w, first, 7, t);
                    cr_assert_eq(from, weft_temporal_windows_noise(&w, first, 7, t));
                    cr_assert(t < window ? from == t : from >= first && from < window);
                    seen |= t < first ? 0 : UINT64_C(1) << from;
                    if (t >= first && (t - first + 1) % period == 0) {
                        cr_assert_eq(seen, ((UINT64_C(1) << period) - 1) << first);
                        seen = 0;
                    }
                }
            }
}

/* Sections and reasoning frames are frames after the only window. */
Test(windows, one_window_has_no_noise_again)
{
    const weft_temporal_windows w = weft_temporal_windows_arrange(2, 2, 0);
    for (int64_t t = 0; t < 20; t++)
        cr_assert_eq(weft_temporal_windows_noise(&w, 1, 7, t), t);
}

/* Without a shuffle, motion would repeat from window to window. */
Test(windows, noise_returns_in_an_order_of_the_seed)
{
    const weft_temporal_windows w = weft_temporal_windows_arrange(61, 16, 4);
    int64_t moved = 0, other = 0;
    for (int64_t t = 16; t < 61; t++) {
        const int64_t from = weft_temporal_windows_noise(&w, 1, 7, t);
        moved += from != 1 + (t - 1) % 15;
        other += from != weft_temporal_windows_noise(&w, 1, 8, t);
    }
    cr_expect(moved > 20 && other > 20, "%d and %d of 45 frames", (int)moved, (int)other);
}

/* The shifted window has the means of the first one. Frame 0 of a causal autoencoder is not
 * counted. */
Test(windows, a_shift_gives_the_means_of_the_first_window)
{
    enum { CELLS = 3, CHANNELS = 2, FRAMES = 4, ALL = FRAMES * CELLS * CHANNELS };
    const weft_temporal_windows w = weft_temporal_windows_arrange(10, FRAMES, 1);
    float x[ALL], out[ALL], first[CHANNELS] = {0.25f, -3}, mean[CHANNELS];
    for (int i = 0; i < ALL; i++) {
        x[i] = sinf((float)i);
        out[i] = cosf(3 * (float)i);
    }
    const weft_window_values v = {x, out, CELLS, CHANNELS, 0.75, -0.5};
    weft_temporal_windows_mean(&w, 1, &v, mean);
    cr_assert_gt(fabsf(mean[0] - first[0]), 0.01f);
    weft_temporal_windows_shift(&v, first, mean);
    for (int i = 0; i < ALL; i++)
        out[i] += mean[i % CHANNELS];
    x[0] = 100;
    weft_temporal_windows_mean(&w, 1, &v, mean);
    for (int c = 0; c < CHANNELS; c++)
        cr_assert_float_eq(mean[c], first[c], 1e-6);
}

Test(windows, a_window_fades_in_while_the_one_before_fades_out)
{
    const weft_temporal_windows w = weft_temporal_windows_arrange(10, 6, 2);
    cr_assert_eq(w.count, 2);
    cr_assert_eq(weft_temporal_windows_share(&w, 0, 3), 1);
    cr_assert_float_eq(weft_temporal_windows_share(&w, 0, 4), 2.0 / 3, 1e-12);
    cr_assert_float_eq(weft_temporal_windows_share(&w, 0, 5), 1.0 / 3, 1e-12);
    cr_assert_eq(weft_temporal_windows_share(&w, 1, 6), 1);
}

/* The first window does not fade in: 7, the overlap and one, at its first frames, less towards its
 * end. */
Test(windows, the_first_and_the_last_window_fade_on_one_side)
{
    const weft_temporal_windows w = weft_temporal_windows_arrange(20, 8, 6);
    cr_assert_eq(w.count, 7);
    cr_assert_float_eq(weft_temporal_windows_share(&w, 0, 2), 6.0 / (6 + 1), 1e-12);
    cr_assert_float_eq(weft_temporal_windows_share(&w, 0, 3), 5.0 / (5 + 2), 1e-12);
    cr_assert_float_eq(weft_temporal_windows_share(&w, 6, 17), 6.0 / (6 + 1), 1e-12);
    cr_assert_float_eq(weft_temporal_windows_share(&w, 6, 16), 5.0 / (5 + 2), 1e-12);
}
