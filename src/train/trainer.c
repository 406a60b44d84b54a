/* A training run: models -> (latents) -> stages of { graph, program, loader } -> steps ->
 * checkpoints -> finished model.
 *
 *     lifetime   structs
 *     run        trainer, weft_train_context, weft_run_checkpoints, weft_memory_start
 *     stage      stage_run, weft_stage_state
 *     step       weft_step_run */
#include "train/trainer.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/measure.h"
#include "comm/rank_gpus.h"
#include "doctor/backend_choice.h"
#include "estimate/training/layout_estimate.h"
#include "estimate/training/resolve_layout.h"
#include "estimate/training/resolve_precision.h"
#include "exec/execute.h"
#include "exec/measure_products.h"
#include "kernel/registry/backend.h"
#include "train/cascade/cascade_trainer.h"
#include "train/checkpoint/failed_start.h"
#include "train/checkpoint/model_export.h"
#include "train/checkpoint/provenance.h"
#include "train/checkpoint/run_lock.h"
#include "train/checkpoint/run_places.h"
#include "train/checkpoint/stop_run.h"
#include "train/estimate/auto_limit.h"
#include "train/estimate/dry_run.h"
#include "train/estimate/memory_start.h"
#include "train/graph/control.h"
#include "train/graph/run_pair.h"
#include "train/latents/checked_clips.h"
#include "train/latents/grey_latents.h"
#include "train/latents/latent_cache.h"
#include "train/latents/stage_loader.h"
#include "train/monitor/data_report.h"
#include "train/step/initial_weights.h"
#include "train/step/step_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Lives for the run. No step uses it. */
typedef struct trainer {
    weft_train_context context;
    weft_run settled;    /* the run with the resolved layout */
    weft_settled choice; /* choices for `context: auto` and `slices: auto`, which rank 0 stores */
    bool is_verified[WEFT_PRODUCTS_COUNT]; /* the backend */
    weft_precision_choice precision;       /* choice for `precision: auto`, which rank 0 stores */
    weft_arena *arena;                     /* memory of files read for the layout and the cluster */
    weft_cluster cluster;                  /* cluster of parallel.cascades, if used */
    char cluster_name[512];
    weft_comm *comm;
    weft_pp_layout *pp;  /* pipeline of the mesh; NULL: none */
    weft_run_lock *lock; /* lock of run->out, on rank 0 */
    weft_run_checkpoints checkpoints;
    weft_memory_start memory;
    weft_auto_limit limit;
    weft_kill_timeout kill_timeout;
    weft_peak_gflops peak;
    weft_train_logger *logger;    /* rank 0's; NULL before the first training stage starts */
    weft_metrics_server *metrics; /* rank 0's; NULL: none */
    bool has_stepped;             /* a step of this start has ended */
    bool stopped_together;        /* all ranks stopped at the same step, with nothing in flight */
} trainer;

/* Lives for a training stage. */
typedef struct stage_run {
    weft_stage_state state;
    weft_cascade_train *cascades;    /* steps are iterations of cascades; NULL: no cascades */
    char latents[512];               /* folder of the denoiser's latent cache */
    char pairs[WEFT_RUN_PAIRS][512]; /* of further data sets (weft_run_pairs_of); "": none */
    weft_source_metrics sources;     /* of the loader, on rank 0 */
} stage_run;

/* ---- start --------------------------------------------------------------------------------- */

static weft_status read_models(trainer *t)
{
    weft_train_context *c = &t->context;
    WEFT_TRY(weft_run_models_read(c->run, c->path, &c->models));
    c->exec.recipes = c->models.recipe;
    c->exec.recipe_count = c->models.recipes;
    WEFT_TRY(
        weft_pp_layout_check_trained(&c->exec.mesh, weft_run_trains_denoiser(&c->models), c->path));
    WEFT_TRY(weft_run_checkpoints_create(c->run, &c->models, t->comm, &t->checkpoints));
    if (!weft_run_trains_denoiser(&c->models))
        return WEFT_OK;
    c->exec.trunk = c->models.denoiser.family->scope;
    return c->models.text_precomputed ? WEFT_OK
                                      : weft_tokenizer_set_open(&c->models.text, &c->tokenizers);
}

static void print_chosen(const trainer *t, bool from_file, const char *text)
{
    weft_buf layout = {0};
    const char *source = from_file ? "file" : t->choice.changed ? "estimate" : "run";
    weft_parallel_name(&t->settled.parallel, &layout);
    weft_notice(WEFT_MSG_LAYOUT_CHOSEN,
                WEFT_AT(WEFT_DETAILS(WEFT_WORD("source", source),
                                     WEFT_WORD("layout", layout.data ? layout.data : ""))),
                "%s", text);
    weft_buf_free(&layout);
}

