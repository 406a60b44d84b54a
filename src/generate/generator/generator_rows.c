#include "generate/generator/generator_rows.h"

#include "generate/generator/causal_blocks.h"
#include "generate/generator/generator_graphs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Data of an input for row r; NULL: the program does not have the input. */
static float *row_of(const weft_denoiser_query *a, const char *input, int64_t r)
{
    const weft_tensor *t = weft_program_input(a->program, input);
    return t ? (float *)t->data + weft_shape_count(&t->shape) / t->shape.dim[0] * r : NULL;
}

/* Not among them: texts, identity tokens, and the face, which negative prompts do not have. */
static const char *const equal_inputs[] = {
    "batch.latents",          "batch.timestep",   "batch.noise_level",   "batch.audio",
    "batch.guidance",         "batch.image",      "batch.frame_mask",    "batch.condition",
    "batch.control",          "batch.edited",     "batch.index",         "batch.history",
    "batch.history_2x",       "batch.history_4x", "batch.history_index", "batch.history_2x_index",
    "batch.history_4x_index", "batch.fps",        "batch.height",        "batch.width",
    "batch.offset",           "batch.sizes",      "batch.label",         "batch.block_keys"};
const weft_cfg_inputs weft_generator_equal_inputs = {equal_inputs, WEFT_COUNT(equal_inputs)};

weft_status_code weft_generator_check_rows(const weft_denoiser_query *a)
{
    for (int i = 0; i < WEFT_COUNT(equal_inputs); i++) {
        const weft_tensor *t = weft_program_input(a->program, equal_inputs[i]);
        const int64_t half = t ? weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype) / 2 : 0;
        if (t && memcmp(t->data, (const char *)t->data + half, (size_t)half))
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = equal_inputs[i]),
                              "input %s differs between the CFG branches, and the program computes "
                              "them from one branch",
                              equal_inputs[i]);
    }
    return WEFT_OK;
}

/* Cosmos takes clean frames scaled as for a low noise level, whatever the current level. */
static const double almost_clean = 0.001;

static double clean_scale(const weft_generator *p)
{
    const double least = almost_clean, data = p->trajectory.scheduler.sigma_data;
    return p->trajectory.scheduler.path == WEFT_PATH_EDM ? 1 / sqrt(least * least + data * data)
                                                         : 1;
}

/* Fills the latents of a window of x: clean frames replace the noisy ones, extra channels
 * follow. */
static void fill_latents(const weft_generator *p, const weft_denoiser_query *a, const float *x,
                         float *to)
{
    const weft_visual_condition *g = &p->inputs.visual;
    const int64_t channels = p->model.grid.channels, area = p->shape.latent[1] * p->shape.latent[2],
                  cells = p->shape.stages   ? p->shape.sampled_floats / channels
                          : p->shape.cached ? weft_causal_blocks_frames_of(p, a) * area
                                            : p->shape.windows.window * area,
                  first = a->frame * area;
    const double data =
        p->trajectory.scheduler.path == WEFT_PATH_EDM ? p->trajectory.scheduler.sigma_data : 1;
    const float clean = (float)(clean_scale(p) * data), in = (float)a->level->in;
    if (p->shape.sections.count || p->shape.level_frames ||
        (!g->extra_channel_count && !g->clean_frames)) {
        memcpy(to, x + first * channels, (size_t)(cells * channels) * 4);
        for (int64_t i = 0; a->level->in != 1 && i < cells * channels; i++)
            to[i] *= in;
        return;
    }
    for (int64_t i = 0; i < cells; i++, to += channels + g->extra_channel_count) {
        const int64_t cell = first + i;
        /* after reasoning frames, the second frame is the last one of the condition */
        const bool moved = p->shape.reasoning_frames && p->shape.sampled_frames == 2;
        const int64_t given =
            cell + (moved && cell >= area ? (p->shape.reasoning_frames - 2) * area : 0);
        const bool is_clean = g->clean_frames && g->clean_frames[cell / area];
        for (int64_t c = 0; c < channels; c++)
            to[c] =
                is_clean ? clean * g->latents[cell * channels + c] : in * x[cell * channels + c];
        if (g->extra_channel_count)
            memcpy(to + channels, g->extra_channels + given * g->extra_channel_count,
                   (size_t)g->extra_channel_count * 4);
    }
}

