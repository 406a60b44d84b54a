#include "generate/conditioning/edit_images.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/json_foreign.h"
#include "exec/execute.h"
#include "generate/conditioning/image_encoder.h"
#include "latent/vae_chunks.h"
#include "video/clip_processor.h"
#include "video/resample.h"

#include <math.h>
#include <string.h>

enum { STEP = 32, MOST_ASPECT = 200 };

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The size of `area` pixels with an aspect ratio, sides rounded to multiples of STEP. */
static weft_edit_size of_area(int64_t area, double ratio)
{
    const double width = sqrt((double)area * ratio), height = width / ratio;
    return (weft_edit_size){(int64_t)nearbyint(height / STEP) * STEP,
                            (int64_t)nearbyint(width / STEP) * STEP};
}

static int64_t at_least(int64_t value, int64_t least)
{
    return value < least ? least : value;
}

/* The size that the processor gives to an image. */
static weft_edit_size processed(const weft_patch_processor *p, weft_edit_size from)
{
    const double f = (double)p->factor, height = (double)from.height, width = (double)from.width;
    weft_edit_size to = {(int64_t)nearbyint(height / f) * p->factor,
                         (int64_t)nearbyint(width / f) * p->factor};
    if (to.height * to.width > p->most) {
        const double by = sqrt(height * width / (double)p->most);
        to.height = at_least((int64_t)floor(height / by / f) * p->factor, p->factor);
        to.width = at_least((int64_t)floor(width / by / f) * p->factor, p->factor);
    } else if (to.height * to.width < p->least) {
        const double by = sqrt((double)p->least / (height * width));
        to.height = (int64_t)ceil(height * by / f) * p->factor;
        to.width = (int64_t)ceil(width * by / f) * p->factor;
    }
    return to;
}

/* A number of pixels: `key`, or `edge` of "size". */
static weft_status read_pixels(const json_t *json, const char *path, const char *key,
                               const char *edge, int64_t *pixels)
{
    const int64_t most = 1 << 28;
    const json_t *size = json_object_get(json, "size");
    const char *found = json_is_integer(json_object_get(json, key)) ? key : edge;
    WEFT_TRY(found == key ? weft_json_get_i64(json, key, path, pixels)
                          : weft_json_get_i64(size, edge, path, pixels));
    return *pixels >= 1 && *pixels <= most
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG,
                            WEFT_AT(.file = path, .key = found, WEFT_NUMBER(*pixels)),
                            "an image of %" PRId64 " pixels is not possible; use 1 to %" PRId64,
                            *pixels, most);
}

/* Rejects steps of the processor that are not done. */
static weft_status check_processor(const json_t *json, const char *path,
                                   const weft_patch_processor *p)
{
    const weft_json_field known[] = {{"size", NULL},
                                     {"min_pixels", NULL},
                                     {"max_pixels", NULL},
                                     {"image_mean", NULL},
                                     {"image_std", NULL},
                                     {"patch_size", NULL},
                                     {"merge_size", NULL},
                                     {"temporal_patch_size", "[2]"},
                                     {"do_resize", "[true]"},
                                     {"do_rescale", "[true]"},
                                     {"do_normalize", "[true]"},
                                     {"do_convert_rgb", NULL},
                                     {"resample", "[3]"},
                                     {"rescale_factor", "[0.00392156862745098]"},
                                     {"data_format", NULL},
                                     {"default_to_square", NULL},
                                     {"image_processor_type", NULL},
                                     {"processor_class", NULL},
                                     {NULL, NULL}};
    int64_t patch, merge;
    WEFT_TRY(weft_json_check_foreign(json, path, "", known, WEFT_MSG_MODEL_CONFIG_UNSUPPORTED));
    WEFT_TRY(weft_json_get_i64_or(json, "patch_size", path, 14, &patch));
    WEFT_TRY(weft_json_get_i64_or(json, "merge_size", path, 2, &merge));
    const int64_t factor = patch * merge;
    return factor == p->factor
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG,
                            WEFT_AT(.file = path, .key = "patch_size", WEFT_NUMBER(factor)),
                            "joined patches have sides of %" PRId64
                            " pixels, and the vision encoder takes %" PRId64,
                            factor, p->factor);
}

