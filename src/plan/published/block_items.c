#include "plan/published/block_items.h"

#include <math.h>

typedef struct piece {
    const char *name;
    double bsh, bas;       /* saved bytes: (bsh B S H + bas B A S) / TP */
    double gemm_bshh;      /* FLOPs: gemm_bshh B S H^2 / TP */
    double attention_bssh; /* FLOPs: attention_bssh B S^2 H / TP */
    double traffic_bsh;    /* bytes through device memory, in B S H / TP */
    double wire_bsh;       /* bytes over the links: wire_bsh B S H (TP-1)/TP */
} piece;

/* Aquarius Table 2; the MLP is 4 H wide. Gathered or scattered tensors have 2 B S H bytes. */
static const piece pieces[WEFT_BLOCK_PIECES] = {
    {"flash attention", 2, 64, 0, 4, 8, 0},
    {"out linear + reduce-scatter", 2, 0, 2, 0, 4, 2},
    {"ffn linear 2 + reduce-scatter", 2, 0, 8, 0, 10, 2},
    {"all-gather + ffn linear 1", 8, 0, 8, 0, 10, 2},
    {"all-gather + qkv linear", 6, 0, 6, 0, 8, 2},
    {"fused qk norm", 4, 0, 0, 0, 8, 0},
    {"gate", 2, 0, 0, 0, 6, 0},
    {"layer norm + scale, shift", 4, 0, 0, 0, 8, 0},
    {"gelu", 8, 0, 0, 0, 16, 0},
};

void weft_block_items(const weft_block_shape *s, const weft_block_rates *r,
                      weft_activation_item *item)
{
    const double bsh = s->batch * s->tokens * s->hidden, bas = s->batch * s->heads * s->tokens;
    for (int i = 0; i < WEFT_BLOCK_PIECES; i++) {
        const piece *p = &pieces[i];
        const double bytes = (p->bsh * bsh + p->bas * bas) / s->tp;
        const double compute = p->gemm_bshh * bsh * s->hidden / s->tp / r->gemm +
                               p->attention_bssh * bsh * s->tokens / s->tp / r->attention;
        const double traffic = p->traffic_bsh * bsh / s->tp / r->memory;
        const double wire = s->tp > 1 ? p->wire_bsh * bsh * (s->tp - 1) / s->tp / r->link : 0;
        item[i] = (weft_activation_item){.name = p->name,
                                         .bytes = bytes,
                                         .recompute = fmax(compute, traffic) + wire,
                                         .offload = r->host > 0 ? 2 * bytes / r->host : INFINITY,
                                         .count = (int64_t)s->layers};
    }
}
