#include "train/cascade_train.h"

#include "base/hash.h"
#include "base/log.h"
#include "plan/cost/graph_list.h"
#include "runtime/program_price.h"
#include "train/cascade_log.h"
#include "train/cascade_stage.h"
#include "train/latents.h"
#include "train/layout_price.h"
#include "train/run_memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SETTLED = 8 }; /* iterations that a degree of equal groups is chosen for */
/* Seconds between two measurements of the common clock: clocks of two machines drift apart by some
 * microseconds a second. */
static const double clock_period = 20;

struct weft_cascade_train {
    weft_cascade_train_setup s;
    const weft_run *run; /* `own`: as it is in the stage */
    weft_run own;
    const weft_stage *stage;
    weft_comm *comm;
    int ranks, buckets;
    bool leader, pixels, dry; /* dry: nothing is exchanged */
    weft_cascade_stage *exec;
    const weft_step **bucket;           /* [buckets] on one rank */
    weft_bucket *size;                  /* [buckets] */
    int64_t *clips, *tokens, *elements; /* [buckets] elements of a clip's latents */
    double *work;
    int64_t heads;
    bool ring; /* the model knows how tokens go round */
    weft_loader *loader;
    /* planning: */
    weft_arena *arena;
    weft_cluster cluster;
    char cluster_name[512];
    double memory;
    int64_t fixed; /* bytes of a rank beside programs */
    double sums;   /* seconds of the sums of gradients in all, as told */
    weft_cascade_prices *prices;
    weft_plans *replay;
    weft_ahead *ahead;
    weft_price_errors *errors; /* [WEFT_CASCADE_MODULES], of this run */
    weft_rank_speeds speeds;   /* likewise */
    double *slow;              /* [ranks] of them, for late dispatch */
    weft_dispatch_hand *hand;  /* [buckets] */
    weft_cascade_log *log;
    char model[20], (*size_text)[64];
    const char **size_name;
    weft_plans_stamp stamp;
    /* of the iteration that runs: */
    const weft_placed_iteration *plan;
    const char *plan_text;
    weft_ahead_news news;
    weft_iteration_done done;
    int64_t room;
    double began;
    /* room for samples of several iterations */
    weft_placed_sample *sample;
    weft_item *item;
    /* sums over iterations */
    bool executed_any;
    int64_t iterations;
    double planned, executed, exposed, exposed_planned, bound, late, planning;
    double idle_planned, idle_executed;
};

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for cascades");
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Of the widest attention; 1: there is none. */
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
    const int64_t n = t->buckets + 1, i64 = (int64_t)sizeof(int64_t);
    t->bucket = weft_alloc(n * (int64_t)sizeof *t->bucket);
    t->size = weft_alloc(n * (int64_t)sizeof *t->size);
    t->clips = weft_alloc(n * i64);
    t->tokens = weft_alloc(n * i64);
    t->elements = weft_alloc(n * i64);
    t->work = weft_alloc(n * i64);
    t->size_text = weft_alloc(n * (int64_t)sizeof *t->size_text);
    t->size_name = weft_alloc(n * (int64_t)sizeof *t->size_name);
    if (!t->bucket || !t->size || !t->clips || !t->tokens || !t->elements || !t->work ||
        !t->size_text || !t->size_name)
        return no_memory();
    for (int b = 0; b < t->buckets; b++) {
        t->size[b] = *weft_stage_bucket(t->stage, b);
        const weft_model_size z = weft_run_latent_size(t->s.models, &t->size[b]);
        t->clips[b] = t->size[b].batch;
        t->tokens[b] = weft_run_tokens(t->s.models, &t->size[b]);
        t->elements[b] = z.frames * z.height * z.width * t->s.models->grid.channels;
        weft_plans_size(&t->size[b], t->size_text[b]);
        t->size_name[b] = t->size_text[b];
        WEFT_TRY(weft_cascade_run_alone(weft_cascade_stage_run(t->exec), b, &t->bucket[b]));
        t->work[b] = (double)t->bucket[b]->cost.flops;
    }
    t->heads = heads_of(t->bucket[weft_stage_largest(t->stage)]->whole);
    return WEFT_OK;
}

