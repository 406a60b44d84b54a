#include "generate/conditioning/visual_condition.h"

#include "base/fs.h"
#include "exec/execute.h"
#include "generate/conditioning/character.h"
#include "generate/conditioning/clip_preprocess.h"
#include "generate/conditioning/control_check.h"
#include "generate/conditioning/control_video.h"
#include "generate/conditioning/image_encoder.h"
#include "generate/conditioning/visual_refusal.h"
#include "latent/vae_chunks.h"
#include "model/registry.h"

#include <string.h>

typedef struct weft_visual_condition_workspace {
    weft_visual_inputs files;
    weft_grid grid;
    weft_canvas canvas;
    weft_frame_condition how;
    bool zeros;
    bool control_channels; /* the latents of the control are channels after the noisy ones */
    const char *offload_dir;
    weft_vae *image_vae, *video_vae;   /* encoders */
    weft_vae *reference_vae;           /* encoder of a reference image */
    bool bound;                        /* image_vae is bound */
    weft_refinement refinement;        /* of files.coarse */
    int64_t image_frames;              /* frames that image_vae encodes */
    weft_character *character;         /* NULL: another form */
    weft_image_encoder seer;           /* graph NULL: none */
    weft_visual_condition_setup setup; /* for images to edit with sizes of their own */
    weft_clip_processor looks;         /* preprocessing of the text encoder's image; side 0: none */
} work;

/* ---- valid combinations of inputs ------------------------------------------------------------ */

/* Frames of a refined video, before its given frames, that repeat the first one. */
static int64_t front_of(const work *w)
{
    return w->refinement.given ? w->refinement.front : 0;
}

/* Frames at the beginning of the video that are not from an image. */
static int64_t given_frames(const weft_visual_inputs *f)
{
    return f->prefix_frames ? f->prefix_frames : f->before ? f->before_frames : 0;
}

bool weft_visual_condition_needs_image(const weft_frame_condition *how)
{
    const bool may_lack =
        how->form == WEFT_FRAME_CONDITION_CHANNELS || how->form == WEFT_FRAME_CONDITION_PORT;
    return (may_lack && !how->also_none) || how->form == WEFT_FRAME_CONDITION_IMPLICIT ||
           (how->form == WEFT_FRAME_CONDITION_HISTORY && !how->precedes) ||
           how->form == WEFT_FRAME_CONDITION_CHARACTER;
}

static weft_status check_image(const work *w, const weft_visual_condition_setup *setup)
{
    const weft_visual_inputs *f = &w->files;
    const weft_frame_condition *how = &w->how;
    const char *class_name = weft_model_class(setup->denoiser);
    const bool can = how->form != WEFT_FRAME_CONDITION_NONE && (!how->asks || setup->trained);
    const bool must = weft_visual_condition_needs_image(how), has = f->image || given_frames(f);
    if (f->last_image && !f->image)
        return weft_error(WEFT_MSG_VIDEO_INPUT,
                          WEFT_AT(.key = "--last-image", .value = f->last_image),
                          "a last frame needs a first one. Give it with --image FILE.");
    if (has && !can && how->form == WEFT_FRAME_CONDITION_EDITED)
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
            WEFT_AT(.file = setup->folder, .key = weft_visual_option(f)),
            "the model edits no images: its model_index.json has another pipeline than %s. %s.",
            setup->denoiser->family->edit_pipeline->class_name, weft_visual_alternative(f));
    if (!f->image && setup->edit)
        return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = setup->folder, .key = "--image"),
                          "this model edits images. Give --image FILE.");
    if (has && how->form != WEFT_FRAME_CONDITION_NONE && !can)
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
            WEFT_AT(.file = setup->folder, .key = weft_visual_option(f)),
            "the model was not trained to start from an image: its model_index.json has no "
            "\"expand_timesteps\": true, and its weft.json no \"condition\". %s.",
            weft_visual_alternative(f));
    if (has && !can)
        return weft_visual_refuse(setup->denoiser, f);
    if (!f->image && !f->before && must)
        return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = setup->folder, .key = "--image"),
                          "this %s generates videos that start from an image. Give --image FILE.",
                          class_name);
    if (how->form == WEFT_FRAME_CONDITION_EDITED && f->image && f->video)
        return weft_error(
            WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--video", .value = f->video),
            "this %s begins with noise where --image is the image to edit. Omit --video or "
            "--image.",
            class_name);
    if (f->last_image && how->form == WEFT_FRAME_CONDITION_EDITED)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--last-image", .value = f->last_image),
                          "this %s edits the image of --image, and its result has no last frame. "
                          "Omit --last-image.",
                          class_name);
    if (f->more_images && how->form != WEFT_FRAME_CONDITION_EDITED)
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = "--image", .value = f->more_image[0]),
            "this %s takes one image. Flux 2 and Qwen-Image-Edit Plus edit several. Give --image "
            "once.",
            class_name);
    if (f->last_image && !how->last)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--last-image", .value = f->last_image),
                          "this %s takes a first frame only. The image-to-video models of Wan "
                          "(WanTransformer3DModel) take a last frame, too.",
                          class_name);
    if (how->last_must && !f->last_image)
        return weft_error(
            WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = setup->folder, .key = "--last-image"),
            "this model generates from a first frame to a last one. Give --last-image FILE, too.");
    return WEFT_OK;
}

