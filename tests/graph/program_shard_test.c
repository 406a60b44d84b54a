/* Training steps of sharded graphs, after all passes, as programs on communicators of one process,
 * compared with the program of one rank. */
#include "../ranks_of.h"
#include "comm/comm_fake.h"
#include "comm/group.h"
#include "dit.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "graph/dump.h"
#include "kernel/cpu/table.h"
#include "kernel/ref/table.h"
#include "ranks.h"
#include "train/graph/optimizer.h"
#include "transform/passes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 8, STEPS = 3 };

typedef struct rank_job {
    const weft_backend *backend;
    const weft_recipe *recipe;
    const weft_pass_switches *switches;
    weft_mesh mesh;
    weft_comm *comm;
    int rank;
    weft_graph *graph;
    weft_store *store;
    double loss[STEPS];
} rank_job;

static const weft_attr_source *source_attr(const weft_graph *g, const char *name)
{
    return weft_graph_node(g, weft_value_get(g, weft_graph_find(g, name))->node)->attr;
}

static void fill_inputs(rank_job *j, weft_program *p, int step)
{
    static const char *const names[] = {
        "batch.latents",  "batch.text",           "batch.key",           "optimizer.lr",
        "optimizer.step", "optimizer.loss_limit", "optimizer.norm_limit"};
    static const double scalars[] = {0, 0, 0, 0.01, 0, 1e9, 1e9};
    for (int n = 0; n < 7; n++) {
        weft_tensor *t = weft_program_input(p, names[n]);
        const weft_attr_source *a = source_attr(j->graph, names[n]);
        for (int64_t i = 0; i < weft_shape_count(&t->shape); i++) {
            const double value =
                n >= 3 ? (n == 4 ? step + 1 : scalars[n])
                       : dit_fill(NULL, names[n], a->dtype, ranks_place(a, i) + 1000 * step);
            if (t->dtype == WEFT_I64)
                ((int64_t *)t->data)[i] = (int64_t)value;
            else
                ((float *)t->data)[i] = (float)value;
        }
    }
}

static weft_status prepare(rank_job *j)
{
    dit_setup s = {4, 4, 2, 4, 4, "objective"};
    const weft_optimizer_config optimizer = {.beta1 = 0.9,
                                             .beta2 = 0.99,
                                             .eps = 1e-3,
                                             .weight_decay = 0.01,
                                             .clip_norm = 0.5,
                                             .ema_decay = 0.9};
    const weft_pass_setup setup = {
        .mesh = &j->mesh, .rank = j->rank, .recipe = j->recipe, .switches = j->switches};
    j->graph = dit_build(&s);
    WEFT_TRY(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &j->graph, NULL));
    weft_optimizer_build(j->graph, weft_graph_find(j->graph, "objective"), &optimizer);
    WEFT_TRY(weft_passes_run(WEFT_PASS_RANK, &setup, false, &j->graph, NULL));
    WEFT_TRY(weft_graph_verify(j->graph));
    j->store = weft_store_create();
    return weft_store_init(j->store, j->graph, 42);
}

static weft_status_code train(void *user)
{
    rank_job *j = user;
    weft_program *p;
    WEFT_TRY(prepare(j));
    const weft_program_options options = {.backend = j->backend, .mesh = &j->mesh, .guard = true};
    WEFT_TRY(weft_program_compile(j->graph, &options, &p));
    weft_group *group;
    weft_status_code status = weft_comm_world(j->comm, &group);
    if (status == WEFT_OK)
        status = weft_program_bind(p, j->store, group);
    for (int step = 0; step < STEPS && status == WEFT_OK; step++) {
        fill_inputs(j, p, step);
        status = weft_program_run(p);
        if (status == WEFT_OK)
            j->loss[step] = (double)*(const float *)weft_program_output(p, "loss")->data;
    }
    weft_program_free(p);
    return status;
}

static int run_world(const weft_backend *backend, const char *mesh_text,
                     const weft_pass_switches *switches, rank_job *job)
{
    weft_mesh mesh;
    weft_comm *comm[MAX_RANKS];
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK);
    const int ranks = weft_mesh_ranks(&mesh);
    weft_recipe recipe = dit_recipe(&mesh);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        job[r] = (rank_job){.backend = backend,
                            .recipe = &recipe,
                            .switches = switches,
                            .mesh = mesh,
                            .comm = comm[r],
                            .rank = r};
        weft_comm_set_deadline(comm[r], 1e9);
    }
    run_ranks(mesh_text, ranks, comm, train, job, sizeof *job);
    weft_recipe_free(&recipe);
    return ranks;
}

