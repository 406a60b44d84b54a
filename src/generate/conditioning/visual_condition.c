#include "generate/given.h"

#include "generate/clip_picture.h"
#include "latent/vae_stream.h"
#include "model/dialect.h"
#include "runtime/weights.h"

#include <string.h>

/* An image encoder, alone. */
typedef struct seer {
    weft_model model;
    char *folder;
    weft_clip_processor processor;
    weft_graph *graph;
    weft_program *program;
    weft_store *store;
    int64_t side, images;
    bool bound;
} seer;

typedef struct weft_given_work {
    weft_given_files files;
    weft_grid grid;
    weft_canvas canvas;
    weft_given_frames how;
    bool zeros;
    const char *away;
    weft_vae *image_vae, *video_vae; /* encoders */
    bool bound;                      /* image_vae is */
    int64_t image_frames;            /* that image_vae takes */
    seer seer;                       /* graph NULL: none */
    weft_clip_processor looks;       /* of the picture for text encoders; side 0: there is none */
} work;

/* ---- what goes together ---------------------------------------------------------------------- */

/* The option that asks for given frames, and what does the like with any model. */
static const char *asked_by(const weft_given_files *f)
{
    return f->image ? "--image" : "--windows continue";
}

static const char *instead_of(const weft_given_files *f)
{
    return f->image ? "--video FILE makes any model begin from pictures"
                    : "--windows blend makes longer videos with any model";
}

/* Names the families that can. */
static weft_status refuse_form(const weft_model *model, const weft_given_files *f)
{
    weft_buf families = {0};
    for (int i = 0; weft_families[i]; i++)
        if (weft_families[i]->given)
            weft_buf_printf(&families, "%s%s (%s)", families.len ? ", " : "",
                            weft_families[i]->class_name, weft_families[i]->given_help);
    const weft_status_code status = weft_fail(
        WEFT_E_UNSUPPORTED, "%s: this %s is not told of given frames; models that are: %s. %s",
        asked_by(f), weft_model_class(model), families.data ? families.data : "?", instead_of(f));
    weft_buf_free(&families);
    return status;
}

static weft_status check_image(const work *w, const weft_given_place *place)
{
    const weft_given_files *f = &w->files;
    const weft_given_frames *how = &w->how;
    const char *class_name = weft_model_class(place->denoiser);
    const bool can = how->form != WEFT_GIVEN_NOT && (!how->asks || place->trained);
    const bool must = how->form == WEFT_GIVEN_CHANNELS || how->form == WEFT_GIVEN_CONDITION ||
                      how->form == WEFT_GIVEN_PLACES;
    if (f->last_image && !f->image)
        return weft_fail(WEFT_E_ARG, "--last-image: give the first frame too, as --image");
    if ((f->image || f->carry) && how->form != WEFT_GIVEN_NOT && !can)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: %s was not trained to begin with an image (its model_index.json "
                         "has no \"expand_timesteps\": true, its weft.json no \"condition\"); %s",
                         asked_by(f), place->folder, instead_of(f));
    if ((f->image || f->carry) && !can)
        return refuse_form(place->denoiser, f);
    if (!f->image && must)
        return weft_fail(WEFT_E_ARG,
                         "%s: this %s makes videos that begin with an image: give "
                         "--image FILE",
                         place->folder, class_name);
    if (f->last_image && !how->last)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "--last-image: this %s is told of a first frame alone; Wan's models of "
                         "image to video (WanTransformer3DModel) take a last one too",
                         class_name);
    if (how->last_must && !f->last_image)
        return weft_fail(WEFT_E_ARG,
                         "%s: this model goes from a first frame to a last one: give --last-image "
                         "FILE too",
                         place->folder);
    return WEFT_OK;
}