/* Checks windows that begin with the last frames of the previous window. */
static weft_status check_prefix(const work *w, const weft_visual_condition_setup *setup)
{
    const weft_visual_inputs *f = &w->files;
    const char *class_name = weft_model_class(setup->denoiser);
    char rule[32];
    if (f->video)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--window-mode", .value = "continue"),
                          "--video cannot be combined with windows that continue each other. Use "
                          "--window-mode blend.");
    if (f->last_image || w->how.last_must)
        return weft_error(
            WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--window-mode", .value = "continue"),
            "each window would end with the last frame of --last-image, not only the video. Omit "
            "--last-image, and use a model with a first frame only.");
    if (w->how.form == WEFT_FRAME_CONDITION_CHANNELS && f->prefix_frames > 1)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--window-overlap", WEFT_NUMBER(f->prefix_frames)),
                          "this %s takes one given frame, so windows that continue each other "
                          "share 1 frame, not %" PRId64,
                          class_name, f->prefix_frames);
    if (!weft_grid_takes_frames(&w->grid, f->prefix_frames))
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          WEFT_AT(.key = "--window-overlap", WEFT_NUMBER(f->prefix_frames)),
                          "the autoencoder encodes the %" PRId64
                          " shared frames of two windows, but takes %s frames",
                          f->prefix_frames, weft_grid_rule(&w->grid, rule));
    if (weft_grid_latent_frames(&w->grid, setup->frames) == 1)
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          WEFT_AT(.key = "--window", WEFT_NUMBER(setup->frames)),
                          "%" PRId64 " is one latent frame, and windows of one latent frame cannot "
                          "overlap; use at least %" PRId64,
                          setup->frames, weft_grid_frames(&w->grid, 2));
    if (f->prefix_frames >= setup->frames) {
        int64_t most = setup->frames - 1;
        while (most > 1 && !weft_grid_takes_frames(&w->grid, most))
            most--;
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          WEFT_AT(.key = "--window-overlap", WEFT_NUMBER(f->prefix_frames)),
                          "windows of %" PRId64 " frames that share %" PRId64
                          " add no frame; use at most %" PRId64,
                          setup->frames, f->prefix_frames, most);
    }
    return WEFT_OK;
}

/* Checks a video that begins with the last frames of another one. */
static weft_status check_given(const work *w, const weft_visual_condition_setup *setup)
{
    const weft_visual_inputs *f = &w->files;
    const int64_t given = f->before_frames;
    char rule[32];
    if (w->how.form == WEFT_FRAME_CONDITION_HISTORY || f->image || w->how.last_must)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--given-frames", WEFT_NUMBER(given)),
                          "%s Omit the option.",
                          f->image ? "the video would begin with --image, too."
                                   : "this model generates from images only.");
    if (w->how.form == WEFT_FRAME_CONDITION_CHANNELS && given > 1)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--given-frames", WEFT_NUMBER(given)),
                          "this %s takes one given frame, not %" PRId64 "; use 1",
                          weft_model_class(setup->denoiser), given);
    if (f->coarse.file) /* further frames complete the latent frames */
        return WEFT_OK;
    if (!weft_grid_takes_frames(&w->grid, given))
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--given-frames", WEFT_NUMBER(given)),
                          "the autoencoder encodes the %" PRId64 " frames, but takes %s frames",
                          given, weft_grid_rule(&w->grid, rule));
    return given < setup->frames
               ? WEFT_OK
               : weft_error(WEFT_MSG_VIDEO_SIZE,
                            WEFT_AT(.key = "--given-frames", WEFT_NUMBER(given)),
                            "all %" PRId64 " frames of the video would be given; use fewer",
                            setup->frames);
}

static bool outpaints(const weft_visual_inputs *f)
{
    return f->outpaint[0] || f->outpaint[1] || f->outpaint[2] || f->outpaint[3];
}

static weft_status check_video(work *w)
{
    const weft_visual_inputs *f = &w->files;
    const int64_t *o = f->outpaint;
    weft_canvas *c = &w->canvas;
    if (!f->video && ((f->mask && !f->control) || outpaints(f)))
        return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.key = f->mask ? "--mask" : "--outpaint"),
                          "the option needs a source. Give a video or an image with --video FILE.");
    if (!outpaints(f))
        return WEFT_OK;
    c->x = o[0];
    c->y = o[1];
    c->w = c->width - o[0] - o[2];
    c->h = c->height - o[1] - o[3];
    for (int i = 0; i < 2; i++) {
        const int64_t inner = i ? c->h : c->w, step = w->grid.factor[2 - i];
        if (inner < step)
            return weft_error(
                WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--outpaint", WEFT_NUMBER(inner)),
                "borders of %" PRId64 " and %" PRId64 " pixels leave %" PRId64 " %s of %" PRId64
                " for the video; at least "
                "%" PRId64 " are needed",
                o[i], o[2 + i], inner, i ? "rows" : "columns", i ? c->height : c->width, step);
    }
    return WEFT_OK;
}

/* ---- the image encoder ----------------------------------------------------------------------- */

