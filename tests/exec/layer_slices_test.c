/* Spatial and temporal layers in layer slices (layer_slices.c): the forward of small STDiT3 and
 * Latte models on ranks as threads. Frames, positions and samples do not divide evenly.
 *
 *   close    outputs with any number of slices: 1e-5 to one rank, 1e-6 to layers without slices
 *            (slices: off), because matrix products use other kernels for fewer rows
 *   bitwise  outputs of layers without slices on the backend ref, whose products do not
 *   less     bytes sent: one exchange of the activations between two layers, and nothing else */
#include "../model_of.h"
#include "../ranks_of.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"
#include "kernel/ref/table.h"
#include "transform/passes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { RANKS = 4, TEXT = 4, WIDTH = 6 };

static const char stdit[] =
    "{\"_class_name\":\"STDiT3\",\"hidden_size\":24,\"num_heads\":3,\"in_channels\":3,"
    "\"pred_sigma\":false,\"depth\":2,\"caption_channels\":6,\"input_sq_size\":32}";
static const char latte[] =
    "{\"_class_name\":\"LatteTransformer3DModel\",\"num_attention_heads\":3,"
    "\"attention_head_dim\":8,\"in_channels\":3,\"num_layers\":2,\"sample_size\":4,"
    "\"caption_channels\":6}";

/* Attention over all tokens, whose heads are exchanged by groups; the text's among them. */
static const char wan[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":10,"
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
    "\"ffn_dim\":22,\"num_layers\":2,\"patch_size\":[1,1,1],\"rope_max_seq_len\":16}";
static const char cogvideo[] =
    "{\"_class_name\":\"CogVideoXTransformer3DModel\",\"num_attention_heads\":8,"
    "\"attention_head_dim\":16,\"in_channels\":3,\"out_channels\":3,\"time_embed_dim\":8,"
    "\"text_embed_dim\":6,\"num_layers\":2,\"patch_size\":1,\"max_text_seq_length\":4,"
    "\"use_rotary_positional_embeddings\":true}";

typedef struct setting {
    const char *model, *mesh;
    int64_t batch, frames, height, width;
    bool mask; /* frames that are given: rows of their own in each layer */
    weft_comm_overlap slices;
    bool exact; /* f64 */
} setting;

typedef struct job {
    const setting *of;
    weft_mesh mesh;
    weft_comm *comm;
    int rank;
    float *out; /* the complete prediction */
    int64_t count, sent, arena, made[WEFT_MADE];
} job;

static float value_of(const char *name, uint64_t seed, int64_t index)
{
    const double normal = weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)index);
    if (!strcmp(name, "batch.x_mask"))
        return normal > 0;
    return (float)(!strcmp(name, "batch.timestep") ? 500 + 300 * tanh(normal)
                   : strncmp(name, "batch.", 6)    ? 0.3 * normal
                                                   : normal);
}

static weft_graph *whole_graph(const setting *s)
{
    const weft_model model = model_of(s->model);
    weft_graph *g = weft_graph_create();
    const weft_model_size size = {s->batch, s->frames, s->height, s->width, TEXT};
    weft_ports p = weft_ports_none();
    static const weft_port in[] = {WEFT_PORT_LATENTS, WEFT_PORT_TIMESTEP, WEFT_PORT_TEXT};
    for (int i = 0; i < WEFT_COUNT(in); i++)
        p.at[in[i]] = weft_model_input(g, &model, &size, in[i], "batch.");
    if (s->mask)
        p.at[WEFT_PORT_FRAME_MASK] =
            weft_model_input(g, &model, &size, WEFT_PORT_FRAME_MASK, "batch.");
    weft_model_call(g, &model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    weft_output(g, "sample", p.at[WEFT_PORT_PREDICTION]);
    return g;
}

static void fill(const weft_tensor *t)
{
    const weft_box own = weft_box_of(t), all = weft_box_whole(&t->whole);
    const int64_t count = weft_shape_count(&t->whole);
    float *whole = weft_alloc((count + 1) * (int64_t)sizeof *whole);
    uint64_t seed = 99;
    for (const char *c = t->name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    for (int64_t i = 0; i < count; i++)
        whole[i] = value_of(t->name, seed, i);
    weft_box_copy(&own, t->data, t->dtype, &all, whole, WEFT_F32);
    weft_free(whole);
}

static void fill_inputs(const weft_graph *g, weft_program *program)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_value v = weft_graph_node(g, n)->out[0];
        if (weft_graph_node(g, n)->op != WEFT_OP_INPUT)
            continue;
        weft_tensor t = weft_tensor_of(g, v);
        t.data = weft_program_input(program, weft_value_get(g, v)->name)->data;
        fill(&t);
    }
}

