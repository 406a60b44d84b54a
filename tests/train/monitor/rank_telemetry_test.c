/* Rank telemetry is part of reductions that a step has anyway: the number of messages is that
 * without telemetry, on every mesh, with one and several batches per step. If any rank gets the
 * signal to stop, all ranks know after that step. Every rank has the timing of each rank, bitwise
 * as it was sent. */
#include "../../model_of.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "kernel/cpu/table.h"
#include "train/monitor/rank_telemetry.h"
#include "train/step/stage_programs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum { MAX_RANKS = 8, COUNTED = 2 };

typedef struct rank_job {
    weft_comm *comm;
    const weft_mesh *mesh;
    int ranks, accumulate;
    bool without;              /* no telemetry */
    int64_t messages;          /* that it sent in COUNTED steps */
    int exchanges;             /* of a step */
    bool heard[MAX_RANKS + 1]; /* in step s only rank s got the signal; in the last step no rank */
    bool asked, paced;         /* it was carried, and has the pace of every rank */
    char error[512];
} rank_job;

static weft_run_models models_of_run(void)
{
    weft_run_models models = {
        .autoencoder = model_of("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":8,"
                                "\"z_dim\":4,\"num_res_blocks\":1}"),
        .denoiser = model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_layers\":2,"
                             "\"num_attention_heads\":4,\"attention_head_dim\":12,"
                             "\"ffn_dim\":64,\"freq_dim\":32,\"in_channels\":4,"
                             "\"text_dim\":32}")};
    models.text = captions_of(&models.denoiser,
                              "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":32,\"num_heads\":2,"
                              "\"num_layers\":1,\"ffn_dim\":64,\"max_length\":16}");
    weft_run_models_connect(&models);
    return models;
}

static void feed(const weft_step *step)
{
    for (int32_t n = 0; n < weft_graph_node_count(step->graph); n++) {
        const weft_node *node = weft_graph_node(step->graph, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor *t =
            weft_program_input(step->program, weft_value_get(step->graph, node->out[0])->name);
        for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
            switch (t->dtype) {
            case WEFT_F32:
                ((float *)t->data)[i] =
                    strstr(t->name, "limit") ? INFINITY : 0.01f * (float)(i % 97) + 1e-3f;
                break;
            case WEFT_I32: ((int32_t *)t->data)[i] = (int32_t)(i % 200); break;
            default: ((int64_t *)t->data)[i] = i + 1;
            }
    }
}

static weft_step_timing pace_of(int rank)
{
    return (weft_step_timing){0.1f * (float)(rank + 1), 1.7f * (float)rank,
                              3e-4f / (float)(rank + 1)};
}

static bool has_all_paces(const rank_job *j, const float *news)
{
    bool same = true;
    for (int r = 0; r < j->ranks; r++) {
        const weft_step_timing pace = pace_of(r);
        same &= memcmp(news + 1 + 3 * r, &pace, sizeof pace) == 0;
    }
    return same;
}

static weft_status run_with_news(const weft_step *step, const float *from, float *news, bool *asked)
{
    const bool carried = weft_step_set_telemetry(step, from);
    WEFT_TRY(weft_program_run(step->program));
    *asked |= carried;
    if (carried)
        weft_step_get_telemetry(step, news);
    else if (news != from)
        memcpy(news, from, (1 + 3 * MAX_RANKS) * sizeof *news);
    return WEFT_OK;
}

/* Like the step of the trainer. */
static weft_status run_step(rank_job *j, const weft_stage_programs *s, bool told, bool *heard)
{
    float own[1 + 3 * MAX_RANKS] = {0}, news[1 + 3 * MAX_RANKS] = {0};
    const int rank = weft_comm_rank(j->comm);
    const weft_step_timing pace = pace_of(rank);
    memcpy(own + 1 + 3 * rank, &pace, sizeof pace);
    j->asked = false;
    for (int i = 0; i < j->accumulate; i++) {
        own[0] = told || news[0] > 0;
        WEFT_TRY(run_with_news(s->bucket[0], own, news, &j->asked));
    }
    if (s->update)
        WEFT_TRY(run_with_news(s->update, s->reduced_axes ? news : own, news, &j->asked));
    *heard = news[0] > 0;
    j->paced = has_all_paces(j, news);
    return WEFT_OK;
}

static weft_status train(rank_job *j, weft_compiled_steps *cache, weft_store *store)
{
    const weft_run run = {.noise.flow = {.logit_std = 1, .shift = 3},
                          .optimizer = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = 1}};
    const weft_run_models models = models_of_run();
    const weft_train_stage stage = {.steps = 1,
                                    .accumulate = j->accumulate,
                                    .size = {.batch = 4, .frames = 5, .height = 32, .width = 32}};
    const weft_exec_config place = {.comm = j->comm,
                                    .mesh = *j->mesh,
                                    .recipes = models.recipe,
                                    .recipe_count = models.recipes,
                                    .backend = &weft_backend_cpu,
                                    .telemetry_floats =
                                        j->without ? 0 : weft_rank_telemetry_floats(j->ranks)};
    weft_stage_programs s = {0};
    weft_status_code status = WEFT_OK;
    int64_t before, bytes;
    bool heard;
    WEFT_GO(weft_stage_programs_plan(cache, &run, &models, &stage, &place, &s));
    WEFT_GO(weft_compiled_steps_bind(cache, s.bucket, s.count, store, 1));
    for (int i = 0; i < s.count; i++)
        feed(s.bucket[i]);
    WEFT_GO(run_step(j, &s, false, &heard)); /* in the first, ranks compare their collectives */
    weft_comm_sent(j->comm, &before, &bytes);
    for (int i = 0; i < COUNTED; i++)
        WEFT_GO(run_step(j, &s, false, &heard));
    weft_comm_sent(j->comm, &j->messages, &bytes);
    j->messages -= before;
    for (int i = 0; i < s.count; i++)
        j->exchanges += (i < s.buckets ? j->accumulate : 1) *
                        weft_program_comm_times(s.bucket[i]->program).requests;
    for (int r = 0; r <= j->ranks && !j->without; r++)
        WEFT_GO(run_step(j, &s, r == weft_comm_rank(j->comm), &j->heard[r]));
out:
    weft_stage_programs_free(&s);
    return status;
}