/* Windows that begin with the end of the one before. */
static weft_status check_carry(const work *w, const weft_given_place *place)
{
    const weft_given_files *f = &w->files;
    const char *class_name = weft_model_class(place->denoiser);
    char rule[32];
    if (f->video)
        return weft_fail(WEFT_E_ARG, "--windows continue: a video that is made over (--video) is "
                                     "longer in blended windows: --windows blend");
    if (f->last_image || w->how.last_must)
        return weft_fail(WEFT_E_ARG,
                         "--windows continue: each window ends with the frame that it is given as "
                         "its last one (--last-image), not the video: leave it out, with a model "
                         "that is told of a first frame alone");
    if (w->how.form == WEFT_GIVEN_CHANNELS && f->carry > 1)
        return weft_fail(WEFT_E_ARG,
                         "--window-overlap %lld: this %s is told of one frame, so windows that "
                         "continue share 1",
                         (long long)f->carry, class_name);
    if (!weft_grid_takes_frames(&w->grid, f->carry))
        return weft_fail(WEFT_E_ARG,
                         "--window-overlap %lld: the frames that a window continues from go "
                         "through the autoencoder, which takes %s",
                         (long long)f->carry, weft_grid_rule(&w->grid, rule));
    if (weft_grid_latent_frames(&w->grid, place->frames) == 1)
        return weft_fail(WEFT_E_ARG,
                         "--window %lld: windows of one latent frame share none; at least %lld",
                         (long long)place->frames, (long long)weft_grid_frames(&w->grid, 2));
    if (f->carry >= place->frames) {
        int64_t most = place->frames - 1;
        while (most > 1 && !weft_grid_takes_frames(&w->grid, most))
            most--;
        return weft_fail(WEFT_E_ARG,
                         "--window-overlap %lld: windows of %lld frames make nothing new; at most "
                         "%lld",
                         (long long)f->carry, (long long)place->frames, (long long)most);
    }
    return WEFT_OK;
}

static bool outpaints(const weft_given_files *f)
{
    return f->outpaint[0] || f->outpaint[1] || f->outpaint[2] || f->outpaint[3];
}

static weft_status check_video(work *w)
{
    const weft_given_files *f = &w->files;
    const int64_t *o = f->outpaint;
    weft_canvas *c = &w->canvas;
    if (!f->video && (f->mask || outpaints(f)))
        return weft_fail(WEFT_E_ARG, "%s: of what? Give the video or picture as --video FILE",
                         f->mask ? "--mask" : "--outpaint");
    if (!outpaints(f))
        return WEFT_OK;
    c->x = o[0];
    c->y = o[1];
    c->w = c->width - o[0] - o[2];
    c->h = c->height - o[1] - o[3];
    for (int i = 0; i < 2; i++) {
        const int64_t inner = i ? c->h : c->w, step = w->grid.factor[2 - i];
        if (inner < step)
            return weft_fail(WEFT_E_ARG,
                             "--outpaint: %lld and %lld of %lld pixels leave %lld %s for the "
                             "video; at least %lld are needed",
                             (long long)o[i], (long long)o[2 + i],
                             (long long)(i ? c->height : c->width), (long long)inner,
                             i ? "rows" : "columns", (long long)step);
    }
    return WEFT_OK;
}

/* ---- the image encoder ----------------------------------------------------------------------- */

