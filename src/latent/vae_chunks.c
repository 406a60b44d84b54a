#include "latent/vae_chunks.h"

#include "comm/comm_world.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "graph/builder_helpers.h"
#include "latent/tile_blend.h"
#include "model/key_mapping.h"
#include "transform/numeric/mixed_precision.h"
#include "transform/numeric/tf32.h"

#include <stdio.h>
#include <string.h>

/* Programs of a half: for the complete video or its first temporal chunk, for later chunks, and for
 * the last one of a decoder that lags. */
enum { FIRST, NEXT, LAST, CHUNKS };
/* A program for a temporal chunk of one half. */
typedef struct chunk_program {
    weft_graph *graph;
    weft_program *program;
    int64_t in_frames, out_frames;
} chunk_program;

/* Programs for one input size: that of a complete video, or of a tile. */
typedef struct work {
    int64_t in[3];      /* frames, rows, columns */
    int64_t latents[2]; /* latent frames of FIRST and NEXT; NEXT 0: FIRST takes all */
    chunk_program chunk[CHUNKS];
} work;

typedef struct half {
    bool wanted, decoder;
    weft_tiling tiling;
    work *work;
    int64_t count, capacity;
} half;

struct weft_vae {
    weft_model model;
    weft_grid grid;
    char *folder; /* NULL: none */
    int64_t pixels[3];
    bool raw, profile;
    weft_products products;
    const weft_backend *backend; /* NULL: cpu */
    weft_store *own, *weights;   /* own: store of the loaded weights; NULL: the caller's store */
    weft_dtype dtype;            /* weight type of the file and the store */
    half half[2];                /* encoder, decoder */
    /* store of the bound programs: caches, and aliases of the weights */
    weft_store *bound_store;
    const work *bound; /* first or, with tiles, current bound size; NULL: not bound */
    weft_group *group; /* borrowed; NULL: one rank */
};

/* ---- building ------------------------------------------------------------------------------- */

static bool is_tiled(const half *h)
{
    return h->tiling.in_space || h->tiling.in_time;
}

/* Channels of the input or the output of a half. */
static int64_t channels(const weft_vae *v, const half *h, bool out)
{
    if (h->decoder != out)
        return v->grid.channels *
               (out && v->raw && weft_model_has(&v->model, WEFT_PORT_LOGVAR) ? 2 : 1);
    const weft_model_size one = {1, 1, 1, 1, 0};
    return weft_model_shape(&v->model, &one, WEFT_PORT_VIDEO).dim[4];
}

/* Output of a half. Decoded frames are clamped here, except with `raw` or with tiles, which are
 * clamped after blending. */
static weft_value result(const weft_vae *v, const half *h, weft_graph *g, const weft_ports *p)
{
    if (!h->decoder && v->raw && weft_value_ok(p->at[WEFT_PORT_LOGVAR]))
        return weft_concat(g, (weft_value[]){p->at[WEFT_PORT_MEAN], p->at[WEFT_PORT_LOGVAR]}, 2, 4);
    if (!h->decoder)
        return p->at[WEFT_PORT_MEAN];
    const weft_value made = p->at[WEFT_PORT_RECONSTRUCTION];
    return v->raw || is_tiled(h) ? made : weft_clamp(g, made, -1, 1);
}

static weft_status compute_in(weft_products products, weft_graph **graph)
{
    weft_graph *before = *graph;
    if (products == WEFT_PRODUCTS_F32)
        return WEFT_OK;
    WEFT_TRY(products == WEFT_PRODUCTS_BF16 ? weft_pass_mixed_precision(before, 0, graph)
                                            : weft_pass_tf32(before, graph));
    weft_graph_free(before);
    return WEFT_OK;
}

static weft_status build_chunk(const weft_vae *v, const half *h, const work *w, int index,
                               chunk_program *s)
{
    const weft_stream stream = index == LAST   ? WEFT_STREAM_LAST
                               : index         ? WEFT_STREAM_NEXT
                               : w->latents[1] ? WEFT_STREAM_FIRST
                                               : WEFT_STREAM_ALONE;
    const weft_call call = {h->decoder ? WEFT_CALL_DECODE : WEFT_CALL_ENCODE, stream};
    weft_ports ports = weft_ports_none();
    weft_graph *g = s->graph = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "the VAE's graph"));
    weft_graph_store_weights_as(g, v->dtype);
    const int64_t latents = w->latents[index != FIRST],
                  frames = index && !v->grid.clip ? latents * v->grid.factor[0]
                                                  : weft_grid_frames(&v->grid, latents),
                  lag = stream == WEFT_STREAM_FIRST  ? -v->grid.lag
                        : stream == WEFT_STREAM_LAST ? v->grid.lag
                                                     : 0;
    s->in_frames = h->decoder ? latents : frames;
    s->out_frames = h->decoder ? frames + lag : latents;
    const weft_port port = h->decoder ? WEFT_PORT_LATENTS : WEFT_PORT_VIDEO;
    const weft_model_size size = {1, s->in_frames, w->in[1], w->in[2], 0};
    ports.at[port] = weft_input(g, "in", WEFT_F32, weft_model_shape(&v->model, &size, port));
    weft_model_call(g, &v->model, call, false, &ports);
    weft_output(g, "out", result(v, h, g, &ports));
    WEFT_TRY(weft_graph_check(g));
    WEFT_TRY(compute_in(v->products, &s->graph));
    return weft_program_compile(
        s->graph, &(weft_program_options){.backend = v->backend, .profile = v->profile},
        &s->program);
}

