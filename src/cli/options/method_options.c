/* Reads the options of the work of a video into the struct of the generator. */
#include "cli/options/method_options.h"

#include "base/config.h"
#include "base/log.h"
#include "cli/options/args.h"
#include "cli/options/videos_option.h"

#include <stdlib.h>
#include <string.h>

/* Reads a number from 0 to `most` whose default depends on the model or on other options. */
static weft_status read_given(const weft_args *args, const char *option, double most,
                              weft_given_number *number)
{
    number->given = weft_args_flag(args, option);
    return number->given ? weft_args_f64(args, option, 0, most, &number->value) : WEFT_OK;
}

static weft_status refuse_name(const char *option, const char *name, const weft_buf *known)
{
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option, .value = name),
                      "'%.80s' is unknown; use one of %s", name, known->data ? known->data : "?");
}

/* Finds the rows of the sampler and guidance tables. Empty name: the model's default. */
static weft_status find_rows(const weft_args *args, weft_generator_options *o)
{
    const char *name = weft_args_string(args, "--sampler");
    const char *guidance = weft_args_string(args, "--guidance-method");
    weft_buf samplers = {0}, guides = {0};
    for (int i = 0; weft_samplers[i]; i++)
        weft_buf_printf(&samplers, "%s%s", i ? ", " : "", weft_samplers[i]->name);
    for (int i = 0; weft_guidances[i]; i++)
        weft_buf_printf(&guides, "%s%s", i ? ", " : "", weft_guidances[i]->name);
    o->sampler = weft_sampler_find(name);
    if (weft_guidance_renamed(guidance)) {
        weft_notice(WEFT_MSG_OPTION_RENAMED, WEFT_NOWHERE,
                    "`--guidance-method %s` replaces `--guidance-method %s`",
                    weft_guidance_renamed(guidance), guidance);
        guidance = weft_guidance_renamed(guidance);
    }
    o->guidance_method = weft_guidance_find(guidance);
    weft_status_code status = WEFT_OK;
    if (name[0] && !o->sampler)
        status = refuse_name("--sampler", name, &samplers);
    else if (guidance[0] && !o->guidance_method)
        status = refuse_name("--guidance-method", guidance, &guides);
    else if ((o->guidance_rescale > 0 || o->audio_guidance_rescale.value > 0) && !guidance[0])
        o->guidance_method = weft_guidance_find("rescale");
    weft_buf_free(&samplers);
    weft_buf_free(&guides);
    return status;
}

/* LEFT,TOP,RIGHT,BOTTOM */
static weft_status read_outpaint(const char *text, int64_t around[4])
{
    const char *at = text;
    for (int i = 0; i < 4; i++) {
        char *end;
        const int64_t pixels = strtoll(at, &end, 10);
        if (end == at || pixels < 0 || pixels > 16384 || *end != (i < 3 ? ',' : '\0'))
            return weft_error(
                WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--outpaint", .value = text),
                "'%.80s' is not LEFT,TOP,RIGHT,BOTTOM in pixels from 0 to 16384, such as 64,0,64,0",
                text);
        around[i] = pixels;
        at = end + 1;
    }
    return WEFT_OK;
}

/* Sets the video whose last frames begin the generated one, in place of a video to change. */
static weft_status read_given_frames(const weft_args *args, weft_generator_options *o)
{
    weft_visual_inputs *g = &o->visual;
    WEFT_TRY(weft_args_i64(args, "--given-frames", 0, 100000, &g->before_frames));
    if (!g->before_frames)
        return WEFT_OK;
    if (!g->video)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--given-frames", WEFT_NUMBER(g->before_frames)),
                          "%" PRId64 " has no effect without a video. Give it with --video FILE.",
                          g->before_frames);
    if (strcmp(weft_args_string(args, "--window-mode"), "blend"))
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--given-frames", WEFT_NUMBER(g->before_frames)),
                          "windows that continue each other have --window-overlap frames of the "
                          "one before. Omit --given-frames.");
    g->before = g->video;
    g->video = NULL;
    return WEFT_OK;
}

