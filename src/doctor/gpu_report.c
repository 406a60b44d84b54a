#include "doctor/gpu_report.h"

#include "base/json.h"
#include "base/memory.h"
#include "doctor/gpu_check.h"
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
    if (c->missing)
        printf("%-5s %-22s %5" PRId64 " nodes  no kernel\n", precision, name, c->missing);
    else
        printf("%-5s %-22s %5" PRId64 " nodes  error %8.2g  tolerance %8.2g  %s%s\n", precision,
               name, c->nodes, c->error, c->tolerance, c->failed ? "FAILED at " : "ok",
               c->failed ? c->worst_output : "");
}

static json_t *op_json(const char *precision, const char *name, const weft_op_check *c)
{
    /* JSON has no infinity */
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:s}", "op", name, "precision", precision,
                     "nodes", (json_int_t)c->nodes, "failed", (json_int_t)c->failed, "missing",
                     (json_int_t)c->missing, "error", c->error < 1e30 ? c->error : 1e30,
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

static weft_status check_precision(bool narrow, json_t *list, int *failed)
{
    weft_op_check *op;
    WEFT_TRY(WEFT_NEW(op, WEFT_OP_COUNT, "the check of kernels"));
    const weft_status_code status = weft_gpu_check(narrow, op);
    *failed += report_ops(narrow ? "bf16" : "f32", op, list);
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

static weft_status check_gpu(const weft_cuda_gpu *gpu, json_t *list, int *failed)
{
    if (check_precision(false, list, failed) != WEFT_OK ||
        check_precision(true, list, failed) != WEFT_OK)
        return report_error(gpu, list, *failed);
    WEFT_TRY(weft_cuda_verdicts_save());
    return write_report(gpu, list, *failed, NULL);
}

weft_status weft_doctor_gpu(void)
{
    const weft_cuda_gpu *gpu;
    int failed = 0;
    WEFT_TRY(weft_backend_check(&weft_backend_cuda));
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    weft_cuda_verdicts_forget();
    json_t *list = json_array();
    WEFT_TRY(WEFT_ALLOCATED(list, "the report"));
    printf("GPU %d of %d: %s\n", gpu->ordinal, gpu->count, gpu->name);
    const weft_status_code status = check_gpu(gpu, list, &failed);
    json_decref(list);
    WEFT_TRY(status);
    if (failed)
        return weft_error(WEFT_MSG_PARITY_FAILED, WEFT_AT(.file = report_file, WEFT_NUMBER(failed)),
                          "%d kernels differ from the reference by more than their tolerance. Use "
                          "backend cpu, and report this file.",
                          failed);
    return WEFT_OK;
}
