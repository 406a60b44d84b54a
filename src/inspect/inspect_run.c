#include "cli/inspect_run.h"

#include "base/log.h"
#include "plan/cost/graph_list.h"
#include "train/bulletin.h"
#include "train/latent_cache.h"
#include "train/run_fit.h"
#include "train/settle.h"

#include <stdio.h>

static void line(const char *what, int64_t bytes, const char *note)
{
    char text[32];
    printf("  %-14s %14s  %s\n", what, weft_format_bytes(bytes, text), note);
}

static weft_status print_graph(const weft_graph *g)
{
    weft_buf text = {0};
    const weft_status_code status = weft_schedule_print(g, &text);
    if (status == WEFT_OK)
        fwrite(text.data, 1, (size_t)text.len, stdout);
    weft_buf_free(&text);
    return status;
}

static weft_status print_passes(const weft_pass_log *log)
{
    weft_buf text = {0};
    weft_pass_log_print(log, &text);
    const weft_status_code status = weft_buf_check(&text);
    if (status == WEFT_OK)
        fwrite(text.data, 1, (size_t)text.len, stdout);
    weft_buf_free(&text);
    return status;
}

/* By a profile's kernels, or the figures of a cluster's device. */
static weft_status print_seconds(const weft_graph *g, const weft_cluster *cluster)
{
    char text[32];
    weft_graph_time t;
    WEFT_TRY(weft_graph_time_of(g, cluster, &t));
    printf(
        "  %-14s %14s  forward %.0f %%, backward %.0f %%, update %.0f %%, sending %.0f %%; %.0f %% "
        "measured at these shapes\n",
        "predicted step", weft_format_seconds(t.seconds, text), 100 * t.forward / t.seconds,
        100 * t.backward / t.seconds, 100 * t.update / t.seconds, 100 * t.collectives / t.seconds,
        100 * t.exact);
    return WEFT_OK;
}

static void print_size(const weft_stage *stage, const weft_bucket *size, const weft_step *step)
{
    printf("stage %s: %lld steps of %lld x %lldx%lldx%lld\n", stage->name, (long long)stage->steps,
           (long long)size->batch, (long long)size->frames, (long long)size->height,
           (long long)size->width);
    printf("  %-14s %14lld  trained together\n", "parameters",
           (long long)weft_graph_param_count(step->whole));
    printf("  %-14s %14.4g  of a %s\n", "FLOPs", (double)step->cost.flops,
           step->pipe ? "microbatch on a rank" : "training step");
}

/* The stages that rank 0 has. */
static weft_status inspect_pipe(const weft_step *step, bool print)
{
    static const char *const names[WEFT_PIPE_KINDS] = {"forward", "backward", "weights"};
    for (int i = 0; i < step->pipe->owns; i++) {
        const weft_pipe_stage *own = &step->pipe->own[i];
        for (int k = 0; k < WEFT_PIPE_KINDS; k++) {
            if (!own->program[k])
                continue;
            printf("  stage %d, %s\n", own->stage, names[k]);
            printf("  %-14s %14d\n", "nodes", (int)weft_graph_node_count(own->graph[k]));
            line("activations", weft_program_plan(own->program[k])->arena_bytes,
                 "in the arena that all programs use");
            if (print)
                WEFT_TRY(print_graph(own->graph[k]));
        }
    }
    return WEFT_OK;
}

static weft_status inspect_bucket(const weft_stage *stage, const weft_bucket *size,
                                  const weft_step *step, const weft_cluster *cluster, bool print)
{
    print_size(stage, size, step);
    if (step->pipe)
        return inspect_pipe(step, print);
    const weft_memory_plan *plan = weft_program_plan(step->program);
    printf("  %-14s %14d  on a rank\n", "nodes", (int)weft_graph_node_count(step->graph));
    line("weights", plan->source_bytes, "with the optimizer's moments and the moving average");
    line("activations", plan->arena_bytes, "the arena that a run reserves: the peak, exactly");
    line("workspace", plan->workspace_bytes, "of the kernels, reserved once");
    line("inputs", plan->input_bytes, "");
    if (cluster)
        WEFT_TRY(print_seconds(step->graph, cluster));
    return print ? print_graph(step->graph) : WEFT_OK;
}

