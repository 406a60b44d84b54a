#include "plan/cost/fit.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <string.h>
#include <xgboost/c_api.h>

/* Least squares of `rows` by two columns; each row is divided by its measured seconds. */
static weft_status two_columns(const double *a, const double *b, const double *seconds,
                               const double *target, int64_t rows, double *x, double *y)
{
    gsl_matrix *m = gsl_matrix_alloc((size_t)rows, 2), *cov = gsl_matrix_alloc(2, 2);
    gsl_vector *v = gsl_vector_alloc((size_t)rows), *c = gsl_vector_alloc(2);
    gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc((size_t)rows, 2);
    weft_status_code status = WEFT_OK;
    double chi;
    if (!m || !cov || !v || !c || !work) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory fitting %lld samples", (long long)rows);
    } else {
        for (int64_t i = 0; i < rows; i++) {
            gsl_matrix_set(m, (size_t)i, 0, a[i] / seconds[i]);
            gsl_matrix_set(m, (size_t)i, 1, b[i] / seconds[i]);
            gsl_vector_set(v, (size_t)i, target[i] / seconds[i]);
        }
        if (gsl_multifit_linear(m, v, c, cov, &chi, work) != GSL_SUCCESS)
            status = weft_fail(WEFT_E_NUMERIC, "the fit of %lld samples does not succeed",
                               (long long)rows);
        *x = gsl_vector_get(c, 0);
        *y = gsl_vector_get(c, 1);
    }
    gsl_multifit_linear_free(work);
    gsl_matrix_free(m);
    gsl_matrix_free(cov);
    gsl_vector_free(v);
    gsl_vector_free(c);
    return status;
}

double weft_dit_fit_seconds(const weft_dit_fit *f, double batch, double tokens, double degree,
                            double comm)
{
    return (f->linear * batch * tokens + f->quadratic * batch * tokens * tokens) / degree + comm;
}

weft_status weft_fit_dit(const weft_dit_sample *s, int64_t n, weft_dit_fit *out)
{
    bool different = false;
    for (int64_t i = 0; i < n; i++) {
        if (!(s[i].seconds > s[i].comm) || !(s[i].tokens > 0) || !(s[i].degree >= 1) ||
            !(s[i].batch > 0) || !isfinite(s[i].seconds))
            return weft_fail(WEFT_E_ARG,
                             "sample %lld: %g s for %g x %g tokens on %g devices cannot be fitted",
                             (long long)i, s[i].seconds, s[i].batch, s[i].tokens, s[i].degree);
        different |= s[i].tokens != s[0].tokens;
    }
    if (n < 2 || !different)
        return weft_fail(WEFT_E_ARG,
                         "Eq. 9 needs samples of at least two lengths; there are %lld samples",
                         (long long)n);
    weft_arena *arena = weft_arena_create();
    double *a = arena ? weft_arena_alloc(arena, 4 * n * (int64_t)sizeof *a) : NULL;
    if (!a) {
        weft_arena_free(arena);
        return weft_fail(WEFT_E_MEMORY, "out of memory fitting %lld samples", (long long)n);
    }
    double *b = a + n, *seconds = b + n, *target = seconds + n;
    for (int64_t i = 0; i < n; i++) {
        a[i] = s[i].batch * s[i].tokens / s[i].degree;
        b[i] = a[i] * s[i].tokens;
        seconds[i] = s[i].seconds;
        target[i] = s[i].seconds - s[i].comm;
    }
    weft_dit_fit fit = {0};
    const weft_status_code status =
        two_columns(a, b, seconds, target, n, &fit.linear, &fit.quadratic);
    weft_arena_free(arena);
    if (status != WEFT_OK)
        return status;
    for (int64_t i = 0; i < n; i++) {
        const double e =
            weft_dit_fit_seconds(&fit, s[i].batch, s[i].tokens, s[i].degree, s[i].comm) /
                s[i].seconds -
            1;
        fit.error += e * e / (double)n;
        fit.worst = fmax(fit.worst, fabs(e));
    }
    fit.error = sqrt(fit.error);
    *out = fit;
    return WEFT_OK;
}

enum { MAX_SIDES = 32, TREES = 60 };

struct weft_tile_fit {
    double base, slope; /* seconds = base + slope * volume */
    double side[MAX_SIDES][2];
    int64_t sides;
    BoosterHandle booster; /* of the relative residual; NULL: too few samples */
    double line_error, error;
};

/* Features: frames, volume, and one column per (height, width) that was seen (Arachne: one-hot). */
static int64_t columns(const weft_tile_fit *f)
{
    return 2 + f->sides;
}

static void features(const weft_tile_fit *f, double frames, double height, double width, float *row)
{
    row[0] = (float)frames;
    row[1] = (float)(frames * height * width);
    for (int64_t k = 0; k < f->sides; k++)
        row[2 + k] = f->side[k][0] == height && f->side[k][1] == width;
}

static double line_of(const weft_tile_fit *f, double frames, double height, double width)
{
    return f->base + f->slope * frames * height * width;
}

static weft_status xgboost_failed(void)
{
    return weft_fail(WEFT_E_INTERNAL, "XGBoost: %.300s", XGBGetLastError());
}