/* Encodes the image files, or `frame` in place of the first one. */
static weft_status see(work *w, const float *frame, weft_visual_condition *visual)
{
    weft_image_encoder *s = &w->seer;
    WEFT_TRY(weft_image_encoder_bind(s));
    float *in = weft_program_input(s->program, "in")->data;
    if (frame)
        WEFT_TRY(weft_clip_picture_frame(&s->processor, &w->canvas, frame, in));
    for (int64_t i = frame ? 1 : 0; i < s->images; i++) {
        const char *file = i ? w->files.last_image : w->files.image;
        float *to = in + i * s->side * s->side * 3;
        WEFT_TRY(w->how.resized ? weft_clip_picture_resized(&s->processor, &w->canvas, file, to)
                                : weft_clip_picture_file(&s->processor, file, to));
    }
    WEFT_TRY(weft_program_run(s->program));
    memcpy(visual->image, weft_program_output(s->program, "out")->data,
           (size_t)(visual->image_tokens * visual->image_width) * 4);
    return WEFT_OK;
}

weft_status weft_visual_condition_encoder(const weft_visual_condition_setup *setup, int64_t frames,
                                          int64_t height, int64_t width, weft_vae **vae)
{
    const weft_vae_options o = {.backend = setup->backend,
                                .halves = WEFT_VAE_ENCODER,
                                .frames = frames,
                                .height = height,
                                .width = width,
                                .products = setup->vae_products,
                                .tile = setup->tile};
    weft_tile chosen;
    return weft_vae_open_within(setup->vae_folder, &o, setup->memory, vae, &chosen);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The image encoder sees the last image, too. */
static bool shows_last(const work *w)
{
    return w->files.last_image && w->how.form != WEFT_FRAME_CONDITION_HISTORY;
}

/* Some models see given frames in whole blocks. */
static weft_status check_whole(const work *w, const weft_family *family)
{
    const int64_t block = w->how.whole, frames = weft_grid_latent_frames(&w->grid, w->image_frames),
                  next = block ? (frames + block - 1) / block * block : 0;
    if (block <= 1 || frames == next)
        return WEFT_OK;
    return weft_error(
        WEFT_MSG_VIDEO_SIZE,
        WEFT_AT(.key = w->files.image ? "--image" : "--given-frames", WEFT_NUMBER(w->image_frames)),
        "given frames have whole blocks of %" PRId64 " latent frames, as \"%s\" of the model's "
        "config needs. Give a video with --video FILE --given-frames %" PRId64
        ", or use --block-sparse off.",
        block, family->block_sparse, weft_grid_frames(&w->grid, next));
}

static weft_status open_image(const weft_visual_condition_setup *setup, weft_visual_condition *g,
                              work *w)
{
    const bool channels = w->how.form == WEFT_FRAME_CONDITION_CHANNELS;
    const int64_t marks = w->how.marks ? w->grid.factor[0] : w->how.mark_after;
    g->form = w->how.form;
    g->edited = g->form == WEFT_FRAME_CONDITION_EDITED ? 1 + w->files.more_images : 0;
    g->extra_channel_count = channels ? weft_model_grid(setup->denoiser).channels - g->channels : 0;
    if (channels && g->extra_channel_count != g->channels + marks)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = setup->folder),
                          "the transformer has %" PRId64
                          " channels after the noisy ones. The latents of "
                          "the VAE have %" PRId64 ", and the marks of given frames %" PRId64 ".",
                          g->extra_channel_count, g->channels, marks);
    w->image_frames = w->how.grey && !w->zeros  ? w->canvas.frames
                      : given_frames(&w->files) ? given_frames(&w->files)
                                                : 1;
    w->image_frames += front_of(w);
    WEFT_TRY(check_whole(w, setup->denoiser->family));
    g->given_time = w->how.given_time;
    g->keeps_noise = w->how.keeps_noise;
    if (!weft_grid_takes_frames(&w->grid, 1))
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--image", .value = w->files.image),
                          "this autoencoder encodes several frames at a time, not one image. Give "
                          "the frames with --video FILE.");
    if (!setup->silent && w->files.image)
        WEFT_TRY(weft_picture_warn_resized(w->files.image, &w->canvas));
    for (int i = 0; !setup->silent && i < w->files.more_images; i++)
        WEFT_TRY(weft_picture_warn_resized(w->files.more_image[i], &w->canvas));
    if (!setup->silent && w->files.last_image)
        WEFT_TRY(weft_picture_warn_resized(w->files.last_image, &w->canvas));
    if (!setup->silent && w->files.before)
        WEFT_TRY(weft_picture_warn_resized(w->files.before, &w->canvas));
    WEFT_TRY(weft_visual_condition_encoder(setup, w->image_frames, w->canvas.height,
                                           w->canvas.width, &w->image_vae));
    if (setup->vision_side)
        WEFT_TRY(weft_clip_picture_processor(setup->folder, setup->vision_side, &w->looks));
    g->image_noise_share = setup->published ? w->how.image_noise_share : 0;
    g->settled = setup->published && !w->files.prefix_frames ? w->how.settled : 0;
    return weft_model_takes(setup->denoiser, WEFT_PORT_IMAGE) && weft_image_encoder_there(setup)
               ? weft_image_encoder_open(setup, shows_last(w) ? 2 : 1, g, &w->seer)
               : WEFT_OK;
}

/* The control of the video, without frames if --mask belongs to the video. */
static weft_control_video control_of(const work *w)
{
    weft_control_video c = {.video = w->files.control,
                            .reference = w->files.reference,
                            .references = w->files.references,
                            .canvas = w->canvas,
                            .grid = w->grid};
    c.mask = c.video ? w->files.mask : NULL;
    c.canvas.w = 0;
    return c;
}