static weft_status_code forward(void *user)
{
    job *j = user;
    const weft_model model = model_of(j->of->model);
    weft_graph *g = whole_graph(j->of);
    weft_program *program = NULL;
    weft_recipe recipe = {0};
    weft_store *store = weft_store_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_recipe_compose(model.family->recipe, model.family->recipes, &j->mesh, &recipe));
    recipe.overlap = &j->of->slices;
    const weft_pass_setup setup = {.mesh = &j->mesh, .rank = j->rank, .recipe = &recipe};
    weft_graph *whole = g;
    WEFT_GO(weft_passes_run(WEFT_PASS_WHOLE, &setup, true, &g, NULL));
    weft_comm_overlap_count(whole, g, &recipe, j->made);
    if (g != whole)
        weft_graph_free(whole);
    WEFT_GO(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL));
    const weft_program_options options = {.backend = j->of->exact ? &weft_backend_ref : NULL,
                                          .mesh = &j->mesh,
                                          .guard = true,
                                          .threads = 1};
    WEFT_GO(weft_program_compile(g, &options, &program));
    WEFT_GO(weft_store_init(store, g, 7));
    weft_group *world = NULL;
    if (j->comm)
        WEFT_GO(weft_comm_world(j->comm, &world));
    WEFT_GO(weft_program_bind(program, store, world));
    for (int64_t t = 0; t < weft_store_count(store); t++)
        fill(weft_store_at(store, t));
    fill_inputs(g, program);
    WEFT_GO(weft_program_run(program));
    const weft_tensor *out = weft_program_output(program, "sample");
    j->count = weft_shape_count(&out->shape);
    j->out = weft_alloc(j->count * (int64_t)sizeof *j->out);
    memcpy(j->out, out->data, (size_t)j->count * sizeof *j->out);
    j->sent = weft_program_comm_times(program).wire_bytes;
    j->arena = weft_program_plan(program)->arena_bytes;
out:
    weft_program_free(program);
    weft_recipe_free(&recipe);
    weft_store_free(store);
    weft_graph_free(g);
    return status;
}

static int run(const setting *of, job *jobs)
{
    weft_mesh mesh;
    weft_comm *comm[RANKS];
    cr_assert_eq(weft_mesh_parse(of->mesh, &mesh), WEFT_OK, "%s", weft_error_message());
    const int ranks = weft_mesh_ranks(&mesh);
    cr_assert(ranks <= RANKS, "%s", of->mesh);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job){.of = of, .mesh = mesh, .comm = ranks > 1 ? comm[r] : NULL, .rank = r};
        weft_comm_set_deadline(comm[r], 120);
    }
    run_ranks(of->mesh, ranks, comm, forward, jobs, sizeof *jobs);
    return ranks;
}

static void end(job *jobs, int ranks)
{
    for (int r = 0; r < ranks; r++)
        weft_free(jobs[r].out);
}

static double distance(const job *a, const job *b)
{
    double worst = 0, largest = 0;
    cr_assert_eq(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        largest = fmax(largest, fabs((double)a->out[i]));
        worst = fmax(worst, fabs((double)a->out[i] - (double)b->out[i]));
        if (!(fabs((double)b->out[i]) < 1e9))
            return INFINITY;
    }
    return worst / largest;
}

#define SLICES(t, s, lt, ls)                                                                       \
    {                                                                                              \
        WEFT_COMM_OVERLAP_ON, t, s, lt, ls                                                         \
    }
