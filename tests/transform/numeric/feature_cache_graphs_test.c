/* Programs of steps that reuse the cached residuals of an earlier step (feature_cache_graphs.h),
 * for models of every family. Refreshing is bitwise the model. Reusing a residual immediately is
 * the model to rounding. Skipped blocks are not computed. Signals are those that the rules expect.
 * */
#include "../../denoisers_of.h"
#include "transform/numeric/feature_cache_graphs.h"

#include "base/rng.h"
#include "exec/execute.h"
#include "graph/dump.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

/* clang-format off */
/* Models whose blocks are not residual. */
static const example others[] = {
    {"{\"_class_name\":\"UViT\",\"img_size\":4,\"embed_dim\":8,\"depth\":2,\"num_heads\":2,"
     "\"in_chans\":2,\"clip_dim\":3,\"num_clip_token\":3,\"mlp_time_embed\":true}",
     {2, 1, 4, 4, 3}, 0, 0, false},
    {"{\"_class_name\":\"UNet2DConditionModel\",\"down_block_types\":[\"CrossAttnDownBlock2D\","
     "\"DownBlock2D\"],\"up_block_types\":[\"UpBlock2D\",\"CrossAttnUpBlock2D\"],"
     "\"block_out_channels\":[4,6],\"layers_per_block\":1,\"norm_num_groups\":2,"
     "\"in_channels\":2,\"out_channels\":2,\"cross_attention_dim\":3,\"attention_head_dim\":2}",
     {2, 1, 4, 3, 3}, 0, 0, false},
    {"{\"_class_name\":\"SparseUMMDiT\",\"num_heads\":2,\"head_dim\":16,\"in_channels\":2,"
     "\"out_channels\":2,\"num_layers\":[2,2,2],\"sparse_n\":[1,2,1],"
     "\"timestep_embed_dim\":4,\"caption_channels\":5,\"pooled_projection_dim\":3}",
     {2, 2, 4, 8, 4}, 0, 0, false},
};
/* clang-format on */

enum { FULL, PROBE, REFRESH, REUSE, PROGRAMS };

/* The model and its programs over one store, and records of their states. */
typedef struct bench {
    weft_graph *g;
    weft_feature_cache_programs r;
    weft_program *program[PROGRAMS];
    weft_store *store;
    struct {
        const char *name;
        void *data;
    } room[512];
    int rooms;
} bench;

static void fill_params(weft_store *store)
{
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *t = weft_store_at(store, i);
        const bool norm = strstr(t->name, "norm") && strstr(t->name, ".weight");
        for (int64_t k = 0; t->dtype == WEFT_F32 && k < weft_shape_count(&t->shape); k++)
            ((float *)t->data)[k] =
                norm + 0.3f * weft_random_normal((uint64_t)i, WEFT_RNG_TEST, (uint64_t)k);
    }
}

