#include "stepped_clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SECOND = 1000000000,
    STEP = SECOND / 20,
    READS = 8, /* of each thread before a step: at least two passes of its loop */
    MOST = 64  /* threads */
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t reached;
    bool on;
    int expected, known;
    int64_t now, until; /* ns */
    int reads[MOST];    /* of each thread since the last step */
    bool ended[MOST];
} simulated = {.mutex = PTHREAD_MUTEX_INITIALIZER, .reached = PTHREAD_COND_INITIALIZER};

static pthread_key_t key; /* its destructor runs at the end of a thread */
static _Thread_local int slot = -1;
static _Thread_local bool excluded;

static void end_thread(void *ended)
{
    pthread_mutex_lock(&simulated.mutex);
    *(bool *)ended = true;
    pthread_mutex_unlock(&simulated.mutex);
}

void stepped_clock_begin(int threads)
{
    pthread_key_create(&key, end_thread);
    excluded = true;
    pthread_mutex_lock(&simulated.mutex);
    simulated.on = true;
    simulated.expected = threads;
    /* earlier than the real time: waits until a simulated time return at once */
    simulated.now = simulated.until = SECOND;
    pthread_mutex_unlock(&simulated.mutex);
}

void stepped_clock_exclude(void)
{
    excluded = true;
}

void stepped_clock_run(double seconds)
{
    pthread_mutex_lock(&simulated.mutex);
    simulated.until = simulated.now + (int64_t)(seconds * SECOND);
    while (simulated.now < simulated.until)
        pthread_cond_wait(&simulated.reached, &simulated.mutex);
    pthread_mutex_unlock(&simulated.mutex);
}

void stepped_clock_go(void)
{
    pthread_mutex_lock(&simulated.mutex);
    simulated.until = INT64_MAX;
    pthread_mutex_unlock(&simulated.mutex);
}

static void count_read(void)
{
    if (slot < 0 && simulated.known < MOST) {
        slot = simulated.known++;
        pthread_setspecific(key, &simulated.ended[slot]);
    }
    if (slot >= 0)
        simulated.reads[slot]++;
}

static void step(void)
{
    if (simulated.known < simulated.expected || simulated.now >= simulated.until)
        return;
    for (int i = 0; i < simulated.known; i++)
        if (!simulated.ended[i] && simulated.reads[i] < READS)
            return;
    for (int i = 0; i < simulated.known; i++)
        simulated.reads[i] = 0;
    simulated.now += STEP;
    if (simulated.now >= simulated.until)
        pthread_cond_broadcast(&simulated.reached);
}

/* Replaces the function of the C library. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const long result = syscall(SYS_clock_gettime, clock, now);
    if (result != 0 || clock != CLOCK_MONOTONIC)
        return (int)result;
    pthread_mutex_lock(&simulated.mutex);
    if (simulated.on) {
        if (!excluded) {
            count_read();
            step();
        }
        *now =
            (struct timespec){.tv_sec = simulated.now / SECOND, .tv_nsec = simulated.now % SECOND};
    }
    pthread_mutex_unlock(&simulated.mutex);
    return 0;
}