/* Opens the encoders of the video or of the control, with its reference images. */
static weft_status open_video(const weft_visual_condition_setup *setup, work *w)
{
    const weft_visual_inputs *f = &w->files;
    const char *video = f->video ? f->video : f->control;
    weft_canvas all = w->canvas; /* the mask covers the whole canvas */
    all.w = 0;
    if (f->coarse.file)
        video = f->coarse.file;
    if (video && !setup->silent)
        WEFT_TRY(weft_picture_warn_resized(video, &w->canvas));
    if (f->mask && !setup->silent)
        WEFT_TRY(weft_picture_warn_resized(f->mask, &all));
    if (f->references) {
        const weft_control_video control = control_of(w);
        WEFT_TRY(weft_control_check_references(&control));
        WEFT_TRY(weft_visual_condition_encoder(setup, 1, setup->height, setup->width,
                                               &w->reference_vae));
    }
    return weft_visual_condition_encoder(setup, w->canvas.frames, setup->height, setup->width,
                                         &w->video_vae);
}

/* Opens the encoder of the frames before a video whose frames have levels of their own. */
static weft_status open_before(const weft_visual_condition_setup *setup, work *w)
{
    w->image_frames = w->files.before_frames;
    if (!setup->silent)
        WEFT_TRY(weft_picture_warn_resized(w->files.before, &w->canvas));
    return weft_visual_condition_encoder(setup, w->image_frames, w->canvas.height, w->canvas.width,
                                         &w->image_vae);
}

static weft_status open_edited(const weft_visual_condition_setup *setup, weft_visual_condition *g,
                               work *w)
{
    w->setup = *setup;
    w->setup.grid = &w->grid;
    g->form = WEFT_FRAME_CONDITION_EDITED;
    WEFT_TRY(weft_edit_images_open(&w->setup, &w->files, &g->edit));
    g->edited = weft_image_tokens_count(&g->edit.tokens);
    return WEFT_OK;
}

/* Opens the encoder of an image, which fills the canvas; the video may not. */
static weft_status open_whole_image(const weft_visual_condition_setup *setup,
                                    weft_visual_condition *g, work *w)
{
    const weft_canvas part = w->canvas;
    w->canvas.w = 0;
    const weft_status_code status = open_image(setup, g, w);
    w->canvas = part;
    return status;
}

static weft_status open_character(const weft_visual_inputs *files,
                                  const weft_visual_condition_setup *setup,
                                  weft_visual_condition *g, work *w)
{
    if (files->before)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--given-frames", WEFT_NUMBER(files->before_frames)),
                          "%s begins with the image of the character. Omit the option.",
                          weft_model_class(setup->denoiser));
    WEFT_TRY(weft_character_open(files, setup, g, &w->character));
    return weft_model_takes(setup->denoiser, WEFT_PORT_IMAGE)
               ? weft_image_encoder_open(setup, 1, g, &w->seer)
               : WEFT_OK;
}

static weft_status refuse_face(const weft_visual_condition_setup *setup, const char *face)
{
    return weft_error(
        WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = "--face", .value = face),
        "%s takes no video of a face. WanAnimateTransformer3DModel does. Omit --face.",
        weft_model_class(setup->denoiser));
}

weft_status weft_visual_condition_open(const weft_visual_inputs *files,
                                       const weft_visual_condition_setup *setup,
                                       weft_visual_condition *visual)
{
    weft_visual_condition g = {.channels = setup->grid->channels};
    work *w = g.work = weft_alloc(sizeof *w);
    WEFT_TRY(WEFT_ALLOCATED(w, "the input images"));
    w->files = *files;
    w->grid = *setup->grid;
    w->control_channels =
        setup->controlled && !weft_model_takes(setup->denoiser, WEFT_PORT_CONTROL);
    w->how =
        w->control_channels ? (weft_frame_condition){0} : weft_model_takes_port(setup->denoiser);
    w->zeros = setup->zeros;
    w->offload_dir = setup->offload_dir;
    w->refinement = setup->refinement;
    w->canvas = (weft_canvas){.frames = setup->frames - files->references * w->grid.factor[0],
                              .height = setup->height,
                              .width = setup->width,
                              .fit = (weft_fit)files->fit};
    g.latent[0] = weft_grid_latent_frames(setup->grid, setup->frames);
    g.latent[1] = setup->height / setup->grid->factor[1];
    g.latent[2] = setup->width / setup->grid->factor[2];
    weft_status_code status = WEFT_OK;
    WEFT_GO(check_image(w, setup));
    if (w->how.form == WEFT_FRAME_CONDITION_CHARACTER) {
        WEFT_GO(open_character(files, setup, &g, w));
        *visual = g;
        return WEFT_OK;
    }
    if (files->face)
        WEFT_GO(refuse_face(setup, files->face));
    WEFT_GO(check_video(w));
    if (files->prefix_frames)
        WEFT_GO(check_prefix(w, setup));
    WEFT_GO(weft_visual_check_control(files, &w->grid, w->control_channels, setup, &g));
    if (files->before && !w->how.frame_levels)
        WEFT_GO(check_given(w, setup));
    if (files->image && setup->edit)
        WEFT_GO(open_edited(setup, &g, w));
    else if (files->image || files->prefix_frames || (files->before && !w->how.frame_levels))
        WEFT_GO(open_whole_image(setup, &g, w));
    else if (files->before)
        WEFT_GO(open_before(setup, w));
    else if (w->how.also_none) /* zeros */
        g.extra_channel_count = weft_model_grid(setup->denoiser).channels - g.channels;
    g.from_video = files->video || files->coarse.file;
    g.given = w->refinement.given;
    if (g.from_video || files->control || g.control_channels)
        WEFT_GO(open_video(setup, w));
    *visual = g;
out:
    if (status != WEFT_OK)
        weft_visual_condition_free(&g);
    return status;
}

