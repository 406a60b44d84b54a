#include "inspect/inspect_run.h"

#include "base/log.h"
#include "comm/comm_fake.h"
#include "estimate/program_estimate.h"
#include "estimate/training/resolve_layout.h"
#include "estimate/training/resolve_precision.h"
#include "inspect/roofline_print.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/registry/backend.h"
#include "train/config/packing_config.h"
#include "train/estimate/memory_fit.h"
#include "train/estimate/meta_store.h"
#include "train/estimate/process_memory.h"
#include "train/latents/latent_cache_folder.h"
#include "train/monitor/rank_telemetry.h"
#include "train/pipeline/pp_layout.h"
#include "transform/memory/comm_waits.h"

#include <stdio.h>

/* A rank of the run, without its other ranks. */
typedef struct inspection {
    const weft_inspect_run_options *o;
    weft_run *run;
    const char *path;
    weft_run_models models;
    weft_exec_config exec;
    weft_cluster cluster;
    weft_arena *arena;
    weft_compiled_steps *cache;
    weft_store *store;
    weft_comm *comm;
    weft_pp_layout *pp;
    weft_activation_plan *activations;
    bool *encoded;
    weft_process_memory process;
} inspection;

static void line(const char *what, int64_t bytes, const char *note)
{
    char text[32];
    printf("  %-14s %14s  %s\n", what, weft_format_bytes(bytes, text), note);
}

static weft_status print_graph(const weft_graph *g)
{
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pp_schedule_print(g, &text));
    fwrite(text.data, 1, (size_t)text.len, stdout);
out:
    weft_buf_free(&text);
    return status;
}

static weft_status print_passes(const weft_pass_log *log)
{
    weft_buf text = {0};
    weft_pass_log_print(log, &text);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&text));
    fwrite(text.data, 1, (size_t)text.len, stdout);
out:
    weft_buf_free(&text);
    return status;
}

/* Prints the seconds of a step by the estimate of `weft estimate`. */
static weft_status print_seconds(const weft_step *step, const weft_cluster *cluster)
{
    char text[32];
    weft_program_cost t;
    const weft_rank_links links = {cluster, weft_graph_mesh(step->graph)};
    WEFT_TRY(weft_program_cost_of(&links, step->program, false, &t));
    const double kernels = t.compute + t.update, percent = t.seconds > 0 ? 100 / t.seconds : 0;
    printf("  %-14s %14s  forward %.0f %%, backward %.0f %%, update %.0f %%, exposed communication "
           "%.0f %%; %.0f %% measured at these shapes\n",
           "predicted step", weft_format_seconds(t.seconds, text),
           percent * (t.compute - t.backward), percent * t.backward, percent * t.update,
           percent * t.exposed, kernels > 0 ? 100 * t.exact / kernels : 0);
    return WEFT_OK;
}

static void print_size(const weft_train_stage *train_stage, const weft_bucket *size,
                       const weft_step *step)
{
    printf("stage %s: %" PRId64 " step%s of %" PRId64 " x %" PRId64 "x%" PRId64 "x%" PRId64 "\n",
           train_stage->name, train_stage->steps, weft_plural(train_stage->steps), size->batch,
           size->frames, size->height, size->width);
    printf("  %-14s %14" PRId64 "  trained together\n", "parameters",
           weft_graph_param_count(step->whole));
    printf("  %-14s %14.4g  of a %s\n", "FLOPs", (double)step->cost.flops,
           step->pp_step ? "microbatch on a rank" : "training step");
}

static const char *const pp_tasks[WEFT_PP_TASK_KINDS] = {"forward", "backward", "weights"};

/* Prints the pipeline stages of rank 0. */
static weft_status inspect_pp_stages(const weft_step *step, bool print)
{
    for (int i = 0; i < step->pp_step->owns; i++) {
        const weft_pp_local_stage *own = &step->pp_step->own[i];
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++) {
            if (!own->program[k])
                continue;
            printf("  stage %d, %s\n", own->pp_stage, pp_tasks[k]);
            printf("  %-14s %14d\n", "nodes", (int)weft_graph_node_count(own->graph[k]));
            line("activations", weft_program_plan(own->program[k])->arena_bytes,
                 "in the arena that all programs use");
            if (print)
                WEFT_TRY(print_graph(own->graph[k]));
        }
    }
    return WEFT_OK;
}

