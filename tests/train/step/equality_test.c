/* Every layout trains like one rank: a small Wan DiT whose sizes do not divide (3 layers, 5 heads,
 * batches of 5, 3 x 5 x 7 latents), with the steps of `weft train` (train_step.h) and ranks as
 * threads. For each layout of the tables below:
 *
 *   close    losses and gradient norms of 5 steps, and all weights after them, to 1e-5 of one rank:
 *            the order of summation differs
 *   bitwise  the repeated run
 *   equal    bytes sent = bytes of the compiled exchanges */
#include "../../model_of.h"
#include "../../ranks_of.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "exec/store/tensor_copy.h"
#include "exec/store/tensor_shard.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/far/far.h"
#include "kernel/registry/backend.h"
#include "train/monitor/rank_telemetry.h"
#include "train/step/train_step.h"
#include "transform/passes.h"
#include "transform/sharding/mesh_config.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { RANKS = 8, STEPS = 5, BATCH = 5, CHANNELS = 3, TOKENS = 4, WIDTH = 6 };

static const char small[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":5,"
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
    "\"ffn_dim\":22,\"num_layers\":3,\"patch_size\":[1,1,1],\"rope_max_seq_len\":16}";

/* Five experts, two per token, and a shared one, in the second of two blocks. Either no token is
 * dropped, or scores are of groups and the capacity is three quarters of an even share, so that
 * many are dropped. */
#define MOE(more)                                                                                  \
    "{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_attention_heads\":5,"                    \
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8," \
    "\"ffn_dim\":22,\"num_layers\":3,\"patch_size\":[1,5,1],\"first_k_dense_replace\":1,"          \
    "\"num_activated_experts\":2,\"moe_intermediate_size\":9,\"n_shared_experts\":1" more "}"
static const char *const models[] = {
    small,
    MOE(",\"num_routed_experts\":5"),
    MOE(",\"num_routed_experts\":6,\"scoring_func\":\"sigmoid\",\"score_correction_bias\":true,"
        "\"n_group\":3,\"topk_group\":2,\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,"
        "\"capacity_factor\":0.75"),
    /* layers over frames and over places, in slices */
    "{\"_class_name\":\"STDiT3\",\"hidden_size\":24,\"num_heads\":3,\"in_channels\":3,"
    "\"pred_sigma\":false,\"depth\":2,\"caption_channels\":6,\"input_sq_size\":32}",
    "{\"_class_name\":\"LatteTransformer3DModel\",\"num_attention_heads\":3,"
    "\"attention_head_dim\":8,\"in_channels\":3,\"num_layers\":2,\"sample_size\":4,"
    "\"patch_size\":1,\"caption_channels\":6}",
    /* attention to the tokens of video and text at once */
    "{\"_class_name\":\"CogVideoXTransformer3DModel\",\"num_attention_heads\":3,"
    "\"attention_head_dim\":16,\"in_channels\":3,\"out_channels\":3,\"time_embed_dim\":8,"
    "\"text_embed_dim\":6,\"num_layers\":2,\"patch_size\":1,\"max_text_seq_length\":4,"
    "\"use_rotary_positional_embeddings\":true}",
    "{\"_class_name\":\"HunyuanVideoTransformer3DModel\",\"num_attention_heads\":3,"
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"num_layers\":1,"
    "\"num_single_layers\":1,\"num_refiner_layers\":1,\"text_embed_dim\":6,\"patch_size\":1,"
    "\"pooled_projection_dim\":5,\"rope_axes_dim\":[2,2,2]}",
};
enum { DENSE, DROPLESS, CAPACITY, STDIT, LATTE, COGVIDEO, HUNYUAN, MODELS };

static weft_graph *whole_graph(const weft_model *model)
{
    weft_graph *g = weft_graph_create();
    const weft_shape shape = WEFT_SHAPE(BATCH, 3, 5, 7, CHANNELS);
    const weft_value latents = weft_input(g, "batch.latents", WEFT_F32, shape);
    const weft_value time = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(BATCH));
    const weft_value text = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(BATCH, TOKENS, WIDTH));
    const weft_value target = weft_input(g, "batch.target", WEFT_F32, shape);
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_LATENTS] = latents;
    p.at[WEFT_PORT_TIMESTEP] = time;
    p.at[WEFT_PORT_TEXT] = text;
    static const weft_port more[] = {WEFT_PORT_POOLED, WEFT_PORT_GUIDANCE};
    const weft_model_size size = {BATCH, 3, 5, 7, TOKENS};
    for (int i = 0; i < WEFT_COUNT(more); i++)
        if (weft_model_takes(model, more[i]))
            p.at[more[i]] = weft_model_input(g, model, &size, more[i], "batch.");
    if (!strcmp(model->family->class_name,
                "HunyuanVideoTransformer3DModel")) /* the tokens of each text, without padding */
        p.at[WEFT_PORT_TEXT_MASK] =
            weft_input(g, "batch.mask", WEFT_F32, WEFT_SHAPE(BATCH, TOKENS));
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    const weft_value error = weft_sub(g, p.at[WEFT_PORT_PREDICTION], target);
    weft_value loss = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error));
    if (weft_value_ok(p.at[WEFT_PORT_BALANCE])) {
        loss = weft_add(g, loss, p.at[WEFT_PORT_BALANCE]);
        weft_output(g, "dropped", p.at[WEFT_PORT_DROPPED]);
    }
    weft_output(g, "objective", loss);
    return g;
}