static work *find_work(const half *h, const int64_t in[3])
{
    for (int64_t i = 0; i < h->count; i++)
        if (!memcmp(h->work[i].in, in, sizeof h->work[i].in))
            return &h->work[i];
    return NULL;
}

/* Latent frames of the first and of later temporal chunks, as the model's norms and caches require.
 * The first chunk also takes the remainder. */
static void cut(const weft_grid *grid, int64_t latents, int64_t pieces[2])
{
    const int64_t piece = grid->piece;
    const bool whole = !piece || latents <= piece;
    pieces[0] = whole ? latents : piece + latents % piece;
    pieces[1] = whole || latents == pieces[0] ? 0 : piece;
}

static weft_status add_work(const weft_vae *v, half *h, const int64_t in[3])
{
    if (find_work(h, in))
        return WEFT_OK;
    WEFT_TRY(weft_grow((void **)&h->work, h->count, &h->capacity, sizeof *h->work));
    work *w = &h->work[h->count++];
    *w = (work){.in = {in[0], in[1], in[2]}};
    cut(&v->grid, h->decoder ? in[0] : weft_grid_latent_frames(&v->grid, in[0]), w->latents);
    const int chunks = !w->latents[1] ? NEXT : h->decoder && v->grid.lag ? CHUNKS : LAST;
    for (int i = 0; i < chunks; i++)
        WEFT_TRY(build_chunk(v, h, w, i, &w->chunk[i]));
    return WEFT_OK;
}

/* Compiles programs for every tile size. */
static weft_status add_all(const weft_vae *v, half *h)
{
    const weft_tiling *t = &h->tiling;
    for (int64_t f = 0; f < weft_tiling_count(t, 0); f++)
        for (int64_t r = 0; r < weft_tiling_count(t, 1); r++)
            for (int64_t c = 0; c < weft_tiling_count(t, 2); c++)
                WEFT_TRY(
                    add_work(v, h,
                             (int64_t[]){weft_tiling_length(t, 0, f), weft_tiling_length(t, 1, r),
                                         weft_tiling_length(t, 2, c)}));
    return WEFT_OK;
}

static weft_status takes_frames(const weft_vae *v, int64_t frames)
{
    char rule[32];
    return weft_grid_takes_frames(&v->grid, frames)
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_SHAPE, WEFT_AT(WEFT_NUMBER(frames)),
                            "the VAE takes %s frames, not %" PRId64, weft_grid_rule(&v->grid, rule),
                            frames);
}

static weft_status build(weft_vae *v, const weft_vae_options *o)
{
    static const weft_tile whole = {0};
    const int64_t *factor = v->grid.factor;
    if (o->height < 1 || o->width < 1 || o->height % factor[1] || o->width % factor[2])
        return weft_error(WEFT_MSG_MODEL_SHAPE, WEFT_NOWHERE,
                          "the VAE takes multiples of %" PRId64 "x%" PRId64 " pixels, not %" PRId64
                          "x%" PRId64,
                          factor[2], factor[1], o->width, o->height);
    WEFT_TRY(takes_frames(v, o->frames));
    for (int i = 0; i < 2; i++) {
        half *h = &v->half[i];
        h->decoder = i == 1;
        h->wanted = o->halves & (i ? WEFT_VAE_DECODER : WEFT_VAE_ENCODER);
        if (!h->wanted)
            continue;
        WEFT_TRY(weft_tiling_of(&v->model, o->tile ? o->tile : &whole, h->decoder, v->pixels,
                                &h->tiling));
        WEFT_TRY(add_all(v, h));
    }
    return WEFT_OK;
}

