#include "plan/ops/model_work.h"

#include "base/hex.h"
#include "base/id_hash.h"

#include <string.h>

weft_status weft_model_work_clip(const weft_model_work *m, int64_t frames, int64_t height,
                                 int64_t width, const weft_clip_work **out)
{
    for (int64_t i = 0; i < m->clips; i++)
        if (m->clip[i].frames == frames && m->clip[i].height == height &&
            m->clip[i].width == width) {
            *out = &m->clip[i];
            return WEFT_OK;
        }
    return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                      "%s: no costs were counted for a clip of %" PRId64 "x%" PRId64 "x%" PRId64,
                      m->name, frames, height, width);
}

void weft_model_work_id(const weft_model_work *m, char text[20])
{
    const double facts[] = {(double)m->layers, (double)m->heads, (double)m->hidden, m->parameters,
                            m->text_weight_bytes};
    uint64_t hash = weft_id_mix(WEFT_ID_BEGIN, facts, sizeof facts);
    for (int64_t i = 0; i < m->clips; i++) {
        const weft_clip_work *c = &m->clip[i];
        const double n[] = {(double)c->frames,       (double)c->height, (double)c->width,
                            (double)c->tiles,        c->tile_flops,     c->tile_bytes,
                            c->text_flops,           c->latent_bytes,   c->text_bytes,
                            (double)c->latent_frames};
        hash = weft_op_list_hash(weft_id_mix(hash, n, sizeof n), &c->denoiser);
    }
    weft_hex_print(hash, text);
}

weft_state_bytes weft_state_bytes_of(int64_t dtype_bytes)
{
    return dtype_bytes >= 4 ? (weft_state_bytes){4, 4, 8} : (weft_state_bytes){2, 4, 12};
}

double weft_state_bytes_on(weft_state_bytes b, int64_t zero, double ranks)
{
    return b.weight / (zero >= 3 ? ranks : 1) + b.gradient / (zero >= 2 ? ranks : 1) +
           b.optimizer / (zero >= 1 ? ranks : 1);
}