static const weft_comm_overlap off = {.kind = WEFT_COMM_OVERLAP_OFF};

/* All slices of a setting compared with one rank and with unsliced layers, in f32 to `close`. */
static void compare_to(const char *model, const char *mesh, const int64_t size[4], bool mask,
                       double close)
{
    static const weft_comm_overlap slices[] = {SLICES(2, 2, 0, 0), SLICES(4, 4, 1, 3),
                                               SLICES(3, 2, 2, 1), SLICES(100, 100, 100, 100)};
    setting at = {model, "", size[0], size[1], size[2], size[3], mask, off, false};
    job one[RANKS], plain[RANKS], many[RANKS];
    for (int exact = 0; exact < 2; exact++) {
        at.slices = off;
        at.exact = exact;
        at.mesh = "";
        run(&at, one);
        at.mesh = mesh;
        const int ranks = run(&at, plain);
        for (int r = 0; r < ranks; r++)
            cr_expect(distance(one, &plain[r]) <= 1e-5, "%s, rank %d: off by %g", mesh, r,
                      distance(one, &plain[r]));
        for (int i = exact; i < WEFT_COUNT(slices); i += 1 + exact) {
            at.slices = slices[i];
            run(&at, many);
            for (int r = 0; r < ranks; r++)
                cr_expect(distance(&plain[r], &many[r]) <= (exact ? 0 : close),
                          "%s, %" PRId64 " x %" PRId64 " slices, rank %d: off by %g", mesh,
                          slices[i].time, slices[i].space, r, distance(&plain[r], &many[r]));
            end(many, ranks);
        }
        end(plain, ranks);
        end(one, 1);
    }
}

static void compare(const char *model, const char *mesh, const int64_t size[4], bool mask)
{
    compare_to(model, mesh, size, mask, 1e-6);
}

/* Unsliced layers compared with one rank. */
static void compare_plain(const char *model, const char *mesh, const int64_t size[4], bool mask)
{
    setting at = {model, "", size[0], size[1], size[2], size[3], mask, off, false};
    job one[RANKS], many[RANKS];
    run(&at, one);
    at.mesh = mesh;
    const int ranks = run(&at, many);
    for (int r = 0; r < ranks; r++)
        cr_expect(distance(one, &many[r]) <= 1e-5, "%s, rank %d: off by %g", mesh, r,
                  distance(one, &many[r]));
    end(one, 1);
    end(many, ranks);
}

Test(slices, frames_and_places_divide)
{
    compare(stdit, "cp=2", (int64_t[]){1, 8, 8, 8}, false);
    compare(latte, "cp=2", (int64_t[]){1, 8, 8, 8}, false);
}

Test(slices, samples_are_cut_too)
{
    compare(stdit, "cp=2", (int64_t[]){2, 16, 8, 8}, false);
    compare(latte, "cp=4", (int64_t[]){3, 8, 8, 8}, false);
}

Test(slices, nothing_divides)
{
    compare(stdit, "cp=2", (int64_t[]){2, 7, 6, 10}, true);
    compare(stdit, "cp=3", (int64_t[]){1, 5, 7, 9}, true);
    compare(stdit, "cp=4", (int64_t[]){2, 3, 2, 6}, false);
    compare(latte, "cp=3", (int64_t[]){2, 7, 6, 10}, false);
    compare(latte, "cp=4", (int64_t[]){1, 5, 2, 6}, false);
}

/* Groups of one frame cannot be sliced. */
Test(slices, a_picture)
{
    compare(stdit, "cp=2", (int64_t[]){2, 1, 6, 10}, false);
    compare(latte, "cp=2", (int64_t[]){1, 1, 6, 10}, false);
}

/* A rank has one frame or one position: such layers run on slices of the other kind of groups.
 * Bitwise in f64. In f32, attention of fewer queries also adds in other blocks: 1.3e-6 was
 * measured. */
