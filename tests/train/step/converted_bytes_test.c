/* A training step in bf16 on cpu: kernels read and write bf16, and no operand is converted as a
 * whole around a kernel. */
#include "../../model_of.h"
#include "base/log.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/isa.h"
#include "train/graph/optimizer.h"
#include "transform/numeric/mixed_precision.h"

#include <criterion/criterion.h>
#include <math.h>

static const char dit[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,"
    "\"attention_head_dim\":24,\"in_channels\":8,\"out_channels\":8,\"text_dim\":40,"
    "\"freq_dim\":32,\"ffn_dim\":96,\"num_layers\":2,\"rope_max_seq_len\":32}";

/* Ops whose kernels still convert complete operands. */
static bool converts(weft_op op)
{
    return op == WEFT_OP_CONV3D || op == WEFT_OP_CONV3D_DX || op == WEFT_OP_CONV3D_DW ||
           op == WEFT_OP_ATTENTION || op == WEFT_OP_ATTENTION_GRAD;
}

static weft_graph *training_graph(void)
{
    const weft_model model = model_of(dit);
    const weft_model_size size = {2, 3, 8, 8, 12};
    const weft_optimizer_config optimizer = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01, .clip_norm = 1};
    weft_graph *forward = weft_graph_create(), *g;
    weft_model_build(forward, &model, &size, false);
    const weft_value prediction = weft_graph_find(forward, "prediction"),
                     target = weft_input(forward, "target", WEFT_F32,
                                         weft_value_get(forward, prediction)->shape),
                     error = weft_sub(forward, prediction, target);
    weft_output(forward, "objective",
                weft_mean_all(forward, weft_unary(forward, WEFT_OP_SQUARE, error)));
    cr_assert_eq(weft_pass_mixed_precision(forward, 0, &g), WEFT_OK, "%s", weft_error_message());
    weft_optimizer_build(g, weft_graph_find(g, "objective"), &optimizer);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    weft_graph_free(forward);
    return g;
}

static void fill(weft_program *program, const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor *t = weft_program_input(program, weft_value_get(g, node->out[0])->name);
        for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
            ((float *)t->data)[i] =
                t->shape.rank ? weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i) : INFINITY;
    }
    *(float *)weft_program_input(program, "optimizer.lr")->data = 1e-3f;
    *(float *)weft_program_input(program, "optimizer.step")->data = 1;
}

Test(train_step, bf16_operands_are_not_converted_around_kernels)
{
    weft_graph *g = training_graph();
    weft_store *store = weft_store_create();
    weft_program *program;
    cr_assert_eq(weft_store_init(store, g, 1), WEFT_OK);
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){.guard = true}, &program),
                 WEFT_OK);
    cr_assert_eq(weft_program_bind(program, store, NULL), WEFT_OK);
    fill(program, g);
    cr_assert_eq(cpu_converted_bytes(), 0);
    cr_assert_eq(weft_program_run(program), WEFT_OK, "%s", weft_error_message());
    cr_assert(isfinite(*(float *)weft_program_output(program, "grad_norm")->data));
    int bf16 = 0; /* ops with a bf16 result, without conversions */
    for (int op = 1; op < WEFT_OP_COUNT; op++) {
        bool narrow = false;
        for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
            const weft_node *node = weft_graph_node(g, n);
            narrow |= (int)node->op == op && weft_value_get(g, node->out[0])->dtype == WEFT_BF16;
        }
        if (converts((weft_op)op))
            continue;
        bf16 += narrow;
        cr_expect_eq(cpu_converted_bytes_of((weft_op)op), 0, "%s converts %" PRId64 " bytes",
                     weft_op_get((weft_op)op)->name, cpu_converted_bytes_of((weft_op)op));
    }
    cr_expect_geq(bf16, 12);
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
}
