#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/guided_option.h"
#include "cli/lora_option.h"
#include "cli/parallel_choice.h"
#include "cli/parallel_option.h"
#include "cli/tile_option.h"
#include "cli/videos_option.h"
#include "cli/weights_option.h"
#include "generate/production.h"
#include "plan/cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_status read_jobs(const weft_args *args, weft_jobs *jobs)
{
    int count;
    const char *const *given = weft_args_list(args, "--prompt", &count);
    int64_t seed;
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_jobs_add(jobs, given[i], (int64_t)strlen(given[i]), "--prompt", i + 1));
    if (weft_args_string(args, "--prompts"))
        WEFT_TRY(weft_jobs_read(jobs, weft_args_string(args, "--prompts")));
    (void)weft_args_list(args, "--decode", &count);
    if (jobs->count == 0 && !count)
        return weft_fail(WEFT_E_ARG, "give at least one --prompt TEXT, or --prompts FILE");
    if (jobs->count && count)
        return weft_fail(WEFT_E_ARG, "--decode makes videos of latents alone, and takes no prompt");
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX / 2, &seed));
    for (int64_t i = 0; i < jobs->count; i++)
        if (!jobs->at[i].seeded)
            jobs->at[i].seed = (uint64_t)(seed + i);
    return WEFT_OK;
}

static weft_status refuse_name(const char *option, const char *name, const weft_buf *known)
{
    return weft_fail(WEFT_E_ARG, "%s %s: known are %s", option, name,
                     known->data ? known->data : "?");
}

/* The rows of the tables of samplers and of guidance; an empty name leaves it to the model. */
static weft_status find_rows(const weft_args *args, weft_generator_options *o)
{
    const char *name = weft_args_string(args, "--sampler");
    const char *guide = weft_args_string(args, "--guide");
    weft_buf samplers = {0}, guides = {0};
    for (int i = 0; weft_samplers[i]; i++)
        weft_buf_printf(&samplers, "%s%s", i ? ", " : "", weft_samplers[i]->name);
    for (int i = 0; weft_guidances[i]; i++)
        weft_buf_printf(&guides, "%s%s", i ? ", " : "", weft_guidances[i]->name);
    o->sampler = weft_sampler_find(name);
    o->guide = weft_guidance_find(guide);
    weft_status_code status = WEFT_OK;
    if (name[0] && !o->sampler)
        status = refuse_name("--sampler", name, &samplers);
    else if (guide[0] && !o->guide)
        status = refuse_name("--guide", guide, &guides);
    else if (o->guidance_rescale > 0 && !guide[0])
        o->guide = weft_guidance_find("rescale");
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
        const long long pixels = strtoll(at, &end, 10);
        if (end == at || pixels < 0 || pixels > 16384 || *end != (i < 3 ? ',' : '\0'))
            return weft_fail(
                WEFT_E_ARG, "--outpaint %s: LEFT,TOP,RIGHT,BOTTOM in pixels, like 64,0,64,0", text);
        around[i] = pixels;
        at = end + 1;
    }
    return WEFT_OK;
}

static weft_status read_given(const weft_args *args, weft_generator_options *o)
{
    weft_given_files *g = &o->given;
    const char *fit = weft_args_string(args, "--fit"), *around;
    g->image = weft_args_string(args, "--image");
    g->last_image = weft_args_string(args, "--last-image");
    g->video = weft_args_string(args, "--video");
    g->mask = weft_args_string(args, "--mask");
    around = weft_args_string(args, "--outpaint");
    WEFT_TRY(weft_args_f64(args, "--strength", 0, 1, &o->strength));
    if (around)
        WEFT_TRY(read_outpaint(around, g->outpaint));
    if (strcmp(fit, "stretch") && strcmp(fit, "crop"))
        return weft_fail(WEFT_E_ARG, "--fit %s: known are stretch and crop", fit);
    g->fit = strcmp(fit, "crop") ? WEFT_FIT_STRETCH : WEFT_FIT_CROP;
    o->likeness.picture = weft_args_string(args, "--identity");
    o->likeness.module = weft_args_string(args, "--identity-module");
    WEFT_TRY(weft_args_f64(args, "--identity-scale", 0, 10, &o->likeness.scale));
    if (o->likeness.scale != 1 && !o->likeness.picture)
        return weft_fail(WEFT_E_ARG,
                         "--identity-scale %g: of which picture? Give it as --identity FILE",
                         o->likeness.scale);
    return WEFT_OK;
}

