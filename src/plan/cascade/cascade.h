/* Cascades: (sample, module) units with a degree to choose, on equal devices (Arachne §IV-B, Eq.
 * 1-7).
 *
 * A problem is numbers only: per cascade its predecessors and, per degree, seconds and bytes per
 * device. A schedule chooses a degree and a start for each. Devices are interchangeable here and a
 * cascade's devices need not be neighbours, so "never more than N devices at once" (Eq. 7) is
 * enough for an assignment of devices to exist; weft_cascade_devices makes a plain one and
 * plan/cascade/assign.h one that knows the topology. */
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
    weft_cascade_option *option; /* by rising degree */
    int32_t option_count;
} weft_cascade;

typedef struct weft_cascade_list {
    weft_cascade *item; /* everything in the caller's arena */
    int64_t count;
} weft_cascade_list;

/* The checked, flat form that the searches read. Options that do not fit (degree over the devices,
 * bytes over the memory) and options that another one beats in both degree and seconds are gone;
 * cascades are numbered as in the list. */
typedef struct weft_cascade_problem {
    int64_t count, devices;
    double memory; /* bytes per device; 0: no limit */
    /* 0: one pool. Else devices come in nodes of so many (devices is a multiple), and the list
     * scheduler starts a cascade only where one node has room for it, or, when it is wider than a
     * node, where the fewest nodes take equal parts. Set after weft_cascade_problem_create. */
    int64_t per_node;
    bool by_producers;            /* of nodes that are as full: the one of most producers' ranks */
    int32_t *first_option;        /* [count + 1] */
    int32_t *degree;              /* per option */
    double *seconds;              /* per option */
    int32_t *source;              /* per option: index in the list's option array */
    int32_t *first_after, *after; /* CSR of predecessors */
    int32_t *first_before, *before; /* CSR of successors */
    int32_t *order;                 /* a topological order */
    bool instant;                   /* some option takes no time */
    weft_arena *arena;              /* owned */
} weft_cascade_problem;

/* memory <= 0: no limit. WEFT_E_ARG: empty list, no devices, degrees or costs out of range, a cycle
 * of `after` (named); WEFT_E_INFEASIBLE: what does not fit and by how much. */
weft_status weft_cascade_problem_create(const weft_cascade_list *list, int64_t devices,
                                        double memory, weft_cascade_problem *problem);
void weft_cascade_problem_free(weft_cascade_problem *problem);

/* Arrays of [count]; owned by the caller's arena or heap. */
typedef struct weft_cascade_schedule {
    int32_t *option; /* index into the problem's options, absolute */
    double *start, *end;
    /* Of those that start at one moment: which takes its devices first. A schedule for nodes is one
     * for just this order; what was made in no order has zeros, and goes by the list. */
    int32_t *turn;
    double makespan;
} weft_cascade_schedule;
weft_status weft_cascade_schedule_create(weft_arena *arena, int64_t count,
                                         weft_cascade_schedule *out);
void weft_cascade_schedule_copy(int64_t count, const weft_cascade_schedule *from,
                                weft_cascade_schedule *to);

/* Starts and ends in the order in which devices change hands: by time, and at one moment first what
 * ends, then the cascades that take no time (start and end, one after the other, predecessors
 * first), then what starts. So a cascade of zero seconds needs its devices free, and holds up
 * nobody. [2 count], to be freed with weft_free; NULL: out of memory. */
typedef struct weft_cascade_moment {
    double time;
    int32_t cascade;
    bool start;
    int32_t rank; /* within the moment */
} weft_cascade_moment;
weft_cascade_moment *weft_cascade_moments(const weft_cascade_problem *problem,
                                          const weft_cascade_schedule *schedule);

/* makespan / bound - 1; 0 where both are 0. */
double weft_cascade_gap(double makespan, double bound);

/* Checks precedence and Eq. 7 exactly. WEFT_E_INTERNAL names the cascades. */
weft_status weft_cascade_schedule_check(const weft_cascade_problem *problem,
                                        const weft_cascade_schedule *schedule);

/* Work memory of the list schedulers, one per thread. */
typedef struct weft_lister weft_lister;
weft_status weft_lister_create(const weft_cascade_problem *problem, weft_lister **out);
void weft_lister_free(weft_lister *lister);
/* Both take the options in schedule->option, and start cascades by critical path (the longest way
 * to the end, times bias[c]; NULL: 1). `plain`: at every moment start what fits, in that order.
 * `insert`: place one after the other, each as early as it fits, also in holes before others. A
 * schedule of the first kind never waits on purpose; the second can. */
double weft_list_plain(weft_lister *lister, const double *bias, weft_cascade_schedule *schedule);
double weft_list_insert(weft_lister *lister, const double *bias, weft_cascade_schedule *schedule);

/* No schedule is shorter (bound.c): critical path, area, energy of windows, and dual feasible
 * functions of the widths, each with only those degrees that can be part of a schedule so short. */
typedef struct weft_cascade_bound {
    double value;
    double critical_path,
        area; /* the two plain ones: fastest degrees; cheapest degrees / devices */
} weft_cascade_bound;
weft_status weft_cascade_lower_bound(const weft_cascade_problem *problem, double upper,
                                     weft_cascade_bound *out);

typedef struct weft_cascade_search {
    uint64_t seed;
    double seconds; /* > 0: search until then; 0: a fixed amount of work, so the same everywhere */
    double effort;  /* share of the fixed amount of work; 0: 1 */
    double enough;  /* a schedule that is longer than the bound by this share at most ends it */
    /* Asked now and then, by any thread; true ends the search with the best so far. NULL: none. */
    bool (*stop)(void *user);
    void *user;
    int threads;                     /* 0: all; the result does not depend on it */
    const weft_cascade_bound *bound; /* a known lower bound; NULL: compute it */
    bool no_exact;                   /* the heuristics only */
    bool no_genetic;                 /* local search only, for comparisons */
    int64_t exact_nodes;             /* 0: default */
} weft_cascade_search;

typedef struct weft_cascade_result {
    weft_cascade_schedule schedule;
    weft_cascade_bound bound; /* value = makespan when proved */
    bool proved;
    bool cut; /* time or `stop` ended the search: another machine may find another plan */
    int64_t evaluations, exact_nodes;
    double genetic, local; /* best makespan after each phase */
} weft_cascade_result;
weft_status weft_cascade_solve(const weft_cascade_problem *problem,
                               const weft_cascade_search *search, weft_arena *arena,
                               weft_cascade_result *out);

/* When branch and bound ends without a proof. */
typedef struct weft_cascade_limits {
    int64_t nodes;
    double deadline; /* of weft_now; 0: none */
    double floor;    /* a schedule this short is short enough */
    bool (*stop)(void *user);
    void *user;
} weft_cascade_limits;
/* Branch and bound (exact.c). `best` holds a schedule and receives a better one; *proved says
 * that nothing is shorter. */
weft_status weft_cascade_exact(const weft_cascade_problem *problem,
                               const weft_cascade_limits *limits, weft_cascade_schedule *best,
                               bool *proved, int64_t *visited);

/* Plain devices: each cascade takes free ones, those of its predecessors first, then the lowest.
 * first[c] .. first[c + 1] are c's in `devices` (arena). */
weft_status weft_cascade_devices(const weft_cascade_problem *problem,
                                 const weft_cascade_schedule *schedule, weft_arena *arena,
                                 int32_t **first, int32_t **devices);

#endif
