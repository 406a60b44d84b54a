#include "cli/estimate_run.h"
#include "cli/text_output.h"

#include "base/fs.h"
#include "cli/options/args.h"
#include "cli/plan.h"
#include "estimate/training/resolve_precision.h"
#include "estimate/training/run_estimate.h"
#include "train/cascade/cascade_dry_run.h"
#include "train/cascade/cascade_trainer.h"
#include "train/pipeline/pp_layout.h"

#include <stdio.h>

weft_status weft_estimate_print_json(json_t *json)
{
    const weft_status_code status = weft_plan_print_json(json);
    json_decref(json);
    return status;
}

weft_status weft_estimate_cascades(const weft_args *args, const weft_run *run, const char *path)
{
    int64_t ranks, iterations;
    weft_buf svg = {0}, text = {0};
    const char *to = weft_args_string(args, "--svg");
    WEFT_TRY(weft_args_i64(args, "--ranks", 0, 1 << 16, &ranks));
    WEFT_TRY(weft_args_i64(args, "--iterations", 1, 1000, &iterations));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_cascade_dry_run(run, path, (int)ranks, (int)iterations, to ? &svg : NULL, &text));
    if (to)
        WEFT_GO(weft_file_write_atomic(to, svg.data, svg.len));
    fwrite(text.data, 1, (size_t)text.len, stdout);
out:
    weft_buf_free(&svg);
    weft_buf_free(&text);
    return status;
}

/* Plans of cascades come from the run's own cluster and have no JSON form here. */
static weft_status check_cascade_options(const weft_args *args, bool cascades)
{
    static const char *const none[] = {"--on", "--execute", "--json"};
    static const char *const only[] = {"--iterations", "--svg"};
    const char *const *list = cascades ? none : only;
    for (int i = 0; i < (cascades ? WEFT_COUNT(none) : WEFT_COUNT(only)); i++)
        if (weft_args_flag(args, list[i]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = list[i]),
                              "this option has %s effect %s parallel.cascades; remove it",
                              cascades ? "no" : "an", cascades ? "with" : "only with");
    return WEFT_OK;
}

static weft_status print(const weft_args *args, const weft_run *run, const char *path,
                         const weft_run_estimate *estimate, const weft_buf *message)
{
    weft_buf text = {0};
    if (weft_args_flag(args, "--json"))
        return weft_estimate_print_json(weft_run_estimate_json(run, path, estimate));
    if (message->len)
        printf("%s\n", message->data);
    weft_run_estimate_print(run, path, estimate, &text);
    return weft_text_output(&text);
}

static weft_status estimate(const weft_args *args, weft_arena *arena, const char *path)
{
    weft_run run;
    weft_run_models models;
    weft_run_estimate made;
    weft_buf message = {0};
    int64_t ranks;
    WEFT_TRY(weft_args_i64(args, "--ranks", 0, 1 << 20, &ranks));
    WEFT_TRY(weft_args_config(args, arena, path, &run));
    WEFT_TRY(weft_run_check(&run, path));
    WEFT_TRY(weft_pp_layout_check_used(&run.parallel, path));
    WEFT_TRY(check_cascade_options(args, weft_run_cascades(&run)));
    if (weft_run_cascades(&run)) {
        WEFT_TRY(weft_run_models_read(&run, path, &models));
        const weft_status_code chosen =
            weft_run_predict_precision(&run, &models, path, run.cascades.cluster, arena, &message);
        weft_buf_free(&message);
        WEFT_TRY(chosen);
        return weft_estimate_cascades(args, &run, path);
    }
    const weft_run_estimate_options options = {.cluster = weft_args_string(args, "--on"),
                                               .ranks = (int)ranks,
                                               .execute = weft_args_flag(args, "--execute")};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_estimate_make(&run, path, &options, arena, &made, &message));
    status = print(args, &run, path, &made, &message);
    weft_run_estimate_free(&made);
out:
    weft_buf_free(&message);
    return status;
}

weft_status weft_estimate_run(const weft_args *args, const char *path)
{
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the estimate"));
    const weft_status_code status = estimate(args, arena, path);
    weft_arena_free(arena);
    return status;
}
