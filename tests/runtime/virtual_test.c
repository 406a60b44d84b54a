/* The virtual backend: real programs and collectives, modelled time, no memory. Times are compared
 * with the model by wide factors, never with seconds. */
#include "base/log.h"
#include "kernel/virtual/virtual.h"
#include "runtime/runtime.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, LAYERS = 6, WIDTH = 8192, ROWS = 16384 };

/* A stack of linear layers with gradients, 1.5 GiB of weights and several of activations a rank. */
static weft_graph *deep(void)
{
    weft_graph *g = weft_graph_create();
    weft_value x = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(ROWS, WIDTH));
    for (int l = 0; l < LAYERS; l++) {
        char name[32];
        snprintf(name, sizeof name, "w%d", l);
        const weft_value w = weft_param(g, name, WEFT_F32, WEFT_SHAPE(WIDTH, WIDTH),
                                        (weft_init){WEFT_INIT_NORMAL, 0.02});
        x = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, w, WEFT_NONE}, 3,
                      &(weft_attr_linear){0});
        x = weft_unary(g, WEFT_OP_SILU, x);
    }
    weft_output(g, "objective", weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, x)));
    return g;
}

typedef struct rank_job {
    const weft_backend *backend;
    weft_comm *comm;
    int rank;
    double modelled, took, exposed;
    int64_t bytes, exchanges;
    char error[300];
} rank_job;

static weft_status add_gradients(weft_graph *g)
{
    int count;
    const weft_value *params = weft_graph_params(g, &count);
    weft_value grad[LAYERS];
    weft_autodiff(g, weft_graph_find(g, "objective"), params, count, grad);
    for (int i = 0; i < count; i++) {
        const weft_value step = weft_affine(g, grad[i], -1e-3, 0);
        weft_update(g, params[i], weft_add(g, params[i], step));
    }
    return weft_graph_check(g);
}

static weft_status run_step(rank_job *j, weft_graph *g, weft_store *store)
{
    weft_program *p;
    weft_mesh mesh;
    WEFT_TRY(weft_mesh_parse("dp=2", &mesh));
    const weft_program_options options = {.backend = j->backend, .mesh = &mesh};
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (j->backend->kernel[weft_graph_node(g, n)->op])
            j->modelled += weft_virtual_seconds(weft_backend_virtual_rates(j->backend),
                                                weft_graph_node(g, n)->op, weft_node_cost(g, n));
    WEFT_TRY(weft_store_init(store, g, 1));
    WEFT_TRY(weft_program_compile(g, &options, &p));
    weft_group *group;
    weft_status_code status = weft_comm_world(j->comm, &group);
    if (status == WEFT_OK)
        status = weft_program_bind(p, store, group);
    const double begin = weft_now();
    if (status == WEFT_OK)
        status = weft_program_run(p);
    j->took = weft_now() - begin;
    j->bytes = weft_program_bytes(p) + weft_store_bytes(store);
    j->exchanges = weft_program_comm_times(p).exchanges;
    j->exposed = weft_program_comm_times(p).exposed;
    weft_program_free(p);
    return status;
}

static weft_status train(rank_job *j)
{
    weft_graph *whole = deep(), *own = NULL;
    weft_mesh mesh;
    weft_store *store = weft_store_create_on(j->backend->device);
    weft_status_code status = weft_mesh_parse("dp=2", &mesh);
    if (status == WEFT_OK)
        status = weft_pass_shard(whole, &mesh, j->rank, &weft_recipe_dp, &own);
    if (status == WEFT_OK)
        status = add_gradients(own);
    if (status == WEFT_OK)
        status = run_step(j, own, store);
    weft_store_free(store);
    weft_graph_free(own);
    weft_graph_free(whole);
    return status;
}

static void *rank_main(void *user)
{
    rank_job *j = user;
    if (train(j) != WEFT_OK)
        snprintf(j->error, sizeof j->error, "%s", weft_error_message());
    return NULL;
}