/* Makes t->settled the run, to be changed by choices. */
static weft_status settle(trainer *t)
{
    if (!t->arena && !(t->arena = weft_arena_create()))
        return weft_no_memory("the training run");
    if (t->context.run != &t->settled)
        t->settled = *t->context.run;
    t->context.run = &t->settled;
    return WEFT_OK;
}

/* Resolves `memory.limit: auto`, before layouts are chosen for the limit. A dry run has none. */
static weft_status begin_limit(trainer *t)
{
    weft_train_context *c = &t->context;
    if (!c->run->memory.limit_auto || !strcmp(c->run->backend, "virtual"))
        return WEFT_OK;
    WEFT_TRY(settle(t));
    WEFT_TRY(weft_auto_limit_begin(&t->limit, c->run, c->path, t->comm));
    t->settled.memory.limit = t->limit.device;
    return WEFT_OK;
}

/* Adds the memory of the process to the limit, when it was measured. */
static weft_status end_limit(trainer *t)
{
    const weft_train_context *c = &t->context;
    char text[2][32];
    if (!t->limit.device)
        return WEFT_OK;
    WEFT_TRY(weft_auto_limit_end(&t->limit, weft_process_memory_sum(t->memory.process), t->comm));
    t->settled.memory.limit = t->limit.limit;
    if (!c->is_rank0)
        return WEFT_OK;
    weft_notice(WEFT_MSG_MEMORY_REPORT,
                WEFT_AT(.key = "memory.limit", WEFT_NUMBER(t->limit.limit),
                        WEFT_DETAILS(WEFT_DETAIL("device_bytes", t->limit.device),
                                     WEFT_WORD("source", t->limit.changed ? "free" : "run"))),
                "memory.limit: auto is %s, %s of it on the GPU%s",
                weft_format_bytes(t->limit.limit, text[0]),
                weft_format_bytes(t->limit.device, text[1]),
                t->limit.changed ? "" : ", as the run chose before");
    return t->limit.changed ? weft_auto_limit_save(c->run->out, &t->limit) : WEFT_OK;
}

/* Resolves `precision: auto`, before layouts are estimated in that precision. */
static weft_status resolve_precision(trainer *t)
{
    weft_train_context *c = &t->context;
    weft_run_models models;
    weft_buf out = {0};
    if (c->run->precision != WEFT_PRECISION_AUTO)
        return WEFT_OK;
    WEFT_TRY(settle(t));
    t->precision.precision = WEFT_PRECISION_AUTO;
    if (c->is_rank0 && strcmp(c->run->backend, "virtual"))
        WEFT_TRY(weft_precision_choice_load(c->run->out, &t->precision));
    WEFT_TRY(weft_run_models_read(c->run, c->path, &models));
    const weft_status_code status = weft_run_resolve_precision(
        &t->settled, &models, c->path, "local", t->comm, &t->precision, t->arena, &out);
    if (status == WEFT_OK && c->is_rank0)
        weft_notice(WEFT_MSG_LAYOUT_CHOSEN,
                    WEFT_AT(WEFT_DETAILS(
                        WEFT_WORD("source", t->precision.changed ? "estimate" : "run"),
                        WEFT_WORD("precision",
                                  t->settled.precision == WEFT_PRECISION_BF16 ? "bf16" : "f32"))),
                    "%s", out.data);
    weft_buf_free(&out);
    return status;
}

/* Resolves `plan: FILE` and the `auto` values of the section `parallel`. */
static weft_status resolve_layout(trainer *t)
{
    weft_train_context *c = &t->context;
    weft_run_models models;
    weft_buf out = {0};
    const weft_parallel *p = &c->run->parallel;
    const bool from_file = p->plan[0];
    if (!p->plan[0] && p->context.kind != WEFT_CP_AUTO && !weft_comm_overlap_has_auto(&p->overlap))
        return WEFT_OK;
    WEFT_TRY(settle(t));
    if (c->is_rank0 && strcmp(c->run->backend, "virtual"))
        WEFT_TRY(weft_settled_load(c->run->out, &t->choice));
    WEFT_TRY(weft_run_models_read(c->run, c->path, &models));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_resolve_layout(&t->settled, &models, c->path, t->comm,
                                    weft_comm_ranks(t->comm), &t->choice, t->arena, &out));
    if (c->is_rank0 && out.len)
        print_chosen(t, from_file, out.data);
out:
    weft_buf_free(&out);
    return status;
}

/* Products of the programs; with `precision: auto` they may be bf16. */
static weft_products products_of(const weft_run *run)
{
    switch (run->precision) {
    case WEFT_PRECISION_F32: return WEFT_PRODUCTS_F32;
    case WEFT_PRECISION_TF32: return WEFT_PRODUCTS_TF32;
    default: return WEFT_PRODUCTS_BF16;
    }
}

