/* The trace of (Ca Cb)^1/2 without covariances. With rows A of the first set around their mean,
 * divided by sqrt(count - 1), Ca = A'A. Ca Cb and (B A')(A B') have the same eigenvalues, so the
 * trace is the sum of the singular values of A B'. Sets with more items than features are first
 * replaced by the factor R of A = QR, which has the same R'R. */
#include "evaluate/frechet.h"

#include "base/memory.h"
#include "base/message.h"

#include <math.h>
#include <string.h>

#include <cblas.h>

/* LAPACK in OpenBLAS, whose headers do not declare it. Matrices are stored by columns. */
void dgeqrf_(const int *rows, const int *columns, double *a, const int *lda, double *tau,
             double *work, const int *words, int *info);
void dgesdd_(const char *job, const int *rows, const int *columns, double *a, const int *lda,
             double *s, double *u, const int *ldu, double *vt, const int *ldvt, double *work,
             const int *words, int *integers, int *info);

/* A set of features: rows around their mean, by columns of `rows` items. */
typedef struct feature_set {
    double *mean, *at; /* owned */
    int rows, width;
    double trace; /* of the covariance */
} feature_set;

static void free_set(feature_set *s)
{
    weft_free(s->mean);
    weft_free(s->at);
}

static weft_status lapack_failed(const char *routine, int info)
{
    return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "%s of LAPACK returned %d", routine,
                      info);
}

/* Replaces the rows by R of their QR decomposition. */
static weft_status reduce(feature_set *s)
{
    int info = 0;
    double *tau = weft_calloc(s->width, sizeof *tau), words, *work = NULL, *r = NULL;
    weft_status_code status = WEFT_ALLOCATED(tau, "the Frechet distance");
    WEFT_GO(status);
    dgeqrf_(&s->rows, &s->width, s->at, &s->rows, tau, &words, &(int){-1}, &info);
    WEFT_GO(WEFT_NEW(work, (int64_t)words, "the Frechet distance"));
    dgeqrf_(&s->rows, &s->width, s->at, &s->rows, tau, work, &(int){(int)words}, &info);
    WEFT_GO(info ? lapack_failed("dgeqrf", info) : WEFT_OK);
    WEFT_GO(WEFT_NEW(r, (int64_t)s->width * s->width, "the Frechet distance"));
    for (int64_t c = 0; c < s->width; c++)
        memcpy(r + c * s->width, s->at + c * s->rows, (size_t)(c + 1) * sizeof *r);
    weft_free(s->at);
    s->at = r;
    r = NULL;
    s->rows = s->width;
out:
    weft_free(tau);
    weft_free(work);
    weft_free(r);
    return status;
}

static weft_status take(const float *from, int64_t count, int64_t width, feature_set *s)
{
    *s = (feature_set){.rows = (int)count, .width = (int)width};
    WEFT_TRY(WEFT_NEW(s->mean, width, "the Frechet distance"));
    WEFT_TRY(WEFT_NEW(s->at, count * width, "the Frechet distance"));
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c++)
            s->mean[c] += from[i * width + c] / (double)count;
    for (int64_t c = 0; c < width; c++)
        for (int64_t i = 0; i < count; i++) {
            const double off = (from[i * width + c] - s->mean[c]) / sqrt((double)(count - 1));
            s->at[c * count + i] = off;
            s->trace += off * off;
        }
    return count > width ? reduce(s) : WEFT_OK;
}

/* Sum of the singular values of A B'. */
static weft_status sum_of_singular_values(const feature_set *a, const feature_set *b, double *sum)
{
    const int least = a->rows < b->rows ? a->rows : b->rows;
    int info = 0, *integers = NULL;
    double *product = NULL, *s = NULL, *work = NULL, words;
    weft_status_code status = WEFT_OK;
    *sum = 0;
    WEFT_GO(WEFT_NEW(product, (int64_t)a->rows * b->rows, "the Frechet distance"));
    WEFT_GO(WEFT_NEW(s, least, "the Frechet distance"));
    WEFT_GO(WEFT_NEW(integers, 8 * (int64_t)least, "the Frechet distance"));
    cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, a->rows, b->rows, a->width, 1, a->at,
                a->rows, b->at, b->rows, 0, product, a->rows);
    dgesdd_("N", &a->rows, &b->rows, product, &a->rows, s, NULL, &(int){1}, NULL, &(int){1}, &words,
            &(int){-1}, integers, &info);
    WEFT_GO(WEFT_NEW(work, (int64_t)words, "the Frechet distance"));
    dgesdd_("N", &a->rows, &b->rows, product, &a->rows, s, NULL, &(int){1}, NULL, &(int){1}, work,
            &(int){(int)words}, integers, &info);
    WEFT_GO(info ? lapack_failed("dgesdd", info) : WEFT_OK);
    for (int i = 0; i < least; i++)
        *sum += s[i];
out:
    weft_free(product);
    weft_free(s);
    weft_free(work);
    weft_free(integers);
    return status;
}

weft_status weft_frechet_distance(const float *a, int64_t count_a, const float *b, int64_t count_b,
                                  int64_t width, double *distance)
{
    feature_set x = {0}, y = {0};
    double mixed;
    weft_status_code status = WEFT_OK;
    if (count_a < 2 || count_b < 2)
        return weft_error(WEFT_MSG_SAMPLES_NONE, WEFT_AT(.key = "features"),
                          "the sets of features have %" PRId64 " and %" PRId64
                          " items; a Frechet distance needs at least 2 in each",
                          count_a, count_b);
    WEFT_GO(take(a, count_a, width, &x));
    WEFT_GO(take(b, count_b, width, &y));
    WEFT_GO(sum_of_singular_values(&x, &y, &mixed));
    *distance = x.trace + y.trace - 2 * mixed;
    for (int64_t c = 0; c < width; c++)
        *distance += (x.mean[c] - y.mean[c]) * (x.mean[c] - y.mean[c]);
out:
    free_set(&x);
    free_set(&y);
    return status;
}
