/* Kernels on bf16 and f16 operands of any combination are bitwise the f32 kernel on the widened
 * operands, with its outputs rounded once: random shapes, in place of an input where the op's row
 * allows it, with NaN, infinities and denormals. All ops but the products and attention, whose sums
 * have another order in bf16. A NaN may have other bits. */
#include "harness.h"

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/cpu/table.h"
#include "kernel/host.h"
#include "kernel/view.h"

#include <criterion/criterion.h>
#include <math.h>

enum { GUARD = 64, PATTERN = 0x5A };

/* A random instance of an op. */
typedef struct instance {
    weft_op op;
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    int in_count, out_count;
    union {
        weft_attr_affine affine;
        weft_attr_clamp clamp;
        weft_attr_cast cast;
        weft_attr_gelu gelu;
        weft_attr_norm norm;
        weft_attr_rope rope;
        weft_attr_sum sum;
        weft_attr_embed embed;
        weft_attr_adamw adamw;
        weft_attr_slice slice;
        weft_attr_pad pad;
        weft_attr_concat concat;
        weft_attr_permute permute;
        weft_attr_shape shape;
    } attr;
} instance;

/* ---- shapes -------------------------------------------------------------------------------- */

static int64_t pick(weft_rng *rng, int64_t n)
{
    return (int64_t)weft_rng_below(rng, (uint64_t)n);
}

static int64_t random_dim(weft_rng *rng)
{
    static const int64_t dims[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 40, 97};
    return dims[pick(rng, (int64_t)(sizeof dims / sizeof *dims))];
}

/* Up to rank 4; a long last dim exceeds the piece of a kernel. */
static weft_shape random_shape(weft_rng *rng)
{
    weft_shape s = {.rank = 1 + (int)pick(rng, 4)};
    int64_t count = 1;
    for (int d = 0; d < s.rank; d++) {
        s.dim[d] = count > 3000 ? 1 + pick(rng, 2) : random_dim(rng);
        count *= s.dim[d];
    }
    if (count < 40 && pick(rng, 4) == 0)
        s.dim[s.rank - 1] = 2000 + pick(rng, 4000);
    return s;
}

/* Each dim of s, or 1. */
static weft_shape part_of(weft_rng *rng, const weft_shape *s)
{
    weft_shape part = *s;
    for (int d = 0; d < s->rank; d++)
        part.dim[d] = pick(rng, 2) ? 1 : s->dim[d];
    return part;
}

static weft_shape row_of(const weft_shape *s)
{
    return WEFT_SHAPE(s->dim[s->rank - 1]);
}

static void set_inputs(instance *t, int count, const weft_shape *shapes)
{
    t->in_count = count;
    for (int i = 0; i < count; i++)
        t->in[i] = (weft_view){.shape = shapes[i]};
}

/* The small operand of modulation: a row, one of each group, or another broadcast. */
static weft_shape small_shape(weft_rng *rng, const weft_shape *x)
{
    weft_shape small = *x;
    if (pick(rng, 3) == 0)
        return part_of(rng, x);
    for (int d = (int)pick(rng, x->rank); d < x->rank - 1; d++)
        small.dim[d] = 1;
    return small;
}

static void rope_shapes(instance *t, weft_rng *rng)
{
    const int64_t B = 1 + pick(rng, 3), S = random_dim(rng), H = 1 + pick(rng, 4),
                  D = 2 * (1 + pick(rng, 40));
    const weft_shape x = WEFT_SHAPE(B, S, H, D),
                     angles = pick(rng, 2) ? WEFT_SHAPE(S, D / 2)
                                           : WEFT_SHAPE(pick(rng, 2) ? B : 1, S,
                                                        pick(rng, 2) ? H : 1, D / 2);
    t->attr.rope = (weft_attr_rope){pick(rng, 2), pick(rng, 2)};
    set_inputs(t, 3, (weft_shape[]){x, angles, angles});
}

static void norm_shapes(instance *t, weft_rng *rng, const weft_shape *x, bool grad)
{
    const weft_shape row = row_of(x), absent = {.rank = -1};
    const weft_shape gamma = pick(rng, 2) ? row : absent;
    t->attr.norm = (weft_attr_norm){1e-5, pick(rng, 2)};
    if (grad)
        set_inputs(t, 3, (weft_shape[]){*x, *x, gamma});
    else
        set_inputs(t, t->op == WEFT_OP_LAYER_NORM ? 3 : 2,
                   (weft_shape[]){*x, gamma, pick(rng, 2) ? row : absent});
}

