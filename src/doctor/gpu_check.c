#include "doctor/gpu_check.h"

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "doctor/gpu_rest.h"
#include "doctor/gpu_shapes.h"
#include "graph/builder_helpers.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_nvrtc.h"
#include "kernel/cuda/cuda_verdict.h"
#include "train/graph/optimizer.h"
#include "transform/numeric/fuse.h"
#include "transform/numeric/mixed_precision.h"
#include "transform/numeric/pointwise.h"
#include "transform/numeric/tf32.h"

#include <string.h>

/* ---- graphs ---------------------------------------------------------------------------------- */

/* Sizes do not divide by tiles and vectors, except in the last three models, which tensor
 * cores can use. The last two are compared in bf16 and TF32 only. */
static const char *const models[] = {
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":3,"
    "\"attention_head_dim\":12,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
    "\"ffn_dim\":50,\"num_layers\":1,\"rope_max_seq_len\":16}",
    "{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_attention_heads\":3,"
    "\"attention_head_dim\":12,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
    "\"ffn_dim\":22,\"num_layers\":2,\"first_k_dense_replace\":1,\"num_activated_experts\":2,"
    "\"moe_intermediate_size\":9,\"n_shared_experts\":1,\"num_routed_experts\":5}",
    "{\"_class_name\":\"HunyuanVideoTransformer3DModel\",\"num_attention_heads\":3,"
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"num_layers\":1,"
    "\"num_single_layers\":1,\"num_refiner_layers\":1,\"text_embed_dim\":6,\"patch_size\":1,"
    "\"pooled_projection_dim\":5,\"rope_axes_dim\":[2,2,2]}",
    "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"z_dim\":3,\"dim_mult\":[1,2,2,2],"
    "\"num_res_blocks\":1,\"latents_mean\":[0,0,0],\"latents_std\":[1,1,1]}",
    [WEFT_GPU_VECTOR_MODEL] =
        "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,"
        "\"attention_head_dim\":64,\"in_channels\":8,\"out_channels\":8,\"text_dim\":24,"
        "\"freq_dim\":16,\"ffn_dim\":136,\"num_layers\":1,\"rope_max_seq_len\":16}",
    [WEFT_GPU_WIDE_MODEL] =
        "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":1,"
        "\"attention_head_dim\":128,\"in_channels\":8,\"out_channels\":8,\"text_dim\":24,"
        "\"freq_dim\":16,\"ffn_dim\":136,\"num_layers\":1,\"rope_max_seq_len\":16}",
    [WEFT_GPU_VECTOR_VAE] =
        "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":8,\"z_dim\":8,\"dim_mult\":[1,2,2],"
        "\"num_res_blocks\":1,\"latents_mean\":[0,0,0,0,0,0,0,0],"
        "\"latents_std\":[1,1,1,1,1,1,1,1]}",
};

static const weft_optimizer_config adamw = {.beta1 = 0.9,
                                            .beta2 = 0.99,
                                            .eps = 1e-3,
                                            .weight_decay = 0.01,
                                            .clip_norm = 0.5,
                                            .ema_decay = 0.9};

/* The mean square of all outputs. */
static weft_value loss_of(weft_graph *g)
{
    int count;
    weft_value loss = WEFT_NONE;
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++) {
        const weft_value v = output[i].value;
        if (weft_value_get(g, v)->dtype != WEFT_F32)
            continue;
        const weft_value square = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, v));
        loss = weft_value_ok(loss) ? weft_add(g, loss, square) : square;
    }
    return loss;
}

/* Small, and divides by neither tiles nor vectors. */
static weft_model_size odd_size(const weft_model *model)
{
    weft_model_size size = weft_model_smallest(model);
    size.batch = 2;
    size.text = size.text > 3 ? size.text : 3;
    size.height *= 3;
    size.width *= 5;
    return size;
}

/* Adds the training step of a forward and frees `g`. */
static weft_status step_of(weft_graph *g, weft_products products, weft_graph **out)
{
    weft_graph *forward = NULL;
    weft_status_code status = WEFT_OK;
    if (products == WEFT_PRODUCTS_BF16) { /* gradients are of the narrow forward, as in training */
        forward = g;
        g = NULL;
        WEFT_GO(weft_graph_check(forward));
        WEFT_GO(weft_pass_mixed_precision(forward, 0, &g));
    }
    weft_optimizer_build(g, loss_of(g), &adamw);
    WEFT_GO(weft_graph_check(g));
    if (products == WEFT_PRODUCTS_TF32) {
        forward = g;
        g = NULL;
        WEFT_GO(weft_pass_tf32(forward, &g));
    }
    WEFT_GO(weft_pass_fuse(g, out));
out:
    weft_graph_free(forward);
    weft_graph_free(g);
    return status;
}

weft_status weft_gpu_step_build(const char *config, const weft_model_size *given,
                                weft_products products, weft_graph **out)
{
    json_t *json;
    weft_model model = {0};
    WEFT_TRY(weft_json_parse(config, (int64_t)strlen(config), "weft doctor", &json));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_model_read(json, "weft doctor", &model));
    const weft_model_size size = given ? *given : odd_size(&model);
    weft_graph *g = weft_graph_create();
    WEFT_GO(WEFT_ALLOCATED(g, "a model of the check"));
    weft_model_build(g, &model, &size, false);
    status = step_of(g, products, out);
out:
    json_decref(json);
    return status;
}

static weft_status build_rest(weft_products products, weft_graph **out)
{
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "the ops of the check"));
    weft_gpu_rest_build(g);
    return step_of(g, products, out);
}

