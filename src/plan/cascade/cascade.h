/* Cascades: (sample, module) units whose degree is to be chosen, on equal devices (Arachne §IV-B,
 * Eq. 1-7).
 *
 * A problem has no models: each cascade has predecessors and, per degree, seconds and bytes per
 * device. A schedule chooses a degree and a start for each cascade. Devices are interchangeable,
 * and the devices of a cascade need not be neighbours. "Never more than N devices at once" (Eq. 7)
 * is therefore enough for an assignment of devices to exist. weft_cascade_devices makes a plain
 * assignment, plan/cascade/assign.h one for a topology. */
#ifndef WEFT_PLAN_CASCADE_H
#define WEFT_PLAN_CASCADE_H

#include "base/memory.h"

typedef struct weft_cascade_option {
    int64_t degree;
    double seconds, bytes; /* bytes: peak per device */
} weft_cascade_option;

typedef struct weft_cascade {
    const char *id;
    int32_t *after; /* predecessors */
    int32_t after_count;
    weft_cascade_option *option; /* options by rising degree */
    int32_t option_count;
} weft_cascade;

typedef struct weft_cascade_list {
    weft_cascade *item; /* all memory is in the caller's arena */
    int64_t count;
} weft_cascade_list;

/* Copies the list with the options of up to `most` devices, which are the first ones of the list. A
 * cascade that needs more devices for its bytes keeps all options. memory <= 0: no limit. */
weft_status weft_cascade_list_within(const weft_cascade_list *list, int64_t most, double memory,
                                     weft_arena *arena, weft_cascade_list *out);

/* Checked, flat form of a list for the searches. Excludes options that do not fit (degree above the
 * devices, bytes above the memory) and options that another option beats in both degree and
 * seconds. Cascades are numbered as in the list. */
typedef struct weft_cascade_problem {
    int64_t count, devices;
    double memory; /* bytes per device; 0: no limit */
    /* Devices per node, which divides `devices`; 0: one pool. The list scheduler starts a cascade
     * only if one node has enough free devices. A cascade wider than a node uses equal parts of the
     * fewest nodes. Set after weft_cascade_problem_create. */
    int64_t per_node;
    /* ties between equally full nodes go to the node with most producer devices */
    bool by_producers;
    int32_t *first_option;          /* [count + 1] */
    int32_t *degree;                /* per option */
    double *seconds;                /* per option */
    int32_t *source;                /* per option: index in the list's options */
    int32_t *first_after, *after;   /* CSR of predecessors */
    int32_t *first_before, *before; /* CSR of successors */
    int32_t *order;                 /* a topological order */
    bool instant;                   /* an option has zero seconds */
    weft_arena *arena;              /* owned */
} weft_cascade_problem;

/* Creates a problem from a list. memory <= 0: no limit. WEFT_E_ARG: empty list, no devices, degrees
 * or costs out of range, or a cycle of `after` (named). WEFT_E_INFEASIBLE: a cascade fits on no
 * degree; the message has its bytes and the limit. */
weft_status weft_cascade_problem_create(const weft_cascade_list *list, int64_t devices,
                                        double memory, weft_cascade_problem *problem);
void weft_cascade_problem_free(weft_cascade_problem *problem);

/* Arrays have `count` entries, in the caller's arena or heap. */
typedef struct weft_cascade_schedule {
    int32_t *option; /* index into the problem's options, absolute */
    double *start, *end;
    /* Order in which cascades with equal starts take their devices. A schedule for nodes is valid
     * for this order only. Zeros: the order of the list. */
    int32_t *start_order;
    double makespan;
} weft_cascade_schedule;
weft_status weft_cascade_schedule_create(weft_arena *arena, int64_t count,
                                         weft_cascade_schedule *out);
void weft_cascade_schedule_copy(int64_t count, const weft_cascade_schedule *from,
                                weft_cascade_schedule *to);

/* Returns the starts and ends in the order in which devices change hands, [2 count], freed with
 * weft_free; NULL: out of memory. The order is by time. At one moment ends come first, then
 * cascades of zero seconds (start and end, predecessors first), then starts. A cascade of zero
 * seconds needs its devices free and delays no other cascade. */
typedef struct weft_cascade_moment {
    double time;
    int32_t cascade;
    bool start;
    int32_t rank; /* position within the moment */
} weft_cascade_moment;
weft_cascade_moment *weft_cascade_moments(const weft_cascade_problem *problem,
                                          const weft_cascade_schedule *schedule);

/* Returns makespan / bound - 1; 0 if the makespan is not above the bound. */
double weft_cascade_gap(double makespan, double bound);

/* Checks precedence and Eq. 7 exactly. Returns WEFT_E_INTERNAL with the indices of the cascades. */
weft_status weft_cascade_schedule_check(const weft_cascade_problem *problem,
                                        const weft_cascade_schedule *schedule);

/* Scratch memory of the list schedulers, one per thread. */
typedef struct weft_list_scheduler weft_list_scheduler;

/* Lower bound on the makespan of every schedule (bound.c). Sources: critical path, area, energy of
 * windows, and dual feasible functions of the widths. Each uses only degrees that a schedule of
 * that makespan can have. */
typedef struct weft_cascade_bound {
    double value;
    double critical_path, area; /* plain bounds: fastest degrees; least area / devices */
} weft_cascade_bound;

typedef struct weft_cascade_search {
    uint64_t seed;
    double seconds; /* duration of the search; 0: a fixed amount of work, equal on all machines */
    double effort;  /* share of the fixed amount of work; 0 (default): 1 */
    double enough;  /* gap to the bound, as a share, that ends the search */
    /* Polled by any thread; true ends the search with the best schedule so far. NULL: none. */
    bool (*stop)(void *user);
    void *user;
    int threads;                     /* 0 (default): all; affects the result only with `seconds` */
    const weft_cascade_bound *bound; /* a known lower bound; NULL: compute it */
    bool no_exact;                   /* skip branch and bound */
    bool no_genetic;                 /* skip the genetic search, for comparisons */
    int64_t exact_nodes;             /* limit of branch and bound; 0: the default */
} weft_cascade_search;

typedef struct weft_cascade_result {
    weft_cascade_schedule schedule;
    weft_cascade_bound bound; /* value: the makespan if proved */
    bool proved;
    bool cut; /* time or `stop` ended the search; other machines can give another plan */
    int64_t evaluations, exact_nodes;
    double genetic, local; /* best makespan after each search */
} weft_cascade_result;

/* A list with its problem, a plan, and the devices of the plan. The devices of cascade c are
 * devices[first[c]] to devices[first[c + 1] - 1]. The owner calls weft_cascade_problem_free. */
typedef struct weft_cascade_solution {
    weft_cascade_list list;
    weft_cascade_problem problem;
    weft_cascade_result result;
    int32_t *first, *devices;
} weft_cascade_solution;

/* Limits at which branch and bound ends without a proof. */
typedef struct weft_cascade_limits {
    int64_t nodes;
    double deadline; /* time of weft_now; 0: none */
    double floor;    /* makespan that is short enough */
    bool (*stop)(void *user);
    void *user;
} weft_cascade_limits;

/* Assigns free devices without a topology: each cascade takes devices of its predecessors first,
 * then the lowest. The devices of cascade c are devices[first[c]] to devices[first[c + 1] - 1]
 * (arena). */
weft_status weft_cascade_devices(const weft_cascade_problem *problem,
                                 const weft_cascade_schedule *schedule, weft_arena *arena,
                                 int32_t **first, int32_t **devices);

#endif