/* Behind the batches of a step, where there are several. */
static weft_status inspect_update(const weft_step *step, const char *what, bool print)
{
    const weft_memory_plan *plan = weft_program_plan(step->program);
    printf("%s after the batches of a step\n", what);
    printf("  %-14s %14d  on a rank\n", "nodes", (int)weft_graph_node_count(step->graph));
    line("activations", plan->arena_bytes, "in the arena that the batches use");
    return print ? print_graph(step->graph) : WEFT_OK;
}

static weft_status inspect_peak(const weft_stage_steps *s)
{
    int64_t weights, bytes;
    WEFT_TRY(weft_stage_steps_bytes(s, &bytes));
    WEFT_TRY(weft_stage_steps_weights(s, &weights));
    line("program", bytes, "reserved for the stage: all but the weights");
    line("predicted peak", bytes + weights, "the program's and the weights'");
    return WEFT_OK;
}

/* The programs of a stage share their arena. */
static weft_status inspect_stage(const weft_run *run, const weft_run_models *models,
                                 const weft_stage *stage, weft_place_of_run *place,
                                 weft_step_cache *cache, const weft_cluster *cluster,
                                 const weft_args *args)
{
    const double begin = weft_now();
    const bool print = weft_args_flag(args, "--graph");
    const bool logs = weft_args_flag(args, "--passes");
    weft_stage_steps s = {0};
    weft_buf layout = {0};
    weft_status_code status = WEFT_OK;
    weft_step_cache *own = logs ? weft_step_cache_create() : cache; /* what is found logs nothing */
    if (!own)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the steps of a stage");
    WEFT_GO(weft_stage_steps_begin(run, stage, place, &s));
    while (weft_stage_steps_left(&s)) {
        weft_pass_log log = {0};
        place->log = logs ? &log : NULL;
        WEFT_GO(weft_stage_steps_next(own, run, models, stage, place, &s));
        const weft_step *step = s.bucket[s.count - 1];
        if (s.count > s.buckets)
            WEFT_GO(inspect_update(step, s.update ? "update" : "sums of what stages share", print));
        else
            WEFT_GO(
                inspect_bucket(stage, weft_stage_bucket(stage, s.count - 1), step, cluster, print));
        if (place->log)
            WEFT_GO(print_passes(&log));
    }
    status = inspect_peak(&s);
    weft_stage_steps_layout(&s, stage, place, &layout);
    if (layout.len)
        printf("%s", layout.data);
    printf("  planned in %.2f s\n", weft_now() - begin);
out:
    place->log = NULL;
    weft_buf_free(&layout);
    weft_stage_steps_free(&s);
    if (logs)
        weft_step_cache_free(own);
    return status;
}

/* The store of the run on a device that has no memory. */
static weft_status hollow_store(const weft_run *run, const weft_run_models *models,
                                const weft_place_of_run *place, weft_step_cache *cache,
                                weft_store **store)
{
    weft_place_of_run own = *place;
    own.comm = NULL; /* of its own names only: the other ranks are not there */
    *store = weft_store_create_on(weft_backend_find("virtual")->device);
    weft_status_code status = *store ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    int states;
    const char *const *away = weft_step_away_states(&states);
    if (*store && place->away_states)
        weft_store_keep_away(*store, away, states, place->away);
    for (int64_t i = 0; i < run->stages.count && status == WEFT_OK; i++) {
        weft_stage_steps s = {0};
        status = weft_stage_steps_plan(cache, run, models, (const weft_stage *)run->stages.item + i,
                                       place, &s);
        if (status == WEFT_OK)
            status = weft_steps_fill(s.bucket, s.count, &own, *store, 0);
        weft_stage_steps_free(&s);
    }
    return status;
}

