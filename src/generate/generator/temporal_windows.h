/* Windows over time: a video longer than its model was trained for is denoised in overlapping
 * pieces, and what they answer is blended in every step (MultiDiffusion, Bar-Tal et al.).
 *
 *     window 0   ########\\\\
 *     window 1           ////####\\\\       shares of all windows at a frame add up to 1
 *     window 2                   ////########
 */
#ifndef WEFT_GENERATE_WINDOWS_H
#define WEFT_GENERATE_WINDOWS_H

#include <stdint.h>

/* In latent frames. */
typedef struct weft_windows {
    int64_t frames, window, overlap, count;
} weft_windows;

/* overlap < window; a window of all frames or more is the only one. */
weft_windows weft_windows_lay(int64_t frames, int64_t window, int64_t overlap);
/* Where window i begins: the last one ends with the video, and overlaps more if need be. */
int64_t weft_windows_first(const weft_windows *w, int64_t i);
/* What window i counts at `frame`, 0 outside of it. Rises and falls over the overlap. */
double weft_windows_share(const weft_windows *w, int64_t i, int64_t frame);

#endif
