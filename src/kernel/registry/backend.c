/* The list of backends: built-in backends and backends of plugins. */
#include "kernel/registry/backend.h"

#include "base/launcher.h"
#include "base/log.h"
#include "kernel/cpu/table.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/gpu_places.h"
#include "kernel/far/far.h"
#include "kernel/kernel.h"
#include "kernel/ref/table.h"
#include "kernel/virtual/virtual.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BACKENDS = 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* protects the variables below */
static const weft_backend *list[MAX_BACKENDS] = {&weft_backend_cpu, &weft_backend_ref,
                                                 &weft_backend_virtual, &weft_backend_far,
                                                 &weft_backend_cuda};
static int count = 5;
static char names[(MAX_BACKENDS + 1) * 24];
static const weft_backend *chosen; /* by the name `auto`; NULL: not yet */

static const weft_backend *find(const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    return NULL;
}

bool weft_backend_is_auto(const char *name)
{
    return strcmp(name, "auto") == 0;
}

/* Ranks share out the GPUs before a context is opened (comm/rank_gpus.h), and then check the GPU
 * themselves (doctor/backend_choice.h). */
static weft_status check_cuda(void)
{
    weft_gpu_list gpus;
    if (weft_launcher_rank() < 0 || !weft_cuda_images[0].name)
        return weft_backend_check(&weft_backend_cuda);
    WEFT_TRY(weft_gpu_list_read(&gpus));
    return gpus.count ? WEFT_OK
                      : weft_error(WEFT_MSG_GPU_DRIVER, WEFT_AT(.key = "CUDA_VISIBLE_DEVICES"),
                                   "the NVIDIA driver has no GPU for this process");
}

/* Requires the lock. */
static const weft_backend *choose(void)
{
    if (!chosen && check_cuda() == WEFT_OK)
        chosen = &weft_backend_cuda;
    if (!chosen) {
        weft_debug("backend auto: cpu, because %s", weft_error_message());
        weft_error_clear();
        chosen = &weft_backend_cpu;
    }
    return chosen;
}

void weft_backend_auto_cpu(void)
{
    pthread_mutex_lock(&mutex);
    chosen = &weft_backend_cpu;
    pthread_mutex_unlock(&mutex);
}

const weft_backend *weft_backend_find(const char *name)
{
    pthread_mutex_lock(&mutex);
    if (weft_backend_is_auto(name)) {
        const weft_backend *backend = choose();
        pthread_mutex_unlock(&mutex);
        return backend;
    }
    const weft_backend *found = find(name);
    pthread_mutex_unlock(&mutex);
    return found;
}

const weft_backend *weft_backend_at(int index)
{
    pthread_mutex_lock(&mutex);
    const weft_backend *found = index >= 0 && index < count ? list[index] : NULL;
    pthread_mutex_unlock(&mutex);
    return found;
}

const char *weft_backend_names(void)
{
    pthread_mutex_lock(&mutex);
    strcpy(names, "auto");
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, ", %.20s", list[i]->name);
    }
    pthread_mutex_unlock(&mutex);
    return names;
}

weft_status weft_backend_check(const weft_backend *backend)
{
    return backend->check ? backend->check() : WEFT_OK;
}

weft_status weft_backend_add(const weft_backend *backend)
{
    weft_status_code status = WEFT_OK;
    for (int op = 0; op < WEFT_OP_COUNT; op++)
        if (weft_backend_cpu.kernel[op] && !backend->kernel[op])
            return weft_error(WEFT_MSG_KERNEL_MISSING,
                              WEFT_AT(.value = weft_op_get((weft_op)op)->name),
                              "backend \"%s\" has no kernel for %s", backend->name,
                              weft_op_get((weft_op)op)->name);
    pthread_mutex_lock(&mutex);
    if (find(backend->name) || weft_backend_is_auto(backend->name))
        status = weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.value = backend->name),
                            "a backend \"%s\" exists already", backend->name);
    else if (count == MAX_BACKENDS)
        status =
            weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.value = backend->name),
                       "backend \"%s\" exceeds the limit of %d backends", backend->name, count);
    else
        list[count++] = backend;
    pthread_mutex_unlock(&mutex);
    return status;
}