/* Of what is trained, for plans that are replayed. */
static weft_status stamp(weft_cascade_train *t)
{
    json_t *config = weft_model_write(weft_run_trained(t->s.models));
    char *text = config ? weft_json_line(config) : NULL;
    json_decref(config);
    if (!text)
        return no_memory();
    snprintf(t->model, sizeof t->model, "%016llx",
             (unsigned long long)XXH3_64bits(text, strlen(text)));
    weft_free(text);
    t->stamp =
        (weft_plans_stamp){t->ranks, t->model, weft_run_trained(t->s.models)->family->class_name,
                           t->size_name, t->buckets};
    return WEFT_OK;
}

static weft_sp_method context_of(const weft_run *run)
{
    return run->parallel.context.kind == WEFT_CONTEXT_RING ? WEFT_SP_RING : WEFT_SP_ULYSSES;
}

static weft_status open_all(weft_cascade_train *t)
{
    const weft_cascade_stage_setup setup = {.run = t->s.run,
                                            .models = t->s.models,
                                            .stage = t->stage,
                                            .place = t->s.place,
                                            .store = t->s.store,
                                            .spelling = t->s.spelling,
                                            .pixels = t->pixels,
                                            .cache_bytes = t->run->cascades.cache};
    WEFT_TRY(weft_cascade_stage_open(&setup, &t->exec));
    WEFT_TRY(open_buckets(t));
    return stamp(t);
}

weft_status weft_cascade_train_open(const weft_cascade_train_setup *setup, weft_cascade_train **out)
{
    weft_cascade_train *t = weft_alloc(sizeof *t);
    if (!t)
        return no_memory();
    t->s = *setup;
    t->stage = (const weft_stage *)setup->run->stages.item + setup->stage;
    t->own = weft_stage_run(setup->run, t->stage);
    t->run = &t->own;
    t->comm = setup->place->comm;
    t->ranks = weft_comm_ranks(t->comm);
    t->leader = weft_comm_rank(t->comm) == 0;
    t->pixels = setup->run->data.samples_from == WEFT_FROM_PIXELS;
    t->buckets = weft_stage_bucket_count(t->stage);
    t->ring = weft_recipe_list_find(setup->place->recipes, setup->place->recipe_count, "ring");
    t->arena = weft_arena_create();
    weft_status_code status = t->arena ? open_all(t) : no_memory();
    if (status == WEFT_OK)
        *out = t;
    else
        weft_cascade_train_free(t);
    return status;
}

