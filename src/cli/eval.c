#include "base/fs.h"
#include "cli/eval_savings.h"
#include "cli/guided_option.h"
#include "cli/lora_option.h"
#include "cli/parallel_choice.h"
#include "cli/tile_option.h"
#include "cli/weights_option.h"
#include "generate/evaluate.h"
#include "generate/gallery.h"
#include "generate/quality.h"

#include <stdio.h>
#include <string.h>

static weft_status finish(const weft_args *args, json_t *result)
{
    const char *path = weft_args_string(args, "--json");
    const weft_status_code status = path ? weft_json_save(path, result) : WEFT_OK;
    json_decref(result);
    return status;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void print_vae(const json_t *r)
{
    char psnr[2][32];
    printf("VAE over %lld clips (%lld left out): PSNR %s dB, SSIM %.4f; box averages of the same "
           "size: %s dB, %.4f\n",
           (long long)number(r, "clips"), (long long)number(r, "skipped"),
           weft_psnr_text(json_object_get(r, "psnr"), psnr[0]), number(r, "ssim"),
           weft_psnr_text(json_object_get(r, "box_psnr"), psnr[1]), number(r, "box_ssim"));
    if (number(r, "identical") > 0)
        printf("%lld clips are identical to their reconstruction and are not in the mean PSNR\n",
               (long long)number(r, "identical"));
}

/* Ranks take clips of their own; rank 0 has the figures of all. */
static weft_status eval_vae_over(const weft_args *args, weft_arena *arena, weft_vae_eval_options *o)
{
    weft_parallel parallel;
    bool choose;
    json_t *r = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_args_layout(args, arena, &parallel, &choose)); /* auto: clips over dp */
    o->parallel = &parallel;
    WEFT_TRY(weft_comm_open_mpi(&o->comm));
    WEFT_GO(weft_evaluate_vae(o, &r));
    if (r) {
        print_vae(r);
        WEFT_GO(finish(args, r));
    }
    status = weft_comm_barrier(o->comm);
out:
    if (status != WEFT_OK)
        weft_comm_give_up(o->comm);
    weft_comm_free(o->comm);
    return status;
}

/* The folder's vae/ if the folder is a whole model. */
static weft_status find_vae(weft_arena *arena, const char **model)
{
    char *config = weft_arena_printf(arena, "%s/config.json", *model),
         *inside = weft_arena_printf(arena, "%s/vae", *model);
    if (!config || !inside)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    if (weft_path_is_dir(inside) && !weft_path_exists(config))
        *model = inside;
    return WEFT_OK;
}

static weft_status eval_vae(const weft_args *args)
{
    weft_vae_eval_options o = {.vae = weft_args_string(args, "--model"),
                               .shards = weft_args_string(args, "--shards"),
                               .split = weft_args_string(args, "--split"),
                               .sheet = weft_args_string(args, "--sheet")};
    if (!o.shards)
        return weft_fail(WEFT_E_ARG, "eval vae needs --shards DIR, the clips to reconstruct");
    if (o.split && !*o.split)
        o.split = NULL;
    if (o.sheet)
        WEFT_TRY(weft_gallery_check_sheet(o.sheet));
    WEFT_TRY(weft_args_i64(args, "--frames", 1, 100000, &o.frames));
    WEFT_TRY(weft_args_i64(args, "--height", 8, 16384, &o.height));
    WEFT_TRY(weft_args_i64(args, "--width", 8, 16384, &o.width));
    WEFT_TRY(weft_args_f64(args, "--fps", 0, 1000, &o.fps));
    WEFT_TRY(weft_args_i64(args, "--limit", 0, INT64_MAX, &o.limit));
    weft_tile tile;
    WEFT_TRY(weft_args_tile(args, &tile, &o.tile, &o.memory));
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = find_vae(arena, &o.vae);
    if (status == WEFT_OK)
        status = eval_vae_over(args, arena, &o);
    weft_arena_free(arena);
    return status;
}

static void print_shares(const json_t *result, const char *key, const char *title)
{
    static const char *const shares[] = {"colour", "shape", "direction", "all"};
    const json_t *s = json_object_get(result, key), *prompts = json_object_get(s, "prompts");
    printf(prompts ? "%-10s %4lld" : "%-10s     ", title, (long long)json_integer_value(prompts));
    for (int i = 0; i < WEFT_COUNT(shares); i++)
        if (json_is_number(json_object_get(s, shares[i])))
            printf(" %8.1f %%", 100 * number(s, shares[i]));
        else
            printf(" %10s", "-"); /* pictures have no direction */
    printf("\n");
}

