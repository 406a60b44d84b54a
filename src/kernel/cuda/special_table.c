#include "kernel/cuda/special_table.h"

#include "base/id_hash.h"
#include "kernel/cuda/kernels/kernel_args.h"

#include <stddef.h>
#include <string.h>

/* ---- members --------------------------------------------------------------------------------- */

/* clang-format off */
#define INT(of, path) {#path, offsetof(of, path), sizeof(((of *)0)->path), false}
#define ABSENT(of, path) {#path, offsetof(of, path), sizeof(void *), true}
#define TENSOR(of, path) INT(of, path.type), ABSENT(of, path.data)
#define DIVISOR(of, path) INT(of, path.by), INT(of, path.multiply), INT(of, path.shift)
#define SHAPE(of, path) DIVISOR(of, path.dim[1]), DIVISOR(of, path.dim[2]), \
    DIVISOR(of, path.dim[3]), DIVISOR(of, path.dim[4]), DIVISOR(of, path.dim[5])
#define STRIDES(of, path) INT(of, path[0]), INT(of, path[1]), INT(of, path[2]), INT(of, path[3]), \
    INT(of, path[4]), INT(of, path[5])
#define THREE(of, path) INT(of, path[0]), INT(of, path[1]), INT(of, path[2])
#define OPERAND(of, path) TENSOR(of, path.t), INT(of, path.row_stride), \
    INT(of, path.depth_stride), INT(of, path.kind), INT(of, path.shared), INT(of, path.vector)
/* clang-format on */
_Static_assert(LOOP_RANK == 6, "SHAPE and STRIDES have every dim");

static const weft_special_member norm[] = {
    TENSOR(norm_args, x),   TENSOR(norm_args, gamma), TENSOR(norm_args, beta),
    TENSOR(norm_args, out), INT(norm_args, columns),  INT(norm_args, kind),
    INT(norm_args, vector), INT(norm_args, by_warp),
};

static const weft_special_member norm_grad[] = {
    TENSOR(norm_grad_args, x),  TENSOR(norm_grad_args, dy),         TENSOR(norm_grad_args, gamma),
    TENSOR(norm_grad_args, dx), ABSENT(norm_grad_args, statistics), INT(norm_grad_args, columns),
    INT(norm_grad_args, kind),  INT(norm_grad_args, vector),        INT(norm_grad_args, by_warp),
};

static const weft_special_member ternary[] = {
    TENSOR(ternary_args, x),         TENSOR(ternary_args, y),
    TENSOR(ternary_args, z),         TENSOR(ternary_args, out),
    SHAPE(ternary_args, shape),      STRIDES(ternary_args, x_stride),
    STRIDES(ternary_args, y_stride), STRIDES(ternary_args, z_stride),
    INT(ternary_args, vector),       INT(ternary_args, x_same),
    INT(ternary_args, y_same),       INT(ternary_args, z_same),
};

static const weft_special_member rope[] = {
    TENSOR(rope_args, x),
    TENSOR(rope_args, cosine),
    TENSOR(rope_args, sine),
    TENSOR(rope_args, out),
    SHAPE(rope_args, shape),
    STRIDES(rope_args, x_stride),
    STRIDES(rope_args, angle_stride),
    INT(rope_args, half),
    INT(rope_args, pairs),
    INT(rope_args, rotate_half),
};

/* The positions of a convolution, and both sizes that bound the tails of tiles. */
static const weft_special_member gemm[] = {
    OPERAND(gemm_args, a),
    OPERAND(gemm_args, b),
    TENSOR(gemm_args, bias),
    TENSOR(gemm_args, c),
    DIVISOR(gemm_args, conv.grid[0]),
    DIVISOR(gemm_args, conv.grid[1]),
    DIVISOR(gemm_args, conv.grid[2]),
    DIVISOR(gemm_args, conv.taps[0]),
    DIVISOR(gemm_args, conv.taps[1]),
    DIVISOR(gemm_args, conv.channels),
    THREE(gemm_args, conv.source),
    THREE(gemm_args, conv.stride),
    THREE(gemm_args, conv.before),
    INT(gemm_args, conv.back),
    ABSENT(gemm_args, list),
    ABSENT(gemm_args, tile_expert),
    ABSENT(gemm_args, starts),
    INT(gemm_args, columns),
    INT(gemm_args, depth),
    INT(gemm_args, splits),
    INT(gemm_args, split_depth),
    INT(gemm_args, act),
    INT(gemm_args, round),
    INT(gemm_args, list_c),
    INT(gemm_args, vector_c),
    INT(gemm_args, tf32),
};