static int64_t cells_of(const weft_visual_condition *g)
{
    return g->latent[0] * g->latent[1] * g->latent[2];
}

static bool stands_clean(const weft_visual_condition *g)
{
    return g->work->how.in_place || g->form == WEFT_FRAME_CONDITION_TIMES ||
           g->form == WEFT_FRAME_CONDITION_FRAME_MASK || g->form == WEFT_FRAME_CONDITION_PORT ||
           g->form == WEFT_FRAME_CONDITION_IMPLICIT || g->form == WEFT_FRAME_CONDITION_HISTORY;
}

/* `latents` has frames of the video. */
static bool has_latents(const weft_visual_condition *g)
{
    return g->from_video || stands_clean(g) || g->form == WEFT_FRAME_CONDITION_EDITED ||
           (g->work && g->work->files.before);
}

static bool has_inputs(const weft_visual_condition *g)
{
    const work *w = g->work;
    return w && (w->files.image || g->from_video || w->files.before || w->files.prefix_frames ||
                 g->control_channels || g->extra_channel_count);
}

/* Bytes of the image encoders, which stay reserved with prefix_frames. */
static int64_t image_bytes(const weft_visual_condition *g)
{
    const work *w = g->work;
    const int64_t frame = w->canvas.height * w->canvas.width;
    const int64_t vae =
        w->character ? weft_character_bytes(w->character)
        : w->image_vae
            ? weft_vae_bytes(w->image_vae) +
                  w->image_frames * (frame * 3 + g->latent[1] * g->latent[2] * g->channels) * 4
            : 0;
    const int64_t sees = w->seer.program
                             ? weft_programs_bytes((weft_program *[]){w->seer.program}, 1) +
                                   weft_program_plan(w->seer.program)->source_bytes +
                                   weft_clip_picture_bytes(&w->seer.processor) +
                                   (w->how.resized ? frame * 3 * 4 : 0)
                             : weft_clip_picture_bytes(&w->looks);
    return w->files.prefix_frames ? vae + sees : vae > sees ? vae : sees;
}

int64_t weft_visual_condition_edited_floats(const weft_visual_condition *g)
{
    return g->edit.count ? weft_edit_images_floats(&g->edit)
                         : g->edited * g->latent[1] * g->latent[2] * g->channels;
}

/* Floats of `latents`. An edited image has one latent frame. */
static int64_t latent_floats(const weft_visual_condition *g)
{
    if (g->edit.count)
        return weft_edit_images_floats(&g->edit);
    return has_latents(g) ? cells_of(g) * g->channels * (g->edited ? g->edited : 1) : 0;
}

/* Bytes of `cells`: 0 without inputs. */
static int64_t cell_bytes(const weft_visual_condition *g)
{
    const int64_t others = g->extra_channel_count + g->control_channels;
    return has_inputs(g) ? latent_floats(g) * 4 + cells_of(g) * (others * 4 + 1) + g->latent[0] : 0;
}

/* Floats of `vision_image`. */
static int64_t vision_floats(const weft_visual_condition *g)
{
    const int64_t side = g->work ? g->work->looks.crop : 0;
    return 2 * side * side * 3;
}

int64_t weft_visual_condition_bytes(const weft_visual_condition *g)
{
    const int64_t stays = g->work && g->work->files.prefix_frames ? image_bytes(g) : 0;
    return stays + (g->work && g->work->offload_dir ? 0 : cell_bytes(g)) +
           (g->image_tokens * g->image_width + vision_floats(g) + g->face_floats) * 4 +
           weft_edit_images_bytes(&g->edit);
}

int64_t weft_visual_condition_mapped(const weft_visual_condition *g)
{
    return g->work && g->work->offload_dir ? cell_bytes(g) : 0;
}

