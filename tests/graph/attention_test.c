/* Attention over blocks of the keys, merged, equals attention over all keys: forward and backward,
 * in f64 to rounding. A ring of ranks computes attention this way. */
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "kernel/cpu/table.h"
#include "ranks.h"
#include "sharded.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = 2, SQ = 5, SK = 7, H = 3, W = 4 };

static double fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    const int32_t *segments = user;
    if (dtype == WEFT_I32)
        return segments[(name[1] - '0') * 8 + index];
    return 2 * (double)weft_random_uniform((uint64_t)name[0], WEFT_RNG_TEST, (uint64_t)index) - 1;
}

typedef struct attended {
    weft_value q, k, v, out, lse;
} attended;

static const weft_attr_attention attr = {.scale = 0.7};

static attended sources(weft_graph *g)
{
    return (attended){.q = weft_input(g, "q", WEFT_F32, WEFT_SHAPE(B, SQ, H, W)),
                      .k = weft_input(g, "k", WEFT_F32, WEFT_SHAPE(B, SK, H, W)),
                      .v = weft_input(g, "v", WEFT_F32, WEFT_SHAPE(B, SK, H, W))};
}

static void attend(weft_graph *g, attended *a, weft_value segments)
{
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ATTENTION, (weft_value[]){a->q, a->k, a->v, segments},
                  weft_value_ok(segments) ? 4 : 3, &attr, out);
    a->out = out[0], a->lse = out[1];
}

static attended merge(weft_graph *g, attended a, attended b)
{
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ATTENTION_MERGE, (weft_value[]){a.out, a.lse, b.out, b.lse}, 4, NULL,
                  out);
    a.out = out[0], a.lse = out[1];
    return a;
}

/* Rows [start, start + len) of the keys. */
static attended part_of(weft_graph *g, attended a, int64_t start, int64_t len)
{
    a.k = weft_slice(g, a.k, 1, start, len);
    a.v = weft_slice(g, a.v, 1, start, len);
    return a;
}

/* A loss in which both outputs count; gradients become outputs "dq", "dk", "dv" with `suffix`. */
static void differentiate(weft_graph *g, attended a, attended of, const char *suffix)
{
    const weft_value w = weft_input(g, suffix[0] == 'a' ? "w" : "w2", WEFT_F32,
                                    WEFT_SHAPE(B, SQ, H, W)),
                     u = weft_input(g, suffix[0] == 'a' ? "u" : "u2", WEFT_F32,
                                    WEFT_SHAPE(B, H, SQ));
    const weft_value loss =
        weft_add(g, weft_sum_all(g, weft_mul(g, a.out, w)),
                 weft_sum_all(g, weft_mul(g, weft_clamp(g, a.lse, -1e3, 1e3), u)));
    const weft_value wrt[3] = {of.q, of.k, of.v};
    weft_value grad[3];
    weft_autodiff(g, loss, wrt, 3, grad);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%c %s", "qkv"[i], suffix);
        weft_output(g, name, grad[i]);
    }
}

static double distance(const lockstep *l, const weft_graph *g, const char *a, const char *b)
{
    const weft_view *x = &l->value[0][weft_graph_find(g, a).id],
                    *y = &l->value[0][weft_graph_find(g, b).id];
    double worst = 0;
    cr_assert_eq(view_count(x), view_count(y));
    for (int64_t i = 0; i < view_count(x); i++) {
        const double one = view_get(x, i), two = view_get(y, i);
        cr_assert(one == two || (isfinite(one) && isfinite(two)), "%s[%" PRId64 "] is %g, %s %g", a,
                  i, one, b, two);
        worst = one == two ? worst : fmax(worst, fabs(one - two));
    }
    return worst;
}