static const weft_special_member attention[] = {
    TENSOR(attention_args, q),          TENSOR(attention_args, k),
    TENSOR(attention_args, v),          TENSOR(attention_args, out),
    TENSOR(attention_args, dout),       TENSOR(attention_args, dq),
    TENSOR(attention_args, dk),         TENSOR(attention_args, dv),
    ABSENT(attention_args, base),       ABSENT(attention_args, dlse),
    ABSENT(attention_args, bias),       ABSENT(attention_args, segments),
    INT(attention_args, queries),       DIVISOR(attention_args, by_queries),
    INT(attention_args, heads),         INT(attention_args, width),
    INT(attention_args, item_segments), INT(attention_args, causal),
    INT(attention_args, vector),
};

/* ---- kernels --------------------------------------------------------------------------------- */

#define KERNEL(name, file, of)                                                                     \
    {                                                                                              \
#name, file, sizeof(of##_args), of, sizeof of / sizeof of[0]                               \
    }
static const weft_special_kernel kernels[] = {
    KERNEL(weft_norm, "norms", norm),
    KERNEL(weft_norm_grad, "norms", norm_grad),
    KERNEL(weft_softmax, "norms", norm),
    KERNEL(weft_modulate, "modulation", ternary),
    KERNEL(weft_gated_add, "modulation", ternary),
    KERNEL(weft_rope, "modulation", rope),
    KERNEL(weft_gemm_f32, "gemm", gemm),
    KERNEL(weft_gemm_bf16, "gemm", gemm),
    KERNEL(weft_gemm_tf32, "gemm_tf32", gemm),
    KERNEL(weft_attention, "attention", attention),
    KERNEL(weft_attention_delta, "attention", attention),
    KERNEL(weft_attention_dq, "attention", attention),
    KERNEL(weft_attention_dkv, "attention", attention),
    KERNEL(weft_flash_64, "flash_64", attention),
    KERNEL(weft_flash_dq_64, "flash_64", attention),
    KERNEL(weft_flash_dkv_64, "flash_64", attention),
    KERNEL(weft_flash_128, "flash_128", attention),
    KERNEL(weft_flash_dq_128, "flash_128", attention),
    KERNEL(weft_flash_dkv_128, "flash_128", attention),
    KERNEL(weft_flash_tf32_64, "flash_tf32_64", attention),
    KERNEL(weft_flash_dq_tf32_64, "flash_tf32_64", attention),
    KERNEL(weft_flash_dkv_tf32_64, "flash_tf32_64", attention),
    KERNEL(weft_flash_tf32_128, "flash_tf32_128", attention),
    KERNEL(weft_flash_dq_tf32_128, "flash_tf32_128", attention),
    KERNEL(weft_flash_dkv_tf32_128, "flash_tf32_128", attention),
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

const weft_special_kernel *weft_special_kernel_of(const weft_cuda_launch *launch)
{
    for (int i = 0; i < KERNELS; i++)
        if (!strcmp(kernels[i].name, launch->kernel) && kernels[i].args_bytes == launch->args_bytes)
            return &kernels[i];
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Sets the value of an integer, or 0 of a pointer that is NULL. False: a pointer that is not. */
static bool value_of(const weft_special_member *m, const void *args, int64_t *value)
{
    const char *at = (const char *)args + m->offset;
    int32_t narrow;
    const void *pointer;
    *value = 0;
    if (m->is_pointer) {
        memcpy(&pointer, at, sizeof pointer);
        return pointer == NULL;
    }
    if (m->bytes == sizeof narrow) {
        memcpy(&narrow, at, sizeof narrow);
        *value = narrow;
    } else {
        memcpy(value, at, sizeof *value);
    }
    return true;
}

uint64_t weft_special_hash(const weft_special_kernel *kernel, const void *args)
{
    uint64_t hash = weft_id_mix(WEFT_ID_BEGIN, kernel->name, strlen(kernel->name));
    for (int i = 0; i < kernel->members; i++) {
        int64_t value;
        const bool is_constant = value_of(&kernel->member[i], args, &value);
        hash = weft_id_mix(hash, &is_constant, sizeof is_constant);
        hash = weft_id_mix(hash, &value, sizeof value);
    }
    return hash;
}

void weft_special_put_constants(const weft_special_kernel *kernel, const void *args, weft_buf *out)
{
    for (int i = 0; i < kernel->members; i++) {
        const weft_special_member *m = &kernel->member[i];
        int64_t value;
        if (!value_of(m, args, &value))
            continue;
        weft_buf_printf(out, "%sgiven.%s = ", i ? " " : "", m->path);
        if (m->is_pointer)
            weft_buf_printf(out, "NULL;");
        else
            weft_buf_printf(out, "%" PRId64 "%s;", value, m->bytes == 8 ? "ll" : "");
    }
}