bool weft_gpu_check_has(int model, weft_products products)
{
    if (model == WEFT_GPU_WIDE_MODEL || model == WEFT_GPU_VECTOR_VAE)
        return products != WEFT_PRODUCTS_F32;
    return model != WEFT_GPU_JOINED_MODEL || weft_nvrtc_version() > 0;
}

weft_status weft_gpu_check_build(int model, weft_products products, weft_graph **out)
{
    const bool joined = model == WEFT_GPU_JOINED_MODEL;
    weft_graph *g;
    if (model == WEFT_GPU_REST)
        return build_rest(products, out);
    WEFT_TRY(weft_gpu_step_build(models[joined ? WEFT_GPU_VECTOR_MODEL : model], NULL, products,
                                 joined ? &g : out));
    if (!joined)
        return WEFT_OK;
    const weft_status_code status = weft_pass_pointwise(g, 2, out);
    weft_graph_free(g);
    return status;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Round 0 is weft's own kernels; round 1 + i is implementation i. */
typedef struct trying {
    weft_products products;
    int impl; /* of the last round */
    weft_op op;
    bool is_tried; /* the work of the op has begun and not ended */
} trying;

static bool select_impl(void *user, int round, weft_op op)
{
    trying *t = user;
    const int own = weft_cuda_impl_own();
    t->impl = round == 0 ? own : round - 1;
    weft_cuda_choice_force(t->impl);
    return weft_cuda_impl_get(t->impl)->has(op) && weft_cuda_impl_get(t->impl)->version() > 0;
}

static weft_status_code begin_trial(void *user, int round, weft_op op)
{
    trying *t = user;
    (void)round;
    t->op = op;
    t->is_tried = true;
    return weft_cuda_trial_begin(t->products, t->impl, op);
}

static weft_status_code end_trial(void *user, int round, weft_op op)
{
    trying *t = user;
    (void)round, (void)op;
    t->is_tried = false;
    return weft_cuda_trial_end(t->impl);
}

weft_status weft_gpu_check_graph(const weft_graph *g, weft_products products, weft_op_check *op)
{
    trying now = {.products = products};
    const weft_check_rounds rounds = {.count = weft_cuda_impl_count(),
                                      .user = &now,
                                      .select = select_impl,
                                      .begin = begin_trial,
                                      .end = end_trial};
    const weft_status_code status =
        weft_kernels_check_rounds(g, &weft_backend_cuda, 1, &rounds, op);
    weft_cuda_choice_force(-1);
    return status == WEFT_OK || !now.is_tried ? status
                                              : weft_cuda_trial_stop(now.impl, now.op, status);
}

weft_status weft_gpu_check_model(int model, weft_products products, weft_op_check *op)
{
    weft_graph *g;
    WEFT_TRY(weft_gpu_check_build(model, products, &g));
    const weft_status_code status = weft_gpu_check_graph(g, products, op);
    weft_graph_free(g);
    return status;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static void set_verdict(weft_products products, int impl, weft_op op, const weft_op_check *c)
{
    if (weft_cuda_verdict_get(products, impl, op) == WEFT_VERDICT_STOPPED)
        return;
    if (c->nodes)
        weft_cuda_verdict_set(products, impl, op,
                              c->failed ? WEFT_VERDICT_FAILED : WEFT_VERDICT_PASSED);
    else if (c->unsupported)
        weft_notice(WEFT_MSG_KERNEL_REPLACED,
                    WEFT_AT(.key = weft_op_get(op)->name, .value = weft_cuda_impl_get(impl)->name),
                    "%s of %s is not used: the library rejects every case of the comparison",
                    weft_op_get(op)->name, weft_cuda_impl_get(impl)->name);
}

weft_status weft_gpu_check(weft_products products, weft_op_check *op)
{
    const int own = weft_cuda_impl_own();
    for (int i = 0; i < WEFT_GPU_MODELS; i++)
        if (weft_gpu_check_has(i, products))
            WEFT_TRY(weft_gpu_check_model(i, products, op));
    for (int i = 0; i < WEFT_OP_COUNT; i++) {
        set_verdict(products, own, (weft_op)i, &op[i]);
        for (int impl = 0; impl < own; impl++)
            set_verdict(products, impl, (weft_op)i, &op[WEFT_GPU_RESULT(impl, i)]);
    }
    return WEFT_OK;
}

weft_status weft_gpu_check_choices(weft_products products)
{
    weft_graph *g;
    weft_op_check *op;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_gpu_check_build(WEFT_GPU_VECTOR_MODEL, products, &g));
    WEFT_GO(WEFT_NEW(op, WEFT_OP_COUNT, "the check of kernels"));
    status = weft_kernels_check(g, &weft_backend_cuda, 1, op);
    weft_free(op);
out:
    weft_graph_free(g);
    return status;
}

static weft_status check_and_save(weft_products products)
{
    weft_op_check *op;
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    WEFT_TRY(WEFT_NEW(op, WEFT_GPU_RESULTS, "the check of kernels"));
    weft_debug("%s has no verdicts in %s: comparing the kernels with the reference", gpu->name,
               weft_cuda_precision_name(products));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_gpu_check(products, op));
    WEFT_GO(weft_cuda_verdicts_save());
out:
    weft_free(op);
    return status;
}

weft_status weft_gpu_settle(const weft_backend *backend, weft_products products)
{
    bool found;
    int lock;
    if (backend != &weft_backend_cuda)
        return WEFT_OK;
    WEFT_TRY(weft_cuda_files_lock(&lock));
    weft_status_code status = weft_cuda_verdicts_load(products, &found);
    if (status == WEFT_OK && !found)
        status = check_and_save(products);
    weft_cuda_files_unlock(lock);
    if (status == WEFT_OK)
        weft_gpu_shapes_begin();
    return status;
}
