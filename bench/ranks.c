/* bench/ranks, under mpirun: the cost of a collective, and a data-parallel training step with
 * coalesced and single all-reduces.
 *   sums   seconds of an all-reduce by size: waited for at once, and 32 in flight during compute
 *   step   the DiT of examples/demo/dit.yaml, 16 videos of 13x64x64 or 2 images over the ranks:
 *          steps of both programs alternate */
#include "../tests/model_of.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_mpi.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "exec/execute.h"
#include "train/step/train_step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUMS = 32, STEPS = 60 };

static void die(weft_comm *comm, weft_status_code status)
{
    if (status == WEFT_OK)
        return;
    fprintf(stderr, "bench/ranks: %s\n", weft_error_message());
    weft_comm_abort(comm);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int count)
{
    qsort(x, (size_t)count, sizeof *x, by_value);
    return x[count / 2];
}

/* ---- sums ---------------------------------------------------------------------------------- */

static double all_at_once(weft_comm *comm, weft_comm_request **x, float *data)
{
    double busy = 0, waited, sum = 0;
    for (int i = 0; i < SUMS; i++)
        weft_comm_request_start(x[i]);
    for (const double until = weft_now() + 0.05;
         weft_now() < until;) /* no caller waits: the request polls rarely */
        for (int i = 0; i < 1000; i++)
            sum += sin((double)i);
    data[0] += sum > 1e300 ? 1 : 0;
    for (int i = 0; i < SUMS; i++) {
        die(comm, weft_comm_request_wait(x[i]));
        busy += weft_comm_request_seconds(x[i], &waited);
    }
    return busy / SUMS;
}

static void measure_sums(weft_comm *comm)
{
    weft_group *world;
    die(comm, weft_comm_world(comm, &world));
    const int64_t most = 1 << 18;
    float *data = weft_alloc_aligned(4 * most);
    memset(data, 0, (size_t)(4 * most));
    for (int64_t count = 16; count <= most; count *= 4) {
        weft_comm_request *x[SUMS];
        void *scratch = NULL;
        double alone[200], many[8];
        for (int i = 0; i < SUMS; i++) {
            const weft_shape shape = WEFT_SHAPE(count);
            die(comm, weft_comm_request_create(weft_group_count(world), weft_group_index(world),
                                               WEFT_OP_ALL_REDUCE, &(weft_attr_comm){0}, &shape,
                                               &shape, WEFT_F32, "bench", &x[i]));
            die(comm, weft_comm_request_attach(x[i], world, WEFT_CHANNEL_LAYERS));
            scratch = scratch ? scratch : weft_alloc_aligned(weft_comm_request_scratch(x[i]));
            weft_comm_request_bind(x[i], data, data, scratch);
        }
        for (int i = 0; i < 200; i++) {
            const double start = weft_now();
            weft_comm_request_start(x[0]);
            die(comm, weft_comm_request_wait(x[0]));
            alone[i] = weft_now() - start;
        }
        for (int i = 0; i < 8; i++)
            many[i] = all_at_once(comm, x, data);
        if (weft_comm_rank(comm) == 0)
            printf("| %.1f | %.1f | %.1f |\n", (double)count / 256, median(alone, 200) * 1e6,
                   median(many, 8) * 1e6);
        for (int i = 0; i < SUMS; i++)
            weft_comm_request_free(x[i]);
        weft_free(scratch);
    }
    weft_free(data);
}

/* ---- step ---------------------------------------------------------------------------------- */

static weft_graph *training_graph(weft_comm *comm, const weft_mesh *mesh, int64_t batch)
{
    const weft_run run = {.noise.flow = {.logit_std = 1, .shift = 3}};
    const weft_bucket size = {
        .batch = batch, .frames = batch < 16 ? 1 : 13, .height = 64, .width = 64};
    const weft_optimizer_config optimizer = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_norm = 1, .ema_decay = 0.998};
    weft_run_models models = {
        .autoencoder = model_of("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":16,"
                                "\"num_res_blocks\":1}"),
        .denoiser = model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_layers\":6,"
                             "\"num_attention_heads\":6,\"attention_head_dim\":32,"
                             "\"ffn_dim\":768,\"text_dim\":128}")};
    models.text =
        captions_of(&models.denoiser, "{\"_class_name\":\"WeftBytesEncoder\",\"max_length\":40}");
    weft_run_models_connect(&models);
    weft_graph *g = weft_graph_create();
    const weft_pass_setup setup = {
        .mesh = mesh, .rank = weft_comm_rank(comm), .recipe = &weft_recipe_dp};
    weft_objective_build(g, &run, &models, &size);
    die(comm, weft_graph_check(g));
    die(comm, weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, NULL));
    weft_optimizer_build(g, weft_graph_find(g, "objective"), &optimizer);
    die(comm, weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL));
    return g;
}