/* How videos are longer than the model makes them. */
static weft_status read_windows(const weft_args *args, weft_generator_options *o)
{
    const char *how = weft_args_string(args, "--windows");
    static const char *const alone[] = {"--noise", "--latents"};
    WEFT_TRY(weft_args_i64(args, "--window-overlap", 0, 100000, &o->window_overlap));
    o->continues = !strcmp(how, "continue");
    if (!o->continues && strcmp(how, "blend"))
        return weft_fail(WEFT_E_ARG, "--windows %s: known are blend and continue", how);
    if (!o->continues)
        return WEFT_OK;
    if (o->batch > 1)
        return weft_fail(WEFT_E_ARG,
                         "--windows continue --batch %lld: each video goes on from its own frames, "
                         "so they are made one at a time; leave --batch out",
                         (long long)o->batch);
    for (int i = 0; i < WEFT_COUNT(alone); i++)
        if (weft_args_flag(args, alone[i]))
            return weft_fail(WEFT_E_ARG,
                             "--windows continue: latents are those of each window, not of the "
                             "video: leave %s out; --keep-latents keeps a file of each",
                             alone[i]);
    return WEFT_OK;
}

static weft_status read_options(const weft_args *args, weft_generator_options *o)
{
    WEFT_TRY(weft_args_videos(args, o));
    WEFT_TRY(weft_args_i64(args, "--steps", 1, 10000, &o->steps));
    WEFT_TRY(weft_args_f64(args, "--shift", 0, 100, &o->shift));
    WEFT_TRY(weft_args_f64(args, "--guidance-rescale", 0, 1, &o->guidance_rescale));
    WEFT_TRY(weft_args_f64(args, "--guidance-low", 0, 100, &o->guidance_low));
    WEFT_TRY(weft_args_f64(args, "--boundary", 0, 1, &o->boundary));
    WEFT_TRY(weft_args_f64(args, "--eta", 0, 1, &o->eta));
    o->negative = weft_args_string(args, "--negative");
    WEFT_TRY(weft_args_f64(args, "--fps", 0, 1000, &o->fps));
    if (o->fps > 0 && o->fps < 0.01)
        return weft_fail(WEFT_E_ARG, "--fps %g: at least 0.01, or 0 for the rate as trained",
                         o->fps);
    WEFT_TRY(weft_args_i64(args, "--preview", 0, 10000, &o->preview));
    WEFT_TRY(read_windows(args, o));
    WEFT_TRY(read_given(args, o));
    WEFT_TRY(weft_args_guided(args, o->guided));
    o->cache = weft_args_string(args, "--cache");
    o->trace = weft_args_string(args, "--trace");
    if (o->trace)
        WEFT_TRY(weft_make_dirs(o->trace));
    return find_rows(args, o);
}

/* Where weights that are streamed and are not so in their files lie: beside what is made. */
static weft_status read_away(const weft_args *args, weft_arena *arena, weft_generator_options *o)
{
    const char *out = weft_args_string(args, "--out"), *slash = strrchr(out, '/');
    const size_t length = strlen(out);
    const bool file = length > 4 && !strcmp(out + length - 4, ".mp4");
    char *dir = weft_arena_strdup(arena, file && !slash ? "." : out);
    if (!dir)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a path");
    if (file && slash)
        dir[slash == out ? 1 : slash - out] = '\0';
    o->away = dir;
    return WEFT_OK;
}

static weft_status read_passes(const weft_args *args, weft_pass_switches *passes)
{
    int count;
    const char *const *text = weft_args_list(args, "--pass", &count);
    *passes = weft_pass_defaults;
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_pass_switch(passes, text[i]));
    return WEFT_OK;
}

/* All ranks were stopped by an interrupt of one. It is said before anybody leaves, because a
 * launcher ends the whole job when one of its processes ends. */
static weft_status leave_together(weft_comm *comm)
{
    if (weft_comm_rank(comm) == 0)
        weft_info("%s", weft_error_message());
    WEFT_TRY(weft_comm_barrier(comm));
    return weft_fail(WEFT_E_CANCELLED, "%s", "");
}

