/* Attention over batch, heads and segments: assigns pieces to threads. attention.inc computes them.
 *
 * A forward task is 384 queries of a head in a segment. A backward task is a head in a segment.
 * Tasks write disjoint rows without atomics, so the result does not depend on the number of
 * threads. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>
#include <omp.h>

/* Returns the scratch per thread in floats, for the instruction set with the widest vectors. */
static int64_t forward_scratch(int64_t D)
{
    const int64_t Dp = D + 16, rows = CPU_ATTENTION_CHUNK + 16;
    return rows * (D + Dp + 1 + 16) + CPU_ATTENTION_BK * (D + Dp) + 112 * CPU_ATTENTION_BK + 64;
}

static int64_t backward_scratch(int64_t D)
{
    const int64_t Dp = D + 16, keys = CPU_ATTENTION_BK + 16;
    return keys * (2 * D + 3 * Dp) + 112 * 3 * Dp + 112 * 2 * (CPU_ATTENTION_BK + 1) + 4 * 112;
}

static int64_t align(int64_t floats)
{
    return (floats + 63) & ~(int64_t)63;
}

static int64_t attention_workspace(const weft_kernel_args *args)
{
    return args->threads * align(forward_scratch(args->in[0].shape.dim[3])) * 4;
}

static int64_t attention_grad_workspace(const weft_kernel_args *args)
{
    return args->threads * align(backward_scratch(args->in[0].shape.dim[3])) * 4;
}

/* Returns the number of threads that the workspace is for. */
static int team(const weft_kernel_args *args)
{
    return omp_in_parallel() ? 1 : args->threads;
}

typedef struct attention_job {
    const weft_kernel_args *args;
    const weft_attr_attention *attr;
    const weft_view *q, *k, *segments; /* segments NULL: one per batch item */
    const float *bias;                 /* (B,Sk) or NULL */
    int64_t by_item; /* segments of each batch item, whose rows they count; 0: rows of B*S */
    int64_t count, sq, sk, heads, D;
} attention_job;

static attention_job job_of(const weft_kernel_args *args, int segments_at)
{
    attention_job job = {.args = args, .attr = args->attr, .q = &args->in[0], .k = &args->in[1]};
    if (args->in_count > segments_at && view_present(&args->in[segments_at]))
        job.segments = &args->in[segments_at];
    job.sq = job.q->shape.dim[1];
    job.sk = job.k->shape.dim[1];
    job.heads = job.q->shape.dim[2];
    job.D = job.q->shape.dim[3];
    job.by_item = job.segments && job.segments->shape.rank == 3 ? job.segments->shape.dim[1] : 0;
    job.count = job.segments ? view_count(job.segments) / 4 : job.q->shape.dim[0];
    return job;
}

static void segment_rows(const attention_job *job, int64_t n, int64_t row[4])
{
    if (job->segments) {
        const int32_t *s = (const int32_t *)job->segments->data + n * 4;
        const int64_t item = job->by_item ? n / job->by_item : 0;
        for (int i = 0; i < 4; i++)
            row[i] = s[i] + item * (i < 2 ? job->sq : job->sk);
        return;
    }
    row[0] = n * job->sq;
    row[1] = row[0] + job->sq;
    row[2] = n * job->sk;
    row[3] = row[2] + job->sk;
}

static weft_status_code check_segments(const attention_job *job)
{
    const int64_t q_rows = job->q->shape.dim[0] * job->sq, k_rows = job->k->shape.dim[0] * job->sk;
    for (int64_t n = 0; job->segments && n < job->count; n++) {
        int64_t r[4];
        segment_rows(job, n, r);
        const int64_t item = job->by_item ? n / job->by_item : 0, q_first = item * job->sq,
                      k_first = item * job->sk, q_end = job->by_item ? q_first + job->sq : q_rows,
                      k_end = job->by_item ? k_first + job->sk : k_rows;
        if (r[0] < q_first || r[0] > r[1] || r[1] > q_end || r[2] < k_first || r[2] > r[3] ||
            r[3] > k_end)
            return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(n)),
                              "attention: segment %" PRId64 " {%" PRId64 ", %" PRId64 ", %" PRId64
                              ", %" PRId64 "} is outside %" PRId64 " "
                              "queries and %" PRId64 " keys",
                              n, r[0], r[1], r[2], r[3], q_rows, k_rows);
    }
    return WEFT_OK;
}

/* Returns the bias of the keys of all samples, or NULL. */
static const float *key_bias(const weft_kernel_args *args, int at)
{
    return args->in_count > at && view_present(&args->in[at]) ? args->in[at].data : NULL;
}

static cpu_attention_head head_of(const attention_job *job, int64_t n, int64_t head)
{
    int64_t r[4];
    segment_rows(job, n, r);
    const int64_t stride = job->heads * job->D, q = r[0] * stride + head * job->D,
                  k = r[2] * stride + head * job->D;
    return (cpu_attention_head){
        .nq = r[1] - r[0],
        .nk = r[3] - r[2],
        .D = job->D,
        .q_stride = stride,
        .k_stride = stride,
        .scale = (float)job->attr->scale,
        .causal = job->attr->causal,
        .q = (const float *)job->q->data + q,
        .k = (const float *)job->k->data + k,
        .v = (const float *)job->args->in[2].data + k,
        .bias = job->bias ? job->bias + r[2] : NULL,
        .row = r[0],
        .sq = job->sq,
        .heads = job->heads,
        .head = head,
    };
}

