#include "harness.h"

#include "base/memory.h"
#include "base/rng.h"
#include "format/tensors/quant_blocks.h"
#include "kernel/host.h"
#include "kernel/ref/table.h"
#include "kernel/view.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { GUARD = 64, PATTERN = 0xA5 };

/* A buffer between guard bytes. Fresh memory is NaN in every float type. */
static void *guarded(int64_t bytes)
{
    char *base = weft_alloc_aligned(bytes + 2 * GUARD);
    cr_assert_not_null(base);
    memset(base, PATTERN, (size_t)(bytes + 2 * GUARD));
    memset(base + GUARD, 0xFF, (size_t)bytes);
    return base + GUARD;
}

static bool guards_hold(const void *data, int64_t bytes)
{
    const unsigned char *p = data;
    for (int i = 1; i <= GUARD; i++)
        if (p[-i] != PATTERN || p[bytes + i - 1] != PATTERN)
            return false;
    return true;
}

static void free_guarded(void *data)
{
    if (data)
        weft_free((char *)data - GUARD);
}

static weft_dtype storage(weft_dtype dtype, bool ref)
{
    return ref && weft_dtype_is_float(dtype) ? WEFT_F64 : dtype;
}

static int64_t bytes_of(const weft_view *v)
{
    return view_count(v) * weft_dtype_bytes(v->dtype);
}

static weft_shape shape_of(const operand *o)
{
    weft_shape s = {.rank = o->rank};
    for (int d = 0; d < o->rank; d++)
        s.dim[d] = o->dim[d];
    return s;
}

/* Normal values as int8 weights (graph/op.h). Rows have very different sizes. */
static void fill_blocks(const operand *o, uint64_t seed, weft_view *v)
{
    const int64_t elements = o->dim[2] - 2, blocks = o->dim[0] * o->dim[1];
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    float block[256];
    for (int64_t b = 0; b < blocks; b++) {
        const double size = b % 7 == 3 ? 0 : pow(10, (double)(b / o->dim[1] % 5) - 3);
        for (int64_t i = 0; i < elements; i++)
            block[i] = (float)(weft_rng_normal(&rng) * size);
        weft_int8_pack(block, 1, elements, (unsigned char *)v->data + b * o->dim[2]);
    }
}

static void fill_view(const operand *o, uint64_t seed, int place, weft_view *v,
                      weft_dtype graph_dtype)
{
    weft_rng rng = weft_rng_make(seed * 16 + (uint64_t)place, WEFT_RNG_TEST);
    for (int64_t i = 0, n = view_count(v); i < n; i++) {
        double x = weft_rng_normal(&rng) * (o->value != 0 && o->fill == NORMAL ? o->value : 1);
        if (o->fill == POSITIVE)
            x = fabs(x) + 0.1;
        else if (o->fill == IDS)
            x = (double)weft_rng_below(&rng, (uint64_t)o->value);
        else if (o->fill == VALUE)
            x = o->value;
        else if (o->fill == LISTED)
            x = o->list[i];
        else if (o->fill == HOLES)
            x = i % 5 == 0 ? NAN : i % 7 == 2 ? 0.0 : i % 7 == 3 ? -0.0 : i % 3 ? fabs(x) : 0.25;
        if (o->fill == KEYS) {
            ((int64_t *)v->data)[i] = (int64_t)weft_seed_mix(seed, (uint64_t)i);
            continue;
        }
        /* Both backends start from the values in the narrow storage. */
        if (graph_dtype == WEFT_F32)
            x = (float)x;
        else if (graph_dtype == WEFT_BF16)
            x = weft_bf16_to_f32(weft_f32_to_bf16((float)x));
        else if (graph_dtype == WEFT_F16)
            x = weft_f16_to_f32(weft_f32_to_f16((float)x));
        view_set(v, i, x);
    }
}

/* One run: views, scratch and owned memory. */
typedef struct run {
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_kernel_args args;
    weft_dtype out_dtype[WEFT_MAX_OUTPUTS]; /* as the graph says */
    int64_t workspace_bytes;
    int place; /* run in place of this input; -1: outputs of their own */
} run;