/* Timestep of a level for the model. */
static float time_of(const weft_generator *p, const weft_noise_level *level)
{
    const bool unit = p->trajectory.scheduler.path == WEFT_PATH_FLOW &&
                      weft_model_has_unit_times(p->model.denoiser);
    return (float)(unit ? level->sigma : level->time);
}

static void fill_times(const weft_generator *p, const weft_denoiser_query *a, int64_t r)
{
    const int64_t times = weft_generator_times(p),
                  tokens = times / (p->shape.windows.window / p->model.patch.factor[0]);
    const float clean_time = (float)p->inputs.visual.given_time;
    float *timestep = row_of(a, "batch.timestep", r), *level = row_of(a, "batch.noise_level", r);
    if (level)
        *level = time_of(p, a->level);
    for (int64_t i = 0; a->times && i < times; i++)
        timestep[i] = a->times[i / tokens * p->model.patch.factor[0]];
    if (a->times)
        return;
    if (times == 1 && timestep)
        *timestep = time_of(p, a->level);
    for (int64_t i = 0; times > 1 && timestep && i < times; i++)
        timestep[i] =
            p->inputs.visual.clean_frames[a->frame + i / tokens * p->model.patch.factor[0]]
                ? clean_time
                : time_of(p, a->level);
}

/* Sets the image sizes of Hunyuan-DiT as its pipeline does: the original size that its training
 * images mostly had, this video's size, and no crop. Its only style is 0. */
static void fill_sizes(const weft_generator *p, const weft_denoiser_query *a, int64_t r)
{
    const float side = 1024,
                sizes[6] = {side, side, (float)p->options.height, (float)p->options.width};
    float *to = row_of(a, "batch.sizes", r);
    int32_t *style = (int32_t *)row_of(a, "batch.label", r);
    if (to)
        memcpy(to, sizes, sizeof sizes);
    if (style)
        *style = 0;
}

/* Sets the masks of clean frames, the image embedding, frame rates and sizes. */
static void fill_visual(const weft_generator *p, const weft_denoiser_query *a, int64_t r,
                        bool prompt)
{
    const weft_visual_condition *g = &p->inputs.visual;
    const int64_t area = p->shape.latent[1] * p->shape.latent[2];
    char name[64];
    int32_t *mask = (int32_t *)row_of(a, "batch.frame_mask", r);
    float *condition = row_of(a, "batch.condition", r), *image = row_of(a, "batch.image", r),
          *control = row_of(a, "batch.control", r), *edited = row_of(a, "batch.edited", r),
          *face = row_of(a, "batch.face", r);
    for (int64_t t = 0; mask && t < p->shape.windows.window; t++)
        mask[t] = !g->clean_frames[a->frame + t];
    for (int64_t i = 0; condition && i < p->shape.windows.window * area; i++)
        condition[i] = g->clean_frames[a->frame + i / area];
    const int64_t ahead = g->form == WEFT_FRAME_CONDITION_CHARACTER; /* without a control */
    if (control)
        memcpy(control, g->control + a->frame * area * g->control_channels,
               (size_t)((p->shape.windows.window - ahead) * area * g->control_channels) * 4);
    for (int64_t i = 0; face && i < g->face_floats; i++)
        face[i] = prompt ? g->face[i] : -1; /* negative prompts have a black face */
    if (edited)
        memcpy(edited, g->latents, (size_t)weft_visual_condition_edited_floats(g) * 4);
    if (image)
        memcpy(image, g->image, (size_t)(g->image_tokens * g->image_width) * 4);
    for (int i = 0; i < WEFT_GENERATOR_NUMBERS; i++) {
        snprintf(name, sizeof name, "batch.%s", weft_port_name(weft_generator_numbers[i]));
        float *number = row_of(a, name, r);
        if (number)
            *number = (float)weft_generator_number(p, weft_generator_numbers[i]);
    }
}