void weft_cascade_train_free(weft_cascade_train *t)
{
    if (!t)
        return;
    weft_ahead_free(t->ahead);
    weft_cascade_log_drop(t->log);
    weft_plans_close(t->replay);
    weft_cascade_prices_free(t->prices);
    weft_rank_speeds_free(&t->speeds);
    weft_cascade_stage_close(t->exec);
    weft_arena_free(t->arena);
    void *const all[] = {
        (void *)t->bucket, t->size,   t->clips, t->tokens,       t->elements,         t->work,
        t->size_text,      t->sample, t->item,  t->done.cascade, (void *)t->size_name};
    for (int i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    weft_free(t);
}

weft_status weft_cascade_train_steps(weft_cascade_train *t, weft_stage_steps *steps)
{
    weft_stage_steps s = {.buckets = t->buckets, .parts = 1, .runs = t->stage->accumulate};
    s.bucket = weft_alloc((t->buckets + 2) * (int64_t)sizeof *s.bucket);
    if (!s.bucket)
        return no_memory();
    for (; s.count < t->buckets; s.count++) /* nobody runs or changes them */
        s.bucket[s.count] = (weft_step *)(uintptr_t)t->bucket[s.count];
    s.update = weft_cascade_run_update(weft_cascade_stage_run(t->exec));
    s.bucket[s.count++] = s.update;
    *steps = s;
    return WEFT_OK;
}

/* ---- prices --------------------------------------------------------------------------------- */

/* Kernels of a step's graph by the cluster's rates, and the whole of it on a clock. Its group lies
 * as weft_assign places one: on the fewest nodes, as evenly as can be. */
static weft_status price_step(const weft_cascade_train *t, const weft_mesh *mesh,
                              const weft_step *step, weft_foreseen *out)
{
    const int64_t ranks = weft_mesh_ranks(mesh),
                  nodes = (ranks + t->cluster.devices - 1) / t->cluster.devices;
    const weft_priced_links links = {&t->cluster, mesh, (ranks + nodes - 1) / nodes};
    double *seconds =
        weft_alloc((weft_graph_node_count(step->graph) + 1) * (int64_t)sizeof *seconds);
    if (!seconds)
        return no_memory();
    weft_status_code status =
        weft_graph_node_times(step->graph, &t->cluster.device, seconds, NULL, NULL);
    if (status == WEFT_OK)
        status = weft_program_price(&links, step->program, seconds, out);
    weft_free(seconds);
    return status;
}

static weft_status price_dit(const weft_cascade_train *t, int bucket, int degree,
                             weft_cascade_told *out)
{
    weft_place_of_run place = *t->s.place;
    weft_foreseen run = {0};
    weft_step step = {0};
    weft_graph *g;
    place.comm = NULL;
    place.rank = 0;
    place.kind = WEFT_STEP_GRADIENTS;
    place.own = true;
    place.zero = 0;
    place.bulletin = 0;
    place.mesh = weft_cascade_mesh(weft_ahead_method(&t->run->cascades, t->ring),
                                   context_of(t->run), t->clips[bucket], degree);
    WEFT_TRY(weft_objective_make(t->run, t->s.models, &t->size[bucket], &g));
    WEFT_TRY(weft_step_plan(g, &t->run->optimizer, &place, &step));
    const weft_status_code status = price_step(t, &place.mesh, &step, &run);
    *out = (weft_cascade_told){.seconds = run.seconds,
                               .bytes = (double)(t->fixed + weft_program_bytes(step.program))};
    weft_step_free(&step);
    return status;
}

/* One run of an encoder's graph (taken), of part `part` of a clip that lies over `parts` ranks. */
static weft_status price_encoder(const weft_cascade_train *t, weft_graph *g, int part, int parts,
                                 weft_foreseen *run, double *bytes)
{
    weft_place_of_run place = *t->s.place;
    weft_step step = {0};
    place.comm = NULL;
    place.rank = 0;
    place.mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", 1}}};
    place.bulletin = 0;
    weft_encoder_part_place(&place, part, parts);
    WEFT_TRY(weft_step_plan(g, NULL, &place, &step));
    const weft_status_code status = price_step(t, &place.mesh, &step, run);
    *bytes = fmax(*bytes, (double)(t->fixed + weft_program_bytes(step.program)));
    weft_step_free(&step);
    return status;
}

/* Parts wait for one another: the slowest of them. The first has the most latent frames, and one
 * of them is of a single frame of pixels, which none of the second is. */
static weft_status price_vae(const weft_cascade_train *t, int bucket, int degree,
                             weft_cascade_told *out)
{
    const weft_bucket *size = &t->size[bucket];
    const weft_cascade_row row = weft_cascade_stage_row(t->exec, bucket, WEFT_CASCADE_VAE);
    int parts = 1;
    for (int member = 0; member < 2 && member < parts; member++) {
        const weft_cascade_share s = weft_cascade_share_of(&row, t->clips[bucket], degree, member);
        weft_foreseen run = {0};
        parts = s.parts;
        WEFT_TRY(price_encoder(t, weft_encoder_part(&t->s.models->autoencoder, size, &s), s.part,
                               s.parts, &run, &out->bytes));
        out->seconds = fmax(out->seconds, (double)s.clips.count * run.seconds);
    }
    if (parts > 1) /* a clip whole, of which each takes its frames */
        out->bytes += (double)(3 * size->frames * size->height * size->width * 4);
    return WEFT_OK;
}

static weft_status tell_price(void *user, weft_cascade_module module, int bucket, int degree,
                              weft_cascade_told *out)
{
    const weft_cascade_train *t = user;
    *out = (weft_cascade_told){0};
    if (module == WEFT_CASCADE_DIT)
        return price_dit(t, bucket, degree, out);
    if (module == WEFT_CASCADE_VAE)
        return price_vae(t, bucket, degree, out);
    for (int r = 0; r < t->s.models->captions.readers; r++) {
        weft_foreseen run = {0};
        WEFT_TRY(price_encoder(t, weft_text_graph(t->run, &t->s.models->captions, r, 1), 0, 1, &run,
                               &out->bytes));
        out->seconds += (double)t->clips[bucket] * run.seconds;
    }
    return WEFT_OK;
}

/* ---- samples -------------------------------------------------------------------------------- */

/* Batches of the loader become samples; the first of them comes `ahead` batches after the next. */
static weft_status look_at(weft_cascade_train *t, int64_t step, int64_t ahead,
                           weft_placed_sample *sample, weft_item *item, int64_t *count)
{
    const int64_t first = (step - weft_run_first_step(t->s.run, t->s.stage)) * t->stage->accumulate;
    double all = 0;
    *count = t->stage->accumulate;
    for (int64_t i = 0; i < *count; i++) {
        weft_placed_sample *s = &sample[i];
        int64_t clips;
        WEFT_TRY(weft_loader_peek(t->loader, ahead + i, &s->bucket, item, &clips));
        s->batch = first + i;
        s->clips = clips;
        s->item = item;
        s->weight =
            (double)clips *
            (t->run->cascades.weigh == WEFT_WEIGH_SAMPLES ? 1 : (double)t->elements[s->bucket]);
        all += s->weight;
        item += clips;
    }
    for (int64_t i = 0; i < *count; i++)
        sample[i].weight /= all;
    return WEFT_OK;
}

static weft_status make_room(weft_cascade_train *t)
{
    int64_t most = 0;
    for (int b = 0; b < t->buckets; b++)
        most = t->clips[b] > most ? t->clips[b] : most;
    const int64_t samples = SETTLED * t->stage->accumulate;
    t->sample = weft_alloc((samples + 1) * (int64_t)sizeof *t->sample);
    t->item = weft_alloc((samples * most + 1) * (int64_t)sizeof *t->item);
    t->room = WEFT_CASCADE_MODULES * t->stage->accumulate;
    t->done.cascade = weft_alloc((t->room + 1) * (int64_t)sizeof *t->done.cascade);
    return t->sample && t->item && t->done.cascade ? WEFT_OK : no_memory();
}

static weft_status settle(weft_cascade_train *t, int64_t step)
{
    const weft_placed_sample *list[SETTLED];
    int64_t count[SETTLED];
    const int64_t n = t->stage->accumulate, last = weft_run_first_step(t->s.run, t->s.stage + 1);
    const int iterations = (int)(last - step < SETTLED ? last - step : SETTLED);
    weft_item *item = t->item;
    for (int i = 0; i < iterations; i++) {
        WEFT_TRY(look_at(t, step + i, i * n, t->sample + i * n, item, &count[i]));
        list[i] = t->sample + i * n;
        for (int64_t k = 0; k < n; k++)
            item += list[i][k].clips;
    }
    return weft_ahead_settle(t->ahead, list, count, iterations);
}

/* Zero's updates and representatives begin them when all cascades are over. */
static double sums_behind(const weft_cascade_train *t)
{
    const bool beside = !t->s.place->zero && t->run->cascades.accumulation == WEFT_ACCUMULATE_OWN;
    return beside ? weft_placed_sums_behind(t->plan, t->sums, 0) : t->sums;
}

static weft_status look(weft_cascade_train *t, int64_t step, int64_t ahead)
{
    int64_t count;
    WEFT_TRY(look_at(t, step, ahead, t->sample, t->item, &count));
    return weft_ahead_look(t->ahead, step, t->sample, count);
}

/* Of all gradients by the cluster's links. */
static double price_sums(const weft_cascade_train *t)
{
    const weft_graph *g = weft_cascade_run_update(weft_cascade_stage_run(t->exec))->graph;
    double bytes = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_value_info *v = weft_value_get(g, node->out[0]);
        if (node->op == WEFT_OP_STATE && strncmp(v->name, "grad.", 5) == 0)
            bytes += (double)(weft_shape_count(&v->shape) * weft_dtype_bytes(v->dtype));
    }
    return weft_cluster_collective_seconds(&t->cluster, WEFT_COLL_ALL_REDUCE, t->ranks,
                                           t->cluster.devices, bytes);
}

