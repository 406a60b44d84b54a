/* The layout rules without the shard pass. Every row of a rule is computed by hand on simulated
 * ranks (shards of split inputs, terms of pending ones), and the output is assembled. */
#include "cases.h"
#include "lockstep.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trial {
    const op_case *c;
    const weft_layout_choice *choice;
    int ranks, index;
} trial;

static weft_shape part_shape(weft_shape s, weft_layout l, int ranks, int index, int64_t *start)
{
    *start = 0;
    if (l.kind == WEFT_S)
        weft_part(s.dim[l.dim], ranks, index, start, &s.dim[l.dim]);
    return s;
}

/* Terms of P: each rank's is different, their sum is the value. */
static double term(double value, int ranks, int index, int64_t at)
{
    const double noise = (double)((at + index) % 5) - 2;
    double other = 0;
    for (int r = 0; r < ranks - 1; r++)
        other += (double)((at + r) % 5) - 2;
    return index < ranks - 1 ? noise : value - other;
}

static double fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    const trial *t = user;
    const int i = name[2] - '0';
    const double value = case_fill((void *)(uintptr_t)t->c, name, dtype, index);
    return t->choice && t->choice->need[i].kind == WEFT_P ? term(value, t->ranks, t->index, index)
                                                          : value;
}

static weft_graph *local_graph(const trial *t, const weft_graph *whole, const weft_node *n)
{
    weft_graph *g = weft_graph_create();
    const weft_mesh mesh = {.axis_count = 1, .axis = {{"t", t->ranks}}};
    if (t->choice->expansion)
        weft_graph_set_mesh(g, &mesh, t->index);
    weft_value in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    const weft_op_info *info = weft_op_get(t->c->op);
    int64_t start, room[64] = {0};
    for (int i = 0; i < t->c->in_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        if (t->c->in[i].shape.rank < 0) {
            in[i] = WEFT_NONE;
            continue;
        }
        weft_attr_source a = {.dtype = t->c->in[i].dtype, .global = t->c->in[i].shape};
        a.shape = part_shape(a.global, t->choice->need[i], t->ranks, t->index, &start);
        if (t->choice->need[i].kind == WEFT_S)
            a.start[t->choice->need[i].dim] = start;
        in[i] = weft_source(g, WEFT_OP_INPUT, name, &a);
        if (t->choice->expansion)
            weft_graph_set_layout(g, in[i], (weft_layout[WEFT_MAX_AXES]){t->choice->need[i]});
    }
    const weft_layout l = t->choice->out[0];
    const weft_shape local =
        part_shape(weft_value_get(whole, n->out[0])->shape, l, t->ranks, t->index, &start);
    cr_assert_leq(info->attr_bytes, (int64_t)sizeof room);
    if (t->c->attr)
        memcpy(room, t->c->attr, (size_t)info->attr_bytes);
    if (l.kind == WEFT_S)
        info->local(g, room, l.dim, start, local.dim[l.dim]);
    weft_expanded member = {.node = n};
    memcpy(member.in, in, (size_t)t->c->in_count * sizeof *in);
    if (t->choice->expansion) {
        t->choice->expansion->emit(g, whole, &member, 1, 0);
        memcpy(out, member.out, sizeof member.out);
    } else
        weft_emit_all(g, t->c->op, in, t->c->in_count, t->c->attr ? room : NULL, out);
    for (int o = 0; o < n->out_count; o++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", o);
        if (t->choice->expansion) /* the layouts of its nodes are those of the row */
            cr_assert(memcmp(weft_value_get(g, out[o])->layout, &t->choice->out[o],
                             sizeof t->choice->out[o]) == 0);
        weft_output(g, name, out[o]);
    }
    return g;
}