/* Everything that a run has before its first step, but what others send. */
static weft_status set_up(const weft_run *run, const weft_run_models *models,
                          const weft_place_of_run *place, weft_step_cache *cache, weft_store *store)
{
    const double begin = weft_now();
    int64_t most = 0;
    char text[32];
    for (int64_t i = 0; i < run->stages.count; i++) {
        weft_stage_steps s = {0};
        weft_pipe_run *stages = NULL;
        weft_group *world;
        weft_status_code status = weft_stage_steps_plan(
            cache, run, models, (const weft_stage *)run->stages.item + i, place, &s);
        if (status == WEFT_OK)
            status = weft_step_cache_bind(cache, s.bucket, s.count, store, 0);
        if (status == WEFT_OK && place->pipe)
            status = weft_stage_steps_pipe(&s, &stages);
        if (status == WEFT_OK && place->pipe)
            status = weft_comm_world(place->comm, &world);
        if (status == WEFT_OK && place->pipe)
            status = weft_pipe_run_bind(stages, world, &place->mesh);
        most = weft_memory_resident() > most ? weft_memory_resident() : most;
        weft_pipe_run_free(stages);
        weft_stage_steps_free(&s);
        WEFT_TRY(status);
    }
    weft_step_cache_unbind(cache);
    printf("set up as rank %d of %d in %.2f s: groups, exchanges, store, programs, records; the "
           "process holds %s\n",
           weft_comm_rank(place->comm), weft_mesh_ranks(&place->mesh), weft_now() - begin,
           weft_format_bytes(most, text));
    return WEFT_OK;
}

/* What memory.limit has become of what stages keep; *fates is the caller's to free. */
static weft_status fit_stages(const weft_run *run, const weft_run_models *models,
                              weft_place_of_run *place, weft_store *store, int64_t process,
                              weft_fates **fates)
{
    weft_buf told = {0};
    *fates = weft_alloc(run->stages.count * (int64_t)sizeof **fates);
    if (!*fates)
        return weft_fail(WEFT_E_MEMORY, "out of memory for stages");
    weft_activation_plan stored = {0}; /* of a run that has begun: what it goes by is shown */
    WEFT_TRY(weft_activation_plan_load(run->out, &stored));
    const weft_status_code status =
        weft_run_fit(run, models, place, NULL, store, process, &stored, *fates, &told);
    if (status == WEFT_OK && told.len)
        printf("%s", told.data);
    weft_buf_free(&told);
    weft_activation_plan_free(&stored);
    place->stage_fates = *fates;
    return status;
}

/* The line that `weft train` begins with. */
static weft_status inspect_memory(const weft_run *run, const weft_run_models *models,
                                  const weft_place_of_run *place, weft_step_cache *cache,
                                  weft_store *store, int64_t process)
{
    weft_buf told = {0};
    weft_run_bytes peak;
    const weft_status_code status =
        weft_run_memory(run, models, place, cache, store, process, &peak, &told);
    if (status == WEFT_OK)
        printf("%s\n", told.data);
    weft_buf_free(&told);
    return status;
}

/* An option that is given stands in for what every stage of the config says. */
static weft_status override_sizes(const weft_args *args, weft_run *run)
{
    static const struct {
        const char *option;
        size_t offset;
    } sizes[] = {{"--batch", offsetof(weft_bucket, batch)},
                 {"--frames", offsetof(weft_bucket, frames)},
                 {"--height", offsetof(weft_bucket, height)},
                 {"--width", offsetof(weft_bucket, width)}};
    for (int i = 0; i < WEFT_COUNT(sizes); i++) {
        int64_t value;
        if (!weft_args_flag(args, sizes[i].option))
            continue;
        WEFT_TRY(weft_args_i64(args, sizes[i].option, 1, 1 << 20, &value));
        for (int64_t s = 0; s < run->stages.count; s++) {
            weft_stage *stage = (weft_stage *)run->stages.item + s;
            *(int64_t *)((char *)&stage->size + sizes[i].offset) = value;
            for (int64_t b = 0; b < stage->buckets.count; b++)
                *(int64_t *)((char *)((weft_bucket *)stage->buckets.item + b) + sizes[i].offset) =
                    value;
        }
    }
    return WEFT_OK;
}