/* Reads the processor of the folder: a file of its own, or a part of the file of several. */
static weft_status read_processor(const char *folder, weft_patch_processor *p)
{
    static const char *const files[] = {"processor/preprocessor_config.json",
                                        "processor/processor_config.json"};
    json_t *json = NULL;
    char *path = NULL;
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < 2 && !json; i++) {
        weft_free(path);
        path = weft_path_join(folder, files[i]);
        WEFT_GO(WEFT_ALLOCATED(path, "a path"));
        if (weft_path_exists(path))
            WEFT_GO(weft_json_load(path, &json));
    }
    if (!json)
        WEFT_GO(weft_error(WEFT_MSG_MODEL_CONFIG,
                           WEFT_AT(.file = folder, .key = "processor/preprocessor_config.json"),
                           "the file is missing; it has the sizes in which the text encoder sees "
                           "images. Download the folder processor of the model."));
    const json_t *inside = json_object_get(json, "image_processor"), *own = inside ? inside : json;
    WEFT_GO(check_processor(own, path, p));
    WEFT_GO(read_pixels(own, path, "min_pixels", "shortest_edge", &p->least));
    WEFT_GO(read_pixels(own, path, "max_pixels", "longest_edge", &p->most));
    if (p->least > p->most)
        WEFT_GO(weft_error(WEFT_MSG_MODEL_CONFIG,
                           WEFT_AT(.file = path, .key = "min_pixels", WEFT_NUMBER(p->least)),
                           "%" PRId64 " pixels at least are more than %" PRId64 " pixels at most",
                           p->least, p->most));
    WEFT_GO(weft_clip_processor_colours(own, path, p->mean, p->deviation));
out:
    json_decref(json);
    weft_free(path);
    return status;
}

static weft_status open_vision(const weft_visual_condition_setup *setup, weft_edit_images *e)
{
    char *folder = weft_path_join(setup->folder, "text_encoder");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(folder, "a path"));
    WEFT_GO(weft_model_open_as(folder, WEFT_ROLE_IMAGE_ENCODER, &e->vision));
    const weft_model_size least = {.batch = 1, .frames = 1, .height = 1, .width = 1};
    e->processor = (weft_patch_processor){
        /* colours of a file without them: CLIP's */
        .factor = weft_model_shape(&e->vision, &least, WEFT_PORT_VIDEO).dim[2],
        .mean = {0.48145466, 0.4578275, 0.40821073},
        .deviation = {0.26862954, 0.26130258, 0.27577711}};
    WEFT_GO(read_processor(setup->folder, &e->processor));
out:
    weft_free(folder);
    return status;
}

static weft_status find_sizes(const weft_visual_condition_setup *setup, weft_edit_images *e, int i)
{
    const weft_grid patch = weft_model_grid(setup->denoiser);
    uint8_t *rgb;
    int64_t width, height;
    WEFT_TRY(weft_picture_load(e->file[i], &rgb, &width, &height));
    weft_free(rgb);
    if (width > MOST_ASPECT * height || height > MOST_ASPECT * width)
        return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = e->file[i]),
                          "one side of %" PRId64 "x%" PRId64
                          " pixels is more than %d times the other; crop the image",
                          width, height, MOST_ASPECT);
    const double ratio = (double)width / (double)height;
    e->size[i] = of_area(setup->edit->area, ratio);
    e->scaled[i] = of_area(setup->edit->seen_area, ratio);
    e->shown[i] = processed(&e->processor, e->scaled[i]);
    for (int k = 0; k < 2; k++) {
        weft_image_tokens *t = k ? &e->seen_tokens : &e->tokens;
        const weft_edit_size size = k ? e->shown[i] : e->size[i];
        const int64_t rows = k ? e->processor.factor : setup->grid->factor[1] * patch.factor[1],
                      columns = k ? rows : setup->grid->factor[2] * patch.factor[2];
        t->of[i].rows = size.height / rows;
        t->of[i].columns = size.width / columns;
        t->count = i + 1;
    }
    return WEFT_OK;
}