Test(attention, parts_merge_to_the_whole)
{
    static const int64_t cuts[][3] = {{0, 3, 7}, {0, 0, 7}, {0, 7, 7}, {0, 1, 6}};
    for (int c = 0; c < 4; c++) {
        weft_graph *g = weft_graph_create();
        attended whole = sources(g), merged = whole;
        const attended base = whole;
        attend(g, &whole, WEFT_NONE);
        for (int i = 0; i < 3; i++) {
            const int64_t end = i < 2 ? cuts[c][i + 1] : SK;
            attended part = part_of(g, base, cuts[c][i], end - cuts[c][i]);
            attend(g, &part, WEFT_NONE);
            merged = i ? merge(g, merged, part) : part;
        }
        weft_output(g, "out a", whole.out), weft_output(g, "lse a", whole.lse);
        weft_output(g, "out b", merged.out), weft_output(g, "lse b", merged.lse);
        differentiate(g, whole, base, "a");
        differentiate(g, merged, base, "b");
        cr_assert_eq(weft_graph_verify(g), WEFT_OK, "%s", weft_error_message());
        lockstep *l = lockstep_run(1, &g, fill, NULL);
        cr_assert_str_empty(l->error, "%s", l->error);
        static const char *const names[][2] = {{"out a", "out b"},
                                               {"lse a", "lse b"},
                                               {"dq a", "dq b"},
                                               {"dk a", "dk b"},
                                               {"dv a", "dv b"}};
        for (int i = 0; i < 5; i++)
            cr_expect(distance(l, g, names[i][0], names[i][1]) <= 1e-12, "cut %d: %s: %g", c,
                      names[i][0], distance(l, g, names[i][0], names[i][1]));
        lockstep_free(l);
        weft_graph_free(g);
    }
}

static double alike(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    return name[0] == 'o' ? 1 : *(const double *)user + fill(NULL, name, dtype, index);
}

/* Equal blocks merge to one block, even with log-sum-exps so large that their rounding exceeds the
 * share of a block. */
Test(attention, shares_of_parts_add_up_to_one)
{
    for (double size = 1; size < 1e5; size *= 10) {
        weft_graph *g = weft_graph_create();
        attended part[2];
        for (int i = 0; i < 2; i++) {
            part[i].out = weft_input(g, i ? "o2" : "o1", WEFT_F32, WEFT_SHAPE(B, SQ, H, W));
            part[i].lse = weft_input(g, i ? "m" : "l", WEFT_F32, WEFT_SHAPE(B, H, SQ));
        }
        weft_output(g, "out", merge(g, part[0], part[1]).out);
        lockstep *l = lockstep_run(1, &g, alike, &size);
        cr_assert_str_empty(l->error, "%s", l->error);
        const weft_view *out = &l->value[0][weft_graph_find(g, "out").id];
        for (int64_t i = 0; i < view_count(out); i++)
            cr_expect(fabs(view_get(out, i) - 1) <= 4e-16, "lse of %g: %.3g off", size,
                      view_get(out, i) - 1);
        lockstep_free(l);
        weft_graph_free(g);
    }
}

