#include "generate/generator/generator_decoder.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/generator_weights.h"

/* Frames that the VAE decodes, with those before the video. */
static int64_t decoded_frames(const weft_generator *p)
{
    return p->model.grid.section ? weft_grid_frames(&p->model.grid, p->model.grid.section)
                                 : p->options.frames + p->shape.lead * p->model.grid.factor[0];
}

weft_status weft_generator_decoder_open(weft_generator *p, int64_t without_vae)
{
    const weft_vae_options o = {.backend = p->options.backend,
                                .halves = WEFT_VAE_DECODER,
                                .frames = decoded_frames(p),
                                .height = p->options.height,
                                .width = p->options.width,
                                .tile = p->options.tile,
                                .profile = p->options.profile,
                                .products = p->options.vae_products,
                                .timestep = p->options.decode_time.timestep};
    p->decoder.tile_set = o.tile != NULL;
    const int64_t limit = p->options.memory;
    char needs[32], has[32];
    weft_tile chosen;
    if (without_vae >= limit)
        return weft_error(WEFT_MSG_MEMORY_NEEDED,
                          WEFT_AT(.file = p->model.folder, WEFT_NUMBER(limit)),
                          "transformer and text encoders need %s per rank, and %s are available. "
                          "Use fewer or smaller frames, --weights bf16 or stream, more ranks with "
                          "--parallel fsdp, or set the limit with --memory-limit.",
                          weft_format_bytes(without_vae, needs), weft_format_bytes(limit, has));
    WEFT_TRY(weft_decode_time_check(&p->options.decode_time, p->model.vae_folder));
    if (p->shape.sound_steps)
        WEFT_TRY(weft_sound_decoder_open(&p->model.sound, p->options.backend, p->shape.sound_steps,
                                         &p->decoder.sound));
    without_vae += weft_sound_decoder_bytes(p->decoder.sound);
    return weft_vae_open_within(p->model.vae_folder, &o, limit - without_vae, &p->decoder.vae,
                                &chosen);
}

bool weft_generator_decoder_may_shrink(const weft_generator *p)
{
    return !p->decoder.tile_set && (!p->comm || weft_comm_ranks(p->comm) == 1);
}

weft_status weft_generator_decoder_shrink(weft_generator *p)
{
    const weft_vae_options o = {.backend = p->options.backend,
                                .halves = WEFT_VAE_DECODER,
                                .frames = decoded_frames(p),
                                .height = p->options.height,
                                .width = p->options.width,
                                .products = p->options.vae_products,
                                .timestep = p->options.decode_time.timestep};
    const int64_t limit = weft_vae_bytes(p->decoder.vae) - 1;
    weft_group *group = NULL;
    weft_tile chosen;
    char tiles[64];
    weft_warn_error(WEFT_MSG_ESTIMATE_MISSING, "decoding again with less memory");
    weft_vae_free(p->decoder.vae);
    p->decoder.vae = NULL;
    WEFT_TRY(weft_vae_open_within(p->model.vae_folder, &o, limit, &p->decoder.vae, &chosen));
    weft_notice(WEFT_MSG_JOB_REPORT, WEFT_NOWHERE, "decoding in %s",
                weft_vae_tiles(p->decoder.vae, tiles));
    if (p->comm)
        WEFT_TRY(weft_comm_world(p->comm, &group));
    weft_vae_share(p->decoder.vae, group);
    return weft_generator_bind_decoder(p);
}

void weft_generator_decoder_close(weft_generator_decoder *d)
{
    weft_vae_free(d->vae);
    weft_vae_free(d->preview);
    weft_sound_decoder_free(d->sound);
    weft_free(d->seen);
    *d = (weft_generator_decoder){0};
}