static weft_status create(const weft_model *model, const char *folder, const weft_vae_options *o,
                          weft_vae **vae)
{
    weft_vae *v;
    WEFT_TRY(WEFT_NEW(v, 1, "the VAE"));
    v->model = *model;
    double *timestep = weft_model_decode_timestep(&v->model);
    if (timestep)
        *timestep = o->timestep;
    v->grid = weft_model_grid(model);
    v->pixels[0] = o->frames;
    v->pixels[1] = o->height;
    v->pixels[2] = o->width;
    v->raw = o->raw;
    v->profile = o->profile;
    v->products = o->products;
    v->backend = o->backend;
    v->dtype = WEFT_F32;
    weft_status_code status = WEFT_OK;
    if (folder) {
        v->folder = weft_strdup(folder);
        v->own = v->weights = weft_store_create_for(v->backend);
        WEFT_GO(WEFT_ALLOCATED(v->folder && v->own, "the VAE"));
        WEFT_GO(weft_weights_dtype(folder, &v->dtype));
        v->dtype = v->products == WEFT_PRODUCTS_BF16 ? WEFT_BF16 : v->dtype;
    }
    WEFT_GO(build(v, o));
    *vae = v;
    return WEFT_OK;
out:
    weft_vae_free(v);
    return status;
}

weft_status weft_vae_open(const char *folder, const weft_vae_options *options, weft_vae **vae)
{
    weft_model model;
    WEFT_TRY(weft_model_open_as(folder, WEFT_ROLE_AUTOENCODER, &model));
    return create(&model, folder, options, vae);
}

weft_status weft_vae_open_model(const weft_model *model, const weft_vae_options *options,
                                weft_vae **vae)
{
    return create(model, NULL, options, vae);
}

void weft_vae_free(weft_vae *v)
{
    if (!v)
        return;
    for (int i = 0; i < 2; i++) {
        half *h = &v->half[i];
        for (int64_t k = 0; k < h->count; k++) {
            for (int s = 0; s < CHUNKS; s++) {
                weft_program_free(h->work[k].chunk[s].program);
                weft_graph_free(h->work[k].chunk[s].graph);
            }
        }
        weft_free(h->work);
    }
    weft_store_free(v->bound_store);
    weft_store_free(v->own);
    weft_free(v->folder);
    weft_free(v);
}

const weft_grid *weft_vae_grid(const weft_vae *v)
{
    return &v->grid;
}

const char *weft_vae_tiles(const weft_vae *v, char text[64])
{
    const half *h = &v->half[v->half[1].wanted];
    const weft_tiling *t = &h->tiling;
    text[0] = '\0';
    if (t->in_space)
        snprintf(text, 64, "%" PRId64 " tiles of %" PRId64 "x%" PRId64,
                 weft_tiling_count(t, 1) * weft_tiling_count(t, 2),
                 weft_tiling_length(t, 2, 0) * (h->decoder ? v->grid.factor[2] : 1),
                 weft_tiling_length(t, 1, 0) * (h->decoder ? v->grid.factor[1] : 1));
    return text;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* True if all programs are bound at once: no half is tiled. With tiles, one size is bound at a
 * time. */
static bool together(const weft_vae *v)
{
    return !is_tiled(&v->half[0]) && !is_tiled(&v->half[1]);
}

static int programs_of(const work *w, weft_program *programs[CHUNKS])
{
    int count = 0;
    for (int i = 0; i < CHUNKS; i++)
        if (w->chunk[i].program)
            programs[count++] = w->chunk[i].program;
    return count;
}

static int64_t param_bytes(weft_graph *g)
{
    int count;
    const weft_value *param = weft_graph_params(g, &count);
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        const weft_value_info *info = weft_value_get(g, param[i]);
        bytes += weft_aligned(weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype));
    }
    return bytes;
}

/* The program for the chunk at input frame `at` of `frames`. */
static const chunk_program *chunk_at(const work *w, int64_t at, int64_t frames)
{
    const bool ends = at + w->chunk[NEXT].in_frames >= frames;
    return &w->chunk[!at ? FIRST : ends && w->chunk[LAST].program ? LAST : NEXT];
}

/* Bytes of the store other than weights. All chunks share parameters and caches. */
static int64_t cache_bytes(const work *w)
{
    const chunk_program *last = chunk_at(w, w->latents[1] ? 1 : 0, 0);
    return weft_program_plan(last->program)->source_bytes - param_bytes(last->graph);
}

/* Bytes of the blend buffers: the frames of the longest temporal tile and of its overlap. */
static int64_t blend_bytes(const weft_vae *v, const half *h)
{
    const weft_tiling *t = &h->tiling;
    if (!is_tiled(h))
        return 0;
    const int64_t ch = channels(v, h, true),
                  tail = t->in_time ? t->side[0].blend * t->out[1] * t->out[2] * ch * 4 : 0;
    return tail + weft_tile_blend_bytes(t, weft_tiling_made(t, 0, weft_tiling_length(t, 0, 0)), ch);
}

