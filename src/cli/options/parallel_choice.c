#include "cli/parallel_choice.h"

#include "base/log.h"
#include "cli/parallel_option.h"
#include "generate/layouts_priced.h"
#include "train/run.h"

#include <string.h>

static weft_status from_config(const weft_args *args, weft_arena *arena, const char *path,
                               weft_parallel *parallel)
{
    int count;
    const char *const *text = weft_args_list(args, "--parallel", &count);
    const char **set = weft_arena_alloc(arena, (count + 2) * (int64_t)sizeof *set);
    weft_run run;
    for (int i = 0; set && i < count; i++)
        if (!(set[i] = weft_arena_printf(arena, "parallel.%s", text[i])))
            set = NULL;
    if (!set)
        return weft_fail(WEFT_E_MEMORY, "out of memory for --parallel");
    set[count] = "out=."; /* a config may have this section alone */
    set[count + 1] = "data.path=.";
    WEFT_TRY(weft_config_load(arena, path, set, count + 2, &weft_run_section, &run));
    *parallel = run.parallel;
    return WEFT_OK;
}

weft_status weft_args_layout(const weft_args *args, weft_arena *arena, weft_parallel *parallel,
                             bool *choose)
{
    int count;
    const char *const *text = weft_args_list(args, "--parallel", &count),
                      *config = weft_args_string(args, "--config");
    bool any = false;
    for (int i = 0; i < count; i++)
        any = any || !strcmp(text[i], "auto");
    if (any && (count > 1 || config))
        return weft_fail(WEFT_E_ARG, "--parallel auto chooses all degrees: leave %s out, or auto",
                         config ? "--config" : "the other --parallel");
    *choose = any;
    *parallel = weft_parallel_default;
    if (any)
        return WEFT_OK;
    return config ? from_config(args, arena, config, parallel)
                  : weft_args_parallel(args, arena, parallel);
}

/* What both choices are made by: `cluster` is read from the options. */
static weft_status open_pricer(const weft_args *args, weft_arena *arena, const char *folder,
                               weft_comm *comm, weft_generator_options *options,
                               weft_cluster *cluster, weft_generation_pricer *out)
{
    *out = (weft_generation_pricer){.folder = folder,
                                    .options = options,
                                    .cluster = cluster,
                                    .ranks = weft_comm_ranks(comm),
                                    .arena = arena};
    return weft_cluster_load(arena, weft_args_string(args, "--cluster"), cluster);
}

static weft_status tell(weft_status_code status, weft_buf *told)
{
    if (status == WEFT_OK && told->len)
        weft_info("%s", told->data);
    weft_buf_free(told);
    return status;
}

weft_status weft_args_choose_layout(const weft_args *args, weft_arena *arena, const char *folder,
                                    weft_comm *comm, weft_generator_options *options,
                                    weft_parallel *parallel)
{
    weft_cluster cluster;
    weft_generation_pricer p;
    weft_buf told = {0};
    const weft_slices slices = parallel->slices; /* what is open: for the degrees, behind them */
    WEFT_TRY(open_pricer(args, arena, folder, comm, options, &cluster, &p));
    if (weft_slices_open(&slices))
        parallel->slices = weft_slices_default;
    const weft_status_code status =
        weft_generation_choose(&p, comm, parallel, &options->stream, &told);
    parallel->slices = slices;
    return tell(status, &told);
}

weft_status weft_args_choose_slices(const weft_args *args, weft_arena *arena, const char *folder,
                                    weft_comm *comm, weft_generator_options *options,
                                    weft_parallel *parallel)
{
    weft_cluster cluster;
    weft_generation_pricer p;
    weft_buf told = {0};
    if (!weft_slices_open(&parallel->slices))
        return WEFT_OK;
    if (weft_comm_ranks(comm) == 1) {
        parallel->slices = weft_slices_default;
        return WEFT_OK;
    }
    WEFT_TRY(open_pricer(args, arena, folder, comm, options, &cluster, &p));
    return tell(weft_generation_choose_slices(&p, comm, options->stream, parallel, &told), &told);
}
