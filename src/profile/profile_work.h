/* Internals of weft profile: programs with timed nodes, and the rates computed from their times.
 *
 *     profile.c               small models, or the training stages of a run, all programs in rounds
 *     profile_generation.c    the programs of a generation, in sequence
 *          |  weft_timed, run several times
 *          |  profile_inputs.c
 *     profile_work.c          the seconds of its nodes by op and shapes, averaged over programs */
#ifndef WEFT_PROFILE_PROFILE_WORK_H
#define WEFT_PROFILE_PROFILE_WORK_H

#include "base/json.h"
#include "cli/options/verb.h"
#include "comm/comm.h"
#include "exec/program.h"
#include "plan/cluster/cluster.h"
#include "plan/ops/rates.h"
#include "profile/profile_inputs.h"
#include "train/step/train_step.h"

enum { WEFT_PROFILE_ROUNDS = 64 };

/* A bound program with measured times: per node if it was compiled with `profile`, else per run. */
typedef struct weft_timed {
    const weft_graph *graph; /* this rank's graph; graph and program are borrowed */
    weft_program *program;   /* NULL: another rank runs the program */
    weft_step own;           /* graph and program if owned */
    weft_store *store;       /* store of `own`; NULL: not owned */
    bool by_nodes;
    double *node; /* [nodes][WEFT_PROFILE_ROUNDS] seconds */
    double *before;
    double run[WEFT_PROFILE_ROUNDS]; /* seconds of each run of the program */
    int rounds;
    char name[96];
} weft_timed;

/* Measurement of one node. */
typedef struct weft_profiled {
    char key[WEFT_RATE_KEY];
    double flops, bytes, seconds;
} weft_profiled;

typedef struct weft_profiling {
    weft_comm *comm; /* all ranks participate; rank 0's measurements are used */
    json_t *known;   /* keys of the nodes of all noted programs */
    weft_arena *arena;
    weft_rates rates; /* set by weft_profiling_close */
    /* FLOP/s of the fastest node of each kind, by type: F32 and BF16 */
    double best[2][WEFT_WORK_COUNT];
    const weft_device_type *local;
    weft_profile_prompts prompts;
    weft_cluster earlier;  /* profile of --compare; rates NULL: none */
    weft_profiled *sample; /* heap */
    int64_t samples, sample_capacity, program_capacity;
} weft_profiling;

/* Allocates the times of `t` and fills the program's inputs. `t` must be zeroed except `own` and
 * `store`. */
weft_status weft_timed_begin(weft_timed *t, const weft_graph *graph, weft_program *program,
                             bool by_nodes, const weft_profile_prompts *prompts, const char *name);
void weft_timed_end(weft_timed *t);
/* Seconds of a run, from the rounds with the least disturbance. */
double weft_timed_run(const weft_timed *t);

/* Reads the earlier profile (NULL: none) and prints the head of the table. */
weft_status weft_profiling_open(weft_profiling *p, const char *against);
/* Runs one warm-up round over all programs, then as many rounds as fit in `seconds` on rank 0, at
 * least three. */
weft_status weft_profiling_run(weft_profiling *p, weft_timed *list, int count, double seconds);
/* Runs one program on rank 0 alone; the other ranks have no such program and wait. */
weft_status weft_profiling_run_alone(weft_profiling *p, weft_timed *t, double seconds);
/* Adds rank 0's measurements of `t` and prints a line. Collective. */
weft_status weft_profiling_take(weft_profiling *p, const weft_timed *t);
/* Computes the rates from all measurements. */
weft_status weft_profiling_close(weft_profiling *p);

/* Estimated seconds of graphs, and the part in nodes that no noted graph has. */
typedef struct weft_new_share {
    double all, fresh;
} weft_new_share;
void weft_profiling_share(const weft_profiling *p, const weft_graph *graph, weft_new_share *share);
weft_status weft_profiling_record(weft_profiling *p, const weft_graph *graph);

#endif