static int input_count(const op_case *c)
{
    if (c->count)
        return c->count;
    int n = WEFT_MAX_INPUTS;
    while (n > 0 && c->in[n - 1].rank == 0 && c->in[n - 1].fill == NORMAL &&
           c->in[n - 1].value == 0)
        n--;
    return n;
}

static void infer(const op_case *c, run *r)
{
    weft_graph *g = weft_graph_create();
    weft_value in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    const int n = input_count(c);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        in[i] = c->in[i].rank < 0 ? WEFT_NONE
                                  : weft_input(g, name, c->in[i].dtype, shape_of(&c->in[i]));
    }
    weft_emit_all(g, c->op, in, n, c->attr, out);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s: %s", c->label, weft_error_message());
    r->args.out_count = 0;
    for (int i = 0; i < WEFT_MAX_OUTPUTS && weft_value_ok(out[i]); i++) {
        const weft_value_info *info = weft_value_get(g, out[i]);
        r->out[i] = (weft_view){.dtype = info->dtype, .shape = info->shape};
        r->out_dtype[i] = info->dtype;
        r->args.out_count++;
    }
    weft_graph_free(g);
}

static void fill_attention_inputs(const op_case *c, run *r, bool ref);

/* The input whose storage output `o` takes; NULL: none. */
static weft_view *place_of(const op_case *c, run *r, int o)
{
    const uint32_t over = weft_op_over(c->op, o);
    if (r->place < 0 || !over)
        return NULL;
    return &r->in[o == 0 ? r->place : __builtin_ctz(over)];
}

static bool is_replaced(const op_case *c, run *r, const weft_view *input)
{
    for (int o = 0; o < r->args.out_count; o++)
        if (place_of(c, r, o) == input)
            return true;
    return false;
}

static void execute(const op_case *c, const weft_backend *backend, run *r)
{
    const bool ref = backend == &weft_backend_ref;
    const weft_kernel *k = backend->kernel[c->op];
    infer(c, r);
    r->args.in = r->in;
    r->args.out = r->out;
    r->args.in_count = input_count(c);
    r->args.attr = c->attr;
    r->args.op = c->op;
    r->args.threads = weft_host_threads();
    weft_view saved[WEFT_MAX_INPUTS];
    for (int i = 0; i < r->args.in_count; i++)
        r->in[i] = (weft_view){.dtype = storage(c->in[i].dtype, ref), .shape = shape_of(&c->in[i])};
    for (int i = 0; i < r->args.out_count; i++)
        r->out[i].dtype = storage(r->out[i].dtype, ref);
    r->workspace_bytes = k->workspace ? k->workspace(&r->args) : 0;
    if (k->prepare)
        cr_assert_eq(k->prepare(&r->args, &r->args.cache), WEFT_OK, "%s: %s", c->label,
                     weft_error_message());
    for (int i = 0; i < r->args.in_count; i++) {
        if (c->in[i].rank < 0)
            continue;
        r->in[i].data = guarded(bytes_of(&r->in[i]));
        if (c->in[i].fill == BLOCKS)
            fill_blocks(&c->in[i], c->seed + 1, &r->in[i]);
        else
            fill_view(&c->in[i], c->seed + 1, i, &r->in[i], c->in[i].dtype);
    }
    fill_attention_inputs(c, r, ref);
    for (int i = 0; i < r->args.in_count; i++)
        if (r->in[i].data) {
            saved[i].data = weft_alloc(bytes_of(&r->in[i]) + 1);
            memcpy(saved[i].data, r->in[i].data, (size_t)bytes_of(&r->in[i]));
        }
    for (int i = 0; i < r->args.out_count; i++) {
        weft_view *place = place_of(c, r, i);
        r->out[i].data = place ? place->data : guarded(bytes_of(&r->out[i]));
    }
    r->args.workspace = guarded(r->workspace_bytes);
    cr_assert_eq(k->run(&r->args), WEFT_OK, "%s: %s", c->label, weft_error_message());
    cr_assert(guards_hold(r->args.workspace, r->workspace_bytes), "%s: workspace overrun",
              c->label);
    for (int i = 0; i < r->args.out_count; i++)
        cr_assert(guards_hold(r->out[i].data, bytes_of(&r->out[i])), "%s: output %d overrun",
                  c->label, i);
    for (int i = 0; i < r->args.in_count; i++)
        if (r->in[i].data) {
            cr_assert(guards_hold(r->in[i].data, bytes_of(&r->in[i])), "%s: input %d overrun",
                      c->label, i);
            if (!is_replaced(c, r, &r->in[i]))
                cr_assert_eq(memcmp(saved[i].data, r->in[i].data, (size_t)bytes_of(&r->in[i])), 0,
                             "%s: input %d changed", c->label, i);
            else
                r->in[i].data = NULL; /* the output's now */
            weft_free(saved[i].data);
        }
    if (k->release)
        k->release(r->args.cache);
}

