#include "simulated_ranks.h"

#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

simulated_state simulated;

/* Limit of the compiled programs of each of many ranks: all programs of a profile of 64 ranks need
 * more than 16 GiB. */
static const int64_t small_cache = (int64_t)96 << 20;

static simulated_setup s;
static simulated_rank member[SIMULATED_RANKS];
static pthread_barrier_t turn;
static const weft_placed_iteration *next; /* NULL: the end */
static double begin; /* start of the iteration on all clocks, which never decrease */

void simulated_draws(weft_rng *rng, int count, double *at)
{
    int part[SIMULATED_DRAWS];
    for (int k = 0; k < count; k++) {
        const int other = (int)weft_rng_below(rng, (uint64_t)k + 1);
        part[k] = part[other];
        part[other] = k;
    }
    for (int k = 0; k < count; k++)
        at[k] = (part[k] + weft_rng_f64(rng)) / count;
}

void check(weft_status_code status)
{
    if (status == WEFT_OK)
        return;
    fprintf(stderr, "%s\n", weft_error_message());
    exit(1);
}

/* Waiting ranks sleep, and exchanges have a thread of their own. The rest of a rank's thread is the
 * executor. */
static void iterate(simulated_rank *r)
{
    weft_iteration_done done = {.cascade = simulated.done[r->index]};
    const int64_t made = weft_cascade_run_counts(r->run).made;
    r->clock = begin;
    r->factor = 1;
    weft_cascade_run_predict(r->run, NULL, simulated.replan);
    check(weft_cascade_run_iteration(r->run, next, &done));
    if (r->index == 0)
        simulated.executed = weft_cascade_run_executed(r->run);
    simulated.of[r->index] = done;
    simulated.made[r->index] = weft_cascade_run_counts(r->run).made - made;
}

static void *run_rank(void *user)
{
    simulated_rank *r = user;
    const weft_optimizer_config adamw = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = s.clip_norm};
    r->factor = 1;
    r->rates = (weft_virtual_rates){.flops = s.flops,
                                    .bytes = s.bytes,
                                    .launch = 5e-6,
                                    .scale = 1,
                                    .clock = &r->clock,
                                    .factor = &r->factor};
    check(weft_backend_virtual_create(&r->rates, &r->backend));
    weft_store *store = weft_store_create_on(r->backend->device);
    const weft_exec_config place = {.comm = r->comm,
                                    .backend = r->backend,
                                    .mesh = {.axis_count = 1, .axis = {{"dp", s.ranks}}},
                                    .recipes = s.denoiser->family->recipe,
                                    .recipe_count = s.denoiser->family->recipes};
    weft_cascade_setup setup = {.comm = r->comm,
                                .store = store,
                                .exec = &place,
                                .optimizer = &adamw,
                                .context = WEFT_SP_ULYSSES,
                                .late_dispatch = true,
                                .cache_bytes = s.ranks > 16 ? small_cache : 0,
                                .buckets = s.buckets,
                                .clips = s.clips,
                                .calls = s.calls};
    setup.calls.user = r;
    weft_comm_set_deadline(r->comm, 3600);
    check(weft_cascade_run_create(&setup, &r->run));
    weft_cascade_run_nodes(r->run, s.per_node, simulated.slow);
    for (;;) {
        pthread_barrier_wait(&turn);
        if (!next)
            break;
        iterate(r);
        pthread_barrier_wait(&turn);
    }
    weft_cascade_run_free(r->run);
    weft_store_free(store);
    weft_backend_virtual_free(r->backend);
    return NULL;
}

void simulated_begin(const simulated_setup *setup)
{
    weft_comm *comm[SIMULATED_RANKS];
    s = *setup;
    for (int r = 0; r < s.ranks; r++)
        simulated.slow[r] = 1;
    pthread_barrier_init(&turn, NULL, (unsigned)s.ranks + 1);
    check(weft_comm_open_threads_linked(s.ranks, &s.links, comm));
    for (int r = 0; r < s.ranks; r++) {
        member[r] = (simulated_rank){.index = r, .comm = comm[r]};
        pthread_create(&member[r].thread, NULL, run_rank, &member[r]);
        pthread_setname_np(member[r].thread, "rank"); /* a name of its own in a profile */
    }
}

void simulated_run(const weft_placed_iteration *plan)
{
    for (int r = 0; r < s.ranks; r++)
        begin = fmax(begin, member[r].clock);
    next = plan;
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
}

weft_cascade_run *simulated_first_run(void)
{
    return member[0].run;
}

void simulated_end(void)
{
    next = NULL;
    pthread_barrier_wait(&turn);
    for (int r = 0; r < s.ranks; r++) {
        pthread_join(member[r].thread, NULL);
        weft_comm_free(member[r].comm);
    }
    pthread_barrier_destroy(&turn);
}
