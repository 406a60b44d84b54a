/* A training step of a Wan DiT with ring attention, on simulated cores and links (the shapes of
 * bench/parallel.sh). Most of the communication is hidden behind compute, and a repeated step takes
 * the same time. Times are of simulated clocks, so other work on the machine does not count. */
#include "../../model_of.h"
#include "../../ranks_of.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "comm/link_model.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "kernel/virtual/virtual.h"
#include "train/estimate/dry_run.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { RANKS = 4, BATCH = 8 };

static const char dit[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":8,"
    "\"attention_head_dim\":32,\"in_channels\":8,\"out_channels\":8,\"text_dim\":64,"
    "\"freq_dim\":64,\"ffn_dim\":1024,\"num_layers\":6,\"rope_max_seq_len\":64}";

typedef struct job {
    weft_mesh mesh;
    weft_comm *comm;
    double now, seconds, kernels;
    weft_comm_times times;
} job;

static weft_graph *whole_graph(const weft_model *model)
{
    const weft_shape shape = WEFT_SHAPE(BATCH, 5, 16, 16, 8);
    weft_graph *g = weft_graph_create();
    const weft_value latents = weft_input(g, "batch.latents", WEFT_F32, shape),
                     time = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(BATCH)),
                     text = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(BATCH, 40, 64)),
                     target = weft_input(g, "batch.target", WEFT_F32, shape);
    const weft_value error = weft_sub(g, denoise(g, model, latents, time, text), target);
    weft_output(g, "objective", weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error)));
    return g;
}

/* In the first step ranks compare their collectives; the second step counts. */
static weft_status run_twice(job *j, const weft_step *step)
{
    for (int turn = 0; turn < 2; turn++) {
        double all[RANKS];
        WEFT_TRY(weft_comm_all_gather(j->comm, &j->now, sizeof j->now, all));
        for (int r = 0; r < weft_comm_ranks(j->comm); r++)
            j->now = all[r] > j->now ? all[r] : j->now;
        j->seconds = -j->now;
        WEFT_TRY(weft_program_run(step->program));
        j->seconds += j->now;
    }
    j->times = weft_program_comm_times(step->program);
    return WEFT_OK;
}

static weft_status_code train(void *user)
{
    job *j = user;
    static const weft_optimizer_config adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    const weft_virtual_rates rates = {
        .flops = 70e9, .bytes = 20e9, .launch = 1e-6, .scale = 1, .clock = &j->now};
    const weft_model model = model_of(dit);
    weft_backend *backend = NULL;
    weft_step step = {0};
    WEFT_TRY(weft_backend_virtual_create(&rates, &backend));
    weft_store *store = weft_store_create_on(backend->device);
    const weft_exec_config place = {.comm = j->comm,
                                    .mesh = j->mesh,
                                    .backend = backend,
                                    .recipes = model.family->recipe,
                                    .recipe_count = model.family->recipes};
    weft_status_code status = weft_step_make(whole_graph(&model), &adamw, &place, store, 7, &step);
    if (status == WEFT_OK)
        status = run_twice(j, &step);
    if (status == WEFT_OK)
        j->kernels = weft_dry_run_kernels(backend, step.graph);
    weft_step_free(&step);
    weft_store_free(store);
    weft_backend_virtual_free(backend);
    return status;
}

static int run(const char *axes, const char *link, job *jobs)
{
    weft_mesh mesh;
    weft_link_model links;
    weft_comm *comm[RANKS];
    cr_assert_eq(weft_mesh_parse(axes, &mesh), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_link_model_parse(link, &links), WEFT_OK);
    links.clocked = true;
    const int ranks = weft_mesh_ranks(&mesh);
    cr_assert_eq(weft_comm_open_threads_linked(ranks, &links, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job){.mesh = mesh, .comm = comm[r]};
        weft_comm_set_deadline(comm[r], 120);
    }
    run_ranks(axes, ranks, comm, train, jobs, sizeof *jobs);
    return ranks;
}

static void expect_hidden(const char *axes, const char *link, double least)
{
    job first[RANKS], again[RANKS];
    const int ranks = run(axes, link, first);
    run(axes, link, again);
    for (int r = 0; r < ranks; r++) {
        const double busy = first[r].times.busy,
                     hidden = 1 - (first[r].seconds - first[r].kernels) / busy;
        cr_log_info("%s, %s, rank %d: %.4f s, kernels %.4f s, exchanges %.4f s: %.1f %% hidden",
                    axes, link, r, first[r].seconds, first[r].kernels, busy, 100 * hidden);
        cr_expect(hidden >= least, "%s, rank %d: %.1f %% of %.4f s are hidden", axes, r,
                  100 * hidden, busy);
        cr_expect_eq(first[r].seconds, again[r].seconds, "%s, rank %d: %.17g s, then %.17g s", axes,
                     r, first[r].seconds, again[r].seconds);
    }
}

Test(ring, hides_behind_kernels)
{
    expect_hidden("ring=2", "1 Gbit/s, 100 us", 0.8);
}

/* Here the attention of the own block is shorter than the transfer of the gradients to their rank:
 * delayed weight gradients are computed during the transfer, too. */
Test(ring, hides_behind_gradients_of_weights)
{
    expect_hidden("ring=2", "0.5 Gbit/s, 100 us", 0.7);
}