/* Queries that see nothing, of a part or of all: 0 and -inf, and gradients that are 0, not NaN. */
Test(attention, nothing_seen)
{
    /* all keys for the first five queries of ten; the parts: keys 0-3 for queries 0-2, the others
     * for 0-4. The second sample's queries see nothing in any. */
    static const int32_t segments[] = {0, 3, 0, 7, 3, 5, 3, 7, /* whole  */
                                       0, 3, 0, 3, 3, 5, 3, 3, /* part 1 */
                                       0, 3, 3, 7, 3, 5, 3, 7 /* part 2 */};
    weft_graph *g = weft_graph_create();
    attended base = sources(g), part[3] = {base, base, base};
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "s%d", i);
        attend(g, &part[i], weft_input(g, name, WEFT_I32, WEFT_SHAPE(2, 4)));
    }
    const attended merged = merge(g, part[1], part[2]);
    weft_output(g, "out a", part[0].out), weft_output(g, "lse a", part[0].lse);
    weft_output(g, "out b", merged.out), weft_output(g, "lse b", merged.lse);
    weft_output(g, "lse 1", part[1].lse);
    differentiate(g, part[0], base, "a");
    differentiate(g, merged, base, "b");
    cr_assert_eq(weft_graph_verify(g), WEFT_OK, "%s", weft_error_message());
    lockstep *l = lockstep_run(1, &g, fill, (void *)(uintptr_t)segments);
    cr_assert_str_empty(l->error, "%s", l->error);
    static const char *const names[][2] = {{"out a", "out b"},
                                           {"lse a", "lse b"},
                                           {"dq a", "dq b"},
                                           {"dk a", "dk b"},
                                           {"dv a", "dv b"}};
    for (int i = 0; i < 5; i++)
        cr_expect(distance(l, g, names[i][0], names[i][1]) <= 1e-12, "%s: %g", names[i][0],
                  distance(l, g, names[i][0], names[i][1]));
    const weft_view *lse = &l->value[0][weft_graph_find(g, "lse b").id],
                    *one = &l->value[0][weft_graph_find(g, "lse 1").id],
                    *out = &l->value[0][weft_graph_find(g, "out b").id],
                    *dq = &l->value[0][weft_graph_find(g, "dq b").id];
    for (int64_t i = 0; i < B * H * SQ; i++) {
        cr_expect_eq(view_get(lse, i) == -INFINITY, i >= H * SQ, "lse[%" PRId64 "]", i);
        cr_expect_eq(view_get(one, i) == -INFINITY, i >= H * SQ || i % SQ >= 3);
    }
    for (int64_t i = SQ * H * W; i < B * SQ * H * W; i++)
        cr_expect(view_get(out, i) == 0 && view_get(dq, i) == 0, "element %" PRId64, i);
    lockstep_free(l);
    weft_graph_free(g);
}

/* The backward of a ring: each part with the out and lse of all keys gives its own dk and dv, and
 * terms that add up to dq. */
Test(attention, backward_of_parts_with_the_whole_lse)
{
    weft_graph *g = weft_graph_create();
    attended whole = sources(g);
    const attended base = whole;
    attend(g, &whole, WEFT_NONE);
    differentiate(g, whole, base, "a");
    const weft_value w = weft_graph_find(g, "w"), u = weft_graph_find(g, "u");
    weft_value dk[2], dv[2], dq = WEFT_NONE;
    for (int i = 0; i < 2; i++) {
        const attended part = part_of(g, base, i ? 3 : 0, i ? 4 : 3);
        weft_value out[WEFT_MAX_OUTPUTS];
        weft_emit_all(g, WEFT_OP_ATTENTION_GRAD,
                      (weft_value[]){part.q, part.k, part.v, whole.out, whole.lse, w, WEFT_NONE, u},
                      8, &attr, out);
        dq = i ? weft_add(g, dq, out[0]) : out[0];
        dk[i] = out[1], dv[i] = out[2];
    }
    weft_output(g, "dq b", dq);
    weft_output(g, "dk b", weft_concat(g, dk, 2, 1));
    weft_output(g, "dv b", weft_concat(g, dv, 2, 1));
    cr_assert_eq(weft_graph_verify(g), WEFT_OK, "%s", weft_error_message());
    lockstep *l = lockstep_run(1, &g, fill, NULL);
    cr_assert_str_empty(l->error, "%s", l->error);
    cr_expect(distance(l, g, "dq a", "dq b") <= 1e-12);
    cr_expect(distance(l, g, "dk a", "dk b") <= 1e-12);
    cr_expect(distance(l, g, "dv a", "dv b") <= 1e-12);
    lockstep_free(l);
    weft_graph_free(g);
}

/* ---- a ring -------------------------------------------------------------------------------- */

typedef struct ring_size {
    int64_t sq, sk;
    bool causal, packed;
} ring_size;

