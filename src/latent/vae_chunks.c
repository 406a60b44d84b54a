#include "latent/vae_stream.h"

#include "latent/mosaic.h"
#include "model/dialect.h"
#include "runtime/weights.h"

#include <stdio.h>
#include <string.h>

/* One program of a stream: the beginning or the continuation of one half; or the whole of it. */
typedef struct stage {
    weft_graph *graph;
    weft_program *program;
    int64_t in_frames, out_frames;
} stage;

/* The programs for one size of what goes in: a whole video's, or a tile's. */
typedef struct work {
    int64_t in[3];      /* frames, rows, columns */
    int64_t latents[2]; /* latent frames of FIRST and NEXT; NEXT 0: FIRST takes all of them */
    stage stage[2];     /* FIRST, NEXT */
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
    weft_store *own, *weights; /* own: where they are loaded to; NULL: others' */
    weft_dtype dtype;          /* that the file has and the store keeps */
    half half[2];              /* encoder, decoder */
    /* What is bound has its caches here, and the weights, which are lent */
    weft_store *room;
    const work *bound; /* with tiles: the one that is; NULL: none, or those of weft_vae_bind */
    weft_group *group; /* borrowed; NULL: no other rank */
};

/* ---- building ------------------------------------------------------------------------------- */

static bool is_tiled(const half *h)
{
    return h->tiling.in_space || h->tiling.in_time;
}

/* Channels of what goes in and comes out. */
static int64_t channels(const weft_vae *v, const half *h, bool out)
{
    if (h->decoder != out)
        return v->grid.channels *
               (out && v->raw && weft_model_has(&v->model, WEFT_PORT_LOGVAR) ? 2 : 1);
    const weft_model_size one = {1, 1, 1, 1, 0};
    return weft_model_shape(&v->model, &one, WEFT_PORT_VIDEO).dim[4];
}

/* What comes out of a half, clamped unless somebody else does it behind the blending. */
static weft_value result(const weft_vae *v, const half *h, weft_graph *g, const weft_ports *p)
{
    if (!h->decoder && v->raw && weft_value_ok(p->at[WEFT_PORT_LOGVAR]))
        return weft_concat(g, (weft_value[]){p->at[WEFT_PORT_MEAN], p->at[WEFT_PORT_LOGVAR]}, 2, 4);
    if (!h->decoder)
        return p->at[WEFT_PORT_MEAN];
    const weft_value made = p->at[WEFT_PORT_RECONSTRUCTION];
    return v->raw || is_tiled(h) ? made : weft_clamp(g, made, -1, 1);
}

static weft_status build_stage(const weft_vae *v, const half *h, const work *w, int index, stage *s)
{
    const weft_stream stream = index           ? WEFT_STREAM_NEXT
                               : w->latents[1] ? WEFT_STREAM_FIRST
                                               : WEFT_STREAM_ALONE;
    const weft_call call = {h->decoder ? WEFT_CALL_DECODE : WEFT_CALL_ENCODE, stream};
    weft_ports ports = weft_ports_none();
    weft_graph *g = s->graph = weft_graph_create();
    if (!g)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the VAE's graph");
    weft_graph_store_weights_as(g, v->dtype);
    const int64_t latents = w->latents[index], frames = index ? latents * v->grid.factor[0]
                                                              : weft_grid_frames(&v->grid, latents);
    s->in_frames = h->decoder ? latents : frames;
    s->out_frames = h->decoder ? frames : latents;
    const weft_port port = h->decoder ? WEFT_PORT_LATENTS : WEFT_PORT_VIDEO;
    const weft_model_size size = {1, s->in_frames, w->in[1], w->in[2], 0};
    ports.at[port] = weft_input(g, "in", WEFT_F32, weft_model_shape(&v->model, &size, port));
    weft_model_call(g, &v->model, call, false, &ports);
    weft_output(g, "out", result(v, h, g, &ports));
    WEFT_TRY(weft_graph_check(g));
    return weft_program_compile(g, &(weft_program_options){.profile = v->profile}, &s->program);
}

static work *find_work(const half *h, const int64_t in[3])
{
    for (int64_t i = 0; i < h->count; i++)
        if (!memcmp(h->work[i].in, in, sizeof h->work[i].in))
            return &h->work[i];
    return NULL;
}