int64_t weft_edit_images_floats(const weft_edit_images *e)
{
    return weft_image_tokens_count(&e->tokens) * e->token_floats;
}

int64_t weft_edit_images_bytes(const weft_edit_images *e)
{
    return weft_image_tokens_count(&e->seen_tokens) * e->seen_width * 4;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* Latents (rows, columns, channels) to normalised latents of tokens. */
static void to_tokens(const weft_visual_condition_setup *setup, const float *from, int64_t rows,
                      int64_t columns, float *to)
{
    const weft_grid patch = weft_model_grid(setup->denoiser);
    const int64_t high = patch.factor[1], wide = patch.factor[2], channels = setup->grid->channels;
    const double *mean = setup->grid->mean, *deviation = setup->grid->deviation;
    for (int64_t i = 0; i < rows * columns * channels; i++) {
        const int64_t c = i % channels, x = i / channels % columns, y = i / channels / columns;
        const int64_t token = y / high * (columns / wide) + x / wide,
                      inside = y % high * wide + x % wide;
        to[(token * high * wide + inside) * channels + c] =
            (from[i] - (float)mean[c]) / (float)deviation[c];
    }
}

static weft_status encode(const weft_visual_condition_setup *setup, const weft_edit_images *e,
                          int i, float *to)
{
    const weft_edit_size size = e->size[i];
    const weft_canvas canvas = {.frames = 1, .height = size.height, .width = size.width};
    const int64_t rows = size.height / setup->grid->factor[1],
                  columns = size.width / setup->grid->factor[2];
    struct weft_vae *vae = NULL;
    float *pixels = weft_alloc(size.height * size.width * 3 * 4),
          *latents = weft_alloc(rows * columns * setup->grid->channels * 4);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(pixels && latents, "%s: its pixels", e->file[i]));
    WEFT_GO(weft_pictures_read(e->file[i], &canvas, pixels));
    WEFT_GO(weft_visual_condition_encoder(setup, 1, size.height, size.width, &vae));
    WEFT_GO(weft_vae_bind(vae));
    WEFT_GO(weft_vae_encode(vae, pixels, 1, latents));
    to_tokens(setup, latents, rows, columns, to);
out:
    weft_vae_free(vae);
    weft_free(pixels);
    weft_free(latents);
    return status;
}

/* The preprocessed image: to[height, width, 3] of `shown`. */
static weft_status preprocess(const weft_edit_images *e, int i, float *to)
{
    const weft_edit_size first = e->scaled[i], last = e->shown[i];
    const weft_patch_processor *p = &e->processor;
    uint8_t *rgb = NULL, *scaled = NULL, *shown = NULL;
    int64_t width, height;
    WEFT_TRY(weft_picture_load(e->file[i], &rgb, &width, &height));
    weft_status_code status = WEFT_OK;
    scaled = weft_alloc(first.height * first.width * 3);
    shown = weft_alloc(last.height * last.width * 3);
    WEFT_GO(WEFT_ALLOCATED(scaled && shown, "%s: its pixels", e->file[i]));
    WEFT_GO(weft_image_resample(WEFT_RESAMPLE_LANCZOS, rgb, width, height, 3, scaled, first.width,
                                first.height));
    WEFT_GO(weft_image_resample(WEFT_RESAMPLE_BICUBIC, scaled, first.width, first.height, 3, shown,
                                last.width, last.height));
    for (int64_t k = 0; k < last.height * last.width * 3; k++)
        to[k] = (float)((shown[k] / 255.0 - p->mean[k % 3]) / p->deviation[k % 3]);
out:
    weft_free(rgb);
    weft_free(scaled);
    weft_free(shown);
    return status;
}

/* Compiles the vision encoder for image i; free it with weft_image_encoder_free, also after an
 * error. */
static weft_status open_vision_of(const weft_visual_condition_setup *setup,
                                  const weft_edit_images *e, int i, weft_image_encoder *s,
                                  weft_shape *made)
{
    s->model = e->vision;
    s->folder = weft_path_join(setup->folder, "text_encoder");
    WEFT_TRY(WEFT_ALLOCATED(s->folder, "a path"));
    return weft_image_encoder_compile(
        setup->backend, WEFT_SHAPE(1, 1, e->shown[i].height, e->shown[i].width, 3), s, made);
}