/* Reads the coarse video, which has the number of frames unless --frames is given. */
static weft_status read_refinement(const weft_args *args, weft_generator_options *o)
{
    static const char *const own[] = {"--refine-level", "--refine-frames"};
    weft_coarse_video *coarse = &o->visual.coarse;
    const char *sparse = weft_args_string(args, "--block-sparse");
    o->block_sparse = !strcmp(sparse, "on")    ? WEFT_BLOCK_SPARSE_ON
                      : !strcmp(sparse, "off") ? WEFT_BLOCK_SPARSE_OFF
                                               : WEFT_BLOCK_SPARSE_CONFIG;
    *coarse = (weft_coarse_video){.file = weft_args_string(args, "--refine"),
                                  .same_frames =
                                      !strcmp(weft_args_string(args, "--refine-frames"), "same")};
    for (int i = 0; i < WEFT_COUNT(own) && !coarse->file; i++)
        if (weft_args_flag(args, own[i]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = own[i]),
                              "the option has no effect without a coarse video. Give it with "
                              "--refine FILE.");
    if (!coarse->file)
        return WEFT_OK;
    if (weft_args_flag(args, "--refine-level"))
        WEFT_TRY(weft_args_f64(args, "--refine-level", 0.001, 1, &o->refine_level));
    if (!weft_args_flag(args, "--guidance-scale"))
        o->guidance = 1;
    return o->frames ? WEFT_OK : weft_refinement_size(coarse, &o->frames);
}

static weft_status read_visual_inputs(const weft_args *args, weft_generator_options *o)
{
    weft_visual_inputs *g = &o->visual;
    const char *fit = weft_args_string(args, "--fit"), *around;
    g->image = weft_args_string(args, "--image");
    g->more_image = weft_args_list(args, "--image", &g->more_images);
    if (g->more_images) { /* without the first one */
        g->more_image++;
        g->more_images--;
    }
    g->last_image = weft_args_string(args, "--last-image");
    g->video = weft_args_string(args, "--video");
    g->control = weft_args_string(args, "--control");
    g->face = weft_args_string(args, "--face");
    g->mask = weft_args_string(args, "--mask");
    around = weft_args_string(args, "--outpaint");
    WEFT_TRY(weft_args_f64(args, "--strength", 0, 1, &o->strength));
    if (around)
        WEFT_TRY(read_outpaint(around, g->outpaint));
    if (strcmp(fit, "stretch") && strcmp(fit, "crop"))
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--fit", .value = fit),
                          "'%.80s' is unknown; use stretch or crop", fit);
    g->fit = strcmp(fit, "crop") ? WEFT_FIT_STRETCH : WEFT_FIT_CROP;
    WEFT_TRY(read_given_frames(args, o));
    WEFT_TRY(read_refinement(args, o));
    o->identity.image = weft_args_list(args, "--identity-image", &o->identity.images);
    o->identity.module = weft_args_string(args, "--identity-encoder");
    WEFT_TRY(weft_args_f64(args, "--identity-scale", 0, 10, &o->identity.scale));
    WEFT_TRY(weft_args_f64(args, "--control-scale", 0.001, 10, &o->control_scale));
    g->reference = weft_args_list(args, "--reference-image", &g->references);
    if (o->control_scale != 1 && !g->control && !g->references)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--control-scale", WEFT_NUMBER(o->control_scale)),
                          "%g has no effect without --control FILE or --reference-image FILE",
                          o->control_scale);
    if (o->identity.scale != 1 && !o->identity.images)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--identity-scale", WEFT_NUMBER(o->identity.scale)),
                          "%g has no effect without --identity-image FILE", o->identity.scale);
    return WEFT_OK;
}

/* Reads the options of videos that are longer than the model generates at once. */
static weft_status read_windows(const weft_args *args, weft_generator_options *o)
{
    const char *how = weft_args_string(args, "--window-mode");
    WEFT_TRY(weft_args_i64(args, "--window-overlap", 0, 100000, &o->window_overlap));
    o->no_kv_cache = !strcmp(weft_args_string(args, "--kv-cache"), "off");
    WEFT_TRY(read_given(args, "--context-noise", 1000, &o->context_noise));
    const char *order = weft_args_string(args, "--sections");
    o->sections_forward = !strcmp(order, "forward");
    o->sections_reverse = !strcmp(order, "reverse");
    WEFT_TRY(weft_args_i64(args, "--frame-lag", 0, 10000, &o->frame_lag));
    WEFT_TRY(weft_args_i64(args, "--block-frames", 0, 1024, &o->block_frames));
    WEFT_TRY(weft_args_i64(args, "--reasoning-frames", 0, 100000, &o->reasoning_frames));
    WEFT_TRY(weft_args_i64(args, "--reasoning-steps", 0, 10000, &o->reasoning_steps));
    o->continues = !strcmp(how, "continue");
    o->chains = !strcmp(how, "history");
    if (!o->continues && !o->chains && strcmp(how, "blend"))
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--window-mode", .value = how),
                          "'%.80s' is unknown; use blend, continue or history", how);
    if (!o->continues)
        return WEFT_OK;
    if (o->batch > 1)
        return weft_error(
            WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--batch-size", WEFT_NUMBER(o->batch)),
            "--window-mode continue generates one video at a time, because each window "
            "continues from its own frames; remove --batch-size %" PRId64,
            o->batch);
    return WEFT_OK;
}

