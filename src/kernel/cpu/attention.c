/* Attention over batch, heads and segments: assigns pieces to threads. attention.inc computes them.
 *
 * A forward task is 384 queries of a head in a segment. A backward task is a head in a segment, or
 * in all segments in order where they share keys. Tasks write disjoint rows without atomics, so the
 * result does not depend on the number of threads. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/repeats.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

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

/* Operands in bf16: an element of a packed operand has up to 4 bytes. Each of up to 16
 * arrays is padded to a line of the cache. */
static int64_t forward_bf16_scratch(int64_t D)
{
    enum { BQ = CPU_ATTENTION_BF16_BQ, BK = CPU_ATTENTION_BF16_BK };
    const int64_t Dp = D + 16, rows = CPU_ATTENTION_CHUNK + 16;
    return rows * (2 * Dp + 1 + 16) + BK * 2 * Dp + BQ * BK + 16 * 16;
}

/* Operands in int8 are not larger than operands in bf16. Three numbers per query and two per
 * channel are added. */
static int64_t forward_int8_scratch(int64_t D)
{
    return forward_bf16_scratch(D) + 3 * (CPU_ATTENTION_CHUNK + 16) + 2 * (D + 64);
}

/* The gradient of q is summed in f32 over the blocks of keys, so there is a row for each query of
 * a segment. */
static int64_t backward_bf16_scratch(int64_t D, int64_t queries)
{
    enum { BQ = CPU_ATTENTION_BF16_GRAD_BQ, BK = CPU_ATTENTION_BF16_BK };
    const int64_t Dp = D + 16, tile = BQ * 4 * Dp, all = 4 * (queries + 16) * Dp,
                  most = all < CPU_ATTENTION_PACKED ? all : CPU_ATTENTION_PACKED;
    return BK * 5 * Dp + (tile > most ? tile : most) + 3 * BQ * BK + (queries + 16) * (Dp + 3) +
           16 * 16;
}

static bool is_bf16(const weft_view *v)
{
    return v->dtype == WEFT_BF16;
}

/* Returns true for operands that isa->attention_bf16 reads and writes: bf16, except the log-sum-exp
 * and the bias. */
static bool attention_is_bf16(const weft_kernel_args *args)
{
    return is_bf16(&args->in[0]) && is_bf16(&args->in[1]) && is_bf16(&args->in[2]) &&
           is_bf16(&args->out[0]) &&
           (args->in_count < 5 || !view_present(&args->in[4]) || args->in[4].dtype == WEFT_F32);
}

static bool attention_grad_is_bf16(const weft_kernel_args *args)
{
    for (int i = 0; i < args->in_count; i++) {
        const bool row = i == 4 || i == 7 || i == 8; /* lse, dlse, bias */
        if (i != 6 && view_present(&args->in[i]) &&
            args->in[i].dtype != (row ? WEFT_F32 : WEFT_BF16))
            return false;
    }
    return is_bf16(&args->out[0]) && is_bf16(&args->out[1]) && is_bf16(&args->out[2]);
}

/* Keys that may be left after equal ones are merged: more than the tokens of a prompt. */
enum { MOST_MERGED = 1024 };

/* Returns the floats for the bias of a segment's keys if equal keys may be merged (merge_keys). */
static int64_t merged_space(const weft_kernel_args *args)
{
    const weft_attr_attention *attr = args->attr;
    const int64_t keys = args->in[1].shape.dim[1];
    const bool parts = args->in_count > 3 && view_present(&args->in[3]);
    if (attr->causal || parts || keys < CPU_FEWEST_REPEATS)
        return 0;
    return align(keys < MOST_MERGED ? keys : MOST_MERGED);
}

static int64_t attention_space(const weft_kernel_args *args)
{
    const int64_t D = args->in[0].shape.dim[3];
    const weft_attr_attention *attr = args->attr;
    return align(!attention_is_bf16(args) ? forward_scratch(D)
                 : attr->int8             ? forward_int8_scratch(D)
                                          : forward_bf16_scratch(D)) +
           merged_space(args);
}

static int64_t attention_workspace(const weft_kernel_args *args)
{
    return args->threads * attention_space(args) * 4;
}

