#include "profile/profile_work.h"

#include "base/compare.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "comm/measure.h"
#include "estimate/program_estimate.h"
#include "exec/execute.h"
#include "plan/cluster/cluster_path.h"
#include "plan/cluster/profile_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = WEFT_PROFILE_ROUNDS };

/* ---- one program ----------------------------------------------------------------------------- */

/* Mean over the fastest quarter of the rounds by program time, so that the nodes' seconds add up to
 * the program's seconds. */
static double quick(const weft_timed *t, const double *value)
{
    const int quarter = (t->rounds + 3) / 4;
    double sorted[ROUNDS], sum = 0;
    int taken = 0;
    memcpy(sorted, t->run, (size_t)t->rounds * sizeof *sorted);
    qsort(sorted, (size_t)t->rounds, sizeof *sorted, weft_compare_f64);
    for (int i = 0; i < t->rounds && taken < quarter; i++)
        if (t->run[i] <= sorted[quarter - 1]) {
            sum += value[i];
            taken++;
        }
    return sum / taken;
}

double weft_timed_run(const weft_timed *t)
{
    return quick(t, t->run);
}

static double node_seconds(const weft_timed *t, int32_t n)
{
    return quick(t, t->node + (int64_t)n * ROUNDS);
}

weft_status weft_timed_begin(weft_timed *t, const weft_graph *graph, weft_program *program,
                             bool by_nodes, const weft_profile_prompts *prompts, const char *name)
{
    const int64_t nodes = weft_graph_node_count(graph), f64 = (int64_t)sizeof(double);
    t->graph = graph;
    t->program = program;
    t->by_nodes = by_nodes;
    snprintf(t->name, sizeof t->name, "%s", name);
    if (program)
        weft_profile_fill(graph, program, prompts);
    if (!by_nodes)
        return WEFT_OK;
    t->node = weft_alloc((nodes + 1) * ROUNDS * f64);
    t->before = weft_alloc((nodes + 1) * f64);
    return WEFT_ALLOCATED(t->node && t->before, "the seconds of %s", name);
}

void weft_timed_end(weft_timed *t)
{
    if (t->store)
        weft_step_free(&t->own);
    weft_store_free(t->store);
    weft_free(t->node);
    weft_free(t->before);
    *t = (weft_timed){0};
}

static weft_status one_round(weft_timed *t)
{
    int64_t runs;
    const int32_t nodes = t->node ? weft_graph_node_count(t->graph) : 0;
    const double *seconds = weft_program_seconds(t->program, &runs);
    if (nodes)
        memcpy(t->before, seconds, (size_t)nodes * sizeof *seconds);
    const double begun = weft_now();
    WEFT_TRY(weft_program_run(t->program));
    t->run[t->rounds] = weft_now() - begun;
    for (int32_t n = 0; n < nodes; n++)
        t->node[(int64_t)n * ROUNDS + t->rounds] = seconds[n] - t->before[n];
    t->rounds++;
    return WEFT_OK;
}

/* ---- several programs ------------------------------------------------------------------------ */

weft_status weft_profiling_open(weft_profiling *p, const char *against)
{
    if (against)
        WEFT_TRY(weft_profile_load(p->arena, against, &p->earlier));
    if (weft_comm_rank(p->comm) == 0)
        printf("%-48s %8s %12s %12s%s\n", "program", "nodes", "took", "by nodes",
               against ? "    predicted" : "");
    return WEFT_OK;
}

static weft_status round_of(weft_profiling *p, weft_timed *list, int count)
{
    for (int i = 0; i < count; i++) {
        WEFT_TRY(weft_comm_barrier(p->comm));
        WEFT_TRY(one_round(&list[i]));
    }
    return WEFT_OK;
}

weft_status weft_profiling_run(weft_profiling *p, weft_timed *list, int count, double seconds)
{
    WEFT_TRY(round_of(p, list, count)); /* warm-up: first touches, prepared kernels */
    for (int i = 0; i < count; i++)
        list[i].rounds = 0;
    const double begun = weft_now();
    int64_t more = count > 0;
    for (int round = 0; round < ROUNDS && more; round++) {
        WEFT_TRY(round_of(p, list, count));
        more = round < 3 || weft_now() - begun < seconds;
        WEFT_TRY(weft_comm_broadcast(p->comm, &more, sizeof more, 0));
    }
    return WEFT_OK;
}

weft_status weft_profiling_run_alone(weft_profiling *p, weft_timed *t, double seconds)
{
    WEFT_TRY(weft_comm_barrier(p->comm));
    if (weft_comm_rank(p->comm) == 0) {
        WEFT_TRY(one_round(t));
        t->rounds = 0;
        const double begun = weft_now();
        while (t->rounds < ROUNDS && (t->rounds < 3 || weft_now() - begun < seconds))
            WEFT_TRY(one_round(t));
    }
    return weft_comm_barrier(p->comm);
}

/* Flushes each line when it is measured, because profiling may take long. */
static weft_status end_line(void)
{
    return fflush(stdout) ? weft_error_errno(WEFT_NOWHERE, "cannot write standard output")
                          : WEFT_OK;
}