static weft_status inspect_bucket(const weft_train_stage *train_stage, const weft_bucket *size,
                                  const weft_step *step, const weft_cluster *cluster, bool print)
{
    print_size(train_stage, size, step);
    if (step->pp_step)
        return inspect_pp_stages(step, print);
    const weft_memory_plan *plan = weft_program_plan(step->program);
    printf("  %-14s %14d  on a rank\n", "nodes", (int)weft_graph_node_count(step->graph));
    line("weights", plan->source_bytes, "with the optimizer's moments and the moving average");
    line("activations", plan->arena_bytes, "the arena that a run reserves: the peak, exactly");
    line("workspace", plan->workspace_bytes, "of the kernels, reserved once");
    line("inputs", plan->input_bytes, "");
    if (cluster)
        WEFT_TRY(print_seconds(step, cluster));
    return print ? print_graph(step->graph) : WEFT_OK;
}

/* Prints the update program, which follows the batches of a step that has several. */
static weft_status inspect_update(const weft_step *step, const char *what, bool print)
{
    const weft_memory_plan *plan = weft_program_plan(step->program);
    printf("%s after the batches of a step\n", what);
    printf("  %-14s %14d  on a rank\n", "nodes", (int)weft_graph_node_count(step->graph));
    line("activations", plan->arena_bytes, "in the arena that the batches use");
    return print ? print_graph(step->graph) : WEFT_OK;
}

static weft_status inspect_peak(const weft_stage_programs *s)
{
    int64_t weights, bytes;
    WEFT_TRY(weft_stage_programs_bytes(s, &bytes));
    WEFT_TRY(weft_stage_programs_weights(s, &weights));
    line("program", bytes, "reserved for the stage: all but the weights");
    line("predicted peak", bytes + weights, "the program's and the weights'");
    return WEFT_OK;
}

typedef struct planning {
    weft_progress progress;
    int64_t done; /* programs */
} planning;

/* Counts the programs of all training stages, except those that follow the buckets of a
 * pipeline. */
static void begin_planning(const weft_run *run, planning *p)
{
    const weft_train_stage *train_stage = run->train_stages.item;
    int64_t total = 0;
    for (int64_t i = 0; i < run->train_stages.count; i++)
        total += weft_run_stage_programs(run, &train_stage[i]) + (train_stage[i].accumulate > 1);
    p->done = 0;
    weft_progress_begin_late(&p->progress, "planning", total);
}

/* The programs of a training stage share their arena. */
static weft_status inspect_train_stage(const weft_run *run, const weft_run_models *models,
                                       const weft_train_stage *train_stage, weft_exec_config *exec,
                                       weft_compiled_steps *cache, const weft_cluster *cluster,
                                       planning *planned, const weft_inspect_run_options *o)
{
    const double begin = weft_now();
    const bool print = o->graph, logs = o->passes;
    weft_stage_programs s = {0};
    weft_bucket size;
    weft_buf layout = {0};
    weft_status_code status = WEFT_OK;
    weft_compiled_steps *own =
        logs ? weft_compiled_steps_create() : cache; /* a cache hit logs nothing */
    WEFT_TRY(WEFT_ALLOCATED(own, "the steps of a stage"));
    WEFT_GO(weft_stage_programs_begin(run, train_stage, exec, &s));
    while (weft_stage_programs_has_next(&s)) {
        weft_pass_log log = {0};
        exec->log = logs ? &log : NULL;
        WEFT_GO(weft_stage_programs_next(own, run, models, train_stage, exec, &s));
        const weft_step *step = s.bucket[s.count - 1];
        if (++planned->done < planned->progress.total)
            weft_progress_update(&planned->progress, planned->done, "programs");
        if (s.count > s.buckets)
            WEFT_GO(inspect_update(step, s.update ? "update" : "sums of what stages share", print));
        else {
            size = weft_run_program_size(run, train_stage, s.count - 1);
            WEFT_GO(inspect_bucket(train_stage, &size, step, cluster, print));
        }
        if (exec->log)
            WEFT_GO(print_passes(&log));
    }
    status = inspect_peak(&s);
    weft_stage_programs_layout(&s, train_stage, exec, &layout);
    if (layout.len)
        printf("%s", layout.data);
    printf("  planned in %.2f s\n", weft_now() - begin);
out:
    exec->log = NULL;
    weft_buf_free(&layout);
    weft_stage_programs_free(&s);
    if (logs)
        weft_compiled_steps_free(own);
    return status;
}