/* `time`: timestep of the trajectory; latents depend on it. */
static void fill_inputs(const bench *b, weft_program *p, double time)
{
    for (int32_t n = 0; n < weft_graph_node_count(b->g); n++) {
        const weft_node *node = weft_graph_node(b->g, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        const char *name = weft_value_get(b->g, node->out[0])->name;
        weft_tensor *t = weft_program_input(p, name);
        for (int64_t k = 0; t && k < weft_shape_count(&t->shape); k++)
            if (t->dtype == WEFT_I32)
                ((int32_t *)t->data)[k] = k % 5 < 3;
            else if (!strcmp(name, "batch.timestep"))
                ((float *)t->data)[k] = (float)(1000 * time);
            else
                ((float *)t->data)[k] =
                    weft_random_normal(strlen(name), WEFT_RNG_TEST, (uint64_t)k) *
                    (strcmp(name, "batch.latents") ? 1 : (float)(0.5 + time));
    }
}

static void point(bench *b, weft_program *p)
{
    int count;
    weft_tensor *slot = weft_program_slots(p, &count);
    for (int i = 0; i < count; i++) {
        int at = 0;
        while (at < b->rooms && strcmp(b->room[at].name, slot[i].name))
            at++;
        if (at == b->rooms) {
            cr_assert_lt(b->rooms, 512);
            b->room[b->rooms].name = slot[i].name;
            b->room[b->rooms++].data = weft_alloc_aligned(weft_shape_count(&slot[i].shape) * 4);
        }
        slot[i].data = b->room[at].data;
    }
    weft_program_set_slots(p);
}

static void open_bench(bench *b, const example *s, weft_feature_cache_kind what,
                       weft_feature_cache_signal signal, int front)
{
    const weft_feature_cache_programs_setup setup = {"batch.latents", "batch.timestep", what,
                                                     signal, front};
    *b = (bench){.g = denoiser_graph(s), .store = weft_store_create()};
    cr_assert_eq(weft_pass_feature_cache(b->g, &setup, &b->r), WEFT_OK, "%.50s: %s", s->config,
                 weft_error_message());
    cr_expect_eq(b->r.probe != NULL, signal != WEFT_SIGNAL_NONE);
    const weft_graph *graph[] = {b->g, b->r.probe, b->r.refresh, b->r.reuse};
    weft_program *list[PROGRAMS];
    int count = 0;
    cr_assert_eq(weft_store_init(b->store, b->g, 3), WEFT_OK);
    fill_params(b->store);
    for (int i = 0; i < PROGRAMS; i++) {
        if (!graph[i])
            continue;
        cr_assert_eq(weft_graph_verify(graph[i]), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(
            weft_program_compile(graph[i], &(weft_program_options){.threads = 1}, &b->program[i]),
            WEFT_OK, "%s", weft_error_message());
        list[count++] = b->program[i];
    }
    cr_assert_eq(weft_programs_bind(list, count, b->store, NULL), WEFT_OK, "%s",
                 weft_error_message());
}

static void close_bench(bench *b)
{
    for (int i = 0; i < PROGRAMS; i++)
        weft_program_free(b->program[i]);
    for (int i = 0; i < b->rooms; i++)
        weft_free(b->room[i].data);
    weft_store_free(b->store);
    weft_feature_cache_programs_free(&b->r);
    weft_graph_free(b->g);
}

/* Runs a step of program `which` and returns its prediction (heap). */
static float *step(bench *b, int which, double time)
{
    if (b->program[PROBE] && which != FULL) {
        fill_inputs(b, b->program[PROBE], time);
        point(b, b->program[PROBE]);
        cr_assert_eq(weft_program_run(b->program[PROBE]), WEFT_OK, "%s", weft_error_message());
    }
    fill_inputs(b, b->program[which], time);
    point(b, b->program[which]);
    cr_assert_eq(weft_program_run(b->program[which]), WEFT_OK, "%s", weft_error_message());
    const weft_tensor *t = weft_program_output(b->program[which], "prediction");
    const int64_t bytes = weft_shape_count(&t->shape) * 4;
    float *copy = weft_alloc(bytes);
    memcpy(copy, t->data, (size_t)bytes);
    return copy;
}

static double apart(const bench *b, const float *x, const float *y)
{
    const weft_value v = weft_graph_find(b->g, "prediction");
    double sum = 0, norm = 0;
    for (int64_t i = 0; i < weft_shape_count(&weft_value_get(b->g, v)->shape); i++) {
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)y[i] * y[i];
    }
    return sqrt(sum / norm);
}

static int count_attention(const weft_graph *g)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == WEFT_OP_ATTENTION;
    return count;
}

static void check_steps(const example *s, weft_feature_cache_kind what,
                        weft_feature_cache_signal signal, int front)
{
    bench b;
    open_bench(&b, s, what, signal, front);
    cr_expect_eq(b.r.blocks, s->blocks, "%.50s: %d blocks", s->config, b.r.blocks);
    cr_expect_eq(b.r.left, what == WEFT_FEATURE_CACHE_ATTENTION ? s->attentions : s->blocks - front,
                 "%.50s: %d skipped", s->config, b.r.left);
    cr_expect(count_attention(b.r.reuse) <
                  count_attention(b.r.refresh) + (b.r.probe ? count_attention(b.r.probe) : 0),
              "%.50s", s->config);
    float *full = step(&b, FULL, 0.8), *refreshed = step(&b, REFRESH, 0.8),
          *again = step(&b, REUSE, 0.8), *later = step(&b, FULL, 0.7999),
          *reused = step(&b, REUSE, 0.7999);
    cr_expect_eq(apart(&b, refreshed, full), 0, "%.50s: refreshed is %g apart", s->config,
                 apart(&b, refreshed, full));
    cr_expect_lt(apart(&b, again, full), 1e-6, "%.50s: %g", s->config, apart(&b, again, full));
    /* a little later it is near, and not the same */
    cr_expect(apart(&b, reused, later) > 1e-7 && apart(&b, reused, later) < 0.5, "%.50s: %g",
              s->config, apart(&b, reused, later));
    weft_free(full);
    weft_free(refreshed);
    weft_free(again);
    weft_free(later);
    weft_free(reused);
    close_bench(&b);
}