/* Resolves `backend: auto`, before the precision and layouts are chosen for the backend. */
static weft_status resolve_backend(trainer *t)
{
    const weft_run *run = t->context.run;
    const weft_backend *backend;
    const weft_products products = products_of(run);
    if (!weft_backend_is_auto(run->backend))
        return WEFT_OK;
    WEFT_TRY(weft_backend_settle(run->backend, products, t->comm, &backend));
    t->is_verified[products] = true;
    return WEFT_OK;
}

/* Verifies the backend in the precision of the run, unless its choice did. */
static weft_status verify_backend(trainer *t)
{
    weft_exec_config *exec = &t->context.exec;
    const weft_products products = products_of(t->context.run);
    return t->is_verified[products]
               ? WEFT_OK
               : weft_backend_settle(exec->backend->name, products, t->comm, &exec->backend);
}

/* Resolves `transformer.lora.targets: auto` to the layers in the run's checkpoints, if it has
 * any. */
static weft_status resolve_targets(trainer *t)
{
    const weft_run *run = t->context.run;
    const weft_run_lora *lora = &run->transformer.lora;
    if (!lora->rank || !weft_run_lora_is_auto(lora) || !strcmp(run->backend, "virtual"))
        return WEFT_OK;
    WEFT_TRY(settle(t));
    return weft_run_checkpoints_targets(&t->settled, t->comm, t->arena);
}

static weft_status open_ranks(trainer *t)
{
    weft_train_context *c = &t->context;
    WEFT_TRY(weft_comm_open_mpi(&t->comm));
    weft_comm_set_deadline(t->comm, c->run->deadline);
    WEFT_TRY(weft_rank_gpus_choose(c->run->backend, t->comm));
    const int ranks = weft_comm_ranks(t->comm);
    c->is_rank0 = weft_comm_rank(t->comm) == 0;
    WEFT_TRY(resolve_backend(t));
    WEFT_TRY(resolve_targets(t));
    WEFT_TRY(begin_limit(t));
    WEFT_TRY(resolve_precision(t));
    WEFT_TRY(resolve_layout(t));
    const weft_run *run = c->run;
    c->exec = weft_exec_config_of(run, NULL);
    WEFT_TRY(weft_cascades_check(&run->cascades, &run->parallel, ranks, c->path));
    WEFT_TRY(weft_parallel_mesh(&run->parallel, ranks, c->path, &c->exec.mesh));
    WEFT_TRY(weft_pp_layout_open(&run->parallel, &c->exec.mesh, weft_comm_rank(t->comm), c->path,
                                 &t->pp));
    c->exec.pp = t->pp;
    WEFT_TRY(verify_backend(t));
    c->meta = c->exec.backend->device->meta;
    if (c->meta && weft_run_cascades(run))
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = c->path, .key = "backend", .value = run->backend),
            "a dry run has no samples, so it cannot plan iterations of cascades. `weft estimate "
            "CONFIG --ranks N` plans iterations for N devices of parallel.cascades.cluster.");
    c->exec.comm = t->comm;
    c->exec.profile = run->trace && !c->meta;
    const weft_offload_target offload = weft_run_offload_target(run);
    c->exec.offload_dir = offload.dir;
    c->exec.offload_states = offload.states;
    c->exec.telemetry_floats = weft_rank_telemetry_floats(run->stragglers.steps ? ranks : 0);
    return WEFT_OK;
}

/* Locks the run's folder on rank 0, removes temporary files of killed writers, and saves a layout
 * and a precision that this start has chosen. */
static weft_status take_folder(trainer *t)
{
    weft_train_context *c = &t->context;
    enum { PATIENCE = 5 }; /* seconds to wait for the processes of a killed run */
    weft_comm_set_busy(t->comm, "taking the folder of the run");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_lock_take(c->run->out, PATIENCE, &t->lock));
    WEFT_GO(weft_remove_leftovers(c->run->out, true));
    if (t->choice.changed)
        WEFT_GO(weft_settled_save(c->run->out, &t->choice));
    if (t->precision.changed)
        WEFT_GO(weft_precision_choice_save(c->run->out, &t->precision));
out:
    weft_comm_set_busy(t->comm, NULL);
    return status;
}

/* Checks the data for all training stages at the start of the run, not when a later stage
 * begins. */
static weft_status check_data(trainer *t)
{
    weft_train_context *c = &t->context;
    uint64_t fingerprint;
    weft_comm_set_busy(t->comm, "checking the data");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_check_data(c->run, &fingerprint));
    WEFT_GO(weft_provenance_make(c->run, &c->models, fingerprint, &t->checkpoints.made_of));
