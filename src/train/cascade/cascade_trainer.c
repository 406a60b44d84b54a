#include "train/cascade/cascade_trainer.h"

#include "base/hash.h"
#include "base/hex.h"
#include "base/log.h"
#include "comm/coll_algorithms.h"
#include "comm/comm_world.h"
#include "estimate/program_estimate.h"
#include "estimate/training/layout_estimate.h"
#include "plan/cluster/cluster_path.h"
#include "plan/cost/graph_list.h"
#include "train/cascade/cascade_log.h"
#include "train/cascade/cascade_runtime.h"
#include "train/cascade/dispatch_inputs.h"
#include "train/estimate/memory_estimate.h"
#include "train/latents/latent_cache.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SETTLED = 8 }; /* iterations for the choice of the degree of equal groups */
/* Seconds between two measurements of the common clock. Clocks of two machines drift apart by some
 * microseconds per second. */
static const double clock_period = 20;

/* Programs and sizes of the buckets of this training stage. */
typedef struct bucket_table {
    int count;
    const weft_step **program;          /* [count] one-rank programs */
    weft_bucket *size;                  /* [count] */
    int64_t *clips, *tokens, *elements; /* [count]; elements: of a clip's latents */
    double *work;                       /* [count] FLOPs of a sample */
    int64_t heads;                      /* heads of the largest bucket */
    char (*name_text)[64];              /* [count] memory of `name` */
    const char **name;                  /* [count] sizes as text, for plan files */
} bucket_table;

/* The planner of this training stage and its inputs. */
typedef struct planning {
    weft_cluster cluster;
    double memory;                /* bytes per rank */
    int64_t fixed;                /* bytes of a rank without programs */
    double reduce_seconds;        /* estimated seconds of the complete gradient all-reduce */
    double reduce_last_seconds;   /* of its last part, with the last gradients */
    bool ring;                    /* the model supports ring attention */
    weft_dispatch_hand *transfer; /* [buckets] */
    weft_cascade_cost_table *cost_table;
    weft_plans *replay;
    weft_cascade_planner *planner;
    char model[20]; /* hash of the trained model */
    weft_plans_stamp stamp;
} planning;

/* Measurements of this run, for later plans. */
typedef struct record {
    weft_price_errors *errors; /* [WEFT_CASCADE_MODULES] */
    weft_rank_speeds speeds;
    double *slow;                /* [ranks] slowdown factors from `speeds`, for late dispatch */
    weft_dispatch_inputs inputs; /* of late dispatch, on rank 0 */
} record;

/* The running iteration. */
typedef struct iteration {
    const weft_placed_iteration *plan;
    const char *plan_text;
    weft_planning_stats stats;
    weft_iteration_done done;
    /* samples of up to SETTLED iterations */
    weft_placed_sample *sample;
    weft_item *item;
} iteration;

/* Totals over iterations. `executed_any` includes iterations with compilation. */
typedef struct totals {
    bool executed_any;
    int64_t iterations;
    double planned, executed, exposed, exposed_planned, bound, late, planning;
    double idle_planned, idle_executed;
} totals;

struct weft_cascade_train {
    weft_cascade_train_setup s;
    const weft_run *run; /* `own`: the config in this training stage */
    weft_run own;
    const weft_train_stage *train_stage;
    weft_comm *comm;
    int ranks;
    bool is_rank0, pixels, dry; /* dry: dry run without communication */
    weft_cascade_stage *runtime;
    weft_loader *loader;
    weft_arena *arena; /* memory of `record` and of the transfers */
    weft_cascade_log *log;
    bucket_table bucket;
    planning planning;
    record record;
    iteration iteration;
    totals total;
};

static weft_status no_memory(void)
{
    return weft_no_memory("cascades");
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Returns the heads of the attention with the most tokens; 1: no attention. */
static int64_t heads_of(const weft_graph *g)
{
    int64_t heads = 1, most = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (weft_node_work(node) != WEFT_WORK_ATTENTION)
            continue;
        const weft_shape *q = &weft_value_get(g, node->in[0])->shape;
        if (q->rank == 4 && q->dim[1] > most) {
            most = q->dim[1];
            heads = q->dim[2];
        }
    }
    return heads;
}