static void print_prompts(const json_t *r)
{
    printf("%-10s %4s %10s %10s %10s %10s\n", "prompts", "", "colour", "shape", "direction", "all");
    print_shares(r, "held_out", "held out");
    print_shares(r, "seen", "seen");
    print_shares(r, "chance", "chance");
}

/* All ranks make the videos; rank 0 judges them. */
static weft_status eval_prompts(const weft_args *args)
{
    weft_prompt_eval_options o = {.model = weft_args_string(args, "--model"),
                                  .heldout = weft_args_string(args, "--heldout"),
                                  .out = weft_args_string(args, "--out")};
    if (!o.heldout)
        return weft_fail(WEFT_E_ARG,
                         "eval prompts needs --heldout FILE, the heldout.json of weft synth");
    WEFT_TRY(weft_args_i64(args, "--repeats", 0, 1000, &o.repeats));
    WEFT_TRY(weft_args_i64(args, "--seen", 0, 100000, &o.seen));
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX / 2, &o.seed));
    WEFT_TRY(weft_args_i64(args, "--steps", 1, 10000, &o.generator.steps));
    WEFT_TRY(weft_args_i64(args, "--batch", 1, 4096, &o.generator.batch));
    WEFT_TRY(weft_args_f64(args, "--guidance", 0, 100, &o.generator.guidance));
    WEFT_TRY(weft_args_guided(args, o.generator.guided));
    WEFT_TRY(weft_weights_option(weft_args_string(args, "--weights"), &o.generator));
    o.generator.away = o.out;
    weft_parallel parallel;
    bool choose;
    json_t *r = NULL;
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    WEFT_GO(weft_args_layout(args, arena, &parallel, &choose));
    o.generator.parallel = &parallel;
    WEFT_GO(weft_args_lora(args, arena, &o.generator.adapters, &o.generator.adapter_count));
    weft_tile tile;
    WEFT_GO(weft_args_tile(args, &tile, &o.generator.tile, &o.generator.memory));
    WEFT_GO(weft_comm_open_mpi(&o.comm));
    if (choose)
        WEFT_GO(weft_args_choose_layout(args, arena, o.model, o.comm, &o.generator, &parallel));
    WEFT_GO(weft_args_choose_slices(args, arena, o.model, o.comm, &o.generator, &parallel));
    WEFT_GO(weft_evaluate_prompts(&o, &r));
    if (r) {
        print_prompts(r);
        WEFT_GO(finish(args, r));
    }
    status = weft_comm_barrier(o.comm);
out:
    if (status != WEFT_OK)
        weft_comm_give_up(o.comm);
    weft_comm_free(o.comm);
    weft_arena_free(arena);
    return status;
}

static weft_status run_eval(const weft_args *args)
{
    int count;
    const char *what = weft_args_positional(args, &count)[0];
    if (!strcmp(what, "vae"))
        return eval_vae(args);
    if (!strcmp(what, "prompts"))
        return eval_prompts(args);
    if (!strcmp(what, "cache")) {
        json_t *r;
        WEFT_TRY(weft_eval_savings(args, &r));
        return finish(args, r);
    }
    return weft_fail(WEFT_E_ARG, "eval %s: known are vae, prompts and cache", what);
}