/* ---- beginning ------------------------------------------------------------------------------ */

/* Of the seconds of cascades and ranks, for plans and for late dispatch. */
static weft_status open_record(weft_cascade_train *t)
{
    const bool nodes = t->cluster.nodes > 1;
    t->errors = weft_arena_alloc(t->arena, WEFT_CASCADE_MODULES * (int64_t)sizeof *t->errors);
    t->slow = weft_arena_alloc(t->arena, t->ranks * (int64_t)sizeof *t->slow);
    t->hand = weft_arena_alloc(t->arena, t->buckets * (int64_t)sizeof *t->hand);
    if (!t->errors || !t->slow || !t->hand)
        return no_memory();
    WEFT_TRY(weft_rank_speeds_create(t->ranks, &t->speeds));
    weft_rank_speeds_get(&t->speeds, t->slow);
    for (int b = 0; b < t->buckets && t->pixels; b++) {
        const weft_cascade_row row = weft_cascade_stage_row(t->exec, b, WEFT_CASCADE_VAE);
        const double bytes = 4.0 * (double)(t->clips[b] * weft_cascade_row_floats(&row));
        t->hand[b] = (weft_dispatch_hand){
            weft_cluster_collective_seconds(&t->cluster, WEFT_COLL_SEND, 2, 2, bytes),
            weft_cluster_collective_seconds(&t->cluster, WEFT_COLL_SEND, 2, 1, bytes)};
    }
    weft_cascade_run_nodes(weft_cascade_stage_run(t->exec), nodes ? (int)t->cluster.devices : 0,
                           t->leader ? t->slow : NULL);
    return WEFT_OK;
}