static void mover_shapes(instance *t, weft_rng *rng, const weft_shape *x)
{
    const int dim = (int)pick(rng, x->rank);
    weft_shape other = *x;
    if (t->op == WEFT_OP_SLICE) {
        const int64_t start = pick(rng, x->dim[dim]);
        t->attr.slice = (weft_attr_slice){dim, start, 1 + pick(rng, x->dim[dim] - start)};
    } else if (t->op == WEFT_OP_PAD) {
        t->attr.pad = (weft_attr_pad){dim, pick(rng, 3), pick(rng, 3)};
    } else if (t->op == WEFT_OP_CONCAT) {
        t->attr.concat = (weft_attr_concat){dim};
        other.dim[dim] = random_dim(rng);
    } else if (t->op == WEFT_OP_PERMUTE) {
        for (int d = 0; d < x->rank; d++)
            t->attr.permute.perm[d] = (d + dim) % x->rank;
    } else if (t->op == WEFT_OP_BROADCAST) {
        t->attr.shape.shape = *x;
        other = part_of(rng, x);
    }
    set_inputs(t, t->op == WEFT_OP_CONCAT ? 2 : 1,
               t->op == WEFT_OP_BROADCAST ? &other : (weft_shape[]){*x, other});
}

/* Sets attribute and input shapes; false: not an op of this test. */
static bool set_shapes(instance *t, weft_rng *rng)
{
    const weft_shape x = random_shape(rng), scalar = WEFT_SCALAR, small = small_shape(rng, &x);
    const int64_t rows = 1 + pick(rng, 9);
    weft_shape a = part_of(rng, &x), b = part_of(rng, &x),
               table = WEFT_SHAPE(rows, random_dim(rng)), ids = WEFT_SHAPE(random_dim(rng)),
               dy = WEFT_SHAPE(ids.dim[0], table.dim[1]);
    switch (t->op) {
    case WEFT_OP_GELU:
    case WEFT_OP_GELU_GRAD: t->attr.gelu.exact = pick(rng, 2); break;
    case WEFT_OP_AFFINE: t->attr.affine = (weft_attr_affine){1.7, -0.3}; break;
    case WEFT_OP_CLAMP:
    case WEFT_OP_CLAMP_GRAD: t->attr.clamp = (weft_attr_clamp){-0.5, 0.8}; break;
    case WEFT_OP_SUM: t->attr.sum.dims = (uint32_t)pick(rng, 1 << x.rank); break;
    case WEFT_OP_EMBED:
    case WEFT_OP_EMBED_GRAD: t->attr.embed.rows = rows; break;
    case WEFT_OP_ADAMW: t->attr.adamw = (weft_attr_adamw){0.9, 0.99, 1e-8, 0.01}; break;
    default: break;
    }
    switch (t->op) {
    case WEFT_OP_STOP:
    case WEFT_OP_NEG:
    case WEFT_OP_AFFINE:
    case WEFT_OP_EXP:
    case WEFT_OP_LOG:
    case WEFT_OP_SQRT:
    case WEFT_OP_RSQRT:
    case WEFT_OP_SQUARE:
    case WEFT_OP_SIN:
    case WEFT_OP_COS:
    case WEFT_OP_TANH:
    case WEFT_OP_SIGMOID:
    case WEFT_OP_SILU:
    case WEFT_OP_GELU:
    case WEFT_OP_CLAMP:
    case WEFT_OP_SUM:
    case WEFT_OP_SUM_SQUARES:
    case WEFT_OP_SOFTMAX: set_inputs(t, 1, &x); return true;
    case WEFT_OP_SILU_GRAD:
    case WEFT_OP_GELU_GRAD:
    case WEFT_OP_CLAMP_GRAD: set_inputs(t, 2, (weft_shape[]){x, x}); return true;
    case WEFT_OP_ADD:
    case WEFT_OP_SUB:
    case WEFT_OP_MUL:
    case WEFT_OP_DIV:
        set_inputs(t, 2, (weft_shape[]){pick(rng, 2) ? x : a, pick(rng, 2) ? x : b});
        return true;
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_RMS_NORM: norm_shapes(t, rng, &x, false); return true;
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_RMS_NORM_GRAD: norm_shapes(t, rng, &x, true); return true;
    case WEFT_OP_MODULATE: set_inputs(t, 3, (weft_shape[]){x, small, small}); return true;
    case WEFT_OP_GATED_ADD: set_inputs(t, 3, (weft_shape[]){x, x, small}); return true;
    case WEFT_OP_MODULATE_GRAD:
    case WEFT_OP_GATED_ADD_GRAD: set_inputs(t, 3, (weft_shape[]){x, small, x}); return true;
    case WEFT_OP_ROPE: rope_shapes(t, rng); return true;
    case WEFT_OP_EMBED:
        set_inputs(t, 2, (weft_shape[]){table, ids});
        t->in[1].dtype = WEFT_I32;
        return true;
    case WEFT_OP_EMBED_GRAD:
        set_inputs(t, 2, (weft_shape[]){ids, dy});
        t->in[0].dtype = WEFT_I32;
        return true;
    case WEFT_OP_CLIP_SCALE:
        set_inputs(t, 5, (weft_shape[]){scalar, scalar, scalar, scalar, scalar});
        return true;
    case WEFT_OP_ADAMW:
        set_inputs(t, 7, (weft_shape[]){x, x, x, x, scalar, scalar, scalar});
        return true;
    case WEFT_OP_EMA: set_inputs(t, 4, (weft_shape[]){x, x, scalar, scalar}); return true;
    case WEFT_OP_SLICE:
    case WEFT_OP_PAD:
    case WEFT_OP_CONCAT:
    case WEFT_OP_PERMUTE:
    case WEFT_OP_BROADCAST: mover_shapes(t, rng, &x); return true;
    default: return false;
    }
}