static weft_status open_seer(const weft_given_place *place, int images, weft_given *given, seer *s)
{
    const char *class_name = weft_model_class(place->denoiser);
    if (weft_model_open_in(place->folder, WEFT_ROLE_IMAGE_ENCODER, &s->folder, &s->model) !=
        WEFT_OK)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: this %s is told an image by an encoder, which stands in the folder "
                         "image_encoder: %s",
                         place->folder, class_name, weft_error_message());
    weft_model_size size = {.batch = images, .frames = 1, .height = 1, .width = 1, .image = 1};
    const weft_shape pixels = weft_model_shape(&s->model, &size, WEFT_PORT_VIDEO);
    s->side = pixels.dim[2];
    s->images = images;
    WEFT_TRY(weft_clip_processor_read(place->folder, s->side, &s->processor));
    s->graph = weft_graph_create();
    s->store = weft_store_create();
    if (!s->graph || !s->store)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the image encoder");
    weft_dtype dtype;
    WEFT_TRY(weft_weights_dtype(s->folder, &dtype));
    weft_graph_store_weights_as(s->graph, dtype);
    weft_ports ports = weft_ports_none();
    ports.at[WEFT_PORT_VIDEO] = weft_input(s->graph, "in", WEFT_F32, pixels);
    weft_model_call(s->graph, &s->model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false,
                    &ports);
    weft_output(s->graph, "out", ports.at[WEFT_PORT_IMAGE]);
    WEFT_TRY(weft_graph_check(s->graph));
    const weft_shape made = weft_value_get(s->graph, ports.at[WEFT_PORT_IMAGE])->shape;
    size.image = made.dim[1];
    const weft_shape wanted = weft_model_shape(place->denoiser, &size, WEFT_PORT_IMAGE);
    given->image_tokens = images * made.dim[1];
    given->image_width = made.dim[2];
    if (wanted.dim[2] != made.dim[2] || wanted.dim[1] != given->image_tokens)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: %lld tokens of width %lld of %d image%s; this %s takes %lld of %lld",
                         s->folder, (long long)given->image_tokens, (long long)made.dim[2], images,
                         images > 1 ? "s" : "", class_name, (long long)wanted.dim[1],
                         (long long)wanted.dim[2]);
    return weft_program_compile(s->graph, &(weft_program_options){0}, &s->program);
}

static weft_status bind_seer(seer *s)
{
    weft_tensors *file;
    if (s->bound)
        return WEFT_OK;
    WEFT_TRY(weft_store_init(s->store, s->graph, 0));
    WEFT_TRY(weft_dialect_open(s->model.family, s->graph, "", s->folder, &file));
    WEFT_TRY(weft_weights_load(s->store, s->graph, "", file, true));
    WEFT_TRY(weft_programs_bind(&s->program, 1, s->store, NULL));
    s->bound = true;
    return WEFT_OK;
}

/* The pictures of the files, or `frame` in the place of the first. */
static weft_status see(work *w, const float *frame, weft_given *given)
{
    seer *s = &w->seer;
    WEFT_TRY(bind_seer(s));
    float *in = weft_program_input(s->program, "in")->data;
    if (frame)
        WEFT_TRY(weft_clip_picture_frame(&s->processor, &w->canvas, frame, in));
    for (int64_t i = frame ? 1 : 0; i < s->images; i++)
        WEFT_TRY(weft_clip_picture_file(&s->processor, i ? w->files.last_image : w->files.image,
                                        in + i * s->side * s->side * 3));
    WEFT_TRY(weft_program_run(s->program));
    memcpy(given->image, weft_program_output(s->program, "out")->data,
           (size_t)(given->image_tokens * given->image_width) * 4);
    return WEFT_OK;
}

static void seer_free(seer *s)
{
    weft_program_free(s->program);
    weft_graph_free(s->graph);
    weft_store_free(s->store);
    weft_free(s->folder);
}

weft_status weft_given_encoder(const weft_given_place *place, int64_t frames, int64_t height,
                               int64_t width, weft_vae **vae)
{
    const weft_vae_options o = {.halves = WEFT_VAE_ENCODER,
                                .frames = frames,
                                .height = height,
                                .width = width,
                                .tile = place->tile};
    weft_tile chosen;
    return weft_vae_open_within(place->vae_folder, &o, place->memory, vae, &chosen);
}

/* ---- opening --------------------------------------------------------------------------------- */

