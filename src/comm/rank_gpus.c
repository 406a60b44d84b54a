#include "comm/rank_gpus.h"

#include "base/log.h"
#include "base/memory.h"
#include "comm/comm_internal.h"
#include "comm/comm_world.h"
#include "comm/rank_map.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/gpu_places.h"
#include "kernel/host.h"

#include <stdlib.h>
#include <string.h>

typedef struct rank_place {
    uint64_t list;  /* id of the rank's GPUs */
    int32_t count;  /* of GPUs; 0: no driver */
    int32_t local;  /* rank on its machine */
    int32_t numa;   /* node to which the launcher bound the rank; -1: none */
    int32_t number; /* of the rank */
} rank_place;

static int before(const void *a, const void *b)
{
    const rank_place *x = a, *y = b;
    if (x->local != y->local)
        return x->local < y->local ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Moves the ranks of this rank's machine to the front, in the order of local ranks. Returns their
 * number. */
static int gather_machine(const weft_comm *comm, rank_place *all)
{
    int count = 0;
    for (int r = 0; r < comm->ranks; r++)
        if (comm->node[r] == comm->node[comm->rank])
            all[count++] = all[r];
    qsort(all, (size_t)count, sizeof *all, before);
    return count;
}

/* Ranks without the launcher's binding compute near their GPU, with a thread per core there. */
static void bind_near(int gpu, int32_t numa)
{
    const char *mode = getenv("WEFT_CUDA_BIND");
    if (numa >= 0 || (mode && !strcmp(mode, "off")))
        return;
    const int cores = weft_gpu_bind_near(gpu);
    if (cores > 0 && !getenv("OMP_NUM_THREADS") && weft_host_threads() > cores)
        weft_host_set_threads(cores);
    if (cores > 0)
        weft_debug("bound to %d cores near GPU %d", cores, gpu);
}

/* Chooses a GPU if all ranks of the machine have the same list. */
static weft_status choose(const weft_comm *comm, const weft_gpu_list *list, rank_place *all)
{
    const int ranks = gather_machine(comm, all);
    int own = 0, *gpu;
    int32_t *numa;
    weft_status_code status = WEFT_OK;
    for (int r = 0; r < ranks; r++) {
        if (all[r].list != list->id || all[r].count != list->count || !list->count)
            return WEFT_OK;
        own = all[r].number == comm->rank ? r : own;
    }
    WEFT_TRY(WEFT_NEW(gpu, ranks, "GPUs of %d ranks", ranks));
    WEFT_GO(WEFT_NEW(numa, ranks, "GPUs of %d ranks", ranks));
    for (int r = 0; r < ranks; r++)
        numa[r] = all[r].numa;
    weft_gpu_assign(numa, ranks, list, gpu);
    weft_cuda_gpu_choose(gpu[own]);
    if (ranks > 1)
        bind_near(gpu[own], numa[own]);
    weft_free(numa);
out:
    weft_free(gpu);
    return status;
}

weft_status weft_rank_gpus_choose(const char *backend, weft_comm *comm)
{
    static bool chosen;
    weft_gpu_list list = {0};
    if (chosen || !comm || comm->ranks == 1 || (strcmp(backend, "cuda") && strcmp(backend, "auto")))
        return WEFT_OK;
    chosen = true;
    if (weft_gpu_list_read(&list) != WEFT_OK)
        weft_error_clear(); /* reported when the backend is used */
    const rank_place own = {.list = list.id,
                            .count = list.count,
                            .local = weft_cuda_local_rank(),
                            .numa = weft_rank_location_here().numa,
                            .number = comm->rank};
    rank_place *all;
    WEFT_TRY(WEFT_NEW(all, comm->ranks, "GPUs of %d ranks", comm->ranks));
    weft_status_code status = weft_comm_all_gather(comm, &own, sizeof own, all);
    if (status == WEFT_OK)
        status = choose(comm, &list, all);
    weft_free(all);
    return status;
}
