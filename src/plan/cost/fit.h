/* Cost models fitted to measurements (Arachne §IV-B): Eq. 9 for the DiT by least squares, and tiles
 * of the VAE by a line over the volume with a gradient-boosted correction by shape. */
#ifndef WEFT_PLAN_FIT_H
#define WEFT_PLAN_FIT_H

#include "base/memory.h"

typedef struct weft_dit_sample {
    double batch, tokens, degree,
        comm; /* comm: V / BW of Eq. 9 in seconds, as known; 0 for one device */
    double seconds;
} weft_dit_sample;
typedef struct weft_dit_fit {
    double linear, quadratic; /* alpha_1, alpha_2 */
    double error, worst;      /* relative: root of the mean square, largest */
} weft_dit_fit;
/* (alpha_1 B S + alpha_2 B S^2) / k + comm, weighted so that relative errors count. Needs 2
 * different lengths: WEFT_E_ARG else. */
weft_status weft_fit_dit(const weft_dit_sample *sample, int64_t count, weft_dit_fit *out);
double weft_dit_fit_seconds(const weft_dit_fit *fit, double batch, double tokens, double degree,
                            double comm);

typedef struct weft_tile_sample {
    double frames, height, width, seconds;
} weft_tile_sample;
typedef struct weft_tile_fit weft_tile_fit;
/* `held_out`: every so-manieth sample is not learned from but gives the errors (0: none is). */
weft_status weft_fit_tiles(const weft_tile_sample *sample, int64_t count, int64_t held_out,
                           weft_tile_fit **out);
void weft_tile_fit_free(weft_tile_fit *fit);
weft_status weft_tile_fit_seconds(const weft_tile_fit *fit, double frames, double height,
                                  double width, double *out);
/* Relative errors (root of the mean square) of the line alone and with the correction, on the
 * samples held out, or on all when none was. */
void weft_tile_fit_errors(const weft_tile_fit *fit, double *line, double *corrected);

#endif