/* Largest difference of any parameter or state, relative to the largest element of each. */
static double distance(const rank_job *one, const rank_job *many, char name[200])
{
    double worst = 0;
    for (int64_t t = 0; t < weft_store_count(many->store); t++) {
        const weft_tensor *part = weft_store_at(many->store, t),
                          *all = weft_store_find(one->store, part->name);
        const weft_attr_source *a = source_attr(many->graph, part->name);
        double largest = 1e-4;
        for (int64_t i = 0; i < weft_shape_count(&all->shape); i++)
            largest = fmax(largest, fabs((double)((float *)all->data)[i]));
        for (int64_t i = 0; i < weft_shape_count(&part->shape); i++) {
            const double error = fabs((double)((float *)part->data)[i] -
                                      (double)((float *)all->data)[ranks_place(a, i)]) /
                                 largest;
            if (!(error <= worst)) {
                worst = error;
                snprintf(name, 200, "%s", part->name);
            }
        }
    }
    return worst;
}

static void check(const weft_backend *backend, const char *mesh, double tolerance)
{
    rank_job one, many[MAX_RANKS];
    run_world(backend, "dp=1", NULL, &one);
    const int ranks = run_world(backend, mesh, NULL, many);
    for (int r = 0; r < ranks; r++) {
        char name[200] = "";
        const double error = distance(&one, &many[r], name);
        cr_expect(error <= tolerance, "%s, rank %d: %s is off by %g", mesh, r, name, error);
        for (int s = 0; s < STEPS; s++)
            cr_expect(fabs(many[r].loss[s] - one.loss[s]) <= tolerance * fabs(one.loss[s]),
                      "loss %g, not %g", many[r].loss[s], one.loss[s]);
        weft_store_free(many[r].store);
        weft_graph_free(many[r].graph);
    }
    cr_expect(one.loss[0] != one.loss[1]);
    weft_store_free(one.store);
    weft_graph_free(one.graph);
}

Test(program_shard, reference_backend)
{
    check(&weft_backend_ref, "dp=2", 1e-6);
    check(&weft_backend_ref, "dp=3", 1e-6);
    check(&weft_backend_ref, "fsdp=2", 1e-6);
    check(&weft_backend_ref, "tp=2", 1e-6);
    check(&weft_backend_ref, "sp=3", 1e-6);
    check(&weft_backend_ref, "cp=2", 1e-6);
    check(&weft_backend_ref, "ring=3", 1e-6);
    check(&weft_backend_ref, "dp=2,tp=2,cp=2", 1e-6);
}

Test(program_shard, cpu_backend)
{
    check(&weft_backend_cpu, "dp=2", 1e-4);
    check(&weft_backend_cpu, "dp=3", 1e-4);
    check(&weft_backend_cpu, "fsdp=3", 1e-4);
    check(&weft_backend_cpu, "fsdp=2,tp=2", 1e-4);
    check(&weft_backend_cpu, "dp=2,tp=2", 1e-4);
    check(&weft_backend_cpu, "sp=2,cp=2", 1e-4);
    check(&weft_backend_cpu, "tp=2,ring=2", 1e-4);
}

/* Gathering parameters a second time, starting collectives elsewhere and copying less changes no
 * bit of any parameter or state. */
Test(program_shard, passes_are_bitwise)
{
    weft_pass_switches off[3] = {weft_pass_defaults, weft_pass_defaults, weft_pass_defaults};
    off[0].regather = off[1].order = off[2].views = false;
    rank_job all[MAX_RANKS], less[MAX_RANKS];
    const int ranks = run_world(&weft_backend_cpu, "fsdp=2,tp=2", NULL, all);
    for (int k = 0; k < 3; k++) {
        run_world(&weft_backend_cpu, "fsdp=2,tp=2", &off[k], less);
        for (int r = 0; r < ranks; r++) {
            for (int64_t t = 0; t < weft_store_count(all[r].store); t++) {
                const weft_tensor *x = weft_store_at(all[r].store, t),
                                  *y = weft_store_find(less[r].store, x->name);
                cr_assert(y, "%s", x->name);
                cr_expect_arr_eq(x->data, y->data, (size_t)weft_shape_count(&x->shape) * 4,
                                 "switch %d, rank %d, %s", k, r, x->name);
            }
            cr_expect_arr_eq(all[r].loss, less[r].loss, sizeof all[r].loss);
            weft_store_free(less[r].store);
            weft_graph_free(less[r].graph);
        }
    }
    for (int r = 0; r < ranks; r++) {
        weft_store_free(all[r].store);
        weft_graph_free(all[r].graph);
    }
}