/* ---- one run ------------------------------------------------------------------------------- */

typedef struct layout {
    const char *mesh;
    int zero;
    bool parts; /* gradients and update as two programs, two contributions a step */
    int model;
    int64_t heads, chunks; /* number of parts of an exchange; 0: one */
    bool tf32;
} layout;

typedef struct job {
    const layout *layout;
    const weft_backend *backend;
    weft_mesh mesh;
    weft_comm *comm;
    int rank;
    double loss[STEPS], norm[STEPS], dropped[STEPS];
    weft_store *store;
    int64_t planned_wire, sent; /* bytes, after the first step */
} job;

static double value_of(const char *name, int64_t index)
{
    uint64_t seed = 77;
    for (const char *c = name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    const double normal = weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)index);
    if (!strcmp(name, "batch.mask"))
        return index % TOKENS <= index / TOKENS % TOKENS;
    return strcmp(name, "batch.timestep") ? normal : 500 + 300 * tanh(normal);
}

/* The own part of the inputs of contribution `i`; both halves of a step are the same batch, so that
 * their mean is what one contribution has. */
static void fill(const weft_step *step, int64_t i)
{
    static const char *const names[] = {"batch.latents", "batch.timestep", "batch.text",
                                        "batch.target",  "batch.pooled",   "batch.guidance",
                                        "batch.mask"};
    for (int k = 0; k < WEFT_COUNT(names); k++) {
        const weft_value v = weft_graph_find(step->graph, names[k]);
        weft_tensor *to = weft_program_input(step->program, names[k]);
        if (!weft_value_ok(v) || !to)
            continue;
        const weft_tensor own = weft_tensor_of(step->graph, v);
        const weft_box part = weft_box_of(&own), all = weft_box_whole(&own.whole);
        const int64_t count = weft_shape_count(&own.whole);
        float *whole = weft_alloc(count * (int64_t)sizeof *whole);
        for (int64_t e = 0; e < count; e++)
            whole[e] = (float)value_of(names[k], e + 100000 * (i % 3));
        weft_box_copy(&part, to->data, to->dtype, &all, whole, WEFT_F32);
        weft_free(whole);
    }
}

static void set(const weft_step *step, const char *name, double value)
{
    weft_tensor *t = weft_program_input(step->program, name);
    if (t)
        *(float *)t->data = (float)value;
}

