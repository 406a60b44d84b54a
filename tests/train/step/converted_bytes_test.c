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

typedef struct setup {
    const char *config;
    weft_model_size size;
    int least; /* ops with a result in bf16 */
} setup;

static const setup dit = {
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,"
    "\"attention_head_dim\":24,\"in_channels\":8,\"out_channels\":8,\"text_dim\":40,"
    "\"freq_dim\":32,\"ffn_dim\":96,\"num_layers\":2,\"rope_max_seq_len\":32}",
    {2, 3, 8, 8, 12},
    22};
static const setup experts = {
    "{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_attention_heads\":2,"
    "\"attention_head_dim\":24,\"in_channels\":8,\"out_channels\":8,\"text_dim\":40,"
    "\"freq_dim\":32,\"ffn_dim\":96,\"num_layers\":2,\"first_k_dense_replace\":1,"
    "\"num_routed_experts\":4,\"num_activated_experts\":2,\"moe_intermediate_size\":48,"
    "\"n_shared_experts\":1}",
    {2, 3, 8, 8, 12},
    24};
static const setup vae = {"{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":8,\"z_dim\":4,"
                          "\"dim_mult\":[1,2],\"num_res_blocks\":1,\"temperal_downsample\":[true]}",
                          {1, 5, 16, 16, 0},
                          15};

/* Without units for bf16, oneDNN's convolutions of f32 need complete operands. */
static bool converts(weft_op op)
{
    return !cpu_isa_get()->bf16_units &&
           (op == WEFT_OP_CONV3D || op == WEFT_OP_CONV3D_DX || op == WEFT_OP_CONV3D_DW);
}

static weft_graph *training_graph(const setup *s)
{
    const weft_model model = model_of(s->config);
    const weft_optimizer_config optimizer = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01, .clip_norm = 1};
    weft_graph *forward = weft_graph_create(), *g;
    int count;
    weft_model_build(forward, &model, &s->size, true);
    cr_assert_eq(weft_graph_check(forward), WEFT_OK, "%s", weft_error_message());
    const weft_value made = weft_graph_outputs(forward, &count)[0].value;
    weft_output(forward, "objective",
                weft_mean_all(forward, weft_unary(forward, WEFT_OP_SQUARE, made)));
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

static bool has_bf16_result(const weft_graph *g, weft_op op)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op == op && weft_value_get(g, node->out[0])->dtype == WEFT_BF16)
            return true;
    }
    return false;
}

/* Runs a step, and counts the bytes that each op converts. */
static void check_step(const setup *s)
{
    weft_graph *g = training_graph(s);
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
        if (converts((weft_op)op))
            continue;
        bf16 += has_bf16_result(g, (weft_op)op);
        cr_expect_eq(cpu_converted_bytes_of((weft_op)op), 0, "%s converts %" PRId64 " bytes",
                     weft_op_get((weft_op)op)->name, cpu_converted_bytes_of((weft_op)op));
    }
    cr_expect_geq(bf16, s->least, "%d ops", bf16);
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
}

Test(train_step, bf16_operands_are_not_converted_around_kernels)
{
    check_step(&dit);
}

Test(train_step, bf16_operands_of_experts_are_not_converted_around_kernels)
{
    check_step(&experts);
}

Test(train_step, bf16_operands_of_convolutions_are_not_converted_around_kernels)
{
    check_step(&vae);
}