int64_t weft_vae_bytes(const weft_vae *v)
{
    weft_program *programs[2 * CHUNKS];
    int64_t weights = 0, caches = 0, most = 0, laid = 0;
    int count = 0;
    for (int i = 0; i < 2; i++) {
        const half *h = &v->half[i];
        const int64_t blend = blend_bytes(v, h);
        laid = blend > laid ? blend : laid;
        weights += h->count ? param_bytes(h->work[0].chunk[0].graph) : 0;
        for (int64_t k = 0; k < h->count; k++) {
            if (together(v)) {
                count += programs_of(&h->work[k], programs + count);
                caches += cache_bytes(&h->work[k]);
                continue;
            }
            const int one = programs_of(&h->work[k], programs);
            const int64_t bytes = weft_programs_bytes(programs, one) + cache_bytes(&h->work[k]);
            most = bytes > most ? bytes : most;
        }
    }
    return weights + caches + laid + (together(v) ? weft_programs_bytes(programs, count) : most);
}

/* Sets the next tile size to try if memory is too small: the family's own, then smaller ones. */
static bool smaller(const weft_vae *v, weft_tile *tile)
{
    const weft_tile_rule rule = weft_model_tile_rule(&v->model);
    const bool tiled = tile->on || rule.sums;
    tile->on = true;
    if (!tiled)
        return true;
    for (int i = 1; i < 3; i++) {
        const int64_t factor = v->grid.factor[i],
                      size = tile->size[i] ? tile->size[i] : rule.size[i],
                      half_size = size / 2 / factor * factor;
        if (half_size < 8 * factor)
            return false;
        tile->size[i] = half_size;
    }
    return true;
}

weft_status weft_vae_open_within(const char *folder, const weft_vae_options *options, int64_t limit,
                                 weft_vae **vae, weft_tile *chosen)
{
    weft_tile tile = options->tile ? *options->tile : (weft_tile){0};
    weft_vae_options o = *options;
    int64_t whole = 0;
    for (o.tile = &tile;;) {
        weft_vae *v;
        char needs[32], has[32], first[32];
        WEFT_TRY(weft_vae_open(folder, &o, &v));
        for (int i = 1; i < 3; i++) /* references shift tiles with such a step */
            if (tile.step[i] % v->grid.factor[i]) {
                const int64_t factor = v->grid.factor[i];
                weft_vae_free(v);
                return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(tile.step[i])),
                                  "tiles have a step of %" PRId64
                                  " pixels; this autoencoder needs multiples of %" PRId64,
                                  tile.step[i], factor);
            }
        const int64_t bytes = weft_vae_bytes(v);
        whole = whole ? whole : bytes;
        *chosen = tile;
        if (bytes <= limit) {
            *vae = v;
            return WEFT_OK;
        }
        char least[64] = "", tiles[64];
        if (bytes != whole)
            snprintf(least, sizeof least, ", in the smallest, %.32s, ", weft_vae_tiles(v, tiles));
        const bool more = !options->tile && smaller(v, &tile);
        weft_vae_free(v);
        if (!more)
            return weft_error(WEFT_MSG_MEMORY_NEEDED, WEFT_AT(.file = folder, WEFT_NUMBER(limit)),
                              "the VAE needs %s for %" PRId64 " frames of %" PRId64 "x%" PRId64
                              "%s%s, and %s are "
                              "available. Use fewer or smaller frames, or smaller tiles.",
                              weft_format_bytes(whole, first), o.frames, o.width, o.height, least,
                              bytes != whole ? weft_format_bytes(bytes, needs) : "",
                              weft_format_bytes(limit > 0 ? limit : 0, has));
    }
}

/* Loads the parameters of the half's first graph. The other graphs have the same parameters. */
static weft_status load_half(const weft_vae *v, const half *h, const char *folder,
                             weft_store *store)
{
    weft_graph *g = h->work[0].chunk[0].graph;
    weft_tensors *file;
    WEFT_TRY(weft_weights_reserve(store, g));
    WEFT_TRY(weft_key_mapping_open(v->model.family, g, "", folder, &file));
    return weft_weights_load(store, g, "", file, true);
}

weft_graph *weft_vae_decoder_graph(const weft_vae *v)
{
    const half *h = &v->half[1];
    return h->count ? h->work[0].chunk[0].graph : NULL;
}

weft_status weft_vae_load(const weft_vae *v, const char *folder, weft_store *store)
{
    for (int i = 0; i < 2; i++)
        if (v->half[i].count)
            WEFT_TRY(load_half(v, &v->half[i], folder, store));
    return WEFT_OK;
}

/* Adds aliases of the weights, and the caches of w, to the store of the bound programs. */
static weft_status furnish(weft_vae *v, const work *w)
{
    for (int s = 0; s < CHUNKS; s++) {
        weft_graph *g = w->chunk[s].graph;
        int count;
        if (!g)
            continue;
        const weft_value *param = weft_graph_params(g, &count);
        for (int i = 0; i < count; i++) {
            const char *name = weft_value_get(g, param[i])->name;
            const weft_tensor *t = weft_store_find(v->weights, name);
            if (!t)
                return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.key = name),
                                  "the VAE's weights lack this tensor");
            if (!weft_store_find(v->bound_store, name))
                WEFT_TRY(weft_store_alias(v->bound_store, t));
        }
        WEFT_TRY(weft_store_init(v->bound_store, g, 0));
    }
    return WEFT_OK;
}