static void set_scalars(const weft_step *step, int64_t i)
{
    set(step, "optimizer.lr", 1e-3);
    set(step, "optimizer.step", (double)(i + 1));
    set(step, "optimizer.loss_limit", 1e9);
    set(step, "optimizer.norm_limit", 1e9);
    set(step, "optimizer.weight", 0.5);
}

static const weft_optimizer_config adamw = {.beta1 = 0.9,
                                            .beta2 = 0.99,
                                            .eps = 1e-3, /* else a step hides the gradient's size */
                                            .weight_decay = 0.01,
                                            .clip_norm = 0.5,
                                            .ema_decay = 0.9};

static weft_status run_step(job *j, const weft_step *work, const weft_step *update, int64_t i)
{
    const weft_step *last = update ? update : work;
    for (int half = 0; half < (update ? 2 : 1); half++) {
        fill(work, i);
        set_scalars(work, i);
        WEFT_TRY(weft_program_run(work->program));
        j->planned_wire += weft_program_comm_times(work->program).wire_bytes;
    }
    if (update) {
        set_scalars(update, i);
        WEFT_TRY(weft_program_run(update->program));
        j->planned_wire += weft_program_comm_times(update->program).wire_bytes;
    }
    j->loss[i] = weft_step_scalar(last, "loss");
    j->norm[i] = weft_step_scalar(last, "grad_norm");
    j->dropped[i] = weft_step_scalar(work, "dropped");
    return WEFT_OK;
}

static weft_status make_steps(job *j, weft_exec_config *place, weft_step *work, weft_step *update)
{
    const weft_model model = model_of(models[j->layout->model]);
    place->recipes = model.family->recipe;
    place->recipe_count = model.family->recipes;
    place->kind = j->layout->parts ? WEFT_STEP_GRADIENTS : WEFT_STEP_WHOLE;
    WEFT_TRY(weft_step_make(whole_graph(&model), &adamw, place, j->store, 7, work));
    if (!j->layout->parts)
        return WEFT_OK;
    const weft_optimizer_config own = weft_step_optimizer(&adamw, place);
    place->kind = WEFT_STEP_UPDATE;
    place->reduced_axes = work->reduced_axes;
    return weft_step_make(weft_optimizer_update((const weft_graph *[]){work->graph}, 1, &own),
                          &adamw, place, j->store, 7, update);
}

static weft_status_code train(void *user)
{
    job *j = user;
    weft_step work = {0}, update = {0};
    weft_comm_overlap slices = weft_comm_overlap_default;
    slices.heads = j->layout->heads;
    slices.chunks = j->layout->chunks;
    weft_exec_config place = {.comm = j->comm,
                              .mesh = j->mesh,
                              .backend = j->backend,
                              .zero = j->layout->zero,
                              .tf32_compute = j->layout->tf32,
                              .overlap = &slices,
                              .telemetry_floats =
                                  weft_rank_telemetry_floats(weft_mesh_ranks(&j->mesh))};
    weft_status_code status = make_steps(j, &place, &work, &update);
    int64_t messages, before = 0, after = 0;
    if (status == WEFT_OK)
        cr_assert_eq(weft_step_begin_averages(j->store), WEFT_OK);
    for (int64_t i = 0; i < STEPS && status == WEFT_OK; i++) {
        status = run_step(j, &work, j->layout->parts ? &update : NULL, i);
        weft_comm_sent(j->comm, &messages, &after);
        if (i == 0) { /* which also compared the lists of exchanges */
            before = after;
            j->planned_wire = 0;
        }
    }
    j->sent = after - before;
    if (work.program)
        weft_program_unbind(work.program);
    if (update.program)
        weft_program_unbind(update.program);
    if (status == WEFT_OK)
        status = weft_step_end_averages(j->layout->parts ? &update : &work, &place, j->store);
    weft_step_free(&work);
    weft_step_free(&update);
    return status;
}

