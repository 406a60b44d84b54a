/* Programs on channels: reductions that only the update needs do not delay collectives of layers,
 * and a program that is bound to a group communicates inside the group only. */
#include "../model_of.h"
#include "comm/comm_fake.h"
#include "comm/link_model.h"
#include "exec/execute.h"
#include "exec/program_internal.h"
#include "exec/trace/run_trace.h"
#include "graph/builder_helpers.h"
#include "graph/trace.h"
#include "kernel/cpu/table.h"
#include "train/step/train_step.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

enum { RANKS = 5, ROWS = 4, WIDTH = 8, GRADIENT = 1 << 20 };

/* The mesh dp=2,tp=2 on four of five ranks, in an order of its own; rank 4 has no part. */
static const int members[] = {3, 0, 2, 1};

typedef struct rank_job {
    weft_comm *comm;
    int rank;
    double gather_end, sum_end; /* of the last run */
    int64_t messages;
    char error[400];
} rank_job;

/* A gradient of 4 MiB is all-reduced over dp. Then a layer gathers its input over dp and
 * multiplies; a small all-reduce over tp is in between. */
static weft_graph *build(const weft_mesh *mesh, int index)
{
    weft_graph *g = weft_graph_create();
    weft_graph_set_mesh(g, mesh, index);
    const weft_init zero = {WEFT_INIT_FILL, 0};
    const weft_value state = weft_state(g, "moment", WEFT_F32, WEFT_SHAPE(GRADIENT), zero),
                     gradient = weft_input(g, "gradient", WEFT_F32, WEFT_SHAPE(GRADIENT)),
                     x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(ROWS, WIDTH)),
                     w = weft_input(g, "w", WEFT_F32, WEFT_SHAPE(ROWS, WIDTH));
    const weft_value sum =
        weft_emit(g, WEFT_OP_ALL_REDUCE, &gradient, 1, &(weft_attr_comm){.axis = 0});
    const weft_value near = weft_emit(g, WEFT_OP_ALL_REDUCE, &x, 1, &(weft_attr_comm){.axis = 1});
    const weft_value all = weft_emit(g, WEFT_OP_ALL_GATHER, &near, 1,
                                     &(weft_attr_comm){.axis = 0, .global = 2 * ROWS});
    weft_output(g, "y", weft_matmul(g, all, w, false, true));
    weft_update(g, state, weft_affine(g, sum, 0.5, 0));
    return g;
}

static void fill(weft_tensor *t, float value)
{
    for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
        ((float *)t->data)[i] = value;
}

/* When the collectives of the last run ended. */
static weft_status read_ends(rank_job *j, const weft_program *p)
{
    weft_timeline t = weft_timeline_open(j->rank, RANKS);
    weft_status_code status = weft_timeline_add_program(&t, p);
    for (int64_t i = 0; i < t.trace.step_count; i++) {
        const weft_trace_step *s = &t.trace.step[i];
        if (s->kind == WEFT_TRACE_ALL_GATHER)
            j->gather_end = t.end[i];
        if (s->kind == WEFT_TRACE_ALL_REDUCE && s->bytes > 1e6)
            j->sum_end = t.end[i];
    }
    if (status == WEFT_OK)
        status = weft_trace_check(&t.trace);
    weft_timeline_free(&t);
    return status;
}

static weft_status run_program(rank_job *j, const weft_graph *g, weft_program *p, int index)
{
    weft_group *group;
    weft_store *store = weft_store_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_group(j->comm, members, 4, &group));
    WEFT_GO(weft_store_init(store, g, 1));
    WEFT_GO(weft_program_bind(p, store, group));
    fill(weft_program_input(p, "gradient"), (float)(1 + index));
    fill(weft_program_input(p, "x"), (float)(1 + index));
    fill(weft_program_input(p, "w"), 1);
    for (int run = 0; run < 2; run++)
        WEFT_GO(weft_program_run(p));
    WEFT_GO(read_ends(j, p));
    /* index = 2 dp + tp: over dp 0 + 2 or 1 + 3, over tp 0 + 1 or 2 + 3 */
    const float *moment = weft_store_find(store, "moment")->data,
                *y = weft_program_output(p, "y")->data;
    const float sum = 0.5f * (float)(index % 2 ? 2 + 4 : 1 + 3);
    for (int64_t i = 0; i < GRADIENT && status == WEFT_OK; i++)
        if (moment[i] != sum)
            WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "element %d is %g", (int)i,
                               (double)moment[i]));
    for (int r = 0; r < 2 * ROWS; r++) /* rows of dp 0, then rows of dp 1 */
        if (y[r * ROWS] != (float)(WIDTH * (r < ROWS ? 1 + 2 : 3 + 4)))
            WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "row %d is %g", r,
                               (double)y[r * ROWS]));
out:
    weft_program_unbind(p);
    weft_store_free(store);
    return status;
}

