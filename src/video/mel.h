/* Mel spectrograms of sound, as audio autoencoders take them. */
#ifndef WEFT_VIDEO_MEL_H
#define WEFT_VIDEO_MEL_H

#include "base/status.h"

#include <stdint.h>

/* A short-time Fourier transform with a Hann window and reflected ends. Its magnitudes are summed
 * in mel bins by Slaney's scale, with areas of 1, from 0 to half the rate. Values are ln(max(x,
 * 1e-5)).
 * Source: torchaudio's MelSpectrogram with norm and mel_scale "slaney" and power 1, which LTX-2's
 * AudioProcessor uses. */
typedef struct weft_mel {
    int64_t rate;   /* samples per second */
    int64_t window; /* samples of a transform, a power of 2 */
    int64_t hop;    /* samples between transforms */
    int64_t bins;
} weft_mel;

/* Steps of a spectrogram of `count` samples. */
static inline int64_t weft_mel_steps(const weft_mel *mel, int64_t count)
{
    return 1 + count / mel->hop;
}
/* Fills `out` [steps][bins][channels], owned by the caller, from `samples` [channels][count].
 * `count` must be more than half a window. */
weft_status weft_mel_spectrogram(const weft_mel *mel, const float *samples, int64_t channels,
                                 int64_t count, float *out);

#endif
