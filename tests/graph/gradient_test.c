/* Every gradient rule is compared with central differences in f64. */
#include "cases.h"
#include "graph/autodiff.h"
#include "graph/dump.h"
#include "lockstep.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct nudge {
    const op_case *c;
    const char *name; /* of the source, NULL: none */
    int64_t index;
    double by;
} nudge;

static double nudged_fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    const nudge *n = user;
    const bool here = n->name && !strcmp(n->name, name) && n->index == index;
    return case_fill((void *)(uintptr_t)n->c, name, dtype, index) + (here ? n->by : 0);
}

static double loss_of(weft_graph *g, nudge n)
{
    lockstep *l = lockstep_run(1, &g, nudged_fill, &n);
    cr_assert_str_empty(l->error, "%s", l->error);
    const double loss = view_get(&l->value[0][weft_graph_find(g, "loss").id], 0);
    lockstep_free(l);
    return loss;
}

static void check_input(const op_case *c, weft_graph *g, const char *name, const weft_view *grad)
{
    const double h = 1e-5;
    double worst = 0, largest = 1e-3;
    for (int64_t i = 0; i < view_count(grad); i++) {
        const double up = loss_of(g, (nudge){c, name, i, h}),
                     down = loss_of(g, (nudge){c, name, i, -h});
        const double expected = (up - down) / (2 * h), got = view_get(grad, i);
        cr_assert(isfinite(got), "%s: gradient of %s[%" PRId64 "] is not finite",
                  weft_op_get(c->op)->name, name, i);
        worst = fmax(worst, fabs(got - expected));
        largest = fmax(largest, fabs(expected));
    }
    cr_expect(worst / largest <= 1e-7, "%s: gradient of %s is off by %g", weft_op_get(c->op)->name,
              name, worst / largest);
}

static void check_case(const op_case *c)
{
    weft_graph *forward = case_graph(c, 0), *g = case_graph(c, 0);
    cr_assert_eq(weft_graph_verify(g), WEFT_OK, "%s", weft_error_message());
    weft_value wrt[WEFT_MAX_INPUTS], grad[WEFT_MAX_INPUTS];
    int count = 0;
    static const char *const names[] = {"in0", "in1", "in2", "in3", "in4",
                                        "in5", "in6", "in7", "in8"};
    const char *name[WEFT_MAX_INPUTS];
    for (int i = 0; i < c->in_count; i++)
        if (weft_dtype_is_float(c->in[i].dtype) && !c->in[i].fixed && c->in[i].shape.rank >= 0) {
            name[count] = names[i];
            wrt[count++] = weft_graph_find(g, names[i]);
        }
    weft_autodiff(g, weft_graph_find(g, "loss"), wrt, count, grad);
    cr_assert_eq(weft_graph_verify(g), WEFT_OK, "%s: %s", weft_op_get(c->op)->name,
                 weft_error_message());
    nudge none = {.c = c};
    lockstep *l = lockstep_run(1, &g, nudged_fill, &none);
    cr_assert_str_empty(l->error, "%s", l->error);
    for (int i = 0; i < count; i++) {
        cr_assert(weft_value_ok(grad[i]), "%s: no gradient of %s", weft_op_get(c->op)->name,
                  name[i]);
        cr_expect(weft_shape_equal(&weft_value_get(g, grad[i])->shape,
                                   &weft_value_get(g, wrt[i])->shape));
        check_input(c, forward, name[i], &l->value[0][grad[i].id]);
    }
    lockstep_free(l);
    weft_graph_free(g);
    weft_graph_free(forward);
}

Test(gradient, every_op_against_differences)
{
    int count;
    const op_case *c = op_cases(&count);
    for (int i = 0; i < count; i++)
        if (!c[i].no_gradient)
            check_case(&c[i]);
}

/* A row with a vjp that no case tries would pass unseen. */
Test(gradient, every_op_has_a_case)
{
    int count;
    const op_case *c = op_cases(&count);
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        bool found =
            weft_op_has((weft_op)op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_CONVERTS | WEFT_TRAIT_MOVES);
        for (int i = 0; i < count; i++)
            found |= (int)c[i].op == op;
        cr_expect(found, "no case for %s", weft_op_get((weft_op)op)->name);
    }
}