void weft_vae_unbind(weft_vae *v)
{
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < v->half[i].count; k++)
            for (int s = 0; s < CHUNKS; s++)
                if (v->half[i].work[k].chunk[s].program)
                    weft_program_unbind(v->half[i].work[k].chunk[s].program);
    weft_store_free(v->bound_store);
    v->bound_store = NULL;
    v->bound = NULL;
}

/* Binds the programs of `works`, which run one at a time. */
static weft_status bind(weft_vae *v, work *const *works, int count)
{
    weft_program *programs[2 * CHUNKS];
    int all = 0;
    weft_vae_unbind(v);
    v->bound_store = weft_store_create_for(v->backend);
    WEFT_TRY(WEFT_ALLOCATED(v->bound_store, "the VAE"));
    for (int i = 0; i < count; i++) {
        WEFT_TRY(furnish(v, works[i]));
        all += programs_of(works[i], programs + all);
    }
    return weft_programs_bind(programs, all, v->bound_store, NULL);
}

/* Binds w. With tiles, one size is bound at a time. */
static weft_status bind_work(weft_vae *v, work *w)
{
    if (together(v) || v->bound == w)
        return WEFT_OK;
    WEFT_TRY(bind(v, &w, 1));
    v->bound = w;
    return WEFT_OK;
}

weft_status weft_vae_bind_to(weft_vae *v, weft_store *store)
{
    work *works[2];
    int count = 0;
    v->weights = store;
    for (int i = 0; i < 2; i++)
        if (v->half[i].count)
            works[count++] = v->half[i].work;
    /* with tiles: binds the first size now, to report a lack of memory early */
    WEFT_TRY(bind(v, works, together(v) ? count : 1));
    v->bound = works[0];
    return WEFT_OK;
}

weft_status weft_vae_bind(weft_vae *v)
{
    WEFT_TRY(weft_vae_load(v, v->folder, v->own));
    return weft_vae_bind_to(v, v->own);
}

void weft_vae_share(weft_vae *v, weft_group *group)
{
    v->group = group;
}

/* ---- running -------------------------------------------------------------------------------- */

/* Checks that a video of another length than at opening divides into the same temporal chunks. */
static weft_status pieces_fit(const weft_vae *v, const half *h, int64_t latents)
{
    const int64_t *pieces = h->work[0].latents, rest = latents - pieces[0];
    if (is_tiled(h))
        return latents == weft_grid_latent_frames(&v->grid, v->pixels[0])
                   ? WEFT_OK
                   : weft_error(WEFT_MSG_MODEL_SHAPE, WEFT_AT(WEFT_NUMBER(latents)),
                                "the VAE was opened for tiles of %" PRId64
                                " frames, not of %" PRId64 " latent frames",
                                v->pixels[0], latents);
    return rest == 0 || (rest > 0 && pieces[1] && rest % pieces[1] == 0)
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_SHAPE, WEFT_AT(WEFT_NUMBER(latents)),
                            "the VAE was opened for pieces of %" PRId64 " and %" PRId64
                            " latent frames, which "
                            "do not add up to %" PRId64,
                            pieces[0], pieces[1], latents);
}

/* Input of a half, box by box. */
typedef struct feed {
    weft_box_fn *box;
    void *user;
} feed;

/* An input in memory: (frames, rows, columns, channels). */
typedef struct array {
    const float *from;
    const int64_t *all;
    int64_t channels;
} array;

static weft_status_code copy_box(void *user, const int64_t first[3], const int64_t size[3],
                                 float *to)
{
    const array *a = user;
    const int64_t row = size[2] * a->channels;
    for (int64_t f = 0; f < size[0]; f++)
        for (int64_t y = 0; y < size[1]; y++, to += row)
            memcpy(to,
                   a->from + (((first[0] + f) * a->all[1] + first[1] + y) * a->all[2] + first[2]) *
                                 a->channels,
                   (size_t)row * sizeof *to);
    return WEFT_OK;
}

/* Receives the output of a tile's temporal chunks. */
typedef weft_status piece_fn(void *user, int64_t first, int64_t count, const float *out);

/* Runs the temporal chunks after `place` of a tile of w's size, at `first` of the complete input.
 * `ready` of its `frames` frames exist. */
static weft_status run_pieces_after(const work *w, const feed *in, const int64_t first[3],
                                    int64_t ready, int64_t frames, weft_vae_place *place,
                                    piece_fn *take, void *user)
{
    for (;;) {
        const chunk_program *s = chunk_at(w, place->latents, frames);
        const int64_t from[3] = {first[0] + place->latents, first[1], first[2]},
                      size[3] = {s->in_frames, w->in[1], w->in[2]}, made = place->frames;
        if (place->latents >= ready || place->latents + s->in_frames > ready)
            return WEFT_OK;
        WEFT_TRY(in->box(in->user, from, size, weft_program_input(s->program, "in")->data));
        WEFT_TRY(weft_program_run(s->program));
        place->latents += s->in_frames;
        place->frames += s->out_frames;
        WEFT_TRY(take(user, made, s->out_frames, weft_program_output(s->program, "out")->data));
    }
}