/* Reads a list such as 999,750,500 into `arena`. Each number is below the one before. */
static weft_status read_falling(const char *option, const char *text, weft_arena *arena,
                                double **out, int64_t *count)
{
    char *copy = weft_arena_strdup(arena, text), *at, *next;
    int64_t items = 1;
    for (const char *c = text; *c; c++)
        items += *c == ',';
    WEFT_TRY(WEFT_ALLOCATED(copy, "%s", option));
    WEFT_TRY(WEFT_ARENA_NEW(arena, *out, items, "%s", option));
    *count = 0;
    for (at = copy; at; at = next) {
        double *value = &(*out)[*count];
        next = strchr(at, ',');
        if (next)
            *next++ = '\0';
        if (!weft_parse_f64(at, value) || *value < 0)
            return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option, .value = at),
                              "'%.40s' is not a number of at least 0; write a list such as "
                              "999,750,500",
                              at);
        if (*count && *value >= value[-1])
            return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option, WEFT_NUMBER(*value)),
                              "%g follows %g; the list must fall", *value, value[-1]);
        ++*count;
    }
    return WEFT_OK;
}

static weft_status read_schedule(const weft_args *args, weft_arena *arena,
                                 weft_generator_options *o)
{
    const char *sigmas = weft_args_string(args, "--sigmas"),
               *times = weft_args_string(args, "--timesteps"),
               *option = sigmas ? "--sigmas" : "--timesteps";
    weft_timestep_schedule *to = &o->timestep_schedule;
    double *value;
    if (!sigmas && !times)
        return WEFT_OK;
    if (sigmas && times)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--timesteps"),
                          "--sigmas also gives the schedule; remove one of the two");
    if (weft_args_flag(args, "--steps"))
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--steps"),
                          "%s has one number per step; remove --steps", option);
    WEFT_TRY(read_falling(option, sigmas ? sigmas : times, arena, &value, &to->count));
    to->ends = sigmas && value[to->count - 1] == 0;
    to->count -= to->ends;
    if (!to->count)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option, .value = sigmas),
                          "the list has no level above 0");
    to->sigmas = sigmas ? value : NULL;
    to->timesteps = sigmas ? NULL : value;
    o->steps = to->count;
    return WEFT_OK;
}

/* Reads the steps of each size of latents, such as 10,10,10. */
static weft_status read_stage_steps(const weft_args *args, weft_generator_options *o)
{
    const char *text = weft_args_string(args, "--stage-steps"), *at = text;
    o->doubles_first_section = !strcmp(weft_args_string(args, "--first-section-steps"), "double");
    if (!text)
        return WEFT_OK;
    if (weft_args_flag(args, "--steps"))
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--steps"),
                          "--stage-steps has the steps of each size; remove --steps");
    for (; *at && o->stage_count < WEFT_MAX_STAGES; o->stage_count++) {
        char *end;
        const int64_t steps = strtoll(at, &end, 10);
        if (end == at || steps < 1 || steps > 10000 || (*end && *end != ','))
            break;
        o->stage_steps[o->stage_count] = steps;
        at = end + (*end == ',' && end[1]);
    }
    o->steps = 0;
    for (int64_t i = 0; i < o->stage_count; i++)
        o->steps += o->stage_steps[i];
    return *at ? weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--stage-steps", .value = text),
                            "'%.40s' is not a list of at most %d numbers from 1 to 10000, such as "
                            "10,10,10",
                            text, WEFT_MAX_STAGES)
               : WEFT_OK;
}

/* The generator counts 0 as the model's own number. */
static weft_status read_own_steps(const weft_args *args, const char *option, int64_t *steps)
{
    if (!weft_args_flag(args, option))
        return WEFT_OK;
    WEFT_TRY(weft_args_i64(args, option, 0, 10000, steps));
    *steps = *steps ? *steps : -1;
    return WEFT_OK;
}

/* Reads a list such as 28,29. */
static weft_status read_blocks(const char *text, weft_generator_options *o)
{
    int count = 0;
    o->stg_blocks_given = text != NULL;
    for (const char *at = text; at; count++) {
        char *end = NULL;
        const long long block = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (block < 0 || block > 4096 || count == WEFT_MAX_STG_BLOCKS || (*end && *end != ','))
            return weft_error(WEFT_MSG_OPTION_INVALID,
                              WEFT_AT(.key = "--stg-blocks", .value = text),
                              "'%.80s' is not a list of up to %d blocks from 0; write 28 or 28,29",
                              text, WEFT_MAX_STG_BLOCKS);
        o->stg_blocks[count] = block;
        at = *end ? end + 1 : NULL;
    }
    o->stg_blocks[count] = -1;
    return WEFT_OK;
}