static int run_on(const weft_backend *backend, const layout *l, job *jobs)
{
    weft_mesh mesh;
    weft_comm *comm[RANKS];
    cr_assert_eq(weft_mesh_parse(l->mesh, &mesh), WEFT_OK, "%s", weft_error_message());
    const int ranks = weft_mesh_ranks(&mesh);
    cr_assert(ranks <= RANKS, "%s", l->mesh);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job){.layout = l,
                        .backend = backend,
                        .mesh = mesh,
                        .comm = comm[r],
                        .rank = r,
                        .store = weft_store_create_on(backend->device)};
        weft_comm_set_deadline(comm[r], 120);
    }
    run_ranks(l->mesh, ranks, comm, train, jobs, sizeof *jobs);
    return ranks;
}

static int run(const layout *l, job *jobs)
{
    return run_on(&weft_backend_cpu, l, jobs);
}

static void end(job *jobs, int ranks)
{
    for (int r = 0; r < ranks; r++)
        weft_store_free(jobs[r].store);
}

/* ---- comparison ---------------------------------------------------------------------------- */

static job one[MODELS][2]; /* one rank, with one contribution a step and with two */

static const job *reference(int model, bool parts)
{
    static layout alone[MODELS][2];
    alone[model][parts] = (layout){"", 0, parts, model};
    if (!one[model][parts].store)
        run(&alone[model][parts], &one[model][parts]);
    return &one[model][parts];
}

/* Largest difference of a tensor, relative to its largest element. A tensor with a pending
 * reduction is not compared. */
static double distance(weft_store *whole, weft_store *many, const char **name)
{
    double worst = 0;
    for (int64_t t = 0; t < weft_store_count(many); t++) {
        const weft_tensor *part = weft_store_at(many, t), *all = weft_store_find(whole, part->name);
        const weft_box box = weft_box_of(part), full = weft_box_whole(&part->whole);
        const int64_t count = weft_shape_count(&part->shape);
        if (part->replica < 0 || count == 0)
            continue;
        const void *own;
        void *made;
        cr_assert_eq(weft_tensor_on_host(part, &own, &made), WEFT_OK);
        float *expected = weft_alloc(count * (int64_t)sizeof *expected);
        double largest = 1e-3;
        weft_box_copy(&box, expected, WEFT_F32, &full, all->data, all->dtype);
        for (int64_t i = 0; i < weft_shape_count(&all->shape); i++)
            largest = fmax(largest, fabs((double)((const float *)all->data)[i]));
        for (int64_t i = 0; i < count; i++) {
            const double off =
                fabs((double)((const float *)own)[i] - (double)expected[i]) / largest;
            if (!(off <= worst)) {
                worst = off;
                *name = part->name;
            }
        }
        weft_free(expected);
        weft_free(made);
    }
    return worst;
}

static bool same_bits(const job *a, const job *b)
{
    for (int64_t t = 0; t < weft_store_count(a->store); t++) {
        const weft_tensor *x = weft_store_at(a->store, t), *y = weft_store_find(b->store, x->name);
        const void *data[2];
        void *made[2];
        cr_assert_eq(weft_tensor_on_host(x, &data[0], &made[0]), WEFT_OK);
        cr_assert_eq(weft_tensor_on_host(y, &data[1], &made[1]), WEFT_OK);
        const int differ =
            memcmp(data[0], data[1], (size_t)weft_shape_count(&x->shape) * sizeof(float));
        weft_free(made[0]);
        weft_free(made[1]);
        if (differ)
            return false;
    }
    return !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm);
}

/* A device with memory of its own, with streams of other delays each time. */
static void compare_far(int model, bool parts, uint64_t seed)
{
    const layout l = {"", 0, parts, model};
    const job *alone = reference(model, parts);
    weft_backend *far;
    job other;
    cr_assert_eq(weft_backend_far_create(seed, &far), WEFT_OK);
    run_on(far, &l, &other);
    cr_expect(same_bits(alone, &other), "model %d on far, delays %d", model, (int)seed);
    end(&other, 1);
    weft_backend_far_free(far);
}

