#include "model/noise_levels.h"

#include <math.h>

/* Noise level i of n: linear in the first half, quadratic in the second, with the same slope at the
 * joint. The last step ends at 0. */
static double quadratic_level(int64_t i, int64_t n)
{
    const double slow = 0.025; /* share of the range that the first half covers */
    const int64_t half = n / 2;
    if (i <= half)
        return half ? 1 - slow * (double)i / (double)half : 1;
    const double bend = (double)(i - half) / (double)(n - half),
                 rest = 1 - slow * (double)n / (double)half;
    return 1 - slow * (double)i / (double)half - rest * bend * bend;
}

/* Shift exponent of Flux 2 for a number of tokens and steps: published lines by tokens at 10 and
 * 200 steps, and the second line alone above 4300 tokens. */
static double flux2_mu(int64_t tokens, int64_t steps)
{
    const double n = (double)tokens, at_10 = 8.73809524e-05 * n + 1.89833333,
                 at_200 = 0.00016927 * n + 0.45666666, slope = (at_200 - at_10) / 190;
    return tokens > 4300 ? at_200 : slope * (double)steps + at_200 - 200 * slope;
}

/* Noise level i of n of a family's pipeline, before the shift. */
static double own_level(weft_own_levels levels, int64_t i, int64_t n)
{
    switch (levels) {
    case WEFT_LEVELS_QUADRATIC: return quadratic_level(i, n);
    case WEFT_LEVELS_EVEN_TO_0001: return n > 1 ? 1 - 0.999 * (double)i / (double)(n - 1) : 1;
    case WEFT_LEVELS_EVEN_BELOW_1: return 0.999 * (double)(n - i) / (double)n;
    default: return (double)(n - i) / (double)n;
    }
}

weft_status weft_noise_levels_set(const weft_family *family, const weft_scheduler *s,
                                  int64_t tokens, const weft_timestep_request *given,
                                  weft_solver_step *step)
{
    const bool replaced = given->sigma || given->time;
    const weft_own_levels own = family->noise_levels,
                          levels = s->path == WEFT_PATH_FLOW && !replaced ? own : WEFT_LEVELS_NONE;
    weft_timestep_request request = *given;
    double *sigma = NULL;
    request.mu = own == WEFT_LEVELS_EVEN_FLUX2 ? flux2_mu(tokens, given->steps)
                                               : weft_scheduler_mu(s, tokens, given->pixels);
    if (levels == WEFT_LEVELS_EVEN_SHIFT7 && request.mu > log(7))
        request.mu = log(7);
    if (levels) {
        WEFT_TRY(WEFT_NEW(sigma, given->steps, "%" PRId64 " levels", given->steps));
        for (int64_t i = 0; i < given->steps; i++)
            sigma[i] = own_level(levels, i, given->steps);
        request.sigma = sigma;
    }
    const weft_status_code status = weft_scheduler_set_timesteps(s, &request, step);
    weft_free(sigma);
    return status;
}
