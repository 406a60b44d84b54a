#include "kernel/cuda/cuda_trial.h"

#include "base/id_hash.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/device.h"
#include "kernel/view.h"

enum { OPERANDS = 16, REPETITIONS = 3, PATTERN = 0x3c /* 0.0115 in f32 and bf16 */ };

struct weft_cuda_bench {
    weft_kernel_args args;
    weft_view in[OPERANDS], out[WEFT_MAX_OUTPUTS];
    weft_device_stream *stream;
    void *memory; /* of all operands and the workspace */
};

/* ---- operands -------------------------------------------------------------------------------- */

/* Gives the operands their places and returns the bytes. `memory` NULL: only the bytes. */
static int64_t place(weft_cuda_bench *b, char *memory)
{
    int64_t at = 0;
    for (int i = 0; i < b->args.in_count + b->args.out_count; i++) {
        weft_view *v = i < b->args.in_count ? &b->in[i] : &b->out[i - b->args.in_count];
        if (!view_present(v))
            continue;
        v->data = memory ? memory + at : NULL;
        at += weft_aligned(view_count(v) * weft_dtype_bytes(v->dtype));
    }
    b->args.workspace = memory ? memory + at : NULL;
    return at + weft_aligned(weft_cuda_impls_workspace(&b->args));
}

/* Floats become small values, integers 0. */
static void fill(const weft_cuda_bench *b)
{
    for (int i = 0; i < b->args.in_count; i++)
        if (view_present(&b->in[i]))
            weft_device_cuda.fill(b->stream, b->in[i].data,
                                  weft_dtype_is_float(b->in[i].dtype) ? PATTERN : 0,
                                  view_count(&b->in[i]) * weft_dtype_bytes(b->in[i].dtype));
}

static weft_status create(const weft_kernel_args *args, weft_cuda_bench *b)
{
    b->args = *args;
    b->args.in = b->in;
    b->args.out = b->out;
    for (int i = 0; i < args->in_count; i++)
        b->in[i] = args->in[i];
    for (int i = 0; i < args->out_count; i++)
        b->out[i] = args->out[i];
    const int64_t bytes = place(b, NULL);
    b->memory = weft_device_cuda.available(&weft_device_cuda) > bytes
                    ? weft_device_cuda.alloc(&weft_device_cuda, bytes + 1)
                    : NULL;
    if (!b->memory)
        return weft_device_no_memory(&weft_device_cuda, bytes, "operands of a measurement");
    (void)place(b, b->memory);
    WEFT_TRY(weft_device_cuda.open(&weft_device_cuda, NULL, &b->stream));
    b->args.stream = b->stream;
    fill(b);
    return weft_device_cuda.wait(b->stream);
}

void weft_cuda_bench_close(weft_cuda_bench *b)
{
    if (!b)
        return;
    weft_device_cuda.close(b->stream);
    weft_device_cuda.free(&weft_device_cuda, b->memory);
    weft_free(b);
}

weft_status weft_cuda_bench_open(const weft_kernel_args *args, weft_cuda_bench **out)
{
    weft_cuda_bench *b;
    if (args->in_count > OPERANDS)
        return weft_error(
            WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(args->in_count)),
            "an op with several implementations has at most %d inputs, not %d. This is "
            "a bug in weft.",
            (int)OPERANDS, args->in_count);
    WEFT_TRY(WEFT_NEW(b, 1, "the measurement of a kernel"));
    const weft_status_code status = create(args, b);
    if (status != WEFT_OK) {
        weft_cuda_bench_close(b);
        return status;
    }
    *out = b;
    return WEFT_OK;
}

static weft_status_code launch(const weft_cuda_bench *b, const weft_cuda_impl *impl, void *plan)
{
    return weft_cuda_stream_begin(b->stream, impl->name) ? impl->launch(&b->args, plan) : WEFT_OK;
}

/* ---- comparison with weft's own kernel ------------------------------------------------------- */

/* Random numbers that operands repeat; a prime number, so that rows of tiles differ. */
enum { RANDOM_COUNT = 65521, READ_BYTES = 1 << 20 };

static weft_status write_random(const weft_cuda_bench *b, weft_staging *staging, float *value)
{
    weft_rng rng = weft_rng_make(1, WEFT_RNG_TEST);
    for (int i = 0; i < RANDOM_COUNT; i++)
        value[i] = (float)weft_rng_normal(&rng);
    for (int i = 0; i < b->args.in_count; i++) {
        const weft_view *v = &b->in[i];
        const int64_t bytes = weft_dtype_bytes(v->dtype),
                      count = view_present(v) && weft_dtype_is_float(v->dtype) ? view_count(v) : 0;
        for (int64_t at = 0; at < count; at += RANDOM_COUNT)
            WEFT_TRY(
                weft_staging_write(staging, (char *)v->data + at * bytes, v->dtype, value, WEFT_F32,
                                   count - at < RANDOM_COUNT ? count - at : (int64_t)RANDOM_COUNT));
    }
    return weft_staging_finish(staging);
}