/* Ranks that each have such a device, against ranks on cpu. */
static void compare_far_ranks(const layout *l, uint64_t seed)
{
    job near[RANKS], distant[RANKS];
    weft_backend *far;
    const int ranks = run(l, near);
    cr_assert_eq(weft_backend_far_create(seed, &far), WEFT_OK);
    run_on(far, l, distant);
    for (int r = 0; r < ranks; r++) {
        cr_expect(same_bits(&near[r], &distant[r]), "%s zero %d on far, rank %d, delays %d",
                  l->mesh, l->zero, r, (int)seed);
        cr_expect_eq(near[r].sent, distant[r].sent);
    }
    end(near, ranks);
    end(distant, ranks);
    weft_backend_far_free(far);
}

static const double near = 1e-5; /* relative error of another order of sums */

static void compare(const layout *l)
{
    job many[RANKS], again[RANKS];
    const job *alone = reference(l->model, l->parts);
    const int ranks = run(l, many);
    run(l, again);
    for (int r = 0; r < ranks; r++) {
        const char *name = "";
        for (int s = 0; s < STEPS; s++) {
            cr_expect(fabs(many[r].loss[s] - alone->loss[s]) <= near * fabs(alone->loss[s]),
                      "%s zero %d, rank %d, step %d: loss %.9g, not %.9g", l->mesh, l->zero, r, s,
                      many[r].loss[s], alone->loss[s]);
            cr_expect(fabs(many[r].norm[s] - alone->norm[s]) <= near * fabs(alone->norm[s]),
                      "%s zero %d, rank %d, step %d: norm %.9g, not %.9g", l->mesh, l->zero, r, s,
                      many[r].norm[s], alone->norm[s]);
            cr_expect(fabs(many[r].dropped[s] - alone->dropped[s]) <= 1e-7,
                      "%s, rank %d, step %d: a share of %g dropped, not %g", l->mesh, r, s,
                      many[r].dropped[s], alone->dropped[s]);
        }
        const double off = distance(alone->store, many[r].store, &name);
        cr_expect(off <= near, "%s zero %d, rank %d: %s is off by %g", l->mesh, l->zero, r, name,
                  off);
        cr_expect(same_bits(&many[r], &again[r]), "%s zero %d, rank %d: other bits the second time",
                  l->mesh, l->zero, r);
        cr_expect_eq(many[r].sent, many[r].planned_wire,
                     "%s zero %d, rank %d: %" PRId64 " bytes sent, %" PRId64 " planned", l->mesh,
                     l->zero, r, many[r].sent, many[r].planned_wire);
    }
    end(many, ranks);
    end(again, ranks);
}

static void compare_all(const layout *l, int count)
{
    for (int i = 0; i < count; i++)
        compare(&l[i]);
    cr_assert(count > 0);
}
#define COMPARE(...)                                                                               \
    do {                                                                                           \
        const layout list[] = {__VA_ARGS__};                                                       \
        compare_all(list, (int)(sizeof list / sizeof *list));                                      \
    } while (0)

/* ---- layouts: the number after a mesh is zero: N over dp ------------------------------------ */

Test(equality, one_axis_of_two)
{
    COMPARE({"dp=2"}, {"fsdp=2"}, {"tp=2"}, {"sp=2"}, {"cp=2"}, {"ring=2"}, {"dp=2", 1},
            {"dp=2", 2});
}

Test(equality, one_axis_of_three)
{
    COMPARE({"dp=3"}, {"fsdp=3"}, {"tp=3"}, {"sp=3"}, {"cp=3"}, {"ring=3"}, {"dp=3", 1},
            {"dp=3", 2});
}

Test(equality, one_axis_of_four)
{
    COMPARE({"dp=4"}, {"fsdp=4"}, {"tp=4"}, {"sp=4"}, {"cp=4"}, {"ring=4"}, {"dp=4", 1},
            {"dp=4", 2});
}

/* Two contributions a step: sums of gradients are states, and the update is a program. */
Test(equality, contributions)
{
    COMPARE({"dp=3", 0, true}, {"dp=3", 1, true}, {"dp=3", 2, true}, {"fsdp=2,tp=2", 0, true},
            {"dp=2,fsdp=2", 2, true}, {"dp=2,tp=2", 2, true}, {"dp=2,ring=2", 1, true});
}