static weft_status open_image(const weft_given_place *place, weft_given *g, work *w)
{
    const bool channels = w->how.form == WEFT_GIVEN_CHANNELS;
    const int64_t marks = w->how.marks ? w->grid.factor[0] : w->how.mark_behind;
    g->form = w->how.form;
    g->behind = channels ? weft_model_grid(place->denoiser).channels - g->channels : 0;
    if (channels && g->behind != g->channels + marks)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: %lld channels follow the noisy ones; latents of the VAE have %lld, "
                         "and %lld say which frames are given",
                         place->folder, (long long)g->behind, (long long)g->channels,
                         (long long)marks);
    w->image_frames = w->how.grey && !w->zeros ? w->canvas.frames
                      : w->files.carry         ? w->files.carry
                                               : 1;
    if (!weft_grid_takes_frames(&w->grid, 1))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "--image: this autoencoder makes latents of several frames at a time, "
                         "and an image is one; give the frames as --video FILE");
    if (!place->silent && w->files.image)
        WEFT_TRY(weft_picture_tell(w->files.image, &w->canvas));
    if (!place->silent && w->files.last_image)
        WEFT_TRY(weft_picture_tell(w->files.last_image, &w->canvas));
    WEFT_TRY(weft_given_encoder(place, w->image_frames, w->canvas.height, w->canvas.width,
                                &w->image_vae));
    if (place->picture)
        WEFT_TRY(weft_clip_processor_read(place->folder, place->picture, &w->looks));
    g->tint = place->published ? w->how.tint : 0;
    return weft_model_takes(place->denoiser, WEFT_PORT_IMAGE)
               ? open_seer(place, w->files.last_image ? 2 : 1, g, &w->seer)
               : WEFT_OK;
}

weft_status weft_given_open(const weft_given_files *files, const weft_given_place *place,
                            weft_given *given)
{
    weft_given g = {.channels = place->grid->channels};
    work *w = g.work = weft_alloc(sizeof *w);
    if (!w)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    w->files = *files;
    w->grid = *place->grid;
    w->how = weft_model_given(place->denoiser);
    w->zeros = place->zeros;
    w->away = place->away;
    w->canvas = (weft_canvas){.frames = place->frames,
                              .height = place->height,
                              .width = place->width,
                              .fit = (weft_fit)files->fit};
    g.latent[0] = weft_grid_latent_frames(place->grid, place->frames);
    g.latent[1] = place->height / place->grid->factor[1];
    g.latent[2] = place->width / place->grid->factor[2];
    weft_status_code status = check_image(w, place);
    if (status == WEFT_OK)
        status = check_video(w);
    if (status == WEFT_OK && files->carry)
        status = check_carry(w, place);
    if (status == WEFT_OK && (files->image || files->carry)) {
        weft_canvas all = w->canvas; /* the image is of the whole, the video perhaps of a part */
        all.w = 0;
        const weft_canvas part = w->canvas;
        w->canvas = all;
        status = open_image(place, &g, w);
        w->canvas = part;
    }
    if (status == WEFT_OK && files->video) {
        g.from_video = true;
        if (!place->silent)
            status = weft_picture_tell(files->video, &w->canvas);
        if (status == WEFT_OK && files->mask && !place->silent) {
            weft_canvas all = w->canvas; /* the mask is of the whole */
            all.w = 0;
            status = weft_picture_tell(files->mask, &all);
        }
        if (status == WEFT_OK)
            status = weft_given_encoder(place, place->frames, place->height, place->width,
                                        &w->video_vae);
    }
    if (status == WEFT_OK)
        *given = g;
    else
        weft_given_free(&g);
    return status;
}

static int64_t cells_of(const weft_given *g)
{
    return g->latent[0] * g->latent[1] * g->latent[2];
}

static bool stands_clean(const weft_given *g)
{
    return g->form == WEFT_GIVEN_TIMES || g->form == WEFT_GIVEN_FRAMES ||
           g->form == WEFT_GIVEN_CONDITION || g->form == WEFT_GIVEN_PLACES;
}