static const weft_option options[] = {
    {.name = "--model",
     .value_name = "DIR",
     .help = "model folder; vae: also the folder of the VAE alone",
     .required = true},
    {.name = "--json",
     .value_name = "FILE",
     .help = "also write every figure, and each clip's or prompt's, as JSON"},
    {.name = "--shards", .value_name = "DIR", .help = "vae: shards of the clips"},
    {.name = "--split",
     .value_name = "NAME",
     .fallback = "heldout",
     .help = "vae: shards named <split>-*.tar; \"\" for all"},
    {.name = "--frames",
     .value_name = "N",
     .fallback = "17",
     .help = "vae: clip length that the autoencoder takes; cache: of folders without weft.json"},
    {.name = "--height",
     .value_name = "N",
     .fallback = "64",
     .help = "the same: pixels, a multiple of what a latent covers"},
    {.name = "--width",
     .value_name = "N",
     .fallback = "64",
     .help = "the same: pixels, a multiple of what a latent covers"},
    {.name = "--fps",
     .value_name = "F",
     .fallback = "0",
     .help = "vae: frame rate of the clips; 0: each video's own"},
    {.name = "--limit", .value_name = "N", .fallback = "0", .help = "vae: clips at most; 0: all"},
    {.name = "--sheet", .value_name = "FILE.png", .help = "vae: originals over reconstructions"},
    {.name = "--heldout", .value_name = "FILE", .help = "prompts: heldout.json of weft synth"},
    {.name = "--repeats",
     .value_name = "N",
     .fallback = "4",
     .help = "prompts: seeds for each held-out combination"},
    {.name = "--seen",
     .value_name = "N",
     .fallback = "16",
     .help = "prompts: combinations that training shows, for comparison"},
    {.name = "--seed",
     .value_name = "N",
     .fallback = "1000",
     .help = "prompts, cache: of the first video"},
    {.name = "--steps",
     .value_name = "N",
     .fallback = "20",
     .help = "prompts, cache: denoising steps"},
    {.name = "--guidance",
     .value_name = "G",
     .fallback = "4",
     .help = "prompts, cache: guidance scale"},
    WEFT_GUIDED_OPTIONS,
    {.name = "--prompts", .value_name = "FILE", .help = "cache: prompts, one a line"},
    {.name = "--try",
     .value_name = "TEXT",
     .help = "cache: what to change, as in \"cache=fast\", \"guidance-until=0.6\" or "
             "\"sampler=unipc steps=15\"; none: fourteen usual ones",
     .repeated = true},
    {.name = "--least",
     .value_name = "N",
     .fallback = "1",
     .help = "cache: runs of each, by turns, of which the least seconds count"},
    {.name = "--lpips",
     .value_name = "TRUNK,HEADS",
     .help = "cache: LPIPS too, by torchvision's AlexNet or VGG16 and lpips' heads for it"},
    {.name = "--batch",
     .value_name = "N",
     .fallback = "8",
     .help = "prompts: videos denoised together"},
    {.name = "--lora",
     .value_name = "FILE[:WEIGHT]",
     .help = "prompts: an adapter, as for weft generate",
     .repeated = true},
    {.name = "--parallel",
     .value_name = "KEY=VALUE",
     .help = "how ranks split the work: prompts: as for weft generate; vae: clips, over dp",
     .repeated = true},
    WEFT_LAYOUT_OPTIONS,
    WEFT_WEIGHTS_OPTION,
    {.name = "--out",
     .value_name = "DIR",
     .fallback = "evaluated",
     .help = "prompts: folder for the videos and sheet.png"},
    WEFT_TILE_OPTIONS,
};

const weft_verb weft_verb_eval = {
    .name = "eval",
    .summary = "judge a VAE by its reconstructions, a model by how it follows prompts, cheaper "
               "steps by what they lose",
    .usage = "vae|prompts|cache --model DIR [options]",
    .details = "vae: encodes and decodes the clips of a split and prints the mean PSNR and SSIM, "
               "beside those of the same clips\n"
               "averaged over boxes of the VAE's compression (4x8x8), which a VAE must beat to be "
               "worth its weights. Under mpirun\n"
               "each rank takes clips of its own; the figures are those of one rank.\n"
               "PSNR compares 8-bit RGB frames, SSIM their luma. Identical videos are not in the "
               "mean PSNR; they are counted.\n\n"
               "prompts: generates videos of moving shapes (the world of weft synth) for "
               "combinations of words that training\n"
               "never showed, and for some that it did, and reads colour, shape and direction of "
               "motion from the pixels by\n"
               "ordinary image analysis: a plane is fitted to the background, what stands out is "
               "the object, its hue, outline\n"
               "and course are the answers. Prints the share of prompts that each was right in, "
               "beside chance. Under mpirun all ranks generate, split as --parallel says; the "
               "videos are those of one rank to 1e-5.\n\n"
               "cache: makes videos with all steps and then sooner, by caches between steps, "
               "guidance in a part of them or other\n"
               "samplers in fewer, and prints seconds of denoising a video, the gain, and PSNR, "
               "SSIM and LPIPS between both, and the number of identical videos.",
    .examples = "weft eval vae --model demo/vae/model/vae --shards demo/shards --sheet vae.png\n"
                "weft eval prompts --model demo/dit/model --heldout demo/raw/heldout.json --out "
                "demo/eval --json demo/eval.json\n"
                "weft eval cache --model demo/dit/model --prompts prompts.txt --steps 30 --try "
                "cache=fast --try \"sampler=unipc steps=15\"\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = 1,
    .run = run_eval,
};
