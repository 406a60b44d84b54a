#include "generate/generator/generator_weights.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "exec/store/weights.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/int8_layers.h"
#include "generate/generator/quantized_weights.h"
#include "generate/generator/resident_weights.h"
#include "model/key_mapping.h"

#include <stdio.h>
#include <string.h>

/* A text encoder, a denoiser or the decoder, while its weights are loaded. */
typedef struct loading {
    weft_generator *generator;
    weft_generator_part *part; /* NULL: the decoder */
    const weft_model *model;
    const char *scope, *folder;
    const weft_text_encoder *between; /* text encoders with connectors: these, in */
    const char *between_folder;       /* this folder; NULL: none */
    int expert;                       /* of a denoiser; -1: none */
    bool partial; /* the file has more tensors than the model, as files of text encoders do */
} loading;

static loading loading_encoder(weft_generator *p, int i)
{
    const weft_text_encoder *encoder = &p->model.text.encoder[i];
    return (loading){.generator = p,
                     .part = &p->parts.encoder[i],
                     .model = &encoder->model,
                     .scope = encoder->row->encoder,
                     .folder = p->model.encoder_folder[i],
                     .between = encoder,
                     .between_folder = p->model.connectors_folder[i],
                     .expert = -1,
                     .partial = encoder->tokenizer[0] != 0};
}

static loading loading_denoiser(weft_generator *p, int i)
{
    return (loading){.generator = p,
                     .part = &p->parts.denoiser[i],
                     .model = &p->model.denoiser[i],
                     .scope = i ? weft_generator_scopes[1] : p->model.denoiser->family->scope,
                     .folder = p->model.denoiser_folder[i],
                     .expert = i};
}

