#include "kernel/cuda/chain_source.h"

#include "base/id_hash.h"
#include "kernel/cuda/kernels/kernel_args.h"
#include "kernel/view.h"

#include <stdio.h>

_Static_assert(CHAIN_STEPS >= (int)WEFT_POINTWISE_STEPS && CHAIN_OUTPUTS >= (int)WEFT_MAX_OUTPUTS,
               "the parameter has room for every node");

static bool is_generated_type(weft_dtype type)
{
    return type == WEFT_F32 || type == WEFT_BF16 || type == WEFT_F16;
}

bool weft_chain_accepts(const weft_kernel_args *args)
{
    const weft_attr_pointwise *attr = args->attr;
    if (args->op != WEFT_OP_POINTWISE || args->in_count > CHAIN_INPUTS ||
        args->out[0].shape.rank > LOOP_RANK || view_count(&args->out[0]) > INT32_MAX)
        return false;
    for (int i = 0; i < args->in_count; i++)
        if (!is_generated_type(args->in[i].dtype))
            return false;
    for (int s = 0; s < attr->count; s++)
        if (!is_generated_type(attr->step[s].dtype))
            return false;
    return true;
}

static const char *type_of(weft_dtype type)
{
    return type == WEFT_F32 ? "TYPE_F32" : type == WEFT_BF16 ? "TYPE_BF16" : "TYPE_F16";
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_exact_gelu(const weft_pointwise_step *step)
{
    return (step->op == WEFT_OP_GELU || step->op == WEFT_OP_GELU_GRAD) && step->attr.gelu.exact;
}

/* Ops of one input, or of an input and a gradient, have two numbers as well (UNARY_OF). */
static bool has_numbers(weft_op op)
{
    return op != WEFT_OP_ADD && op != WEFT_OP_SUB && op != WEFT_OP_MUL && op != WEFT_OP_DIV &&
           op != WEFT_OP_MODULATE && op != WEFT_OP_GATED_ADD;
}

static void put_operand(const weft_pointwise_step *step, int k, weft_buf *out)
{
    const int32_t of = step->in[k];
    if (of >= WEFT_POINTWISE_STEP)
        weft_buf_printf(out, "s%d", (int)(of - WEFT_POINTWISE_STEP));
    else
        weft_buf_printf(out, "x%d[k]", (int)of);
}

static void put_call(const weft_pointwise_step *step, int s, weft_buf *out)
{
    const char *grad = step->op == WEFT_OP_GELU_GRAD ? "_grad" : "";
    if (is_exact_gelu(step))
        weft_buf_printf(out, "gelu_exact%s_of(", grad);
    else
        weft_buf_printf(out, "%s_of(", weft_op_get(step->op)->name);
    for (int k = 0; k < step->in_count; k++) {
        weft_buf_printf(out, "%s", k ? ", " : "");
        put_operand(step, k, out);
    }
    if (has_numbers(step->op))
        weft_buf_printf(out, "%s, a.a[%d], a.b[%d]", step->in_count == 1 ? ", 0.0f" : "", s, s);
    weft_buf_printf(out, ")");
}

static void put_step(const weft_pointwise_step *step, int s, weft_buf *out)
{
    const char *round = step->dtype == WEFT_BF16  ? "bf16_value(bf16_of("
                        : step->dtype == WEFT_F16 ? "f16_value(f16_of("
                                                  : "((";
    weft_buf_printf(out, "        const float s%d = %s", s, round);
    put_call(step, s, out);
    weft_buf_printf(out, "));\n");
    if (step->out >= 0)
        weft_buf_printf(out, "        y%d[k] = s%d;\n", (int)step->out, s);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static void put_input(int i, weft_dtype type, weft_buf *out)
{
    weft_buf_printf(out,
                    "    const tensor_ref in%d = {a.in[%d], %s};\n"
                    "    float x%d[8];\n"
                    "    load_item(x%d, in%d, loop_offset(&a.shape, a.stride[%d], (uint32_t)i),\n"
                    "              a.same[%d] || !a.vector);\n",
                    i, i, type_of(type), i, i, i, i, i);
}

static void put_output(int o, weft_dtype type, weft_buf *out)
{
    weft_buf_printf(out,
                    "    const tensor_ref out%d = {a.out[%d], %s};\n"
                    "    if (a.vector)\n"
                    "        store_eight(out%d, 8 * i, y%d);\n"
                    "    else\n"
                    "        store_float(out%d, i, y%d[0]);\n",
                    o, o, type_of(type), o, o, o, o);
}

static void put_body(const weft_kernel_args *args, weft_buf *out)
{
    const weft_attr_pointwise *attr = args->attr;
    weft_buf_printf(out,
                    "{\n"
                    "    const int64_t i = (int64_t)BLOCK(0) * POINTWISE_THREADS + THREAD(0);\n"
                    "    if (i >= a.items)\n"
                    "        return;\n");
    for (int i = 0; i < args->in_count; i++)
        put_input(i, args->in[i].dtype, out);
    for (int o = 0; o < args->out_count; o++)
        weft_buf_printf(out, "    float y%d[8];\n", o);
    weft_buf_printf(out, "    UNROLL\n"
                         "    for (int k = 0; k < 8; k++) {\n");
    for (int s = 0; s < attr->count; s++)
        put_step(&attr->step[s], s, out);
    weft_buf_printf(out, "    }\n");
    for (int o = 0; o < args->out_count; o++)
        put_output(o, args->out[o].dtype, out);
    weft_buf_printf(out, "}\n");
}

weft_status weft_chain_source(const weft_kernel_args *args, char name[WEFT_CHAIN_NAME],
                              weft_buf *source)
{
    weft_buf body = {0};
    weft_status_code status = WEFT_OK;
    put_body(args, &body);
    WEFT_GO(weft_buf_check(&body));
    snprintf(name, WEFT_CHAIN_NAME, "weft_chain_%016" PRIx64,
             weft_id_mix(WEFT_ID_BEGIN, body.data, (size_t)body.len));
    weft_buf_printf(source,
                    "#include \"kernel/cuda/kernels/pointwise_ops.h\"\n\n"
                    "WEFT_KERNEL(%s, chain_args, POINTWISE_THREADS)\n%s",
                    name, body.data);
    status = weft_buf_check(source);
out:
    weft_buf_free(&body);
    return status;
}
