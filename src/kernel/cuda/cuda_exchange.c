#include "kernel/cuda/cuda_exchange.h"

#include "base/memory.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/device.h"

#include <pthread.h>

enum { BEGUN, ENDED, WORDS };

struct weft_cuda_exchange {
    uint32_t *word;  /* pinned: the last exchange that has begun, and that has ended */
    uint32_t number; /* of exchanges that were added */
    struct weft_cuda_exchange *next;
};

static struct {
    pthread_mutex_t mutex;
    weft_cuda_exchange *first;
} open_exchanges = {.mutex = PTHREAD_MUTEX_INITIALIZER};

weft_cuda_exchange *weft_cuda_exchange_open(void)
{
    weft_cuda_exchange *e = weft_calloc(1, sizeof *e);
    if (e)
        e->word = weft_device_alloc_host(&weft_device_cuda, WORDS * sizeof *e->word);
    if (!e || !e->word) {
        weft_free(e);
        return NULL;
    }
    e->word[BEGUN] = e->word[ENDED] = 0;
    pthread_mutex_lock(&open_exchanges.mutex);
    e->next = open_exchanges.first;
    open_exchanges.first = e;
    pthread_mutex_unlock(&open_exchanges.mutex);
    return e;
}

void weft_cuda_exchange_close(weft_cuda_exchange *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&open_exchanges.mutex);
    weft_cuda_exchange **at = &open_exchanges.first;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    pthread_mutex_unlock(&open_exchanges.mutex);
    weft_device_free_host(&weft_device_cuda, e->word);
    weft_free(e);
}

static cuda_result write_word(const uint32_t *word, uint32_t number, const weft_cuda_gpu *gpu,
                              cuda_stream stream)
{
    return gpu->driver->word_write(stream, (cuda_address)(uintptr_t)word, number, 0);
}

cuda_result weft_cuda_exchange_begin(weft_cuda_exchange *e, const weft_cuda_gpu *gpu,
                                     cuda_stream stream)
{
    return e ? write_word(&e->word[BEGUN], ++e->number, gpu, stream) : CUDA_OK;
}

cuda_result weft_cuda_exchange_end(weft_cuda_exchange *e, const weft_cuda_gpu *gpu,
                                   cuda_stream stream)
{
    return e ? write_word(&e->word[ENDED], e->number, gpu, stream) : CUDA_OK;
}

bool weft_cuda_exchange_waits(void)
{
    bool waits = false;
    pthread_mutex_lock(&open_exchanges.mutex);
    for (const weft_cuda_exchange *e = open_exchanges.first; e; e = e->next)
        waits = waits || __atomic_load_n(&e->word[BEGUN], __ATOMIC_ACQUIRE) !=
                             __atomic_load_n(&e->word[ENDED], __ATOMIC_ACQUIRE);
    pthread_mutex_unlock(&open_exchanges.mutex);
    return waits;
}