static loading loading_decoder(weft_generator *p)
{
    return (loading){.generator = p, .scope = "vae", .folder = p->model.vae_folder, .expert = -1};
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Warns if bf16 rounds the matrices of a folder. */
static weft_status warn_rounding(const weft_generator *p, const char *folder)
{
    int64_t matrices, rounded;
    if (p->options.weights != WEFT_WEIGHTS_AS_STORED || (p->comm && weft_comm_rank(p->comm) != 0))
        return WEFT_OK;
    WEFT_TRY(weft_weights_rounded(folder, &matrices, &rounded));
    if (rounded)
        weft_warning(
            WEFT_MSG_WEIGHTS_ROUNDED, WEFT_AT(.file = folder, WEFT_NUMBER(rounded)),
            "%" PRId64 " of %" PRId64 " matrices are quantized and kept as bf16, which "
            "changes each value by at most %.2g of its size; --weights f32 keeps them exactly, in "
            "twice the memory",
            rounded, matrices, WEFT_BF16_ROUNDING);
    return WEFT_OK;
}

/* Smooths the layers of a denoiser in int8. Closes `file` after an error. */
static weft_status smooth(const loading *l, const char *prefix, weft_tensors *file)
{
    const weft_status_code status =
        weft_quantized_smooth(l->part->own, prefix, weft_generator_int8_choice(l->generator), file);
    if (status != WEFT_OK)
        weft_tensors_close(file);
    return status;
}

/* Loads the connectors of a text encoder. */
static weft_status load_connectors(const loading *l, weft_store *store)
{
    char prefix[64];
    weft_tensors *file;
    if (!l->between_folder)
        return WEFT_OK;
    snprintf(prefix, sizeof prefix, "%s.", l->between->row->connectors);
    WEFT_TRY(weft_key_mapping_open(l->between->connectors.family, l->part->graph, prefix,
                                   l->between_folder, &file));
    return weft_weights_load(store, l->part->own, prefix, file, false);
}

/* Fills the parameters of the part in `store`, and merges the adapters of a denoiser. */
static weft_status_code fill_store(void *user, weft_store *store)
{
    const loading *l = user;
    weft_generator *p = l->generator;
    char prefix[64];
    weft_tensors *file;
    if (!l->part)
        return weft_vae_load(p->decoder.vae, l->folder, store);
    snprintf(prefix, sizeof prefix, "%s.", l->scope);
    WEFT_TRY(weft_key_mapping_open(l->model->family, l->part->graph, prefix, l->folder, &file));
    if (l->expert >= 0)
        WEFT_TRY(smooth(l, prefix, file));
    WEFT_TRY(weft_weights_load(store, l->part->own, prefix, file, l->partial));
    if (l->expert < 0)
        return load_connectors(l, store);
    const weft_generator_options *o = &p->options;
    return weft_adapters_load(o->adapters, o->adapter_count, l->expert, l->model->family,
                              l->part->graph, l->part->own, prefix, store);
}

static weft_status load_own(loading *l)
{
    weft_generator *p = l->generator;
    weft_generator_part *s = l->part;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", l->scope);
    if (p->options.stream && !p->options.adapter_count) { /* adapters write to the weights */
        WEFT_TRY(weft_key_mapping_open(l->model->family, s->graph, prefix, l->folder, &s->file));
        WEFT_TRY(weft_weights_lend(p->parts.store, s->own, prefix, s->file));
    }
    WEFT_TRY(weft_weights_prepare(p->parts.store, s->own));
    return fill_store(l, p->parts.store);
}

/* ---- resident weights ----------------------------------------------------------------------- */

static weft_resident_part resident_part(loading *l)
{
    const weft_generator_options *o = &l->generator->options;
    const bool adapts = l->expert >= 0 && o->adapter_count;
    return (weft_resident_part){
        .name = l->scope,
        .graph = l->part ? l->part->own : weft_vae_decoder_graph(l->generator->decoder.vae),
        .folder = l->folder,
        .adapters = adapts ? o->adapters : NULL,
        .adapter_count = adapts ? o->adapter_count : 0,
        .int8_layers = l->expert >= 0 ? weft_generator_int8_choice(l->generator) : NULL,
        .backend = o->backend,
        .load = fill_store,
        .user = l};
}

/* Lists the parts of this rank, and their places in weft_generator.loans. Streamed weights stay in
 * their files. */
static int list_parts(weft_generator *p, loading list[WEFT_GENERATOR_LOANS])
{
    int count = 0;
    for (int i = 0; i < p->model.text.encoders && weft_generator_has_texts(p); i++)
        list[count++] = loading_encoder(p, i);
    for (int i = 0; i < p->model.experts; i++)
        list[count++] = loading_denoiser(p, i);
    return count;
}

static bool uses_resident(const weft_generator *p)
{
    return p->options.resident && !p->options.stream;
}

weft_status weft_generator_take_weights(weft_generator *p)
{
    loading list[WEFT_GENERATOR_LOANS];
    int count = list_parts(p, list);
    if (!uses_resident(p))
        return WEFT_OK;
    list[count++] = loading_decoder(p);
    for (int i = 0; i < count; i++) {
        const weft_resident_part part = resident_part(&list[i]);
        WEFT_TRY(weft_resident_find(p->options.resident, &part, &p->loans[i]));
    }
    weft_resident_make_room(p->options.resident, p->options.memory - weft_generator_bytes(p));
    return WEFT_OK;
}

/* Takes or loads the weights of list[i]. */
static weft_status borrow(weft_generator *p, loading *l, int i)
{
    const weft_resident_part part = resident_part(l);
    return p->loans[i] ? WEFT_OK : weft_resident_load(p->options.resident, &part, &p->loans[i]);
}

static weft_status alias_part(weft_generator *p, loading *l, int i)
{
    WEFT_TRY(borrow(p, l, i));
    weft_store *from = weft_resident_store(p->loans[i]);
    for (int64_t k = 0; k < weft_store_count(from); k++)
        WEFT_TRY(weft_store_alias(p->parts.store, weft_store_at(from, k)));
    return weft_store_init(p->parts.store, l->part->own, 0); /* states */
}

weft_status weft_generator_load_weights(weft_generator *p)
{
    loading list[WEFT_GENERATOR_LOANS];
    const int count = list_parts(p, list);
    for (int i = 0; i < count; i++) {
        WEFT_TRY(warn_rounding(p, list[i].folder));
        WEFT_TRY(uses_resident(p) ? alias_part(p, &list[i], i) : load_own(&list[i]));
    }
    return WEFT_OK;
}

weft_status weft_generator_bind_decoder(weft_generator *p)
{
    loading list[WEFT_GENERATOR_LOANS], decoder = loading_decoder(p);
    if (!uses_resident(p))
        return weft_vae_bind(p->decoder.vae);
    const int at = list_parts(p, list);
    WEFT_TRY(borrow(p, &decoder, at));
    return weft_vae_bind_to(p->decoder.vae, weft_resident_store(p->loans[at]));
}

void weft_generator_return_weights(weft_generator *p)
{
    for (int i = 0; i < WEFT_GENERATOR_LOANS; i++) {
        weft_resident_return(p->loans[i]);
        p->loans[i] = NULL;
    }
}