static weft_status boost(weft_tile_fit *f, const weft_tile_sample *s, int64_t n, int64_t held_out)
{
    float *rows = weft_alloc(n * (columns(f) + 1) * (int64_t)sizeof *rows);
    if (!rows)
        return weft_fail(WEFT_E_MEMORY, "out of memory fitting %lld tiles", (long long)n);
    float *label = rows + n * columns(f);
    int64_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        if (held_out && i % held_out == held_out - 1)
            continue;
        features(f, s[i].frames, s[i].height, s[i].width, rows + used * columns(f));
        label[used++] =
            (float)(s[i].seconds / line_of(f, s[i].frames, s[i].height, s[i].width) - 1);
    }
    DMatrixHandle data = NULL;
    BoosterHandle booster = NULL;
    static const char *const settings[][2] = {{"max_depth", "4"},
                                              {"eta", "0.2"},
                                              {"nthread", "1"},
                                              {"seed", "1"},
                                              {"objective", "reg:squarederror"},
                                              {"base_score", "0"},
                                              {"verbosity", "0"},
                                              {"lambda", "0.3"},
                                              {"min_child_weight", "1"}};
    bool ok = !XGDMatrixCreateFromMat(rows, (bst_ulong)used, (bst_ulong)columns(f), NAN, &data) &&
              !XGDMatrixSetFloatInfo(data, "label", label, (bst_ulong)used) &&
              !XGBoosterCreate(&data, 1, &booster);
    for (size_t i = 0; ok && i < sizeof settings / sizeof *settings; i++)
        ok = !XGBoosterSetParam(booster, settings[i][0], settings[i][1]);
    for (int i = 0; ok && i < TREES; i++)
        ok = !XGBoosterUpdateOneIter(booster, i, data);
    const weft_status_code status = ok ? WEFT_OK : xgboost_failed();
    if (data)
        XGDMatrixFree(data);
    weft_free(rows);
    if (!ok && booster)
        XGBoosterFree(booster);
    f->booster = ok ? booster : NULL;
    return status;
}

weft_status weft_tile_fit_seconds(const weft_tile_fit *f, double frames, double height,
                                  double width, double *out)
{
    double seconds = line_of(f, frames, height, width);
    if (f->booster) {
        float row[2 + MAX_SIDES];
        features(f, frames, height, width, row);
        DMatrixHandle data;
        if (XGDMatrixCreateFromMat(row, 1, (bst_ulong)columns(f), NAN, &data))
            return xgboost_failed();
        const float *result = NULL;
        bst_ulong length = 0;
        const int failed = XGBoosterPredict(f->booster, data, 0, 0, 0, &length, &result);
        if (!failed && length == 1)
            seconds *= 1 + (double)result[0];
        XGDMatrixFree(data);
        if (failed)
            return xgboost_failed();
    }
    *out = seconds;
    return WEFT_OK;
}

static weft_status fit_errors(weft_tile_fit *f, const weft_tile_sample *s, int64_t n,
                              int64_t held_out)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i++) {
        if (held_out && i % held_out != held_out - 1)
            continue;
        double seconds;
        WEFT_TRY(weft_tile_fit_seconds(f, s[i].frames, s[i].height, s[i].width, &seconds));
        const double plain = line_of(f, s[i].frames, s[i].height, s[i].width) / s[i].seconds - 1;
        f->line_error += plain * plain;
        f->error += pow(seconds / s[i].seconds - 1, 2);
        counted++;
    }
    f->line_error = sqrt(f->line_error / (double)(counted ? counted : 1));
    f->error = sqrt(f->error / (double)(counted ? counted : 1));
    return WEFT_OK;
}

weft_status weft_fit_tiles(const weft_tile_sample *s, int64_t n, int64_t held_out,
                           weft_tile_fit **out)
{
    if (n < 4 || (held_out && held_out < 2))
        return weft_fail(WEFT_E_ARG, "a fit of tiles needs at least 4 samples, there are %lld",
                         (long long)n);
    weft_arena *arena = weft_arena_create();
    double *ones = arena ? weft_arena_alloc(arena, 3 * n * (int64_t)sizeof *ones) : NULL;
    weft_tile_fit *f = weft_alloc(sizeof *f);
    weft_status_code status =
        ones && f ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory fitting tiles");
    if (status != WEFT_OK)
        goto out;
    double *volume = ones + n, *seconds = volume + n;
    int64_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(s[i].seconds > 0) || !isfinite(s[i].seconds))
            WEFT_GO(weft_fail(WEFT_E_ARG, "tile %lld took %g s", (long long)i, s[i].seconds));
        bool known = false;
        for (int64_t k = 0; k < f->sides; k++)
            known |= f->side[k][0] == s[i].height && f->side[k][1] == s[i].width;
        if (!known && f->sides < MAX_SIDES) {
            f->side[f->sides][0] = s[i].height;
            f->side[f->sides++][1] = s[i].width;
        }
        if (held_out && i % held_out == held_out - 1)
            continue;
        ones[used] = 1;
        volume[used] = s[i].frames * s[i].height * s[i].width;
        seconds[used++] = s[i].seconds;
    }
    WEFT_GO(two_columns(ones, volume, seconds, seconds, used, &f->base, &f->slope));
    WEFT_GO(boost(f, s, n, held_out));
    WEFT_GO(fit_errors(f, s, n, held_out));
    *out = f;
out:
    weft_arena_free(arena);
    if (status != WEFT_OK)
        weft_tile_fit_free(f);
    return status;
}

void weft_tile_fit_free(weft_tile_fit *fit)
{
    if (!fit)
        return;
    if (fit->booster)
        XGBoosterFree(fit->booster);
    weft_free(fit);
}

void weft_tile_fit_errors(const weft_tile_fit *fit, double *line, double *corrected)
{
    *line = fit->line_error;
    *corrected = fit->error;
}
