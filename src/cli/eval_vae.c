#include "cli/eval_vae.h"

#include "base/fs.h"
#include "cli/eval_videos.h"
#include "cli/options/backend_option.h"
#include "cli/options/parallel_choice.h"
#include "cli/options/tile_option.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "doctor/backend_choice.h"
#include "evaluate/eval_print.h"
#include "evaluate/evaluate.h"
#include "generate/jobs/video_outputs.h"

static weft_status eval_vae_over(const weft_args *args, weft_arena *arena, weft_vae_eval_options *o)
{
    weft_parallel parallel;
    bool choose;
    json_t *r = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_args_layout(args, arena, &parallel, &choose)); /* auto: clips over dp */
    o->parallel = &parallel;
    WEFT_TRY(weft_comm_open_mpi(&o->comm));
    WEFT_GO(weft_backend_settle(weft_args_string(args, "--backend"), o->products, o->comm,
                                &o->backend));
    WEFT_GO(weft_evaluate_vae(o, &r));
    if (r) {
        weft_eval_print_vae(r);
        WEFT_GO(weft_eval_finish(args, r));
    }
    status = weft_comm_barrier(o->comm);
out:
    if (status != WEFT_OK)
        weft_comm_abort(o->comm);
    weft_comm_free(o->comm);
    return status;
}

/* Sets *model to the folder's vae/ if the folder is a whole model. */
static weft_status find_vae(weft_arena *arena, const char **model)
{
    char *config = weft_arena_printf(arena, "%s/config.json", *model),
         *inside = weft_arena_printf(arena, "%s/vae", *model);
    WEFT_TRY(WEFT_ALLOCATED(config && inside, "the evaluation"));
    if (weft_path_is_dir(inside) && !weft_path_exists(config))
        *model = inside;
    return WEFT_OK;
}

weft_status weft_eval_vae(const weft_args *args)
{
    weft_vae_eval_options o = {.vae = weft_args_string(args, "--model"),
                               .shards = weft_args_string(args, "--shards"),
                               .split = weft_args_string(args, "--split"),
                               .sheet = weft_args_string(args, "--sheet")};
    if (!o.shards)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--shards"),
                          "weft eval vae needs --shards DIR, the clips to reconstruct");
    if (o.split && !*o.split)
        o.split = NULL;
    if (o.sheet)
        WEFT_TRY(weft_video_outputs_check_sheet(o.sheet));
    WEFT_TRY(weft_args_backend(args, &o.backend));
    WEFT_TRY(weft_args_i64(args, "--frames", 1, 100000, &o.frames));
    WEFT_TRY(weft_args_i64(args, "--height", 8, 16384, &o.height));
    WEFT_TRY(weft_args_i64(args, "--width", 8, 16384, &o.width));
    WEFT_TRY(weft_args_f64(args, "--fps", 0, 1000, &o.fps));
    WEFT_TRY(weft_args_i64(args, "--limit", 0, INT64_MAX, &o.limit));
    weft_tile tile;
    WEFT_TRY(weft_args_tile(args, &tile, &o.tile, &o.memory, &o.products));
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the evaluation"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(find_vae(arena, &o.vae));
    WEFT_GO(eval_vae_over(args, arena, &o));
out:
    weft_arena_free(arena);
    return status;
}