Test(slices, fewer_groups_than_ranks)
{
    compare_to(stdit, "cp=4", (int64_t[]){1, 3, 8, 10}, true, 2e-6);
    compare_to(stdit, "cp=4", (int64_t[]){1, 9, 2, 6}, false, 2e-6);
    compare_to(latte, "cp=4", (int64_t[]){1, 4, 8, 8}, false, 2e-6);
}

Test(slices, few_frames_have_several_slices)
{
    static const char *const model[] = {stdit, latte};
    for (int m = 0; m < WEFT_COUNT(model); m++) {
        setting at = {model[m], "cp=4", 1, 3, 8, 10, false, SLICES(4, 4, 1, 3)};
        job many[RANKS], whole[RANKS];
        const int ranks = run(&at, many);
        cr_expect_gt(many[0].made[WEFT_MADE_TIME], 1);
        cr_expect_gt(many[0].made[WEFT_MADE_SPACE], 1);
        at.slices = off;
        run(&at, whole);
        for (int r = 0; r < ranks; r++) /* the last slice is filled up to a multiple of the ranks */
            cr_expect_leq(many[r].sent, whole[r].sent * 5 / 4, "%" PRId64 ", whole layers %" PRId64,
                          many[r].sent, whole[r].sent);
        end(many, ranks);
        end(whole, ranks);
    }
}

Test(slices, beside_other_axes)
{
    compare(stdit, "dp=2,cp=2", (int64_t[]){4, 7, 6, 10}, false);
    compare(stdit, "dp=2,cp=2", (int64_t[]){3, 7, 6, 10}, false);
    compare(stdit, "fsdp=2,cp=2", (int64_t[]){2, 7, 6, 10}, true);
    compare(latte, "cp=2,tp=2", (int64_t[]){2, 7, 6, 10}, false);
}

/* Positions are split in both kinds of layers; only samples are sliced. */
Test(slices, places_into_heads_or_round)
{
    static const char *const meshes[] = {"heads=2", "ring=2", "heads=3", "ring=3"};
    for (int m = 0; m < WEFT_COUNT(meshes); m++) {
        const bool even = m < 2;
        compare_plain(stdit, meshes[m], (int64_t[]){2, 5, even ? 8 : 6, even ? 8 : 10}, even);
        compare_plain(latte, meshes[m], (int64_t[]){1, 5, 8, even ? 8 : 6}, false);
    }
}

/* Between two layers each rank sends the activations that other ranks need once. */
Test(slices, sent_once)
{
    const setting at = {stdit, "cp=2", 2, 8, 8, 8, false, SLICES(4, 4, 1, 3)};
    job many[RANKS];
    const int ranks = run(&at, many);
    const int64_t activations = (int64_t)2 * 8 * 16 * 24 * 4;
    for (int r = 0; r < ranks; r++) /* the last has the prediction's 12 channels; it is gathered */
        cr_expect_eq(many[r].sent,
                     3 * activations / 4 + activations / 8 + 2 * 8 * 8 * 8 * 3 * 4 / 2, "%" PRId64,
                     many[r].sent);
    end(many, ranks);
}

/* ---- heads by groups, tokens by chunks ------------------------------------------------------ */

enum { HEADS, CHUNKS };

/* Head groups or token chunks are compared with a single exchange. Every head and row is computed
 * separately, so results are bitwise identical with ref, and with cpu if `bits`. Otherwise results
 * are close, because matrix products use other kernels for fewer rows. The bytes sent are equal if
 * the shards of the ranks are equal (a reduction of less than 100 bytes uses another algorithm).
 * `most`: number of groups or chunks that exist. */