/* The loss is the sum of out weighted by w. */
static weft_graph *build(void *user)
{
    const ring_size *s = user;
    weft_graph *g = weft_graph_create();
    const weft_attr_attention a = {.scale = 0.7, .causal = s->causal};
    weft_value in[4] = {weft_input(g, "q", WEFT_F32, WEFT_SHAPE(B, s->sq, H, W)),
                        weft_input(g, "k", WEFT_F32, WEFT_SHAPE(B, s->sk, H, W)),
                        weft_input(g, "v", WEFT_F32, WEFT_SHAPE(B, s->sk, H, W))};
    if (s->packed)
        in[3] = weft_input(g, "s0", WEFT_I32, WEFT_SHAPE(2, 4));
    const weft_value out = weft_emit(g, WEFT_OP_ATTENTION, in, s->packed ? 4 : 3, &a);
    const weft_value w = weft_input(g, "w", WEFT_F32, WEFT_SHAPE(B, s->sq, H, W));
    weft_output(g, "out", out);
    weft_output(g, "loss", weft_sum_all(g, weft_mul(g, out, w)));
    return g;
}

static double fill_ring(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    (void)user;
    return fill(NULL, name, dtype, index);
}

static const weft_recipe_row rows[] = {
    {"q", "cp", {WEFT_S, 1}},
    {"k", "cp", {WEFT_S, 1}},
    {"v", "cp", {WEFT_S, 1}},
    {"w", "cp", {WEFT_S, 1}},
    {":attention", "cp", {WEFT_S, 1}, .by = "ring"},
};
static const weft_recipe recipe = {"ring", rows, sizeof rows / sizeof *rows};

/* 5 or 7 tokens on 2, 3 and 4 ranks: blocks differ in size, the last may be empty. */
static const ring_size sizes[] = {{5, 7, false, false}, {7, 5, false, false}};

Test(attention, a_ring_of_uneven_blocks)
{
    for (int s = 0; s < 2; s++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            const weft_mesh mesh = {1, {{"cp", ranks}}};
            cr_expect(sharded_agrees(build, sharded_gradients, fill_ring,
                                     (void *)(uintptr_t)&sizes[s], &mesh, &recipe, 1e-12));
        }
}

/* Programs in f32: the difference of all ranks to one rank, relative to the norm. */
static double ring_distance(ring_size size, int ranks, const weft_backend *backend)
{
    const weft_mesh mesh = {1, {{"cp", ranks}}};
    weft_graph *one = build(&size), *part[4];
    ranks_result whole, own[4];
    for (int r = 0; r < ranks; r++) {
        cr_assert_eq(weft_pass_shard(one, &mesh, r, &recipe, &part[r]), WEFT_OK, "%s",
                     weft_error_message());
        sharded_gradients(part[r]);
        cr_assert_eq(weft_graph_verify(part[r]), WEFT_OK, "%s", weft_error_message());
    }
    sharded_gradients(one);
    ranks_run(1, &one, backend, fill_ring, NULL, &whole);
    ranks_run(ranks, part, backend, fill_ring, NULL, own);
    double worst = 0;
    static const char *const names[] = {"out", "part.q", "part.k", "part.v"};
    for (int i = 0; i < 4; i++) {
        const ranks_output *all = ranks_find(&whole, names[i]);
        const int64_t n = all->shape.dim[1];
        double error = 0, norm = 0;
        for (int r = 0; r < ranks; r++) {
            const ranks_output *mine = ranks_find(&own[r], names[i]);
            int64_t start = 0, len = n;
            if (i) /* the output is gathered */
                weft_part(n, ranks, r, &start, &len);
            cr_assert_eq(mine->shape.dim[1], len);
            for (int64_t e = 0; e < weft_shape_count(&mine->shape); e++) {
                const int64_t b = e / (len * H * W), rest = e % (len * H * W);
                const double want = all->data[(b * n + start) * H * W + rest];
                error += (mine->data[e] - want) * (mine->data[e] - want);
                norm += want * want;
            }
        }
        worst = fmax(worst, sqrt(error / norm));
    }
    ranks_free(1, &whole);
    ranks_free(ranks, own);
    weft_graph_free(one);
    for (int r = 0; r < ranks; r++)
        weft_graph_free(part[r]);
    return worst;
}