static weft_status open_planner(weft_cascade_train *t)
{
    const weft_cascade_config *config = &t->run->cascades;
    WEFT_TRY(weft_cascade_cluster(t->arena, t->run, &t->cluster, t->cluster_name));
    weft_ahead_cluster(&t->cluster, config, t->ranks, &t->memory);
    if (t->run->memory.limit)
        t->memory = fmin(t->memory, (double)t->run->memory.limit);
    t->sums = price_sums(t);
    WEFT_TRY(open_record(t));
    const weft_cascade_facts facts = {t->buckets, t->ranks, t, tell_price};
    WEFT_TRY(weft_cascade_prices_create(&facts, &t->prices));
    if (weft_cascades_planned(config) == WEFT_CASCADES_FILE)
        WEFT_TRY(weft_plans_open(config->plan, &t->stamp, &t->replay));
    const weft_ahead_setup setup = {.config = config,
                                    .path = t->s.path,
                                    .cluster = &t->cluster,
                                    .comm = t->dry ? NULL : t->comm,
                                    .ranks = t->ranks,
                                    .memory = t->memory,
                                    .prices = t->prices,
                                    .buckets = t->buckets,
                                    .bucket = t->size,
                                    .work = t->work,
                                    .heads = t->heads,
                                    .ring = t->ring,
                                    .text = t->pixels && t->s.models->text_given,
                                    .vae = t->pixels,
                                    .seed = (uint64_t)t->run->seed,
                                    .patient = t->dry,
                                    .replay = t->replay,
                                    .errors = t->errors,
                                    .speeds = &t->speeds,
                                    .hand = t->hand,
                                    .sums = t->sums};
    return weft_ahead_create(&setup, &t->ahead);
}