/* Latents of a frame of the history. NULL: zeros. */
static const float *source_frame(const weft_generator *p, int64_t from)
{
    const weft_visual_condition *g = &p->inputs.visual;
    const int64_t frame = p->shape.latent_floats / p->shape.latent[0];
    if (from == WEFT_HISTORY_ZEROS)
        return NULL;
    if (from == WEFT_HISTORY_LAST_IMAGE)
        return g->latents + (p->shape.latent[0] - 1) * frame;
    if (from == WEFT_HISTORY_IMAGE)
        return p->inputs.preceding.noisy;
    if (from <= WEFT_HISTORY_GIVEN)
        return p->inputs.preceding.noisy +
               (p->shape.sections.given + from - WEFT_HISTORY_GIVEN) * frame;
    return p->memory.x + from * frame;
}

/* Sets the frames of the video that a section sees, and the time positions. */
static void fill_history(const weft_generator *p, const weft_denoiser_query *a, int64_t r)
{
    static const char *const inputs[WEFT_HISTORY_SCALES][2] = {
        {"batch.history", "batch.history_index"},
        {"batch.history_2x", "batch.history_2x_index"},
        {"batch.history_4x", "batch.history_4x_index"}};
    const weft_video_sections *s = &p->shape.sections;
    const int64_t at = p->sampling.section, frame = p->shape.latent_floats / p->shape.latent[0];
    const bool last = p->options.visual.last_image != NULL;
    float *index = row_of(a, "batch.index", r);
    for (int64_t i = 0; index && i < s->frames; i++)
        index[i] = (float)weft_video_section_index(s, at, i);
    for (int k = 0; s->count && k < WEFT_HISTORY_SCALES; k++) {
        float *latents = row_of(a, inputs[k][0], r), *place = row_of(a, inputs[k][1], r);
        const int64_t frames = weft_history_frames[k] + (k == 0); /* with the image */
        for (int64_t i = 0; place && i < frames; i++)
            place[i] = (float)weft_video_section_history_index(s, at, k, i);
        for (int64_t i = 0; latents && i < frames; i++) {
            const float *source = source_frame(p, weft_video_section_source(s, at, k, i, last));
            if (!source)
                memset(latents + i * frame, 0, (size_t)frame * sizeof *latents);
            else
                memcpy(latents + i * frame, source, (size_t)frame * sizeof *latents);
        }
    }
}

/* Sets the identity tokens of a prompt's row; zeros for negative prompts. */
static void fill_identity(const weft_generator *p, const weft_denoiser_query *a, int64_t r,
                          bool prompt)
{
    const weft_identity_condition *l = &p->inputs.identity;
    const size_t bytes = (size_t)(l->tokens * l->width) * 4;
    float *to = row_of(a, "batch.identity", r);
    if (to && prompt && l->tokens_data)
        memcpy(to, l->tokens_data, bytes);
    else if (to)
        memset(to, 0, bytes);
}

void weft_generator_weaken_row(const weft_generator *p, const weft_denoiser_query *a, int64_t r,
                               int64_t branch)
{
    float *attended = row_of(a, "batch.attended", r), *joined = row_of(a, "batch.joined", r);
    if (attended)
        *attended = branch != p->shape.perturbed_branch;
    if (joined)
        *joined = branch != p->shape.isolated_branch;
}

void weft_generator_fill_row(const weft_generator *p, const weft_denoiser_query *a, int64_t r,
                             bool prompt, const float *x)
{
    float *latents = row_of(a, "batch.latents", r), *sound = row_of(a, "batch.audio", r),
          *guidance = row_of(a, "batch.guidance", r);
    const bool whole = p->shape.causal && !p->shape.cached;
    if (p->shape.causal)
        weft_causal_blocks_fill_row(p, a, r, x);
    if (latents && !whole)
        fill_latents(p, a, x, latents);
    for (int64_t i = 0; sound && i < p->shape.sound_floats; i++)
        sound[i] = (float)a->level->in * x[p->shape.latent_floats + i];
    if (guidance)
        *guidance = (float)(1000 * p->options.guidance);
    if (!whole)
        fill_times(p, a, r);
    fill_visual(p, a, r, prompt);
    fill_history(p, a, r);
    fill_sizes(p, a, r);
    fill_identity(p, a, r, prompt);
}
