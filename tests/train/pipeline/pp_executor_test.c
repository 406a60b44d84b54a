/* Pipeline stages train like one rank, with every schedule and ranks as threads: a Wan DiT (7
 * layers, conditioning on every stage) and a U-ViT (long skips), with the steps of `weft train`.
 *
 *   close    losses, gradient norms of the steps and all weights after them, to 1e-5 of one rank
 *   bitwise  the repeated run
 *   equal    bytes that all ranks send for a microbatch: the closed forms of PULSE, V-B; with the
 *            sizes of its Table III on the backend `virtual`, whose messages are real and have no
 *            data */
#include "../../model_of.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "kernel/virtual/virtual.h"
#include "train/pipeline/pp_executor.h"
#include "train/step/train_step.h"
#include "transform/sharding/layer_chain.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum {
    RANKS = 16,
    STEPS = 8,
    PARTS = 4,
    BATCH = 2,
    SIDE = 6,
    CHANNELS = 3,
    WIDTH = 20,
    NETWORKS = 5
};

typedef struct network {
    const char *json;
    bool label; /* U-ViT's, in the place of a text */
    int64_t frames, side;
    int64_t activation; /* bytes that a block sends; U-ViT's */
    int reference;      /* index among the runs of one rank */
    bool pooled;        /* takes the pooled embedding of a text */
} network;

static const network wan = {
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":5,"
    "\"attention_head_dim\":4,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
    "\"ffn_dim\":22,\"num_layers\":7,\"patch_size\":[1,2,2],\"rope_max_seq_len\":16}",
    false,
    2,
    SIDE,
    0,
    0};
/* five experts, of which a token takes two, none dropped */
static const network moe = {
    "{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_attention_heads\":5,"
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
    "\"ffn_dim\":22,\"num_layers\":4,\"patch_size\":[1,2,2],\"first_k_dense_replace\":1,"
    "\"num_activated_experts\":2,\"moe_intermediate_size\":9,\"n_shared_experts\":1,"
    "\"num_routed_experts\":5}",
    false,
    2,
    SIDE,
    0,
    3};
/* four in blocks, one in the middle, four out blocks: four skips */
static const network uvit = {"{\"_class_name\":\"UViT\",\"img_size\":6,\"patch_size\":2,"
                             "\"in_chans\":3,\"embed_dim\":20,\"depth\":8,\"num_heads\":5,"
                             "\"mlp_ratio\":2,\"num_classes\":7,\"mlp_time_embed\":false}",
                             true,
                             1,
                             SIDE,
                             BATCH *(2 + SIDE * SIDE / 4) * WIDTH * 4,
                             1};
/* eight skips */
static const network deep = {"{\"_class_name\":\"UViT\",\"img_size\":6,\"patch_size\":2,"
                             "\"in_chans\":3,\"embed_dim\":20,\"depth\":16,\"num_heads\":5,"
                             "\"mlp_ratio\":2,\"num_classes\":7,\"mlp_time_embed\":false}",
                             true,
                             1,
                             SIDE,
                             BATCH *(2 + SIDE * SIDE / 4) * WIDTH * 4,
                             2};
/* SUV: stages of 1, 2, 3, 2 and 1 subsequences. The two skips, and what a block sends, are tokens of
 * the video (2 x 3 x 3) and of the text (4). */
static const network suv = {"{\"_class_name\":\"SparseUMMDiT\",\"num_heads\":2,\"head_dim\":16,"
                            "\"in_channels\":3,\"out_channels\":3,\"caption_channels\":6,"
                            "\"timestep_embed_dim\":8,\"pooled_projection_dim\":5,"
                            "\"num_layers\":[2,2,2,2,2],\"sparse_n\":[1,2,3,2,1]}",
                            false,
                            2,
                            SIDE,
                            BATCH *(2 * SIDE * SIDE / 4 + 4) * 32 * 4,
                            4,
                            true};
/* Open-Sora-Plan 1.5: 32 blocks in 7 stages, three skips; one frame of 16 x 16 latents */
static const network plan15 = {
    "{\"_class_name\":\"SparseUMMDiT\",\"in_channels\":3,\"out_channels\":3,\"caption_channels\":6,"
    "\"pooled_projection_dim\":5}",
    false,
    1,
    16,
    BATCH *(16 * 16 / 4 + 4) * 3072 * 4,
    -1,
    true};