int64_t weft_visual_condition_workspace_bytes(const weft_visual_condition *g)
{
    const work *w = g->work;
    if (!w)
        return 0;
    const int64_t frame = w->canvas.height * w->canvas.width;
    int64_t bytes = g->edit.peak + (w->files.prefix_frames ? 0 : image_bytes(g)), of_video = 0,
            of_reference = 0;
    const weft_control_video control = control_of(w);
    if (w->video_vae)
        of_video = weft_vae_bytes(w->video_vae) +
                   (w->files.coarse.file ? weft_refinement_source_bytes(&w->canvas) : frame * 4);
    if (g->control_channels && g->control_channels != g->channels)
        of_video += weft_control_workspace_bytes(&control);
    if (w->reference_vae) /* freed before the video is encoded */
        of_reference = weft_vae_bytes(w->reference_vae) + weft_control_reference_bytes(&control);
    of_video = of_reference > of_video ? of_reference : of_video;
    return bytes > of_video ? bytes : of_video;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* x (frames, rows, columns, channels) */
static void normalise(const work *w, const weft_visual_condition *g, int64_t frames, bool inverted,
                      float *x)
{
    const int64_t channels = g->channels, area = g->latent[1] * g->latent[2];
    for (int64_t i = 0; i < frames * area * channels; i++) {
        const int64_t at = weft_grid_statistics_at(&w->grid, i / (area * channels)) + i % channels;
        const double deviation = w->grid.deviation[at];
        x[i] = (x[i] - (float)w->grid.mean[at]) / (float)(inverted ? 1 / deviation : deviation);
    }
}

static weft_status run_encoder(work *w, const float *video, float *latents)
{
    if (!w->bound)
        WEFT_TRY(weft_vae_bind(w->image_vae));
    w->bound = true;
    return weft_vae_encode(w->image_vae, video, w->image_frames, latents);
}

/* Encodes frames to normalised latents. Frees the encoder, except with prefix_frames. */
static weft_status encode(work *w, const float *video, const weft_visual_condition *g,
                          float *latents)
{
    const weft_status_code status = run_encoder(w, video, latents);
    if (!w->files.prefix_frames || status != WEFT_OK) {
        weft_vae_free(w->image_vae);
        w->image_vae = NULL;
    }
    WEFT_TRY(status);
    normalise(w, g, weft_grid_latent_frames(&w->grid, w->image_frames), w->grid.inverted, latents);
    return WEFT_OK;
}

/* Encodes the last image as a video of one frame to the last latent frame. `pixels`: workspace of
 * one frame. */
static weft_status read_last(work *w, weft_visual_condition *g, float *pixels)
{
    weft_canvas one = w->canvas;
    one.frames = 1;
    one.w = 0;
    float *to = g->latents + (g->latent[0] - 1) * g->latent[1] * g->latent[2] * g->channels;
    WEFT_TRY(weft_pictures_read(w->files.last_image, &one, pixels));
    WEFT_TRY(run_encoder(w, pixels, to));
    normalise(w, g, 1, w->grid.inverted, to);
    return WEFT_OK;
}

/* Repeats the first frame of a refined video before it. `video`: has front_of(w) frames, then the
 * first frame. */
static void fill_front(const work *w, float *video)
{
    const int64_t floats = w->canvas.height * w->canvas.width * 3, front = front_of(w);
    for (int64_t i = 0; i < front; i++)
        memcpy(video + i * floats, video + front * floats, (size_t)floats * sizeof *video);
}

/* Encodes the image, or the last frames of the previous window. The remaining frames that the
 * encoder takes are grey (0), except the last one if a last frame is given. */
static weft_status read_image(work *w, weft_visual_condition *g, const float *carried,
                              float **latents)
{
    const int64_t frame = w->canvas.height * w->canvas.width * 3,
                  cells = weft_grid_latent_frames(&w->grid, w->image_frames) * g->latent[1] *
                          g->latent[2];
    weft_canvas one = w->canvas;
    one.frames = 1;
    one.w = 0;
    float *video = weft_alloc(w->image_frames * frame * 4);
    *latents = weft_alloc(cells * g->channels * 4);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(video && *latents, "%s: its frames", w->files.image));
    if (w->files.last_image && w->how.form == WEFT_FRAME_CONDITION_HISTORY)
        WEFT_GO(read_last(w, g, video));
    float *first = video + front_of(w) * frame;
    if (carried)
        memcpy(first, carried, (size_t)(given_frames(&w->files) * frame) * sizeof *video);
    else
        WEFT_GO(weft_pictures_read(w->files.image, &one, first));
    fill_front(w, video);
    if (w->files.last_image && w->image_frames > 1)
        WEFT_GO(
            weft_pictures_read(w->files.last_image, &one, video + (w->image_frames - 1) * frame));
    WEFT_GO(encode(w, video, g, *latents));
out:
    weft_free(video);
    return status;
}

/* Fills the extra channels: one mark per frame of a latent frame, then latents; with mark_after,
 * latents and then one mark. */
static void fill_follow(const work *w, const weft_visual_condition *g, const float *latents)
{
    const int64_t area = g->latent[1] * g->latent[2], marks = g->extra_channel_count - g->channels,
                  there = weft_grid_latent_frames(&w->grid, w->image_frames);
    for (int64_t i = 0; i < cells_of(g); i++) {
        const int64_t t = i / area;
        float *to = g->extra_channels + i * g->extra_channel_count,
              *latent = to + (w->how.mark_after ? 0 : marks);
        float *mark = w->how.mark_after ? to + g->channels : to;
        for (int64_t k = 0; k < marks; k++)
            mark[k] = t == 0 || (w->files.last_image && t == g->latent[0] - 1 && k == marks - 1);
        if (t < there && !w->how.in_place)
            memcpy(latent, latents + i * g->channels, (size_t)g->channels * 4);
    }
}

static weft_status use_image_latents(work *w, weft_visual_condition *g, const float *carried)
{
    const int64_t area = g->latent[1] * g->latent[2],
                  there = g->given  ? g->given
                          : carried ? weft_grid_latent_frames(&w->grid, given_frames(&w->files))
                                    : 1;
    float *latents = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_image(w, g, carried, &latents));
    if (g->extra_channels)
        fill_follow(w, g, latents);
    g->apart = (carried || g->given) && w->how.apart ? there : 0;
    if (stands_clean(g)) {
        memset(g->clean_frames, 1, (size_t)there);
        memset(g->keep_mask, 1, (size_t)(there * area));
        memcpy(g->latents, latents, (size_t)(there * area * g->channels) * 4);
    }
out:
    weft_free(latents);
    return status;
}

