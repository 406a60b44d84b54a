/* Reads the options of `weft generate` into the structs of the generator. */
#include "cli/options/generate_read.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/options/args.h"
#include "cli/options/method_options.h"
#include "generate/jobs/video_outputs.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_generate_jobs(const weft_args *args, weft_jobs *jobs)
{
    int count;
    const char *const *prompts = weft_args_list(args, "--prompt", &count);
    int64_t seed;
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_jobs_add(jobs, prompts[i], (int64_t)strlen(prompts[i]), "--prompt", i + 1));
    if (weft_args_string(args, "--prompts"))
        WEFT_TRY(weft_jobs_read(jobs, weft_args_string(args, "--prompts")));
    (void)weft_args_list(args, "--decode-latents", &count);
    if (jobs->count == 0 && !count)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--prompt"),
                          "give at least one --prompt TEXT, or --prompts FILE");
    if (jobs->count && count)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--decode-latents"),
                          "this option decodes latents without a prompt; remove it or the prompts");
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX / 2, &seed));
    for (int64_t i = 0; i < jobs->count; i++)
        if (!jobs->at[i].seeded)
            jobs->at[i].seed = (uint64_t)(seed + i);
    return WEFT_OK;
}

/* The array of latents, which a video of continued windows does not have. */
static weft_status check_arrays(const weft_args *args)
{
    return weft_args_flag(args, "--latents-npy")
               ? weft_error(
                     WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--latents-npy"),
                     "with --window-mode continue each window has its own latents, and the video "
                     "has none; remove this option, or use --save-latents to keep the latents of "
                     "each window")
               : WEFT_OK;
}

weft_status weft_generate_read(const weft_args *args, weft_arena *arena, weft_generator_options *o)
{
    WEFT_TRY(weft_args_method(args, arena, o));
    o->negative = weft_args_string(args, "--negative-prompt");
    WEFT_TRY(weft_args_f64(args, "--fps", 0, 1000, &o->fps));
    if (o->fps > 0 && o->fps < 0.01)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--fps", WEFT_NUMBER(o->fps)),
                          "%g is below 0.01; use at least that, or 0 for the rate of the training",
                          o->fps);
    WEFT_TRY(weft_args_i64(args, "--preview-interval", 0, 10000, &o->preview));
    if (o->continues)
        WEFT_TRY(check_arrays(args));
    if (weft_args_flag(args, "--split-states") && strcmp(o->cache, "off") != 0)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--split-states"),
                          "the cache of --feature-cache belongs to a batch; remove one of the two "
                          "options");
    o->trace = weft_args_string(args, "--trace");
    return o->trace ? weft_make_dirs(o->trace) : WEFT_OK;
}

/* Sets the folder for streamed weights whose files cannot be streamed directly: the output
 * folder. */
weft_status weft_generate_offload_dir(const weft_args *args, weft_arena *arena,
                                      weft_generator_options *o)
{
    const char *out = weft_args_string(args, "--out"), *slash = strrchr(out, '/');
    const bool file = weft_video_outputs_is_file(out);
    char *dir = weft_arena_strdup(arena, file && !slash ? "." : out);
    WEFT_TRY(WEFT_ALLOCATED(dir, "a path"));
    if (file && slash)
        dir[slash == out ? 1 : slash - out] = '\0';
    o->offload_dir = dir;
    return WEFT_OK;
}

weft_status weft_generate_passes(const weft_args *args, weft_pass_switches *passes)
{
    int count;
    const char *const *text = weft_args_list(args, "--pass", &count);
    *passes = weft_pass_defaults;
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_pass_switch(passes, text[i]));
    return WEFT_OK;
}

/* Rejects options that have no effect. */
weft_status weft_generate_refuse_idle(const weft_args *args)
{
    static const char *const decoding[] = {
        "--model",    "--decode-latents", "--out",          "--sheet", "--frames-npy",
        "--vae-tile", "--vae-precision",  "--memory-limit", "--fps",   "--backend"};
    const weft_verb *verb = weft_verb_find("generate");
    int count;
    (void)weft_args_list(args, "--decode-latents", &count);
    for (int i = 0; count && i < verb->option_count; i++) {
        const char *name = verb->options[i].name;
        bool used = !weft_args_flag(args, name);
        for (int k = 0; k < WEFT_COUNT(decoding); k++)
            used = used || !strcmp(name, decoding[k]);
        if (!used)
            return weft_error(
                WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = name),
                "this option has no effect with --decode-latents, which only decodes latents "
                "with the VAE; remove it");
    }
    return WEFT_OK;
}

/* Reads the cluster. Measured rates predict seconds; costs without rates only rank the choices. */
weft_status weft_generate_cluster(const weft_args *args, weft_arena *arena, weft_cluster *cluster)
{
    int layouts;
    const char *const *layout = weft_args_list(args, "--parallel", &layouts);
    bool has_auto = !strcmp(weft_args_string(args, "--comm-overlap"), "auto") ||
                    !strcmp(weft_args_string(args, "--precision"), "auto");
    for (int i = 0; i < layouts; i++)
        has_auto = has_auto || !strcmp(layout[i], "auto");
    WEFT_TRY(weft_cluster_load(arena, weft_args_string(args, "--on"), cluster));
    if (weft_args_flag(args, "--on") && !has_auto && !cluster->device.rates)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--on"),
                          "this option has no effect here; use it with --parallel auto, with "
                          "--comm-overlap auto, with --precision auto, or with a profile of weft "
                          "profile for time estimates");
    return WEFT_OK;
}