out:
    weft_comm_set_busy(t->comm, NULL);
    return status;
}

/* Reads the cluster of cascades before the models are initialised, to report its errors early. */
static weft_status read_cluster(trainer *t)
{
    weft_train_context *c = &t->context;
    if (!weft_run_cascades(c->run))
        return WEFT_OK;
    if (!t->arena && !(t->arena = weft_arena_create()))
        return weft_no_memory("the training run");
    return weft_cascade_cluster(t->arena, c->run, c->path, &t->cluster, t->cluster_name);
}

static weft_status begin(trainer *t)
{
    weft_train_context *c = &t->context;
    WEFT_TRY(weft_pp_layout_check_used(&c->run->parallel, c->path));
    WEFT_TRY(open_ranks(t));
    if (!c->meta)
        WEFT_TRY(weft_run_places_check_shared(c->run->places, t->comm));
    WEFT_TRY(read_models(t));
    WEFT_TRY(read_cluster(t));
    if (c->is_rank0) {
        weft_run_warn_unusual(c->run);
        WEFT_TRY(weft_run_print_targets(c->run, &c->models));
    }
    if (c->is_rank0 && !c->meta)
        WEFT_TRY(take_folder(t));
    if (c->is_rank0 && !c->meta && c->run->metrics)
        WEFT_TRY(weft_metrics_server_open(c->run->metrics, &t->metrics));
    WEFT_TRY(weft_comm_barrier(t->comm));
    if (!c->meta)
        WEFT_TRY(weft_run_check_offload(c->run));
    WEFT_TRY(weft_train_context_create(c));
    if (!c->meta)
        WEFT_TRY(weft_comm_measure_peak(t->comm, c->exec.backend,
                                        c->run->precision == WEFT_PRECISION_BF16, 0.03, &t->peak));
    WEFT_TRY(weft_memory_start_measure(&t->memory, c));
    return end_limit(t);
}

/* ---- a training stage ---------------------------------------------------------------------- */

static weft_status open_cascades(trainer *t, int64_t index, weft_cascade_train **cascades)
{
    weft_train_context *c = &t->context;
    const weft_cascade_train_setup setup = {.run = c->run,
                                            .path = c->path,
                                            .models = &c->models,
                                            .exec = &c->exec,
                                            .store = c->store,
                                            .tokenizers = &c->tokenizers,
                                            .train_stage_index = index,
                                            .cluster = &t->cluster,
                                            .cluster_name = t->cluster_name,
                                            .decoder_bytes = t->memory.process.decoders};
    weft_cascade_train_free(*cascades);
    *cascades = NULL;
    return weft_cascade_train_open(&setup, cascades);
}

/* Fills the store with the parameters and states of every training stage's cascades and updates. */
static weft_status fill_cascades(trainer *t)
{
    weft_stage_programs s = {0};
    weft_cascade_train *cascades = NULL;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < t->context.run->train_stages.count; i++)
        WEFT_GO(open_cascades(t, i, &cascades));
    WEFT_GO(weft_cascade_train_steps(cascades, &s));
    WEFT_GO(weft_initial_weights(&t->context, s.bucket[0]->whole));
out:
    weft_stage_programs_free(&s);
    weft_cascade_train_free(cascades);
    weft_memory_trim();
    return status;
}

static void close_stage(stage_run *s)
{
    weft_source_metrics_free(&s->sources);
    weft_stage_state_free(&s->state);
    weft_cascade_train_free(s->cascades);
    *s = (stage_run){0};
}

/* Plans the programs of training stage `index`. Binds nothing. */
static weft_status open_stage(trainer *t, int64_t index, stage_run *s)
{
    weft_train_context *c = &t->context;
    weft_stage_state *state = &s->state;
    state->index = index;
    state->train_stage = (const weft_train_stage *)c->run->train_stages.item + index;
    if (weft_run_cascades(c->run)) {
        WEFT_TRY(open_cascades(t, index, &s->cascades));
        WEFT_TRY(weft_cascade_train_steps(s->cascades, &state->programs));
    } else {
        WEFT_TRY(weft_stage_programs_plan(c->steps, c->run, &c->models, state->train_stage,
                                          &c->exec, &state->programs));
    }
    c->telemetry.timing = (weft_step_timing){0};
    /* the plan of cascades determines a rank's work in an iteration */
    return weft_stage_state_create(c, !s->cascades, state);
}

