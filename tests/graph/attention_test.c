/* Attention in parts: over pieces of the keys, merged, it is attention over all of them, forward
 * and backward, in f64 to rounding. It is what a ring of ranks computes. */
#include "graph/graph.h"
#include "lockstep.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

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
        cr_assert(one == two || (isfinite(one) && isfinite(two)), "%s[%lld] is %g, %s %g", a,
                  (long long)i, one, b, two);
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
        cr_expect_eq(view_get(lse, i) == -INFINITY, i >= H * SQ, "lse[%lld]", (long long)i);
        cr_expect_eq(view_get(one, i) == -INFINITY, i >= H * SQ || i % SQ >= 3);
    }
    for (int64_t i = SQ * H * W; i < B * SQ * H * W; i++)
        cr_expect(view_get(out, i) == 0 && view_get(dq, i) == 0, "element %lld", (long long)i);
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
} ring_size;

/* This rank's part of a source of `n` tokens. */
static weft_value own_tokens(weft_graph *g, const char *name, int rank, int ranks, int64_t n)
{
    weft_attr_source a = {.dtype = WEFT_F32, .global = {4, {B, n, H, W}}};
    a.shape = a.global;
    weft_part(n, ranks, rank, &a.start[1], &a.shape.dim[1]);
    const weft_value v = weft_source(g, WEFT_OP_INPUT, name, &a);
    weft_graph_set_layout(g, v, (weft_layout[WEFT_MAX_AXES]){{WEFT_S, 1}});
    return v;
}

/* Keys and values go round; each rank merges what its queries saw of every block. `ranks` 1: plain
 * attention. The loss is the sum of out weighted by w. */
static weft_graph *ring_graph(int rank, int ranks, ring_size size)
{
    weft_graph *g = weft_graph_create();
    const weft_mesh mesh = {1, {{"cp", ranks}}};
    weft_graph_set_mesh(g, &mesh, rank);
    const attended own = {.q = own_tokens(g, "q", rank, ranks, size.sq),
                          .k = own_tokens(g, "k", rank, ranks, size.sk),
                          .v = own_tokens(g, "v", rank, ranks, size.sk)};
    attended sum = own, block = own;
    for (int i = 0; i < ranks; i++) {
        const weft_attr_comm next = {
            .axis = 0, .dim = 1, .global = size.sk, .shift = 1, .held = i - 1};
        if (i) {
            block.k = weft_emit(g, WEFT_OP_RING_SHIFT, &block.k, 1, &next);
            block.v = weft_emit(g, WEFT_OP_RING_SHIFT, &block.v, 1, &next);
        }
        attend(g, &block, WEFT_NONE);
        sum = i ? merge(g, sum, block) : block;
    }
    const weft_value w = own_tokens(g, "w", rank, ranks, size.sq);
    const weft_value term = weft_sum_all(g, weft_mul(g, sum.out, w));
    const weft_value loss =
        weft_emit(g, WEFT_OP_ALL_REDUCE, &term, 1, &(weft_attr_comm){.axis = 0});
    const weft_value wrt[3] = {own.q, own.k, own.v};
    weft_value grad[3];
    weft_autodiff(g, loss, wrt, 3, grad);
    weft_output(g, "out", sum.out);
    weft_output(g, "dq", grad[0]);
    weft_output(g, "dk", grad[1]);
    weft_output(g, "dv", grad[2]);
    cr_assert_eq(weft_graph_verify(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

/* 5 or 7 tokens on 2, 3 and 4 ranks: blocks differ in size, the last may be empty. */
Test(attention, a_ring_of_uneven_blocks)
{
    static const ring_size sizes[] = {{5, 7}, {7, 5}};
    static const char *const names[] = {"out", "dq", "dk", "dv"};
    for (int s = 0; s < 2; s++) {
        weft_graph *one = ring_graph(0, 1, sizes[s]), *part[4];
        lockstep *whole = lockstep_run(1, &one, fill, NULL);
        cr_assert_str_empty(whole->error, "%s", whole->error);
        for (int ranks = 2; ranks <= 4; ranks++) {
            for (int r = 0; r < ranks; r++)
                part[r] = ring_graph(r, ranks, sizes[s]);
            lockstep *ring = lockstep_run(ranks, part, fill, NULL);
            cr_assert_str_empty(ring->error, "%d ranks: %s", ranks, ring->error);
            for (int i = 0; i < 4; i++) {
                const weft_view *all = &whole->value[0][weft_graph_find(one, names[i]).id];
                const int64_t n = all->shape.dim[1];
                for (int r = 0; r < ranks; r++) {
                    const weft_view *own = &ring->value[r][weft_graph_find(part[r], names[i]).id];
                    int64_t start, len;
                    weft_part(n, ranks, r, &start, &len);
                    cr_assert_eq(own->shape.dim[1], len);
                    for (int64_t e = 0; e < view_count(own); e++) {
                        const int64_t b = e / (len * H * W), rest = e % (len * H * W);
                        const double got = view_get(own, e),
                                     want = view_get(all, (b * n + start) * H * W + rest);
                        cr_assert(fabs(got - want) <= 1e-12, "%s on %d of %d ranks: %g, not %g",
                                  names[i], r, ranks, got, want);
                    }
                }
            }
            lockstep_free(ring);
            for (int r = 0; r < ranks; r++)
                weft_graph_free(part[r]);
        }
        lockstep_free(whole);
        weft_graph_free(one);
    }
}
