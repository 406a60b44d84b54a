#include "kernel/pointwise_steps.h"

#include "base/memory.h"
#include "graph/infer.h"
#include "kernel/view.h"

#include <string.h>

/* Places of the results: an output, or a slot of the workspace. */
typedef struct step_plan {
    const weft_attr_pointwise *attr;
    const weft_kernel_args *args;
    int slot[WEFT_POINTWISE_STEPS]; /* -1: directly in the output */
    int slots;
    int64_t slot_bytes;
    bool wide; /* floats of any type are stored as f64 */
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
    p.slot_bytes = weft_aligned(view_count(&args->out[0]) * each);
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

weft_status_code weft_pointwise_run(const weft_step_kernels *kernels, const weft_kernel_args *args)
{
    const step_plan p = plan_of(args);
    weft_view in[3], out;
    for (int s = 0; s < p.attr->count; s++) {
        const weft_kernel_args step = args_of(&p, s, in, &out);
        WEFT_TRY(kernels->run(kernels, &step));
    }
    for (int s = 0; s < p.attr->count; s++) {
        const int output = p.attr->step[s].out;
        if (output < 0 || p.slot[s] < 0)
            continue;
        weft_kernel_args copy = args_of(&p, s, in, &out);
        in[0] = out;
        copy.op = WEFT_OP_STOP;
        copy.in_count = 1;
        copy.out = &args->out[output];
        WEFT_TRY(kernels->run(kernels, &copy));
    }
    return WEFT_OK;
}
