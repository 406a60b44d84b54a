/* Preloaded into a rank under test: changes the clock that weft reads, CLOCK_MONOTONIC, so that
 * measured seconds do not depend on the load of the machine.
 *
 *   SLOW_RANK=1 SLOW_MS=10   each matrix product of this rank takes 10 ms longer than in real time
 *   CLOCK_FLOPS=1e9          the clock of a simulated machine, which real time does not move: a
 *                            matrix product takes as long as at 1e9 FLOP/s, a copy of a MiB or
 *                            more as long as at 1e9 bytes/s, and each reading 1 us
 *   CLOCK_STOPPED=pid.1      while the process with the number in this file is stopped, the clock
 *                            of the ranks runs ahead by 10 s at every eighth reading */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000 };
static atomic_long added;   /* ns */
static double flops;        /* of the simulated machine; 0: the clock of this one */
static const char *watched; /* file with the number of the process that may be stopped; or NULL */

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("CLOCK_FLOPS");
    flops = text ? atof(text) : 0;
    watched = getenv("OMPI_COMM_WORLD_RANK") ? getenv("CLOCK_STOPPED") : NULL;
}

/* Reads at most 255 bytes. */
static bool read_text(const char *path, char text[256])
{
    const int fd = open(path, O_RDONLY);
    const ssize_t length = fd >= 0 ? read(fd, text, 255) : -1;
    text[length > 0 ? length : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return length > 0;
}

static bool is_stopped(const char *numbered)
{
    char text[256], path[64];
    if (!read_text(numbered, text))
        return false;
    snprintf(path, sizeof path, "/proc/%d/stat", atoi(text));
    const char *state = read_text(path, text) ? strrchr(text, ')') : NULL; /* "7 (weft) T ..." */
    return state && state[1] && state[2] == 'T';
}

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

static int own_gettime(clockid_t clock, struct timespec *now)
{
    static int (*own)(clockid_t, struct timespec *);
    if (!own)
        own = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return own(clock, now);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (flops > 0 && clock == CLOCK_MONOTONIC) {
        *now = plus((struct timespec){0}, atomic_fetch_add(&added, 1000));
        return 0;
    }
    static atomic_long readings;
    if (watched && clock == CLOCK_MONOTONIC && atomic_fetch_add(&readings, 1) % 8 == 0 &&
        is_stopped(watched))
        atomic_fetch_add(&added, 10L * SECOND);
    const int result = own_gettime(clock, now);
    if (result == 0 && clock == CLOCK_MONOTONIC)
        *now = plus(*now, atomic_load(&added));
    return result;
}

/* Waits until a time of that clock; times since 1970 are of another one. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    struct timespec zero = {0};
    if (until->tv_sec > SECOND)
        return pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, until);
    if (flops > 0) /* until that long from now in real time */
        own_gettime(CLOCK_MONOTONIC, &zero);
    const struct timespec left = plus(*until, -atomic_load(&added)),
                          t = plus(left, zero.tv_sec * SECOND + zero.tv_nsec);
    return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &t);
}

static void take_longer(int64_t m, int64_t n, int64_t k)
{
    if (flops > 0) {
        atomic_fetch_add(&added, (long)(2e9 * (double)m * (double)n * (double)k / flops));
        return;
    }
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *slow = getenv("SLOW_RANK"),
               *ms = getenv("SLOW_MS");
    if (rank && slow && ms && !strcmp(rank, slow))
        atomic_fetch_add(&added, 1000000 * atol(ms));
}

void *memcpy(void *to, const void *from, size_t bytes)
{
    if (flops > 0 && bytes >= 1 << 20)
        atomic_fetch_add(&added, (long)bytes);
    return memmove(to, from, bytes);
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
    take_longer(m, n, k);
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
    take_longer(m, n, k);
}
