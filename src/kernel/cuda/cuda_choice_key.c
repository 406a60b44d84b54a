#include "kernel/cuda/cuda_choice_key.h"

#include "graph/graph.h"
#include "kernel/view.h"

static void put_views(const weft_view *view, int count, weft_buf *key)
{
    char text[96];
    for (int i = 0; i < count; i++)
        if (view_present(&view[i]))
            weft_buf_printf(key, " %s%s", weft_dtype_name(view[i].dtype),
                            weft_format_shape(&view[i].shape, text));
        else
            weft_buf_printf(key, " -");
}

static void put_conv(const weft_attr_conv *a, weft_buf *key)
{
    weft_buf_printf(key, " stride=");
    for (int d = 0; d < 3; d++)
        weft_buf_printf(key, "%s%" PRId64, d ? "," : "", a->stride[d]);
    weft_buf_printf(key, " pad=");
    for (int d = 0; d < 3; d++)
        weft_buf_printf(key, "%s%" PRId64 "+%" PRId64, d ? "," : "", a->before[d], a->after[d]);
}

static void put_attr(const weft_kernel_args *args, weft_buf *key)
{
    switch (args->op) {
    case WEFT_OP_MATMUL: {
        const weft_attr_matmul *a = args->attr;
        weft_buf_printf(key, "%s%s", a->trans_a ? " ta" : "", a->trans_b ? " tb" : "");
        break;
    }
    case WEFT_OP_CONV3D:
    case WEFT_OP_CONV3D_DX:
    case WEFT_OP_CONV3D_DW: put_conv(args->attr, key); break;
    case WEFT_OP_ATTENTION:
    case WEFT_OP_ATTENTION_GRAD: {
        const weft_attr_attention *a = args->attr;
        weft_buf_printf(key, " scale=%.9g%s", a->scale, a->causal ? " causal" : "");
        break;
    }
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_RMS_NORM:
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_RMS_NORM_GRAD:
    case WEFT_OP_ROPE:
    case WEFT_OP_POINTWISE: /* prints no value of a graph */
        weft_op_get(args->op)->print(NULL, &(weft_node){.op = args->op, .attr = args->attr}, key);
        break;
    default: break;
    }
}

void weft_cuda_choice_key(const weft_kernel_args *args, weft_buf *key)
{
    weft_buf_printf(key, "%s", weft_op_get(args->op)->name);
    put_attr(args, key);
    weft_buf_printf(key, "%s", weft_op_is_tf32(args->op, args->attr) ? " tf32" : "");
    put_views(args->in, args->in_count, key);
    weft_buf_printf(key, " >");
    put_views(args->out, args->out_count, key);
}