/* Element `at` of the complete output `o`, from the ranks' shards. */
static double assemble(const weft_view *const *part, weft_layout l, int ranks,
                       const weft_shape *whole, int64_t at)
{
    if (l.kind != WEFT_S) {
        double sum = 0;
        for (int r = 0; r < (l.kind == WEFT_P ? ranks : 1); r++)
            sum += view_get(part[r], at);
        return sum;
    }
    int64_t inner = 1, start, len;
    for (int d = l.dim + 1; d < whole->rank; d++)
        inner *= whole->dim[d];
    const int64_t n = whole->dim[l.dim], k = at / inner % n, outer = at / inner / n;
    const int owner = (int)(k / ((n + ranks - 1) / ranks));
    weft_part(n, ranks, owner, &start, &len);
    return view_get(part[owner], (outer * len + k - start) * inner + at % inner);
}

static void check_row(const op_case *c, const weft_layout_choice *choice, int ranks, int row)
{
    trial none = {.c = c};
    weft_graph *whole = case_graph(c, 0), *local[8];
    lockstep *one = lockstep_run(1, &whole, fill, &none), *part[8];
    const char *name = weft_op_get(c->op)->name;
    const weft_node *n =
        weft_graph_node(whole, weft_value_get(whole, weft_graph_find(whole, "out0"))->node);
    for (int r = 0; r < ranks; r++) {
        trial t = {c, choice, ranks, r};
        local[r] = local_graph(&t, whole, n);
        cr_assert_eq(weft_graph_check(local[r]), WEFT_OK, "%s row %d of %d ranks: %s", name, row,
                     ranks, weft_error_message());
        part[r] = choice->expansion ? NULL : lockstep_run(1, &local[r], fill, &t);
    }
    if (choice->expansion) { /* ranks exchange the rows that they need */
        trial t = {c, choice, ranks, 0};
        part[0] = lockstep_run(ranks, local, fill, &t);
    }
    for (int r = 0; r < ranks; r++)
        if (part[r])
            cr_assert_str_empty(part[r]->error, "%s row %d: %s", name, row, part[r]->error);
    for (int o = 0; o < n->out_count; o++) {
        char output[16];
        snprintf(output, sizeof output, "out%d", o);
        const weft_view *view[8];
        for (int r = 0; r < ranks; r++)
            view[r] =
                &(choice->expansion ? part[0]->value[r]
                                    : part[r]->value[0])[weft_graph_find(local[r], output).id];
        const weft_view *expected = &one->value[0][n->out[o].id];
        for (int64_t i = 0; i < view_count(expected); i++) {
            const double want = view_get(expected, i);
            const double got = assemble(view, choice->out[o], ranks, &expected->shape, i);
            cr_assert(got == want || fabs(got - want) <= 1e-9 * (1 + fabs(want)),
                      "%s row %d on %d ranks: %s[%" PRId64 "] is %g, not %g", name, row, ranks,
                      output, i, got, want);
        }
    }
    for (int r = 0; r < ranks; r++) {
        if (part[r])
            lockstep_free(part[r]);
        weft_graph_free(local[r]);
    }
    lockstep_free(one);
    weft_graph_free(whole);
}

static int rows_of(const op_case *c, int ranks, weft_layout_choice *choice)
{
    weft_graph *g = case_graph(c, 0);
    const weft_node *n = weft_graph_node(g, weft_value_get(g, weft_graph_find(g, "out0"))->node);
    const int count = weft_op_get(c->op)->layout(g, n, ranks, choice);
    weft_graph_free(g);
    return count;
}

Test(rule, every_row_of_every_op)
{
    int count, rows = 0;
    const op_case *c = op_cases(&count);
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int i = 0; i < count; i++) {
            weft_layout_choice choice[WEFT_MAX_CHOICES];
            const int listed = rows_of(&c[i], ranks, choice);
            cr_assert_leq(listed, WEFT_MAX_CHOICES);
            for (int row = 0; row < listed; row++)
                check_row(&c[i], &choice[row], ranks, row);
            rows += listed;
        }
    cr_log_info("%d rows", rows);
    cr_expect_gt(rows, 700);
}