typedef struct attention_job {
    const weft_kernel_args *args;
    const weft_attr_attention *attr;
    const weft_view *q, *k, *segments; /* segments NULL: one per batch item */
    const float *bias;                 /* (B,Sk) or NULL */
    int64_t by_item; /* segments of each batch item, whose rows they count; 0: rows of B*S */
    int64_t count, sq, sk, heads, D;
    int64_t bytes;   /* bytes of an element of q, k and v */
    int64_t longest; /* queries of the longest segment that is possible */
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
    job.bytes = weft_dtype_bytes(job.q->dtype);
    job.longest = job.segments && !job.by_item ? job.q->shape.dim[0] * job.sq : job.sq;
    return job;
}

/* Returns the scratch of a backward task in floats. */
static int64_t attention_grad_space(const attention_job *job)
{
    return align(attention_grad_is_bf16(job->args) ? backward_bf16_scratch(job->D, job->longest)
                                                   : backward_scratch(job->D));
}

/* Returns the number of threads with a task, which is the number that the workspace is for. */
static int team(const weft_kernel_args *args, int64_t tasks)
{
    return omp_in_parallel()       ? 1
           : tasks < args->threads ? (int)(tasks < 1 ? 1 : tasks)
                                   : args->threads;
}

static int64_t attention_grad_workspace(const weft_kernel_args *args)
{
    const attention_job job = job_of(args, 6);
    const int64_t tasks = job.count * job.heads,
                  threads = tasks < args->threads ? tasks : args->threads;
    return threads * attention_grad_space(&job) * 4;
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

/* Returns true if keys may be in two segments: a segment starts before the end of one listed
 * earlier. Segments that are not listed in order count as well. */
static bool shares_keys(const attention_job *job)
{
    int64_t end = 0;
    for (int64_t n = 0; job->segments && n < job->count; n++) {
        int64_t r[4];
        segment_rows(job, n, r);
        if (r[2] < end && r[2] < r[3])
            return true;
        end = r[3] > end ? r[3] : end;
    }
    return false;
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
        .int8 = job->attr->int8,
        .q = (const char *)job->q->data + q * job->bytes,
        .k = (const char *)job->k->data + k * job->bytes,
        .v = (const char *)job->args->in[2].data + k * job->bytes,
        .bias = job->bias ? job->bias + r[2] : NULL,
        .row = r[0],
        .sq = job->sq,
        .heads = job->heads,
        .head = head,
    };
}

/* Repeats in the first 64 items of a batch. Each task of a later item searches for equal keys.
 * Results of an item therefore do not depend on its place in the batch. */
enum { MOST_ITEMS = 64 };
typedef struct item_repeats {
    uint64_t whole;            /* bit n: the operands of item n equal the operands of item n - 1 */
    int64_t equal[MOST_ITEMS]; /* keys at the end that are equal in all heads, with equal values */
} item_repeats;

/* Returns whether merging `equal` keys saves time. The merged key has a bias, which needs a pass
 * over scores of bf16 that have no bias otherwise. Measured on a Zen 4, with 128 to 1024 keys: a
 * 16th of the keys takes up to 11 % longer when merged. A fourth takes 10 % longer (128 keys) to
 * 18 % less. More keys always save time. */
static bool repays_merging(const attention_job *job, int64_t equal)
{
    return equal >= CPU_FEWEST_REPEATS && job->sk - equal < MOST_MERGED &&
           (job->bias || job->q->dtype == WEFT_F32 || 4 * equal > job->sk);
}

/* Returns the number of the last keys of item n that may be merged; 1: none. */
static int64_t find_equal_keys(const attention_job *job, int64_t n)
{
    const int64_t row = job->heads * job->D * job->bytes;
    const char *k = (const char *)job->k->data + n * job->sk * row,
               *v = (const char *)job->args->in[2].data + n * job->sk * row;
    const float *bias = job->bias ? job->bias + n * job->sk : NULL;
    int64_t equal = cpu_equal_rows(k, job->sk, row, row);
    if (equal < CPU_FEWEST_REPEATS)
        return 1;
    equal = cpu_equal_rows(v + (job->sk - equal) * row, equal, row, row);
    if (bias)
        equal = cpu_equal_rows(bias + job->sk - equal, equal, sizeof *bias, sizeof *bias);
    return repays_merging(job, equal) ? equal : 1;
}