static weft_status open_buckets(weft_cascade_train *t)
{
    const int64_t n = t->bucket.count + 1, i64 = (int64_t)sizeof(int64_t);
    t->bucket.program = weft_calloc(n, sizeof *t->bucket.program);
    t->bucket.size = weft_calloc(n, sizeof *t->bucket.size);
    t->bucket.clips = weft_alloc(n * i64);
    t->bucket.tokens = weft_alloc(n * i64);
    t->bucket.elements = weft_alloc(n * i64);
    t->bucket.work = weft_alloc(n * i64);
    t->bucket.name_text = weft_calloc(n, sizeof *t->bucket.name_text);
    t->bucket.name = weft_calloc(n, sizeof *t->bucket.name);
    WEFT_TRY(WEFT_ALLOCATED(t->bucket.program && t->bucket.size && t->bucket.clips &&
                                t->bucket.tokens && t->bucket.elements && t->bucket.work &&
                                t->bucket.name_text && t->bucket.name,
                            "cascades"));
    for (int b = 0; b < t->bucket.count; b++) {
        t->bucket.size[b] = *weft_train_stage_bucket(t->train_stage, b);
        const weft_model_size z = weft_run_latent_size(t->s.models, &t->bucket.size[b]);
        t->bucket.clips[b] = t->bucket.size[b].batch;
        t->bucket.tokens[b] = weft_run_tokens(t->s.models, &t->bucket.size[b]);
        t->bucket.elements[b] = z.frames * z.height * z.width * t->s.models->grid.channels;
        weft_plans_size(&t->bucket.size[b], t->bucket.name_text[b]);
        t->bucket.name[b] = t->bucket.name_text[b];
        WEFT_TRY(
            weft_cascade_run_alone(weft_cascade_stage_run(t->runtime), b, &t->bucket.program[b]));
        t->bucket.work[b] = (double)t->bucket.program[b]->cost.flops;
    }
    t->bucket.heads = heads_of(t->bucket.program[weft_train_stage_largest(t->train_stage)]->whole);
    return WEFT_OK;
}

/* Sets the identity of the trained model and the buckets, for plan files. */
static weft_status stamp(weft_cascade_train *t)
{
    json_t *config = weft_model_write(weft_run_trained(t->s.models));
    char *text = config ? weft_json_line(config) : NULL;
    json_decref(config);
    WEFT_TRY(WEFT_ALLOCATED(text, "cascades"));
    weft_hex_print(XXH3_64bits(text, strlen(text)), t->planning.model);
    weft_free(text);
    t->planning.stamp = (weft_plans_stamp){t->ranks, t->planning.model,
                                           weft_run_trained(t->s.models)->family->class_name,
                                           t->bucket.name, t->bucket.count};
    return WEFT_OK;
}

static weft_sp_method context_of(const weft_run *run)
{
    return run->parallel.context.kind == WEFT_CP_RING ? WEFT_SP_RING : WEFT_SP_ULYSSES;
}

static weft_status open_all(weft_cascade_train *t)
{
    const weft_cascade_stage_setup setup = {.run = t->s.run,
                                            .models = t->s.models,
                                            .train_stage = t->train_stage,
                                            .exec = t->s.exec,
                                            .store = t->s.store,
                                            .tokenizers = t->s.tokenizers,
                                            .pixels = t->pixels,
                                            .cache_bytes = t->run->cascades.cache};
    WEFT_TRY(weft_cascade_stage_open(&setup, &t->runtime));
    WEFT_TRY(open_buckets(t));
    return stamp(t);
}

weft_status weft_cascade_train_open(const weft_cascade_train_setup *setup, weft_cascade_train **out)
{
    weft_cascade_train *t;
    WEFT_TRY(WEFT_NEW(t, 1, "cascades"));
    t->s = *setup;
    t->train_stage =
        (const weft_train_stage *)setup->run->train_stages.item + setup->train_stage_index;
    t->own = weft_train_stage_run(setup->run, t->train_stage);
    t->run = &t->own;
    t->comm = setup->exec->comm;
    t->ranks = weft_comm_ranks(t->comm);
    t->is_rank0 = weft_comm_rank(t->comm) == 0;
    t->pixels = setup->run->data.samples_from == WEFT_FROM_PIXELS;
    t->bucket.count = weft_train_stage_bucket_count(t->train_stage);
    t->planning.ring =
        weft_recipe_list_find(setup->exec->recipes, setup->exec->recipe_count, "ring");
    t->arena = weft_arena_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(t->arena ? open_all(t) : no_memory());
    *out = t;
    return WEFT_OK;
out:
    weft_cascade_train_free(t);
    return status;
}

