#include "kernel/cuda/cuda_wait.h"

#include "base/log.h"
#include "kernel/cuda/cuda_exchange.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static atomic_bool is_stuck;

double weft_cuda_deadline(void)
{
    const char *text = getenv("WEFT_CUDA_DEADLINE");
    const double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 ? seconds : 1800;
}

double weft_cuda_patience(bool waits_for_rank)
{
    return weft_cuda_deadline() * (waits_for_rank ? 1.5 : 1);
}

bool weft_cuda_is_stuck(void)
{
    return is_stuck;
}

void weft_cuda_give_up(void)
{
    is_stuck = true;
    weft_cuda_gpu_abandon();
}

void weft_cuda_pause(int64_t polls)
{
    if (polls < 200)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = polls < 2000 ? 20000 : 200000}, NULL);
}

cuda_result weft_cuda_wait(const weft_cuda_gpu *gpu, cuda_stream stream, cuda_event event)
{
    const weft_cuda_driver *driver = gpu->driver;
    const double begin = weft_now(), seconds = weft_cuda_deadline();
    for (int64_t polls = 0; !is_stuck; polls++) {
        const cuda_result result =
            event ? driver->event_query(event) : driver->stream_query(stream);
        if (result != CUDA_NOT_READY)
            return result;
        if (weft_now() - begin > seconds &&
            weft_now() - begin > weft_cuda_patience(weft_cuda_exchange_waits()))
            weft_cuda_give_up();
        else
            weft_cuda_pause(polls);
    }
    return CUDA_NOT_READY;
}
