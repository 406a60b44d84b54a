/* Inside weft profile: programs whose nodes are timed, and the rates that come of it.
 *
 *     profile.c               small models, or the stages of a training run, all of them in rounds
 *     profile_generation.c    the programs of a video, one after the other
 *          |  weft_timed, run several times
 *     profile_work.c          the seconds of its nodes by op and shapes, averaged over programs */
#ifndef WEFT_CLI_PROFILE_WORK_H
#define WEFT_CLI_PROFILE_WORK_H

#include "base/json.h"
#include "cli/verb.h"
#include "plan/cluster/cluster.h"
#include "plan/cost/rates.h"
#include "train/step.h"

enum { WEFT_PROFILE_ROUNDS = 64 };

/* A bound program: by nodes, where it was compiled with `profile`, or the seconds of its runs. */
typedef struct weft_timed {
    const weft_graph *graph; /* of this rank; borrowed, as program */
    weft_program *program;   /* NULL: another rank runs it */
    weft_step own;           /* both, where they are its own */
    weft_store *store;       /* of those; NULL: they are another's */
    bool by_nodes;
    double *node; /* [nodes][WEFT_PROFILE_ROUNDS] seconds */
    double *before;
    double run[WEFT_PROFILE_ROUNDS]; /* seconds of a whole run */
    int rounds;
    char name[96];
} weft_timed;

/* A node that was timed. */
typedef struct weft_profiled {
    char key[WEFT_RATE_KEY];
    double flops, bytes, seconds;
} weft_profiled;

typedef struct weft_profiling {
    weft_comm *comm; /* all ranks take part in everything; what rank 0 measured is kept */
    json_t *known;   /* keys of nodes that some program has */
    weft_arena *arena;
    weft_rates rates;             /* weft_profiling_close makes them */
    double best[WEFT_WORK_COUNT]; /* FLOP/s of the fastest node of each kind */
    const weft_device_type *local;
    weft_cluster earlier;  /* of --against; rates NULL: there is none */
    weft_profiled *sample; /* heap */
    int64_t samples, room, program_room;
} weft_profiling;

/* Room for its seconds, and numbers in its inputs. `t` is zeroed but for what is its own. */
weft_status weft_timed_begin(weft_timed *t, const weft_graph *graph, weft_program *program,
                             bool by_nodes, const char *name);
void weft_timed_end(weft_timed *t);
/* Seconds of a run when little disturbs the machine. */
double weft_timed_run(const weft_timed *t);

/* Reads the earlier profile (NULL: none) and prints the head of the table. */
weft_status weft_profiling_open(weft_profiling *p, const char *against);
/* One round over all of them to warm up, then as many as rank 0 has time for, three at least. */
weft_status weft_profiling_run(weft_profiling *p, weft_timed *list, int count, double seconds);
/* The same of one that rank 0 runs while the others wait, which have no such program. */
weft_status weft_profiling_run_alone(weft_profiling *p, weft_timed *t, double seconds);
/* What the first rank timed of it, and a line on it. Collective. */
weft_status weft_profiling_take(weft_profiling *p, const weft_timed *t);
/* The rates, when all is taken. */
weft_status weft_profiling_close(weft_profiling *p);

/* Seconds of graphs, about, and of those the ones in nodes that no noted graph has. */
typedef struct weft_new_share {
    double all, fresh;
} weft_new_share;
void weft_profiling_share(const weft_profiling *p, const weft_graph *graph, weft_new_share *share);
weft_status weft_profiling_note(weft_profiling *p, const weft_graph *graph);

/* Of --model: the programs of its videos in every layout of so many ranks, or in that of
 * --parallel. Collective. */
weft_status weft_profile_generation(weft_profiling *p, const weft_args *args, double seconds);

#endif