/* PULSE, Table III: 2.7B parameters, 258 tokens of 2,048 */
static const network large = {
    "{\"_class_name\":\"UViT\",\"img_size\":32,\"patch_size\":2,\"in_chans\":3,\"embed_dim\":2048,"
    "\"depth\":48,\"num_heads\":32,\"mlp_ratio\":4,\"num_classes\":1001,\"mlp_time_embed\":false}",
    true,
    1,
    32,
    BATCH *(2 + 16 * 16) * 2048 * 4,
    -1};

typedef struct layout {
    const network *net;
    const char *mesh, *schedule;
    int64_t virtual_stages;
    const int64_t *cut; /* NULL: the partitioner's; -1: all units */
    int64_t tensors;    /* that all ranks send for a microbatch forward; 0: not compared */
    bool hollow;        /* nothing is computed: one step, of which bytes are counted */
    int zero;           /* level over dp */
} layout;

typedef struct job {
    const layout *layout;
    weft_mesh mesh;
    weft_comm *comm;
    double loss[STEPS], norm[STEPS];
    int64_t sent; /* bytes, by the stages in all steps */
    double now;   /* meta device: its clock */
    weft_store *store;
    char error[400];
} job;

static weft_graph *whole_graph(const network *net, const weft_model *model)
{
    weft_graph *g = weft_graph_create();
    const weft_shape shape = WEFT_SHAPE(BATCH, net->frames, net->side, net->side, CHANNELS);
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_LATENTS] = weft_input(g, "batch.latents", WEFT_F32, shape);
    p.at[WEFT_PORT_TIMESTEP] = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(BATCH));
    if (net->label)
        p.at[WEFT_PORT_LABEL] = weft_input(g, "batch.label", WEFT_I32, WEFT_SHAPE(BATCH));
    else
        p.at[WEFT_PORT_TEXT] = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(BATCH, 4, 6));
    if (net->pooled)
        p.at[WEFT_PORT_POOLED] = weft_input(g, "batch.pooled", WEFT_F32, WEFT_SHAPE(BATCH, 5));
    const weft_value target = weft_input(g, "batch.target", WEFT_F32, shape);
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, true, &p);
    const weft_value error = weft_sub(g, p.at[WEFT_PORT_PREDICTION], target);
    weft_output(g, "objective", weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error)));
    return g;
}

/* ---- inputs -------------------------------------------------------------------------------- */

static double value_of(const char *name, int64_t index)
{
    uint64_t seed = 5;
    for (const char *c = name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    const double normal = weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)index);
    return !strcmp(name, "batch.timestep") ? 500 + 300 * tanh(normal)
           : !strcmp(name, "batch.label")  ? floor(3 + 2 * tanh(normal))
                                           : normal;
}

/* The own part of an input, of microbatch `m` of step `i`. `like`: of the graph that was sharded.
 * */
static void fill(const weft_step *step, const char *name, weft_tensor *to, int64_t i, int64_t m)
{
    const weft_value v = weft_graph_find(step->graph, name);
    if (!to || !weft_value_ok(v))
        return;
    const weft_tensor own = weft_tensor_of(step->graph, v);
    const int64_t all = weft_shape_count(&own.whole), count = weft_shape_count(&own.shape),
                  first = own.start[0] * (all / own.whole.dim[0]); /* parts are of samples */
    for (int64_t e = 0; e < count; e++) {
        const double x = value_of(name, first + e + 10000 * (PARTS * (i % 3) + m));
        if (own.dtype == WEFT_I32)
            ((int32_t *)to->data)[e] = (int32_t)x;
        else
            ((float *)to->data)[e] = (float)x;
    }
}

static const char *const inputs[] = {"batch.latents", "batch.timestep", "batch.text",
                                     "batch.label",   "batch.pooled",   "batch.target"};

static void set(weft_tensor *t, double value)
{
    if (t)
        *(float *)t->data = (float)value;
}