/* Runs all temporal chunks of a tile. */
static weft_status run_pieces(const work *w, const feed *in, const int64_t first[3], int64_t frames,
                              piece_fn *take, void *user)
{
    weft_vae_place place = {0};
    return run_pieces_after(w, in, first, frames, frames, &place, take, user);
}

typedef struct laying {
    weft_vae *v;
    weft_tile_blend *blend;
    int64_t row, column, floats; /* floats: floats of a tile frame */
} laying;

static weft_status lay_piece(void *user, int64_t first, int64_t count, const float *out)
{
    const laying *l = user;
    weft_tile_blend_add(l->blend, l->row, l->column, first, count, out);
    return WEFT_OK;
}

static weft_status send_piece(void *user, int64_t first, int64_t count, const float *out)
{
    const laying *l = user;
    (void)first;
    return weft_group_send(l->v->group, WEFT_CHANNEL_HANDOFF, 0, out,
                           count * l->floats * (int64_t)sizeof *out);
}

/* Receives the chunks that send_piece sent on rank `owner`, blends them, and sends an
 * acknowledgement. */
static weft_status receive_pieces(const weft_vae *v, const work *w, int64_t frames, int owner,
                                  laying *l)
{
    int64_t most = 0;
    for (int i = 0; i < CHUNKS; i++)
        most = w->chunk[i].out_frames > most ? w->chunk[i].out_frames : most;
    float *piece = weft_calloc(most * l->floats, sizeof *piece);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(piece, "a tile of rank %d", owner));
    for (int64_t t = 0, made = 0; t < frames;) {
        const chunk_program *s = chunk_at(w, t, frames);
        WEFT_GO(weft_group_recv(v->group, WEFT_CHANNEL_HANDOFF, owner, piece,
                                s->out_frames * l->floats * (int64_t)sizeof *piece));
        weft_tile_blend_add(l->blend, l->row, l->column, made, s->out_frames, piece);
        made += s->out_frames;
        t += s->in_frames;
    }
    const char taken = 1;
    WEFT_GO(weft_group_send(v->group, WEFT_CHANNEL_HANDOFF, owner, &taken, 1));
out:
    weft_free(piece);
    return status;
}

/* Number of ranks that share the tiles. Only spatial tiles of a decoder are shared. */
static int ranks_of(const weft_vae *v, const half *h)
{
    return v->group && h->decoder && h->tiling.in_space ? weft_group_count(v->group) : 1;
}

/* Runs a tile on the rank whose turn it is. The rank then waits until the first rank has received
 * the tile, so that at most one tile per rank is in flight. */
static weft_status run_tile(weft_vae *v, const half *h, const feed *in, const int64_t at[3],
                            weft_tile_blend *blend)
{
    const weft_tiling *t = &h->tiling;
    const int ranks = ranks_of(v, h), self = ranks > 1 ? weft_group_index(v->group) : 0;
    const int64_t number =
        (at[0] * weft_tiling_count(t, 1) + at[1]) * weft_tiling_count(t, 2) + at[2];
    const int owner = (int)(number % ranks);
    int64_t first[3], size[3];
    for (int i = 0; i < 3; i++) {
        first[i] = weft_tiling_first(t, i, at[i]);
        size[i] = weft_tiling_length(t, i, at[i]);
    }
    work *w = find_work(h, size);
    laying l = {v, blend, at[1], at[2],
                weft_tiling_made(t, 1, size[1]) * weft_tiling_made(t, 2, size[2]) *
                    channels(v, h, true)};
    if (!w)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "no program was compiled for a tile of %" PRId64 " x %" PRId64
                          " x %" PRId64,
                          size[0], size[1], size[2]);
    if (owner != self)
        return self ? WEFT_OK : receive_pieces(v, w, size[0], owner, &l);
    WEFT_TRY(bind_work(v, w));
    WEFT_TRY(run_pieces(w, in, first, size[0], self ? send_piece : lay_piece, &l));
    char taken;
    return self ? weft_group_recv(v->group, WEFT_CHANNEL_HANDOFF, 0, &taken, 1) : WEFT_OK;
}