/* All inputs of bf16, all but the small operands, or any mixture. Movers copy one type. */
static void set_types(instance *t, weft_rng *rng)
{
    static const weft_dtype types[] = {WEFT_BF16, WEFT_BF16, WEFT_F32, WEFT_F16};
    const int64_t kind = t->op == WEFT_OP_CONCAT ? 0 : pick(rng, 3);
    for (int i = 0; i < t->in_count; i++)
        if (t->in[i].dtype != WEFT_I32)
            t->in[i].dtype = kind == 0   ? WEFT_BF16
                             : kind == 1 ? types[pick(rng, 4)]
                             : view_count(&t->in[i]) * 2 <= view_count(&t->in[0]) ? WEFT_F32
                                                                                  : WEFT_BF16;
}

/* ---- one run ------------------------------------------------------------------------------- */

static void *guarded(int64_t bytes)
{
    char *data = weft_alloc_aligned(bytes + GUARD);
    cr_assert_not_null(data);
    memset(data, 0xFF, (size_t)bytes);
    memset(data + bytes, PATTERN, GUARD);
    return data;
}

static bool holds(const void *data, int64_t bytes)
{
    for (int i = 0; i < GUARD; i++)
        if (((const unsigned char *)data)[bytes + i] != PATTERN)
            return false;
    return true;
}

static int64_t bytes_of(const weft_view *v)
{
    return view_present(v) ? view_count(v) * weft_dtype_bytes(v->dtype) : 0;
}

static void infer(instance *t)
{
    weft_graph *g = weft_graph_create();
    weft_value in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    for (int i = 0; i < t->in_count; i++)
        in[i] = view_present(&t->in[i])
                    ? weft_input(g, (char[]){(char)('a' + i), 0}, t->in[i].dtype, t->in[i].shape)
                    : WEFT_NONE;
    weft_emit_all(g, t->op, in, t->in_count, &t->attr, out);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s: %s", weft_op_get(t->op)->name,
                 weft_error_message());
    for (t->out_count = 0; t->out_count < WEFT_MAX_OUTPUTS && weft_value_ok(out[t->out_count]);
         t->out_count++) {
        const weft_value_info *info = weft_value_get(g, out[t->out_count]);
        t->out[t->out_count] = (weft_view){.dtype = info->dtype, .shape = info->shape};
    }
    weft_graph_free(g);
}

