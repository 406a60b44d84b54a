#include "kernel/cuda/gpu_places.h"

#include "base/hash.h"
#include "kernel/cuda/cuda_driver.h"

#include <hwloc.h>
#include <string.h>

/* ---- the machine ----------------------------------------------------------------------------- */

/* NULL: unknown. */
static hwloc_topology_t open_machine(void)
{
    hwloc_topology_t machine;
    if (hwloc_topology_init(&machine) != 0)
        return NULL;
    if (hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_load(machine) == 0)
        return machine;
    hwloc_topology_destroy(machine);
    return NULL;
}

/* The part of the machine with the GPU's bus. NULL: unknown. */
static hwloc_obj_t place_of(hwloc_topology_t machine, const weft_cuda_driver *driver, cuda_gpu gpu)
{
    char bus[32];
    if (!machine || driver->device_bus(bus, sizeof bus, gpu) != CUDA_OK)
        return NULL;
    const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(machine, bus);
    return device ? hwloc_get_non_io_ancestor_obj(machine, device) : NULL;
}

static int32_t numa_of(hwloc_obj_t place)
{
    return place && hwloc_bitmap_weight(place->nodeset) == 1 ? hwloc_bitmap_first(place->nodeset)
                                                             : -1;
}

weft_status weft_gpu_list_read(weft_gpu_list *list)
{
    const weft_cuda_driver *driver;
    char uuid[WEFT_GPU_PLACES][16] = {0};
    int count = 0;
    *list = (weft_gpu_list){0};
    WEFT_TRY(weft_cuda_driver_load(&driver));
    if (driver->device_count(&count) != CUDA_OK)
        return WEFT_OK;
    hwloc_topology_t machine = count > 1 ? open_machine() : NULL;
    list->count = count < WEFT_GPU_PLACES ? count : WEFT_GPU_PLACES;
    for (int i = 0; i < list->count; i++) {
        cuda_gpu gpu;
        list->numa[i] = -1;
        if (driver->device_get(&gpu, i) != CUDA_OK)
            continue;
        driver->device_uuid(uuid[i], gpu);
        list->numa[i] = numa_of(place_of(machine, driver, gpu));
    }
    list->id = XXH3_64bits(uuid, (size_t)list->count * sizeof *uuid);
    if (machine)
        hwloc_topology_destroy(machine);
    return WEFT_OK;
}

/* Binds the process to the part of its processors that is in `near`. Returns their number; 0: none
 * is, or all are. */
static int bind_within(hwloc_topology_t machine, hwloc_const_bitmap_t near)
{
    int count = 0;
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    if (own && hwloc_get_cpubind(machine, own, HWLOC_CPUBIND_PROCESS) == 0 &&
        !hwloc_bitmap_isincluded(own, near)) {
        hwloc_bitmap_and(own, own, near);
        if (!hwloc_bitmap_iszero(own) &&
            hwloc_set_cpubind(machine, own, HWLOC_CPUBIND_PROCESS) == 0)
            count = hwloc_bitmap_weight(own);
    }
    hwloc_bitmap_free(own);
    return count;
}

int weft_gpu_bind_near(int ordinal)
{
    const weft_cuda_driver *driver;
    cuda_gpu gpu;
    int cores = 0;
    if (weft_cuda_driver_load(&driver) != WEFT_OK || driver->device_get(&gpu, ordinal) != CUDA_OK)
        return 0;
    hwloc_topology_t machine = open_machine();
    const hwloc_obj_t place = place_of(machine, driver, gpu);
    if (numa_of(place) >= 0)
        cores = bind_within(machine, place->cpuset);
    if (machine)
        hwloc_topology_destroy(machine);
    return cores;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* The GPU with the fewest ranks, of node `numa` (-1: any). -1: the node has none. */
static int least_used(const weft_gpu_list *list, const int used[WEFT_GPU_PLACES], int32_t numa)
{
    int best = -1;
    for (int i = 0; i < list->count; i++)
        if ((numa < 0 || list->numa[i] == numa) && (best < 0 || used[i] < used[best]))
            best = i;
    return best;
}

/* A GPU with the fewest ranks: if possible one of node `numa`. -1 if `must` and it has none. */
static int pick(const weft_gpu_list *list, const int used[WEFT_GPU_PLACES], int32_t numa, bool must)
{
    const int near = numa < 0 ? -1 : least_used(list, used, numa);
    const int any = least_used(list, used, -1);
    return near >= 0 && used[near] == used[any] ? near : must ? -1 : any;
}

void weft_gpu_assign(const int32_t *rank_numa, int ranks, const weft_gpu_list *list, int *gpu)
{
    int used[WEFT_GPU_PLACES] = {0};
    for (int r = 0; r < ranks; r++) {
        gpu[r] = pick(list, used, rank_numa[r], true);
        if (gpu[r] >= 0)
            used[gpu[r]]++;
    }
    for (int r = 0; r < ranks; r++)
        if (gpu[r] < 0) {
            gpu[r] = pick(list, used, rank_numa[r], false);
            used[gpu[r]]++;
        }
}
