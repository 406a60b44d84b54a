#include "doctor/gpu_report.h"

#include "base/json.h"
#include "base/memory.h"
#include "doctor/gpu_check.h"
#include "doctor/gpu_kernels.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/cuda/cudnn_impl.h"
#include "kernel/registry/backend.h"

#include <stdio.h>
#include <string.h>

static const char report_file[] = "gpu-report.json";

/* ---- the report ------------------------------------------------------------------------------ */

static void print_op(const char *precision, const char *name, const weft_op_check *c)
{
    if (!c->nodes)
        printf("%-5s %-22s %5" PRId64 " nodes  %s\n", precision, name, c->missing + c->unsupported,
               c->missing ? "no kernel" : "unsupported");
    else
        printf("%-5s %-22s %5" PRId64 " nodes  error %8.2g  tolerance %8.2g  %s%s\n", precision,
               name, c->nodes, c->error, c->tolerance, c->failed ? "FAILED at " : "ok",
               c->failed ? c->worst_output : "");
}

static json_t *op_json(const char *precision, const char *impl, const char *name,
                       const weft_op_check *c)
{
    /* JSON has no infinity */
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:s}", "op", name, "kernel",
                     impl, "precision", precision, "nodes", (json_int_t)c->nodes, "failed",
                     (json_int_t)c->failed, "missing", (json_int_t)c->missing, "unsupported",
                     (json_int_t)c->unsupported, "error", c->error < 1e30 ? c->error : 1e30,
                     "tolerance", c->tolerance, "place", c->worst_output);
}

static json_t *gpu_json(const weft_cuda_gpu *gpu)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:i}", "name", gpu->name, "major", gpu->major,
                     "minor", gpu->minor, "processors", gpu->processors, "shared", gpu->shared,
                     "memory", (json_int_t)gpu->memory, "cuda", gpu->version);
}

/* cuDNN's description of the GPU; NULL: no cuDNN. A machine without the GPU can find plans by the
 * description. */
static json_t *cudnn_json(void)
{
    char *text;
    json_t *device = NULL;
    if (weft_cudnn_device(&text) != WEFT_OK)
        return json_pack("{s:s}", "error", weft_error_message());
    if (!text)
        return NULL;
    if (weft_json_parse(text, (int64_t)strlen(text), "cuDNN", &device) != WEFT_OK)
        device = json_string(text);
    weft_free(text);
    return json_pack("{s:I, s:o}", "version", (json_int_t)weft_cudnn_version(), "device", device);
}

/* Prints and appends the ops of one implementation. Returns the number of ops that failed. */
static int report_impl(const char *precision, int impl, const weft_op_check *op, json_t *list)
{
    const char *of = weft_cuda_impl_get(impl)->name;
    const bool own = impl == weft_cuda_impl_own();
    int failed = 0;
    for (int i = 0; i < WEFT_OP_COUNT; i++) {
        char name[80];
        const char *op_name = weft_op_get((weft_op)i)->name;
        if (!op[i].nodes && !op[i].unsupported && (!op[i].missing || !own))
            continue;
        snprintf(name, sizeof name, own ? "%s" : "%s %s", op_name, of);
        print_op(precision, name, &op[i]);
        json_array_append_new(list, op_json(precision, of, op_name, &op[i]));
        failed += op[i].failed > 0;
    }
    return failed;
}

/* Returns the number of ops for which weft's own kernel failed. It replaces libraries. */
static int report_ops(const char *precision, const weft_op_check *op, json_t *list)
{
    const int own = weft_cuda_impl_own();
    const int failed = report_impl(precision, own, op, list);
    for (int i = 0; i < own; i++)
        (void)report_impl(precision, i, &op[WEFT_GPU_RESULT(i, 0)], list);
    return failed;
}

/* `error`: of the GPU, which ended the comparison; NULL: none. */
static weft_status write_report(const weft_cuda_gpu *gpu, json_t *list, int failed,
                                const char *error)
{
    json_t *report = json_pack("{s:s, s:o, s:o*, s:b, s:O, s:s*}", "weft", WEFT_VERSION, "gpu",
                               gpu_json(gpu), "cudnn", cudnn_json(), "passed",
                               failed == 0 && !error, "ops", list, "error", error);
    WEFT_TRY(WEFT_ALLOCATED(report, "the report"));
    const weft_status_code status = weft_json_save(report_file, report);
    json_decref(report);
    return status;
}

static weft_status check_precision(weft_products products, json_t *list, int *failed)
{
    weft_op_check *op;
    WEFT_TRY(WEFT_NEW(op, WEFT_GPU_RESULTS, "the check of kernels"));
    const weft_status_code status = weft_gpu_check(products, op);
    *failed += report_ops(weft_cuda_precision_name(products), op, list);
    weft_free(op);
    return status;
}

/* Writes the report of a GPU that stopped working, and returns its error. */
static weft_status report_error(const weft_cuda_gpu *gpu, json_t *list, int failed)
{
    weft_error_copy *error = weft_error_save();
    const weft_status_code written = write_report(gpu, list, failed, weft_error_message());
    const weft_status_code status = error ? weft_error_restore(error) : written;
    weft_free(error);
    return status;
}

/* Compares the kernels in all precisions. Requires the lock of the files of verdicts. */
static weft_status check_gpu(const weft_cuda_gpu *gpu, json_t *list, int *failed)
{
    bool found;
    /* implementations that stopped the GPU */
    WEFT_TRY(weft_cuda_verdicts_load(WEFT_PRODUCTS_F32, &found));
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++)
        if (check_precision((weft_products)p, list, failed) != WEFT_OK)
            return report_error(gpu, list, *failed);
    WEFT_TRY(weft_cuda_verdicts_save());
    return write_report(gpu, list, *failed, NULL);
}

weft_status weft_doctor_gpu(bool kernels)
{
    const weft_cuda_gpu *gpu;
    int failed = 0, lock;
    WEFT_TRY(weft_backend_check(&weft_backend_cuda));
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    json_t *list = json_array();
    WEFT_TRY(WEFT_ALLOCATED(list, "the report"));
    printf("GPU %d of %d: %s\n", gpu->ordinal, gpu->count, gpu->name);
    weft_status_code status = weft_cuda_files_lock(&lock);
    if (status == WEFT_OK)
        status = check_gpu(gpu, list, &failed);
    weft_cuda_files_unlock(lock);
    json_decref(list);
    WEFT_TRY(status);
    if (kernels)
        WEFT_TRY(weft_gpu_kernels_print());
    if (failed)
        return weft_error(WEFT_MSG_PARITY_FAILED, WEFT_AT(.file = report_file, WEFT_NUMBER(failed)),
                          "%d kernels differ from the reference by more than their tolerance. Use "
                          "backend cpu, and report this file.",
                          failed);
    return WEFT_OK;
}