/* Reports FIRST and LAST once, and NEXT with the number of other chunks. */
static weft_status visit_tile(const half *h, const int64_t at[3], weft_vae_work_fn *with,
                              void *user)
{
    const weft_tiling *t = &h->tiling;
    int64_t size[3];
    for (int i = 0; i < 3; i++)
        size[i] = weft_tiling_length(t, i, at[i]);
    const work *w = find_work(h, size);
    const int64_t rows = weft_tiling_count(t, 1), columns = weft_tiling_count(t, 2),
                  tile = t->in_space ? (at[0] * rows + at[1]) * columns + at[2] : 0;
    if (!w)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "no program was compiled for a tile of %" PRId64 " x %" PRId64
                          " x %" PRId64,
                          size[0], size[1], size[2]);
    WEFT_TRY(with(user, tile, w->chunk[FIRST].program, 1));
    if (!w->latents[1])
        return WEFT_OK;
    const bool lags = w->chunk[LAST].program != NULL;
    const int64_t later = (size[0] - w->chunk[FIRST].in_frames) / w->chunk[NEXT].in_frames - lags;
    if (later)
        WEFT_TRY(with(user, tile, w->chunk[NEXT].program, later));
    return lags ? with(user, tile, w->chunk[LAST].program, 1) : WEFT_OK;
}

weft_status weft_vae_works(const weft_vae *v, weft_vae_half which, weft_vae_work_fn *with,
                           void *user)
{
    const half *h = &v->half[which == WEFT_VAE_DECODER];
    const weft_tiling *t = &h->tiling;
    for (int64_t f = 0; f < weft_tiling_count(t, 0); f++)
        for (int64_t r = 0; r < weft_tiling_count(t, 1); r++)
            for (int64_t c = 0; c < weft_tiling_count(t, 2); c++)
                WEFT_TRY(visit_tile(h, (int64_t[]){f, r, c}, with, user));
    return WEFT_OK;
}

weft_status weft_vae_programs(weft_vae *v, weft_vae_half which, weft_vae_program_fn *with,
                              void *user)
{
    half *h = &v->half[which == WEFT_VAE_DECODER];
    const bool bound = v->bound != NULL,
               here = is_tiled(h) || !v->group || weft_group_index(v->group) == 0;
    for (int64_t k = 0; k < h->count; k++) {
        work *w = &h->work[k];
        if (bound)
            WEFT_TRY(bind_work(v, w));
        for (int i = 0; i < CHUNKS; i++) {
            static const char *const kind[CHUNKS] = {"", ", next", ", last"};
            char name[96];
            if (!w->chunk[i].program)
                continue;
            snprintf(name, sizeof name, "%s %" PRId64 " x %" PRId64 "x%" PRId64 "%s",
                     h->decoder ? "decoder" : "encoder", w->chunk[i].in_frames, w->in[1], w->in[2],
                     kind[i]);
            WEFT_TRY(with(user, name, w->chunk[i].graph, here ? w->chunk[i].program : NULL));
        }
    }
    return WEFT_OK;
}

/* Output of a temporal tile, and the tail of the preceding tile that this one fades in over. */
typedef struct temporal_blend {
    weft_tile_blend blend;
    float *tail;
    int64_t tail_frames, done; /* done: frames passed to the sink */
} temporal_blend;

/* Passes the final frames of temporal tile `index` to the sink. The blend has the frames of this
 * tile. */
static weft_status give_out(weft_vae *v, const half *h, temporal_blend *f, int64_t index,
                            weft_frames_fn *sink, void *user)
{
    const weft_tiling *t = &h->tiling;
    const weft_tile_side *side = &t->side[0];
    const bool last = index == weft_tiling_count(t, 0) - 1;
    const int64_t frame = t->out[1] * t->out[2] * f->blend.channels, skip = index && !t->sums,
                  made = weft_tiling_made(t, 0, weft_tiling_length(t, 0, index)) - skip;
    float *own = f->blend.to + skip * frame;
    int64_t count = made;
    if (made < 1) /* one latent frame, which the preceding tile has too */
        return WEFT_OK;
    if (t->in_time) {
        const int64_t before = f->tail_frames < made ? f->tail_frames : made;
        for (int64_t k = 0; k < before; k++)
            weft_tile_blend_fade(f->tail + (f->tail_frames - before + k) * frame,
                                 (float)k / (float)before, frame, own + k * frame);
        f->tail_frames = made < side->blend ? made : side->blend;
        memcpy(f->tail, own + (made - f->tail_frames) * frame,
               (size_t)(f->tail_frames * frame) * sizeof *own);
        const int64_t kept = !t->sums ? side->out_step + !skip : last ? made : side->out_step;
        count = count < kept ? count : kept;
        count = count < t->out[0] - f->done ? count : t->out[0] - f->done;
    }
    for (int64_t i = 0; i < count * frame && h->decoder && !v->raw; i++)
        own[i] = own[i] < -1 ? -1 : own[i] > 1 ? 1 : own[i];
    if (count > 0)
        WEFT_TRY(sink(user, f->done, count, own));
    f->done += count;
    return WEFT_OK;
}

