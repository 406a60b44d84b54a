/* Convolutions by our own kernels (conv.inc). conv.c selects the kernel of each convolution. */
#ifndef WEFT_KERNEL_CPU_CONV_OWN_H
#define WEFT_KERNEL_CPU_CONV_OWN_H

#include "kernel/cpu/cpu.h"

/* x (B,T,Y,X,I), y (B,T',Y',X',O), w (O,I,kt,ky,kx). */
typedef struct conv_dims {
    weft_shape x, w, y;
    const weft_attr_conv *attr;
} conv_dims;

int64_t conv_own_dw_workspace(const conv_dims *c);
void conv_own_dw(const conv_dims *c, const float *x, const float *dy, float *dw, void *workspace);

/* True for at most 4 outputs with stride 1 along x. */
bool conv_own_few_fits(const conv_dims *c);
int64_t conv_own_few_workspace(const conv_dims *c);
void conv_own_few(const conv_dims *c, const float *x, const float *w, const float *bias, float *y,
                  void *workspace);

#endif
