#include "parity/parity_masks.h"

#include "base/memory.h"

#include <stdint.h>

static void from_lengths(const float *length, const weft_shape *to, float *mask)
{
    for (int64_t b = 0; b < to->dim[0]; b++)
        for (int64_t i = 0; i < to->dim[1]; i++)
            mask[b * to->dim[1] + i] = (float)i < length[b] ? 1 : 0;
}

static bool from_all_tokens(const float *all, int64_t tokens, const weft_shape *to, float *mask)
{
    const int64_t text = to->dim[1];
    for (int64_t b = 0; b < to->dim[0]; b++)
        for (int64_t i = 0; i < tokens; i++) {
            const float value = all[b * tokens + i];
            if (i < text)
                mask[b * text + i] = value;
            else if (value != 1)
                return false;
        }
    return true;
}

bool weft_parity_text_mask(const weft_stored_tensor *t, const weft_shape *to, float **values)
{
    const bool lengths = t->rank == 1;
    if (t->rank < 1 || t->rank > 2 || to->rank != 2 || t->dim[0] != to->dim[0] ||
        (!lengths && t->dim[1] <= to->dim[1]))
        return false;
    float *mask = weft_alloc(weft_shape_count(to) * (int64_t)sizeof *mask);
    if (!mask)
        return false;
    if (lengths)
        from_lengths(*values, to, mask);
    else if (!from_all_tokens(*values, t->dim[1], to, mask)) {
        weft_free(mask);
        return false;
    }
    weft_free(*values);
    *values = mask;
    return true;
}
