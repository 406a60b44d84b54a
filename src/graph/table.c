#include "graph/internal.h"

#include <assert.h>

static const weft_op_info table[WEFT_OP_COUNT] = {
#define WEFT_OP(ENUM, op_name, imin, imax, omax, attr, infer_fn, vjp_fn, layout_fn, cost_fn, t32,  \
                t16)                                                                               \
    [WEFT_OP_##ENUM] = {.name = op_name,                                                           \
                        .min_inputs = imin,                                                        \
                        .max_inputs = imax,                                                        \
                        .max_outputs = omax,                                                       \
                        .attr_bytes = (int64_t)sizeof(attr),                                       \
                        .infer = weft_infer_##infer_fn,                                            \
                        .vjp = weft_vjp_##vjp_fn,                                                  \
                        .layout = weft_layout_##layout_fn,                                         \
                        .cost = weft_cost_##cost_fn,                                               \
                        .tolerance_f32 = t32,                                                      \
                        .tolerance_bf16 = t16},
#include "graph/op.def"
#undef WEFT_OP
};

const weft_op_info *weft_op_get(weft_op op)
{
    assert((unsigned)op < WEFT_OP_COUNT);
    return &table[op];
}