static void compare_portions(const char *model, const char *mesh, const int64_t size[4], int what,
                             int64_t most, bool even, bool bits)
{
    static const int64_t wanted[] = {2, 3, 100};
    setting at = {model, "", size[0], size[1], size[2], size[3], false, off, false};
    job one[RANKS], plain[RANKS], many[RANKS];
    for (int exact = 0; exact < 2; exact++) {
        at.exact = exact;
        at.slices = weft_comm_overlap_default;
        at.mesh = "";
        run(&at, one);
        at.mesh = mesh;
        const int ranks = run(&at, plain);
        cr_expect_eq(plain[0].made[WEFT_MADE_HEADS] + plain[0].made[WEFT_MADE_CHUNKS], 0);
        for (int i = exact; i < WEFT_COUNT(wanted); i += 1 + exact) {
            *(what == HEADS ? &at.slices.heads : &at.slices.chunks) = wanted[i];
            run(&at, many);
            for (int r = 0; r < ranks; r++) {
                const int64_t made =
                    many[r].made[what == HEADS ? WEFT_MADE_HEADS : WEFT_MADE_CHUNKS];
                cr_expect_eq(made,
                             most == 0          ? 0
                             : wanted[i] < most ? wanted[i]
                                                : most,
                             "%s: %" PRId64 " of %" PRId64 " portions, %" PRId64 " asked for", mesh,
                             made, most, wanted[i]);
                cr_expect(distance(one, &many[r]) <= 1e-5, "%s, rank %d: off by %g", mesh, r,
                          distance(one, &many[r]));
                cr_expect(distance(&plain[r], &many[r]) <= (exact || bits ? 0 : 1e-6),
                          "%s, %" PRId64 " portions, rank %d: off by %g", mesh, wanted[i], r,
                          distance(&plain[r], &many[r]));
                cr_expect(!even || i == 2 || plain[r].sent == many[r].sent,
                          "%s, %" PRId64 " portions: %" PRId64 " for %" PRId64, mesh, wanted[i],
                          many[r].sent, plain[r].sent);
            }
            end(many, ranks);
        }
        end(plain, ranks);
        end(one, 1);
    }
}

Test(slices, heads_by_groups)
{
    compare_portions(wan, "cp=2", (int64_t[]){1, 4, 4, 4}, HEADS, 5, true, true);
    compare_portions(wan, "cp=3", (int64_t[]){2, 3, 5, 7}, HEADS, 3, false, true);
    compare_portions(wan, "cp=4", (int64_t[]){1, 3, 5, 7}, HEADS, 2, false, true);
    compare_portions(cogvideo, "cp=2", (int64_t[]){2, 3, 4, 6}, HEADS, 8, true, true);
    compare_portions(cogvideo, "cp=3", (int64_t[]){1, 3, 5, 7}, HEADS, 2, false, true);
}

Test(slices, heads_by_groups_beside_other_axes)
{
    compare_portions(wan, "dp=2,cp=2", (int64_t[]){3, 3, 5, 7}, HEADS, 10, false, true);
    compare_portions(wan, "tp=2,cp=2", (int64_t[]){1, 3, 5, 7}, HEADS, 2, false, true);
    compare_portions(wan, "sp=2,cp=2", (int64_t[]){1, 3, 5, 7}, HEADS, 0, true, true);
    compare_portions(wan, "ring=2,cp=2", (int64_t[]){1, 3, 5, 7}, HEADS, 0, true, true);
}

/* `sequence` (sp) needs tokens of equal parts. */
Test(slices, tokens_by_chunks)
{
    compare_portions(wan, "tp=2", (int64_t[]){1, 4, 4, 4}, CHUNKS, 64, true, false);
    compare_portions(wan, "tp=3", (int64_t[]){2, 3, 5, 7}, CHUNKS, 105, false, false);
    compare_portions(cogvideo, "tp=4", (int64_t[]){1, 3, 4, 6}, CHUNKS, 72, false, false);
    compare_portions(wan, "sp=2", (int64_t[]){2, 4, 4, 4}, CHUNKS, 32, true, false);
    compare_portions(wan, "sp=3", (int64_t[]){1, 3, 5, 7}, CHUNKS, 35, true, false);
    compare_portions(wan, "sp=2", (int64_t[]){1, 3, 5, 7}, CHUNKS, 0, true, true);
}

Test(slices, tokens_by_chunks_beside_other_axes)
{
    compare_portions(wan, "dp=2,tp=2", (int64_t[]){3, 3, 5, 7}, CHUNKS, 105, false, false);
    compare_portions(wan, "cp=2,tp=2", (int64_t[]){1, 3, 5, 7}, CHUNKS, 0, true, true);
}