static weft_status print_layout(const weft_train_context *c, const weft_stage_state *s)
{
    weft_buf out = {0};
    weft_stage_programs_layout(&s->programs, s->train_stage, &c->exec, &out);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&out));
    weft_message_detail axes[WEFT_MAX_AXES + 1] = {{NULL}};
    for (int i = 0; i < c->exec.mesh.axis_count; i++)
        axes[i] =
            (weft_message_detail)WEFT_DETAIL(c->exec.mesh.axis[i].name, c->exec.mesh.axis[i].size);
    if (out.len)
        weft_notice(WEFT_MSG_STAGE_REPORT, WEFT_AT(.details = axes),
                    "layout of %d ranks, slowest axis first\n%.*s", weft_comm_ranks(c->exec.comm),
                    (int)out.len - 1, out.data);
out:
    weft_buf_free(&out);
    return status;
}

/* Fills the store and chooses the activation plans, before the first training stage opens. Files
 * replace most random initial values, so that these are drawn last. */
static weft_status begin_weights(trainer *t)
{
    weft_train_context *c = &t->context;
    weft_store_defer_draws(c->store);
    WEFT_TRY(weft_run_cascades(c->run) ? fill_cascades(t) : weft_initial_weights_fill(c));
    return weft_memory_start_fit(&t->memory, c);
}

/* Prints the predicted memory and the layout, checks the data, and resumes the run, before the
 * steps of the first training stage. */
static weft_status begin_steps(trainer *t, const stage_run *first)
{
    weft_train_context *c = &t->context;
    if (!first->cascades)
        WEFT_TRY(weft_memory_start_predict(&t->memory, c));
    if (c->is_rank0 && !first->cascades)
        WEFT_TRY(print_layout(c, &first->state));
    if (c->is_rank0)
        WEFT_TRY(check_data(t));
    return weft_run_checkpoints_resume(&t->checkpoints, c->store, &c->progress);
}

/* Encodes the clips of all data sets that are not cached. Clips that steps decode are checked. */
static weft_status ensure_latents(weft_train_context *c, stage_run *s)
{
    const weft_train_stage *stage = s->state.train_stage;
    WEFT_TRY(weft_latents_ensure(c->run, &c->models, stage, &c->exec, s->latents));
    weft_run_pair pair[WEFT_RUN_PAIRS];
    const int pairs = weft_run_pairs_of(c->run, &c->models, pair);
    for (int i = 0; i < pairs; i++) {
        weft_train_stage own;
        if (!weft_run_pair_cached(&pair[i]))
            continue;
        const weft_run second = weft_run_pair_run(c->run, &pair[i]);
        const weft_run_models models = weft_run_pair_models(&c->models, &pair[i]);
        WEFT_TRY(weft_run_pair_stage(c->run, &pair[i], stage, &own));
        const weft_status_code status =
            weft_latents_ensure(&second, &models, &own, &c->exec, s->pairs[i]);
        weft_run_pair_stage_free(&pair[i], &own);
        WEFT_TRY(status);
    }
    WEFT_TRY(weft_checked_clips_ensure(c->run, &c->models, &c->exec, s->latents));
    return pairs && weft_control_needs_grey(c->run, &c->models)
               ? weft_grey_latents_ensure(c->run, &c->models, stage, &c->exec, s->pairs[0])
               : WEFT_OK;
}

/* Encodes latents if needed, then binds the training programs. Their memory is not reserved at
 * the same time. */
static weft_status bind_stage(trainer *t, stage_run *s)
{
    weft_train_context *c = &t->context;
    if (s->cascades && c->run->data.samples_from == WEFT_FROM_PIXELS)
        return WEFT_OK;
    if (weft_run_trains_denoiser(&c->models)) {
        weft_compiled_steps_unbind(c->steps);
        const weft_status_code status = ensure_latents(c, s);
        if (status == WEFT_E_CANCELLED)
            return weft_stop_between_steps(t->comm, "latents are encoded", &t->stopped_together);
        WEFT_TRY(status);
        weft_memory_trim();
    }
    return s->cascades
               ? WEFT_OK
               : weft_memory_start_name_limit(&t->memory, c, weft_stage_state_bind(c, &s->state));
}

/* Opens the loader at the first batch of the next step. */
static weft_status open_loader(trainer *t, stage_run *s)
{
    weft_train_context *c = &t->context;
    weft_run_checkpoints *checkpoints = &t->checkpoints;
    WEFT_TRY(weft_stage_loader_open(c, &s->state, s->latents, s->pairs, s->cascades != NULL));
    if (checkpoints->resumed && c->progress.done > weft_run_first_step(c->run, s->state.index))
        WEFT_TRY(weft_run_checkpoints_restore_loader(checkpoints, s->state.loader));
    json_decref(checkpoints->resumed);
    checkpoints->resumed = NULL;
    return c->is_rank0 ? weft_source_metrics_begin(s->state.loader, &s->sources) : WEFT_OK;
}

/* ---- steps --------------------------------------------------------------------------------- */