static weft_status run_update(job *j, const weft_step *update, int64_t i)
{
    weft_program *p = update->program;
    set(weft_program_input(p, "optimizer.lr"), 1e-3);
    set(weft_program_input(p, "optimizer.step"), (double)(i + 1));
    set(weft_program_input(p, "optimizer.loss_limit"), 1e9);
    set(weft_program_input(p, "optimizer.norm_limit"), 1e9);
    WEFT_TRY(weft_program_run(p));
    j->loss[i] = weft_step_scalar(update, "loss");
    j->norm[i] = weft_step_scalar(update, "grad_norm");
    return WEFT_OK;
}

/* ---- one run ------------------------------------------------------------------------------- */

static const weft_optimizer_config adamw = {
    .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.01, .clip_norm = 0.5};

/* The programs of the steps: those of a bucket, and those after them. */
typedef struct programs {
    weft_step work, share, update;
    weft_pp_executor *stages;
} programs;

static weft_status run_step(job *j, programs *p, int64_t i)
{
    static const int bucket_of[PARTS] = {0};
    int64_t messages, before, after;
    for (int64_t m = 0; m < PARTS; m++) {
        weft_program *alone = p->work.program;
        for (int k = 0; k < WEFT_COUNT(inputs) && !j->layout->hollow; k++)
            fill(&p->work, inputs[k],
                 alone ? weft_program_input(alone, inputs[k])
                       : weft_pp_executor_input(p->stages, m, 0, inputs[k]),
                 i, m);
        set(alone ? weft_program_input(alone, "optimizer.weight")
                  : weft_pp_executor_input(p->stages, m, 0, "optimizer.weight"),
            1.0 / PARTS);
        if (alone)
            WEFT_TRY(weft_program_run(alone));
    }
    if (!p->work.program) {
        WEFT_TRY(weft_comm_barrier(j->comm));
        weft_comm_sent(j->comm, &messages, &before);
        WEFT_TRY(weft_pp_executor_step(p->stages, bucket_of));
        weft_comm_sent(j->comm, &messages, &after);
        j->sent += after - before;
        WEFT_TRY(weft_program_run(p->share.program));
    }
    return run_update(j, &p->update, i);
}

static weft_status bind(job *j, programs *p, const weft_pp_layout *pipe, weft_exec_config *place)
{
    weft_step *steps[3] = {&p->work, &p->update, &p->share};
    weft_program *list[16];
    weft_group *world;
    int count = 0;
    WEFT_TRY(weft_steps_fill(steps, pipe ? 3 : 2, place, j->store, 7));
    for (int i = 0; i < (pipe ? 3 : 2); i++)
        count += weft_step_programs(steps[i], list + count);
    WEFT_TRY(weft_comm_world(j->comm, &world));
    WEFT_TRY(weft_programs_bind(list, count, j->store, world));
    if (!pipe)
        return WEFT_OK;
    WEFT_TRY(weft_pp_executor_plan(pipe, &p->work.pp_step, 1, PARTS, &p->stages));
    return weft_pp_executor_bind(p->stages, world, &j->mesh);
}

/* Uses the cuts of the layout. */
static weft_status take_cuts(weft_pp_layout *pipe, const layout *l, const weft_graph *whole)
{
    weft_layer_chain chain;
    if (!pipe || !l->cut)
        return WEFT_OK;
    WEFT_TRY(weft_layer_chain_make(whole, "transformer", &chain));
    pipe->unit = weft_alloc((chain.units + 1) * (int64_t)sizeof *pipe->unit);
    for (int u = 0; u < chain.units; u++)
        pipe->unit[u] = weft_strdup(chain.unit[u].name);
    pipe->units = chain.units;
    for (int q = 0; q <= pipe->pp_stages; q++)
        pipe->cut[q] = l->cut[q] < 0 ? chain.units : l->cut[q];
    weft_layer_chain_free(&chain);
    return WEFT_OK;
}