weft_status weft_cascade_train_begin(weft_cascade_train *t, weft_loader *loader,
                                     const float *no_text, int64_t step)
{
    char text[32];
    t->loader = loader;
    WEFT_TRY(make_room(t));
    WEFT_TRY(weft_cascade_stage_begin(t->exec, loader, no_text));
    weft_memory_trim();
    t->fixed = weft_memory_resident() + weft_run_first_use(t->run, NULL);
    weft_comm_busy(t->comm, "pricing cascades");
    weft_status_code status = open_planner(t);
    if (status == WEFT_OK)
        status = settle(t, step);
    if (status == WEFT_OK)
        status = look(t, step, 0);
    weft_comm_busy(t->comm, NULL);
    WEFT_TRY(status);
    if (t->leader)
        WEFT_TRY(weft_cascade_log_open(t->run->out, &t->stamp, step, &t->log));
    if (t->leader)
        weft_info(
            "cascades of stage %lld: %s, %lld samples an iteration, costs of %s, %s on a rank",
            (long long)t->s.stage, weft_policy_names[t->run->cascades.policy],
            (long long)t->stage->accumulate, t->cluster_name,
            weft_format_bytes((int64_t)t->memory, text));
    return WEFT_OK;
}

/* ---- a step --------------------------------------------------------------------------------- */

weft_status weft_cascade_train_run(weft_cascade_train *t, int64_t step, weft_step **update,
                                   weft_step_figures *f)
{
    t->began = weft_now();
    WEFT_TRY(weft_ahead_take(t->ahead, &t->plan, &t->news, &t->plan_text));
    if (step + 1 < weft_run_first_step(t->s.run, t->s.stage + 1)) {
        weft_comm_busy(t->comm, "pricing cascades");
        const weft_status_code status = look(t, step + 1, t->stage->accumulate);
        weft_comm_busy(t->comm, NULL);
        WEFT_TRY(status);
    }
    WEFT_TRY(weft_cascade_stage_step(t->exec, t->plan, &t->done));
    WEFT_TRY(weft_cascade_run_bind_update(weft_cascade_stage_run(t->exec), update));
    for (int64_t s = 0; s < t->plan->samples; s++) {
        const int b = t->plan->sample[s].bucket;
        f->samples += t->clips[b];
        f->tokens += t->clips[b] * t->tokens[b];
        f->flops += t->work[b];
    }
    f->bucket = -1;
    return WEFT_OK;
}

static double mean_idle(const weft_executed *e)
{
    double sum = 0;
    for (int r = 0; r < e->ranks; r++)
        sum += e->idle[r] / e->ranks;
    return sum;
}

/* What was compiled in it is no measure of what an iteration takes. */
static void add_up(weft_cascade_train *t, const weft_executed *e)
{
    t->executed_any = true;
    if (e->compiled > 0)
        return;
    t->iterations++;
    t->exposed += e->exposed;
    t->exposed_planned += sums_behind(t);
    t->planned += t->plan->makespan;
    t->bound += t->plan->lower_bound;
    t->executed += e->makespan;
    t->idle_planned += t->news.idle;
    t->idle_executed += mean_idle(e);
    t->late += t->news.late;
    t->planning += t->news.seconds;
}

