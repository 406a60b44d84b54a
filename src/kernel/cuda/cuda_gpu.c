#include "kernel/cuda/cuda_gpu.h"

#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static weft_cuda_gpu process_gpu;
static bool is_open;
static atomic_bool is_abandoned;
static int chosen = -1; /* ordinal; -1: by local rank */
static pid_t owner;     /* forked children have no context */
static _Thread_local bool is_current;

int weft_cuda_local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "PMI_LOCAL_RANK", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text && text[0] >= '0' && text[0] <= '9')
            return (int)strtol(text, NULL, 10);
    }
    return 0;
}

void weft_cuda_gpu_choose(int ordinal)
{
    pthread_mutex_lock(&mutex);
    chosen = ordinal;
    pthread_mutex_unlock(&mutex);
}

weft_status_code weft_cuda_gpu_error(const weft_cuda_gpu *gpu, cuda_result result, const char *what)
{
    char text[320];
    snprintf(text, sizeof text, "%s on GPU %d (%s)", what, gpu->ordinal, gpu->name);
    return weft_cuda_error(gpu->driver, result, text);
}

static weft_status check(const weft_cuda_gpu *g, cuda_result result, const char *what)
{
    return result == CUDA_OK ? WEFT_OK : weft_cuda_error(g->driver, result, what);
}

static weft_status choose(weft_cuda_gpu *g)
{
    const int rank = weft_cuda_local_rank();
    WEFT_TRY(check(g, g->driver->device_count(&g->count), "the list of GPUs"));
    if (g->count < 1)
        return weft_error(WEFT_MSG_GPU_DRIVER, WEFT_AT(.key = "CUDA_VISIBLE_DEVICES"),
                          "the NVIDIA driver has no GPU for this process. Check nvidia-smi and "
                          "CUDA_VISIBLE_DEVICES, or use backend cpu.");
    g->ordinal = chosen >= 0 && chosen < g->count ? chosen : rank % g->count;
    if (rank >= g->count)
        weft_warning(WEFT_MSG_GPU_DRIVER, WEFT_AT(WEFT_NUMBER(g->count)),
                     "local rank %d shares GPU %d: this machine has more ranks than GPUs (%d)",
                     rank, g->ordinal, g->count);
    return check(g, g->driver->device_get(&g->gpu, g->ordinal), "the choice of a GPU");
}

static weft_status describe(weft_cuda_gpu *g)
{
    const struct {
        int attribute, *to;
    } values[] = {{CUDA_DEVICE_MAJOR, &g->major},
                  {CUDA_DEVICE_MINOR, &g->minor},
                  {CUDA_DEVICE_PROCESSORS, &g->processors},
                  {CUDA_DEVICE_SHARED_OPTIN, &g->shared}};
    int pitch;
    size_t memory;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        WEFT_TRY(check(g, g->driver->device_attribute(values[i].to, values[i].attribute, g->gpu),
                       "an attribute of the GPU"));
    WEFT_TRY(check(g, g->driver->device_attribute(&pitch, CUDA_DEVICE_MAX_PITCH, g->gpu),
                   "an attribute of the GPU"));
    WEFT_TRY(check(g, g->driver->device_memory(&memory, g->gpu), "the memory of the GPU"));
    WEFT_TRY(check(g, g->driver->device_name(g->name, sizeof g->name, g->gpu), "a GPU's name"));
    WEFT_TRY(check(g, g->driver->driver_version(&g->version), "the driver's version"));
    g->pitch = pitch;
    g->memory = (int64_t)memory;
    return WEFT_OK;
}

void weft_cuda_gpu_abandon(void)
{
    is_abandoned = true;
}

/* Runs before the handlers of the driver, which were registered before. */
static void release(void)
{
    if (!is_abandoned && getpid() == owner)
        process_gpu.driver->context_release(process_gpu.gpu);
}

/* sm_80 is the oldest architecture that the kernels are compiled for. */
static weft_status open_gpu(weft_cuda_gpu *g)
{
    WEFT_TRY(weft_cuda_driver_load(&g->driver));
    WEFT_TRY(choose(g));
    WEFT_TRY(describe(g));
    if (g->major < 8)
        return weft_error(WEFT_MSG_GPU_DRIVER, WEFT_AT(.value = g->name),
                          "GPU %d (%s) has compute capability %d.%d, and the kernels need 8.0. Use "
                          "another GPU or backend cpu.",
                          g->ordinal, g->name, g->major, g->minor);
    WEFT_TRY(check(g, g->driver->context_retain(&g->context, g->gpu), "the start of the GPU"));
    owner = getpid();
    atexit(release); /* if that fails, the end of the process releases the context */
    return WEFT_OK;
}

weft_status weft_cuda_gpu_get(const weft_cuda_gpu **out)
{
    weft_status_code status = WEFT_OK;
    *out = &process_gpu;
    if (is_current)
        return WEFT_OK;
    pthread_mutex_lock(&mutex);
    if (!is_open)
        status = open_gpu(&process_gpu);
    is_open = status == WEFT_OK;
    pthread_mutex_unlock(&mutex);
    if (status == WEFT_OK)
        status = check(&process_gpu, process_gpu.driver->context_set(process_gpu.context),
                       "the context of a thread");
    is_current = status == WEFT_OK;
    return status;
}
