/* Convolutions by our own kernels (conv.inc). conv.c selects the kernel of each convolution. */
#ifndef WEFT_KERNEL_CPU_CONV_OWN_H
#define WEFT_KERNEL_CPU_CONV_OWN_H

#include "kernel/cpu/cpu.h"

/* x (B,T,Y,X,I), y (B,T',Y',X',O), w (O,I,kt,ky,kx). */
typedef struct conv_dims {
    weft_shape x, w, y;
    const weft_attr_conv *attr;
} conv_dims;

/* Operands are f32 or bf16, sums and dw f32. */
int64_t conv_own_dw_workspace(const conv_dims *c, weft_dtype x, weft_dtype dy);
void conv_own_dw(const conv_dims *c, const weft_view *x, const weft_view *dy, float *dw,
                 void *workspace);

/* True for at most 4 outputs with stride 1 along x. */
bool conv_own_few_fits(const conv_dims *c);
int64_t conv_own_few_workspace(const conv_dims *c, weft_dtype x, weft_dtype w);
/* bias: NULL: none */
void conv_own_few(const conv_dims *c, const weft_view *x, const weft_view *w, const weft_view *bias,
                  weft_view *y, void *workspace);

#endif
