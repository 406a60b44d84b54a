#include "comm/rank_map.h"

#include "base/memory.h"

#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static weft_rank_location of_set(hwloc_topology_t topology, hwloc_const_cpuset_t set)
{
    weft_rank_location location = {.numa = -1, .core = -1};
    hwloc_nodeset_t nodes = hwloc_bitmap_alloc();
    const hwloc_obj_t core =
        hwloc_get_next_obj_covering_cpuset_by_type(topology, set, HWLOC_OBJ_CORE, NULL);
    location.cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, set, HWLOC_OBJ_CORE);
    if (location.cores == 0) /* some hardware threads of a core */
        location.cores = 1;
    if (core)
        location.core = (int32_t)core->logical_index;
    if (nodes) {
        hwloc_cpuset_to_nodeset(topology, set, nodes);
        if (hwloc_bitmap_weight(nodes) == 1)
            location.numa = hwloc_bitmap_first(nodes);
    }
    hwloc_bitmap_free(nodes);
    return location;
}

weft_rank_location weft_rank_location_here(void)
{
    const int online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    weft_rank_location location = {.numa = -1, .core = -1, .cores = online};
    hwloc_topology_t topology;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) >= online)
        return location;
    if (hwloc_topology_init(&topology) != 0)
        return location;
    hwloc_cpuset_t set = hwloc_bitmap_alloc();
    if (set && hwloc_topology_load(topology) == 0 &&
        hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_PROCESS) == 0)
        location = of_set(topology, set);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
    return location;
}

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct located_rank {
    int first; /* first process of the same machine */
    weft_rank_location location;
    int number;
} located_rank;

static int before(const void *a, const void *b)
{
    const located_rank *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->location.numa != y->location.numa)
        return x->location.numa < y->location.numa ? -1 : 1;
    if (x->location.core != y->location.core)
        return x->location.core < y->location.core ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static void find_first(located_rank *p, int count)
{
    for (int i = 0; i < count; i++) {
        p[i].first = i;
        for (int k = i - 1; k >= 0; k--)
            if (p[k].location.machine == p[i].location.machine) {
                p[i].first = p[k].first;
                break;
            }
    }
}

weft_status weft_rank_order(const weft_rank_location *location, int count, int *order)
{
    located_rank *p;
    WEFT_TRY(WEFT_NEW(p, count + 1, "putting %d ranks in order", count));
    for (int i = 0; i < count; i++)
        p[i] = (located_rank){.location = location[i], .number = i};
    find_first(p, count);
    qsort(p, (size_t)count, sizeof *p, before);
    for (int i = 0; i < count; i++)
        order[i] = p[i].number;
    weft_free(p);
    return WEFT_OK;
}