Test(equality, samples_and_one_axis)
{
    COMPARE({"dp=2,fsdp=2"}, {"dp=2,tp=2"}, {"dp=2,sp=2"}, {"dp=2,cp=2"}, {"dp=2,ring=2"},
            {"fsdp=2,tp=2"}, {"fsdp=2,sp=2"}, {"fsdp=2,cp=2"}, {"fsdp=2,ring=2"});
}

Test(equality, states_in_parts_and_one_axis)
{
    COMPARE({"dp=2,fsdp=2", 1}, {"dp=2,tp=2", 1}, {"dp=2,sp=2", 1}, {"dp=2,cp=2", 1},
            {"dp=2,ring=2", 1}, {"dp=2,fsdp=2", 2}, {"dp=2,tp=2", 2}, {"dp=2,sp=2", 2},
            {"dp=2,cp=2", 2}, {"dp=2,ring=2", 2});
}

Test(equality, two_axes_inside)
{
    COMPARE({"tp=2,cp=2"}, {"tp=2,ring=2"}, {"sp=2,cp=2"}, {"sp=2,ring=2"}, {"ring=2,cp=2"});
}

Test(equality, samples_and_one_axis_of_three)
{
    COMPARE({"dp=2,fsdp=3"}, {"dp=3,tp=2"}, {"dp=2,sp=3"}, {"dp=3,cp=2"}, {"dp=2,ring=3"},
            {"fsdp=3,tp=2"}, {"fsdp=2,sp=3"}, {"fsdp=3,cp=2"}, {"fsdp=2,ring=3"});
}

Test(equality, states_in_parts_and_one_axis_of_three)
{
    COMPARE({"dp=3,fsdp=2", 1}, {"dp=2,tp=3", 1}, {"dp=3,sp=2", 1}, {"dp=2,cp=3", 1},
            {"dp=3,ring=2", 1}, {"dp=2,fsdp=3", 2}, {"dp=3,tp=2", 2}, {"dp=2,sp=3", 2},
            {"dp=3,cp=2", 2}, {"dp=2,ring=3", 2});
}

Test(equality, two_axes_inside_of_three)
{
    COMPARE({"tp=3,cp=2"}, {"tp=2,ring=3"}, {"sp=3,cp=2"}, {"sp=2,ring=3"}, {"ring=3,cp=2"});
}

Test(equality, three_axes)
{
    COMPARE({"fsdp=2,cp=2,tp=2"}, {"dp=2,fsdp=2,tp=2", 1}, {"dp=2,ring=2,tp=2", 2},
            {"dp=2,cp=2,sp=2"});
}

/* ---- experts over ranks: tokens go to them and back ------------------------------------------ */

Test(equality, experts)
{
    COMPARE({"ep=2", .model = DROPLESS}, {"ep=3", .model = DROPLESS}, {"ep=4", .model = DROPLESS},
            {"ep=2", .parts = true, .model = DROPLESS}, {"ep=2", .model = CAPACITY},
            {"ep=3", .model = CAPACITY}, {"ep=4", .model = CAPACITY});
    for (int s = 0; s < STEPS; s++) {
        cr_expect_eq(reference(DROPLESS, false)->dropped[s], 0);
        cr_expect_gt(reference(CAPACITY, false)->dropped[s], 0.1);
    }
}

Test(equality, experts_and_one_axis)
{
    COMPARE({"dp=2,ep=2", .model = DROPLESS}, {"dp=2,ep=2", 1, .model = DROPLESS},
            {"dp=2,ep=2", 2, .model = DROPLESS}, {"fsdp=2,ep=2", .model = DROPLESS},
            {"ep=2,tp=2", .model = DROPLESS}, {"ep=2,sp=2", .model = DROPLESS},
            {"ep=2,cp=2", .model = DROPLESS}, {"ep=2,ring=2", .model = DROPLESS});
}