CPU_KERNEL_WITH(attention, .workspace = attention_workspace)
{
    attention_job job = job_of(args, 3);
    const cpu_isa *isa = cpu_isa_get();
    const int64_t space = align(forward_scratch(job.D));
    float *out = args->out[0].data, *lse = args->out[1].data;
    job.bias = key_bias(args, 4);
    WEFT_TRY(check_segments(&job));
    if (job.segments) { /* queries outside all segments */
        memset(out, 0, (size_t)view_count(&args->out[0]) * 4);
        for (int64_t i = 0, n = view_count(&args->out[1]); i < n; i++)
            lse[i] = -INFINITY;
    }
    const int64_t longest = job.segments && !job.by_item ? job.q->shape.dim[0] * job.sq : job.sq;
    const int64_t chunks = (longest + CPU_ATTENTION_CHUNK - 1) / CPU_ATTENTION_CHUNK;
    const int64_t tasks = job.count * job.heads * chunks;
#pragma omp parallel for schedule(dynamic) num_threads(team(args))
    for (int64_t task = 0; task < tasks; task++) {
        cpu_attention_head h = head_of(&job, task / chunks / job.heads, task / chunks % job.heads);
        const int64_t q0 = task % chunks * CPU_ATTENTION_CHUNK;
        if (q0 >= h.nq)
            continue;
        h.out = out + (h.q - (const float *)job.q->data);
        h.lse = lse;
        isa->attention(&h, q0, q0 + CPU_ATTENTION_CHUNK < h.nq ? q0 + CPU_ATTENTION_CHUNK : h.nq,
                       (float *)args->workspace + omp_get_thread_num() * space);
    }
    return WEFT_OK;
}

CPU_KERNEL_WITH(attention_grad, .workspace = attention_grad_workspace)
{
    attention_job job = job_of(args, 6);
    const cpu_isa *isa = cpu_isa_get();
    const int64_t space = align(backward_scratch(job.D)), tasks = job.count * job.heads;
    job.bias = key_bias(args, 8);
    WEFT_TRY(check_segments(&job));
    if (job.segments)
        for (int o = 0; o < 3; o++)
            memset(args->out[o].data, 0, (size_t)view_count(&args->out[o]) * 4);
#pragma omp parallel for schedule(dynamic) num_threads(team(args))
    for (int64_t task = 0; task < tasks; task++) {
        cpu_attention_head h = head_of(&job, task / job.heads, task % job.heads);
        const int64_t q = h.q - (const float *)job.q->data, k = h.k - (const float *)job.k->data;
        h.out_in = (const float *)args->in[3].data + q;
        h.lse_in = args->in[4].data;
        h.dout = (const float *)args->in[5].data + q;
        h.dlse = args->in_count > 7 && view_present(&args->in[7]) ? args->in[7].data : NULL;
        h.dq = (float *)args->out[0].data + q;
        h.dk = (float *)args->out[1].data + k;
        h.dv = (float *)args->out[2].data + k;
        isa->attention_grad(&h, (float *)args->workspace + omp_get_thread_num() * space);
    }
    return WEFT_OK;
}

/* ---- parts --------------------------------------------------------------------------------- */

/* Returns the weight of a part with log-sum-exp `part` in the merged row; 0 if no part sees a
 * key. */
static double share(double part, double whole)
{
    return whole == -INFINITY ? 0 : exp(part - whole);
}

/* One task is some rows of D floats of (B,S,H,D). It streams three operands through memory. */
CPU_KERNEL(attention_merge)
{
    const weft_shape *s = &args->in[0].shape;
    const int64_t S = s->dim[1], H = s->dim[2], D = s->dim[3], rows = s->dim[0] * S * H;
    const float *a = args->in[0].data, *lse_a = args->in[1].data, *b = args->in[2].data,
                *lse_b = args->in[3].data;
    float *out = args->out[0].data, *lse = args->out[1].data;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(rows *D))
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = (row / H / S * H + row % H) * S + row / H % S;
        const double la = lse_a[at], lb = lse_b[at], most = la > lb || isnan(la) ? la : lb;
        const double whole = most == -INFINITY ? most : most + log(exp(la - most) + exp(lb - most));
        const float wa = (float)share(la, whole), wb = (float)share(lb, whole);
        for (int64_t i = row * D; i < (row + 1) * D; i++)
            out[i] = wa * a[i] + wb * b[i];
        lse[at] = (float)whole;
    }
    return WEFT_OK;
}

/* w = e^(lse_part - lse): dout_part = w dout,
 *                         dlse_part = w (sum_d dout (out_part - out) + dlse). */
CPU_KERNEL(attention_merge_grad)
{
    const weft_shape *s = &args->in[0].shape;
    const int64_t S = s->dim[1], H = s->dim[2], D = s->dim[3], rows = s->dim[0] * S * H;
    const float *part = args->in[0].data, *lse_part = args->in[1].data, *whole = args->in[2].data,
                *lse = args->in[3].data, *dout = args->in[4].data;
    const float *dlse = args->in_count > 5 && view_present(&args->in[5]) ? args->in[5].data : NULL;
    float *dpart = args->out[0].data, *dlse_part = args->out[1].data;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(rows *D))
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = (row / H / S * H + row % H) * S + row / H % S;
        const double w = share(lse_part[at], lse[at]);
        double slope = dlse ? dlse[at] : 0;
        for (int64_t i = row * D; i < (row + 1) * D; i++)
            slope += (double)dout[i] * (double)(part[i] - whole[i]);
        for (int64_t i = row * D; i < (row + 1) * D; i++)
            dpart[i] = (float)w * dout[i];
        dlse_part[at] = (float)(w * slope);
    }
    return WEFT_OK;
}