static weft_status run_tiles(weft_vae *v, const half *h, const feed *in, weft_frames_fn *sink,
                             void *user)
{
    const weft_tiling *t = &h->tiling;
    const bool lays = !v->group || weft_group_index(v->group) == 0;
    const int64_t ch = channels(v, h, true);
    temporal_blend f = {.blend = {0}};
    weft_status_code status = WEFT_OK;
    if (!lays && ranks_of(v, h) == 1) /* temporal tiles only: all run on the first rank */
        return WEFT_OK;
    if (lays) {
        WEFT_GO(weft_tile_blend_create(t, weft_tiling_made(t, 0, weft_tiling_length(t, 0, 0)), ch,
                                       &f.blend));
        f.tail =
            t->in_time ? weft_alloc(t->side[0].blend * t->out[1] * t->out[2] * ch * 4 + 4) : NULL;
        if (t->in_time && !f.tail)
            WEFT_GO(weft_no_memory("frames that overlap"));
    }
    for (int64_t index = 0; index < weft_tiling_count(t, 0); index++) {
        for (int64_t r = 0; r < weft_tiling_count(t, 1); r++)
            for (int64_t c = 0; c < weft_tiling_count(t, 2); c++)
                WEFT_GO(run_tile(v, h, in, (int64_t[]){index, r, c}, &f.blend));
        if (lays)
            WEFT_GO(give_out(v, h, &f, index, sink, user));
    }
out:
    weft_tile_blend_free(&f.blend);
    weft_free(f.tail);
    return status;
}

/* Sink of a half that is not tiled: chunks are passed on as they arrive. */
typedef struct handing {
    weft_frames_fn *sink;
    void *user;
} handing;

static weft_status forward_frames(void *user, int64_t first, int64_t count, const float *out)
{
    const handing *to = user;
    return to->sink(to->user, first, count, out);
}

static weft_status run_half(weft_vae *v, half *h, const feed *in, int64_t frames,
                            weft_frames_fn *sink, void *user)
{
    handing to = {sink, user};
    if (is_tiled(h))
        return run_tiles(v, h, in, sink, user);
    if (v->group && weft_group_index(v->group) > 0)
        return WEFT_OK;
    WEFT_TRY(bind_work(v, h->work));
    return run_pieces(h->work, in, (int64_t[]){0, 0, 0}, frames, forward_frames, &to);
}

weft_status_code weft_frames_collect(void *user, int64_t first, int64_t count, const float *frames)
{
    const weft_frames_to *c = user;
    memcpy(c->to + first * c->frame, frames, (size_t)(count * c->frame) * sizeof *frames);
    return WEFT_OK;
}

weft_status weft_vae_encode(weft_vae *v, const float *video, int64_t frames, float *latents)
{
    array in = {video, v->half[0].tiling.in, channels(v, &v->half[0], false)};
    return weft_vae_encode_boxes(v, copy_box, &in, frames, latents);
}

weft_status weft_vae_encode_boxes(weft_vae *v, weft_box_fn *box, void *user, int64_t frames,
                                  float *latents)
{
    const feed in = {box, user};
    half *h = &v->half[0];
    weft_frames_to c = {latents, h->tiling.out[1] * h->tiling.out[2] * channels(v, h, true)};
    WEFT_TRY(takes_frames(v, frames));
    WEFT_TRY(pieces_fit(v, h, weft_grid_latent_frames(&v->grid, frames)));
    return run_half(v, h, &in, frames, weft_frames_collect, &c);
}

weft_status weft_vae_decode(weft_vae *v, const float *latents, int64_t latent_frames,
                            weft_frames_fn *sink, void *user)
{
    half *h = &v->half[1];
    array from = {latents, h->tiling.in, channels(v, h, false)};
    const feed in = {copy_box, &from};
    WEFT_TRY(pieces_fit(v, h, latent_frames));
    return run_half(v, h, &in, latent_frames, sink, user);
}

bool weft_vae_reads(const weft_vae *v, int64_t latent_frames, int64_t ready)
{
    return is_tiled(&v->half[1]) ? ready == latent_frames
                                 : !v->group || weft_group_index(v->group) == 0;
}

weft_status weft_vae_decode_next(weft_vae *v, const float *latents, int64_t latent_frames,
                                 int64_t ready, weft_vae_place *place, weft_frames_fn *sink,
                                 void *user)
{
    half *h = &v->half[1];
    array from = {latents, h->tiling.in, channels(v, h, false)};
    const feed in = {copy_box, &from};
    handing to = {sink, user};
    WEFT_TRY(pieces_fit(v, h, latent_frames));
    if (is_tiled(h)) {
        if (ready < latent_frames || place->latents)
            return WEFT_OK;
        place->latents = ready;
        return run_tiles(v, h, &in, sink, user);
    }
    if (v->group && weft_group_index(v->group) > 0)
        return WEFT_OK;
    WEFT_TRY(bind_work(v, h->work));
    return run_pieces_after(h->work, &in, (int64_t[]){0, 0, 0}, ready, latent_frames, place,
                            forward_frames, &to);
}