static void finish(run *r)
{
    for (int i = 0; i < r->args.in_count; i++)
        free_guarded(r->in[i].data);
    for (int i = 0; i < r->args.out_count; i++)
        free_guarded(r->out[i].data);
    free_guarded(r->args.workspace);
}

/* attention_grad takes the outputs of the forward: those of ref, rounded to f32. */
static void fill_attention_inputs(const op_case *c, run *r, bool ref)
{
    const bool by_blocks = c->op == WEFT_OP_BLOCK_ATTENTION_GRAD;
    if (c->op != WEFT_OP_ATTENTION_GRAD && !by_blocks)
        return;
    op_case forward = *c;
    forward.op = by_blocks ? WEFT_OP_BLOCK_ATTENTION : WEFT_OP_ATTENTION;
    forward.in[3] = c->in[6];
    forward.count = input_count(c) > 6 && c->in[6].rank >= 0 ? 4 : 3;
    run f = {.place = -1};
    execute(&forward, &weft_backend_ref, &f);
    for (int o = 0; o < 2; o++)
        for (int64_t i = 0, n = view_count(&r->in[3 + o]); i < n; i++)
            view_set(&r->in[3 + o], i, (float)view_get(&f.out[o], i));
    (void)ref;
    finish(&f);
}

int run_case(const op_case *c, const weft_backend *backend, double **out, int64_t *count)
{
    run r = {.place = -1};
    execute(c, backend, &r);
    for (int i = 0; i < r.args.out_count; i++) {
        count[i] = view_count(&r.out[i]);
        out[i] = weft_alloc(count[i] * 8 + 8);
        for (int64_t j = 0; j < count[i]; j++)
            out[i][j] = view_get(&r.out[i], j);
    }
    const int n = r.args.out_count;
    finish(&r);
    return n;
}

/* Finite first, then !(error <= tolerance): norm-wise, relative to the reference. */
static void compare(const op_case *c, int which, const double *got, const double *want, int64_t n,
                    double tolerance)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i]) { /* -inf is the log-sum-exp of nothing */
            size += isinf(want[i]) ? 0 : want[i] * want[i];
            continue;
        }
        cr_assert(isfinite(got[i]), "%s: output %d: element %" PRId64 " of %" PRId64 " is %g",
                  c->label, which, i, n, got[i]);
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    const double relative = size > 0 ? sqrt(error / size) : sqrt(error);
    cr_assert(!!(relative <= tolerance),
              "%s: output %d: error %.3g, tolerance %.3g (seed %" PRIu64 ")", c->label, which,
              relative, tolerance, c->seed);
}