static void *rank_main(void *user)
{
    rank_job *j = user;
    weft_mesh mesh;
    int index = 0;
    while (index < 4 && members[index] != j->rank)
        index++;
    if (index < 4 && weft_mesh_parse("dp=2,tp=2", &mesh) == WEFT_OK) {
        weft_program *p = NULL;
        weft_graph *g = build(&mesh, index);
        const weft_program_options options = {.profile = true, .guard = true};
        weft_status_code status = weft_program_compile(g, &options, &p);
        if (status == WEFT_OK)
            status = run_program(j, g, p, index);
        if (status != WEFT_OK) {
            snprintf(j->error, sizeof j->error, "%.390s", weft_error_message());
            weft_comm_abort(j->comm);
        }
        weft_program_free(p);
        weft_graph_free(g);
    }
    int64_t bytes;
    weft_comm_sent(j->comm, &j->messages, &bytes);
    return NULL;
}

/* With 0.05 Gbit/s the gradient takes 0.8 s, longer than a rank waits for a core on a busy
 * machine. The gather starts after the gradient and ends before. */
Test(program_channel, a_slow_gradient_sum_holds_up_no_layer_and_no_other_rank)
{
    weft_comm *comm[RANKS];
    rank_job job[RANKS];
    pthread_t thread[RANKS];
    weft_link_model model;
    cr_assert_eq(weft_link_model_parse("0.05 Gbit/s, 50 us", &model), WEFT_OK);
    cr_assert_eq(weft_comm_open_threads_linked(RANKS, &model, comm), WEFT_OK);
    for (int r = 0; r < RANKS; r++) {
        job[r] = (rank_job){.comm = comm[r], .rank = r};
        weft_comm_set_deadline(comm[r], 60);
        pthread_create(&thread[r], NULL, rank_main, &job[r]);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        weft_comm_free(comm[r]);
        cr_expect_str_empty(job[r].error, "rank %d: %s", r, job[r].error);
        if (r < 4)
            cr_expect_lt(job[r].gather_end, job[r].sum_end, "rank %d: %g s and %g s", r,
                         job[r].gather_end, job[r].sum_end);
        cr_expect_eq(job[r].messages > 0, r < 4, "rank %d sent %d messages", r,
                     (int)job[r].messages);
    }
}

/* A complete training step with sharded parameters: their gathers are on the channel of layers,
 * also in the backward; gradient reductions are not. The predicted memory includes both scratch
 * areas. */
Test(program_channel, a_sharded_step_gathers_beside_its_gradients)
{
    const weft_run run = {.loss = {.l2 = 1}, .noise.flow = {.logit_std = 1, .shift = 3}};
    const weft_bucket size = {.batch = 4, .frames = 5, .height = 32, .width = 32};
    const weft_optimizer_config optimizer = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    weft_run_models models = {
        .autoencoder = model_of("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":32,"
                                "\"z_dim\":4,\"num_res_blocks\":1}"),
        .denoiser = model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_layers\":2,"
                             "\"num_attention_heads\":2,\"attention_head_dim\":32,\"ffn_dim\":128,"
                             "\"freq_dim\":32,\"in_channels\":4,\"text_dim\":32}")};
    weft_comm *comm[2];
    weft_step step;
    weft_store *store = weft_store_create();
    models.text = captions_of(&models.denoiser,
                              "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":32,\"num_heads\":2,"
                              "\"num_layers\":1,\"ffn_dim\":64,\"max_length\":24}");
    weft_run_models_connect(&models);
    weft_graph *g = weft_graph_create();
    weft_objective_build(g, &run, &models, &size);
    cr_assert_eq(weft_comm_open_threads(2, comm), WEFT_OK);
    const weft_exec_config place = {.comm = comm[0],
                                    .backend = &weft_backend_cpu,
                                    .mesh = {.axis_count = 1, .axis = {{"fsdp", 2}}}};
    cr_assert_eq(weft_step_make(g, &optimizer, &place, store, 1, &step), WEFT_OK, "%s",
                 weft_error_message());
    const weft_program *p = step.program;
    int gathers = 0, sums = 0;
    for (int32_t n = 0; n < weft_graph_node_count(p->compiled->graph); n++) {
        const weft_node *node = weft_graph_node(p->compiled->graph, n);
        gathers += node->op == WEFT_OP_ALL_GATHER && node->backward &&
                   p->compiled->channel[n] == WEFT_CHANNEL_LAYERS;
        if (node->op != WEFT_OP_REDUCE_SCATTER)
            continue;
        sums++;
        cr_expect_eq(p->compiled->channel[n], WEFT_CHANNEL_GRADIENTS, "node %d", (int)n);
    }
    cr_expect_gt(gathers, 0);
    cr_expect_gt(sums, 0);
    cr_expect_gt(p->compiled->areas.scratch_bytes[0][WEFT_CHANNEL_GRADIENTS], 0);
    cr_expect_geq(p->compiled->areas.shared_bytes,
                  p->compiled->plan.arena_bytes +
                      p->compiled->areas.scratch_bytes[0][WEFT_CHANNEL_LAYERS] +
                      p->compiled->areas.scratch_bytes[0][WEFT_CHANNEL_GRADIENTS]);
    weft_step_free(&step);
    weft_store_free(store);
    for (int r = 0; r < 2; r++)
        weft_comm_free(comm[r]);
}