Test(attention, a_ring_as_programs)
{
    for (int s = 0; s < 2; s++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            const double error = ring_distance(sizes[s], ranks, &weft_backend_cpu);
            cr_expect(error <= 1e-6, "size %d on %d ranks: off by %g", s, ranks, error);
        }
}

/* A layout with a ring is not listed if a block does not define which queries may see it. */
Test(attention, a_ring_that_is_not_offered)
{
    static const ring_size without[] = {{5, 5, true, false}, {5, 7, false, true}};
    const weft_mesh mesh = {1, {{"cp", 2}}};
    for (int s = 0; s < 2; s++) {
        weft_graph *one = build((void *)(uintptr_t)&without[s]), *part;
        cr_expect_eq(weft_pass_shard(one, &mesh, 0, &recipe, &part), WEFT_E_UNSUPPORTED);
        cr_expect(strstr(weft_error_text(), "\"ring\""), "%s", weft_error_message());
        weft_graph_free(one);
    }
}

/* The transfer of the next block starts before the attention of the received block. */
Test(attention, a_ring_overlaps)
{
    const weft_mesh mesh = {1, {{"cp", 3}}};
    weft_graph *one = build((void *)(uintptr_t)&sizes[0]), *part;
    cr_assert_eq(weft_pass_shard(one, &mesh, 0, &recipe, &part), WEFT_OK);
    int shifts = 0, attentions = 0;
    for (int32_t n = 0; n < weft_graph_node_count(part); n++) {
        const weft_op op = weft_graph_node(part, n)->op;
        shifts += op == WEFT_OP_RING_SHIFT;
        attentions += op == WEFT_OP_ATTENTION;
        cr_expect(op != WEFT_OP_ATTENTION || shifts == 2 * (attentions < 3 ? attentions : 2));
    }
    cr_expect_eq(attentions, 3);
    weft_graph_free(part);
    weft_graph_free(one);
}

/* A block from another rank has another layout than the rank's own block: it is not gathered like
 * its own, is not combined with another block, and has the own layout again after a full round. */
Test(attention, a_block_that_went_round_is_not_the_own)
{
    for (int what = 0; what < 5; what++) {
        const weft_mesh mesh = {1, {{"cp", 3}}};
        weft_graph *g = weft_graph_create();
        weft_graph_set_mesh(g, &mesh, 1);
        weft_attr_source a = {
            .dtype = WEFT_F32, .shape = {1, {2}}, .global = {1, {6}}, .start = {2}};
        const weft_value own = weft_source(g, WEFT_OP_STATE, "x", &a);
        weft_graph_set_layout(g, own, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 0}});
        weft_attr_comm shift = {.axis = 0, .global = 6, .shift = 1},
                       gather = {.axis = 0, .global = 6};
        weft_value turned = weft_emit(g, WEFT_OP_RING_SHIFT, &own, 1, &shift);
        if (what == 0)
            weft_emit(g, WEFT_OP_ALL_GATHER, &turned, 1, &gather);
        if (what == 1)
            weft_add(g, turned, own);
        if (what == 2)
            weft_update(g, own, turned);
        if (what == 3) /* it says that it is the own one */
            weft_emit(g, WEFT_OP_RING_SHIFT, &turned, 1, &shift);
        if (what == 4) {
            shift.held = 1, shift.shift = 2;
            turned = weft_emit(g, WEFT_OP_RING_SHIFT, &turned, 1, &shift);
            weft_update(g, own, weft_add(g, turned, own));
            weft_emit(g, WEFT_OP_ALL_GATHER, &turned, 1, &gather);
        }
        cr_expect_eq(weft_graph_verify(g), what == 4 ? WEFT_OK : WEFT_E_INTERNAL, "%d: %s", what,
                     weft_error_message());
        weft_graph_free(g);
    }
}