/* Encodes the images to edit one at a time. */
static weft_status use_edited(work *w, weft_visual_condition *g)
{
    const int64_t floats = cells_of(g) * g->channels;
    weft_canvas one = w->canvas;
    one.frames = 1;
    one.w = 0;
    float *pixels;
    WEFT_TRY(WEFT_NEW(pixels, one.height * one.width * 3, "%s: its pixels", w->files.image));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < g->edited; i++) {
        const char *file = i ? w->files.more_image[i - 1] : w->files.image;
        WEFT_GO(weft_pictures_read(file, &one, pixels));
        WEFT_GO(run_encoder(w, pixels, g->latents + i * floats));
        normalise(w, g, 1, w->grid.inverted, g->latents + i * floats);
    }
out:
    weft_free(pixels);
    weft_vae_free(w->image_vae);
    w->image_vae = NULL;
    return status;
}

static weft_status use_image(work *w, weft_visual_condition *g, const float *carried)
{
    if (g->edit.count)
        return weft_edit_images_read(&w->setup, &g->edit, g->latents);
    if (g->form == WEFT_FRAME_CONDITION_EDITED)
        return use_edited(w, g);
    WEFT_TRY(use_image_latents(w, g, carried));
    const float *last =
        carried ? carried + (given_frames(&w->files) - 1) * w->canvas.height * w->canvas.width * 3
                : NULL;
    if (w->seer.graph)
        WEFT_TRY(see(w, last, g));
    if (!g->vision_image)
        return WEFT_OK;
    return last ? weft_clip_picture_frame(&w->looks, &w->canvas, last, g->vision_image)
                : weft_clip_picture_file(&w->looks, w->files.image, g->vision_image);
}

/* Encodes the frames before the video to its first latent frames. */
static weft_status use_before(work *w, weft_visual_condition *g)
{
    weft_canvas part = w->canvas;
    float *video;
    part.frames = w->files.before_frames;
    part.w = 0;
    WEFT_TRY(WEFT_NEW(video, part.frames * part.height * part.width * 3, "%s: its frames",
                      w->files.before));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pictures_read_last(w->files.before, &part, video));
    if (!w->how.frame_levels) {
        WEFT_GO(use_image(w, g, video));
        goto out;
    }
    WEFT_GO(encode(w, video, g, g->latents));
    memset(g->keep_mask, 1,
           (size_t)(weft_grid_latent_frames(&w->grid, part.frames) * g->latent[1] * g->latent[2]));
out:
    weft_free(video);
    return status;
}

const float *weft_visual_condition_noise_image(const weft_visual_condition *g, int64_t at)
{
    return g->latents ? g->latents + at * g->channels
                      : g->extra_channels + at * g->extra_channel_count;
}

/* keep_mask of a cell: 0 if a pixel of the cell is painted or outside the video's rectangle. */
typedef struct keeping {
    const work *work;
    weft_visual_condition *visual;
} keeping;

static void clear_painted(void *user, int64_t frame, const uint8_t *painted)
{
    const keeping *k = user;
    const weft_canvas *c = &k->work->canvas;
    const int64_t *f = k->work->grid.factor;
    const int64_t at = k->work->grid.causal ? (frame + f[0] - 1) / f[0] : frame / f[0];
    for (int64_t i = 0; i < c->height * c->width; i++) {
        const int64_t y = i / c->width, x = i % c->width;
        const bool outside = c->w && (x < c->x || y < c->y || x >= c->x + c->w || y >= c->y + c->h);
        if (outside || (painted && painted[i]))
            k->visual->keep_mask[(at * k->visual->latent[1] + y / f[1]) * k->visual->latent[2] +
                                 x / f[2]] = 0;
    }
}

static weft_status use_mask(work *w, weft_visual_condition *g)
{
    keeping k = {w, g};
    weft_canvas all = w->canvas;
    all.w = 0;
    memset(g->keep_mask, 1, (size_t)cells_of(g));
    if (w->files.mask)
        WEFT_TRY(weft_mask_read(w->files.mask, &all, clear_painted, &k));
    for (int64_t t = 0; t < w->canvas.frames && !w->files.mask; t++)
        clear_painted(&k, t, NULL);
    return memchr(g->keep_mask, 0, (size_t)cells_of(g))
               ? WEFT_OK
               : weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = w->files.mask),
                            "no pixel of the mask is white, so nothing would be generated. Paint "
                            "the region to generate white.");
}

/* Encodes a video of the canvas to normalised latents. */
static weft_status encode_file(work *w, const weft_visual_condition *g, const char *file,
                               float *latents)
{
    weft_frame_source *frame_source;
    WEFT_TRY(weft_frame_source_open(file, &w->canvas, &frame_source));
    const weft_status_code status = weft_vae_encode_boxes(w->video_vae, weft_frame_source_box,
                                                          frame_source, w->canvas.frames, latents);
    weft_frame_source_close(frame_source);
    WEFT_TRY(status);
    normalise(w, g, g->latent[0], false, latents);
    return WEFT_OK;
}

/* Encodes the enlarged coarse video. */
static weft_status use_coarse(work *w, weft_visual_condition *g)
{
    weft_refinement_source *source;
    WEFT_TRY(weft_refinement_source_open(&w->files.coarse, &w->refinement, &w->canvas, &source));
    const weft_status_code status = weft_vae_encode_boxes(w->video_vae, weft_refinement_source_box,
                                                          source, w->canvas.frames, g->latents);
    weft_refinement_source_close(source);
    WEFT_TRY(status);
    normalise(w, g, g->latent[0], false, g->latents);
    return WEFT_OK;
}