static weft_status run_step(trainer *t, stage_run *s, weft_step_run *r)
{
    weft_train_context *c = &t->context;
    const weft_step *last;
    weft_step *update;
    if (s->cascades) {
        WEFT_TRY(weft_cascade_train_run(s->cascades, c->progress.done, &update, &r->figures));
        WEFT_TRY(weft_step_run_update(r, update));
        WEFT_TRY(weft_cascade_train_record(s->cascades));
        last = update;
    } else {
        WEFT_TRY(weft_step_run_programs(r, &last));
    }
    const weft_status_code verdict = weft_step_run_end(r, last);
    t->has_stepped = true;
    t->kill_timeout.longest = fmax(t->kill_timeout.longest, r->figures.seconds);
    if (c->is_rank0) {
        weft_source_metrics_update(s->state.loader, &s->sources);
        r->figures.more = s->sources.metric;
        r->figures.more_count = s->sources.count;
        WEFT_TRY(weft_train_logger_record(t->logger, &r->figures));
    }
    return verdict == WEFT_E_NUMERIC
               ? weft_stop_outliers(&t->checkpoints, c->progress.done, verdict)
               : verdict;
}

/* Runs the next step of a stage, and writes its trace if it is the last. *trace: the status of the
 * trace, which must not keep a checkpoint from being written. */
static weft_status next_step(trainer *t, stage_run *s, weft_status_code *trace)
{
    weft_train_context *c = &t->context;
    weft_step_run r;
    const int64_t end = weft_run_first_step(c->run, s->state.index + 1);
    weft_status_code status = WEFT_OK;
    *trace = WEFT_OK;
    WEFT_GO(weft_step_run_begin(c, &s->state, c->exec.profile && c->progress.done + 1 == end, &r));
    WEFT_GO(run_step(t, s, &r));
    *trace = weft_step_run_write_trace(&r);
out:
    weft_step_run_free(&r);
    return status;
}

/* Starts writing a checkpoint. */
static weft_status save(trainer *t, const stage_run *s)
{
    if (t->context.is_rank0)
        WEFT_TRY(weft_train_logger_flush(t->logger));
    return weft_run_checkpoints_save(&t->checkpoints, &t->context.progress, s->state.index,
                                     s->state.loader);
}

/* Whether a checkpoint is written after the last step. */
static bool is_due(const weft_train_context *c, const stage_run *s)
{
    const int64_t done = c->progress.done, every = c->run->checkpoint.every;
    /* encoding the next stage's latents may take long: save before */
    const bool border = done == weft_run_first_step(c->run, s->state.index + 1) &&
                        weft_run_trains_denoiser(&c->models);
    return (every > 0 && done % every == 0) || border ||
           done == weft_run_first_step(c->run, c->run->train_stages.count);
}

static weft_status run_steps(trainer *t, stage_run *s)
{
    const weft_train_context *c = &t->context;
    const int64_t end = weft_run_first_step(c->run, s->state.index + 1);
    while (c->progress.done < end) {
        weft_status_code trace;
        WEFT_TRY(next_step(t, s, &trace));
        /* several ranks: the next step shares a new interrupt */
        const bool stop =
            weft_comm_ranks(t->comm) == 1 ? weft_interrupted() : c->telemetry.interrupted;
        if (stop || is_due(c, s))
            WEFT_TRY(save(t, s));
        WEFT_TRY(trace);
        if (stop && s->cascades)
            WEFT_TRY(weft_cascade_train_end(s->cascades));
        if (stop)
            return weft_stop_after_step(&t->checkpoints, c->progress.done, &t->stopped_together);
        weft_kill_timeout_check(&t->kill_timeout, &t->checkpoints);
    }
    WEFT_TRY(weft_checkpoints_wait(t->checkpoints.files));
    weft_kill_timeout_check(&t->kill_timeout, &t->checkpoints);
    return s->cascades ? weft_cascade_train_end(s->cascades) : WEFT_OK;
}

static weft_status train_stage(trainer *t, stage_run *s)
{
    weft_train_context *c = &t->context;
    weft_stage_state *state = &s->state;
    WEFT_TRY(bind_stage(t, s));
    WEFT_TRY(weft_memory_start_print_stage(&t->memory, c, state));
    WEFT_TRY(open_loader(t, s));
    if (c->is_rank0 && !t->logger) {
        WEFT_TRY(weft_train_logger_open(c->run->out, c->progress.done,
                                        weft_run_first_step(c->run, c->run->train_stages.count),
                                        c->run->log_every, t->peak, &t->logger));
        weft_train_logger_publish_to(t->logger, t->metrics);
    }
    if (s->cascades)
        WEFT_TRY(
            weft_cascade_train_begin(s->cascades, state->loader, state->no_text, c->progress.done));
    WEFT_TRY(run_steps(t, s));
    if (c->is_rank0)
        weft_text_conditioning_warn_truncation(&c->models.text, &c->tokenizers);
    if (c->is_rank0)
        weft_stage_state_print_traffic(state);
    return weft_stage_loader_report(c, state, "data at the end of the stage");
}