/* ---- roofline -------------------------------------------------------------------------------- */

static weft_status add_pp_rooflines(const weft_step *step, const char *title,
                                    weft_roofline_list *list)
{
    char own_title[256];
    for (int i = 0; i < step->pp_step->owns; i++) {
        const weft_pp_local_stage *own = &step->pp_step->own[i];
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++) {
            if (!own->program[k])
                continue;
            snprintf(own_title, sizeof own_title, "%s, pipeline stage %d, %s", title, own->pp_stage,
                     pp_tasks[k]);
            WEFT_TRY(weft_roofline_add(list, own->program[k], own_title, 0));
        }
    }
    return WEFT_OK;
}

static weft_status add_bucket_roofline(const inspection *w, const weft_train_stage *train_stage,
                                       const weft_bucket *size, const weft_step *step,
                                       weft_roofline_list *list)
{
    char title[192];
    snprintf(title, sizeof title, "stage %s: %" PRId64 " x %" PRId64 "x%" PRId64 "x%" PRId64,
             train_stage->name, size->batch, size->frames, size->height, size->width);
    if (step->pp_step)
        return add_pp_rooflines(step, title, list);
    return weft_roofline_add(list, step->program, title,
                             3 * (double)weft_graph_cost(step->whole).flops /
                                 weft_mesh_ranks(&w->exec.mesh));
}

/* Adds the programs of a training stage: of its sizes, and of the update after several batches. */
static weft_status add_rooflines(inspection *w, const weft_train_stage *train_stage,
                                 weft_roofline_list *list)
{
    weft_stage_programs s = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_stage_programs_plan(w->cache, w->run, &w->models, train_stage, &w->exec, &s));
    for (int i = 0; i < s.count; i++) {
        if (i >= s.buckets)
            WEFT_GO(weft_roofline_add(list, s.bucket[i]->program, "update", 0));
        else
            WEFT_GO(add_bucket_roofline(w, train_stage, weft_train_stage_bucket(train_stage, i),
                                        s.bucket[i], list));
    }
out:
    weft_stage_programs_free(&s);
    return status;
}

static weft_status inspect_rooflines(inspection *w)
{
    weft_roofline_list list;
    const weft_train_stage *train_stage = w->run->train_stages.item;
    WEFT_TRY(weft_roofline_begin(w->arena, w->o->roofline, &list));
    for (int64_t i = 0; i < w->run->train_stages.count; i++)
        WEFT_TRY(add_rooflines(w, &train_stage[i], &list));
    return weft_roofline_print(&list, w->o->json);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Sets up one stage. *most: the largest resident memory so far. */
static weft_status set_up_stage(const weft_run *run, const weft_run_models *models,
                                const weft_train_stage *stage, const weft_exec_config *exec,
                                weft_compiled_steps *cache, weft_store *store, int64_t *most)
{
    weft_stage_programs s = {0};
    weft_pp_executor *executor = NULL;
    weft_group *world;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_stage_programs_plan(cache, run, models, stage, exec, &s));
    WEFT_GO(weft_compiled_steps_bind(cache, s.bucket, s.count, store, 0));
    if (exec->pp) {
        WEFT_GO(weft_stage_programs_pipe(&s, &executor));
        WEFT_GO(weft_comm_world(exec->comm, &world));
        WEFT_GO(weft_pp_executor_bind(executor, world, &exec->mesh));
    }
    *most = weft_memory_resident() > *most ? weft_memory_resident() : *most;
out:
    weft_pp_executor_free(executor);
    weft_stage_programs_free(&s);
    return status;
}

