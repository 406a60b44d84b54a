/* The table of layout conversions, compared with the traits and the gradients of the ops. */
#include "graph/conversion.h"

#include <criterion/criterion.h>

/* Every conversion has a row, and no other op has one. */
Test(conversion, rows_are_those_of_the_trait)
{
    for (int op = 0; op < WEFT_OP_COUNT; op++)
        cr_expect_eq(weft_conversion_get((weft_op)op) != NULL,
                     weft_op_has((weft_op)op, WEFT_TRAIT_CONVERTS), "%s",
                     weft_op_get((weft_op)op)->name);
}

/* The op between two layouts is unique, and its gradient is the op between their duals. */
Test(conversion, gradients_are_the_inverse_conversions)
{
    static const weft_layout_kind dual[] = {
        [WEFT_R] = WEFT_R, [WEFT_V] = WEFT_P, [WEFT_S] = WEFT_S, [WEFT_P] = WEFT_V};
    const struct {
        weft_layout_kind from, to;
        weft_op op, gradient;
    } pairs[] = {{WEFT_R, WEFT_V, WEFT_OP_VARY, WEFT_OP_ALL_REDUCE},
                 {WEFT_P, WEFT_R, WEFT_OP_ALL_REDUCE, WEFT_OP_VARY},
                 {WEFT_S, WEFT_V, WEFT_OP_ALL_GATHER, WEFT_OP_REDUCE_SCATTER},
                 {WEFT_S, WEFT_R, WEFT_OP_ALL_GATHER, WEFT_OP_SLICE_OWN},
                 {WEFT_P, WEFT_S, WEFT_OP_REDUCE_SCATTER, WEFT_OP_ALL_GATHER},
                 {WEFT_R, WEFT_S, WEFT_OP_SLICE_OWN, WEFT_OP_ALL_GATHER},
                 {WEFT_S, WEFT_S, WEFT_OP_ALL_TO_ALL, WEFT_OP_ALL_TO_ALL}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        cr_expect_eq(weft_conversion_op(pairs[i].from, pairs[i].to), pairs[i].op, "%zu", i);
        cr_expect_eq(weft_conversion_op(dual[pairs[i].to], dual[pairs[i].from]), pairs[i].gradient,
                     "%zu", i);
    }
    cr_expect_eq(weft_conversion_op(WEFT_V, WEFT_R), WEFT_OP_COUNT);
    cr_expect_eq(weft_conversion_op(WEFT_R, WEFT_P), WEFT_OP_COUNT);
}

static weft_node node_of(weft_op op, const weft_attr_comm *attr)
{
    return (weft_node){.op = op, .attr = attr};
}

/* Operand and result of the conversions of a split dim follow the attribute. */
Test(conversion, split_dims_are_those_of_the_attribute)
{
    const weft_attr_comm attr = {.dim = 1, .dim2 = 2}, invariant = {.dim = 1, .invariant = true};
    const weft_node exchange = node_of(WEFT_OP_ALL_TO_ALL, &attr),
                    gather = node_of(WEFT_OP_ALL_GATHER, &attr),
                    gather_all = node_of(WEFT_OP_ALL_GATHER, &invariant),
                    reduce = node_of(WEFT_OP_ALL_REDUCE, &attr),
                    relay = node_of(WEFT_OP_RELAY, &attr);
    cr_expect(weft_conversion_accepts(&exchange, (weft_layout){WEFT_S, 1}));
    cr_expect_not(weft_conversion_accepts(&exchange, (weft_layout){WEFT_S, 2}));
    cr_expect_not(weft_conversion_accepts(&exchange, (weft_layout){WEFT_R, 0}));
    cr_expect(weft_layout_same(weft_conversion_result(&exchange), (weft_layout){WEFT_S, 2}));
    cr_expect(weft_layout_same(weft_conversion_result(&gather), (weft_layout){WEFT_V, 0}));
    cr_expect(weft_layout_same(weft_conversion_result(&gather_all), (weft_layout){WEFT_R, 0}));
    cr_expect(weft_conversion_accepts(&relay, (weft_layout){WEFT_P, 0}));
    for (int d = 0; d < 4; d++) {
        cr_expect_eq(weft_conversion_moves_dim(&exchange, d), d == 1 || d == 2);
        cr_expect_eq(weft_conversion_moves_dim(&gather, d), d == 1);
        cr_expect_not(weft_conversion_moves_dim(&reduce, d));
        cr_expect_not(weft_conversion_moves_dim(&relay, d));
    }
}