static weft_status use_video(work *w, weft_visual_condition *g)
{
    WEFT_TRY(encode_file(w, g, w->files.video, g->latents));
    return w->files.mask || w->canvas.w ? use_mask(w, g) : WEFT_OK;
}

/* Encodes the reference images, and frees their encoder. */
static weft_status encode_references(work *w, weft_visual_condition *g)
{
    const weft_control_video control = control_of(w);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_vae_bind(w->reference_vae));
    WEFT_GO(weft_control_encode_references(&control, w->reference_vae, g->control));
out:
    weft_vae_free(w->reference_vae);
    w->reference_vae = NULL;
    return status;
}

/* Encodes the video and the control, and frees their encoder. */
static weft_status encode_videos(work *w, weft_visual_condition *g)
{
    const weft_control_video control = control_of(w);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_vae_bind(w->video_vae));
    if (w->files.video)
        WEFT_GO(use_video(w, g));
    if (w->files.coarse.file)
        WEFT_GO(use_coarse(w, g));
    if (w->control_channels)
        WEFT_GO(encode_file(w, g, w->files.control, g->extra_channels));
    if (g->control_channels == g->channels) /* of the pixels as they are */
        WEFT_GO(encode_file(w, g, w->files.control, g->control));
    else if (g->control_channels)
        WEFT_GO(weft_control_encode(&control, w->video_vae, g->control));
out:
    weft_vae_free(w->video_vae);
    w->video_vae = NULL;
    return status;
}

/* Clears all known frames and cells. */
static void forget(weft_visual_condition *g)
{
    const int64_t cells = cells_of(g);
    memset(g->keep_mask, 0, (size_t)cells);
    memset(g->clean_frames, 0, (size_t)g->latent[0]);
    g->apart = 0;
    if (g->latents)
        memset(g->latents, 0, (size_t)latent_floats(g) * 4);
    if (g->extra_channels)
        memset(g->extra_channels, 0, (size_t)(cells * g->extra_channel_count) * 4);
}

weft_status weft_visual_condition_set_prefix(weft_visual_condition *g, int64_t window,
                                             const float *frames)
{
    forget(g);
    if (g->work->character)
        return weft_character_read(g->work->character, g, window, frames);
    return frames || g->work->files.image ? use_image(g->work, g, frames) : WEFT_OK;
}

/* Reads the inputs of the only window. With prefix_frames each window reads its own later. */
static weft_status read_character(work *w, weft_visual_condition *g)
{
    WEFT_TRY(WEFT_NEW(g->face, g->face_floats, "the face"));
    if (w->seer.graph)
        WEFT_TRY(see(w, NULL, g));
    weft_image_encoder_free(&w->seer);
    w->seer = (weft_image_encoder){0};
    if (w->files.prefix_frames)
        return WEFT_OK;
    WEFT_TRY(weft_character_read(w->character, g, 0, NULL));
    weft_character_free(w->character);
    w->character = NULL;
    return WEFT_OK;
}

weft_status weft_visual_condition_read(weft_visual_condition *g)
{
    work *w = g->work;
    const int64_t cells = cells_of(g);
    if (!has_inputs(g))
        return WEFT_OK;
    const bool known = has_latents(g);
    WEFT_TRY(weft_scratch_reserve(w->offload_dir, cell_bytes(g),
                                  "Write --out to another disk, or make fewer frames", &g->cells));
    float *at = g->cells.data;
    g->latents = known ? at : NULL;
    at += latent_floats(g);
    g->extra_channels = g->extra_channel_count ? at : NULL;
    at += cells * g->extra_channel_count;
    g->control = g->control_channels ? at : NULL;
    at += cells * g->control_channels;
    g->keep_mask = (uint8_t *)at;
    g->clean_frames = g->keep_mask + cells;
    g->image = g->image_tokens ? weft_alloc(g->image_tokens * g->image_width * 4) : NULL;
    g->vision_image = vision_floats(g) ? weft_alloc(vision_floats(g) * 4) : NULL;
    if ((g->image_tokens && !g->image) || (vision_floats(g) && !g->vision_image))
        return weft_no_memory("the visual inputs");
    if (g->vision_image)
        weft_clip_picture_black(&w->looks, g->vision_image + vision_floats(g) / 2);
    forget(g);
    if (w->character)
        return read_character(w, g);
    if (w->reference_vae)
        WEFT_TRY(encode_references(w, g));
    if (w->video_vae)
        WEFT_TRY(encode_videos(w, g));
    if (w->files.prefix_frames)
        return WEFT_OK; /* each window sets its first frames */
    if (w->files.image)
        WEFT_TRY(use_image(w, g, NULL));
    else if (w->files.before)
        WEFT_TRY(use_before(w, g));
    weft_image_encoder_free(&w->seer);
    return WEFT_OK;
}

void weft_visual_condition_free(weft_visual_condition *g)
{
    if (g->work) {
        weft_vae_free(g->work->image_vae);
        weft_vae_free(g->work->video_vae);
        weft_vae_free(g->work->reference_vae);
        weft_image_encoder_free(&g->work->seer);
        weft_character_free(g->work->character);
        weft_free(g->work);
    }
    weft_scratch_release(&g->cells);
    weft_free(g->image);
    weft_free(g->vision_image);
    weft_free(g->face);
    weft_edit_images_free(&g->edit);
    *g = (weft_visual_condition){0};
}