static weft_status produce(const weft_args *args, const weft_generator_options *o, weft_jobs *jobs,
                           weft_comm *comm, const weft_cluster *cluster)
{
    int given, decoded;
    const char *const *latents = weft_args_list(args, "--decode", &decoded);
    (void)weft_args_list(args, "--parallel", &given);
    const weft_production production = {.model = weft_args_string(args, "--model"),
                                        .out = weft_args_string(args, "--out"),
                                        .sheet = weft_args_string(args, "--sheet"),
                                        .raw = weft_args_flag(args, "--raw"),
                                        .latents = weft_args_flag(args, "--latents"),
                                        .keep = weft_args_flag(args, "--keep-latents"),
                                        .resume = weft_args_flag(args, "--resume"),
                                        .noise = weft_args_string(args, "--noise"),
                                        .apart = !given && !weft_args_string(args, "--config"),
                                        .options = o,
                                        .cluster = cluster->device.rates ? cluster : NULL,
                                        .jobs = jobs,
                                        .comm = comm};
    return decoded ? weft_production_decode(&production, latents, decoded)
                   : weft_production_run(&production);
}

/* What would do nothing is refused. */
static weft_status refuse_idle(const weft_args *args)
{
    static const char *const decoding[] = {"--model", "--decode", "--out",    "--sheet",
                                           "--raw",   "--tile",   "--memory", "--fps"};
    const weft_verb *verb = weft_verb_find("generate");
    int count;
    (void)weft_args_list(args, "--decode", &count);
    for (int i = 0; count && i < verb->option_count; i++) {
        const char *name = verb->options[i].name;
        bool used = !weft_args_flag(args, name);
        for (int k = 0; k < WEFT_COUNT(decoding); k++)
            used = used || !strcmp(name, decoding[k]);
        if (!used)
            return weft_fail(WEFT_E_ARG,
                             "%s: does nothing beside --decode, which makes videos of latents with "
                             "the VAE alone; leave it out",
                             name);
    }
    return WEFT_OK;
}

/* Rates tell seconds; prices without them only choose. */
static weft_status read_cluster(const weft_args *args, weft_arena *arena, weft_cluster *cluster)
{
    int layouts;
    const char *const *layout = weft_args_list(args, "--parallel", &layouts);
    bool chosen = !strcmp(weft_args_string(args, "--slices"), "auto");
    for (int i = 0; i < layouts; i++)
        chosen = chosen || !strcmp(layout[i], "auto");
    WEFT_TRY(weft_cluster_load(arena, weft_args_string(args, "--cluster"), cluster));
    if (weft_args_flag(args, "--cluster") && !chosen && !cluster->device.rates)
        return weft_fail(WEFT_E_ARG,
                         "--cluster: its prices choose a layout with --parallel auto, slices with "
                         "--slices auto; give one of them, a profile of weft profile (seconds are "
                         "told by it), or leave it out");
    return WEFT_OK;
}

static weft_status run_generate(const weft_args *args)
{
    weft_interrupt_catch();
    weft_jobs jobs = {0};
    weft_pass_switches passes;
    weft_parallel parallel;
    weft_cluster cluster;
    bool choose;
    weft_tile tile;
    weft_generator_options o = {.passes = &passes, .parallel = &parallel};
    weft_arena *arena = weft_arena_create();
    weft_comm *comm = NULL;
    weft_status_code status = WEFT_OK;
    if (!arena)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    WEFT_GO(refuse_idle(args));
    WEFT_GO(read_cluster(args, arena, &cluster));
    WEFT_GO(weft_args_layout(args, arena, &parallel, &choose));
    WEFT_GO(weft_args_slices(args, &parallel.slices));
    WEFT_GO(read_jobs(args, &jobs));
    WEFT_GO(read_options(args, &o));
    WEFT_GO(weft_args_tile(args, &tile, &o.tile, &o.memory));
    WEFT_GO(read_passes(args, &passes));
    WEFT_GO(weft_args_lora(args, arena, &o.adapters, &o.adapter_count));
    WEFT_GO(read_away(args, arena, &o));
    WEFT_GO(weft_comm_open_mpi(&comm));
    if (weft_comm_ranks(comm) == 1 && weft_args_flag(args, "--slices"))
        weft_warn("--slices: on one rank nothing is exchanged, so nothing is cut; leave it out, or "
                  "start ranks: mpirun -n N weft generate ...");
    o.batch = o.batch < jobs.count ? o.batch : jobs.count ? jobs.count : 1;
    if (choose)
        WEFT_GO(weft_args_choose_layout(args, arena, weft_args_string(args, "--model"), comm, &o,
                                        &parallel));
    WEFT_GO(weft_args_choose_slices(args, arena, weft_args_string(args, "--model"), comm, &o,
                                    &parallel));
    WEFT_GO(produce(args, &o, &jobs, comm, &cluster));
    if (weft_comm_rank(comm) == 0)
        printf("%s%s%s\n", weft_args_string(args, "--out"),
               weft_args_string(args, "--sheet") ? "\n" : "",
               weft_args_string(args, "--sheet") ? weft_args_string(args, "--sheet") : "");
out:
    if (status == WEFT_E_CANCELLED)
        status = leave_together(comm);
    else if (status != WEFT_OK)
        weft_comm_give_up(comm); /* the others need not wait for this rank */
    weft_comm_free(comm);
    weft_arena_free(arena);
    weft_jobs_free(&jobs);
    return status;
}