Test(equality, limited_experts_and_one_axis)
{
    COMPARE({"dp=2,ep=2", .model = CAPACITY}, {"fsdp=2,ep=2", .model = CAPACITY},
            {"ep=2,tp=2", .model = CAPACITY}, {"ep=2,sp=2", .model = CAPACITY},
            {"ep=2,cp=2", .model = CAPACITY}, {"ep=2,ring=2", .model = CAPACITY});
}

Test(equality, experts_and_one_axis_of_three)
{
    COMPARE({"dp=2,ep=3", .model = DROPLESS}, {"dp=3,ep=2", 1, .model = DROPLESS},
            {"dp=2,ep=3", 2, .model = CAPACITY}, {"fsdp=3,ep=2", .model = DROPLESS},
            {"fsdp=2,ep=3", .model = CAPACITY}, {"ep=3,tp=2", .model = DROPLESS},
            {"ep=2,sp=3", .model = CAPACITY}, {"ep=3,cp=2", .model = DROPLESS},
            {"ep=2,ring=3", .model = CAPACITY});
}

/* Without an axis of its own a mixture is split as other layers are. */
Test(equality, experts_on_all_ranks)
{
    COMPARE({"dp=2", .model = DROPLESS}, {"tp=2", .model = DROPLESS}, {"cp=2", .model = DROPLESS},
            {"fsdp=2", .model = CAPACITY}, {"tp=3", .model = CAPACITY},
            {"cp=2", .model = CAPACITY});
}

/* ---- spatial and temporal layers, in slices (layer_slices.c)
 * ------------------------------------ */

Test(equality, layers_in_slices)
{
    COMPARE({"cp=2", .model = STDIT}, {"cp=3", .model = LATTE}, {"cp=4", .model = STDIT},
            {"cp=2", .parts = true, .model = LATTE});
}

Test(equality, layers_in_slices_and_one_axis)
{
    COMPARE({"dp=2,cp=2", .model = STDIT}, {"dp=2,cp=2", 1, .model = LATTE},
            {"fsdp=2,cp=2", .model = STDIT}, {"cp=2,tp=2", .model = LATTE});
}

Test(equality, layers_over_frames_and_places_by_heads)
{
    COMPARE({"tp=2", .model = STDIT}, {"tp=3", .model = STDIT}, {"dp=2,tp=3", 1, .model = STDIT},
            {"cp=2,tp=3", .model = STDIT}, {"fsdp=2,tp=2", .model = STDIT},
            {"tp=3", .parts = true, .model = STDIT});
}

/* ---- keys of video and text, of which the video's go round ------------------------------------
 * */

Test(equality, joint_attention_by_ring)
{
    COMPARE({"ring=2", .model = COGVIDEO}, {"ring=3", .model = HUNYUAN},
            {"ring=2", .parts = true, .model = HUNYUAN}, {"dp=2,ring=2", 1, .model = COGVIDEO});
}

Test(equality, joint_attention_by_ring_and_one_axis)
{
    COMPARE({"ring=2,cp=2", .model = HUNYUAN}, {"ring=2,cp=3", .model = COGVIDEO},
            {"ring=2,tp=3", .model = HUNYUAN}, {"ring=2,sp=2", .model = COGVIDEO},
            {"fsdp=2,ring=2", .model = HUNYUAN});
}

static double flops_of_blocks(const weft_graph *g)
{
    double flops = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (strstr(weft_graph_node(g, n)->scope, "_blocks."))
            flops += (double)weft_node_cost(g, n).flops;
    return flops;
}