/* Runs the set-up of a run before its first step, without data from other ranks. */
static weft_status set_up(const weft_run *run, const weft_run_models *models,
                          const weft_exec_config *exec, weft_compiled_steps *cache,
                          weft_store *store)
{
    const double begin = weft_now();
    int64_t most = 0;
    char text[32];
    for (int64_t i = 0; i < run->train_stages.count; i++)
        WEFT_TRY(set_up_stage(run, models, (const weft_train_stage *)run->train_stages.item + i,
                              exec, cache, store, &most));
    weft_compiled_steps_unbind(cache);
    printf("set up as rank %d of %d in %.2f s: groups, collectives, store, programs, buffers; "
           "resident memory %s\n",
           weft_comm_rank(exec->comm), weft_mesh_ranks(&exec->mesh), weft_now() - begin,
           weft_format_bytes(most, text));
    return WEFT_OK;
}

/* Applies memory.limit to the activations that each stage saves. */
static weft_status fit_train_stages(inspection *w)
{
    const weft_run *run = w->run;
    weft_buf message = {0};
    WEFT_TRY(WEFT_NEW(w->activations, run->train_stages.count, "stages"));
    weft_stored_activations stored = {0}; /* activation plans of a run that has started */
    WEFT_TRY(weft_stored_activations_load(run->out, &stored));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_fit_memory(run, &w->models, &w->exec, NULL, w->store,
                                weft_process_memory_sum(w->process), &stored, w->activations,
                                &message));
    if (message.len && !w->o->json)
        printf("%s", message.data);
out:
    weft_buf_free(&message);
    weft_stored_activations_free(&stored);
    w->exec.stage_activations = w->activations;
    return status;
}

/* Prints the first line of `weft train`. */
static weft_status inspect_memory(const weft_run *run, const weft_run_models *models,
                                  const weft_exec_config *exec, weft_compiled_steps *cache,
                                  weft_store *store, int64_t process)
{
    weft_buf message = {0};
    weft_run_bytes peak;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_memory(run, models, exec, cache, store, process, &peak, &message));
    printf("%s\n", message.data);
out:
    weft_buf_free(&message);
    return status;
}

static void override_size(const weft_inspect_run_options *o, weft_bucket *b)
{
    b->batch = o->size.batch ? o->size.batch : b->batch;
    b->frames = o->size.frames ? o->size.frames : b->frames;
    b->height = o->size.height ? o->size.height : b->height;
    b->width = o->size.width ? o->size.width : b->width;
}

/* A size that is set replaces the size of every training stage of the config. */
static void override_sizes(const weft_inspect_run_options *o, weft_run *run)
{
    for (int64_t s = 0; s < run->train_stages.count; s++) {
        weft_train_stage *train_stage = (weft_train_stage *)run->train_stages.item + s;
        override_size(o, &train_stage->size);
        for (int64_t b = 0; b < train_stage->buckets.count; b++)
            override_size(o, (weft_bucket *)train_stage->buckets.item + b);
    }
}

/* Resolves the layout and prints a line about it. */
static weft_status resolve(inspection *w)
{
    weft_buf message = {0};
    weft_settled stored;
    WEFT_TRY(weft_settled_load(w->run->out, &stored));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_predict_precision(w->run, &w->models, w->path, "local", w->arena, &message));
    if (message.len && !w->o->json)
        printf("%s\n", message.data);
    weft_buf_free(&message);
    message = (weft_buf){0};
    WEFT_GO(
        weft_run_resolve_layout(w->run, &w->models, w->path, NULL, 0, &stored, w->arena, &message));
    if (message.len && !w->o->json)
        printf("%s\n", message.data);
out:
    weft_buf_free(&message);
    WEFT_TRY(status);
    const weft_offload_target offload = weft_run_offload_target(w->run);
    w->exec = weft_exec_config_of(w->run, &w->models);
    w->exec.offload_dir = offload.dir;
    w->exec.offload_states = offload.states;
    if (w->o->roofline)
        w->exec.backend = &weft_backend_cuda;
    if (w->o->mesh[0])
        WEFT_TRY(weft_mesh_parse(w->o->mesh, &w->exec.mesh));
    else
        WEFT_TRY(weft_parallel_mesh(&w->run->parallel, 0, w->path, &w->exec.mesh));
    return weft_pp_layout_check_trained(&w->exec.mesh, weft_run_trains_denoiser(&w->models),
                                        w->path);
}