void weft_cascade_train_free(weft_cascade_train *t)
{
    if (!t)
        return;
    weft_cascade_planner_free(t->planning.planner);
    weft_cascade_log_drop(t->log);
    weft_plans_close(t->planning.replay);
    weft_cascade_cost_table_free(t->planning.cost_table);
    weft_rank_speeds_free(&t->record.speeds);
    weft_dispatch_inputs_free(&t->record.inputs);
    weft_cascade_stage_close(t->runtime);
    weft_arena_free(t->arena);
    void *const all[] = {(void *)t->bucket.program, t->bucket.size,        t->bucket.clips,
                         t->bucket.tokens,          t->bucket.elements,    t->bucket.work,
                         t->bucket.name_text,       t->iteration.sample,   t->iteration.item,
                         t->iteration.done.cascade, (void *)t->bucket.name};
    for (int i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    weft_free(t);
}

weft_status weft_cascade_train_steps(weft_cascade_train *t, weft_stage_programs *steps)
{
    weft_stage_programs s = {
        .buckets = t->bucket.count, .parts = 1, .runs = t->train_stage->accumulate};
    WEFT_TRY(WEFT_NEW(s.bucket, t->bucket.count + 2, "cascades"));
    for (; s.count < t->bucket.count; s.count++) /* not run or changed through this list */
        s.bucket[s.count] = (weft_step *)(uintptr_t)t->bucket.program[s.count];
    s.update = weft_cascade_run_update(weft_cascade_stage_run(t->runtime));
    s.bucket[s.count++] = s.update;
    *steps = s;
    return WEFT_OK;
}

/* ---- estimates ------------------------------------------------------------------------------ */

/* Estimates the seconds of a program: kernels by the cluster's rates, then the timeline with
 * communication. The group is placed as weft_assign does it: on the fewest nodes, as evenly as
 * possible. */
static weft_status estimate_step(const weft_cascade_train *t, const weft_mesh *mesh,
                                 const weft_step *step, weft_time_estimate *out)
{
    const int64_t ranks = weft_mesh_ranks(mesh),
                  nodes = (ranks + t->planning.cluster.devices - 1) / t->planning.cluster.devices;
    const weft_rank_links links = {&t->planning.cluster, mesh, (ranks + nodes - 1) / nodes};
    double *seconds;
    WEFT_TRY(WEFT_NEW(seconds, weft_graph_node_count(step->graph) + 1, "cascades"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_node_times(step->graph, &t->planning.cluster.device, seconds, NULL, NULL));
    WEFT_GO(weft_program_estimate_on(&links, step->program, seconds, out));
out:
    weft_free(seconds);
    return status;
}

static weft_status estimate_dit(const weft_cascade_train *t, int bucket, int degree,
                                weft_cascade_estimate *out)
{
    weft_exec_config exec = *t->s.exec;
    weft_time_estimate run = {0};
    weft_step step = {0};
    weft_graph *g;
    exec.comm = NULL;
    exec.rank = 0;
    exec.kind = WEFT_STEP_GRADIENTS;
    exec.own = true;
    exec.zero = 0;
    exec.telemetry_floats = 0;
    exec.mesh = weft_cascade_mesh(weft_cascade_planner_method(&t->run->cascades, t->planning.ring),
                                  context_of(t->run), t->bucket.clips[bucket], degree);
    WEFT_TRY(weft_objective_make(t->run, t->s.models, &t->bucket.size[bucket], &g));
    WEFT_TRY(weft_step_plan(g, &t->run->optimizer, &exec, &step));
    const weft_status_code status = estimate_step(t, &exec.mesh, &step, &run);
    *out = (weft_cascade_estimate){
        .seconds = run.seconds,
        .bytes = (double)(t->planning.fixed + weft_program_bytes(step.program))};
    weft_step_free(&step);
    return status;
}

/* Estimates one run of an encoder's graph (owned by this call): part `part` of a clip that is split
 * over `parts` ranks. */
static weft_status estimate_encoder(const weft_cascade_train *t, weft_graph *g, int part, int parts,
                                    weft_time_estimate *run, double *bytes)
{
    weft_exec_config exec = *t->s.exec;
    weft_step step = {0};
    exec.comm = NULL;
    exec.rank = 0;
    exec.mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", 1}}};
    exec.telemetry_floats = 0;
    weft_encoder_part_setup(&exec, part, parts);
    WEFT_TRY(weft_step_plan(g, NULL, &exec, &step));
    const weft_status_code status = estimate_step(t, &exec.mesh, &step, run);
    *bytes = fmax(*bytes, (double)(t->planning.fixed + weft_program_bytes(step.program)));
    weft_step_free(&step);
    return status;
}

/* Estimates the slowest part, because parts wait for each other. The first part has the most latent
 * frames, but one of its latent frames has a single pixel frame. The second part has only full
 * ones. */
static weft_status estimate_vae(const weft_cascade_train *t, int bucket, int degree,
                                weft_cascade_estimate *out)
{
    const weft_bucket *size = &t->bucket.size[bucket];
    const weft_cascade_row row = weft_cascade_stage_row(t->runtime, bucket, WEFT_CASCADE_VAE);
    int parts = 1;
    for (int member = 0; member < 2 && member < parts; member++) {
        const weft_cascade_share s =
            weft_cascade_share_of(&row, t->bucket.clips[bucket], degree, member);
        weft_time_estimate run = {0};
        parts = s.parts;
        WEFT_TRY(estimate_encoder(t, weft_encoder_part(&t->s.models->autoencoder, size, &s), s.part,
                                  s.parts, &run, &out->bytes));
        out->seconds = fmax(out->seconds, (double)s.clips.count * run.seconds);
    }
    if (parts > 1) /* decoded complete clip */
        out->bytes += (double)(3 * size->frames * size->height * size->width * 4);
    return WEFT_OK;
}

static weft_status estimate_cascade(void *user, weft_cascade_module module, int bucket, int degree,
                                    weft_cascade_estimate *out)
{
    const weft_cascade_train *t = user;
    *out = (weft_cascade_estimate){0};
    if (module == WEFT_CASCADE_DIT)
        return estimate_dit(t, bucket, degree, out);
    if (module == WEFT_CASCADE_VAE)
        return estimate_vae(t, bucket, degree, out);
    for (int r = 0; r < t->s.models->text.encoders; r++) {
        weft_time_estimate run = {0};
        WEFT_TRY(estimate_encoder(t, weft_text_graph(t->run, &t->s.models->text, r, 1), 0, 1, &run,
                                  &out->bytes));
        out->seconds += (double)t->bucket.clips[bucket] * run.seconds;
    }
    return WEFT_OK;
}

/* ---- samples -------------------------------------------------------------------------------- */

/* Converts batches of the loader to the samples of `step`. `offset`: batches from the loader's next
 * batch to the first sample. */
static weft_status peek_samples(weft_cascade_train *t, int64_t step, int64_t offset,
                                weft_placed_sample *sample, weft_item *item, int64_t *count)
{
    const int64_t first =
        (step - weft_run_first_step(t->s.run, t->s.train_stage_index)) * t->train_stage->accumulate;
    double all = 0;
    *count = t->train_stage->accumulate;
    for (int64_t i = 0; i < *count; i++) {
        weft_placed_sample *s = &sample[i];
        int64_t clips;
        WEFT_TRY(weft_loader_peek(t->loader, offset + i, &s->bucket, item, &clips));
        s->batch = first + i;
        s->clips = clips;
        s->item = item;
        s->weight = (double)clips * (t->run->cascades.weigh == WEFT_WEIGH_SAMPLES
                                         ? 1
                                         : (double)t->bucket.elements[s->bucket]);
        all += s->weight;
        item += clips;
    }
    for (int64_t i = 0; i < *count; i++)
        sample[i].weight /= all;
    return WEFT_OK;
}

static weft_status alloc_buffers(weft_cascade_train *t)
{
    int64_t most = 0;
    for (int b = 0; b < t->bucket.count; b++)
        most = t->bucket.clips[b] > most ? t->bucket.clips[b] : most;
    const int64_t samples = SETTLED * t->train_stage->accumulate;
    t->iteration.sample = weft_calloc(samples + 1, sizeof *t->iteration.sample);
    t->iteration.item = weft_calloc(samples * most + 1, sizeof *t->iteration.item);
    /* encoders of the next step included */
    t->iteration.done.cascade =
        weft_calloc(2 * WEFT_CASCADE_MODULES * t->train_stage->accumulate + 1,
                    sizeof *t->iteration.done.cascade);
    return WEFT_ALLOCATED(t->iteration.sample && t->iteration.item && t->iteration.done.cascade,
                          "cascades");
}

static weft_status fix_degree(weft_cascade_train *t, int64_t step)
{
    const weft_placed_sample *list[SETTLED];
    int64_t count[SETTLED];
    const int64_t n = t->train_stage->accumulate,
                  last = weft_run_first_step(t->s.run, t->s.train_stage_index + 1);
    const int iterations = (int)(last - step < SETTLED ? last - step : SETTLED);
    weft_item *item = t->iteration.item;
    for (int i = 0; i < iterations; i++) {
        WEFT_TRY(peek_samples(t, step + i, i * n, t->iteration.sample + i * n, item, &count[i]));
        list[i] = t->iteration.sample + i * n;
        for (int64_t k = 0; k < n; k++)
            item += list[i][k].clips;
    }
    return weft_cascade_planner_fix_degree(t->planning.planner, list, count, iterations);
}

/* Returns the predicted seconds of gradient reduction after the last cascade. With zero, or with
 * representatives, the reduction starts after all cascades. */
static double exposed_reduce_seconds(const weft_cascade_train *t)
{
    const bool overlapped =
        !t->s.exec->zero && t->run->cascades.accumulation == WEFT_ACCUMULATE_OWN;
    return overlapped ? weft_placed_reductions_after(t->iteration.plan, t->planning.reduce_seconds,
                                                     t->planning.reduce_last_seconds)
                      : t->planning.reduce_seconds;
}

/* Starts to plan `step`, with encoders of the step after it if the stage has one and `encoders:
 * ahead` is set. */
static weft_status start_planning(weft_cascade_train *t, int64_t step, int64_t offset)
{
    const int64_t end = weft_run_first_step(t->s.run, t->s.train_stage_index + 1);
    weft_placed_sample *sample = t->iteration.sample;
    weft_item *item = t->iteration.item;
    int64_t count, next = 0;
    WEFT_TRY(peek_samples(t, step, offset, sample, item, &count));
    for (int64_t i = 0; i < count; i++)
        item += sample[i].clips;
    if (t->run->cascades.encoders == WEFT_ENCODERS_AHEAD && step + 1 < end)
        WEFT_TRY(peek_samples(t, step + 1, offset + count, sample + count, item, &next));
    for (int64_t i = count; i < count + next; i++) {
        sample[i].ahead = true;
        sample[i].weight = 0;
    }
    weft_cascade_planner_set_before(t->planning.planner, t->iteration.plan);
    return weft_cascade_planner_start(t->planning.planner, step, sample, count + next);
}

/* Estimates the seconds to all-reduce all gradients over the cluster's links: by the algorithms
 * that run, or for reductions of the update by a ring. */
static weft_status estimate_reduce(weft_cascade_train *t)
{
    const weft_link_costs costs = weft_link_costs_of(&t->planning.cluster);
    const weft_grad_reduce *reduce = weft_cascade_run_reduce(weft_cascade_stage_run(t->runtime));
    if (reduce)
        return weft_grad_reduce_predict(reduce, &costs, &t->planning.reduce_seconds,
                                        &t->planning.reduce_last_seconds);
    const weft_graph *g = weft_cascade_run_update(weft_cascade_stage_run(t->runtime))->graph;
    double bytes = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_value_info *v = weft_value_get(g, node->out[0]);
        if (node->op == WEFT_OP_STATE && strncmp(v->name, "grad.", 5) == 0)
            bytes += (double)(weft_shape_count(&v->shape) * weft_dtype_bytes(v->dtype));
    }
    t->planning.reduce_seconds = weft_cluster_collective_seconds(
        &t->planning.cluster, WEFT_COLL_ALL_REDUCE, t->ranks, t->planning.cluster.devices, bytes);
    return WEFT_OK;
}

/* ---- start of a stage ----------------------------------------------------------------------- */

/* Creates the record of errors and rank speeds, and the transfer estimates, for plans and late
 * dispatch. */
static weft_status open_record(weft_cascade_train *t)
{
    const bool nodes = t->planning.cluster.nodes > 1;
    t->record.errors = weft_arena_calloc(t->arena, WEFT_CASCADE_MODULES, sizeof *t->record.errors);
    t->record.slow = weft_arena_calloc(t->arena, t->ranks, sizeof *t->record.slow);
    t->planning.transfer =
        weft_arena_calloc(t->arena, t->bucket.count, sizeof *t->planning.transfer);
    WEFT_TRY(
        WEFT_ALLOCATED(t->record.errors && t->record.slow && t->planning.transfer, "cascades"));
    WEFT_TRY(weft_rank_speeds_create(t->ranks, &t->record.speeds));
    weft_rank_speeds_get(&t->record.speeds, t->record.slow);
    for (int b = 0; b < t->bucket.count && t->pixels; b++) {
        const weft_cascade_row row = weft_cascade_stage_row(t->runtime, b, WEFT_CASCADE_VAE);
        const double bytes =
            (double)(t->bucket.clips[b] * row.units * weft_latent_unit_bytes(&row));
        t->planning.transfer[b] = (weft_dispatch_hand){
            weft_cluster_collective_seconds(&t->planning.cluster, WEFT_COLL_SEND, 2, 2, bytes),
            weft_cluster_collective_seconds(&t->planning.cluster, WEFT_COLL_SEND, 2, 1, bytes)};
    }
    weft_cascade_run_nodes(weft_cascade_stage_run(t->runtime),
                           nodes ? (int)t->planning.cluster.devices : 0,
                           t->is_rank0 ? t->record.slow : NULL);
    return WEFT_OK;
}

static weft_status open_planner(weft_cascade_train *t)
{
    const weft_cascade_config *config = &t->run->cascades;
    t->planning.cluster = *t->s.cluster;
    weft_cascade_planner_cluster(&t->planning.cluster, config, t->ranks, &t->planning.memory);
    if (t->run->memory.limit)
        t->planning.memory = fmin(t->planning.memory, (double)t->run->memory.limit);
    WEFT_TRY(estimate_reduce(t));
    WEFT_TRY(open_record(t));
    const weft_cascade_facts facts = {t->bucket.count, t->ranks, t, estimate_cascade};
    WEFT_TRY(weft_cascade_cost_table_create(&facts, &t->planning.cost_table));
    if (weft_cascades_planned(config) == WEFT_CASCADES_FILE)
        WEFT_TRY(weft_plans_open(config->plan, &t->planning.stamp, &t->planning.replay));
    const weft_cascade_planner_setup setup = {.config = config,
                                              .path = t->s.path,
                                              .cluster = &t->planning.cluster,
                                              .comm = t->dry ? NULL : t->comm,
                                              .ranks = t->ranks,
                                              .memory = t->planning.memory,
                                              .cost_table = t->planning.cost_table,
                                              .buckets = t->bucket.count,
                                              .bucket = t->bucket.size,
                                              .work = t->bucket.work,
                                              .heads = t->bucket.heads,
                                              .ring = t->planning.ring,
                                              .text = t->pixels && t->s.models->text_precomputed,
                                              .vae = t->pixels,
                                              .seed = (uint64_t)t->run->seed,
                                              .patient = t->dry,
                                              .replay = t->planning.replay,
                                              .errors = t->record.errors,
                                              .speeds = &t->record.speeds,
                                              .transfer = t->planning.transfer,
                                              .reduce_seconds = t->planning.reduce_seconds,
                                              .reduce_last_seconds =
                                                  t->planning.reduce_last_seconds};
    return weft_cascade_planner_create(&setup, &t->planning.planner);
}

static weft_status open_log(weft_cascade_train *t, int64_t step)
{
    weft_comm_set_busy(t->comm, "opening the log of iterations");
    const weft_status_code status =
        weft_cascade_log_open(t->run->out, &t->planning.stamp, step, &t->log);
    weft_comm_set_busy(t->comm, NULL);
    return status;
}

static weft_status begin_planning(weft_cascade_train *t, int64_t step)
{
    WEFT_TRY(open_planner(t));
    WEFT_TRY(fix_degree(t, step));
    return start_planning(t, step, 0);
}

/* Returns the bytes of rows that a rank can have: of all samples of a step, which it trains
 * on, and of the next one, which it encodes, if all are of the largest bucket. */
static int64_t kept_bytes(const weft_cascade_train *t)
{
    int64_t most = 0;
    for (int b = 0; b < t->bucket.count && t->run->cascades.encoders == WEFT_ENCODERS_AHEAD; b++) {
        int64_t own = 0;
        for (int m = 0; m < WEFT_CASCADE_DIT; m++) {
            const weft_cascade_row row = weft_cascade_stage_row(t->runtime, b, m);
            own += row.floats ? t->bucket.clips[b] * row.units * weft_latent_unit_bytes(&row) : 0;
        }
        most = own > most ? own : most;
    }
    return 2 * most * t->train_stage->accumulate;
}

weft_status weft_cascade_train_begin(weft_cascade_train *t, weft_loader *loader,
                                     const float *no_text, int64_t step)
{
    char text[32];
    t->loader = loader;
    WEFT_TRY(alloc_buffers(t));
    WEFT_TRY(weft_cascade_stage_begin(t->runtime, loader, no_text));
    weft_memory_trim();
    t->planning.fixed = weft_memory_resident() + t->s.decoder_bytes + kept_bytes(t);
    weft_comm_set_busy(t->comm, "estimating cascades");
    const weft_status_code status = begin_planning(t, step);
    weft_comm_set_busy(t->comm, NULL);
    WEFT_TRY(status);
    if (t->is_rank0)
        WEFT_TRY(open_log(t, step));
    if (t->is_rank0)
        weft_notice(WEFT_MSG_CASCADE_REPORT, WEFT_NOWHERE,
                    "stage %" PRId64 ": cascades with policy %s, %" PRId64
                    " samples per iteration, costs of %s, memory limit %s per rank",
                    t->s.train_stage_index, weft_policy_names[t->run->cascades.policy],
                    t->train_stage->accumulate, t->s.cluster_name,
                    weft_format_bytes((int64_t)t->planning.memory, text));
    return WEFT_OK;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Sets the predictions of late dispatch, on the rank that dispatches. */
static weft_status predict_dispatch(weft_cascade_train *t)
{
    const weft_placed_iteration *plan = t->iteration.plan;
    if (!t->is_rank0 || !plan->late)
        return WEFT_OK;
    WEFT_TRY(weft_dispatch_inputs_fill(&t->record.inputs, plan, t->record.errors,
                                       t->planning.transfer, (uint64_t)t->run->seed));
    weft_cascade_run_predict(weft_cascade_stage_run(t->runtime), t->record.inputs.transfer,
                             plan->search ? &t->record.inputs.replan : NULL);
    return WEFT_OK;
}

weft_status weft_cascade_train_run(weft_cascade_train *t, int64_t step, weft_step **update,
                                   weft_step_figures *f)
{
    weft_cascade_run *run = weft_cascade_stage_run(t->runtime);
    weft_cascade_planner_set_before(t->planning.planner, weft_cascade_run_executed(run));
    WEFT_TRY(weft_cascade_planner_get(t->planning.planner, &t->iteration.plan, &t->iteration.stats,
                                      &t->iteration.plan_text));
    if (step + 1 < weft_run_first_step(t->s.run, t->s.train_stage_index + 1)) {
        weft_comm_set_busy(t->comm, "estimating cascades");
        const weft_status_code status = start_planning(t, step + 1, t->train_stage->accumulate);
        weft_comm_set_busy(t->comm, NULL);
        WEFT_TRY(status);
    }
    WEFT_TRY(predict_dispatch(t));
    WEFT_TRY(weft_cascade_stage_step(t->runtime, t->iteration.plan, &t->iteration.done));
    WEFT_TRY(weft_cascade_run_bind_update(run, update));
    for (int64_t s = 0; s < weft_placed_trained(t->iteration.plan); s++) {
        const int b = t->iteration.plan->sample[s].bucket;
        f->samples += t->bucket.clips[b];
        f->tokens += t->bucket.clips[b] * t->bucket.tokens[b];
        f->flops += t->bucket.work[b];
        f->bf16_flops += (double)t->bucket.program[b]->cost.bf16_flops;
    }
    f->bucket = -1;
    return WEFT_OK;
}

static double mean_idle(const weft_iteration_timing *e)
{
    double sum = 0;
    for (int r = 0; r < e->ranks; r++)
        sum += e->idle[r] / e->ranks;
    return sum;
}

/* Adds an iteration to the totals, except iterations that compiled programs, which take longer. */
static void add_up(weft_cascade_train *t, const weft_iteration_timing *e)
{
    t->total.executed_any = true;
    if (e->compiled > 0)
        return;
    t->total.iterations++;
    t->total.exposed += e->exposed;
    t->total.exposed_planned += exposed_reduce_seconds(t);
    t->total.planned += t->iteration.plan->makespan;
    t->total.bound += t->iteration.plan->lower_bound;
    t->total.executed += e->makespan;
    t->total.idle_planned += t->iteration.stats.idle;
    t->total.idle_executed += mean_idle(e);
    t->total.late += t->iteration.stats.late;
    t->total.planning += t->iteration.stats.seconds;
}

/* Records measured / predicted seconds, without the slowdown of slow ranks. */
static void add_record(weft_cascade_train *t, const weft_placed_iteration *as,
                       const weft_iteration_timing *e)
{
    double *busy = weft_calloc(t->ranks, sizeof *busy);
    for (int64_t c = 0; busy && c < as->cascades; c++) {
        const weft_assigned *at = &as->cascade[c].at;
        double slow = 1;
        if (e->cold[c] || !(e->seconds[c] > 0 && at->seconds > 0))
            continue;
        for (int64_t i = 0; i < at->degree; i++) {
            busy[i] = e->of[at->device[i] * e->cascades + c].busy;
            slow = fmax(slow, t->record.slow[at->device[i]]);
        }
        weft_price_errors_add(&t->record.errors[as->cascade[c].module],
                              e->seconds[c] / slow / at->seconds);
        if (as->cascade[c].module == WEFT_CASCADE_DIT)
            weft_rank_speeds_add(&t->record.speeds, at->device, busy, at->degree, at->seconds);
    }
    weft_rank_speeds_get(&t->record.speeds, t->record.slow);
    weft_free(busy);
}

/* Logs the iteration and the JSON line of the executed plan. */
static weft_status log_iteration(weft_cascade_train *t, const weft_placed_iteration *as,
                                 const weft_cascade_fit *fit, const weft_iteration_timing *e)
{
    if (as == t->iteration.plan)
        return weft_cascade_log_record(t->log, t->iteration.plan, t->iteration.plan_text,
                                       &t->iteration.stats, fit, e);
    json_t *line =
        weft_plans_line(as, weft_policy_names[t->run->cascades.policy], t->iteration.stats.idle);
    char *text = line ? weft_json_line(line) : NULL;
    json_decref(line);
    WEFT_TRY(WEFT_ALLOCATED(text, "cascades"));
    const weft_status_code status =
        weft_cascade_log_record(t->log, t->iteration.plan, text, &t->iteration.stats, fit, e);
    weft_free(text);
    return status;
}

weft_status weft_cascade_train_record(weft_cascade_train *t)
{
    weft_iteration_timing e;
    weft_cascade_fit fit;
    weft_buf odd = {0};
    weft_cascade_run *run = weft_cascade_stage_run(t->runtime);
    double end = 0;
    for (int64_t c = 0; c < t->iteration.plan->cascades; c++)
        end = fmax(end,
                   t->iteration.done.cascade[c].took_part ? t->iteration.done.cascade[c].end : 0);
    t->iteration.done.seconds = weft_cascade_run_now(run) - t->iteration.done.begin;
    t->iteration.done.reduce = t->iteration.done.seconds - end;
    t->iteration.stats.searches = t->iteration.done.searches;
    WEFT_TRY(weft_cascade_gather(t->comm, t->iteration.plan, &t->iteration.done, &e));
    weft_status_code status = WEFT_OK;
    WEFT_GO(e.clock_age > clock_period ? weft_cascade_run_measure_clock(run) : WEFT_OK);
    if (t->is_rank0) /* the rank that plans */
        WEFT_GO(weft_cascade_cost_table_record(t->planning.cost_table, t->iteration.plan, e.seconds,
                                               e.cold, &fit));
    if (t->is_rank0) {
        weft_cascade_cost_table_format_outliers(t->planning.cost_table, &odd);
        if (odd.len)
            weft_warning(WEFT_MSG_ESTIMATE_MISSING, WEFT_NOWHERE, "%s", odd.data);
        add_up(t, &e);
        add_record(t, weft_cascade_run_executed(run), &e);
        WEFT_GO(log_iteration(t, weft_cascade_run_executed(run), &fit, &e));
    }
out:
    weft_buf_free(&odd);
    weft_iteration_timing_free(&e);
    return status;
}

/* Reports the memory of this rank. */
static void report_memory(const weft_cascade_train *t)
{
    const int64_t planned = kept_bytes(t), rows = weft_send_buffers_peak();
    char text[2][32];
    weft_notice(WEFT_MSG_MEMORY_REPORT, WEFT_NOWHERE,
                "stage %" PRId64
                ": memory per rank: at most %s planned, peak of this process %s, with "
                "checkpoints and prefetched clips",
                t->s.train_stage_index, weft_format_bytes((int64_t)t->planning.memory, text[0]),
                weft_format_bytes(weft_memory_peak(), text[1]));
    if (t->run->cascades.encoders == WEFT_ENCODERS_AHEAD)
        weft_notice(WEFT_MSG_MEMORY_REPORT,
                    WEFT_AT(.key = "parallel.cascades.encoders",
                            WEFT_DETAILS(WEFT_DETAIL("planned_bytes", planned),
                                         WEFT_DETAIL("rows_bytes", rows))),
                    "stage %" PRId64
                    ": encoded samples of two steps: at most %s planned, peak of this process %s",
                    t->s.train_stage_index, weft_format_bytes(planned, text[0]),
                    weft_format_bytes(rows, text[1]));
}

weft_status weft_cascade_train_end(weft_cascade_train *t)
{
    const double n = (double)t->total.iterations;
    if (t->is_rank0 && t->total.executed_any)
        report_memory(t);
    if (t->is_rank0 && t->total.iterations)
        weft_notice(
            WEFT_MSG_CASCADE_REPORT, WEFT_NOWHERE,
            "stage %" PRId64 ": %" PRId64
            " iterations of cascades, without those that compiled; means, planned and executed: "
            "%.4g and %.4g s, exposed all-reduce %.3g and %.3g s, ranks idle %.1f and %.1f %%; "
            "lower bound %.4g s; planning took %.3g s, and the run waited %.3g s for plans",
            t->s.train_stage_index, t->total.iterations, t->total.planned / n,
            t->total.executed / n, t->total.exposed_planned / n, t->total.exposed / n,
            100 * t->total.idle_planned / n, 100 * t->total.idle_executed / n, t->total.bound / n,
            t->total.planning / n, t->total.late / n);
    weft_comm_set_busy(t->comm, "writing the last iteration");
    const weft_status_code status = weft_cascade_log_close(t->log);
    weft_comm_set_busy(t->comm, NULL);
    t->log = NULL;
    return status;
}

/* ---- dry run -------------------------------------------------------------------------------- */

/* Sets *peak to the peak bytes of any rank in an iteration, and *rank to a rank that reaches it. */
static weft_status peak_of(weft_cascade_train *t, const weft_placed_iteration *plan, double *peak,
                           int *rank)
{
    *peak = 0;
    for (int64_t c = 0; c < plan->cascades; c++) {
        const weft_placed_cascade *item = &plan->cascade[c];
        double seconds, bytes;
        WEFT_TRY(weft_cascade_cost_table_get(t->planning.cost_table, item->module,
                                             plan->sample[item->sample].bucket,
                                             (int)item->at.degree, &seconds, &bytes));
        if (bytes > *peak) {
            *peak = bytes;
            *rank = item->at.device[0];
        }
    }
    return WEFT_OK;
}

static weft_status predict_iteration(weft_cascade_train *t, int64_t step, bool first, weft_buf *svg,
                                     weft_buf *out)
{
    char title[160], text[2][32];
    double peak;
    int rank = 0;
    weft_cascade_planner_set_before(t->planning.planner, t->iteration.plan);
    WEFT_TRY(weft_cascade_planner_get(t->planning.planner, &t->iteration.plan, &t->iteration.stats,
                                      &t->iteration.plan_text));
    WEFT_TRY(peak_of(t, t->iteration.plan, &peak, &rank));
    weft_buf_printf(out, "\nstage %" PRId64 ", step %" PRId64 ": %" PRId64 " samples by %s\n",
                    t->s.train_stage_index, step, weft_placed_trained(t->iteration.plan),
                    weft_policy_names[t->run->cascades.policy]);
    weft_placed_print(t->iteration.plan, out);
    weft_buf_printf(
        out,
        "ranks idle %.1f %%; exposed all-reduce of gradients %.3g s; planned in %.3g s, %" PRId64
        " rounds%s; "
        "highest peak: rank %d with %s of %s\n",
        100 * t->iteration.stats.idle, exposed_reduce_seconds(t), t->iteration.stats.seconds,
        t->iteration.stats.rounds,
        t->iteration.stats.replayed ? ", replayed"
        : t->iteration.stats.proved ? ", no plan is shorter"
                                    : "",
        rank, weft_format_bytes((int64_t)peak, text[0]),
        weft_format_bytes((int64_t)t->planning.memory, text[1]));
    if (t->iteration.stats.left_out)
        weft_buf_printf(out, "%" PRId64 " samples fit on no degree and are skipped\n",
                        t->iteration.stats.left_out);
    if (!first || !svg)
        return weft_buf_check(out);
    snprintf(title, sizeof title, "stage %" PRId64 ", step %" PRId64 ", as planned",
             t->s.train_stage_index, step);
    return weft_placed_svg(title, t->iteration.plan, t->ranks, NULL, svg);
}

weft_status weft_cascade_train_estimate(weft_cascade_train *t, weft_loader *loader, int64_t fixed,
                                        int iterations, weft_progress *progress, weft_buf *svg,
                                        weft_buf *out)
{
    const int64_t begin = weft_run_first_step(t->s.run, t->s.train_stage_index),
                  end = weft_run_first_step(t->s.run, t->s.train_stage_index + 1);
    t->dry = true;
    t->loader = loader;
    t->planning.fixed = fixed + kept_bytes(t);
    WEFT_TRY(alloc_buffers(t));
    WEFT_TRY(open_planner(t));
    WEFT_TRY(fix_degree(t, begin));
    weft_buf_printf(out, "stage %" PRId64 ": costs of %s for %d ranks\n", t->s.train_stage_index,
                    t->s.cluster_name, t->ranks);
    for (int64_t i = 0; i < iterations && begin + i < end; i++) {
        WEFT_TRY(start_planning(t, begin + i, i * t->train_stage->accumulate));
        WEFT_TRY(predict_iteration(t, begin + i, i == 0, svg, out));
        weft_progress_update(progress, t->s.train_stage_index * iterations + i + 1, "iterations");
    }
    return WEFT_OK;
}
