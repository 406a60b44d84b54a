#include "cli/eval_pairs.h"
#include "cli/eval_vae.h"
#include "cli/eval_videos.h"
#include "cli/generator_backend.h"
#include "cli/options/args.h"
#include "cli/options/backend_option.h"
#include "cli/options/eval_options.h"
#include "cli/options/guidance_range_option.h"
#include "cli/options/lora_option.h"
#include "cli/options/parallel_choice.h"
#include "cli/options/tile_option.h"
#include "cli/options/videos_option.h"
#include "cli/options/weights_option.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/shared_folder.h"
#include "doctor/backend_choice.h"
#include "evaluate/eval_print.h"
#include "evaluate/evaluate.h"
#include "evaluate/int8_report.h"
#include "evaluate/savings_table.h"
#include "generate/generator/own_settings.h"

#include <string.h>

static weft_status eval_prompts(const weft_args *args)
{
    weft_prompt_eval_options o = {.model = weft_args_string(args, "--model"),
                                  .heldout = weft_args_string(args, "--heldout"),
                                  .out = weft_args_string(args, "--out")};
    if (!o.heldout)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--heldout"),
                          "weft eval prompts needs --heldout FILE, the heldout.json of weft synth");
    WEFT_TRY(weft_args_backend(args, &o.generator.backend));
    WEFT_TRY(weft_args_i64(args, "--seeds", 0, 1000, &o.repeats));
    WEFT_TRY(weft_args_i64(args, "--training-combinations", 0, 100000, &o.seen));
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX / 2, &o.seed));
    WEFT_TRY(weft_args_i64(args, "--steps", 0, 10000, &o.generator.steps));
    WEFT_TRY(weft_args_i64(args, "--batch-size", 1, 4096, &o.generator.batch));
    WEFT_TRY(weft_args_guidance(args, &o.generator.guidance));
    WEFT_TRY(weft_args_guided(args, o.generator.guided));
    WEFT_TRY(weft_args_weights(args, &o.generator));
    o.generator.offload_dir = o.out;
    weft_parallel parallel;
    bool choose;
    json_t *r = NULL;
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the evaluation"));
    WEFT_GO(weft_args_layout(args, arena, &parallel, &choose));
    o.generator.parallel = &parallel;
    WEFT_GO(weft_args_lora(args, arena, &o.generator.adapters, &o.generator.adapter_count));
    weft_tile tile;
    WEFT_GO(weft_args_tile(args, &tile, &o.generator.tile, &o.generator.memory,
                           &o.generator.vae_products));
    WEFT_GO(weft_comm_open_mpi(&o.comm));
    WEFT_GO(weft_own_settings_take(o.model, weft_comm_rank(o.comm) == 0, WEFT_EVAL_STEPS,
                                   &o.generator));
    if (weft_args_shared_folder(args, "--out"))
        WEFT_GO(weft_comm_check_shared(o.comm, weft_args_shared_folder(args, "--out"),
                                       weft_args_given(args, "--out")));
    WEFT_GO(weft_generator_settle(weft_args_string(args, "--backend"), o.comm, &o.generator));
    const bool chooses = o.generator.precision_auto;
    WEFT_GO(weft_args_choose_precision(args, arena, o.model, o.comm, &o.generator));
    if (chooses) /* by the comparison of kernels in this precision */
        WEFT_GO(weft_generator_settle(o.generator.backend->name, o.comm, &o.generator));
    if (choose)
        WEFT_GO(weft_args_choose_layout(args, arena, o.model, o.comm, &o.generator, &parallel));
    WEFT_GO(weft_args_choose_comm_overlap(args, arena, o.model, o.comm, &o.generator, &parallel));
    WEFT_GO(weft_evaluate_prompts(&o, &r));
    if (r) {
        weft_eval_print_prompts(r);
        WEFT_GO(weft_eval_finish(args, r));
    }
    status = weft_comm_barrier(o.comm);
out:
    if (status != WEFT_OK)
        weft_comm_abort(o.comm);
    weft_comm_free(o.comm);
    weft_arena_free(arena);
    return status;
}

static weft_status run_eval(const weft_args *args)
{
    int count;
    const char *what = weft_args_positional(args, &count)[0];
    if (!strcmp(what, "videos"))
        return weft_eval_videos(args);
    if (!strcmp(what, "pairs"))
        return weft_eval_pairs(args);
    if (!weft_args_string(args, "--model"))
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--model"),
                          "weft eval %s needs --model DIR", what);
    if (!strcmp(what, "vae"))
        return weft_eval_vae(args);
    if (!strcmp(what, "prompts"))
        return eval_prompts(args);
    const bool savings = !strcmp(what, "savings") || !strcmp(what, "cache"); /* its earlier name */
    if (savings || !strcmp(what, "int8")) {
        json_t *r;
        const weft_backend *chosen;
        WEFT_TRY(weft_backend_settle(weft_args_string(args, "--backend"), WEFT_PRODUCTS_F32, NULL,
                                     &chosen));
        if (!savings && weft_args_is_copy(args, "--model"))
            return weft_error(WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.key = "--model"),
                              "weft eval int8 writes next to the model. Give a folder.");
        WEFT_TRY(savings ? weft_eval_savings(args, &r) : weft_eval_int8(args, &r));
        return weft_eval_finish(args, r);
    }
    return weft_error(
        WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.value = what),
        "unknown evaluation '%.80s'; use vae, prompts, savings, int8, videos or pairs", what);
}

const weft_verb weft_verb_eval = {
    .name = "eval",
    .summary = "measure a VAE, prompts, faster sampling, int8 or videos, or compare two models",
    .usage = "vae --model DIR --shards DIR [options]\n"
             "prompts --model DIR --heldout FILE [options]\n"
             "savings --model DIR --prompts FILE [options]\n"
             "int8 --model DIR [options]\n"
             "videos --videos PATH [options]\n"
             "pairs --model DIR --other-model DIR --prompts FILE [options]\n"
             "pairs --videos DIR --other-videos DIR [options]",
    .details = weft_eval_details,
    .examples = "weft eval vae --model demo/vae/model/vae --shards demo/shards --sheet vae.png\n"
                "weft eval prompts --model demo/dit/model --heldout demo/raw/heldout.json\n"
                "weft eval savings --model DIR --prompts FILE --setting feature-cache=fast\n"
                "weft eval videos --videos samples --clip clip-vit-base-patch32\n"
                "weft eval pairs --videos a --other-videos b --page pairs.html --blind\n",
    .groups = weft_eval_groups,
    .options = weft_eval_options,
    .option_count = WEFT_EVAL_OPTIONS,
    .min_positional = 1,
    .max_positional = 1,
    .run = run_eval,
};