static void fill_inputs(instance *t, weft_rng *rng)
{
    static const double special[] = {0, -0.0, 1e-39, -3e-40, 1e38, -3e38, INFINITY, -INFINITY, NAN};
    const bool plain = pick(rng, 2), scalars = t->op == WEFT_OP_ADAMW || t->op == WEFT_OP_EMA;
    for (int i = 0; i < t->in_count; i++) {
        weft_view *v = &t->in[i];
        v->data = view_present(v) ? guarded(bytes_of(v)) : NULL;
        const double scale = pow(10, (double)pick(rng, 3) - 1);
        for (int64_t e = 0, n = v->data ? view_count(v) : 0; e < n; e++) {
            if (v->dtype == WEFT_I32) {
                view_set_int(v, e, pick(rng, t->attr.embed.rows));
                continue;
            }
            double x = weft_rng_normal(rng) * scale;
            if (!plain && pick(rng, 40) == 0)
                x = special[pick(rng, (int64_t)(sizeof special / sizeof *special))];
            view_set(v, e, scalars && v->shape.rank == 0 ? 0.5 : x);
        }
    }
}

/* Runs t on cpu. The caller owns the data of the views. */
static void execute(const instance *t, weft_view *in, weft_view *out)
{
    const weft_kernel *k = weft_backend_cpu.kernel[t->op];
    weft_kernel_args args = {.op = t->op,
                             .in = in,
                             .in_count = t->in_count,
                             .out = out,
                             .out_count = t->out_count,
                             .attr = &t->attr,
                             .threads = weft_host_threads()};
    const int64_t bytes = k->workspace ? k->workspace(&args) : 0;
    args.workspace = guarded(bytes);
    cr_assert_eq(k->run(&args), WEFT_OK, "%s: %s", weft_op_get(t->op)->name, weft_error_message());
    cr_assert(holds(args.workspace, bytes), "%s: workspace overrun", weft_op_get(t->op)->name);
    weft_free(args.workspace);
}

/* The outputs by the f32 kernel, rounded to the types of t. */
static void execute_f32(const instance *t, weft_view *rounded)
{
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    for (int i = 0; i < t->in_count; i++) {
        in[i] = t->in[i];
        if (!in[i].data || in[i].dtype == WEFT_I32)
            continue;
        in[i].dtype = WEFT_F32;
        in[i].data = guarded(bytes_of(&in[i]));
        for (int64_t e = 0, n = view_count(&in[i]); e < n; e++)
            view_set(&in[i], e, view_get(&t->in[i], e));
    }
    for (int o = 0; o < t->out_count; o++) {
        out[o] = t->out[o];
        out[o].dtype = WEFT_F32;
        out[o].data = guarded(bytes_of(&out[o]));
        rounded[o] = t->out[o];
        rounded[o].data = guarded(bytes_of(&rounded[o]));
    }
    execute(t, in, out);
    for (int o = 0; o < t->out_count; o++) {
        for (int64_t e = 0, n = view_count(&out[o]); e < n; e++)
            view_set(&rounded[o], e, view_get(&out[o], e));
        weft_free(out[o].data);
    }
    for (int i = 0; i < t->in_count; i++)
        if (in[i].data != t->in[i].data)
            weft_free(in[i].data);
}

static void compare(const instance *t, const weft_view *got, const weft_view *want, const char *isa,
                    int place, uint64_t seed)
{
    for (int o = 0; o < t->out_count; o++) {
        const int64_t size = weft_dtype_bytes(want[o].dtype);
        cr_assert(holds(got[o].data, bytes_of(&got[o])), "%s: output %d overrun",
                  weft_op_get(t->op)->name, o);
        for (int64_t e = 0, n = view_count(&want[o]); e < n; e++) {
            const double a = view_get(&got[o], e), b = view_get(&want[o], e);
            cr_assert((isnan(a) && isnan(b)) ||
                          !memcmp((char *)got[o].data + e * size, (char *)want[o].data + e * size,
                                  (size_t)size),
                      "%s on %s, in place of %d, seed %" PRIu64 ": element %" PRId64 " of output %d"
                      " is %.9g, rounded from f32 %.9g",
                      weft_op_get(t->op)->name, isa, place, seed, e, o, a, b);
        }
    }
}

