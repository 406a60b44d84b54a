/* Complete training steps of `weft train` (forward, backward, AdamW, EMA) allocate no memory of
 * weft, on one rank and on two. Allocations of libraries inside their own calls are counted
 * separately. */
#include "../model_of.h"
#include "allocations.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "kernel/cpu/table.h"
#include "train/step/train_step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 2, RUNS = 3 };

static weft_graph *objective(bool denoises)
{
    const weft_run run = {.loss = {.l1 = 1, .l2 = 1, .kl = 1e-4},
                          .noise.flow = {.logit_std = 1, .shift = 3}};
    const weft_bucket size = {.batch = 4, .frames = 5, .height = 32, .width = 32};
    weft_run_models models = {.autoencoder = model_of("{\"_class_name\":\"AutoencoderKLWan\","
                                                      "\"base_dim\":32,\"z_dim\":4,"
                                                      "\"num_res_blocks\":1}")};
    if (denoises) {
        models.denoiser =
            model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_layers\":2,"
                     "\"num_attention_heads\":2,\"attention_head_dim\":32,\"ffn_dim\":128,"
                     "\"freq_dim\":32,\"in_channels\":4,\"text_dim\":32}");
        models.text =
            captions_of(&models.denoiser, "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":32,"
                                          "\"num_heads\":2,\"num_layers\":1,\"ffn_dim\":64,"
                                          "\"max_length\":24}");
    }
    weft_run_models_connect(&models);
    weft_graph *g = weft_graph_create();
    weft_objective_build(g, &run, &models, &size);
    return g;
}

static void feed(const weft_step *step)
{
    for (int32_t n = 0; n < weft_graph_node_count(step->graph); n++) {
        const weft_node *node = weft_graph_node(step->graph, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor *t =
            weft_program_input(step->program, weft_value_get(step->graph, node->out[0])->name);
        const bool limit = strstr(t->name, "limit") != NULL;
        for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
            switch (t->dtype) {
            case WEFT_F32:
                ((float *)t->data)[i] = limit ? INFINITY : 0.01f * (float)(i % 97) + 1e-3f;
                break;
            case WEFT_I32: ((int32_t *)t->data)[i] = (int32_t)(i % 200); break;
            default: ((int64_t *)t->data)[i] = i + 1;
            }
    }
}

typedef struct trainer {
    bool denoises;
    weft_exec_config place;
    weft_store *store;
    weft_step step;
    weft_status_code status;
    pthread_barrier_t *barrier; /* all are warm; all are done */
} trainer;

static void *run_steps(void *argument)
{
    trainer *t = argument;
    for (int i = 0; i < 1 + RUNS; i++) {
        if (t->status == WEFT_OK)
            t->status = weft_program_run(t->step.program);
        if (i == 0) { /* the first lets libraries make their buffers and threads */
            pthread_barrier_wait(t->barrier);
            pthread_barrier_wait(t->barrier);
        }
    }
    pthread_barrier_wait(t->barrier);
    return NULL;
}

static void count_steps(bool denoises, int ranks)
{
    const weft_optimizer_config optimizer = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = 1, .ema_decay = 0.9};
    weft_comm *comm[MAX_RANKS] = {NULL};
    trainer t[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)ranks + 1);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        t[r] = (trainer){.denoises = denoises, .store = weft_store_create(), .barrier = &barrier};
        t[r].place = (weft_exec_config){.comm = comm[r],
                                        .backend = &weft_backend_cpu,
                                        .mesh = {.axis_count = 1, .axis = {{"dp", ranks}}}};
        cr_assert_eq(
            weft_step_make(objective(denoises), &optimizer, &t[r].place, t[r].store, 1, &t[r].step),
            WEFT_OK, "%s", weft_error_message());
        feed(&t[r].step);
    }
    for (int r = 0; r < ranks; r++)
        pthread_create(&thread[r], NULL, run_steps, &t[r]);
    pthread_barrier_wait(&barrier);
    allocations_begin();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    const allocations a = allocations_end();
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    const weft_comm_times times = weft_program_comm_times(t[0].step.program);
    for (int r = 0; r < ranks; r++) {
        cr_expect_eq(t[r].status, WEFT_OK);
        cr_expect(isfinite(weft_step_scalar(&t[r].step, "loss")) &&
                  weft_step_scalar(&t[r].step, "loss") > 0);
        weft_step_free(&t[r].step);
        weft_store_free(t[r].store);
    }
    for (int r = 0; r < ranks; r++)
        weft_comm_free(comm[r]);
    pthread_barrier_destroy(&barrier);
    fprintf(stderr,
            "%s on %d rank(s): %d runs, %d exchanges each, %ld allocations, %ld in libraries\n",
            denoises ? "DiT" : "VAE", ranks, RUNS, times.requests, a.own, a.others);
    cr_expect_eq(a.own, 0, "%ld allocations, the largest of %ld bytes", a.own, a.largest);
    cr_expect(ranks == 1 || times.requests > 0);
}

Test(step_memory, vae)
{
    count_steps(false, 1);
}

Test(step_memory, vae_on_two_ranks)
{
    count_steps(false, 2);
}

Test(step_memory, dit)
{
    count_steps(true, 1);
}

Test(step_memory, dit_on_two_ranks)
{
    count_steps(true, 2);
}