/* Bytes of physical memory that the process holds. */
static int64_t resident(void)
{
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");
    cr_assert_not_null(f);
    cr_assert_eq(fscanf(f, "%ld %ld", &all, &pages), 2);
    fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

Test(virtual, a_step_takes_the_modelled_time_and_no_memory, .timeout = 300)
{
    weft_virtual_rates rates = {.flops = 300e12, .bytes = 2e12, .launch = 1e-5, .scale = 1};
    weft_backend *backend;
    weft_comm *comm[RANKS];
    rank_job job[RANKS];
    pthread_t thread[RANKS];
    const int64_t before = resident();
    cr_assert_eq(weft_backend_virtual_create(&rates, &backend), WEFT_OK);
    cr_assert_eq(weft_comm_open_fake(RANKS, comm), WEFT_OK);
    for (int r = 0; r < RANKS; r++) {
        job[r] = (rank_job){.backend = backend, .comm = comm[r], .rank = r};
        pthread_create(&thread[r], NULL, rank_main, &job[r]);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        weft_comm_free(comm[r]);
        cr_assert_str_empty(job[r].error, "rank %d: %s", r, job[r].error);
        cr_expect_gt(job[r].bytes, (int64_t)5 << 30);
        cr_expect_gt(job[r].exchanges, 0, "gradients are summed");
        cr_expect_geq(job[r].took, 0.99 * job[r].modelled, "%g s, modelled %g", job[r].took,
                      job[r].modelled);
        cr_expect_leq(job[r].took, 2 * (job[r].modelled + job[r].exposed),
                      "%g s, modelled %g, waited for sums %g", job[r].took, job[r].modelled,
                      job[r].exposed);
    }
    cr_expect_lt(resident() - before, (int64_t)512 << 20, "%lld bytes became resident",
                 (long long)(resident() - before));
    weft_backend_virtual_free(backend);
}

/* One rank, no collectives: the modelled time and little more, at several scales. */
Test(virtual, time_is_scaled)
{
    const double scales[] = {1, 0.25};
    for (int i = 0; i < 2; i++) {
        weft_virtual_rates rates = {.flops = 100e12, .bytes = 1e12, .scale = scales[i]};
        weft_backend *backend;
        weft_program *p;
        cr_assert_eq(weft_backend_virtual_create(&rates, &backend), WEFT_OK);
        weft_graph *g = deep();
        weft_store *store = weft_store_create_on(backend->device);
        double modelled = 0;
        cr_assert_eq(add_gradients(g), WEFT_OK, "%s", weft_error_message());
        for (int32_t n = 0; n < weft_graph_node_count(g); n++)
            if (backend->kernel[weft_graph_node(g, n)->op])
                modelled +=
                    weft_virtual_seconds(&rates, weft_graph_node(g, n)->op, weft_node_cost(g, n));
        cr_assert_eq(weft_store_init(store, g, 1), WEFT_OK, "%s", weft_error_message());
        const weft_program_options options = {.backend = backend, .profile = true};
        cr_assert_eq(weft_program_compile(g, &options, &p), WEFT_OK);
        cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
        double took = 1e9, profiled = 0;
        for (int run = 0; run < 3; run++) {
            const double begin = weft_now();
            cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
            took = weft_now() - begin < took ? weft_now() - begin : took;
        }
        int64_t runs;
        const double *seconds = weft_program_seconds(p, &runs);
        for (int32_t n = 0; n < weft_graph_node_count(g); n++)
            profiled += seconds[n] / (double)runs;
        cr_expect_geq(took, 0.99 * modelled * scales[i], "%g s of %g", took, modelled);
        cr_expect_leq(took, 2 * modelled * scales[i], "%g s of %g", took, modelled);
        cr_expect_geq(profiled, 0.99 * modelled * scales[i]);
        cr_expect_leq(profiled, 2 * modelled * scales[i], "%g of %g", profiled, modelled);
        weft_program_free(p);
        weft_store_free(store);
        weft_graph_free(g);
        weft_backend_virtual_free(backend);
    }
}

#ifndef __SANITIZE_THREAD__ /* whose addresses do not reach so far */
Test(virtual, memory_of_any_size_can_be_written)
{
    const int64_t bytes = (int64_t)1 << 40, before = resident();
    char *data = weft_device_virtual.alloc(bytes);
    cr_assert_not_null(data);
    for (int64_t at = 0; at < bytes; at += (int64_t)1 << 30)
        data[at] = 1;
    data[bytes - 1] = 1;
    cr_expect_lt(resident() - before, (int64_t)160 << 20);
    weft_device_virtual.free(data);
}
#endif

Test(virtual, stores_and_programs_share_a_device)
{
    weft_graph *g = weft_graph_create();
    weft_program *p;
    weft_output(g, "y", weft_affine(g, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3)), 2, 0));
    cr_assert_eq(weft_program_compile(
                     g, &(weft_program_options){.backend = weft_backend_find("virtual")}, &p),
                 WEFT_OK);
    weft_store *store = weft_store_create();
    cr_expect_eq(weft_program_bind(p, store, NULL), WEFT_E_ARG);
    cr_expect(strstr(weft_error_message(), "weft_store_create_on"), "%s", weft_error_message());
    weft_store_free(store);
    weft_program_free(p);
    weft_graph_free(g);
}

Test(virtual, backends_are_found_by_name)
{
    weft_backend other = *weft_backend_find("virtual");
    cr_expect_eq(weft_backend_find("cpu"), &weft_backend_cpu);
    cr_expect_eq(weft_backend_find("ref"), &weft_backend_ref);
    cr_expect_null(weft_backend_find("plugin"));
    cr_expect_eq(weft_backend_add(&other), WEFT_E_ARG, "there is one of that name");
    other.name = "plugin";
    cr_expect_eq(weft_backend_add(&other), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_backend_find("plugin"), &other);
    cr_expect(strstr(weft_backend_names(), "plugin"));
    static weft_backend lacking;
    lacking = other;
    lacking.name = "lacking";
    lacking.kernel[WEFT_OP_MATMUL] = NULL;
    cr_expect_eq(weft_backend_add(&lacking), WEFT_E_ARG);
    cr_expect(strstr(weft_error_message(), "matmul"), "%s", weft_error_message());
}