/* Compiles the programs for image i, and raises e->peak to the bytes of its encoders. */
static weft_status find_peak(const weft_visual_condition_setup *setup, weft_edit_images *e, int i)
{
    const weft_edit_size size = e->size[i], shown = e->shown[i];
    struct weft_vae *vae = NULL;
    weft_image_encoder s = {0};
    weft_shape made;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_visual_condition_encoder(setup, 1, size.height, size.width, &vae));
    const int64_t pixels = size.height * size.width * 3,
                  latents = e->tokens.of[i].rows * e->tokens.of[i].columns * e->token_floats,
                  encodes = weft_vae_bytes(vae) + (pixels + latents) * 4;
    weft_vae_free(vae);
    WEFT_GO(open_vision_of(setup, e, i, &s, &made));
    const int64_t sees =
        weft_programs_bytes(&s.program, 1) + weft_program_plan(s.program)->source_bytes +
        e->scaled[i].height * e->scaled[i].width * 3 + shown.height * shown.width * 3;
    e->seen_width = made.dim[2];
    e->peak = at_least(e->peak, encodes > sees ? encodes : sees);
out:
    weft_image_encoder_free(&s);
    return status;
}

weft_status weft_edit_images_open(const weft_visual_condition_setup *setup,
                                  const weft_visual_inputs *files, weft_edit_images *e)
{
    const int count = 1 + files->more_images;
    const weft_grid patch = weft_model_grid(setup->denoiser);
    *e = (weft_edit_images){
        .count = count, .token_floats = patch.factor[1] * patch.factor[2] * setup->grid->channels};
    if (count > setup->edit->images)
        return weft_error(WEFT_MSG_VIDEO_INPUT,
                          WEFT_AT(.file = setup->folder, .key = "--image", WEFT_NUMBER(count)),
                          "%s takes %d image%s, not %d", setup->edit->class_name,
                          setup->edit->images, setup->edit->images > 1 ? "s at most" : "", count);
    WEFT_TRY(open_vision(setup, e));
    for (int i = 0; i < count; i++) {
        e->file[i] = i ? files->more_image[i - 1] : files->image;
        WEFT_TRY(find_sizes(setup, e, i));
        WEFT_TRY(find_peak(setup, e, i));
    }
    return WEFT_OK;
}

/* Appends the output for image i to e->seen, whose first `*done` floats are set. */
static weft_status see(const weft_visual_condition_setup *setup, weft_edit_images *e, int i,
                       int64_t *done)
{
    weft_image_encoder s = {0};
    weft_shape made;
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_vision_of(setup, e, i, &s, &made));
    WEFT_GO(weft_image_encoder_bind(&s));
    const int64_t count = made.dim[1] * made.dim[2];
    if (!e->seen)
        WEFT_GO(WEFT_NEW(e->seen, weft_image_tokens_count(&e->seen_tokens) * e->seen_width,
                         "the images for the text encoder"));
    WEFT_GO(preprocess(e, i, weft_program_input(s.program, "in")->data));
    WEFT_GO(weft_program_run(s.program));
    memcpy(e->seen + *done, weft_program_output(s.program, "out")->data,
           (size_t)count * sizeof *e->seen);
    *done += count;
out:
    weft_image_encoder_free(&s);
    return status;
}

weft_status weft_edit_images_read(const weft_visual_condition_setup *setup, weft_edit_images *e,
                                  float *latents)
{
    int64_t done = 0;
    for (int i = 0; i < e->count; i++) {
        WEFT_TRY(encode(setup, e, i, latents));
        latents += e->tokens.of[i].rows * e->tokens.of[i].columns * e->token_floats;
        WEFT_TRY(see(setup, e, i, &done));
    }
    return WEFT_OK;
}

void weft_edit_images_free(weft_edit_images *e)
{
    weft_free(e->seen);
    *e = (weft_edit_images){0};
}