static const weft_option options[] = {
    {.name = "--model",
     .value_name = "DIR",
     .help = "model folder, as weft train writes it or as published for diffusers: transformer/, "
             "text_encoder/, tokenizer/, vae/, scheduler/",
     .required = true},
    {.name = "--prompt",
     .value_name = "TEXT",
     .help = "what to show; may be given several times",
     .repeated = true},
    {.name = "--prompts",
     .value_name = "FILE",
     .help = "prompts, one a line (# begins a comment), or lines of JSON: {\"prompt\": ..., and if "
             "wanted \"negative\", \"seed\", \"frames\", \"height\", \"width\", \"steps\", "
             "\"guidance\", \"out\" (a name below --out)}"},
    {.name = "--resume",
     .help = "goes on where this command was stopped or killed: videos that are there stay, what "
             "was denoised is decoded, what was being denoised goes on to the same bits"},
    {.name = "--negative",
     .value_name = "TEXT",
     .fallback = "",
     .help = "what guidance leads away from; empty: the empty prompt"},
    {.name = "--image",
     .value_name = "FILE",
     .help = "the frame that the video begins with, for models that are told one (listed below)"},
    {.name = "--last-image",
     .value_name = "FILE",
     .help = "the frame that it ends with, for models that are told one"},
    {.name = "--identity",
     .value_name = "FILE",
     .help = "a picture of what the video is to be of, wherever that stands in it, for models with "
             "an identity encoder, as weft train makes one (identity: in its config)"},
    {.name = "--identity-scale",
     .value_name = "S",
     .fallback = "1",
     .help = "how much the picture tells: 0 nothing, 1 as trained"},
    {.name = "--identity-module",
     .value_name = "DIR",
     .help = "folder of that encoder; left out: identity in --model"},
    {.name = "--video",
     .value_name = "FILE",
     .help = "a video, or a picture, that is made over, with any model"},
    {.name = "--strength",
     .value_name = "S",
     .fallback = "0",
     .help =
         "share of the steps that are gone with --video: at 1 little is left of it; 0: 0.8, and "
         "1 with --mask or --outpaint"},
    {.name = "--mask",
     .value_name = "FILE",
     .help =
         "of --video, a picture or a video: what is white is painted anew, what is black stays"},
    {.name = "--outpaint",
     .value_name = "L,T,R,B",
     .help = "so many pixels to the left of --video, above it, to the right, below are made; the "
             "video fills the rest"},
    {.name = "--fit",
     .value_name = "HOW",
     .fallback = "stretch",
     .help = "pictures of another aspect: stretch, as the reference pipelines do, or crop, the "
             "middle"},
    {.name = "--window",
     .value_name = "N",
     .fallback = "0",
     .help = "frames that are denoised together: longer videos than the model was trained for are "
             "made in overlapping windows, blended in every step; 0: all"},
    {.name = "--window-overlap",
     .value_name = "M",
     .fallback = "0",
     .help = "frames that two windows share; 0: about a quarter, and 1 with --windows continue"},
    {.name = "--windows",
     .value_name = "HOW",
     .fallback = "blend",
     .help = "blend: all windows are denoised together, and what they answer is blended in every "
             "step, with any model; continue: one behind the other, each beginning with the last "
             "frames of the one before, with models that are told frames (listed below): memory "
             "of one window for any length"},
    {.name = "--out",
     .value_name = "PATH",
     .fallback = "generated",
     .help = "an .mp4 for one prompt, else a folder"},
    {.name = "--sheet",
     .value_name = "FILE.png",
     .help = "also write a contact sheet, one row a prompt"},
    {.name = "--raw",
     .help = "also write the model's own numbers beside each video: f32 (frames, height, width, 3) "
             "in [-1,1], .npy"},
    {.name = "--latents",
     .help = "also write what was denoised, before it is decoded: f32 (frames, rows, columns, "
             "channels), normalised, .latents.npy"},
    {.name = "--preview",
     .value_name = "EVERY",
     .fallback = "0",
     .help = "behind every so many steps a picture of the middle of the video as it is seen then, "
             "beside it as .preview.png; 0: none"},
    {.name = "--trace",
     .value_name = "DIR",
     .help = "writes when each kernel and exchange of the last denoising step ran, as "
             "DIR/trace-<rank>.json, for Perfetto and for weft simulate DIR/trace-*.json"},
    {.name = "--keep-latents",
     .help = "what was denoised, which is written before it is decoded, stays beside the video as "
             ".latents.safetensors"},
    {.name = "--decode",
     .value_name = "FILE",
     .help = "only decodes such latents, with the VAE of --model alone; several go to a folder",
     .repeated = true},
    {.name = "--noise",
     .value_name = "FILE.npy",
     .help = "begin with these latents instead of a seed's noise: f32, of the shape that --latents "
             "writes; of several prompts one behind the other"},
    {.name = "--seed",
     .value_name = "N",
     .fallback = "0",
     .help = "of the first prompt; the next ones take N+1, N+2, ..."},
    {.name = "--steps", .value_name = "N", .fallback = "30", .help = "denoising steps"},
    {.name = "--guidance",
     .value_name = "G",
     .fallback = "4",
     .help = "classifier-free guidance scale; 1 switches it off and halves the work"},
    {.name = "--guide",
     .value_name = "NAME",
     .fallback = "",
     .help = "how the guidance scale is used, listed below; empty: cfg"},
    {.name = "--guidance-rescale",
     .value_name = "R",
     .fallback = "0",
     .help = "share of the answer that is brought back to its deviation without guidance"},
    {.name = "--guidance-low",
     .value_name = "G",
     .fallback = "0",
     .help = "guidance scale below --boundary (Wan 2.2: of the expert of low noise); 0: the same"},
    {.name = "--boundary",
     .value_name = "B",
     .fallback = "0",
     .help = "part of the times (0..1) below which transformer_2 works, where there is one, and "
             "--guidance-low is the scale; 0: the model's own, or nowhere"},
    WEFT_GUIDED_OPTIONS,
    {.name = "--cache",
     .value_name = "RULE",
     .fallback = "off",
     .help = "steps take again what blocks added in a step before, where little has changed: off, "
             "conservative or fast (thresholds of the model's family), or a rule, listed in "
             "docs/generation.md: block:T, teacache:T, every:N, attention:N"},
    {.name = "--sampler",
     .value_name = "NAME",
     .fallback = "",
     .help = "one of the samplers listed below; empty: what the model's scheduler says"},
    {.name = "--eta",
     .value_name = "E",
     .fallback = "0",
     .help = "noise that sampler ddim adds in each step: 0 none, 1 as much as ddpm"},
    {.name = "--shift",
     .value_name = "S",
     .fallback = "0",
     .help = "noise schedule shift; 0 takes the model's"},
    {.name = "--frames",
     .value_name = "N",
     .fallback = "0",
     .help = "frames that the autoencoder takes (Wan: 1 + 4 n); 0: as trained"},
    {.name = "--height",
     .value_name = "N",
     .fallback = "0",
     .help = "pixels, a multiple of what a token covers; 0: as trained"},
    {.name = "--width",
     .value_name = "N",
     .fallback = "0",
     .help = "pixels, a multiple of what a token covers; 0: as trained"},
    {.name = "--fps",
     .value_name = "F",
     .fallback = "0",
     .help = "frame rate of the files, and what published models that take one are told (Cosmos, "
             "LTX, STDiT3); 0: as trained"},
    WEFT_WEIGHTS_OPTION,
    WEFT_LORA_OPTION,
    {.name = "--pass",
     .value_name = "NAME=off",
     .help = "leaves out a pass over the graphs (weft inspect graph --passes lists them)",
     .repeated = true},
    {.name = "--parallel",
     .value_name = "KEY=VALUE",
     .help = "how ranks split the work: cfg, dp, fsdp, tp, sequence, cp, context, order of a "
             "training config's section parallel (tp=2, context=ring); cfg=2 splits the guidance "
             "halves, dp, what is left, the prompts of each; auto: what costs least by the prices "
             "of weft plan generate",
     .repeated = true},
    {.name = "--slices",
     .value_name = "SPEC",
     .fallback = "",
     .help =
         "in how many parts is exchanged what runs behind kernels: heads=N, with cp, attention's "
         "heads in groups; chunks=N, with tp, products' tokens; of models with spatial and "
         "temporal layers, with cp, how many slices a layer is cut into and of how many parts "
         "are exchanged a layer ahead: time=4,space=4,lift_time=1,lift_space=3; what it is: "
         "those, heads=1,chunks=1; off; or auto (also for one: heads=auto): what costs least "
         "by the same prices as --parallel auto"},
    WEFT_LAYOUT_OPTIONS,
    {.name = "--batch",
     .value_name = "N",
     .fallback = "1",
     .help = "prompts denoised together: faster, more memory"},
    WEFT_TILE_OPTIONS,
};