/* Runs the training stages in sequence. *s is the last one. */
static weft_status train_stages(trainer *t, stage_run *s)
{
    const weft_run *run = t->context.run;
    WEFT_TRY(begin_weights(t));
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        close_stage(s);
        WEFT_TRY(open_stage(t, i, s));
        if (i == 0)
            WEFT_TRY(begin_steps(t, s));
        if (t->context.progress.done < weft_run_first_step(run, i + 1))
            WEFT_TRY(train_stage(t, s));
    }
    return WEFT_OK;
}

/* ---- dry run ------------------------------------------------------------------------------- */

static weft_status dry_run_stage(trainer *t, stage_run *s)
{
    weft_train_context *c = &t->context;
    weft_stage_state *state = &s->state;
    weft_dry_run r = {0};
    WEFT_TRY(weft_stage_state_bind(c, state));
    WEFT_TRY(weft_memory_start_print_stage(&t->memory, c, state));
    const int64_t few = WEFT_REHEARSED > state->programs.buckets ? WEFT_REHEARSED
                                                                 : state->programs.buckets,
                  steps = state->train_stage->steps < few ? state->train_stage->steps : few;
    const double each = weft_dry_run_seconds(&state->programs);
    weft_progress progress;
    if (c->is_rank0)
        weft_progress_begin_late(&progress, "dry run", steps);
    for (int64_t i = 0; i < steps && !weft_interrupted(); i++) {
        if (c->is_rank0)
            weft_progress_update_left(&progress, i, NULL, each * (double)(steps - i));
        WEFT_TRY(weft_dry_run_step(&r, state, i));
    }
    WEFT_TRY(weft_comm_barrier(t->comm));
    if (c->is_rank0)
        weft_progress_end(&progress, r.steps, NULL);
    if (c->is_rank0)
        weft_dry_run_print(&r, state->index,
                           weft_stage_state_bytes(c, state) + weft_store_bytes(c->store));
    return WEFT_OK;
}

/* Runs a few steps of every training stage on a device without values. Prints predicted time and
 * memory. Reads no data and writes no files. */
static weft_status dry_run(trainer *t, stage_run *s)
{
    weft_train_context *c = &t->context;
    WEFT_TRY(begin_weights(t));
    if (c->is_rank0)
        weft_notice(WEFT_MSG_STAGE_REPORT,
                    WEFT_AT(WEFT_DETAILS(WEFT_DETAIL("dry_run_most", WEFT_REHEARSED))),
                    "backend %s: dry run of at most %d steps per stage, one per bucket. No data "
                    "is read, no loss is computed, and no files are written",
                    c->exec.backend->name, WEFT_REHEARSED);
    WEFT_TRY(weft_memory_start_predict(&t->memory, c));
    for (int64_t i = 0; i < c->run->train_stages.count; i++) {
        close_stage(s);
        WEFT_TRY(open_stage(t, i, s));
        WEFT_TRY(dry_run_stage(t, s));
    }
    return WEFT_OK;
}

/* ---- end ----------------------------------------------------------------------------------- */

/* Sets the frame rate from the first clip if the run had no step left to train. */
static weft_status find_fps(weft_train_context *c)
{
    const weft_run_data *d = &c->run->data;
    weft_dataset *data;
    if (c->progress.fps <= 0)
        c->progress.fps = d->fps;
    if (c->progress.fps > 0)
        return WEFT_OK;
    WEFT_TRY(weft_run_data_open(d, &data));
    if (weft_dataset_count(data) > 0)
        c->progress.fps = weft_dataset_at(data, 0)->fps;
    weft_dataset_close(data);
    return WEFT_OK;
}

/* Replaces the weights with their EMA, if the run has one. */
static weft_status end_averages(weft_train_context *c, const stage_run *last)
{
    const weft_stage_programs *programs = &last->state.programs;
    weft_compiled_steps_unbind(c->steps);
    if (last->cascades)
        weft_program_unbind(programs->update->program);
    return c->run->optimizer.ema_decay > 0
               ? weft_step_end_averages(programs->update ? programs->update : programs->bucket[0],
                                        &c->exec, c->store)
               : WEFT_OK;
}