static weft_status make(job *j, weft_pp_layout *pipe, weft_exec_config *place, programs *p)
{
    const weft_model model = model_of(j->layout->net->json);
    weft_graph *whole = whole_graph(j->layout->net, &model);
    const weft_graph *graphs[8];
    place->recipes = model.family->recipe;
    place->recipe_count = model.family->recipes;
    place->kind = WEFT_STEP_GRADIENTS;
    const weft_optimizer_config own = weft_step_optimizer(&adamw, place);
    WEFT_TRY(take_cuts(pipe, j->layout, whole));
    WEFT_TRY(weft_step_plan(whole, &adamw, place, &p->work));
    const int count = weft_step_graphs(&p->work, graphs);
    place->kind = WEFT_STEP_SHARE;
    if (pipe)
        WEFT_TRY(weft_step_plan(weft_optimizer_share(graphs, count), &adamw, place, &p->share));
    place->kind = WEFT_STEP_UPDATE;
    WEFT_TRY(weft_step_plan(weft_optimizer_update(graphs, count, &own), &adamw, place, &p->update));
    return bind(j, p, pipe, place);
}

static weft_status open_backend(job *j, weft_backend **made, const weft_backend **backend)
{
    const weft_virtual_rates rates = {.flops = 100e12, .bytes = 1e12, .scale = 1, .clock = &j->now};
    *backend = &weft_backend_cpu;
    if (j->layout->hollow) {
        WEFT_TRY(weft_backend_virtual_create(&rates, made));
        *backend = *made;
    }
    j->store = weft_store_create_on((*backend)->device);
    return WEFT_OK;
}

static void train(job *j)
{
    const weft_parallel config = {.schedule = j->layout->schedule,
                                  .virtual_stages = j->layout->virtual_stages};
    weft_pp_layout *pipe = NULL;
    programs p = {0};
    weft_backend *made = NULL;
    const weft_backend *backend;
    weft_status_code status = open_backend(j, &made, &backend);
    if (status == WEFT_OK)
        status = weft_pp_layout_open(&config, &j->mesh, weft_comm_rank(j->comm), "test", &pipe);
    weft_exec_config place = {.comm = j->comm,
                              .mesh = j->mesh,
                              .backend = backend,
                              .zero = j->layout->zero,
                              .pp = pipe,
                              .trunk = "transformer"};
    if (status == WEFT_OK)
        status = make(j, pipe, &place, &p);
    for (int64_t i = 0; i < (j->layout->hollow ? 1 : STEPS) && status == WEFT_OK; i++)
        status = run_step(j, &p, i);
    if (status != WEFT_OK) {
        snprintf(j->error, sizeof j->error, "%s", weft_error_message());
        weft_comm_abort(j->comm);
    }
    weft_pp_executor_free(p.stages);
    weft_step_free(&p.work);
    weft_step_free(&p.share);
    weft_step_free(&p.update);
    weft_pp_layout_free(pipe);
    if (made) { /* an empty store is not compared */
        weft_store_free(j->store);
        weft_backend_virtual_free(made);
    }
}

static void *run_rank(void *user)
{
    train(user);
    return NULL;
}

static int run(const layout *l, job *jobs)
{
    weft_mesh mesh;
    weft_comm *comm[RANKS];
    pthread_t thread[RANKS];
    cr_assert_eq(weft_mesh_parse(l->mesh, &mesh), WEFT_OK, "%s", weft_error_message());
    const int ranks = weft_mesh_ranks(&mesh);
    cr_assert(ranks <= RANKS, "%s", l->mesh);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job){.layout = l, .mesh = mesh, .comm = comm[r]};
        pthread_create(&thread[r], NULL, run_rank, &jobs[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        weft_comm_free(comm[r]);
        cr_assert_str_empty(jobs[r].error, "%s %s, rank %d: %s", l->mesh, l->schedule, r,
                            jobs[r].error);
    }
    return ranks;
}

/* ---- comparison ---------------------------------------------------------------------------- */

static const job *reference(const network *net)
{
    static job one[NETWORKS];
    static layout alone[NETWORKS];
    const int index = net->reference;
    if (!one[index].store) {
        alone[index] = (layout){.net = net, .mesh = "", .schedule = "1f1b"};
        run(&alone[index], &one[index]);
    }
    return &one[index];
}

/* Largest difference of this rank's tensors, relative to the largest element of the tensor;
 * *elements: those of the shards that the rank would write. */