/* Measured over predicted seconds, without what slow ranks add. */
static void record(weft_cascade_train *t, const weft_placed_iteration *as, const weft_executed *e)
{
    double *busy = weft_alloc(t->ranks * (int64_t)sizeof *busy);
    for (int64_t c = 0; busy && c < as->cascades; c++) {
        const weft_assigned *at = &as->cascade[c].at;
        double slow = 1;
        if (e->cold[c] || !(e->seconds[c] > 0 && at->seconds > 0))
            continue;
        for (int64_t i = 0; i < at->degree; i++) {
            busy[i] = e->of[at->device[i] * e->cascades + c].busy;
            slow = fmax(slow, t->slow[at->device[i]]);
        }
        weft_price_errors_add(&t->errors[as->cascade[c].module],
                              e->seconds[c] / slow / at->seconds);
        if (as->cascade[c].module == WEFT_CASCADE_DIT)
            weft_rank_speeds_add(&t->speeds, at->device, busy, at->degree, at->seconds);
    }
    weft_rank_speeds_get(&t->speeds, t->slow);
    weft_free(busy);
}

/* The plan's line, with ranks and order as executed. */
static weft_status log_iteration(weft_cascade_train *t, const weft_placed_iteration *as,
                                 const weft_cascade_fit *fit, const weft_executed *e)
{
    if (as == t->plan)
        return weft_cascade_log_note(t->log, t->plan, t->plan_text, &t->news, fit, e);
    json_t *line = weft_plans_line(as, weft_policy_names[t->run->cascades.policy], t->news.idle);
    char *text = line ? weft_json_line(line) : NULL;
    json_decref(line);
    if (!text)
        return no_memory();
    const weft_status_code status = weft_cascade_log_note(t->log, t->plan, text, &t->news, fit, e);
    weft_free(text);
    return status;
}

weft_status weft_cascade_train_note(weft_cascade_train *t)
{
    weft_executed e;
    weft_cascade_fit fit;
    weft_buf odd = {0};
    weft_cascade_run *run = weft_cascade_stage_run(t->exec);
    double end = 0;
    for (int64_t c = 0; c < t->plan->cascades; c++)
        end = fmax(end, t->done.cascade[c].took_part ? t->done.cascade[c].end : 0);
    t->done.seconds = weft_cascade_run_now(run) - t->done.begin;
    t->done.reduce = t->done.seconds - end;
    WEFT_TRY(weft_cascade_gather(t->comm, t->plan, &t->done, &e));
    weft_status_code status =
        e.clock_age > clock_period ? weft_cascade_run_measure_clock(run) : WEFT_OK;
    if (status == WEFT_OK && t->leader) /* who plans */
        status = weft_cascade_prices_note(t->prices, t->plan, e.seconds, e.cold, &fit);
    if (status == WEFT_OK && t->leader) {
        weft_cascade_prices_odd(t->prices, &odd);
        if (odd.len)
            weft_warn("%s", odd.data);
        add_up(t, &e);
        record(t, weft_cascade_run_executed(run), &e);
        status = log_iteration(t, weft_cascade_run_executed(run), &fit, &e);
    }
    weft_buf_free(&odd);
    weft_executed_free(&e);
    return status;
}

weft_status weft_cascade_train_end(weft_cascade_train *t)
{
    const double n = (double)t->iterations;
    char text[2][32];
    if (t->leader && t->executed_any)
        weft_info(
            "stage %lld: memory of a rank: %s planned with at most, %s of this process at its "
            "worst, with checkpoints and clips read ahead",
            (long long)t->s.stage, weft_format_bytes((int64_t)t->memory, text[0]),
            weft_format_bytes(weft_memory_peak(), text[1]));
    if (t->leader && t->iterations)
        weft_info(
            "stage %lld: %lld iterations of cascades without compiling: %.4g s as planned, "
            "%.4g s as executed, %.3g and %.3g s of sums behind it, ranks idle %.1f and %.1f %%, "
            "lower bound %.4g s; the planner took %.3g s and was waited for %.3g s",
            (long long)t->s.stage, (long long)t->iterations, t->planned / n, t->executed / n,
            t->exposed_planned / n, t->exposed / n, 100 * t->idle_planned / n,
            100 * t->idle_executed / n, t->bound / n, t->planning / n, t->late / n);
    const weft_status_code status = weft_cascade_log_close(t->log);
    t->log = NULL;
    return status;
}