/* Replaces `equal` keys at the end by one, whose bias has log(equal) more: the softmax and its sums
 * have the same value. `bias`: space for the bias of at most MOST_MERGED keys. */
static void merge_keys(cpu_attention_head *h, int64_t equal, float *bias)
{
    if (equal == 1)
        return;
    h->nk -= equal - 1;
    if (h->bias)
        memcpy(bias, h->bias, (size_t)h->nk * sizeof *bias);
    else
        memset(bias, 0, (size_t)h->nk * sizeof *bias);
    bias[h->nk - 1] += logf((float)equal);
    h->bias = bias;
}

/* Returns true if item n has the operands of the item before it. */
static bool repeats_item(const attention_job *job, int64_t n)
{
    const int64_t q_bytes = job->sq * job->heads * job->D * job->bytes,
                  k_bytes = job->sk * job->heads * job->D * job->bytes;
    return cpu_repeats_item(job->q->data, n, q_bytes) &&
           cpu_repeats_item(job->k->data, n, k_bytes) &&
           cpu_repeats_item(job->args->in[2].data, n, k_bytes) &&
           (!job->bias || cpu_repeats_item(job->bias, n, job->sk * (int64_t)sizeof *job->bias));
}

static item_repeats find_repeats(const attention_job *job)
{
    const bool merges = merged_space(job->args) > 0;
    item_repeats r = {0};
    for (int64_t n = 0; !job->segments && n < job->count && n < MOST_ITEMS; n++) {
        const bool whole = repeats_item(job, n);
        r.whole |= (uint64_t)whole << n;
        r.equal[n] = whole || !merges ? 1 : find_equal_keys(job, n);
    }
    return r;
}

/* Copies the outputs of the items that repeat. */
static void copy_repeats(const attention_job *job, uint64_t repeats)
{
    for (int64_t n = 1; repeats >> 1 && n < MOST_ITEMS; n++)
        for (int o = 0; repeats >> n & 1 && o < 2; o++) {
            const weft_view *out = &job->args->out[o];
            const int64_t bytes = view_count(out) / job->count * weft_dtype_bytes(out->dtype);
            memcpy((char *)out->data + n * bytes, (char *)out->data + (n - 1) * bytes,
                   (size_t)bytes);
        }
}

static int attention_narrow_of(const weft_kernel_args *args)
{
    return attention_is_bf16(args) ? CPU_ALL : 0;
}

CPU_KERNEL_WITH(attention, .workspace = attention_workspace, .narrow_of = attention_narrow_of)
{
    attention_job job = job_of(args, 3);
    const cpu_isa *isa = cpu_isa_get();
    void (*compute)(const cpu_attention_head *, int64_t, int64_t, void *) =
        attention_is_bf16(args) ? isa->attention_bf16 : isa->attention;
    const int64_t space = attention_space(args);
    char *out = args->out[0].data;
    float *lse = args->out[1].data;
    job.bias = key_bias(args, 4);
    WEFT_TRY(check_segments(&job));
    if (job.segments) { /* queries outside all segments */
        memset(out, 0, (size_t)(view_count(&args->out[0]) * job.bytes));
        for (int64_t i = 0, n = view_count(&args->out[1]); i < n; i++)
            lse[i] = -INFINITY;
    }
    const int64_t chunks = (job.longest + CPU_ATTENTION_CHUNK - 1) / CPU_ATTENTION_CHUNK;
    const int64_t tasks = job.count * job.heads * chunks;
    const int64_t merged = merged_space(args);
    const item_repeats repeats = find_repeats(&job);
#pragma omp parallel for schedule(dynamic) num_threads(team(args, tasks))
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t segment = task / chunks / job.heads, q0 = task % chunks * CPU_ATTENTION_CHUNK;
        cpu_attention_head h = head_of(&job, segment, task / chunks % job.heads);
        float *scratch = (float *)args->workspace + omp_get_thread_num() * space;
        const bool known = !job.segments && segment < MOST_ITEMS;
        if (q0 >= h.nq || (known && repeats.whole >> segment & 1))
            continue;
        h.out = out + ((const char *)h.q - (const char *)job.q->data);
        h.lse = lse;
        if (merged && !job.segments)
            merge_keys(&h, known ? repeats.equal[segment] : find_equal_keys(&job, segment),
                       scratch + space - merged);
        compute(&h, q0, q0 + CPU_ATTENTION_CHUNK < h.nq ? q0 + CPU_ATTENTION_CHUNK : h.nq, scratch);
    }
    copy_repeats(&job, repeats.whole);
    return WEFT_OK;
}

