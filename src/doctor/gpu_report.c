#include "doctor/gpu_report.h"

#include "base/json.h"
#include "base/kept_error.h"
#include "base/memory.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/link_rates.h"
#include "comm/rank_gpus.h"
#include "doctor/gpu_check.h"
#include "doctor/gpu_families.h"
#include "doctor/gpu_kernels.h"
#include "doctor/gpu_rates.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/cuda/cudnn_impl.h"
#include "kernel/device.h"
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

static weft_status write_report(const weft_gpu_report *r)
{
    json_t *all = json_pack("{s:s, s:o, s:o*, s:b, s:O, s:O*, s:O*, s:O*, s:O*, s:s*}", "weft",
                            WEFT_VERSION, "gpu", gpu_json(r->gpu), "cudnn", cudnn_json(), "passed",
                            r->failed == 0 && r->families_failed == 0 && !r->error, "ops", r->ops,
                            "families", r->families, "rates", r->rates, "copies", r->copies,
                            "links", r->links, "error", r->error);
    WEFT_TRY(WEFT_ALLOCATED(all, "the report"));
    const weft_status_code status = weft_json_save(report_file, all);
    json_decref(all);
    return status;
}

static weft_status check_precision(weft_products products, weft_gpu_report *r)
{
    weft_op_check *op;
    WEFT_TRY(WEFT_NEW(op, WEFT_GPU_RESULTS, "the check of kernels"));
    const weft_status_code status = weft_gpu_check(products, op);
    r->failed += report_ops(weft_cuda_precision_name(products), op, r->ops);
    weft_free(op);
    return status;
}

/* Writes the report of a GPU that stopped working, and returns its error. */
static weft_status report_error(weft_gpu_report *r)
{
    weft_error_copy *error = weft_error_save();
    r->error = weft_strdup(weft_error_message());
    const weft_status_code written = write_report(r);
    return weft_kept_error_return(error, written);
}

/* Compares the kernels in all precisions. Requires the lock of the files of verdicts. */
static weft_status check_gpu(weft_gpu_report *r)
{
    bool found;
    /* implementations that stopped the GPU */
    WEFT_TRY(weft_cuda_verdicts_load(WEFT_PRODUCTS_F32, &found));
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++)
        if (check_precision((weft_products)p, r) != WEFT_OK)
            return report_error(r);
    return weft_cuda_verdicts_save();
}

static weft_status check_with_lock(weft_gpu_report *r)
{
    int lock;
    weft_status_code status = weft_cuda_files_lock(&lock);
    if (status == WEFT_OK)
        status = check_gpu(r);
    weft_cuda_files_unlock(lock);
    return status;
}

weft_status weft_gpu_report_measure(weft_gpu_report *r)
{
    /* work of an op that failed is not prepared, so a GPU with such an op has copies only */
    if (weft_gpu_figures_measure(!r->failed, &r->copies, &r->rates) != WEFT_OK)
        return report_error(r);
    return write_report(r);
}

/* Measures the connections between the GPUs of all ranks. Collective. */
static weft_status measure_links(weft_comm *comm, weft_gpu_report *r)
{
    enum { BYTES = 256 << 20 };
    weft_group *world;
    weft_link_rates rates;
    const int64_t most = weft_device_available(&weft_device_cuda, 1) / 8 / 256 * 256;
    double bytes = (double)(most < BYTES ? most : BYTES);
    WEFT_TRY(weft_comm_world(comm, &world));
    WEFT_TRY(weft_comm_broadcast(comm, &bytes, sizeof bytes, 0));
    WEFT_TRY(weft_link_rates_measure(world, &weft_device_cuda, (int64_t)bytes, &rates));
    if (weft_comm_rank(comm) > 0)
        return WEFT_OK;
    if (!rates.library) {
        printf("links: %d ranks without NCCL, or with a GPU in common; messages pass pinned "
               "memory\n",
               weft_comm_ranks(comm));
        return WEFT_OK;
    }
    printf("links of %d GPUs by %s: %.4g GB/s in a ring, %.4g of an all_reduce\n",
           weft_comm_ranks(comm), rates.library, 1e-9 * rates.ring, 1e-9 * rates.all_reduce);
    r->links = json_pack("{s:s, s:i, s:f, s:f}", "library", rates.library, "ranks",
                         weft_comm_ranks(comm), "ring", rates.ring, "all_reduce", rates.all_reduce);
    return WEFT_ALLOCATED(r->links, "the report");
}

/* Rank 0 compares the kernels and writes the report; the links are between all ranks. */
static weft_status check_ranks(weft_comm *comm, bool kernels, weft_gpu_report *r)
{
    const bool first = weft_comm_rank(comm) == 0;
    WEFT_TRY(weft_backend_check(&weft_backend_cuda));
    WEFT_TRY(weft_cuda_gpu_get(&r->gpu));
    if (weft_comm_ranks(comm) > 1) {
        const weft_status_code status = measure_links(comm, r);
        if (status != WEFT_OK)
            return first ? report_error(r) : status;
    }
    if (!first)
        return weft_comm_barrier(comm);
    weft_comm_set_busy(comm, "comparing the kernels of the GPU with the reference");
    printf("GPU %d of %d: %s\n", r->gpu->ordinal, r->gpu->count, r->gpu->name);
    WEFT_TRY(check_with_lock(r));
    /* programs with an op that failed are not prepared */
    if (!r->failed && weft_gpu_families_check(&r->families, &r->families_failed) != WEFT_OK)
        return report_error(r);
    WEFT_TRY(weft_gpu_report_measure(r));
    if (kernels)
        WEFT_TRY(weft_gpu_kernels_print());
    weft_comm_set_busy(comm, NULL);
    return weft_comm_barrier(comm);
}

void weft_gpu_report_free(weft_gpu_report *r)
{
    json_decref(r->ops);
    json_decref(r->families);
    json_decref(r->rates);
    json_decref(r->copies);
    json_decref(r->links);
    weft_free(r->error);
}

static weft_status result_of(const weft_gpu_report *r)
{
    if (r->failed)
        return weft_error(WEFT_MSG_PARITY_FAILED,
                          WEFT_AT(.file = report_file, WEFT_NUMBER(r->failed)),
                          "%d kernels differ from the reference by more than their tolerance. Use "
                          "backend cpu, and report this file.",
                          r->failed);
    if (r->families_failed)
        return weft_error(WEFT_MSG_PARITY_FAILED,
                          WEFT_AT(.file = report_file, WEFT_NUMBER(r->families_failed)),
                          "%d steps of model families differ from the stored numbers by more than "
                          "their tolerance. Use backend cpu, and report this file.",
                          r->families_failed);
    return WEFT_OK;
}

weft_status weft_doctor_gpu(bool kernels)
{
    weft_gpu_report r = {.ops = json_array()};
    weft_comm *comm = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(r.ops, "the report"));
    WEFT_GO(weft_comm_open_mpi(&comm));
    WEFT_GO(weft_rank_gpus_choose("cuda", comm));
    WEFT_GO(check_ranks(comm, kernels, &r));
    WEFT_GO(result_of(&r));
out:
    if (status != WEFT_OK && comm && weft_comm_ranks(comm) > 1)
        weft_comm_abort(comm);
    weft_comm_free(comm);
    weft_gpu_report_free(&r);
    return status;
}