static double distance(weft_store *whole, weft_store *many, int64_t *elements)
{
    double worst = 0;
    for (int64_t t = 0; t < weft_store_count(many); t++) {
        const weft_tensor *part = weft_store_at(many, t), *all = weft_store_find(whole, part->name);
        const int64_t count = weft_shape_count(&part->shape);
        if (part->replica < 0 || count == 0 || !strncmp(part->name, "grad.", 5))
            continue;
        cr_assert(all != NULL, "%s", part->name);
        const weft_box box = weft_box_of(part), full = weft_box_whole(&part->whole);
        float *expected = weft_alloc(count * (int64_t)sizeof *expected);
        double largest = 1e-3;
        weft_box_copy(&box, expected, WEFT_F32, &full, all->data, all->dtype);
        for (int64_t i = 0; i < weft_shape_count(&all->shape); i++)
            largest = fmax(largest, fabs((double)((const float *)all->data)[i]));
        for (int64_t i = 0; i < count; i++)
            worst = fmax(worst, fabs((double)((const float *)part->data)[i] - (double)expected[i]) /
                                    largest);
        weft_free(expected);
        *elements += weft_tensor_is_writer(part) ? count : 0;
    }
    return worst;
}

static int64_t elements_of(weft_store *store)
{
    int64_t elements = 0;
    for (int64_t t = 0; t < weft_store_count(store); t++)
        if (strncmp(weft_store_at(store, t)->name, "grad.", 5) != 0)
            elements += weft_shape_count(&weft_store_at(store, t)->shape);
    return elements;
}

static bool same_bits(const job *a, const job *b)
{
    for (int64_t t = 0; t < weft_store_count(a->store); t++) {
        const weft_tensor *x = weft_store_at(a->store, t), *y = weft_store_find(b->store, x->name);
        if (memcmp(x->data, y->data,
                   (size_t)(weft_shape_count(&x->shape) * weft_dtype_bytes(x->dtype))))
            return false;
    }
    return !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm);
}

static void compare(const layout *l)
{
    static const double near = 1e-5;
    job many[RANKS], again[RANKS];
    const job *alone = reference(l->net);
    const int ranks = run(l, many);
    int64_t written = 0, sent = 0;
    run(l, again);
    for (int r = 0; r < ranks; r++) {
        for (int s = 0; s < STEPS; s++) {
            cr_expect(fabs(many[r].loss[s] - alone->loss[s]) <= near * fabs(alone->loss[s]),
                      "%s %s, rank %d, step %d: loss %.9g, not %.9g", l->mesh, l->schedule, r, s,
                      many[r].loss[s], alone->loss[s]);
            cr_expect(fabs(many[r].norm[s] - alone->norm[s]) <= near * fabs(alone->norm[s]),
                      "%s %s, rank %d, step %d: norm %.9g, not %.9g", l->mesh, l->schedule, r, s,
                      many[r].norm[s], alone->norm[s]);
        }
        const double off = distance(alone->store, many[r].store, &written);
        cr_expect(off <= near, "%s %s, rank %d: weights are off by %g", l->mesh, l->schedule, r,
                  off);
        cr_expect(same_bits(&many[r], &again[r]), "%s %s, rank %d: other bits the second time",
                  l->mesh, l->schedule, r);
        sent += many[r].sent;
    }
    cr_expect_eq(written, elements_of(alone->store),
                 "%s %s: the ranks would write %" PRId64 " elements of %" PRId64, l->mesh,
                 l->schedule, written, elements_of(alone->store));
    if (l->tensors)
        cr_expect_eq(sent, 2 * l->tensors * l->net->activation * PARTS * STEPS,
                     "%s %s: %g tensors sent forward and back, not %" PRId64, l->mesh, l->schedule,
                     (double)sent / (double)(l->net->activation * PARTS * STEPS), 2 * l->tensors);
    for (int r = 0; r < ranks; r++) {
        weft_store_free(many[r].store);
        weft_store_free(again[r].store);
    }
}

static void compare_all(const layout *l, int count)
{
    for (int i = 0; i < count; i++)
        compare(&l[i]);
}
#define COMPARE(...)                                                                               \
    do {                                                                                           \
        const layout list[] = {__VA_ARGS__};                                                       \
        compare_all(list, (int)(sizeof list / sizeof *list));                                      \
    } while (0)

/* ---- layouts ------------------------------------------------------------------------------- */