/* What encodes images; `carry` keeps it. */
static int64_t image_bytes(const weft_given *g)
{
    const work *w = g->work;
    const int64_t frame = w->canvas.height * w->canvas.width;
    const int64_t vae =
        w->image_vae
            ? weft_vae_bytes(w->image_vae) +
                  w->image_frames * (frame * 3 + g->latent[1] * g->latent[2] * g->channels) * 4
            : 0;
    const int64_t sees = w->seer.program
                             ? weft_programs_bytes((weft_program *[]){w->seer.program}, 1) +
                                   weft_program_plan(w->seer.program)->source_bytes +
                                   weft_clip_picture_bytes(&w->seer.processor)
                             : weft_clip_picture_bytes(&w->looks);
    return w->files.carry ? vae + sees : vae > sees ? vae : sees;
}

/* Of `cells`: nothing where nothing is given. */
static int64_t cell_bytes(const weft_given *g)
{
    const work *w = g->work;
    const int64_t known = g->from_video || stands_clean(g) ? g->channels : 0;
    return w && (w->files.image || w->files.video || w->files.carry)
               ? cells_of(g) * ((known + g->behind) * 4 + 1) + g->latent[0]
               : 0;
}

/* Of `picture`. */
static int64_t picture_floats(const weft_given *g)
{
    const int64_t side = g->work ? g->work->looks.crop : 0;
    return 2 * side * side * 3;
}

int64_t weft_given_bytes(const weft_given *g)
{
    const int64_t stays = g->work && g->work->files.carry ? image_bytes(g) : 0;
    return stays + (g->work && g->work->away ? 0 : cell_bytes(g)) +
           g->image_tokens * g->image_width * 4 + picture_floats(g) * 4;
}

int64_t weft_given_mapped(const weft_given *g)
{
    return g->work && g->work->away ? cell_bytes(g) : 0;
}