/* Pieces as the model's norms and caches want them: what does not divide goes first. */
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
    for (int i = 0; i < 2 && w->latents[i]; i++)
        WEFT_TRY(build_stage(v, h, w, i, &w->stage[i]));
    return WEFT_OK;
}

/* Every size that a tile has. */
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
               : weft_fail(WEFT_E_SHAPE, "the VAE takes %s frames, not %lld",
                           weft_grid_rule(&v->grid, rule), (long long)frames);
}

static weft_status build(weft_vae *v, const weft_vae_options *o)
{
    static const weft_tile whole = {0};
    const int64_t *factor = v->grid.factor;
    if (o->height < 1 || o->width < 1 || o->height % factor[1] || o->width % factor[2])
        return weft_fail(WEFT_E_SHAPE, "%lldx%lld: the VAE takes multiples of %lldx%lld pixels",
                         (long long)o->width, (long long)o->height, (long long)factor[2],
                         (long long)factor[1]);
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
    weft_vae *v = weft_alloc(sizeof *v);
    if (!v)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the VAE");
    v->model = *model;
    v->grid = weft_model_grid(model);
    v->pixels[0] = o->frames;
    v->pixels[1] = o->height;
    v->pixels[2] = o->width;
    v->raw = o->raw;
    v->profile = o->profile;
    v->dtype = WEFT_F32;
    weft_status_code status = WEFT_OK;
    if (folder) {
        v->folder = weft_strdup(folder);
        v->own = v->weights = weft_store_create();
        if (!v->folder || !v->own)
            WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for the VAE"));
        WEFT_GO(weft_weights_dtype(folder, &v->dtype));
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
            for (int s = 0; s < 2; s++) {
                weft_program_free(h->work[k].stage[s].program);
                weft_graph_free(h->work[k].stage[s].graph);
            }
        }
        weft_free(h->work);
    }
    weft_store_free(v->room);
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
        snprintf(text, 64, "%lld tiles of %lldx%lld",
                 (long long)(weft_tiling_count(t, 1) * weft_tiling_count(t, 2)),
                 (long long)(weft_tiling_length(t, 2, 0) * (h->decoder ? v->grid.factor[2] : 1)),
                 (long long)(weft_tiling_length(t, 1, 0) * (h->decoder ? v->grid.factor[1] : 1)));
    return text;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Untiled halves are bound together and stay so; with tiles one size at a time is. */
static bool together(const weft_vae *v)
{
    return !is_tiled(&v->half[0]) && !is_tiled(&v->half[1]);
}