weft_status weft_inspect_run(const weft_args *args, const char *path)
{
    weft_arena *arena = weft_arena_create();
    weft_step_cache *cache = weft_step_cache_create();
    int64_t process = 0;
    bool *encoded = NULL;
    weft_cluster cluster;
    weft_run run;
    weft_run_models models;
    weft_pipe *pipe = NULL;
    weft_store *store = NULL;
    weft_comm *comm = NULL;
    int64_t rank;
    weft_fates *fates = NULL;
    weft_buf told = {0};
    weft_status_code status = WEFT_OK;
    if (!arena || !cache)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    WEFT_GO(weft_args_config(args, arena, path, &run));
    if (weft_args_string(args, "--cluster"))
        WEFT_GO(weft_cluster_load(arena, weft_args_string(args, "--cluster"), &cluster));
    WEFT_GO(override_sizes(args, &run));
    WEFT_GO(weft_run_check(&run, path));
    WEFT_GO(weft_run_models_read(&run, path, &models));
    WEFT_GO(weft_run_settle(&run, &models, path, NULL, 0, arena, &told));
    const weft_run_place away = weft_run_away(&run);
    weft_place_of_run place = weft_place_by(&run, &models);
    place.away = away.dir;
    place.away_states = away.states;
    if (told.len)
        printf("%s\n", told.data);
    if (weft_args_flag(args, "--mesh"))
        WEFT_GO(weft_mesh_parse(weft_args_string(args, "--mesh"), &place.mesh));
    else
        WEFT_GO(weft_parallel_mesh(&run.parallel, 0, path, &place.mesh));
    WEFT_GO(weft_pipe_check_trained(&place.mesh, weft_run_denoises(&models), path));
    WEFT_GO(weft_args_i64(args, "--rank", 0, weft_mesh_ranks(&place.mesh) - 1, &rank));
    if (weft_args_flag(args, "--rank")) /* else rank 0 of a mesh that is not there at all */
        WEFT_GO(weft_comm_open_fake_alone(weft_mesh_ranks(&place.mesh), (int)rank, &comm));
    place.comm = comm;
    WEFT_GO(weft_pipe_open(&run.parallel, &place.mesh, (int)rank, path, &pipe));
    place.bulletin = weft_bulletin_floats(run.stragglers.steps ? weft_mesh_ranks(&place.mesh) : 0);
    place.pipe = pipe;
    if (weft_args_flag(args, "--recompute"))
        place.recompute = weft_args_list(args, "--recompute", &place.recompute_count);
    const weft_stage *stages = run.stages.item;
    WEFT_GO(weft_run_process_bytes(place.backend, &process));
    encoded = weft_alloc(run.stages.count);
    if (!encoded)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    if (weft_latents_encoded(&run, &models, encoded) == WEFT_OK) /* else there is no data yet */
        place.encoded = encoded;
    if (run.memory.limit) { /* else stages are planned where their time is told */
        WEFT_GO(hollow_store(&run, &models, &place, cache, &store));
        WEFT_GO(fit_stages(&run, &models, &place, store, process, &fates));
        weft_step_cache_free(cache); /* what was planned without the limit counts, too */
        cache = weft_step_cache_create();
        if (!cache)
            WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    }
    for (int64_t i = 0; i < run.stages.count; i++)
        WEFT_GO(inspect_stage(&run, &models, &stages[i], &place, cache,
                              weft_args_string(args, "--cluster") ? &cluster : NULL, args));
    if (!store)
        WEFT_GO(hollow_store(&run, &models, &place, cache, &store));
    WEFT_GO(inspect_memory(&run, &models, &place, cache, store, process));
    if (comm && place.backend->device->hollow)
        status = set_up(&run, &models, &place, cache, store);
out:
    weft_store_free(store);
    weft_run_fates_free(fates, fates ? run.stages.count : 0);
    weft_free(encoded);
    weft_buf_free(&told);
    weft_step_cache_free(cache);
    weft_pipe_free(pipe);
    weft_comm_free(comm);
    weft_arena_free(arena);
    return status;
}
