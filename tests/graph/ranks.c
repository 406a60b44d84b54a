#include "ranks.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/group.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "transform/memory/comm_order.h"
#include "transform/memory/lifetime.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rank_job {
    weft_graph *graph;
    const weft_backend *backend;
    weft_comm *comm;
    lockstep_fill *fill;
    void *user;
    ranks_result *result;
} rank_job;

static double element(const weft_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case WEFT_F32: return (double)((const float *)t->data)[i];
    case WEFT_F64: return ((const double *)t->data)[i];
    case WEFT_I32: return ((const int32_t *)t->data)[i];
    default: return (double)((const int64_t *)t->data)[i];
    }
}

static void set_element(weft_tensor *t, int64_t i, double value)
{
    switch (t->dtype) {
    case WEFT_F32: ((float *)t->data)[i] = (float)value; break;
    case WEFT_F64: ((double *)t->data)[i] = value; break;
    case WEFT_I32: ((int32_t *)t->data)[i] = (int32_t)value; break;
    default: ((int64_t *)t->data)[i] = (int64_t)value;
    }
}

int64_t ranks_place(const weft_attr_source *a, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = a->shape.rank - 1; d >= 0; d--) {
        at += (i % a->shape.dim[d] + a->start[d]) * step;
        i /= a->shape.dim[d];
        step *= a->global.dim[d];
    }
    return at;
}

static void fill_inputs(rank_job *j, weft_program *p)
{
    for (int32_t n = 0; n < weft_graph_node_count(j->graph); n++) {
        const weft_node *node = weft_graph_node(j->graph, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        const weft_attr_source *a = node->attr;
        const char *name = weft_value_get(j->graph, node->out[0])->name;
        weft_tensor *t = weft_program_input(p, name);
        for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
            set_element(t, i, j->fill(j->user, name, a->dtype, ranks_place(a, i)));
    }
}

static void keep_outputs(rank_job *j, weft_program *p)
{
    int count;
    const weft_named *named = weft_graph_outputs(j->graph, &count);
    for (int i = 0; i < count && i < RANKS_OUTPUTS; i++) {
        const weft_tensor *t = weft_program_output(p, named[i].name);
        ranks_output *o = &j->result->output[j->result->count++];
        const int64_t elements = weft_shape_count(&t->shape);
        snprintf(o->name, sizeof o->name, "%s", named[i].name);
        o->shape = t->shape;
        o->data = calloc((size_t)elements + 1, sizeof *o->data);
        for (int64_t k = 0; k < elements; k++)
            o->data[k] = element(t, k);
    }
    const weft_memory_plan *plan = weft_program_plan(p);
    for (int32_t n = 0; n < plan->node_count; n++)
        j->result->views += plan->view[n];
}

static weft_status run(rank_job *j)
{
    weft_graph *ordered;
    weft_program *p = NULL;
    weft_status_code status = weft_pass_order(j->graph, 0, &ordered);
    WEFT_TRY(status);
    j->graph = ordered;
    const weft_program_options options = {
        .backend = j->backend, .mesh = weft_graph_mesh(ordered), .guard = true, .threads = 1};
    weft_group *group;
    WEFT_GO(weft_program_compile(ordered, &options, &p));
    WEFT_GO(weft_comm_world(j->comm, &group));
    WEFT_GO(weft_program_bind(p, NULL, group));
    fill_inputs(j, p);
    WEFT_GO(weft_program_run(p));
    keep_outputs(j, p);
out:
    weft_program_free(p);
    weft_graph_free(ordered);
    return status;
}

static void *run_rank(void *user)
{
    rank_job *j = user;
    if (run(j) != WEFT_OK)
        snprintf(j->result->error, sizeof j->result->error, "%s", weft_error_message());
    return NULL;
}

void ranks_run(int ranks, weft_graph *const *graph, const weft_backend *backend,
               lockstep_fill *fill, void *user, ranks_result *result)
{
    weft_comm *comm[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    rank_job job[RANKS_MAX];
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        result[r] = (ranks_result){0};
        job[r] = (rank_job){graph[r], backend, comm[r], fill, user, &result[r]};
        weft_comm_set_deadline(comm[r], 1e9);
        pthread_create(&thread[r], NULL, run_rank, &job[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        weft_comm_free(comm[r]);
        cr_assert_str_empty(result[r].error, "rank %d of %d: %s", r, ranks, result[r].error);
    }
}

void ranks_free(int ranks, ranks_result *result)
{
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < result[r].count; i++)
            free(result[r].output[i].data);
}

const ranks_output *ranks_find(const ranks_result *result, const char *name)
{
    for (int i = 0; i < result->count; i++)
        if (!strcmp(result->output[i].name, name))
            return &result->output[i];
    cr_assert_fail("no output %s", name);
    return NULL;
}