static int programs_of(const work *w, weft_program *programs[2])
{
    int count = 0;
    for (int i = 0; i < 2; i++)
        if (w->stage[i].program)
            programs[count++] = w->stage[i].program;
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

/* What lies in the store beside the weights: params and caches are shared by FIRST and NEXT. */
static int64_t cache_bytes(const work *w)
{
    const stage *last = &w->stage[w->latents[1] ? 1 : 0];
    return weft_program_plan(last->program)->source_bytes - param_bytes(last->graph);
}

/* Frames of the largest tile of time, and of its overlap, that are laid. */
static int64_t mosaic_bytes(const weft_vae *v, const half *h)
{
    const weft_tiling *t = &h->tiling;
    if (!is_tiled(h))
        return 0;
    const int64_t ch = channels(v, h, true),
                  tail = t->in_time ? t->side[0].blend * t->out[1] * t->out[2] * ch * 4 : 0;
    return tail + weft_mosaic_bytes(t, weft_tiling_made(t, 0, weft_tiling_length(t, 0, 0)), ch);
}

int64_t weft_vae_bytes(const weft_vae *v)
{
    weft_program *programs[4];
    int64_t weights = 0, caches = 0, most = 0, laid = 0;
    int count = 0;
    for (int i = 0; i < 2; i++) {
        const half *h = &v->half[i];
        const int64_t mosaic = mosaic_bytes(v, h);
        laid = mosaic > laid ? mosaic : laid;
        weights += h->count ? param_bytes(h->work[0].stage[0].graph) : 0;
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

/* Tiles that are tried where a picture is too large: the family's own, then smaller ones. */
static bool smaller(const weft_vae *v, weft_tile *tile)
{
    const weft_tile_rule *rule = &v->model.family->tile;
    if (!tile->on) {
        *tile = (weft_tile){.on = true};
        return true;
    }
    for (int i = 1; i < 3; i++) {
        const int64_t factor = v->grid.factor[i],
                      size = tile->size[i] ? tile->size[i] : rule->size[i],
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
        for (int i = 1; i < 3; i++) /* references shift such tiles, which nobody wants */
            if (tile.step[i] % v->grid.factor[i]) {
                const int64_t factor = v->grid.factor[i];
                weft_vae_free(v);
                return weft_fail(WEFT_E_ARG,
                                 "tiles that are %lld pixels apart: this autoencoder takes "
                                 "multiples of %lld",
                                 (long long)tile.step[i], (long long)factor);
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
            return weft_fail(
                WEFT_E_MEMORY,
                "%s: the VAE would take %s for %lld frames of %lldx%lld%s%s, and there "
                "are %s for it; take fewer or smaller frames, or smaller tiles",
                folder, weft_format_bytes(whole, first), (long long)o.frames, (long long)o.width,
                (long long)o.height, least, bytes != whole ? weft_format_bytes(bytes, needs) : "",
                weft_format_bytes(limit > 0 ? limit : 0, has));
    }
}

/* Params of the first graph of each half: others have the same. */
static weft_status load_half(const weft_vae *v, const half *h, const char *folder,
                             weft_store *store)
{
    weft_graph *g = h->work[0].stage[0].graph;
    int count;
    const weft_value *param = weft_graph_params(g, &count);
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_store_init_value(store, g, param[i], 0));
    weft_tensors *file;
    WEFT_TRY(weft_dialect_open(v->model.family, g, "", folder, &file));
    return weft_weights_load(store, g, "", file, true);
}

weft_status weft_vae_load(const weft_vae *v, const char *folder, weft_store *store)
{
    for (int i = 0; i < 2; i++)
        if (v->half[i].count)
            WEFT_TRY(load_half(v, &v->half[i], folder, store));
    return WEFT_OK;
}

/* Into the room of what is bound: the weights' memory, and caches of its own. */
static weft_status furnish(weft_vae *v, const work *w)
{
    for (int s = 0; s < 2 && w->stage[s].graph; s++) {
        weft_graph *g = w->stage[s].graph;
        int count;
        const weft_value *param = weft_graph_params(g, &count);
        for (int i = 0; i < count; i++) {
            const char *name = weft_value_get(g, param[i])->name;
            const weft_tensor *t = weft_store_find(v->weights, name);
            if (!t)
                return weft_fail(WEFT_E_NOT_FOUND, "the VAE's weights have no \"%s\"", name);
            if (!weft_store_find(v->room, name))
                WEFT_TRY(weft_store_lend(v->room, t));
        }
        WEFT_TRY(weft_store_init(v->room, g, 0));
    }
    return WEFT_OK;
}

void weft_vae_unbind(weft_vae *v)
{
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < v->half[i].count; k++)
            for (int s = 0; s < 2; s++)
                if (v->half[i].work[k].stage[s].program)
                    weft_program_unbind(v->half[i].work[k].stage[s].program);
    weft_store_free(v->room);
    v->room = NULL;
    v->bound = NULL;
}

/* Programs of `works`, which run one at a time. */
static weft_status bind(weft_vae *v, work *const *works, int count)
{
    weft_program *programs[4];
    int all = 0;
    weft_vae_unbind(v);
    v->room = weft_store_create();
    if (!v->room)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the VAE");
    for (int i = 0; i < count; i++) {
        WEFT_TRY(furnish(v, works[i]));
        all += programs_of(works[i], programs + all);
    }
    return weft_programs_bind(programs, all, v->room, NULL);
}

/* With tiles one size at a time is bound. */
static weft_status turn_to(weft_vae *v, work *w)
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
    /* with tiles those of the first size: what does not fit is said now */
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

/* A video of another length than that of the opening is cut as that one was. */
static weft_status pieces_fit(const weft_vae *v, const half *h, int64_t latents)
{
    const int64_t *pieces = h->work[0].latents, rest = latents - pieces[0];
    if (is_tiled(h))
        return latents == weft_grid_latent_frames(&v->grid, v->pixels[0])
                   ? WEFT_OK
                   : weft_fail(
                         WEFT_E_SHAPE,
                         "the VAE was opened for tiles of %lld frames, not of %lld latent ones",
                         (long long)v->pixels[0], (long long)latents);
    return rest == 0 || (rest > 0 && pieces[1] && rest % pieces[1] == 0)
               ? WEFT_OK
               : weft_fail(
                     WEFT_E_SHAPE,
                     "the VAE was opened for pieces of %lld and %lld latent frames, which %lld "
                     "are not made of",
                     (long long)pieces[0], (long long)pieces[1], (long long)latents);
}

/* What goes into a half, box by box. */
typedef struct feed {
    weft_box_fn *box;
    void *user;
} feed;

/* One that lies in memory: (frames, rows, columns, channels). */
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

/* Where what comes out of a tile's pieces goes. */
typedef weft_status piece_fn(void *user, int64_t first, int64_t count, const float *out);

/* `first` of the whole, of w's size but for the frames, which are `frames`. */
static weft_status run_pieces(work *w, const feed *in, const int64_t first[3], int64_t frames,
                              piece_fn *take, void *user)
{
    for (int64_t t = 0, made = 0; t < frames;) {
        stage *s = &w->stage[t ? 1 : 0];
        const int64_t from[3] = {first[0] + t, first[1], first[2]},
                      size[3] = {s->in_frames, w->in[1], w->in[2]};
        WEFT_TRY(in->box(in->user, from, size, weft_program_input(s->program, "in")->data));
        WEFT_TRY(weft_program_run(s->program));
        WEFT_TRY(take(user, made, s->out_frames, weft_program_output(s->program, "out")->data));
        made += s->out_frames;
        t += s->in_frames;
    }
    return WEFT_OK;
}

typedef struct laying {
    weft_vae *v;
    weft_mosaic *mosaic;
    int64_t row, column, floats; /* floats: of a frame of the tile */
} laying;

static weft_status lay_piece(void *user, int64_t first, int64_t count, const float *out)
{
    const laying *l = user;
    weft_mosaic_lay(l->mosaic, l->row, l->column, first, count, out);
    return WEFT_OK;
}

static weft_status send_piece(void *user, int64_t first, int64_t count, const float *out)
{
    const laying *l = user;
    (void)first;
    return weft_group_send(l->v->group, WEFT_CHANNEL_HANDOFF, 0, out,
                           count * l->floats * (int64_t)sizeof *out);
}

/* The same pieces from the rank that made them, which then may go on to its next tile. */
static weft_status receive_pieces(const weft_vae *v, const work *w, int64_t frames, int owner,
                                  laying *l)
{
    const stage *first = &w->stage[0], *next = &w->stage[w->latents[1] ? 1 : 0];
    const int64_t most =
        first->out_frames > next->out_frames ? first->out_frames : next->out_frames;
    float *piece = weft_alloc(most * l->floats * (int64_t)sizeof *piece);
    weft_status_code status =
        piece ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for a tile of rank %d", owner);
    for (int64_t t = 0, made = 0; t < frames && status == WEFT_OK;) {
        const stage *s = t ? next : first;
        status = weft_group_recv(v->group, WEFT_CHANNEL_HANDOFF, owner, piece,
                                 s->out_frames * l->floats * (int64_t)sizeof *piece);
        if (status == WEFT_OK)
            weft_mosaic_lay(l->mosaic, l->row, l->column, made, s->out_frames, piece);
        made += s->out_frames;
        t += s->in_frames;
    }
    const char taken = 1;
    if (status == WEFT_OK)
        status = weft_group_send(v->group, WEFT_CHANNEL_HANDOFF, owner, &taken, 1);
    weft_free(piece);
    return status;
}

/* Ranks that share the tiles: of a picture that is decoded. */
static int ranks_of(const weft_vae *v, const half *h)
{
    return v->group && h->decoder && h->tiling.in_space ? weft_group_count(v->group) : 1;
}

/* Of several ranks every one makes the tiles whose turn is its own. One that is ahead waits until
 * the first has taken its tile: no more than one of each lies about. */
static weft_status run_tile(weft_vae *v, const half *h, const feed *in, const int64_t at[3],
                            weft_mosaic *mosaic)
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
    laying l = {v, mosaic, at[1], at[2],
                weft_tiling_made(t, 1, size[1]) * weft_tiling_made(t, 2, size[2]) *
                    channels(v, h, true)};
    if (!w)
        return weft_fail(WEFT_E_INTERNAL, "a tile of a size without a program");
    if (owner != self)
        return self ? WEFT_OK : receive_pieces(v, w, size[0], owner, &l);
    WEFT_TRY(turn_to(v, w));
    WEFT_TRY(run_pieces(w, in, first, size[0], self ? send_piece : lay_piece, &l));
    char taken;
    return self ? weft_group_recv(v->group, WEFT_CHANNEL_HANDOFF, 0, &taken, 1) : WEFT_OK;
}

/* FIRST once, NEXT as often as pieces follow. */
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
        return weft_fail(WEFT_E_INTERNAL, "a tile of a size without a program");
    WEFT_TRY(with(user, tile, w->stage[0].program, 1));
    return w->latents[1] ? with(user, tile, w->stage[1].program,
                                (size[0] - w->stage[0].in_frames) / w->stage[1].in_frames)
                         : WEFT_OK;
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
            WEFT_TRY(turn_to(v, w));
        for (int i = 0; i < 2 && w->latents[i]; i++) {
            char name[96];
            snprintf(name, sizeof name, "%s %lld x %lldx%lld%s", h->decoder ? "decoder" : "encoder",
                     (long long)w->stage[i].in_frames, (long long)w->in[1], (long long)w->in[2],
                     i ? ", next" : "");
            WEFT_TRY(with(user, name, w->stage[i].graph, here ? w->stage[i].program : NULL));
        }
    }
    return WEFT_OK;
}