static void *run_rank(void *argument)
{
    rank_job *j = argument;
    weft_compiled_steps *cache = weft_compiled_steps_create();
    weft_store *store = weft_store_create();
    if (train(j, cache, store) != WEFT_OK) {
        snprintf(j->error, sizeof j->error, "%.500s", weft_error_message());
        weft_comm_abort(j->comm);
    }
    weft_compiled_steps_free(cache);
    weft_store_free(store);
    return NULL;
}

static void run_mesh(const char *text, int accumulate, bool without, rank_job *job, int *ranks)
{
    weft_mesh mesh;
    weft_comm *comm[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    cr_assert_eq(weft_mesh_parse(text, &mesh), WEFT_OK);
    *ranks = weft_mesh_ranks(&mesh);
    cr_assert_eq(weft_comm_open_threads(*ranks, comm), WEFT_OK);
    for (int r = 0; r < *ranks; r++) {
        job[r] = (rank_job){.comm = comm[r],
                            .mesh = &mesh,
                            .ranks = *ranks,
                            .accumulate = accumulate,
                            .without = without};
        pthread_create(&thread[r], NULL, run_rank, &job[r]);
    }
    for (int r = 0; r < *ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < *ranks; r++) {
        weft_comm_free(comm[r]);
        cr_assert(!job[r].error[0], "%s, rank %d: %s", text, r, job[r].error);
    }
}

static void check_mesh(const char *text, int accumulate)
{
    rank_job with[MAX_RANKS], without[MAX_RANKS];
    int ranks;
    run_mesh(text, accumulate, true, without, &ranks);
    run_mesh(text, accumulate, false, with, &ranks);
    for (int r = 0; r < ranks; r++) {
        cr_expect(with[r].asked && with[r].paced, "%s, %d batches, rank %d: %s", text, accumulate,
                  r, with[r].asked ? "another timing of a rank" : "no timing was received");
        cr_expect_not(without[r].asked);
        cr_expect_eq(with[r].messages, without[r].messages,
                     "%s, %d batches, rank %d: %" PRId64 " messages, %" PRId64
                     " without the telemetry",
                     text, accumulate, r, with[r].messages, without[r].messages);
        cr_expect_eq(with[r].exchanges, without[r].exchanges);
        cr_expect_gt(with[r].messages, 0);
        for (int s = 0; s <= ranks; s++)
            cr_expect_eq(with[r].heard[s], s < ranks,
                         "%s, %d batches: rank %d got the signal, rank %d knows %d", text,
                         accumulate, s, r, with[r].heard[s]);
    }
    fprintf(stderr,
            "%s, %d batches a step: %d exchanges, %" PRId64 " messages a step with and without\n",
            text, accumulate, with[0].exchanges, with[0].messages / COUNTED);
}

Test(bulletin, one_axis)
{
    static const char *const mesh[] = {"dp=2", "fsdp=2", "tp=2", "cp=2", "dp=3"};
    for (int i = 0; i < WEFT_COUNT(mesh); i++)
        for (int accumulate = 1; accumulate <= 2; accumulate++)
            check_mesh(mesh[i], accumulate);
}

Test(bulletin, several_axes)
{
    static const char *const mesh[] = {"dp=2,cp=2", "dp=2,tp=2", "fsdp=2,tp=2", "fsdp=2,cp=2",
                                       "dp=2,fsdp=2,tp=2"};
    for (int i = 0; i < WEFT_COUNT(mesh); i++)
        for (int accumulate = 1; accumulate <= 2; accumulate++)
            check_mesh(mesh[i], accumulate);
}

/* An axis without reductions: telemetry has its own reduction, or another program sends it. */
Test(bulletin, axes_without_a_sum)
{
    weft_mesh mesh;
    uint32_t axes;
    weft_graph *g = weft_graph_create(), *made;
    cr_assert_eq(weft_mesh_parse("dp=2,tp=2", &mesh), WEFT_OK);
    weft_graph_set_mesh(g, &mesh, 1);
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SCALAR);
    weft_graph_set_layout(g, x, (weft_layout[WEFT_MAX_AXES]){{WEFT_P, 0}});
    x = weft_emit(g, WEFT_OP_ALL_REDUCE, &x, 1, &(weft_attr_comm){.axis = 0});
    weft_output(g, "y", x);
    cr_assert_eq(weft_graph_check(g), WEFT_OK);
    cr_assert_eq(weft_rank_telemetry_add(g, 4, 0, false, &axes, &made), WEFT_OK);
    cr_expect_eq(axes, 1);
    cr_expect_eq(weft_graph_node_count(made), weft_graph_node_count(g) + 2);
    weft_graph_free(made);
    cr_assert_eq(weft_rank_telemetry_add(g, 4, 0, true, &axes, &made), WEFT_OK);
    cr_expect_eq(axes, 3);
    cr_expect_eq(weft_graph_node_count(made), weft_graph_node_count(g) + 3);
    weft_graph_free(made);
    cr_assert_eq(weft_rank_telemetry_add(g, 4, 1, false, &axes, &made), WEFT_OK);
    cr_expect_eq(axes, 1);
    cr_expect_null(made);
    weft_graph_free(g);
}
