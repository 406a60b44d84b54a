#include "doctor/gpu_report.h"

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "graph/builder_helpers.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/registry/backend.h"
#include "kernel/registry/kernel_check.h"
#include "model/model.h"
#include "train/graph/optimizer.h"
#include "transform/numeric/fuse.h"
#include "transform/numeric/mixed_precision.h"

#include <stdio.h>
#include <string.h>

static const char report_file[] = "gpu-report.json";

/* ---- graphs ---------------------------------------------------------------------------------- */

/* Sizes do not divide by tiles and vectors. */
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

/* A training step of a model at a small size, in f32 or in mixed precision. */
static weft_status build(const char *config, bool narrow, weft_graph **out)
{
    json_t *json;
    weft_model model = {0};
    weft_graph *g = NULL, *forward = NULL;
    WEFT_TRY(weft_json_parse(config, (int64_t)strlen(config), "weft doctor", &json));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_model_read(json, "weft doctor", &model));
    weft_model_size size = weft_model_smallest(&model);
    size.batch = 2;
    size.text = size.text > 3 ? size.text : 3;
    size.height *= 3;
    size.width *= 5;
    g = weft_graph_create();
    WEFT_GO(WEFT_ALLOCATED(g, "a model of the check"));
    weft_model_build(g, &model, &size, false);
    if (narrow) { /* gradients are of the narrow forward, as in training */
        forward = g;
        g = NULL;
        WEFT_GO(weft_graph_check(forward));
        WEFT_GO(weft_pass_mixed_precision(forward, false, &g));
    }
    weft_optimizer_build(g, loss_of(g), &adamw);
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(weft_pass_fuse(g, out));
out:
    weft_graph_free(forward);
    weft_graph_free(g);
    json_decref(json);
    return status;
}

static weft_status check_model(const char *config, bool narrow, weft_op_check *op)
{
    weft_graph *g;
    WEFT_TRY(build(config, narrow, &g));
    const weft_status_code status = weft_kernels_check(g, &weft_backend_cuda, 1, op);
    weft_graph_free(g);
    return status;
}

/* ---- the report ------------------------------------------------------------------------------ */

static void print_op(const char *precision, const char *name, const weft_op_check *c)
{
    if (c->missing)
        printf("%-5s %-22s %5" PRId64 " nodes  no kernel\n", precision, name, c->missing);
    else
        printf("%-5s %-22s %5" PRId64 " nodes  error %8.2g  tolerance %8.2g  %s%s\n", precision,
               name, c->nodes, c->error, c->tolerance, c->failed ? "FAILED at " : "ok",
               c->failed ? c->place : "");
}

static json_t *op_json(const char *precision, const char *name, const weft_op_check *c)
{
    /* JSON has no infinity */
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:s}", "op", name, "precision", precision,
                     "nodes", (json_int_t)c->nodes, "failed", (json_int_t)c->failed, "missing",
                     (json_int_t)c->missing, "error", c->error < 1e30 ? c->error : 1e30,
                     "tolerance", c->tolerance, "place", c->place);
}

static json_t *gpu_json(const weft_cuda_gpu *gpu)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:i}", "name", gpu->name, "major", gpu->major,
                     "minor", gpu->minor, "processors", gpu->processors, "shared", gpu->shared,
                     "memory", (json_int_t)gpu->memory, "cuda", gpu->version);
}

/* Prints and appends the ops of one precision. Returns the number of ops that failed. */
static int report_ops(const char *precision, const weft_op_check *op, json_t *list)
{
    int failed = 0;
    for (int i = 0; i < WEFT_OP_COUNT; i++) {
        const char *name = weft_op_get((weft_op)i)->name;
        if (!op[i].nodes && !op[i].missing)
            continue;
        print_op(precision, name, &op[i]);
        json_array_append_new(list, op_json(precision, name, &op[i]));
        failed += op[i].failed > 0;
    }
    return failed;
}

static weft_status write_report(const weft_cuda_gpu *gpu, json_t *list, int failed)
{
    json_t *report = json_pack("{s:s, s:o, s:b, s:O}", "weft", WEFT_VERSION, "gpu", gpu_json(gpu),
                               "passed", failed == 0, "ops", list);
    WEFT_TRY(WEFT_ALLOCATED(report, "the report"));
    const weft_status_code status = weft_json_save(report_file, report);
    json_decref(report);
    return status;
}

static weft_status check_precision(bool narrow, json_t *list, int *failed)
{
    weft_op_check *op;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(op, WEFT_OP_COUNT, "the check of kernels"));
    for (int i = 0; i < WEFT_COUNT(models) && status == WEFT_OK; i++)
        status = check_model(models[i], narrow, op);
    if (status == WEFT_OK)
        *failed += report_ops(narrow ? "bf16" : "f32", op, list);
    weft_free(op);
    return status;
}

weft_status weft_doctor_gpu(void)
{
    const weft_cuda_gpu *gpu;
    int failed = 0;
    WEFT_TRY(weft_backend_check(&weft_backend_cuda));
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    json_t *list = json_array();
    WEFT_TRY(WEFT_ALLOCATED(list, "the report"));
    printf("GPU %d of %d: %s\n", gpu->ordinal, gpu->count, gpu->name);
    weft_status_code status = check_precision(false, list, &failed);
    if (status == WEFT_OK)
        status = check_precision(true, list, &failed);
    if (status == WEFT_OK)
        status = write_report(gpu, list, failed);
    json_decref(list);
    if (status == WEFT_OK && failed)
        return weft_error(WEFT_MSG_PARITY_FAILED, WEFT_AT(.file = report_file, WEFT_NUMBER(failed)),
                          "%d kernels differ from the reference by more than their tolerance. Use "
                          "backend cpu, and report this file.",
                          failed);
    return status;
}
