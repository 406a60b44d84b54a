#include "runtime/seat.h"

#include "base/memory.h"

#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static weft_seat of_set(hwloc_topology_t topology, hwloc_const_cpuset_t set)
{
    weft_seat seat = {.numa = -1, .core = -1};
    hwloc_nodeset_t nodes = hwloc_bitmap_alloc();
    const hwloc_obj_t core =
        hwloc_get_next_obj_covering_cpuset_by_type(topology, set, HWLOC_OBJ_CORE, NULL);
    seat.cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, set, HWLOC_OBJ_CORE);
    if (seat.cores == 0) /* some of a core's hardware threads */
        seat.cores = 1;
    if (core)
        seat.core = (int32_t)core->logical_index;
    if (nodes) {
        hwloc_cpuset_to_nodeset(topology, set, nodes);
        if (hwloc_bitmap_weight(nodes) == 1)
            seat.numa = hwloc_bitmap_first(nodes);
    }
    hwloc_bitmap_free(nodes);
    return seat;
}

weft_seat weft_seat_here(void)
{
    const int online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    weft_seat seat = {.numa = -1, .core = -1, .cores = online};
    hwloc_topology_t topology;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) >= online)
        return seat;
    if (hwloc_topology_init(&topology) != 0)
        return seat;
    hwloc_cpuset_t set = hwloc_bitmap_alloc();
    if (set && hwloc_topology_load(topology) == 0 &&
        hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_PROCESS) == 0)
        seat = of_set(topology, set);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
    return seat;
}

/* ---- order --------------------------------------------------------------------------------- */

typedef struct place_taken {
    int first; /* process of the same machine */
    weft_seat seat;
    int number;
} place_taken;

static int before(const void *a, const void *b)
{
    const place_taken *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->seat.numa != y->seat.numa)
        return x->seat.numa < y->seat.numa ? -1 : 1;
    if (x->seat.core != y->seat.core)
        return x->seat.core < y->seat.core ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static void find_first(place_taken *p, int count)
{
    for (int i = 0; i < count; i++) {
        p[i].first = i;
        for (int k = i - 1; k >= 0; k--)
            if (p[k].seat.machine == p[i].seat.machine) {
                p[i].first = p[k].first;
                break;
            }
    }
}

weft_status weft_seats_order(const weft_seat *seat, int count, int *order)
{
    place_taken *p = weft_alloc((count + 1) * (int64_t)sizeof *p);
    if (!p)
        return weft_fail(WEFT_E_MEMORY, "no memory to put %d ranks in order", count);
    for (int i = 0; i < count; i++)
        p[i] = (place_taken){.seat = seat[i], .number = i};
    find_first(p, count);
    qsort(p, (size_t)count, sizeof *p, before);
    for (int i = 0; i < count; i++)
        order[i] = p[i].number;
    weft_free(p);
    return WEFT_OK;
}
