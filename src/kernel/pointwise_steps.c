#include "kernel/pointwise_steps.h"

#include "base/memory.h"
#include "graph/infer.h"
#include "kernel/view.h"

#include <string.h>

/* Larger nodes are computed in pieces, of whole groups of rows, so that slots stay small: the
 * workspace is reserved for generated kernels as well, which do not use it. */
enum { SLOT_MOST = 16 << 20, ROWS_GROUP = 8 /* keeps the alignment of accesses */ };

/* Places of the results: an output, or a slot of the workspace. */
typedef struct step_plan {
    const weft_attr_pointwise *attr;
    const weft_kernel_args *args;
    int slot[WEFT_POINTWISE_STEPS]; /* -1: directly in the output */
    int slots;
    int64_t slot_bytes;
    int cut;      /* dimension whose indices a piece has a range of; -1: one piece */
    int64_t rows; /* of the range */
    bool wide;    /* floats of any type are stored as f64 */
} step_plan;

static bool reads(const weft_pointwise_step *step, int32_t operand)
{
    for (int k = 0; k < step->in_count; k++)
        if (step->in[k] == operand)
            return true;
    return false;
}

/* The last step that reads the result of step s; s: none. */
static int last_reader(const weft_attr_pointwise *attr, int s)
{
    int last = s;
    for (int r = s + 1; r < attr->count; r++)
        if (reads(&attr->step[r], WEFT_POINTWISE_STEP + s))
            last = r;
    return last;
}

/* Whether the output may have the memory of an input that this step may not overwrite, or that a
 * later step reads. */
static bool may_disturb(const step_plan *p, int s)
{
    const weft_pointwise_step *step = &p->attr->step[s];
    const weft_view *out = &p->args->out[step->out];
    for (int i = 0; i < p->args->in_count; i++) {
        const weft_view *in = &p->args->in[i];
        if (in->dtype != out->dtype || !weft_shape_equal(&in->shape, &out->shape))
            continue;
        for (int k = 0; k < step->in_count; k++)
            if (step->in[k] == i && !weft_mask_has(weft_op_over(step->op, 0), k))
                return true;
        for (int r = s + 1; r < p->attr->count; r++)
            if (reads(&p->attr->step[r], i))
                return true;
    }
    return false;
}

/* Sets pieces and slots. `each`: bytes of an element of the widest slot. */
static void set_pieces(step_plan *p, int64_t each)
{
    const weft_shape *shape = &p->args->out[0].shape;
    int64_t row = view_count(&p->args->out[0]) * each; /* bytes of a slot by index of `cut` */
    p->cut = -1;
    p->slot_bytes = weft_aligned(row);
    if (row <= SLOT_MOST)
        return;
    do {
        row /= shape->dim[++p->cut];
    } while (p->cut < shape->rank - 1 && ROWS_GROUP * row > SLOT_MOST);
    p->rows = SLOT_MOST / row / ROWS_GROUP * ROWS_GROUP;
    if (p->rows > shape->dim[p->cut])
        p->rows = shape->dim[p->cut];
    p->slot_bytes = weft_aligned(p->rows * row);
}

static step_plan plan_of(const weft_kernel_args *args)
{
    step_plan p = {.attr = args->attr, .args = args};
    int until[WEFT_POINTWISE_STEPS]; /* by slot: the last step that needs it */
    int64_t each = 0;                /* bytes of an element of the widest slot */
    for (int i = 0; i < args->in_count; i++)
        p.wide = p.wide || args->in[i].dtype == WEFT_F64;
    for (int s = 0; s < p.attr->count; s++) {
        const int output = p.attr->step[s].out;
        p.slot[s] = -1;
        if (output >= 0 && !may_disturb(&p, s))
            continue;
        int slot = 0;
        while (slot < p.slots && until[slot] >= s)
            slot++;
        p.slots = slot == p.slots ? slot + 1 : p.slots;
        p.slot[s] = slot;
        const int64_t own = weft_dtype_bytes(p.wide ? WEFT_F64 : p.attr->step[s].dtype);
        each = own > each ? own : each;
        until[slot] = output >= 0 ? p.attr->count : last_reader(p.attr, s);
    }
    set_pieces(&p, each);
    return p;
}

/* The result of a step; the data is NULL if the node's is. */
static weft_view view_of(const step_plan *p, int s)
{
    const weft_pointwise_step *step = &p->attr->step[s];
    if (p->slot[s] < 0)
        return p->args->out[step->out];
    char *slots = p->args->workspace;
    return (weft_view){.data = slots ? slots + p->slot[s] * p->slot_bytes : NULL,
                       .dtype = p->wide ? WEFT_F64 : step->dtype,
                       .shape = p->args->out[0].shape};
}