/* How many rows a case has on two ranks. */
typedef struct wanted_rows {
    const char *what;
    int rows;
    bool (*is)(const op_case *c);
    int seen;
} wanted_rows;

static bool batched_matmul(const op_case *c)
{
    return c->op == WEFT_OP_MATMUL && c->in[0].shape.rank == 3 && c->in[1].shape.rank == 3;
}
static bool plain_linear(const op_case *c)
{
    return c->op == WEFT_OP_LINEAR && c->in_count == 2 && c->in[1].dtype == WEFT_F32;
}
static bool linear_of_int8(const op_case *c)
{
    return c->op == WEFT_OP_LINEAR && c->in_count == 2 && c->in[1].dtype == WEFT_U8;
}
static bool smoothed_linear_of_int8(const op_case *c)
{
    return c->op == WEFT_OP_LINEAR && c->in_count == 4;
}
static bool linear_with_bias(const op_case *c)
{
    return c->op == WEFT_OP_LINEAR && c->in_count == 3 && c->in[0].shape.rank == 3;
}
static bool plain_attention(const op_case *c)
{
    return c->op == WEFT_OP_ATTENTION && c->in_count == 3 &&
           !((const weft_attr_attention *)c->attr)->causal;
}
static bool causal_attention(const op_case *c)
{
    return c->op == WEFT_OP_ATTENTION && c->in_count == 3 &&
           ((const weft_attr_attention *)c->attr)->causal;
}
static bool packed_attention(const op_case *c)
{
    return c->op == WEFT_OP_ATTENTION && c->in_count == 4 && c->in[3].shape.rank == 2;
}
static bool attention_packed_by_item(const op_case *c)
{
    return c->op == WEFT_OP_ATTENTION && c->in_count == 4 && c->in[3].shape.rank == 3;
}
static bool merge(const op_case *c)
{
    return c->op == WEFT_OP_ATTENTION_MERGE;
}
static bool convolution(const op_case *c)
{
    return c->op == WEFT_OP_CONV3D && c->in_count == 2;
}
static bool layer_norm(const op_case *c)
{
    return c->op == WEFT_OP_LAYER_NORM;
}

/* Rows of ops that have one must not get lost, and each kind has a case here. */
Test(rule, the_wanted_rows_are_there)
{
    wanted_rows wanted[] = {
        {"batch, M, N, K, two pending", 6, batched_matmul},
        {"rows, columns, K, two pending", 5, plain_linear},
        {"rows, columns, K in complete blocks", 3, linear_of_int8},
        {"B, S, columns, K in complete blocks", 4, smoothed_linear_of_int8},
        {"B, S, columns", 3, linear_with_bias},
        {"B, queries, heads, a ring", 4, plain_attention},
        {"B, heads", 2, causal_attention},
        {"heads", 1, packed_attention},
        {"B, heads", 2, attention_packed_by_item},
        {"B, S, heads", 3, merge},
        {"B, windows of T, Y and X, outputs, inputs, two pending", 8, convolution},
        {"all but the last dim", 2, layer_norm},
    };
    const int kinds = (int)(sizeof wanted / sizeof *wanted);
    int count;
    const op_case *c = op_cases(&count);
    for (int i = 0; i < count; i++) {
        weft_layout_choice choice[WEFT_MAX_CHOICES];
        const int rows = rows_of(&c[i], 2, choice);
        for (int k = 0; k < kinds; k++)
            if (wanted[k].is(&c[i])) {
                wanted[k].seen++;
                cr_expect_eq(rows, wanted[k].rows, "%s: %d rows, not %d (%s)",
                             weft_op_get(c[i].op)->name, rows, wanted[k].rows, wanted[k].what);
            }
    }
    for (int k = 0; k < kinds; k++)
        cr_expect_gt(wanted[k].seen, 0, "no case with %s", wanted[k].what);
}