Test(pipe, schedules_of_two)
{
    COMPARE({&wan, "pp=2", "gpipe"}, {&wan, "pp=2", "1f1b"}, {&wan, "pp=2", "interleaved"},
            {&wan, "pp=2", "wave"}, {&wan, "pp=2", "zero-bubble"});
}

Test(pipe, schedules_of_three_and_four)
{
    COMPARE({&wan, "pp=3", "1f1b"}, {&wan, "pp=3", "wave"}, {&wan, "pp=3", "zero-bubble"},
            {&wan, "pp=4", "gpipe"}, {&wan, "pp=2", "gpipe", 3}, {&wan, "pp=2", "zero-bubble", 2});
}

Test(pipe, beside_other_axes)
{
    COMPARE({&wan, "pp=2,dp=2", "1f1b"}, {&wan, "dp=2,pp=2", "wave"},
            {&wan, "pp=2,fsdp=2", "zero-bubble"}, {&wan, "pp=2,tp=2", "interleaved"},
            {&wan, "sp=2,pp=2", "1f1b"}, {&wan, "pp=2,cp=2", "wave"},
            {&wan, "pp=2,ring=2", "gpipe"}, {&wan, "pp=2,dp=2", "zero-bubble", .zero = 1},
            {&wan, "pp=2,dp=2", "wave", .zero = 2}, {&moe, "pp=2,ep=2", "1f1b"});
}

Test(pipe, beside_other_axes_of_three)
{
    COMPARE({&wan, "pp=3,dp=2", "1f1b"}, {&wan, "pp=2,tp=3", "wave"},
            {&wan, "pp=2,cp=3", "zero-bubble"}, {&wan, "pp=3,ring=2", "gpipe"},
            {&wan, "pp=3,fsdp=2", "1f1b"});
}

Test(pipe, beside_two_other_axes)
{
    COMPARE({&wan, "pp=2,dp=2,tp=2", "1f1b"}, {&wan, "dp=2,pp=2,cp=2", "wave", .zero = 1},
            {&wan, "pp=2,dp=2,fsdp=2", "zero-bubble"});
}

/* Every schedule with every axis, with two and three stages (interleaved takes multiples of that
 * number of microbatches); with WEFT_TEST_LONG in the environment (make test-long). */
Test(pipe, every_schedule_beside_every_axis)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "wave", "zero-bubble"};
    static const struct {
        const char *axis;
        int zero;
    } beside[] = {{"dp", 0}, {"dp", 1}, {"dp", 2},   {"fsdp", 0}, {"tp", 0},
                  {"sp", 0}, {"cp", 0}, {"ring", 0}, {"ep", 0}};
    if (!getenv("WEFT_TEST_LONG"))
        cr_skip_test("WEFT_TEST_LONG is not set");
    for (int s = 0; s < WEFT_COUNT(schedules); s++)
        for (int a = 0; a < WEFT_COUNT(beside); a++)
            for (int stages = 2; stages <= (PARTS % 3 && s == 2 ? 2 : 3); stages++) {
                char mesh[32];
                const bool ep = !strcmp(beside[a].axis, "ep");
                snprintf(mesh, sizeof mesh, "pp=%d,%s=2", stages, beside[a].axis);
                compare(&(layout){ep ? &moe : &wan, mesh, schedules[s], .zero = beside[a].zero});
            }
}

/* With one stage per rank, skips cross every border between their ends: (K + 4) D / 4 - 1 tensors
 * for D stages and K blocks with skips. The value from an in block to an in block on the next rank
 * is also a skip, and is sent once: D / 2 - 1 tensors less. With the folded schedule skips stay on
 * their rank: 2 (D - 1). */
Test(pipe, long_skips)
{
    static const int64_t two[] = {0, 5, -1}, four[] = {0, 2, 5, 7, -1},
                         eight[] = {0, 2, 4, 6, 9, 11, 13, 15, -1};
    enum { K = 8 };
    COMPARE({&uvit, "pp=2", "1f1b", 0, two, (K + 4) * 2 / 4 - 1 - 0},
            {&uvit, "pp=4", "1f1b", 0, four, (K + 4) * 4 / 4 - 1 - 1},
            {&uvit, "pp=2", "wave", 0, NULL, 2 * (2 - 1)},
            {&uvit, "pp=4", "wave", 0, NULL, 2 * (4 - 1)}, {&uvit, "pp=2", "zero-bubble"},
            {&uvit, "pp=2,dp=2", "wave"}, {&uvit, "pp=2", "interleaved"});
    COMPARE({&deep, "pp=8", "1f1b", 0, eight, (16 + 4) * 8 / 4 - 1 - 3},
            {&deep, "pp=8", "wave", 0, NULL, 2 * (8 - 1)});
}