/* FLOPs of the blocks' forward on rank 0, as a share of those on one rank. */
static double share_of_work(int at, const char *axes)
{
    const weft_model model = model_of(models[at]);
    weft_mesh mesh;
    weft_recipe recipe;
    weft_graph *g = whole_graph(&model), *own;
    cr_assert_eq(weft_mesh_parse(axes, &mesh), WEFT_OK);
    cr_assert_eq(weft_recipe_compose(model.family->recipe, model.family->recipes, &mesh, &recipe),
                 WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < recipe.count; i++)
        ((weft_recipe_row *)(uintptr_t)recipe.row)[i].optional = true;
    const weft_pass_setup setup = {.mesh = &mesh, .recipe = &recipe};
    own = g;
    cr_assert_eq(weft_passes_run(WEFT_PASS_WHOLE, &setup, true, &own, NULL), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_passes_run(WEFT_PASS_RANK, &setup, false, &own, NULL), WEFT_OK);
    const double share = flops_of_blocks(own) / flops_of_blocks(g);
    weft_recipe_free(&recipe);
    weft_graph_free(own);
    weft_graph_free(g);
    return share;
}

/* A third for each rank, and the modulations, which every rank computes. */
Test(equality, ranks_share_the_work)
{
    cr_expect_lt(share_of_work(STDIT, "tp=3"), 0.4, "%g", share_of_work(STDIT, "tp=3"));
    cr_expect_lt(share_of_work(COGVIDEO, "ring=3"), 0.4, "%g", share_of_work(COGVIDEO, "ring=3"));
    cr_expect_lt(share_of_work(HUNYUAN, "ring=3"), 0.4, "%g", share_of_work(HUNYUAN, "ring=3"));
}

/* ---- heads by groups, tokens by chunks (shard.c) ----------------------------------------- */

Test(equality, exchanged_in_parts)
{
    COMPARE({"cp=2", .heads = 2}, {"cp=3", .heads = 3, .parts = true}, {"dp=2,cp=2", .heads = 2},
            {"tp=2", .chunks = 3}, {"sp=3", .chunks = 2}, {"tp=4", .chunks = 2, .parts = true},
            {"fsdp=2,tp=2", .chunks = 2});
}

/* ---- devices --------------------------------------------------------------------------------- */

/* The emulated GPU computes in f32, as `cpu` does: only the order of sums differs. */
Test(equality, cuda_is_close_to_cpu)
{
    const layout l = {"", 0, false, DENSE};
    const job *alone = reference(DENSE, false);
    job other;
    const char *worst = "";
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    cr_assert_eq(weft_backend_check(&weft_backend_cuda), WEFT_OK, "%s", weft_error_message());
    run_on(&weft_backend_cuda, &l, &other);
    for (int i = 0; i < STEPS; i++) {
        cr_expect(fabs(other.loss[i] - alone->loss[i]) <= near * alone->loss[i],
                  "step %d: loss %.9g, on cpu %.9g", i, other.loss[i], alone->loss[i]);
        cr_expect(fabs(other.norm[i] - alone->norm[i]) <= near * alone->norm[i],
                  "step %d: norm %.9g, on cpu %.9g", i, other.norm[i], alone->norm[i]);
    }
    const double far = distance(alone->store, other.store, &worst);
    cr_expect(far <= near, "%s: %.3g", worst, far);
    end(&other, 1);
}

/* `cpu` does not round operands to TF32. */
Test(equality, tf32_has_the_bits_of_f32_on_cpu)
{
    const layout l = {"", .tf32 = true};
    job other;
    run_on(&weft_backend_cpu, &l, &other);
    cr_expect(same_bits(reference(DENSE, false), &other));
    end(&other, 1);
}

Test(equality, far_has_the_bits_of_cpu)
{
    compare_far(DENSE, false, 1);
    compare_far(CAPACITY, true, 2);
}

/* Each axis, and pairs of axes. */
Test(equality, far_has_the_bits_of_cpu_on_several_ranks)
{
    static const layout list[] = {
        {"dp=2,tp=2"},         {"fsdp=2,cp=2", 0, true, .heads = 2}, {"ring=3"}, {"dp=2", 1},
        {"ep=2", 0, false, 1},
    };
    for (int i = 0; i < WEFT_COUNT(list); i++)
        compare_far_ranks(&list[i], 1 + (uint64_t)i);
}
