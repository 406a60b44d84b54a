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
