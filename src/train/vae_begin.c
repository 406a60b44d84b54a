#include "train/vae_begin.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

/* w (O,I,kt,ky,kx), or (O,I,ky,kx). */
static void fill_conv(weft_tensor *w, uint64_t seed)
{
    const int64_t *d = w->shape.dim;
    const int64_t taps = w->shape.rank == 5 ? d[2] : 1;
    const int64_t area = w->shape.rank == 5 ? d[3] * d[4] : d[2] * d[3];
    const double deviation = 1 / sqrt((double)(d[1] * area));
    const uint64_t key = weft_seed_mix(seed, XXH64(w->name, strlen(w->name), 0));
    float *x = w->data;
    for (int64_t i = 0; i < d[0] * d[1] * taps * area; i++) {
        const bool present = i / area % taps == taps - 1;
        x[i] = present ? (float)(deviation * weft_random_normal(key, WEFT_RNG_INIT, (uint64_t)i)) : 0;
    }
}

void weft_vae_begin(weft_store *store, int64_t z_dim, uint64_t seed)
{
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *tensor = weft_store_at(store, i);
        const size_t length = strlen(tensor->name);
        if (strncmp(tensor->name, "vae.", 4) || tensor->dtype != WEFT_F32)
            continue;
        const bool weight = length > 7 && !strcmp(tensor->name + length - 7, ".weight");
        const bool bias = length > 5 && !strcmp(tensor->name + length - 5, ".bias");
        if (weight && tensor->shape.rank >= 4)
            fill_conv(tensor, seed);
        else if (bias)
            memset(tensor->data, 0, (size_t)weft_shape_count(&tensor->shape) * 4);
    }
    weft_tensor *posterior = weft_store_find(store, "vae.quant_conv.bias");
    for (int64_t i = 0; posterior && i < z_dim; i++)
        ((float *)posterior->data)[z_dim + i] = -6;
}