const weft_verb weft_verb_generate = {
    .name = "generate",
    .summary = "make videos from prompts, images and videos",
    .usage = "--model DIR --prompt TEXT [--out FILE.mp4] [options]",
    .details =
        "Says the predicted peak of memory before it starts, shows each denoising step, and\n"
        "decodes the latents as a stream, one latent frame at a time: memory for decoding does\n"
        "not grow with the number of frames. A picture that is too large for the memory is "
        "decoded\n"
        "in tiles (--tile), under mpirun by all ranks; what does not fit even so is refused "
        "before\n"
        "the first step.\n"
        "\n"
        "Beside a prompt a model may be given a first frame (--image) and a last one, as listed\n"
        "below; any model makes a video over (--video, --strength), a part of it (--mask), or "
        "what\n"
        "is around it (--outpaint), and videos longer than it was trained for (--window).\n"
        "\n"
        "Prompt, seed, steps and guidance are stored in the mp4's metadata (ffprobe shows them).\n"
        "The noise of a video depends on its seed alone. The same seed gives the same video: bit\n"
        "for bit with the same --batch, to 1e-5 of the numbers with another, where sums are taken\n"
        "in another order. Under mpirun the denoising batch (prompts x guidance halves) is split\n"
        "over the ranks, or with --parallel the transformer too; the numbers that --raw writes\n"
        "agree with those of one rank to 1e-5.\n"
        "\n"
        "A folder as --out gets 0000.mp4, 0001.mp4, ... and prompts.jsonl, a line for each video\n"
        "with its prompt, seed, settings and seconds as soon as it is whole. Videos of one size,\n"
        "steps and guidance are denoised --batch together. Under mpirun without --parallel each\n"
        "rank makes videos of its own where there is a batch for each.\n"
        "\n"
        "While a video is denoised its walk is kept in .walk.safetensors beside it, before it is\n"
        "decoded its latents in .latents.safetensors; Ctrl-C, a kill or a decoding that does not\n"
        "fit lose nothing: the same command with --resume goes on.",
    .examples =
        "weft generate --model demo/dit/model --prompt \"a red circle moving left\" --out "
        "red.mp4 --sheet red.png\n"
        "weft generate --model Wan2.1-I2V --image first.png --prompt \"the dog runs\" --frames "
        "81 --height 480 --width 832 --out dog.mp4\n"
        "weft generate --model demo/dit/model --video red.mp4 --mask left.png --prompt \"a "
        "blue square\" --out both.mp4\n"
        "mpirun -n 2 weft generate --model demo/dit/model --prompts prompts.txt --out "
        "videos --batch 4\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .more = weft_help_generate,
    .min_positional = 0,
    .max_positional = 0,
    .run = run_generate,
};