static int attention_grad_narrow_of(const weft_kernel_args *args)
{
    return attention_grad_is_bf16(args) ? CPU_ALL : 0;
}

/* Computes the gradient of a head in segment n, with `add` on top of the segments before. */
static void segment_grad(const attention_job *job, int64_t n, int64_t head, bool add, void *scratch)
{
    const weft_kernel_args *args = job->args;
    const cpu_isa *isa = cpu_isa_get();
    cpu_attention_head h = head_of(job, n, head);
    const int64_t q = (const char *)h.q - (const char *)job->q->data,
                  k = (const char *)h.k - (const char *)job->k->data;
    h.add = add;
    h.out_in = (const char *)args->in[3].data + q;
    h.lse_in = args->in[4].data;
    h.dout = (const char *)args->in[5].data + q;
    h.dlse = args->in_count > 7 && view_present(&args->in[7]) ? args->in[7].data : NULL;
    h.dq = (char *)args->out[0].data + q;
    h.dk = (char *)args->out[1].data + k;
    h.dv = (char *)args->out[2].data + k;
    (attention_grad_is_bf16(args) ? isa->attention_grad_bf16 : isa->attention_grad)(&h, scratch);
}

CPU_KERNEL_WITH(attention_grad, .workspace = attention_grad_workspace,
                .narrow_of = attention_grad_narrow_of)
{
    attention_job job = job_of(args, 6);
    job.bias = key_bias(args, 8);
    WEFT_TRY(check_segments(&job));
    if (job.segments)
        for (int o = 0; o < 3; o++)
            memset(args->out[o].data, 0, (size_t)(view_count(&args->out[o]) * job.bytes));
    const bool add = shares_keys(&job);
    const int64_t step = !add          ? 1
                         : job.by_item ? job.by_item
                                       : job.count,
                  tasks = job.count / step * job.heads, space = attention_grad_space(&job);
#pragma omp parallel for schedule(dynamic) num_threads(team(args, tasks))
    for (int64_t task = 0; task < tasks; task++) {
        float *scratch = (float *)args->workspace + omp_get_thread_num() * space;
        const int64_t first = task / job.heads * step;
        for (int64_t n = first; n < first + step; n++)
            segment_grad(&job, n, task % job.heads, add, scratch);
    }
    return WEFT_OK;
}

/* ---- chosen blocks -------------------------------------------------------------------------- */

/* The keys and values of the blocks that a block of queries chose are gathered, so that other
 * blocks take no time. Queries then attend to all gathered keys. */
typedef struct chosen_blocks {
    attention_job job;
    const float *chosen;   /* (B,H,rows,columns) */
    int64_t rows, columns; /* blocks of queries, of keys */
    int64_t queries, keys; /* tokens of a block */
} chosen_blocks;

static chosen_blocks blocks_of(const weft_kernel_args *args, int at)
{
    const weft_view *v = &args->in[at];
    chosen_blocks b = {.job = job_of(args, args->in_count),
                       .chosen = v->data,
                       .rows = v->shape.dim[2],
                       .columns = v->shape.dim[3]};
    b.queries = b.job.sq / b.rows;
    b.keys = b.job.sk / b.columns;
    return b;
}

/* Returns the head of a batch item, with the queries of block m only. */
static cpu_attention_head block_head(const chosen_blocks *b, int64_t item, int64_t head, int64_t m)
{
    cpu_attention_head h = head_of(&b->job, item, head);
    h.q = (const float *)h.q + m * b->queries * h.q_stride;
    h.row += m * b->queries;
    h.nq = b->queries;
    return h;
}

static const float *choice_of(const chosen_blocks *b, int64_t item, int64_t head, int64_t m)
{
    return b->chosen + ((item * b->job.heads + head) * b->rows + m) * b->columns;
}