/* Measures the latent statistics of a trained autoencoder, which its config contains. */
static weft_status measure_latents(trainer *t, const stage_run *last)
{
    weft_train_context *c = &t->context;
    weft_model *model = &c->models.autoencoder;
    weft_grid *grid = &c->models.grid;
    const weft_status_code measured =
        weft_latents_measure(c->run, model, last->state.train_stage, &c->exec, c->store, 256,
                             grid->mean, grid->deviation);
    if (measured == WEFT_E_CANCELLED)
        return weft_stop_between_steps(t->comm, "latents are measured", &t->stopped_together);
    WEFT_TRY(measured);
    grid->own_frames = 0;
    weft_model_set_statistics(model, grid);
    json_decref(t->checkpoints.part[0].config);
    t->checkpoints.part[0].config = weft_model_write(model);
    return WEFT_OK;
}

/* Writes the finished model. */
static weft_status finish(trainer *t, const stage_run *last)
{
    weft_train_context *c = &t->context;
    const weft_train_stage *train_stage = last->state.train_stage;
    if (c->is_rank0 && t->has_stepped)
        weft_memory_start_print_peak(&t->memory);
    WEFT_TRY(find_fps(c));
    WEFT_TRY(end_averages(c, last));
    if (!weft_run_trains_denoiser(&c->models))
        WEFT_TRY(measure_latents(t, last));
    const weft_export e = {
        .run = c->run,
        .models = &c->models,
        .comm = t->comm,
        .store = c->store,
        .graph = last->state.programs.bucket[0]->whole,
        .part = t->checkpoints.part,
        .parts = t->checkpoints.parts,
        .size = weft_train_stage_bucket(train_stage, weft_train_stage_largest(train_stage)),
        .fps = c->progress.fps};
    weft_comm_set_busy(t->comm, "writing the finished model");
    const weft_status_code status = weft_export_write(&e);
    weft_comm_set_busy(t->comm, NULL);
    WEFT_TRY(status);
    WEFT_TRY(weft_comm_barrier(t->comm));
    if (c->is_rank0)
        weft_export_print(&e);
    return WEFT_OK;
}

/* Sends what the bucket of `out` lacks, on rank 0, unless no step was made. */
static weft_status send_results(const trainer *t, bool failed)
{
    weft_working_copy *out = weft_run_places_out(t->context.run->places);
    if (!out || !t->context.is_rank0 || t->context.meta || (failed && !t->has_stepped))
        return WEFT_OK;
    weft_comm_set_busy(t->comm, "sending the results");
    const weft_status_code status = weft_working_copy_send(out);
    weft_comm_set_busy(t->comm, NULL);
    if (status != WEFT_OK && failed) /* the first error stays */
        weft_warn_error(WEFT_MSG_STORAGE_SEND, "the bucket is not complete");
    else if (status == WEFT_OK)
        weft_notice(WEFT_MSG_STORAGE_COPY, WEFT_AT(.file = weft_working_copy_location(out)),
                    "all results are sent");
    return failed ? WEFT_OK : status;
}

static void close_run(trainer *t, stage_run *last, bool failed)
{
    const bool aborts = failed && !t->stopped_together;
    const char *out = t->context.run->out;
    close_stage(last);
    weft_checkpoints_close(t->checkpoints.files, failed);
    if (failed) {
        weft_error_copy *error = weft_error_save();
        (void)!send_results(t, true);
        weft_error_restore(error);
        weft_free(error);
    }
    weft_run_checkpoints_free(&t->checkpoints);
    weft_train_context_free(&t->context);
    weft_pp_layout_free(t->pp);
    weft_memory_start_free(&t->memory);
    weft_arena_free(t->arena);
    if (aborts && !t->has_stepped && weft_run_lock_created(t->lock))
        weft_failed_start_remove(out);
    weft_run_lock_release(t->lock, failed);
    if (aborts)
        weft_comm_abort(t->comm); /* ends the other ranks' waits for this rank */
    weft_comm_free(t->comm);
}

static weft_status run_all(trainer *t, stage_run *last)
{
    WEFT_TRY(begin(t));
    return t->context.meta ? dry_run(t, last) : train_stages(t, last);
}

static weft_status train_in_folders(const weft_run *run, const char *path)
{
    trainer t = {.context = {.run = run, .path = path}};
    stage_run last = {0};
    weft_status_code status = run_all(&t, &last);
    const weft_status_code closed = weft_train_logger_close(t.logger);
    weft_metrics_server_close(t.metrics);
    WEFT_GO(weft_status_first(status, closed));
    if (!t.context.meta)
        WEFT_GO(finish(&t, &last));
    WEFT_GO(send_results(&t, false));
out:
    close_run(&t, &last, status != WEFT_OK);
    return status;
}

weft_status weft_train(const weft_run *run, const char *path)
{
    weft_run_places *places;
    WEFT_TRY(weft_run_check(run, path));
    WEFT_TRY(weft_run_places_open(run, &places));
    const weft_status_code status = train_in_folders(weft_run_places_run(places), path);
    weft_run_places_close(places);
    return status;
}
