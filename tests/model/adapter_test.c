/* Adapters: dialects of names, stacks, turned and fused modules, boxes of split parameters, several
 * at weights, refusals. Numbers are small integers and halves, so every sum is exact: bitwise. */
#include "model/adapter.h"

#include "format/tensors/safetensors.h"
#include "format/tensors/safetensors_write.h"
#include "graph/graph.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const weft_rename_rule rules[] = {
    {"self_attn.qkv", "attn.{to_q,to_k}"}, {"layers", "blocks"}, {"out_mod", "~norm.linear"}};
static const weft_key_mapping dialects[] = {
    {"own", "norm.linear.weight", NULL, 0},
    {"theirs", "out_mod.weight", rules, sizeof rules / sizeof *rules},
};
static const weft_family family = {.class_name = "Small", .mapping = dialects, .mappings = 2};

static weft_graph *small(void)
{
    weft_graph *g = weft_graph_create();
    const weft_init init = {0};
    weft_param(g, "t.blocks.0.attn.to_q.weight", WEFT_F32, weft_shape_of(2, (int64_t[]){2, 3}),
               init);
    weft_param(g, "t.blocks.0.attn.to_k.weight", WEFT_F32, weft_shape_of(2, (int64_t[]){4, 3}),
               init);
    weft_param(g, "t.norm.linear.weight", WEFT_F32, weft_shape_of(2, (int64_t[]){4, 2}), init);
    weft_param(g, "t.norm.linear.bias", WEFT_F32, weft_shape_of(1, (int64_t[]){4}), init);
    weft_param(g, "t.patch_in.weight", WEFT_F32, weft_shape_of(4, (int64_t[]){2, 2, 2, 2}), init);
    weft_param(g, "t.experts.*.w_1.weight", WEFT_F32, weft_shape_of(3, (int64_t[]){3, 2, 2}), init);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    return g;
}

typedef struct piece {
    const char *name;
    int rank;
    int64_t dim[4];
    float first; /* data: first, first + 1, ... */
} piece;

/* writes these tensors to /tmp/.../x.safetensors; the path is in `path` */
static void write_file(const piece *list, int count, char path[100])
{
    char folder[] = "/tmp/weft_adapter_XXXXXX";
    weft_tensors_writer *w;
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(weft_tensors_writer_create(folder, "x", 0, &w), WEFT_OK);
    for (int i = 0; i < count; i++)
        cr_assert_eq(
            weft_tensors_writer_declare(w, list[i].name, WEFT_F32, list[i].rank, list[i].dim),
            WEFT_OK);
    for (int i = 0; i < count; i++) {
        float data[64];
        for (int k = 0; k < 64; k++)
            data[k] = list[i].first + (float)k;
        cr_assert_eq(weft_tensors_writer_data(w, list[i].name, WEFT_F32, data), WEFT_OK);
    }
    cr_assert_eq(weft_tensors_writer_finish(w), WEFT_OK);
    weft_tensors_writer_free(w);
    snprintf(path, 100, "%s/x.safetensors", folder);
}