/* Opens the rank: rank 0 of a mesh without processes, or the given rank. */
static weft_status open_rank(inspection *w)
{
    const int ranks = weft_mesh_ranks(&w->exec.mesh), rank = w->o->rank >= 0 ? w->o->rank : 0;
    if (rank >= ranks)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--rank", WEFT_NUMBER(rank)),
                          "%d is not an integer from 0 to %d", rank, ranks - 1);
    if (w->o->rank >= 0)
        WEFT_TRY(weft_comm_open_single(ranks, rank, &w->comm));
    w->exec.comm = w->comm;
    WEFT_TRY(weft_pp_layout_open(&w->run->parallel, &w->exec.mesh, rank, w->path, &w->pp));
    w->exec.telemetry_floats = weft_rank_telemetry_floats(w->run->stragglers.steps ? ranks : 0);
    w->exec.pp = w->pp;
    if (w->o->recompute_count) {
        w->exec.recompute = w->o->recompute;
        w->exec.recompute_count = w->o->recompute_count;
    }
    WEFT_TRY(WEFT_ARENA_NEW(w->arena, w->encoded, w->run->train_stages.count, "the report"));
    if (weft_latents_encoded(w->run, &w->models, w->encoded) == WEFT_OK) /* else no data yet */
        w->exec.encoded = w->encoded;
    return weft_process_memory_measure(w->run, w->exec.encoded, ranks, &w->process);
}

/* Applies memory.limit. Drops the programs that were planned before, because their memory
 * counts. */
static weft_status fit(inspection *w)
{
    if (!w->run->memory.limit)
        return WEFT_OK;
    WEFT_TRY(weft_meta_store_create(w->run, &w->models, &w->exec, w->cache, &w->store));
    WEFT_TRY(fit_train_stages(w));
    weft_compiled_steps_free(w->cache);
    w->cache = weft_compiled_steps_create();
    return WEFT_ALLOCATED(w->cache, "the report");
}

static weft_status inspect(inspection *w)
{
    const weft_train_stage *train_stages = w->run->train_stages.item;
    planning planned;
    w->cache = weft_compiled_steps_create();
    WEFT_TRY(WEFT_ALLOCATED(w->cache, "the report"));
    if (w->o->cluster)
        WEFT_TRY(weft_cluster_load(w->arena, w->o->cluster, &w->cluster));
    override_sizes(w->o, w->run);
    WEFT_TRY(weft_run_check(w->run, w->path));
    WEFT_TRY(weft_pp_layout_check_used(&w->run->parallel, w->path));
    WEFT_TRY(weft_run_models_read(w->run, w->path, &w->models));
    WEFT_TRY(resolve(w));
    WEFT_TRY(open_rank(w));
    WEFT_TRY(fit(w));
    if (w->o->roofline)
        return inspect_rooflines(w);
    begin_planning(w->run, &planned);
    for (int64_t i = 0; i < w->run->train_stages.count; i++)
        WEFT_TRY(inspect_train_stage(w->run, &w->models, &train_stages[i], &w->exec, w->cache,
                                     w->o->cluster ? &w->cluster : NULL, &planned, w->o));
    weft_progress_end(&planned.progress, planned.done, "programs");
    if (!w->store)
        WEFT_TRY(weft_meta_store_create(w->run, &w->models, &w->exec, w->cache, &w->store));
    WEFT_TRY(inspect_memory(w->run, &w->models, &w->exec, w->cache, w->store,
                            weft_process_memory_sum(w->process)));
    return w->comm && w->exec.backend->device->meta
               ? set_up(w->run, &w->models, &w->exec, w->cache, w->store)
               : WEFT_OK;
}

weft_status weft_inspect_run(weft_run *run, const char *path,
                             const weft_inspect_run_options *options, weft_arena *arena)
{
    inspection w = {.o = options, .run = run, .path = path, .arena = arena};
    const weft_status_code status = inspect(&w);
    weft_store_free(w.store);
    weft_activation_plans_free(w.activations, w.activations ? run->train_stages.count : 0);
    weft_compiled_steps_free(w.cache);
    weft_pp_layout_free(w.pp);
    weft_comm_free(w.comm);
    return status;
}