/* Prints a program's measured time, and the prediction of an earlier profile. */
static weft_status print_line(const weft_profiling *p, const weft_timed *t, double by_nodes)
{
    const double took = weft_timed_run(t);
    printf("%-48s %8d %9.3f ms %9.3f ms", t->name, (int)weft_graph_node_count(t->graph), 1e3 * took,
           1e3 * by_nodes);
    if (p->earlier.device.rates) {
        weft_program_cost said;
        const weft_rank_links links = {&p->earlier, weft_graph_mesh(t->graph)};
        WEFT_TRY(weft_program_cost_of(&links, t->program, false, &said));
        printf(" %9.3f ms %+6.1f %%, %.0f %% of it measured at these shapes", 1e3 * said.seconds,
               100 * (said.seconds / took - 1), 100 * said.exact / said.seconds);
    }
    printf("\n");
    return end_line();
}

/* Mean over the faster half of the runs: includes normal variation, but not disturbances. */
static double usual(const weft_timed *t)
{
    double sorted[ROUNDS];
    memcpy(sorted, t->run, (size_t)t->rounds * sizeof *sorted);
    return weft_measure_quick(sorted, t->rounds, 2);
}

static weft_status take_whole(weft_profiling *p, const weft_timed *t)
{
    weft_rates *r = &p->rates;
    double seconds = t->rounds ? usual(t) : 0; /* rank 0's time, on all ranks */
    WEFT_TRY(weft_comm_broadcast(p->comm, &seconds, sizeof seconds, 0));
    WEFT_TRY(
        weft_grow((void **)&r->program, r->programs, &p->program_capacity, sizeof *r->program));
    const char *what = weft_arena_strdup(p->arena, t->name);
    WEFT_TRY(WEFT_ALLOCATED(what, "the seconds of programs"));
    r->program[r->programs++] = (weft_program_rate){weft_rates_program_id(t->graph), what, seconds};
    if (weft_comm_rank(p->comm) == 0)
        printf("%-48s %8d %9.3f ms\n", what, (int)weft_graph_node_count(t->graph), 1e3 * seconds);
    return end_line();
}

weft_status weft_profiling_take(weft_profiling *p, const weft_timed *t)
{
    double by_nodes = 0;
    if (!t->by_nodes)
        return take_whole(p, t);
    for (int32_t n = 0; n < weft_graph_node_count(t->graph) && t->rounds; n++) {
        const weft_node *node = weft_graph_node(t->graph, n);
        const weft_cost cost = weft_node_cost(t->graph, n);
        const double seconds = node_seconds(t, n);
        by_nodes += seconds;
        if ((cost.flops == 0 && cost.bytes == 0) || !(seconds > 0) ||
            weft_op_is_collective(node->op))
            continue;
        const bool bf16 = weft_node_dtype(t->graph, node) == WEFT_BF16;
        double *best = &p->best[bf16][weft_node_work(node)];
        *best = fmax(*best, (double)cost.flops / seconds);
        WEFT_TRY(
            weft_grow((void **)&p->sample, p->samples, &p->sample_capacity, sizeof *p->sample));
        weft_profiled *s = &p->sample[p->samples++];
        *s = (weft_profiled){
            .flops = (double)cost.flops, .bytes = (double)cost.bytes, .seconds = seconds};
        weft_rate_key(t->graph, n, s->key);
    }
    return t->rounds && weft_comm_rank(p->comm) == 0 ? print_line(p, t, by_nodes) : WEFT_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const weft_profiled *)a)->key, ((const weft_profiled *)b)->key);
}

/* Averages equal nodes (layers). */
weft_status weft_profiling_close(weft_profiling *p)
{
    weft_rates *r = &p->rates;
    WEFT_TRY(WEFT_ARENA_NEW(p->arena, r->item, p->samples + 1, "the rates"));
    if (p->samples)
        qsort(p->sample, (size_t)p->samples, sizeof *p->sample, by_key);
    for (int64_t i = 0, j; i < p->samples; i = j) {
        const weft_profiled *s = &p->sample[i];
        double sum = 0;
        for (j = i; j < p->samples && !strcmp(s->key, p->sample[j].key); j++)
            sum += p->sample[j].seconds;
        r->item[r->count++] = (weft_rate){s->key, s->flops, s->bytes, sum / (double)(j - i)};
    }
    return weft_rates_check(r, "profile");
}

/* ---- measured nodes -------------------------------------------------------------------------- */

void weft_profiling_share(const weft_profiling *p, const weft_graph *g, weft_new_share *share)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        char key[WEFT_RATE_KEY];
        const weft_cost cost = weft_node_cost(g, n);
        const weft_node *node = weft_graph_node(g, n);
        if (weft_op_is_collective(node->op) || (cost.flops == 0 && cost.bytes == 0))
            continue;
        weft_rate_key(g, n, key);
        const double seconds = weft_device_seconds(p->local, weft_node_work(node),
                                                   (double)cost.flops, (double)cost.bytes);
        share->all += seconds;
        share->fresh += json_object_get(p->known, key) ? 0 : seconds;
    }
}

weft_status weft_profiling_record(weft_profiling *p, const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        char key[WEFT_RATE_KEY];
        weft_rate_key(g, n, key);
        if (json_object_set_new(p->known, key, json_true()))
            return weft_no_memory("the profile");
    }
    return WEFT_OK;
}