/* Copies the chosen keys and values to dense rows of D floats, and sets them in the head. */
static void gather_chosen(const chosen_blocks *b, const float *chosen, cpu_attention_head *h,
                          float *keys, float *values)
{
    const float *k = h->k, *v = h->v;
    const int64_t stride = h->k_stride, D = h->D;
    h->k = keys, h->v = values, h->k_stride = D, h->nk = 0;
    for (int64_t n = 0; n < b->columns; n++)
        for (int64_t j = n * b->keys; chosen[n] > 0 && j < (n + 1) * b->keys; j++, h->nk++) {
            memcpy(keys + h->nk * D, k + j * stride, (size_t)D * sizeof *keys);
            memcpy(values + h->nk * D, v + j * stride, (size_t)D * sizeof *values);
        }
}

static int64_t block_attention_space(const weft_kernel_args *args)
{
    const weft_shape *k = &args->in[1].shape;
    return align(forward_scratch(k->dim[3])) + 2 * align(k->dim[1] * k->dim[3]);
}

static int64_t block_attention_workspace(const weft_kernel_args *args)
{
    return args->threads * block_attention_space(args) * 4;
}

CPU_KERNEL_WITH(block_attention, .workspace = block_attention_workspace)
{
    const chosen_blocks b = blocks_of(args, 3);
    const int64_t tasks = b.job.count * b.job.heads * b.rows, space = block_attention_space(args),
                  gathered = align(b.job.sk * b.job.D);
    const cpu_isa *isa = cpu_isa_get();
#pragma omp parallel for schedule(dynamic) num_threads(team(args, tasks))
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t m = task % b.rows, head = task / b.rows % b.job.heads,
                      item = task / b.rows / b.job.heads;
        float *keys = (float *)args->workspace + omp_get_thread_num() * space,
              *values = keys + gathered;
        cpu_attention_head h = block_head(&b, item, head, m);
        h.out = (float *)args->out[0].data + ((const float *)h.q - (const float *)b.job.q->data);
        h.lse = args->out[1].data;
        gather_chosen(&b, choice_of(&b, item, head, m), &h, keys, values);
        for (int64_t q0 = 0; q0 < h.nq; q0 += CPU_ATTENTION_CHUNK)
            isa->attention(&h, q0,
                           q0 + CPU_ATTENTION_CHUNK < h.nq ? q0 + CPU_ATTENTION_CHUNK : h.nq,
                           values + gathered);
    }
    return WEFT_OK;
}

static int64_t block_attention_grad_space(const weft_kernel_args *args)
{
    const weft_shape *k = &args->in[1].shape;
    return align(backward_scratch(k->dim[3])) + 4 * align(k->dim[1] * k->dim[3]);
}

static int64_t block_attention_grad_workspace(const weft_kernel_args *args)
{
    return args->threads * block_attention_grad_space(args) * 4;
}

/* Adds dense rows to the gradients of the chosen keys. */
static void scatter_chosen(const chosen_blocks *b, const float *chosen, int64_t stride,
                           const float *from, float *to)
{
    const int64_t D = b->job.D;
    for (int64_t n = 0; n < b->columns; n++)
        for (int64_t j = n * b->keys; chosen[n] > 0 && j < (n + 1) * b->keys; j++, from += D)
            for (int64_t d = 0; d < D; d++)
                to[j * stride + d] += from[d];
}

/* Computes the gradient of a head of a batch item, by blocks of queries. */
static void blocks_grad(const chosen_blocks *b, int64_t item, int64_t head, float *scratch)
{
    const weft_kernel_args *args = b->job.args;
    const int64_t gathered = align(b->job.sk * b->job.D), stride = b->job.heads * b->job.D,
                  first = item * b->job.sk * stride + head * b->job.D;
    float *part[4], *dk = (float *)args->out[1].data + first,
                    *dv = (float *)args->out[2].data + first;
    for (int i = 0; i < 4; i++)
        part[i] = scratch + i * gathered;
    for (int64_t m = 0; m < b->rows; m++) {
        const float *chosen = choice_of(b, item, head, m);
        cpu_attention_head h = block_head(b, item, head, m);
        const int64_t q = (const float *)h.q - (const float *)b->job.q->data;
        gather_chosen(b, chosen, &h, part[0], part[1]);
        h.out_in = (const float *)args->in[3].data + q;
        h.lse_in = args->in[4].data;
        h.dout = (const float *)args->in[5].data + q;
        h.dlse = args->in_count > 7 && view_present(&args->in[7]) ? args->in[7].data : NULL;
        h.dq = (float *)args->out[0].data + q;
        h.dk = part[2];
        h.dv = part[3];
        cpu_isa_get()->attention_grad(&h, scratch + 4 * gathered);
        scatter_chosen(b, chosen, stride, part[2], dk);
        scatter_chosen(b, chosen, stride, part[3], dv);
    }
}