int64_t weft_given_work_bytes(const weft_given *g)
{
    const work *w = g->work;
    if (!w)
        return 0;
    const int64_t frame = w->canvas.height * w->canvas.width;
    int64_t bytes = w->files.carry ? 0 : image_bytes(g), of_video = 0;
    if (w->video_vae)
        of_video = weft_vae_bytes(w->video_vae) + frame * 4;
    return bytes > of_video ? bytes : of_video;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* x (frames, rows, columns, channels) */
static void normalise(const work *w, const weft_given *g, int64_t frames, bool inverted, float *x)
{
    const int64_t channels = g->channels, area = g->latent[1] * g->latent[2];
    for (int64_t i = 0; i < frames * area * channels; i++) {
        const int64_t at = weft_grid_statistics_at(&w->grid, i / (area * channels)) + i % channels;
        const double deviation = w->grid.deviation[at];
        x[i] = (x[i] - (float)w->grid.mean[at]) / (float)(inverted ? 1 / deviation : deviation);
    }
}

/* Latents of an image's frames, normalised. The encoder is gone afterwards, unless more come. */
static weft_status encode(work *w, const float *video, const weft_given *g, float *latents)
{
    weft_status_code status = w->bound ? WEFT_OK : weft_vae_bind(w->image_vae);
    w->bound = w->files.carry;
    if (status == WEFT_OK)
        status = weft_vae_encode(w->image_vae, video, w->image_frames, latents);
    if (!w->files.carry || status != WEFT_OK) {
        weft_vae_free(w->image_vae);
        w->image_vae = NULL;
    }
    if (status == WEFT_OK)
        normalise(w, g, weft_grid_latent_frames(&w->grid, w->image_frames), w->grid.inverted,
                  latents);
    return status;
}

/* The image, or the frames of the window before; grey behind as far as the encoder is to see that,
 * and the last one at the end. */
static weft_status read_image(work *w, weft_given *g, const float *carried, float **latents)
{
    const int64_t frame = w->canvas.height * w->canvas.width * 3,
                  cells = weft_grid_latent_frames(&w->grid, w->image_frames) * g->latent[1] *
                          g->latent[2];
    weft_canvas one = w->canvas;
    one.frames = 1;
    one.w = 0;
    float *video = weft_alloc(w->image_frames * frame * 4);
    *latents = weft_alloc(cells * g->channels * 4);
    weft_status_code status =
        video && *latents
            ? WEFT_OK
            : weft_fail(WEFT_E_MEMORY, "%s: out of memory for its frames", w->files.image);
    if (status == WEFT_OK && carried)
        memcpy(video, carried, (size_t)(w->files.carry * frame) * sizeof *video);
    else if (status == WEFT_OK)
        status = weft_pictures_read(w->files.image, &one, video);
    if (status == WEFT_OK && w->files.last_image && w->image_frames > 1)
        status =
            weft_pictures_read(w->files.last_image, &one, video + (w->image_frames - 1) * frame);
    if (status == WEFT_OK)
        status = encode(w, video, g, *latents);
    weft_free(video);
    return status;
}

/* The channels behind the noisy ones: marks, one for each frame of a latent one, and latents; or
 * latents and one mark. */
static void fill_follow(const work *w, const weft_given *g, const float *latents)
{
    const int64_t area = g->latent[1] * g->latent[2], marks = g->behind - g->channels,
                  there = weft_grid_latent_frames(&w->grid, w->image_frames);
    for (int64_t i = 0; i < cells_of(g); i++) {
        const int64_t t = i / area;
        float *to = g->follow + i * g->behind, *latent = to + (w->how.mark_behind ? 0 : marks);
        float *mark = w->how.mark_behind ? to + g->channels : to;
        for (int64_t k = 0; k < marks; k++)
            mark[k] = t == 0 || (w->files.last_image && t == g->latent[0] - 1 && k == marks - 1);
        if (t < there)
            memcpy(latent, latents + i * g->channels, (size_t)g->channels * 4);
    }
}

static weft_status use_image(work *w, weft_given *g, const float *carried)
{
    const int64_t area = g->latent[1] * g->latent[2],
                  there = carried ? weft_grid_latent_frames(&w->grid, w->files.carry) : 1;
    float *latents = NULL;
    weft_status_code status = read_image(w, g, carried, &latents);
    if (status == WEFT_OK && g->follow)
        fill_follow(w, g, latents);
    if (status == WEFT_OK && stands_clean(g)) {
        memset(g->clean, 1, (size_t)there);
        memset(g->keep, 1, (size_t)(there * area));
        memcpy(g->known, latents, (size_t)(there * area * g->channels) * 4);
    }
    weft_free(latents);
    const float *last =
        carried ? carried + (w->files.carry - 1) * w->canvas.height * w->canvas.width * 3 : NULL;
    if (status == WEFT_OK && w->seer.graph)
        status = see(w, last, g);
    if (status == WEFT_OK && g->picture)
        status = last ? weft_clip_picture_frame(&w->looks, &w->canvas, last, g->picture)
                      : weft_clip_picture_file(&w->looks, w->files.image, g->picture);
    return status;
}

const float *weft_given_tint(const weft_given *g, int64_t at)
{
    return g->known ? g->known + at * g->channels : g->follow + at * g->behind;
}

/* A cell is kept when no pixel of it is painted; what is outside of the video's rectangle is. */
typedef struct keeping {
    const work *work;
    weft_given *given;
} keeping;

static void keep_cells(void *user, int64_t frame, const uint8_t *painted)
{
    const keeping *k = user;
    const weft_canvas *c = &k->work->canvas;
    const int64_t *f = k->work->grid.factor;
    const int64_t at = k->work->grid.causal ? (frame + f[0] - 1) / f[0] : frame / f[0];
    for (int64_t i = 0; i < c->height * c->width; i++) {
        const int64_t y = i / c->width, x = i % c->width;
        const bool outside = c->w && (x < c->x || y < c->y || x >= c->x + c->w || y >= c->y + c->h);
        if (outside || (painted && painted[i]))
            k->given->keep[(at * k->given->latent[1] + y / f[1]) * k->given->latent[2] + x / f[2]] =
                0;
    }
}

static weft_status use_mask(work *w, weft_given *g)
{
    keeping k = {w, g};
    weft_canvas all = w->canvas;
    all.w = 0;
    memset(g->keep, 1, (size_t)cells_of(g));
    if (w->files.mask)
        WEFT_TRY(weft_mask_read(w->files.mask, &all, keep_cells, &k));
    for (int64_t t = 0; t < w->canvas.frames && !w->files.mask; t++)
        keep_cells(&k, t, NULL);
    return memchr(g->keep, 0, (size_t)cells_of(g))
               ? WEFT_OK
               : weft_fail(WEFT_E_ARG,
                           "%s: no pixel of the mask is white, so nothing would be made; white is "
                           "what is painted",
                           w->files.mask);
}

static weft_status use_video(work *w, weft_given *g)
{
    weft_film *film;
    WEFT_TRY(weft_film_open(w->files.video, &w->canvas, &film));
    weft_status_code status = weft_vae_bind(w->video_vae);
    if (status == WEFT_OK)
        status =
            weft_vae_encode_boxes(w->video_vae, weft_film_box, film, w->canvas.frames, g->known);
    weft_film_close(film);
    weft_vae_free(w->video_vae);
    w->video_vae = NULL;
    if (status == WEFT_OK)
        normalise(w, g, g->latent[0], false, g->known);
    return status == WEFT_OK && (w->files.mask || w->canvas.w) ? use_mask(w, g) : status;
}

/* Nothing is known of the video. */
static void forget(weft_given *g)
{
    const int64_t cells = cells_of(g);
    memset(g->keep, 0, (size_t)cells);
    memset(g->clean, 0, (size_t)g->latent[0]);
    if (g->known)
        memset(g->known, 0, (size_t)(cells * g->channels) * 4);
    if (g->follow)
        memset(g->follow, 0, (size_t)(cells * g->behind) * 4);
}

weft_status weft_given_carry(weft_given *g, const float *frames)
{
    forget(g);
    return frames || g->work->files.image ? use_image(g->work, g, frames) : WEFT_OK;
}

weft_status weft_given_read(weft_given *g)
{
    work *w = g->work;
    const int64_t cells = cells_of(g);
    if (!w->files.image && !w->files.video && !w->files.carry)
        return WEFT_OK;
    const bool known = g->from_video || stands_clean(g);
    WEFT_TRY(weft_scratch_reserve(w->away, cell_bytes(g),
                                  "Write --out to another disk, or make fewer frames", &g->cells));
    float *at = g->cells.data;
    g->known = known ? at : NULL;
    at += known ? cells * g->channels : 0;
    g->follow = g->behind ? at : NULL;
    at += cells * g->behind;
    g->keep = (uint8_t *)at;
    g->clean = g->keep + cells;
    g->image = g->image_tokens ? weft_alloc(g->image_tokens * g->image_width * 4) : NULL;
    g->picture = picture_floats(g) ? weft_alloc(picture_floats(g) * 4) : NULL;
    if ((g->image_tokens && !g->image) || (picture_floats(g) && !g->picture))
        return weft_fail(WEFT_E_MEMORY, "out of memory for what is given");
    if (g->picture)
        weft_clip_picture_black(&w->looks, g->picture + picture_floats(g) / 2);
    forget(g);
    if (w->files.video)
        WEFT_TRY(use_video(w, g));
    if (w->files.carry)
        return WEFT_OK; /* each walk says what it begins with */
    if (w->files.image)
        WEFT_TRY(use_image(w, g, NULL));
    seer_free(&w->seer);
    w->seer = (seer){0};
    return WEFT_OK;
}

void weft_given_free(weft_given *g)
{
    if (g->work) {
        weft_vae_free(g->work->image_vae);
        weft_vae_free(g->work->video_vae);
        seer_free(&g->work->seer);
        weft_free(g->work);
    }
    weft_scratch_release(&g->cells);
    weft_free(g->image);
    weft_free(g->picture);
    *g = (weft_given){0};
}
