#include "cli/eval_pairs.h"

#include "base/fs.h"
#include "cli/eval_videos.h"
#include "cli/generator_backend.h"
#include "cli/options/weights_option.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "evaluate/savings_table.h"
#include "evaluate/video_evaluation.h"
#include "report/pair_page.h"

#include <stdio.h>

static const char *const sides[] = {"a", "b"};

/* Generates the videos of both models into a/ and b/ of --out, and sets `folder` to both paths. */
static weft_status generate(const weft_args *args, weft_arena *arena, const char *const model[2],
                            const char *folder[2])
{
    weft_saving_eval_options o;
    const char *out = weft_args_string(args, "--out");
    if (!weft_args_string(args, "--prompts"))
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--prompts"),
                          "weft eval pairs needs --prompts FILE, with one prompt on each line");
    WEFT_TRY(weft_eval_read_videos(args, arena, NULL, &o));
    WEFT_TRY(weft_args_i64(args, "--batch-size", 1, 4096, &o.plain.batch));
    if (o.plain.batch > o.count) /* a row without a prompt costs as much as another */
        o.plain.batch = o.count;
    for (int side = 0; side < 2; side++) {
        folder[side] = weft_arena_printf(arena, "%s/%s", out, sides[side]);
        WEFT_TRY(WEFT_ALLOCATED(folder[side], "the evaluation"));
        weft_generator_options own = o.plain;
        own.frames = own.height = own.width = 0;
        WEFT_TRY(weft_eval_read_settings(args, model[side], &own));
        WEFT_TRY(weft_generator_settle(weft_args_string(args, "--backend"), NULL, &own));
        WEFT_TRY(
            weft_video_pairs_generate(model[side], &own, o.prompt, o.count, o.seed, folder[side]));
    }
    return WEFT_OK;
}

/* Scores the videos of one model, in the order of the pairs. */
static weft_status score(const weft_args *args, weft_arena *arena, const weft_video_pairs *pairs,
                         int side, json_t **scores)
{
    const char **path, **prompt;
    WEFT_TRY(WEFT_ARENA_NEW(arena, path, pairs->count, "pairs of videos"));
    WEFT_TRY(WEFT_ARENA_NEW(arena, prompt, pairs->count, "pairs of videos"));
    for (int64_t i = 0; i < pairs->count; i++) {
        path[i] = pairs->pair[i].path[side];
        prompt[i] = weft_video_pair_prompt(&pairs->pair[i]);
    }
    const weft_video_eval_options o = {.path = path,
                                       .prompt = prompt,
                                       .count = pairs->count,
                                       .clip = weft_args_string(args, "--clip"),
                                       .dino = weft_args_string(args, "--dino"),
                                       .amt = weft_args_string(args, "--amt")};
    return weft_evaluate_videos(&o, scores);
}

static weft_status compare(const weft_args *args, weft_arena *arena, const char *const folder[2],
                           const char *const name[2], json_t *scores[2])
{
    weft_video_pairs pairs = {0};
    const char *path = weft_args_string(args, "--page");
    int64_t seed;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_args_i64(args, "--seed", 0, INT64_MAX / 2, &seed));
    WEFT_GO(weft_video_pairs_find(folder, &pairs));
    for (int side = 0; side < 2; side++)
        WEFT_GO(score(args, arena, &pairs, side, &scores[side]));
    const weft_pair_page page = {.name = {name[0], name[1]},
                                 .pairs = &pairs,
                                 .scores = {scores[0], scores[1]},
                                 .blind = weft_args_flag(args, "--blind"),
                                 .seed = (uint64_t)seed};
    WEFT_GO(weft_pair_page_write(&page, path));
    printf("%s\n", weft_args_given(args, "--page"));
    status =
        weft_eval_finish(args, json_pack("{s:I, s:I, s:O, s:O}", "pairs", (json_int_t)pairs.count,
                                         "without_partner", (json_int_t)pairs.without_partner,
                                         sides[0], scores[0], sides[1], scores[1]));
out:
    weft_video_pairs_free(&pairs);
    return status;
}

/* All ranks would write the same files. */
static weft_status check_ranks(void)
{
    weft_comm *comm;
    WEFT_TRY(weft_comm_open_mpi(&comm));
    const int ranks = weft_comm_ranks(comm);
    weft_status_code status = WEFT_OK;
    if (ranks > 1)
        status =
            weft_error(WEFT_MSG_COMM_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(ranks)),
                       "weft eval pairs runs with one rank, not with %d. Generate the videos of "
                       "each model with `mpirun weft generate`, and compare the folders with "
                       "--videos and --other-videos.",
                       ranks);
    weft_comm_free(comm);
    return status;
}

weft_status weft_eval_pairs(const weft_args *args)
{
    const char *model[2] = {weft_args_string(args, "--model"),
                            weft_args_string(args, "--other-model")},
               *folder[2] = {weft_args_string(args, "--videos"),
                             weft_args_string(args, "--other-videos")};
    const bool generates = model[0] && model[1] && !folder[0] && !folder[1];
    json_t *scores[2] = {NULL, NULL};
    if (!generates && (!folder[0] || !folder[1] || model[0] || model[1]))
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--other-videos"),
                          "weft eval pairs needs --videos and --other-videos, or --model and "
                          "--other-model");
    WEFT_TRY(check_ranks());
    weft_arena *arena = weft_arena_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(arena, "the evaluation"));
    const char *const name[2] = {
        weft_args_given(args, generates ? "--model" : "--videos"),
        weft_args_given(args, generates ? "--other-model" : "--other-videos")};
    if (generates)
        WEFT_GO(generate(args, arena, model, folder));
    status = compare(args, arena, folder, name, scores);
out:
    json_decref(scores[0]);
    json_decref(scores[1]);
    weft_arena_free(arena);
    return status;
}