/* The arguments of a step, whose views are in `in` and `out`. */
static weft_kernel_args args_of(const step_plan *p, int s, weft_view in[3], weft_view *out)
{
    const weft_pointwise_step *step = &p->attr->step[s];
    weft_kernel_args args = *p->args;
    for (int k = 0; k < step->in_count; k++)
        in[k] = step->in[k] < WEFT_POINTWISE_STEP ? p->args->in[step->in[k]]
                                                  : view_of(p, step->in[k] - WEFT_POINTWISE_STEP);
    *out = view_of(p, s);
    args.op = step->op;
    args.in = in;
    args.in_count = step->in_count;
    args.out = out;
    args.out_count = 1;
    args.attr = &step->attr;
    args.cache = NULL;
    args.workspace =
        args.workspace ? (char *)args.workspace + p->slots * p->slot_bytes : args.workspace;
    return args;
}

int64_t weft_pointwise_workspace(const weft_step_kernels *kernels, const weft_kernel_args *args)
{
    const step_plan p = plan_of(args);
    int64_t most = 0;
    for (int s = 0; s < p.attr->count; s++) {
        weft_view in[3], out;
        const weft_kernel_args step = args_of(&p, s, in, &out);
        const int64_t bytes = kernels->workspace(kernels, &step);
        most = bytes > most ? bytes : most;
    }
    return p.slots * p.slot_bytes + most;
}

static weft_status run_piece(const weft_step_kernels *kernels, const step_plan *p)
{
    weft_view in[3], out;
    for (int s = 0; s < p->attr->count; s++) {
        const weft_kernel_args step = args_of(p, s, in, &out);
        WEFT_TRY(kernels->run(kernels, &step));
    }
    for (int s = 0; s < p->attr->count; s++) {
        const int output = p->attr->step[s].out;
        if (output < 0 || p->slot[s] < 0)
            continue;
        weft_kernel_args copy = args_of(p, s, in, &out);
        in[0] = out;
        copy.op = WEFT_OP_STOP;
        copy.in_count = 1;
        copy.out = &p->args->out[output];
        WEFT_TRY(kernels->run(kernels, &copy));
    }
    return WEFT_OK;
}

/* The part of an operand with `rows` indices of dimension `cut` from `from` on, and one index of
 * each dimension before, which `outer` counts. Dimensions of 1 are broadcast. */
static weft_view part_of(const step_plan *p, const weft_view *v, int64_t outer, int64_t from,
                         int64_t rows)
{
    const weft_shape *whole = &p->args->out[0].shape;
    weft_view part = *v;
    int64_t stride[WEFT_MAX_RANK];
    shape_strides(&v->shape, stride);
    int64_t at = from * stride[p->cut];
    for (int d = p->cut - 1; d >= 0; outer /= whole->dim[d--]) {
        at += outer % whole->dim[d] * stride[d];
        part.shape.dim[d] = 1;
    }
    if (v->shape.dim[p->cut] > 1)
        part.shape.dim[p->cut] = rows;
    part.data = (char *)v->data + at * weft_dtype_bytes(v->dtype);
    return part;
}

static weft_status run_part(const weft_step_kernels *kernels, const step_plan *p, int64_t outer,
                            int64_t from, int64_t rows)
{
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_kernel_args args = *p->args;
    step_plan part = *p; /* with the slots of the whole node */
    for (int i = 0; i < args.in_count; i++)
        in[i] = part_of(p, &args.in[i], outer, from, rows);
    for (int o = 0; o < args.out_count; o++)
        out[o] = part_of(p, &args.out[o], outer, from, rows);
    args.in = in;
    args.out = out;
    part.args = &args;
    return run_piece(kernels, &part);
}

weft_status_code weft_pointwise_run(const weft_step_kernels *kernels, const weft_kernel_args *args)
{
    const step_plan p = plan_of(args);
    const weft_shape *shape = &args->out[0].shape;
    int64_t outer = 1;
    if (p.cut < 0)
        return run_piece(kernels, &p);
    for (int d = 0; d < p.cut; d++)
        outer *= shape->dim[d];
    for (int64_t i = 0; i < outer; i++)
        for (int64_t from = 0; from < shape->dim[p.cut]; from += p.rows) {
            const int64_t left = shape->dim[p.cut] - from;
            WEFT_TRY(run_part(kernels, &p, i, from, left < p.rows ? left : p.rows));
        }
    return WEFT_OK;
}