Test(reuse, blocks_of_every_family)
{
    for (int i = 0; i < DENOISERS_OF; i++) {
        check_steps(&denoisers_of[i], WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_NONE, 0);
        check_steps(&denoisers_of[i], WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_NONE, 2);
    }
}

Test(reuse, attention_of_every_family)
{
    for (int i = 0; i < DENOISERS_OF; i++)
        check_steps(&denoisers_of[i], WEFT_FEATURE_CACHE_ATTENTION, WEFT_SIGNAL_NONE, 0);
}

Test(reuse, signals_of_every_family)
{
    for (int i = 0; i < DENOISERS_OF; i++) {
        check_steps(&denoisers_of[i], WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_BLOCK, 1);
        check_steps(&denoisers_of[i], WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_INPUT, 0);
        if (denoisers_of[i].told)
            check_steps(&denoisers_of[i], WEFT_FEATURE_CACHE_BLOCKS, WEFT_SIGNAL_TIME, 0);
    }
}

static double sum_of(const bench *b, const char *name)
{
    const weft_tensor *t = weft_program_output(b->program[PROBE], name);
    double sum = 0;
    for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
        sum += (double)((float *)t->data)[i];
    return sum;
}

static void *room_of(const bench *b, const char *name)
{
    for (int i = 0; i < b->rooms; i++)
        if (!strcmp(b->room[i].name, name))
            return b->room[i].data;
    cr_assert_fail("no state %s", name);
    return NULL;
}

/* The sums are those of the states, and grow with the distance in time. */
Test(reuse, what_has_moved_is_measured)
{
    for (int signal = WEFT_SIGNAL_BLOCK; signal <= WEFT_SIGNAL_TIME; signal++) {
        bench b;
        open_bench(&b, &denoisers_of[0], WEFT_FEATURE_CACHE_BLOCKS,
                   (weft_feature_cache_signal)signal, 0);
        weft_free(step(&b, REFRESH, 0.8));
        int count;
        const weft_tensor *slot = weft_program_slots(b.program[PROBE], &count);
        int64_t floats = 0;
        for (int i = 0; i < count; i++)
            if (!strcmp(slot[i].name, "reuse.now"))
                floats = weft_shape_count(&slot[i].shape);
        float *now = room_of(&b, "reuse.now"), *before = room_of(&b, "reuse.before");
        double size = 0, last = 0;
        for (int64_t i = 0; i < floats; i++) {
            before[i] = now[i];
            size += fabs((double)now[i]);
        }
        for (int k = 0; k < 4; k++) {
            weft_free(step(&b, REUSE, 0.8 - 0.0001 * k));
            double moved = 0;
            for (int64_t i = 0; i < floats; i++)
                moved += fabs((double)now[i] - before[i]);
            cr_expect_float_eq(sum_of(&b, "reuse.size"), size, 1e-5 * size);
            cr_expect_float_eq(sum_of(&b, "reuse.moved"), moved, 1e-5 * size);
            cr_expect(k ? moved > last : moved == 0, "signal %d: %g after %g", signal, moved, last);
            last = moved;
        }
        close_bench(&b);
    }
}

Test(reuse, what_is_no_sum_is_refused)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        weft_graph *g = denoiser_graph(&others[i]);
        weft_feature_cache_programs r;
        const weft_feature_cache_programs_setup setup = {.latents = "batch.latents",
                                                         .time = "batch.timestep"};
        cr_expect_eq(weft_pass_feature_cache(g, &setup, &r), WEFT_E_UNSUPPORTED, "%.50s",
                     others[i].config);
        /* but their attention can be reused */
        weft_feature_cache_programs_setup attention = setup;
        attention.what = WEFT_FEATURE_CACHE_ATTENTION;
        cr_expect_eq(weft_pass_feature_cache(g, &attention, &r), WEFT_OK, "%.50s: %s",
                     others[i].config, weft_error_message());
        weft_feature_cache_programs_free(&r);
        weft_graph_free(g);
    }
    weft_graph *g = denoiser_graph(&denoisers_of[0]);
    weft_feature_cache_programs r;
    const weft_feature_cache_programs_setup setup = {
        .latents = "batch.latents", .time = "batch.timestep", .front = 3};
    cr_expect_eq(weft_pass_feature_cache(g, &setup, &r), WEFT_E_UNSUPPORTED);
    cr_expect_eq(weft_error_class(), WEFT_MSG_CACHE_UNSUPPORTED, "%s", weft_error_message());
    cr_expect_eq(weft_error_fields()->number, 3);
    weft_graph_free(g);
}