/* ---- without running ------------------------------------------------------------------------ */

/* The most that any rank takes in an iteration, and which. */
static weft_status peak_of(weft_cascade_train *t, const weft_placed_iteration *plan, double *peak,
                           int *rank)
{
    *peak = 0;
    for (int64_t c = 0; c < plan->cascades; c++) {
        const weft_placed_cascade *item = &plan->cascade[c];
        double seconds, bytes;
        WEFT_TRY(weft_cascade_prices_get(t->prices, item->module, plan->sample[item->sample].bucket,
                                         (int)item->at.degree, &seconds, &bytes));
        if (bytes > *peak) {
            *peak = bytes;
            *rank = item->at.device[0];
        }
    }
    return WEFT_OK;
}

static weft_status foresee(weft_cascade_train *t, int64_t step, bool first, weft_buf *svg,
                           weft_buf *out)
{
    char title[160], text[2][32];
    double peak;
    int rank = 0;
    WEFT_TRY(weft_ahead_take(t->ahead, &t->plan, &t->news, &t->plan_text));
    WEFT_TRY(peak_of(t, t->plan, &peak, &rank));
    weft_buf_printf(out, "\nstage %lld, step %lld: %lld samples by %s\n", (long long)t->s.stage,
                    (long long)step, (long long)t->plan->samples,
                    weft_policy_names[t->run->cascades.policy]);
    weft_placed_print(t->plan, out);
    weft_buf_printf(
        out,
        "ranks idle %.1f %%; sums of gradients %.3g s behind it; planned in %.3g s, %lld rounds%s; "
        "rank %d takes most: %s of %s\n",
        100 * t->news.idle, sums_behind(t), t->news.seconds, (long long)t->news.rounds,
        t->news.replayed ? ", replayed"
        : t->news.proved ? ", no plan is shorter"
                         : "",
        rank, weft_format_bytes((int64_t)peak, text[0]),
        weft_format_bytes((int64_t)t->memory, text[1]));
    if (t->news.left_out)
        weft_buf_printf(out, "%lld samples fit on no degree and are left out\n",
                        (long long)t->news.left_out);
    if (!first || !svg)
        return weft_buf_check(out);
    snprintf(title, sizeof title, "stage %lld, step %lld, as planned", (long long)t->s.stage,
             (long long)step);
    return weft_placed_svg(title, t->plan, t->ranks, NULL, svg);
}

weft_status weft_cascade_train_foresee(weft_cascade_train *t, weft_loader *loader, int64_t fixed,
                                       int iterations, weft_buf *svg, weft_buf *out)
{
    const int64_t begin = weft_run_first_step(t->s.run, t->s.stage),
                  end = weft_run_first_step(t->s.run, t->s.stage + 1);
    t->dry = true;
    t->loader = loader;
    t->fixed = fixed;
    WEFT_TRY(make_room(t));
    WEFT_TRY(open_planner(t));
    WEFT_TRY(settle(t, begin));
    weft_buf_printf(out, "stage %lld: costs of %s for %d ranks\n", (long long)t->s.stage,
                    t->cluster_name, t->ranks);
    for (int64_t i = 0; i < iterations && begin + i < end; i++) {
        WEFT_TRY(look(t, begin + i, i * t->stage->accumulate));
        WEFT_TRY(foresee(t, begin + i, i == 0, svg, out));
    }
    return WEFT_OK;
}
