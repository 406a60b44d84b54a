/* The reference backend: f64, one loop nest per op, no cleverness. It is the truth for the others,
 * so it reads like the definition and shares nothing with them but the views. */
#ifndef WEFT_KERNEL_REF_REF_H
#define WEFT_KERNEL_REF_REF_H

#include "kernel/view.h"

#define REF_KERNELS(X)                                                                             \
    X(fill)                                                                                        \
    X(random_normal)                                                                               \
    X(random_uniform) X(neg) X(affine) X(cast) X(exp) X(log) X(sqrt) X(rsqrt) X(square) X(sin)     \
        X(cos) X(tanh) X(sigmoid) X(silu) X(silu_grad) X(gelu) X(gelu_grad) X(clamp) X(clamp_grad) \
            X(add) X(sub) X(mul) X(div) X(sum) X(broadcast) X(permute) X(slice) X(pad) X(concat)   \
                X(matmul) X(linear) X(conv3d) X(conv3d_dx) X(conv3d_dw) X(attention)               \
                    X(attention_grad) X(attention_merge) X(attention_merge_grad) X(layer_norm)     \
                        X(layer_norm_grad) X(rms_norm) X(rms_norm_grad) X(modulate)                \
                            X(modulate_grad) X(gated_add) X(gated_add_grad) X(rope) X(embed)       \
                                X(embed_grad) X(sum_squares) X(clip_scale) X(adamw) X(ema)

#define X(name) weft_status_code ref_##name(const weft_kernel_args *args);
REF_KERNELS(X)
#undef X

int64_t ref_attention_workspace(const weft_kernel_args *args);
int64_t ref_attention_grad_workspace(const weft_kernel_args *args);

#endif