/* SUV has 10 blocks, which read the skips in the first block of a stage, and the layers after the
 * blocks. In a row over two ranks, the border has an activation and both skips; over four ranks,
 * the borders have 1, 2 and 1 skips. Folded, both skips stay on their rank: 2 (D - 1) activations. */
Test(pipe, long_skips_of_video_and_text)
{
    static const int64_t two[] = {0, 5, -1}, four[] = {0, 3, 6, 8, -1};
    COMPARE({&suv, "pp=2", "1f1b", 0, two, 1 + 2}, {&suv, "pp=2", "wave", 0, NULL, 2 * (2 - 1)},
            {&suv, "pp=2", "zero-bubble"}, {&suv, "pp=2,dp=2", "wave"}, {&suv, "pp=2,tp=2", "wave"},
            {&suv, "pp=2,cp=2", "1f1b"}, {&suv, "pp=4", "1f1b", 0, four, 2 + 3 + 2},
            {&suv, "pp=4", "wave", 0, NULL, 2 * (4 - 1)});
}

static int64_t count_sent(const layout *l)
{
    job many[RANKS];
    int64_t sent = 0;
    const int ranks = run(l, many);
    for (int r = 0; r < ranks; r++)
        sent += many[r].sent;
    cr_expect_eq(sent, 2 * l->tensors * l->net->activation * PARTS,
                 "%s %s: %g tensors sent forward and back, not %" PRId64, l->mesh, l->schedule,
                 (double)sent / (double)(l->net->activation * PARTS), 2 * l->tensors);
    return sent;
}

/* The folded schedule sends at most 15 % of the bytes of blocks in a row. */
Test(pipe, long_skips_at_the_sizes_of_the_paper)
{
    enum { K = 48 };
    for (int d = 2; d <= 16; d *= 2) {
        int64_t cut[RANKS + 1];
        char mesh[16];
        snprintf(mesh, sizeof mesh, "pp=%d", d);
        for (int q = 0; q <= d; q++) /* the middle block ends the first half */
            cut[q] = q == d ? -1 : q * K / d + (q >= d / 2);
        const int64_t row = count_sent(
            &(layout){&large, mesh, "1f1b", 0, cut, (K + 4) * d / 4 - 1 - (d / 2 - 1), true});
        const int64_t folded =
            count_sent(&(layout){&large, mesh, "wave", 0, NULL, 2 * (d - 1), true});
        cr_expect_leq((double)folded, 0.15 * (double)row, "%d stages: %g of it", d,
                      (double)folded / (double)row);
    }
}

/* At the sizes of Open-Sora-Plan 1.5 a skip leaves blocks 1, 5 and 11 and enters blocks 30, 26 and
 * 20. Stages in a row send a skip over every border between both; the one of block 11 is also the
 * activation at the border after this block. The folded schedule sends half of the bytes with two
 * ranks and two thirds with eight. */
Test(pipe, skips_of_suv_at_the_published_sizes)
{
    static const struct {
        const char *mesh;
        int64_t cut[9], row, folded;
    } rows[] = {
        {"pp=2", {0, 16, -1}, 1 + 3, 2},
        {"pp=4", {0, 8, 16, 24, -1}, 3 + (3 + 3 + 1), 6},
        {"pp=8", {0, 4, 8, 12, 16, 20, 24, 28, -1}, 7 + (7 + 5 + 2), 14},
    };
    for (int i = 0; i < WEFT_COUNT(rows); i++) {
        count_sent(&(layout){&plan15, rows[i].mesh, "1f1b", 0, rows[i].cut, rows[i].row, true});
        count_sent(&(layout){&plan15, rows[i].mesh, "wave", 0, NULL, rows[i].folded, true});
    }
}