static void feed(weft_program *p, const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor *t = weft_program_input(p, weft_value_get(g, node->out[0])->name);
        const bool limit = strstr(t->name, "limit") != NULL;
        for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
            switch (t->dtype) {
            case WEFT_F32:
                ((float *)t->data)[i] = limit ? INFINITY : 1e-3f * (float)(i % 997);
                break;
            case WEFT_I32: ((int32_t *)t->data)[i] = (int32_t)(i % 200); break;
            default: ((int64_t *)t->data)[i] = i + 1;
            }
        if (!strcmp(t->name, "optimizer.lr"))
            *(float *)t->data = 0; /* both programs share the weights */
    }
}

static void measure_step(weft_comm *comm, const weft_mesh *mesh, int64_t batch)
{
    static const char *const name[] = {"bundled", "single"};
    weft_graph *g = training_graph(comm, mesh, batch);
    weft_store *store = weft_store_create();
    weft_program *p[2];
    double seconds[2][STEPS], busy[2][STEPS], exposed[2][STEPS];
    die(comm, weft_store_init(store, g, 1));
    for (int k = 0; k < 2; k++) {
        die(comm, weft_program_compile(g, &(weft_program_options){.mesh = mesh, .no_coalesce = k},
                                       &p[k]));
        weft_group *group;
        die(comm, weft_comm_world(comm, &group));
        die(comm, weft_program_bind(p[k], store, group));
        feed(p[k], g);
        die(comm, weft_program_run(p[k]));
    }
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < 2; k++) {
            die(comm, weft_comm_barrier(comm));
            const double start = weft_now();
            die(comm, weft_program_run(p[k]));
            seconds[k][i] = weft_now() - start;
            const weft_comm_times times = weft_program_comm_times(p[k]);
            busy[k][i] = times.busy;
            exposed[k][i] = times.exposed;
        }
    double ratio[STEPS];
    for (int i = 0; i < STEPS; i++)
        ratio[i] = seconds[0][i] / seconds[1][i];
    for (int k = 0; k < 2 && weft_comm_rank(comm) == 0; k++) {
        const double typical = median(seconds[k], STEPS);
        printf("| %d | %s | %d | %.2f | %.2f | %.2f | %.2f |\n", (int)batch, name[k],
               weft_program_comm_times(p[k]).requests, typical * 1e3, seconds[k][0] * 1e3,
               median(busy[k], STEPS) * 1e3, median(exposed[k], STEPS) * 1e3);
    }
    if (weft_comm_rank(comm) == 0)
        fprintf(stderr, "batch %2d: coalesced / single, median over pairs of steps: %.3f\n",
                (int)batch, median(ratio, STEPS));
    for (int k = 0; k < 2; k++)
        weft_program_free(p[k]);
    weft_store_free(store);
    weft_graph_free(g);
}

int main(int argc, char **argv)
{
    weft_comm *comm = NULL;
    const char *what = argc > 1 ? argv[1] : "";
    die(NULL, weft_comm_open_mpi(&comm));
    const weft_mesh mesh = {.axis_count = 1, .axis = {{"dp", weft_comm_ranks(comm)}}};
    const bool prints = weft_comm_rank(comm) == 0;
    if (prints && (!*what || !strcmp(what, "sums")))
        printf("| all-reduce KiB | waited for at once us | during compute us |\n|---|---|---|\n");
    if (!*what || !strcmp(what, "sums"))
        measure_sums(comm);
    if (prints && (!*what || !strcmp(what, "step")))
        printf(
            "\n| batch | all-reduces | messages | step ms | fastest step ms | exchange busy ms | "
            "exposed ms |\n|---|---|---|---|---|---|---|\n");
    if (!*what || !strcmp(what, "step"))
        for (int64_t batch = 2; batch <= 16; batch *= 8)
            measure_step(comm, &mesh, batch);
    weft_comm_free(comm);
    return 0;
}
