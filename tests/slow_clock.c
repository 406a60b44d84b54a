/* Preloaded into a rank under test: for the rank SLOW_RANK, each matrix product takes SLOW_MS
 * longer on the clock that weft reads, but not in real time. Reports of slow ranks then depend on
 * these values and not on the load of the machine. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECOND = 1000000000 };
static atomic_long added; /* ns */

static struct timespec plus(struct timespec t, long ns)
{
    ns += t.tv_nsec;
    t.tv_sec += ns / SECOND;
    t.tv_nsec = ns % SECOND;
    if (t.tv_nsec < 0) {
        t.tv_nsec += SECOND;
        t.tv_sec--;
    }
    return t;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*own)(clockid_t, struct timespec *);
    if (!own)
        own = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const int result = own(clock, now);
    if (result == 0 && clock == CLOCK_MONOTONIC)
        *now = plus(*now, atomic_load(&added));
    return result;
}

/* Waits until a time of that clock; times since 1970 are of another one. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    if (until->tv_sec > SECOND)
        return pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, until);
    const struct timespec t = plus(*until, -atomic_load(&added));
    return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &t);
}

static void take_longer(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *slow = getenv("SLOW_RANK"),
               *ms = getenv("SLOW_MS");
    if (rank && slow && ms && !strcmp(rank, slow))
        atomic_fetch_add(&added, 1000000 * atol(ms));
}

/* weft's products are of oneDNN or OpenBLAS. */
int dnnl_sgemm(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
               int64_t ldc)
{
    static int (*own)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                      const float *, int64_t, float, float *, int64_t);
    if (!own)
        own = (int (*)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                       const float *, int64_t, float, float *, int64_t))dlsym(RTLD_NEXT,
                                                                              "dnnl_sgemm");
    const int result = own(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    take_longer();
    return result;
}

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    static void (*own)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                       float, float *, int);
    if (!own)
        own = (void (*)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                        float, float *, int))dlsym(RTLD_NEXT, "cblas_sgemm");
    own(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    take_longer();
}
