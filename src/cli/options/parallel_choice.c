#include "cli/options/parallel_choice.h"

#include "base/log.h"
#include "cli/options/args.h"
#include "cli/options/parallel_option.h"
#include "comm/comm_world.h"
#include "estimate/generation/generation_layouts.h"
#include "estimate/generation/generation_precision.h"
#include "train/config/train_config.h"

static weft_status from_config(const weft_args *args, weft_arena *arena, const char *path,
                               weft_parallel *parallel)
{
    int count;
    const char *const *text = weft_args_list(args, "--parallel", &count);
    const char **set = weft_arena_calloc(arena, count + 2, sizeof *set);
    weft_run run;
    for (int i = 0; set && i < count; i++)
        if (!(set[i] = weft_arena_printf(arena, "parallel.%s", text[i])))
            set = NULL;
    WEFT_TRY(WEFT_ALLOCATED(set, "--parallel"));
    set[count] = "out=."; /* a config may have only this section */
    set[count + 1] = "data.path=.";
    WEFT_TRY(weft_config_load(arena, path, set, count + 2, &weft_run_section, &run));
    *parallel = run.parallel;
    return WEFT_OK;
}

weft_status weft_args_layout(const weft_args *args, weft_arena *arena, weft_parallel *parallel,
                             bool *choose)
{
    const char *config = weft_args_string(args, "--config");
    bool any;
    WEFT_TRY(weft_args_parallel_is_auto(args, &any));
    if (any && config)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--parallel", .value = "auto",
                                  WEFT_DETAILS(WEFT_WORD("with", "--config"))),
                          "auto chooses all degrees and cannot be combined with --config; remove "
                          "one option");
    *choose = any;
    *parallel = weft_parallel_default;
    if (any)
        return WEFT_OK;
    return config ? from_config(args, arena, config, parallel)
                  : weft_args_parallel(args, arena, parallel);
}

/* Opens the estimator of both choices; `cluster` is read from the options. */
static weft_status open_estimator(const weft_args *args, weft_arena *arena, const char *folder,
                                  weft_comm *comm, weft_generator_options *options,
                                  weft_cluster *cluster, weft_generation_estimator *out)
{
    *out = (weft_generation_estimator){.folder = folder,
                                       .options = options,
                                       .cluster = cluster,
                                       .ranks = weft_comm_ranks(comm),
                                       .arena = arena};
    return weft_cluster_load(arena, weft_args_string(args, "--on"), cluster);
}

weft_status weft_args_choose_layout(const weft_args *args, weft_arena *arena, const char *folder,
                                    weft_comm *comm, weft_generator_options *options,
                                    weft_parallel *parallel)
{
    weft_cluster cluster;
    weft_generation_estimator p;
    const weft_comm_overlap overlap = parallel->overlap; /* chosen after the degrees */
    WEFT_TRY(open_estimator(args, arena, folder, comm, options, &cluster, &p));
    if (weft_comm_overlap_has_auto(&overlap))
        parallel->overlap = weft_comm_overlap_default;
    const weft_status_code status = weft_generation_choose(&p, comm, parallel, &options->stream);
    parallel->overlap = overlap;
    return status;
}

weft_status weft_args_choose_comm_overlap(const weft_args *args, weft_arena *arena,
                                          const char *folder, weft_comm *comm,
                                          weft_generator_options *options, weft_parallel *parallel)
{
    weft_cluster cluster;
    weft_generation_estimator p;
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    if (!weft_comm_overlap_has_auto(&parallel->overlap))
        return WEFT_OK;
    if (weft_comm_ranks(comm) == 1) {
        parallel->overlap = weft_comm_overlap_default;
        return WEFT_OK;
    }
    WEFT_TRY(open_estimator(args, arena, folder, comm, options, &cluster, &p));
    WEFT_GO(weft_generation_choose_comm_overlap(&p, comm, options->stream, parallel, &text));
    if (text.len)
        weft_notice(WEFT_MSG_LAYOUT_CHOSEN, WEFT_NOWHERE, "%s", text.data);
out:
    weft_buf_free(&text);
    return status;
}

weft_status weft_args_choose_precision(const weft_args *args, weft_arena *arena, const char *folder,
                                       weft_comm *comm, weft_generator_options *options)
{
    weft_cluster cluster;
    weft_generation_estimator p;
    if (!options->precision_auto)
        return WEFT_OK;
    WEFT_TRY(open_estimator(args, arena, folder, comm, options, &cluster, &p));
    if (weft_comm_rank(comm) == 0) {
        weft_comm_set_busy(comm, "choosing the precision");
        const weft_status_code status =
            weft_generation_choose_precision(&p, weft_args_string(args, "--on"), &options->bf16);
        weft_comm_set_busy(comm, NULL);
        WEFT_TRY(status);
    }
    options->precision_auto = false;
    return weft_comm_broadcast(comm, &options->bf16, sizeof options->bf16, 0);
}