static weft_status open_pieces(const weft_graph *g, const piece *list, int count, weft_adapter **a)
{
    char path[100];
    write_file(list, count, path);
    const weft_status_code status = weft_adapter_open(&family, g, "t.", path, a);
    remove(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    return status;
}
#define OPEN(g, a, ...)                                                                            \
    open_pieces(g, (const piece[]){__VA_ARGS__},                                                   \
                sizeof((const piece[]){__VA_ARGS__}) / sizeof(piece), a)

/* The box [start, start + dim) of `param`, all 1 before, merged into out. */
static void merge(const weft_graph *g, const weft_adapter_use *use, int count, const char *param,
                  const int64_t *start, const int64_t *dim, float *out, weft_dtype dtype)
{
    const weft_shape whole = weft_value_get(g, weft_graph_find(g, param))->shape;
    weft_adapter_box box = {
        .param = param, .dtype = dtype, .whole = whole, .shape = whole, .data = out};
    for (int i = 0; dim && i < whole.rank; i++) {
        box.start[i] = start[i];
        box.shape.dim[i] = dim[i];
    }
    for (int64_t i = 0; dtype == WEFT_F32 && i < weft_shape_count(&box.shape); i++)
        out[i] = 1;
    cr_assert_eq(weft_adapters_merge(use, count, &box, NULL), WEFT_OK, "%s", weft_error_message());
}

static void expect(const float *got, int count, const float *want)
{
    for (int i = 0; i < count; i++)
        cr_assert_eq(got[i], want[i], "element %d: %g, not %g", i, (double)got[i], (double)want[i]);
}

/* A (1,3) = 1 2 3 is for both parts, B (6,1) = 10..15 is cut after two rows. */
Test(adapter, fused_module_is_cut)
{
    static const char *const names[] = {"layers.0.self_attn.qkv",
                                        "lora_unet_layers_0_self_attn_qkv",
                                        "diffusion_model.layers.0.self_attn.qkv"};
    weft_graph *g = small();
    for (int i = 0; i < 3; i++) {
        char down[80], up[80];
        weft_adapter *a;
        float q[6], k[12];
        snprintf(down, sizeof down, "%s.lora_down.weight", names[i]);
        snprintf(up, sizeof up, "%s.lora_up.weight", names[i]);
        cr_assert_eq(OPEN(g, &a, {down, 2, {1, 3}, 1}, {up, 2, {6, 1}, 10}), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert_eq(weft_adapter_params(a), 2);
        const weft_adapter_use use = {a, 1};
        merge(g, &use, 1, "t.blocks.0.attn.to_q.weight", NULL, NULL, q, WEFT_F32);
        merge(g, &use, 1, "t.blocks.0.attn.to_k.weight", NULL, NULL, k, WEFT_F32);
        expect(q, 6, (float[]){11, 21, 31, 12, 23, 34});
        expect(k, 12, (float[]){13, 25, 37, 14, 27, 40, 15, 29, 43, 16, 31, 46});
        weft_adapter_close(a);
    }
    weft_graph_free(g);
}

/* A first block without rows belongs to the pair of the blocks after it. */
Test(adapter, a_block_without_rows_is_part_of_its_pair)
{
    weft_graph *g = small();
    weft_adapter *a;
    weft_adapter_pair *pair;
    int64_t pairs;
    cr_assert_eq(OPEN(g, &a, {"blocks.0.attn.to_k.lora_down.weight", 2, {2, 3}, 1},
                      {"blocks.0.attn.to_k.lora_up.blocks.0.weight", 2, {0, 1}, 0},
                      {"blocks.0.attn.to_k.lora_up.blocks.1.weight", 2, {4, 1}, 10}),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_adapter_pairs(a, "t.", &pair, &pairs), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(pairs, 1, "%d pairs", (int)pairs);
    cr_assert(pair[0].rank == 2 && pair[0].rows == 4 && pair[0].columns == 3);
    expect(pair[0].down, 6, (float[]){1, 2, 3, 4, 5, 6});
    expect(pair[0].up, 8, (float[]){0, 10, 0, 11, 0, 12, 0, 13});
    weft_adapter_pairs_free(pair, pairs);
    weft_adapter_close(a);
    weft_graph_free(g);
}

/* Rows 0 1 2 3 of the file are rows 2 3 0 1 of the model; alpha 4 over rank 2 doubles. */
Test(adapter, turned_halves_alpha_and_bias)
{
    weft_graph *g = small();
    weft_adapter *a;
    float w[8], b[4];
    cr_assert_eq(OPEN(g, &a, {"out_mod.lora_A.weight", 2, {2, 2}, 1},
                      {"out_mod.lora_B.weight", 2, {4, 2}, 0}, {"out_mod.alpha", 0, {0}, 4},
                      {"out_mod.diff_b", 1, {4}, 5}),
                 WEFT_OK, "%s", weft_error_message());
    const weft_adapter_use use = {a, 1};
    merge(g, &use, 1, "t.norm.linear.weight", NULL, NULL, w, WEFT_F32);
    merge(g, &use, 1, "t.norm.linear.bias", NULL, NULL, b, WEFT_F32);
    /* B A = (0 1)(1 2; 3 4) = 3 4, 11 16, 19 28, 27 40 */
    expect(w, 8, (float[]){39, 57, 55, 81, 7, 9, 23, 33});
    expect(b, 4, (float[]){8, 9, 6, 7});
    weft_adapter_close(a);
    weft_graph_free(g);
}

/* Every box of a kernel and of a stack has the values of the whole tensor. */
Test(adapter, boxes_are_parts_of_the_whole)
{
    static const struct {
        const char *param;
        int rank;
        int64_t dim[4];
    } params[] = {{"t.patch_in.weight", 4, {2, 2, 2, 2}}, {"t.experts.*.w_1.weight", 3, {3, 2, 2}}};
    weft_graph *g = small();
    weft_adapter *a;
    cr_assert_eq(OPEN(g, &a, {"lora_unet_patch_in.lora_down.weight", 4, {3, 2, 2, 2}, 1},
                      {"lora_unet_patch_in.lora_up.weight", 4, {2, 3, 1, 1}, 2},
                      {"lora_unet_experts_1_w_1.lora_down.weight", 2, {1, 2}, 1},
                      {"lora_unet_experts_1_w_1.lora_up.weight", 2, {2, 1}, 3},
                      {"transformer.experts.2.w_1.diff", 2, {2, 2}, 7}),
                 WEFT_OK, "%s", weft_error_message());
    const weft_adapter_use use = {a, 0.5};
    for (int p = 0; p < 2; p++) {
        const int rank = params[p].rank;
        const int64_t *dim = params[p].dim;
        float whole[16], part[16];
        merge(g, &use, 1, params[p].param, NULL, NULL, whole, WEFT_F32);
        for (int d = 0; d < rank; d++)
            for (int64_t from = 0; from < dim[d]; from++) {
                int64_t start[4] = {0}, size[4], index[4] = {0}, count = 1;
                memcpy(size, dim, sizeof size);
                start[d] = from;
                size[d] = 1;
                merge(g, &use, 1, params[p].param, start, size, part, WEFT_F32);
                for (int i = 0; i < rank; i++)
                    count *= size[i];
                for (int64_t e = 0; e < count; e++) {
                    int64_t rest = e, at = 0, step = 1;
                    for (int i = rank - 1; i >= 0; i--) {
                        index[i] = start[i] + rest % size[i];
                        rest /= size[i];
                        at += index[i] * step;
                        step *= dim[i];
                    }
                    cr_assert_eq(part[e], whole[at], "%s dim %d at %d", params[p].param, d, (int)e);
                }
            }
        if (p == 1)
            expect(whole, 12, (float[]){1, 1, 1, 1, 2.5f, 4, 3, 5, 4.5f, 5, 5.5f, 6});
    }
    weft_adapter_close(a);
    weft_graph_free(g);
}

/* Contributions that are too small for f32 next to the weight are added first: the sum is rounded once. */
Test(adapter, several_are_summed_before_rounding)
{
    weft_graph *g = small();
    weft_adapter *a;
    float b[4];
    uint16_t narrow[4] = {0x3f80, 0x3f80, 0x3f80, 0x3f80};
    cr_assert_eq(OPEN(g, &a, {"norm.linear.diff_b", 1, {4}, 1}), WEFT_OK);
    const double tiny = 0x1p-25;
    const weft_adapter_use use[] = {{a, tiny}, {a, tiny}, {a, tiny}, {a, tiny}};
    merge(g, use, 1, "t.norm.linear.bias", NULL, NULL, b, WEFT_F32);
    cr_assert_eq(b[0], 1);
    merge(g, use, 4, "t.norm.linear.bias", NULL, NULL, b, WEFT_F32);
    cr_assert_eq(b[0], 1 + 0x1p-23f);
    const weft_adapter_use half = {a, 0.5};
    merge(g, &half, 1, "t.norm.linear.bias", NULL, NULL, (float *)narrow, WEFT_BF16);
    cr_assert_eq(narrow[0], 0x3fc0); /* 1.5 */
    cr_assert_eq(narrow[3], 0x4040); /* 3 */
    weft_adapter_close(a);
    weft_graph_free(g);
}

/* The error is of this class, for this tensor or module (NULL: none), with the figures or names
 * that the user needs. */
static void expect_refusal(weft_status_code status, weft_message_class kind, const char *key,
                           const char *figures)
{
    cr_assert_neq(status, WEFT_OK);
    cr_assert_eq(weft_error_class(), kind, "%s", weft_error_message());
    cr_assert_not_null(weft_error_fields()->file);
    if (key)
        cr_assert_str_eq(weft_error_fields()->key, key);
    cr_assert_not_null(strstr(weft_error_text(), figures), "\"%s\" lacks \"%s\"", weft_error_text(),
                       figures);
}

Test(adapter, refusals)
{
    weft_graph *g = small();
    weft_adapter *a;
    const piece down = {"norm.linear.lora_A.weight", 2, {1, 2}, 1},
                up = {"norm.linear.lora_B.weight", 2, {4, 1}, 1};
    expect_refusal(OPEN(g, &a, down), WEFT_MSG_ADAPTER_INVALID, NULL,
                   "(lora_A and lora_B, or lora_down and lora_up): norm.linear");
    expect_refusal(OPEN(g, &a, {"norm.linear.alpha", 0, {0}, 1}), WEFT_MSG_ADAPTER_INVALID, NULL,
                   "norm.linear");
    expect_refusal(OPEN(g, &a, down, up, {"norm.linear.lora_down.weight", 2, {1, 2}, 1}),
                   WEFT_MSG_ADAPTER_INVALID, NULL, "\"norm.linear.lora_");
    expect_refusal(OPEN(g, &a, down, up, {"single.q.diff", 1, {4}, 1}), WEFT_MSG_ADAPTER_INVALID,
                   NULL, ": single.q.diff. ");
    cr_expect(weft_error_fields()->has_number && weft_error_fields()->number == 1);
    expect_refusal(OPEN(g, &a, down, {"norm.linear.lora_B.weight", 2, {6, 1}, 1}),
                   WEFT_MSG_TENSOR_SHAPE, "norm.linear.lora_B.weight",
                   "6 rows of 2 columns; \"t.norm.linear.weight\" of the model has 4 of 2");
    expect_refusal(OPEN(g, &a, down, {"norm.linear.lora_B.weight", 2, {4, 2}, 1}),
                   WEFT_MSG_TENSOR_SHAPE, "norm.linear.lora_A.weight",
                   "\"norm.linear.lora_B.weight\"");
    expect_refusal(OPEN(g, &a, {"norm.linear.lora_A.weight", 2, {1, 3}, 1}, up),
                   WEFT_MSG_TENSOR_SHAPE, "norm.linear.lora_B.weight", "4 rows of 3 columns");
    static const char *const others[][2] = {{"norm.linear.dora_scale", "DoRA"},
                                            {"norm.linear.lora_magnitude_vector", "DoRA"},
                                            {"norm.linear.hada_w1_a", "LoHa"},
                                            {"norm.linear.lokr_w2", "LoKr"}};
    for (int i = 0; i < 4; i++)
        expect_refusal(OPEN(g, &a, down, up, {others[i][0], 1, {4}, 1}),
                       WEFT_MSG_FORMAT_UNSUPPORTED, others[i][0], others[i][1]);
    expect_refusal(OPEN(g, &a, down, up, {"norm.linear.weight", 2, {4, 2}, 1}),
                   WEFT_MSG_ADAPTER_INVALID, NULL, ": norm.linear.weight");
    /* differences of nothing for parameters that the model does not have */
    cr_assert_eq(OPEN(g, &a, down, up, {"block.norm9.diff", 0, {0}, 0}), WEFT_OK, "%s",
                 weft_error_message());
    weft_adapter_close(a);
    weft_graph_free(g);
}