static weft_status read_scales(const weft_args *args, weft_generator_options *o)
{
    WEFT_TRY(weft_args_f64(args, "--true-cfg-scale", 0, 100, &o->true_cfg));
    WEFT_TRY(weft_args_f64(args, "--guidance-rescale", 0, 1, &o->guidance_rescale));
    WEFT_TRY(read_given(args, "--audio-guidance-scale", 100, &o->audio_guidance));
    WEFT_TRY(read_given(args, "--audio-guidance-rescale", 1, &o->audio_guidance_rescale));
    WEFT_TRY(weft_args_f64(args, "--stg-scale", 0, 100, &o->stg_scale));
    WEFT_TRY(read_given(args, "--audio-stg-scale", 100, &o->audio_stg_scale));
    WEFT_TRY(read_given(args, "--modality-scale", 100, &o->modality_scale));
    WEFT_TRY(read_given(args, "--audio-modality-scale", 100, &o->audio_modality_scale));
    WEFT_TRY(read_blocks(weft_args_string(args, "--stg-blocks"), o));
    WEFT_TRY(read_given(args, "--guidance-scale-2", 100, &o->guidance_low));
    WEFT_TRY(read_given(args, "--boundary-ratio", 1, &o->boundary));
    return weft_args_guided(args, o->guided);
}

/* Checks the options whose values are a choice of two or three words. */
static weft_status check_choices(const weft_args *args)
{
    static const struct {
        const char *option, *word[3];
    } choices[] = {{"--refine-frames", {"double", "same"}},
                   {"--block-sparse", {"on", "off", "config"}},
                   {"--kv-cache", {"on", "off"}},
                   {"--sections", {"auto", "reverse", "forward"}},
                   {"--first-section-steps", {"same", "double"}}};
    for (int i = 0; i < WEFT_COUNT(choices); i++) {
        const char *given = weft_args_string(args, choices[i].option), *const *word =
                                                                           choices[i].word;
        bool known = false;
        for (int k = 0; k < WEFT_COUNT(choices->word) && word[k]; k++)
            known |= !strcmp(given, word[k]);
        if (!known)
            return weft_error(
                WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = choices[i].option, .value = given),
                "'%.80s' is unknown; use %s%s%s or %s", given, word[2] ? word[0] : "",
                word[2] ? ", " : "", word[2] ? word[1] : word[0], word[2] ? word[2] : word[1]);
    }
    return WEFT_OK;
}

weft_status weft_args_method(const weft_args *args, weft_arena *arena, weft_generator_options *o)
{
    WEFT_TRY(check_choices(args));
    WEFT_TRY(weft_args_videos(args, o));
    WEFT_TRY(weft_args_i64(args, "--steps", 0, 10000, &o->steps));
    WEFT_TRY(weft_args_f64(args, "--shift", 0, 100, &o->shift));
    WEFT_TRY(read_scales(args, o));
    WEFT_TRY(weft_args_i64(args, "--max-sequence-length", 0, 100000, &o->text_length));
    WEFT_TRY(weft_args_f64(args, "--eta", 0, 1, &o->eta));
    WEFT_TRY(weft_args_f64(args, "--decode-timestep", 0, 1, &o->decode_time.timestep));
    o->decode_time.noise = o->decode_time.timestep;
    if (weft_args_flag(args, "--decode-noise-scale"))
        WEFT_TRY(weft_args_f64(args, "--decode-noise-scale", 0, 1, &o->decode_time.noise));
    WEFT_TRY(read_stage_steps(args, o));
    WEFT_TRY(read_own_steps(args, "--zero-init-steps", &o->zero_steps));
    WEFT_TRY(read_own_steps(args, "--tail-steps", &o->tail_steps));
    WEFT_TRY(read_windows(args, o));
    WEFT_TRY(read_visual_inputs(args, o));
    o->cache = weft_args_string(args, "--feature-cache");
    WEFT_TRY(find_rows(args, o));
    return read_schedule(args, arena, o);
}

const char *weft_args_method_given(const weft_args *args, const weft_option *options, int count)
{
    static const char *const groups[] = {"conditioning", "size", "sampling", "guidance"};
    for (int i = 0; i < count; i++)
        for (int k = 0; options[i].group && k < WEFT_COUNT(groups); k++)
            if (!strcmp(options[i].group, groups[k]) && weft_args_flag(args, options[i].name))
                return options[i].name;
    return NULL;
}