/* A hash of all outputs. */
static weft_status hash_outputs(const weft_cuda_bench *b, weft_staging *staging, char *buffer,
                                uint64_t *hash)
{
    *hash = WEFT_ID_BEGIN;
    for (int i = 0; i < b->args.out_count; i++) {
        const int64_t bytes = view_count(&b->out[i]) * weft_dtype_bytes(b->out[i].dtype);
        for (int64_t at = 0; at < bytes; at += READ_BYTES) {
            const int64_t part = bytes - at < READ_BYTES ? bytes - at : (int64_t)READ_BYTES;
            WEFT_TRY(weft_staging_read(staging, buffer, WEFT_U8, (char *)b->out[i].data + at,
                                       WEFT_U8, part));
            *hash = weft_id_mix(*hash, buffer, (size_t)part);
        }
    }
    return WEFT_OK;
}

/* Computes the outputs, which are zeros before, and their hash. */
static weft_status compute(const weft_cuda_bench *b, const weft_cuda_impl *impl, void *plan,
                           weft_staging *staging, char *buffer, uint64_t *hash, bool *gpu_failed)
{
    for (int i = 0; i < b->args.out_count; i++)
        WEFT_TRY(weft_staging_zero(staging, b->out[i].data,
                                   view_count(&b->out[i]) * weft_dtype_bytes(b->out[i].dtype)));
    WEFT_TRY(weft_staging_finish(staging));
    WEFT_TRY(launch(b, impl, plan));
    *gpu_failed = true;
    WEFT_TRY(weft_device_cuda.wait(b->stream));
    *gpu_failed = false;
    return hash_outputs(b, staging, buffer, hash);
}

weft_status_code weft_cuda_trial_compare(weft_cuda_bench *b, const weft_cuda_impl *impl,
                                         weft_cuda_trial *trial)
{
    weft_cuda_plan plan = {0};
    weft_staging *staging = NULL;
    float *value = weft_calloc(RANDOM_COUNT, sizeof *value);
    char *buffer = weft_calloc(READ_BYTES, 1);
    uint64_t own = 0, other = 0;
    int count = 1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(value && buffer, "the comparison of a kernel"));
    WEFT_GO(weft_staging_create(&weft_device_cuda, &staging));
    if (impl->prepare)
        WEFT_GO(impl->prepare(&b->args, 0, 1, &plan, &count));
    WEFT_GO(write_random(b, staging, value));
    WEFT_GO(compute(b, weft_cuda_impl_get(weft_cuda_impl_own()), NULL, staging, buffer, &own,
                    &trial->gpu_failed));
    WEFT_GO(compute(b, impl, plan.plan, staging, buffer, &other, &trial->gpu_failed));
    trial->differs = own != other;
out:
    if (plan.plan && !trial->gpu_failed)
        impl->release(plan.plan);
    weft_staging_free(staging);
    weft_free(value);
    weft_free(buffer);
    return status;
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* Seconds of a launch between two events. */
static weft_status time_launch(const weft_cuda_bench *b, const weft_cuda_impl *impl, void *plan,
                               double *seconds, bool *gpu_failed)
{
    weft_event begin = {0}, end = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_device_cuda.record(b->stream, &begin));
    WEFT_GO(launch(b, impl, plan));
    WEFT_GO(weft_device_cuda.record(b->stream, &end));
    *gpu_failed = true;
    WEFT_GO(weft_device_cuda.await(b->stream, &begin));
    WEFT_GO(weft_device_cuda.await(b->stream, &end));
    *gpu_failed = false;
    *seconds = end.seconds - begin.seconds;
out:
    weft_device_cuda.forget(&weft_device_cuda, &begin);
    weft_device_cuda.forget(&weft_device_cuda, &end);
    return status;
}

/* Least seconds of a few launches after one that is not measured. */
static weft_status time_plan(const weft_cuda_bench *b, const weft_cuda_impl *impl, void *plan,
                             weft_cuda_trial *trial, double *least)
{
    double seconds = 0;
    for (int i = 0; i <= REPETITIONS; i++) {
        WEFT_TRY(time_launch(b, impl, plan, &seconds, &trial->gpu_failed));
        if (i == 1 || (i > 1 && seconds < *least))
            *least = seconds;
    }
    return WEFT_OK;
}

/* Takes the plan, which becomes the trial's or is released. */
static weft_status try_plan(const weft_cuda_bench *b, const weft_cuda_impl *impl,
                            weft_cuda_plan plan, weft_cuda_trial *trial)
{
    double seconds = 0;
    const weft_status_code status = time_plan(b, impl, plan.plan, trial, &seconds);
    weft_cuda_plan lost = plan;
    if (status == WEFT_OK && (!trial->tried || seconds < trial->seconds)) {
        lost = trial->plan;
        *trial = (weft_cuda_trial){.tried = true, .seconds = seconds, .plan = plan};
    }
    if (lost.plan && !trial->gpu_failed)
        impl->release(lost.plan);
    return status;
}

weft_status_code weft_cuda_trial_run(weft_cuda_bench *b, const weft_cuda_impl *impl,
                                     weft_cuda_trial *trial)
{
    weft_cuda_plan plan[WEFT_CUDA_VARIANTS] = {{0}};
    weft_status_code status = WEFT_OK;
    int count = 1;
    if (impl->prepare)
        WEFT_TRY(impl->prepare(&b->args, 0, WEFT_CUDA_VARIANTS, plan, &count));
    for (int i = 0; i < count && !trial->gpu_failed; i++) /* a failed GPU keeps the other plans */
        status = try_plan(b, impl, plan[i], trial);
    return trial->tried && !trial->gpu_failed ? WEFT_OK : status;
}