/* `place`: output 0 is in place of this input; -1: a buffer of its own. */
static void check_place(const instance *t, const weft_view *want, const char *isa, int place,
                        uint64_t seed)
{
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    for (int i = 0; i < t->in_count; i++) {
        in[i] = t->in[i];
        if (!in[i].data)
            continue;
        in[i].data = guarded(bytes_of(&in[i]));
        memcpy(in[i].data, t->in[i].data, (size_t)bytes_of(&in[i]));
    }
    for (int o = 0; o < t->out_count; o++) {
        out[o] = t->out[o];
        out[o].data = o == 0 && place >= 0 ? in[place].data : guarded(bytes_of(&out[o]));
    }
    execute(t, in, out);
    compare(t, out, want, isa, place, seed);
    for (int o = 0; o < t->out_count; o++)
        if (o > 0 || place < 0)
            weft_free(out[o].data);
    for (int i = 0; i < t->in_count; i++)
        weft_free(in[i].data);
}

static void check_instance(instance *t, uint64_t seed)
{
    for (const subject *s = harness_subjects; s->label; s++) {
        weft_view want[WEFT_MAX_OUTPUTS];
        s->use(s->setting);
        execute_f32(t, want);
        for (int place = -1; place < t->in_count; place++)
            if (place < 0 || (weft_mask_has(weft_op_over(t->op, 0), place) &&
                              t->in[place].dtype == t->out[0].dtype &&
                              weft_shape_equal(&t->in[place].shape, &t->out[0].shape)))
                check_place(t, want, s->label, place, seed);
        for (int o = 0; o < t->out_count; o++)
            weft_free(want[o].data);
        s->use(0);
    }
    for (int i = 0; i < t->in_count; i++)
        weft_free(t->in[i].data);
}

/* Ops with a kernel that this test does not run: products and attention (another order of sums),
 * experts, and ops without narrow operands or with conversions only. */
static bool is_exempt(weft_op op)
{
    static const weft_op exempt[] = {
        WEFT_OP_MATMUL,
        WEFT_OP_LINEAR,
        WEFT_OP_CONV3D,
        WEFT_OP_CONV3D_DX,
        WEFT_OP_CONV3D_DW,
        WEFT_OP_ATTENTION,
        WEFT_OP_ATTENTION_GRAD,
        WEFT_OP_BLOCK_ATTENTION,
        WEFT_OP_BLOCK_ATTENTION_GRAD,
        WEFT_OP_TOP_P,
        WEFT_OP_TOP_SHARE,
        WEFT_OP_ATTENTION_MERGE,
        WEFT_OP_ATTENTION_MERGE_GRAD,
        WEFT_OP_TOP_K,
        WEFT_OP_PICK,
        WEFT_OP_PICK_GRAD,
        WEFT_OP_EXPERT_SLOTS,
        WEFT_OP_DISPATCH,
        WEFT_OP_COLLECT,
        WEFT_OP_EXPERT_MATMUL,
        WEFT_OP_EXPERT_MATMUL_DW,
        WEFT_OP_FILL,
        WEFT_OP_RANDOM_NORMAL,
        WEFT_OP_RANDOM_UNIFORM,
        WEFT_OP_ROPE_TABLE,
        WEFT_OP_UNPACK,
        WEFT_OP_CAST,
        WEFT_OP_POINTWISE, /* tests/kernel/cuda_driver/pointwise_test.c */
    };
    for (size_t i = 0; i < sizeof exempt / sizeof *exempt; i++)
        if (exempt[i] == op)
            return true;
    return !weft_backend_cpu.kernel[op];
}

Test(kernel_narrow, results_are_those_of_f32_rounded_once)
{
    enum { INSTANCES = 14 };
    for (int op = 1; op < WEFT_OP_COUNT; op++)
        for (uint64_t seed = 0; seed < INSTANCES; seed++) {
            weft_rng rng = weft_rng_make(seed * WEFT_OP_COUNT + (uint64_t)op, WEFT_RNG_TEST);
            instance t = {.op = (weft_op)op};
            if (!set_shapes(&t, &rng)) {
                cr_assert(is_exempt((weft_op)op), "%s has no shapes",
                          weft_op_get((weft_op)op)->name);
                break;
            }
            set_types(&t, &rng);
            infer(&t);
            fill_inputs(&t, &rng);
            check_instance(&t, seed);
        }
}