CPU_KERNEL_WITH(block_attention_grad, .workspace = block_attention_grad_workspace)
{
    const chosen_blocks b = blocks_of(args, 6);
    const int64_t tasks = b.job.count * b.job.heads, space = block_attention_grad_space(args);
    for (int o = 0; o < 3; o++)
        memset(args->out[o].data, 0, (size_t)view_count(&args->out[o]) * sizeof(float));
#pragma omp parallel for schedule(dynamic) num_threads(team(args, tasks))
    for (int64_t task = 0; task < tasks; task++)
        blocks_grad(&b, task / b.job.heads, task % b.job.heads,
                    (float *)args->workspace + omp_get_thread_num() * space);
    return WEFT_OK;
}

typedef struct ranked {
    float value;
    int32_t index;
} ranked;

static int ascending(const void *one, const void *other)
{
    const ranked *a = one, *b = other;
    return a->value != b->value ? (a->value > b->value) - (a->value < b->value)
                                : (a->index > b->index) - (a->index < b->index);
}

static int64_t mark_workspace(const weft_kernel_args *args)
{
    return args->threads * view_last(&args->in[0]) * (int64_t)sizeof(ranked);
}

/* Marks the elements of a row. NaN has no order and is not chosen. */
static void mark_largest(const float *x, int64_t n, double least, ranked *rank, float *chosen)
{
    int64_t count = 0;
    double sum = 0;
    for (int64_t e = 0; e < n; e++) {
        chosen[e] = 0;
        if (!isnan(x[e]))
            rank[count++] = (ranked){x[e], (int32_t)e};
    }
    qsort(rank, (size_t)count, sizeof *rank, ascending);
    for (int64_t i = 0; i < count; i++) {
        sum += (double)rank[i].value;
        chosen[rank[i].index] = sum >= least;
    }
}

static int descending(const void *one, const void *other)
{
    const ranked *a = one, *b = other;
    return a->value != b->value ? (a->value < b->value) - (a->value > b->value)
                                : (a->index > b->index) - (a->index < b->index);
}

/* Marks the share of the largest elements that are not hidden. NaN is neither counted nor
 * chosen. */
static void mark_share(const float *x, int64_t n, double share, ranked *rank, float *chosen)
{
    int64_t seen = 0;
    for (int64_t e = 0; e < n; e++) {
        chosen[e] = 0;
        if (x[e] >= -1e29F)
            rank[seen++] = (ranked){x[e], (int32_t)e};
    }
    qsort(rank, (size_t)seen, sizeof *rank, descending);
    const double count = fmax(1, floor(share * (double)seen));
    for (int64_t i = 0; i < seen && (double)i < count; i++)
        chosen[rank[i].index] = 1;
}

typedef void mark_row(const float *x, int64_t n, double limit, ranked *rank, float *chosen);

static weft_status_code mark_rows(const weft_kernel_args *args, mark_row *mark, double limit)
{
    const int64_t n = view_last(&args->in[0]), rows = n ? view_count(&args->in[0]) / n : 0;
    const float *x = args->in[0].data;
    float *chosen = args->out[0].data;
#pragma omp parallel for schedule(static) num_threads(team(args, rows))
    for (int64_t r = 0; r < rows; r++)
        mark(x + r * n, n, limit, (ranked *)args->workspace + omp_get_thread_num() * n,
             chosen + r * n);
    return WEFT_OK;
}

CPU_KERNEL_WITH(top_p, .workspace = mark_workspace)
{
    return mark_rows(args, mark_largest, 1 - ((const weft_attr_top_p *)args->attr)->mass);
}

CPU_KERNEL_WITH(top_share, .workspace = mark_workspace)
{
    return mark_rows(args, mark_share, ((const weft_attr_top_share *)args->attr)->share);
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