/* What is made of a tile of time, and of the one before it what this one fades over. */
typedef struct film {
    weft_mosaic mosaic;
    float *tail;
    int64_t tail_frames, done; /* done: given out */
} film;

/* Gives out what is final of tile `index` of time, whose frames the mosaic has. */
static weft_status give_out(weft_vae *v, const half *h, film *f, int64_t index,
                            weft_frames_fn *sink, void *user)
{
    const weft_tiling *t = &h->tiling;
    const weft_tile_side *side = &t->side[0];
    const int64_t frame = t->out[1] * t->out[2] * f->mosaic.channels, skip = index ? 1 : 0,
                  made = weft_tiling_made(t, 0, weft_tiling_length(t, 0, index)) - skip;
    float *own = f->mosaic.to + skip * frame;
    int64_t count = made;
    if (made < 1) /* one latent frame, which the tile before has too */
        return WEFT_OK;
    if (t->in_time) {
        const int64_t before = f->tail_frames < made ? f->tail_frames : made;
        for (int64_t k = 0; k < before; k++)
            weft_mosaic_fade(f->tail + (f->tail_frames - before + k) * frame,
                             (float)k / (float)before, frame, own + k * frame);
        f->tail_frames = made < side->blend ? made : side->blend;
        memcpy(f->tail, own + (made - f->tail_frames) * frame,
               (size_t)(f->tail_frames * frame) * sizeof *own);
        const int64_t kept = side->keep + !skip;
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
    film f = {.mosaic = {0}};
    weft_status_code status = WEFT_OK;
    if (!lays && ranks_of(v, h) == 1) /* tiles of time alone: all the first rank's */
        return WEFT_OK;
    if (lays) {
        WEFT_GO(weft_mosaic_create(t, weft_tiling_made(t, 0, weft_tiling_length(t, 0, 0)), ch,
                                   &f.mosaic));
        f.tail =
            t->in_time ? weft_alloc(t->side[0].blend * t->out[1] * t->out[2] * ch * 4 + 4) : NULL;
        if (t->in_time && !f.tail)
            WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for frames that overlap"));
    }
    for (int64_t index = 0; index < weft_tiling_count(t, 0); index++) {
        for (int64_t r = 0; r < weft_tiling_count(t, 1); r++)
            for (int64_t c = 0; c < weft_tiling_count(t, 2); c++)
                WEFT_GO(run_tile(v, h, in, (int64_t[]){index, r, c}, &f.mosaic));
        if (lays)
            WEFT_GO(give_out(v, h, &f, index, sink, user));
    }
out:
    weft_mosaic_free(&f.mosaic);
    weft_free(f.tail);
    return status;
}

/* Of a half that is not tiled: pieces go where they are wanted as they come. */
typedef struct handing {
    weft_frames_fn *sink;
    void *user;
} handing;

static weft_status hand_on(void *user, int64_t first, int64_t count, const float *out)
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
    WEFT_TRY(turn_to(v, h->work));
    return run_pieces(h->work, in, (int64_t[]){0, 0, 0}, frames, hand_on, &to);
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