static void check_outputs(const op_case *c, const run *own, const run *ref)
{
    const weft_op_info *info = weft_op_get(c->op);
    cr_assert_eq(own->args.out_count, ref->args.out_count);
    for (int o = 0; o < own->args.out_count; o++) {
        const int64_t n = view_count(&own->out[o]);
        double *got = weft_alloc(n * 8 + 8), *want = weft_alloc(n * 8 + 8);
        for (int64_t i = 0; i < n; i++) {
            got[i] = view_get(&own->out[o], i);
            want[i] = view_get(&ref->out[o], i);
            if (info->tolerance_f32 == 0 && own->out_dtype[o] == WEFT_F32)
                want[i] = (float)want[i]; /* exact ops: exact in the storage type */
        }
        const bool tf32 = weft_op_is_tf32(c->op, c->attr);
        compare(c, o, got, want, n,
                c->tolerance ? c->tolerance : weft_op_tolerance(c->op, own->out_dtype[o], tf32));
        weft_free(got);
        weft_free(want);
    }
}

static void check_run(const op_case *c, const weft_backend *backend, const char *what, int place,
                      const run *ref)
{
    op_case labelled = *c;
    run r = {.place = place};
    char label[160];
    snprintf(label, sizeof label, "%s (%s, in place of %d)", c->label, what, place);
    labelled.label = label;
    execute(&labelled, backend, &r);
    check_outputs(&labelled, &r, ref);
    finish(&r);
}

static void same_bits(const op_case *c, const run *one, const run *other, const char *label)
{
    for (int o = 0; o < one->args.out_count; o++)
        cr_assert_eq(memcmp(one->out[o].data, other->out[o].data, (size_t)bytes_of(&one->out[o])),
                     0, "%s: output %d: %s gives other bits than %s", c->label, o, label,
                     harness_orders[0].label);
}

/* The products of a convolution without padding and stride; 0 for other ops. */
static int64_t conv_products(const op_case *c)
{
    const bool dw = c->op == WEFT_OP_CONV3D_DW;
    if (c->op != WEFT_OP_CONV3D && c->op != WEFT_OP_CONV3D_DX && !dw)
        return 0;
    const operand *x = &c->in[0], *w = &c->in[1];
    const weft_attr_conv *attr = c->attr;
    int64_t products =
        x->dim[0] * x->dim[1] * x->dim[2] * x->dim[3] * x->dim[4] * w->dim[dw ? 4 : 0];
    for (int d = 0; d < 3; d++)
        products *= dw ? attr->kernel[d] : w->dim[2 + d];
    return c->op == WEFT_OP_CONV3D_DX ? products / w->dim[0] * w->dim[1] : products;
}

static bool is_skipped(const op_case *c, const subject *first)
{
    return !first->backend->kernel[c->op] || conv_products(c) > harness_conv_most;
}

void check_threads(const op_case *c)
{
    const subject *first = &harness_orders[0];
    if (is_skipped(c, first))
        return;
    run one = {.place = -1};
    first->use(first->setting);
    execute(c, first->backend, &one);
    for (const subject *s = first + 1; s->label; s++) {
        run other = {.place = -1};
        s->use(s->setting);
        execute(c, s->backend, &other);
        same_bits(c, &one, &other, s->label);
        finish(&other);
    }
    first->use(0);
    finish(&one);
}

static void check_subjects(const op_case *c, int place, const run *ref)
{
    for (const subject *s = harness_subjects; s->label; s++) {
        if (!s->backend->kernel[c->op])
            continue;
        s->use(s->setting);
        check_run(c, s->backend, s->label, place, ref);
        s->use(0);
    }
}

void check_case(const op_case *c)
{
    if (is_skipped(c, &harness_subjects[0]))
        return;
    run ref = {.place = -1};
    execute(c, &weft_backend_ref, &ref);
    const uint32_t over = weft_op_over(c->op, 0);
    for (int place = -1; place < WEFT_MAX_INPUTS; place++) {
        if (place >= 0 && (!weft_mask_has(over, place) || c->in[place].dtype != c->in[0].dtype ||
                           !weft_shape_equal(&ref.in[place].shape, &ref.out[0].shape)))
            continue;
        check_subjects(c, place, &ref);
        if (place >= 0)
            check_run(c, &weft_backend_ref, "ref", place, &ref);
    }
    finish(&ref);
}
