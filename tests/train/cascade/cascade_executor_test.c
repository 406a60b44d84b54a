/* Random iterations of cascades on 2 to 8 ranks, as threads, against one rank that takes the same
 * samples one after the other through the steps of `weft train` (train_step.h): a small Wan DiT
 * whose sizes divide nothing, samples of four sizes, groups that are nested, disjoint, overlapping.
 *
 *   close    loss, every gradient and, after 10 iterations, all weights, to 1e-5 of one rank: sums
 *            have another order
 *   bitwise  the same plans again; the plan that was executed with late dispatch, replayed
 *   order    executed times of cascades that depend on one another, on clocks that differ by rank
 *   equal    bytes handed on = the least possible, counted here unit by unit; units that no token
 *            of a rank lies in are other numbers there */
#include "train/cascade/cascade_executor.h"

#include "../../model_of.h"
#include "base/rng.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "train/cascade/cascade_log.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    REPRESENTATIVE = -1,
    RANKS = 8,
    STEPS = 10,
    CHANNELS = 3,
    TOKENS = 4,
    WIDTH = 6,
    BUCKETS = 4,
    SAMPLES = 5
};

static const weft_bucket bucket[BUCKETS] = {{2, 3, 5, 7}, {1, 2, 3, 4}, {3, 1, 4, 5}, {4, 2, 2, 3}};

static const char small[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":5,"
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
    "\"ffn_dim\":22,\"num_layers\":2,\"patch_size\":[1,1,1],\"rope_max_seq_len\":16}";

static weft_status make_graph_of(const weft_model *model, int b, weft_graph **out)
{
    weft_graph *g = weft_graph_create();
    const weft_bucket *s = &bucket[b];
    const weft_shape shape = WEFT_SHAPE(s->batch, s->frames, s->height, s->width, CHANNELS);
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_LATENTS] = weft_input(g, "batch.latents", WEFT_F32, shape);
    p.at[WEFT_PORT_TIMESTEP] = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(s->batch));
    p.at[WEFT_PORT_TEXT] =
        weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(s->batch, TOKENS, WIDTH));
    const weft_value target = weft_input(g, "batch.target", WEFT_F32, shape);
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    const weft_value error = weft_sub(g, p.at[WEFT_PORT_PREDICTION], target);
    weft_output(g, "objective", weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error)));
    *out = g;
    return weft_graph_check(g);
}

/* ---- data: a function of the sample and the element
 * -------------------------------------------- */

static const char *const names[] = {"batch.latents", "batch.timestep", "batch.text",
                                    "batch.target"};

static int64_t row_floats(int b, int input)
{
    const weft_bucket *s = &bucket[b];
    return input == 1   ? 1
           : input == 2 ? TOKENS * WIDTH
                        : s->frames * s->height * s->width * CHANNELS;
}

static void fill_row(int64_t sample, int b, int input, int64_t clip, float *to)
{
    const uint64_t seed = weft_seed_mix(weft_seed_mix(77, (uint64_t)sample), (uint64_t)input);
    const int64_t count = row_floats(b, input);
    for (int64_t i = 0; i < count; i++) {
        const double x = weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)(clip * count + i));
        to[i] = (float)(input == 1 ? 500 + 300 * tanh(x) : x);
    }
}

/* Index in the data set of a clip: another one for each clip and sample. */
static int64_t index_of(int64_t sample, int64_t clip)
{
    return ((int64_t)1 << 40) + 100 * sample + clip;
}

/* Copies the units that this rank reads, all of which must be of the clip of `sample`. Other
 * units were never sent. They are set to 1000, so that a program that reads them has another
 * loss. */
static weft_status copy_read(const weft_received_latents *from, int64_t sample, int64_t clip,
                             float *to)
{
    const weft_latent_rows *rows = &from->rows;
    int64_t received;
    for (int64_t e = 0; e < rows->units * rows->floats; e++)
        to[e] = 1e3F;
    for (int64_t u = from->read.first; u < from->read.first + from->read.count; u++)
        memcpy(to + u * rows->floats, weft_latent_rows_unit(rows, clip, u),
               (size_t)rows->floats * sizeof *to);
    WEFT_TRY(weft_received_latents_sample(from, clip, &received));
    cr_expect_eq(received, index_of(sample, clip),
                 "clip %" PRId64 " of sample %" PRId64 " has index %" PRId64, clip, sample,
                 received);
    return WEFT_OK;
}

static weft_status fill(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step,
                        const weft_received_latents handed[WEFT_CASCADE_MODULES])
{
    const weft_placed_sample *s = &plan->sample[plan->cascade[index].sample];
    (void)user;
    for (int k = 0; k < 4; k++) {
        const weft_tensor own = weft_tensor_of(step->graph, weft_graph_find(step->graph, names[k]));
        weft_tensor *to = weft_program_input(step->program, names[k]);
        const weft_received_latents *from = k == 0   ? &handed[WEFT_CASCADE_VAE]
                                            : k == 2 ? &handed[WEFT_CASCADE_TEXT]
                                                     : NULL;
        const int64_t floats = row_floats(s->bucket, k), clips = own.whole.dim[0];
        float *whole = weft_alloc(clips * floats * (int64_t)sizeof *whole);
        for (int64_t i = 0; i < clips; i++) {
            if (!from || !from->rows.data)
                fill_row(s->batch, s->bucket, k, i, whole + i * floats);
            else if (i >= step->local_first && i < step->local_first + step->local_count)
                WEFT_TRY(copy_read(from, s->batch, i, whole + i * floats));
        }
        const weft_box part = weft_box_of(&own), all = weft_box_whole(&own.whole);
        weft_box_copy(&part, to->data, to->dtype, &all, whole, WEFT_F32);
        weft_free(whole);
    }
    return WEFT_OK;
}

/* Latent frames are made one by one but for the last bucket's, which are made together. */
static weft_cascade_row row_of(void *user, int b, weft_cascade_module module)
{
    const bool vae = module == WEFT_CASCADE_VAE;
    const int64_t units = vae ? bucket[b].frames : 1;
    (void)user;
    return (weft_cascade_row){units, row_floats(b, vae ? 0 : 2) / units, b < BUCKETS - 1,
                              vae ? names[0] : NULL};
}

static weft_status encode(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group,
                          const weft_latent_rows *rows)
{
    const weft_placed_cascade *c = &plan->cascade[index];
    const weft_placed_sample *s = &plan->sample[c->sample];
    const int input = c->module == WEFT_CASCADE_VAE ? 0 : 2;
    const weft_cascade_row row = row_of(user, s->bucket, c->module);
    float *whole = weft_alloc(row_floats(s->bucket, input) * (int64_t)sizeof *whole);
    cr_expect_eq(group != NULL, share->parts > 1);
    for (int64_t i = share->clips.first; i < share->clips.first + share->clips.count; i++) {
        fill_row(s->batch, s->bucket, input, i, whole);
        for (int64_t u = share->units.first; u < share->units.first + share->units.count; u++) {
            memcpy(weft_latent_rows_unit(rows, i, u), whole + u * row.floats,
                   (size_t)row.floats * sizeof *whole);
            weft_latent_rows_set_sample(rows, i, u, index_of(s->batch, i));
        }
    }
    weft_free(whole);
    return WEFT_OK;
}

/* ---- random plans
 * ------------------------------------------------------------------------------ */

typedef struct made_plan {
    weft_placed_iteration all;
    weft_placed_sample sample[SAMPLES];
    weft_placed_cascade cascade[3 * SAMPLES];
    int32_t device[3 * SAMPLES][RANKS], after[SAMPLES][2];
    char id[3 * SAMPLES][16];
} made_plan;

static int draw(uint64_t *seed, int below)
{
    *seed = weft_seed_mix(*seed, 1);
    return (int)(*seed >> 33) % below;
}

static weft_placed_cascade *add(made_plan *p, uint64_t *seed, int sample,
                                weft_cascade_module module, int most, int ranks, double start)
{
    const int index = (int)p->all.cascades++, degree = 1 + draw(seed, most);
    int32_t *list = p->device[index];
    for (int r = 0; r < ranks; r++)
        list[r] = r;
    for (int r = 0; r < degree; r++) {
        const int other = r + draw(seed, ranks - r);
        const int32_t kept = list[r];
        list[r] = list[other];
        list[other] = kept;
    }
    snprintf(p->id[index], sizeof p->id[index], "s%d.%s", sample, weft_cascade_module_name(module));
    p->cascade[index] = (weft_placed_cascade){
        {.id = p->id[index], .device = list, .degree = degree, .start = start, .seconds = 1},
        sample,
        module,
        module == WEFT_CASCADE_DIT ? (weft_sp_method)draw(seed, 3) : WEFT_SP_NONE};
    return &p->cascade[index];
}

/* In any order of starts that keeps encoders before what reads them. */
static void make_plan(made_plan *p, uint64_t seed, int64_t step, int ranks)
{
    double all = 0;
    *p = (made_plan){.all = {.step = step, .sample = p->sample, .cascade = p->cascade}};
    p->all.samples = 3 + draw(&seed, SAMPLES - 2);
    for (int s = 0; s < p->all.samples; s++) {
        const int b = draw(&seed, BUCKETS);
        p->sample[s] = (weft_placed_sample){
            .batch = 100 * step + s, .bucket = b, .clips = bucket[b].batch, .weight = 1 + s};
        all += 1 + s;
        const double start = draw(&seed, 5);
        int after = 0;
        if (draw(&seed, 2)) {
            p->after[s][after++] = (int32_t)p->all.cascades;
            add(p, &seed, s, WEFT_CASCADE_VAE, ranks, ranks, start);
        }
        if (draw(&seed, 2)) {
            p->after[s][after++] = (int32_t)p->all.cascades;
            add(p, &seed, s, WEFT_CASCADE_TEXT, 1, ranks, start + 1);
        }
        weft_placed_cascade *dit =
            add(p, &seed, s, WEFT_CASCADE_DIT, ranks, ranks, start + 2 + draw(&seed, 3));
        dit->at.after = p->after[s];
        dit->at.after_count = after;
    }
    for (int s = 0; s < p->all.samples; s++)
        p->sample[s].weight /= all;
    cr_assert_eq(weft_placed_check(&p->all, ranks, "random"), WEFT_OK, "%s", weft_error_message());
}

/* ---- one run
 * ----------------------------------------------------------------------------------- */

static const weft_optimizer_config adamw = {.beta1 = 0.9,
                                            .beta2 = 0.99,
                                            .eps = 1e-3, /* else a step hides the gradient's size */
                                            .weight_decay = 0.01,
                                            .clip_norm = 0.5,
                                            .ema_decay = 0.9};

/* Ticks instead of seconds: whoever reads the clock moves it, so that times do not depend on how
 * fast ranks are. Each rank's clock is shifted. */
typedef struct ticks {
    atomic_llong now;
    atomic_int encoded; /* iterations in which rank 0 has encoded; the other rank begins then */
} ticks;

typedef struct job {
    ticks *ticks;          /* NULL: weft_now() */
    const made_plan *plan; /* [STEPS] */
    const weft_model *model;
    weft_comm *comm;
    weft_store *store;
    int ranks, rank, zero; /* REPRESENTATIVE: none, and sums go by way of representatives */
    int64_t cache;
    bool late;           /* sums begin when a rank's cascades are over */
    made_plan *executed; /* [STEPS] rank 0 dispatches, and these are written; NULL: as planned */
    double deadline;
    int dies; /* phase in which this rank is killed; 0: it is not */
    double loss[STEPS], norm[STEPS];
    weft_store *grad[STEPS]; /* copies of gradient states before the update */
    int64_t handed[STEPS], in_place[STEPS], sent[STEPS];
    weft_cascade_counts counts;
    char error[400];
} job;

static void set(const weft_step *step, const char *name, double value)
{
    *(float *)weft_program_input(step->program, name)->data = (float)value;
}

static weft_status keep_gradients(job *j, int step)
{
    j->grad[step] = weft_store_create();
    for (int64_t i = 0; i < weft_store_count(j->store); i++) {
        const weft_tensor *from = weft_store_at(j->store, i);
        weft_tensor *to;
        if (strncmp(from->name, "grad.", 5))
            continue;
        WEFT_TRY(weft_store_add_like(j->grad[step], from, &to));
        memcpy(to->data, from->data, (size_t)weft_shape_count(&from->shape) * sizeof(float));
    }
    return WEFT_OK;
}

static weft_status update(job *j, const weft_step *step, int i)
{
    WEFT_TRY(keep_gradients(j, i));
    set(step, "optimizer.lr", 1e-3);
    set(step, "optimizer.step", i + 1);
    set(step, "optimizer.loss_limit", 1e9);
    set(step, "optimizer.norm_limit", 1e9);
    WEFT_TRY(weft_program_run(step->program));
    j->loss[i] = weft_step_scalar(step, "loss");
    j->norm[i] = weft_step_scalar(step, "grad_norm");
    return WEFT_OK;
}

/* Phases in which a rank may be killed: before it takes part in a plan, while it encodes, before
 * and behind a denoiser's inputs, before the sums. */
enum { LIVES, DIES_AT_PLAN, DIES_ENCODING, DIES_AT_INPUTS, DIES_AT_SUMS, PHASES };

static weft_status die_at(job *j, int phase)
{
    if (j->dies != phase)
        return WEFT_OK;
    weft_comm_fake_kill(j->comm);
    return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "killed");
}

static weft_status make_graph(void *user, int b, weft_graph **out)
{
    return make_graph_of(((const job *)user)->model, b, out);
}

static weft_status fill_or_die(void *user, const weft_placed_iteration *plan, int32_t index,
                               const weft_step *step,
                               const weft_received_latents handed[WEFT_CASCADE_MODULES])
{
    WEFT_TRY(die_at(user, DIES_AT_INPUTS));
    return fill(user, plan, index, step, handed);
}

static weft_status encode_or_die(void *user, const weft_placed_iteration *plan, int32_t index,
                                 const weft_cascade_share *share, weft_group *group,
                                 const weft_latent_rows *rows)
{
    job *j = user;
    WEFT_TRY(die_at(user, DIES_ENCODING));
    WEFT_TRY(encode(user, plan, index, share, group, rows));
    if (j->ticks) {
        atomic_fetch_add(&j->ticks->now, 1000 * 1000);
        atomic_store(&j->ticks->encoded, (int)plan->step + 1);
    }
    return WEFT_OK;
}

static double tick(void *user)
{
    job *j = user;
    return (double)atomic_fetch_add(&j->ticks->now, 1) + 5e7 * j->rank;
}

/* The rank that does not encode is late. */
static void wait_encoded(job *j, int step)
{
    while (j->ticks && j->rank && step && atomic_load(&j->ticks->encoded) <= step)
        sched_yield();
}

/* No cascade begins before those end whose results it reads, but for the error of the clock. */
static weft_status check_order(job *j, const weft_cascade_run *run,
                               const weft_placed_iteration *plan, const weft_iteration_done *done)
{
    weft_iteration_timing e;
    double error = weft_cascade_run_clock(run)->error;
    if (!j->ticks)
        return WEFT_OK;
    WEFT_TRY(weft_comm_sum(j->comm, &error, 1));
    WEFT_TRY(weft_cascade_gather(j->comm, plan, done, &e));
    cr_expect(error < 1000, "the common clock is off by %g ticks", error);
    for (int64_t c = 0; c < plan->cascades; c++) {
        const weft_assigned *at = &plan->cascade[c].at;
        cr_expect(e.start[c] >= 0 && e.end[c] <= e.makespan && e.seconds[c] > 0);
        for (int32_t a = 0; a < at->after_count; a++)
            cr_expect(e.start[c] >= e.end[at->after[a]] - error,
                      "step %" PRId64 ": %s begins at %g, what it reads is there at %g", plan->step,
                      at->id, e.start[c], e.end[at->after[a]]);
    }
    weft_iteration_timing_free(&e);
    return WEFT_OK;
}

static void keep_plan(const made_plan *planned, const weft_placed_iteration *executed,
                      made_plan *out)
{
    *out = *planned;
    out->all = *executed;
    out->all.sample = out->sample;
    out->all.cascade = out->cascade;
    for (int c = 0; c < executed->cascades; c++) {
        out->cascade[c] = executed->cascade[c];
        memcpy(out->device[c], executed->cascade[c].at.device,
               (size_t)executed->cascade[c].at.degree * sizeof *out->device[c]);
        out->cascade[c].at.device = out->device[c];
    }
}

static weft_status run_cascades(job *j, const weft_exec_config *place)
{
    int64_t clips[BUCKETS];
    for (int b = 0; b < BUCKETS; b++)
        clips[b] = bucket[b].batch;
    const weft_cascade_setup setup = {.comm = j->comm,
                                      .store = j->store,
                                      .exec = place,
                                      .optimizer = &adamw,
                                      .context = WEFT_SP_ULYSSES,
                                      .representative = j->zero < 0,
                                      .late_reduce = j->late,
                                      .late_dispatch = j->executed != NULL,
                                      .seed = 7,
                                      .buckets = BUCKETS,
                                      .clips = clips,
                                      .cache_bytes = j->cache,
                                      .clock = {j->ticks ? tick : NULL, j},
                                      .calls = {j, make_graph, fill_or_die, row_of, encode_or_die}};
    weft_cascade_timing cascade[3 * SAMPLES];
    weft_iteration_done done = {.cascade = cascade};
    weft_cascade_run *run;
    weft_step *step;
    WEFT_TRY(weft_cascade_run_create(&setup, &run));
    weft_step_begin_averages(j->store);
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < STEPS && status == WEFT_OK; i++) {
        status = die_at(j, DIES_AT_PLAN);
        wait_encoded(j, i);
        if (status == WEFT_OK)
            status = weft_cascade_run_iteration(run, &j->plan[i].all, &done);
        if (status == WEFT_OK)
            status = check_order(j, run, &j->plan[i].all, &done);
        if (status == WEFT_OK && j->executed && j->rank == 0)
            keep_plan(&j->plan[i], weft_cascade_run_executed(run), &j->executed[i]);
        for (int c = 0; c < j->plan[i].all.cascades; c++) {
            j->handed[i] += cascade[c].received;
            j->in_place[i] += cascade[c].in_place;
            j->sent[i] += cascade[c].sent;
        }
        if (status == WEFT_OK)
            status = die_at(j, DIES_AT_SUMS);
        if (status == WEFT_OK)
            status = weft_cascade_run_bind_update(run, &step);
        if (status == WEFT_OK)
            status = update(j, step, i);
    }
    j->counts = weft_cascade_run_counts(run);
    weft_cascade_run_free(run);
    return status;
}

static weft_status train(job *j)
{
    weft_exec_config place = {.comm = j->comm,
                              .backend = &weft_backend_cpu,
                              .recipes = j->model->family->recipe,
                              .recipe_count = j->model->family->recipes,
                              .zero = j->zero < 0 ? 0 : j->zero};
    if (j->ranks > 1) {
        place.mesh.axis_count = 1;
        strcpy(place.mesh.axis[0].name, "dp");
        place.mesh.axis[0].size = j->ranks;
    }
    return run_cascades(j, &place);
}

static void *run_rank(void *user)
{
    job *j = user;
    if (train(j) != WEFT_OK)
        snprintf(j->error, sizeof j->error, "%s", weft_error_message());
    return NULL;
}

static void run_all(job *jobs, int ranks)
{
    weft_comm *comm[RANKS];
    pthread_t thread[RANKS];
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r].comm = comm[r];
        weft_comm_set_deadline(comm[r], jobs[r].deadline);
        pthread_create(&thread[r], NULL, run_rank, &jobs[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++)
        weft_comm_free(comm[r]);
}

static void run(const weft_model *model, const made_plan *plan, int ranks, int zero, int64_t cache,
                bool late, job *jobs)
{
    for (int r = 0; r < ranks; r++)
        jobs[r] = (job){.plan = plan,
                        .model = model,
                        .store = weft_store_create(),
                        .ranks = ranks,
                        .rank = r,
                        .zero = zero,
                        .deadline = 60,
                        .cache = cache,
                        .late = late};
    run_all(jobs, ranks);
    for (int r = 0; r < ranks; r++)
        cr_assert_str_empty(jobs[r].error, "rank %d of %d: %s", r, ranks, jobs[r].error);
}

static void end(job *jobs, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < STEPS; i++)
            weft_store_free(jobs[r].grad[i]);
        weft_store_free(jobs[r].store);
    }
}

/* ---- one rank, sample after sample
 * ------------------------------------------------------------- */

static weft_status make_alone(job *j, weft_step *work, weft_step *last)
{
    weft_exec_config place = {.backend = &weft_backend_cpu, .kind = WEFT_STEP_GRADIENTS};
    const weft_graph *graph[BUCKETS];
    for (int b = 0; b < BUCKETS; b++) {
        weft_graph *g;
        WEFT_TRY(make_graph_of(j->model, b, &g));
        WEFT_TRY(weft_step_make(g, &adamw, &place, j->store, 7, &work[b]));
        graph[b] = work[b].graph;
    }
    place.kind = WEFT_STEP_UPDATE;
    return weft_step_make(weft_optimizer_update(graph, BUCKETS, &adamw), &adamw, &place, j->store,
                          7, last);
}

static weft_status train_alone(job *j)
{
    static const weft_received_latents none[WEFT_CASCADE_MODULES];
    weft_step work[BUCKETS] = {0}, last = {0};
    weft_status_code status = make_alone(j, work, &last);
    if (status == WEFT_OK)
        weft_step_begin_averages(j->store);
    for (int i = 0; i < STEPS && status == WEFT_OK; i++) {
        const weft_placed_iteration *p = &j->plan[i].all;
        for (int32_t c = 0; c < p->cascades && status == WEFT_OK; c++) {
            const weft_placed_sample *s = &p->sample[p->cascade[c].sample];
            if (p->cascade[c].module != WEFT_CASCADE_DIT)
                continue;
            WEFT_TRY(fill(NULL, p, c, &work[s->bucket], none));
            set(&work[s->bucket], "optimizer.weight", s->weight);
            status = weft_program_run(work[s->bucket].program);
        }
        if (status == WEFT_OK)
            status = update(j, &last, i);
    }
    for (int b = 0; b < BUCKETS; b++)
        weft_step_free(&work[b]);
    weft_step_free(&last);
    return status;
}

/* ---- comparison
 * -------------------------------------------------------------------------------- */

/* Of the gradient that is off most: how far the sum of the ranks' terms is, relative to the norm.
 * An element by itself is within rounding of what its backward cancels. */
static double gradient_distance(const job *many, int ranks, int step, weft_store *whole,
                                const char **name)
{
    double worst = 0;
    for (int64_t t = 0; t < weft_store_count(whole); t++) {
        const weft_tensor *all = weft_store_at(whole, t);
        double off = 0, norm = 0;
        for (int64_t i = 0; i < weft_shape_count(&all->shape); i++) {
            const double alone = (double)((const float *)all->data)[i];
            double sum = -alone;
            for (int r = 0; r < ranks; r++) {
                const double term =
                    (double)((const float *)weft_store_find(many[r].grad[step], all->name)
                                 ->data)[i];
                sum += many[r].zero > 0 ? term : term / ranks; /* else each has the whole */
            }
            off += sum * sum;
            norm += alone * alone;
        }
        off = sqrt(off / fmax(norm, 1e-16));
        if (!(off <= worst)) {
            worst = off;
            *name = all->name;
        }
    }
    return worst;
}

static double weight_distance(weft_store *whole, weft_store *many, const char **name)
{
    double worst = 0;
    for (int64_t t = 0; t < weft_store_count(many); t++) {
        const weft_tensor *part = weft_store_at(many, t), *all = weft_store_find(whole, part->name);
        const int64_t count = weft_shape_count(&part->shape);
        if (part->replica < 0 || count == 0)
            continue;
        float *expected = weft_alloc(count * (int64_t)sizeof *expected);
        const weft_box box = weft_box_of(part), full = weft_box_whole(&part->whole);
        double largest = 1e-3;
        weft_box_copy(&box, expected, WEFT_F32, &full, all->data, all->dtype);
        for (int64_t i = 0; i < weft_shape_count(&all->shape); i++)
            largest = fmax(largest, fabs((double)((const float *)all->data)[i]));
        for (int64_t i = 0; i < count; i++) {
            const double off =
                fabs((double)((const float *)part->data)[i] - (double)expected[i]) / largest;
            if (!(off <= worst)) {
                worst = off;
                *name = part->name;
            }
        }
        weft_free(expected);
    }
    return worst;
}

static bool same_bits(const job *a, const job *b)
{
    for (int64_t t = 0; t < weft_store_count(a->store); t++) {
        const weft_tensor *x = weft_store_at(a->store, t), *y = weft_store_find(b->store, x->name);
        if (memcmp(x->data, y->data, (size_t)weft_shape_count(&x->shape) * sizeof(float)))
            return false;
    }
    return !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm);
}

/* Which rank makes a unit of a clip. */
static int maker_of(const weft_placed_cascade *from, int bucket_of, int64_t clips, int64_t clip,
                    int64_t unit)
{
    const weft_cascade_row row = row_of(NULL, bucket_of, from->module);
    int rank = -1;
    for (int64_t m = 0; m < from->at.degree; m++) {
        const weft_cascade_share s = weft_cascade_share_of(&row, clips, from->at.degree, m);
        if (clip >= s.clips.first && clip < s.clips.first + s.clips.count &&
            unit >= s.units.first && unit < s.units.first + s.units.count)
            rank = from->at.device[m];
    }
    return rank;
}

/* The tokens of a part lie in this unit, a frame; a part without tokens has the first. */
static bool reads_unit(int bucket_of, int64_t parts, int64_t part, int64_t unit)
{
    const weft_bucket *b = &bucket[bucket_of];
    const weft_item_range read = weft_hand_read(b->frames, b->height * b->width, parts, part);
    return unit >= read.first && unit < read.first + read.count;
}

/* The least that has to go from rank to rank: units of rows that a rank's tokens lie in and that it
 * did not make. */
static int64_t least_bytes(const made_plan *p, int rank, int64_t *in_place)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->all.cascades; i++) {
        const weft_placed_cascade *c = &p->cascade[i];
        const weft_placed_sample *s = &p->sample[c->sample];
        const int64_t shares = weft_cascade_shares(c->method, s->clips, c->at.degree);
        for (int64_t m = 0; m < c->at.degree; m++) {
            if (c->at.device[m] != rank || c->module != WEFT_CASCADE_DIT)
                continue;
            const int64_t parts = c->at.degree / shares, share = m / parts,
                          each = s->clips / shares;
            for (int32_t a = 0; a < c->at.after_count; a++)
                for (int64_t clip = share * each; clip < (share + 1) * each; clip++) {
                    const weft_placed_cascade *from = &p->cascade[c->at.after[a]];
                    const weft_cascade_row row = row_of(NULL, s->bucket, from->module);
                    for (int64_t u = 0; u < row.units; u++)
                        if (!row.input || reads_unit(s->bucket, parts, m % parts, u))
                            *(maker_of(from, s->bucket, s->clips, clip, u) == rank ? in_place
                                                                                   : &bytes) +=
                                weft_latent_unit_bytes(&row);
                }
        }
    }
    return bytes;
}

static void compare_handed(const job *many, int ranks)
{
    for (int i = 0; i < STEPS; i++) {
        int64_t sent = 0, received = 0;
        for (int r = 0; r < ranks; r++) {
            int64_t in_place = 0;
            const int64_t least = least_bytes(&many[r].plan[i], r, &in_place);
            cr_expect_eq(many[r].handed[i], least,
                         "rank %d of %d, step %d: %" PRId64 " bytes, least %" PRId64, r, ranks, i,
                         many[r].handed[i], least);
            cr_expect_eq(many[r].in_place[i], in_place,
                         "rank %d of %d, step %d: %" PRId64 " in place", r, ranks, i,
                         many[r].in_place[i]);
            sent += many[r].sent[i];
            received += many[r].handed[i];
        }
        cr_expect_eq(sent, received);
    }
}

static void compare(uint64_t seed, int ranks, int zero)
{
    static const double near = 1e-5;
    static made_plan plan[STEPS];
    static job many[RANKS], again[RANKS];
    const weft_model model = model_of(small);
    job alone = {.plan = plan, .model = &model, .store = weft_store_create(), .ranks = 1};
    for (int i = 0; i < STEPS; i++)
        make_plan(&plan[i], weft_seed_mix(seed, (uint64_t)i), i, ranks);
    cr_assert_eq(train_alone(&alone), WEFT_OK, "%s", weft_error_message());
    run(&model, plan, ranks, zero, 0, false, many);
    /* of which no program stays that is not in use; and when sums begin changes no bit */
    run(&model, plan, ranks, zero, 1, true, again);
    for (int i = 0; i < STEPS; i++) {
        const char *name = "";
        const double off = gradient_distance(many, ranks, i, alone.grad[i], &name);
        cr_expect(off <= near, "%d ranks, step %d: %s is off by %g", ranks, i, name, off);
    }
    for (int r = 0; r < ranks; r++) {
        const char *name = "";
        for (int i = 0; i < STEPS; i++) {
            cr_expect(fabs(many[r].loss[i] - alone.loss[i]) <= near * fabs(alone.loss[i]),
                      "rank %d of %d, step %d: loss %.9g, not %.9g", r, ranks, i, many[r].loss[i],
                      alone.loss[i]);
            cr_expect(fabs(many[r].norm[i] - alone.norm[i]) <= near * fabs(alone.norm[i]),
                      "rank %d of %d, step %d: norm %.9g, not %.9g", r, ranks, i, many[r].norm[i],
                      alone.norm[i]);
        }
        const double off = weight_distance(alone.store, many[r].store, &name);
        cr_expect(off <= near, "rank %d of %d: %s is off by %g", r, ranks, name, off);
        cr_expect(same_bits(&many[r], &again[r]), "rank %d of %d: other bits the second time", r,
                  ranks);
        cr_expect(again[r].counts.made >= many[r].counts.made && many[r].counts.evicted == 0);
    }
    compare_handed(many, ranks);
    end(many, ranks);
    end(again, ranks);
    end(&alone, 1);
}

Test(cascade_run, random_iterations_on_two_ranks)
{
    compare(1, 2, 0);
}

Test(cascade_run, random_iterations_on_three_ranks_with_shared_states)
{
    compare(2, 3, 1);
}

Test(cascade_run, random_iterations_on_five_ranks_with_shared_states)
{
    compare(3, 5, 2);
}

Test(cascade_run, random_iterations_on_eight_ranks)
{
    compare(4, 8, 0);
}

/* Rank 0 moves cascades to ranks that are idle: close to one rank like any plan, and bitwise the
 * same when the executed plan is replayed. */
static void compare_dispatched(uint64_t seed, int ranks, int zero)
{
    static const double near = 1e-5;
    static made_plan plan[STEPS], executed[STEPS];
    static job many[RANKS], again[RANKS];
    const weft_model model = model_of(small);
    job alone = {.plan = plan, .model = &model, .store = weft_store_create(), .ranks = 1};
    for (int i = 0; i < STEPS; i++) {
        make_plan(&plan[i], weft_seed_mix(seed, (uint64_t)i), i, ranks);
        plan[i].all.late = i % 5 != 4;
    }
    cr_assert_eq(train_alone(&alone), WEFT_OK, "%s", weft_error_message());
    for (int r = 0; r < ranks; r++)
        many[r] = (job){.plan = plan,
                        .executed = executed,
                        .model = &model,
                        .store = weft_store_create(),
                        .ranks = ranks,
                        .rank = r,
                        .zero = zero,
                        .deadline = 60};
    run_all(many, ranks);
    for (int i = 0; i < STEPS; i++)
        cr_assert_eq(weft_placed_check(&executed[i].all, ranks, "executed"), WEFT_OK, "%s",
                     weft_error_message());
    run(&model, executed, ranks, zero, 0, false, again);
    for (int i = 0; i < STEPS; i++) {
        const char *name = "";
        const double off = gradient_distance(many, ranks, i, alone.grad[i], &name);
        cr_expect(off <= near, "%d ranks, step %d: %s is off by %g", ranks, i, name, off);
    }
    for (int r = 0; r < ranks; r++) {
        cr_assert_str_empty(many[r].error, "rank %d of %d: %s", r, ranks, many[r].error);
        for (int i = 0; i < STEPS; i++)
            cr_expect(fabs(many[r].loss[i] - alone.loss[i]) <= near * fabs(alone.loss[i]),
                      "rank %d of %d, step %d: loss %.9g, not %.9g", r, ranks, i, many[r].loss[i],
                      alone.loss[i]);
        cr_expect(same_bits(&many[r], &again[r]), "rank %d of %d: the replay has other bits", r,
                  ranks);
        many[r].plan = executed;
    }
    compare_handed(many, ranks);
    end(many, ranks);
    end(again, ranks);
    end(&alone, 1);
}

Test(cascade_run, dispatched_iterations_on_three_ranks)
{
    compare_dispatched(7, 3, 0);
}

Test(cascade_run, dispatched_iterations_on_five_ranks_with_shared_states)
{
    compare_dispatched(8, 5, 2);
}

Test(cascade_run, dispatched_iterations_on_eight_ranks)
{
    compare_dispatched(9, 8, 0);
}

/* Sums by way of representatives: each rank has all of them before the update. */
Test(cascade_run, representatives_of_four_ranks)
{
    compare(5, 4, REPRESENTATIVE);
}

Test(cascade_run, representatives_of_seven_ranks)
{
    compare(6, 7, REPRESENTATIVE);
}

Test(cascade_run, shared_states_do_not_go_with_representatives)
{
    const weft_exec_config place = {.backend = &weft_backend_cpu, .zero = 1};
    const weft_cascade_setup setup = {.exec = &place, .representative = true};
    weft_cascade_run *run;
    cr_expect_eq(weft_cascade_run_create(&setup, &run), WEFT_E_CONFIG);
}

/* The smallest sets by trying all of them. */
Test(cascade_run, no_set_of_representatives_is_smaller)
{
    for (int trial = 0; trial < 200; trial++) {
        made_plan p;
        weft_rank_cover cover;
        const int ranks = 2 + trial % (RANKS - 1);
        int least = ranks;
        make_plan(&p, (uint64_t)(1000 + trial), 0, ranks);
        for (int set = 1; set < 1 << ranks; set++) {
            bool all = true;
            for (int32_t c = 0; c < p.all.cascades; c++) {
                bool one = p.cascade[c].module != WEFT_CASCADE_DIT;
                for (int64_t k = 0; k < p.cascade[c].at.degree; k++)
                    one = one || set >> p.cascade[c].at.device[k] & 1;
                all = all && one;
            }
            const int size = __builtin_popcount((unsigned)set);
            least = all && size < least ? size : least;
        }
        cr_assert_eq(weft_rank_cover_find(&p.all, ranks, &cover), WEFT_OK);
        cr_expect_eq(cover.count, least, "trial %d: %d, not %d", trial, cover.count, least);
        cr_expect(cover.smallest);
        for (int r = 0; r < ranks; r++)
            cr_expect(cover.representative[cover.peer[r]] &&
                      (!cover.representative[r] || cover.peer[r] == r));
        weft_rank_cover_free(&cover);
    }
}

/* Samples that rank 0 encodes and rank 1, or both, denoise. */
static void make_ordered(made_plan *p, int64_t step)
{
    static const int32_t rank[] = {0, 1};
    *p = (made_plan){.all = {.step = step, .sample = p->sample, .cascade = p->cascade}};
    for (int s = 0; s < 3; s++) {
        const int32_t vae = (int32_t)p->all.cascades, dit = vae + 1;
        p->sample[s] = (weft_placed_sample){
            .batch = 10 * step + s, .bucket = 1, .clips = bucket[1].batch, .weight = 1.0 / 3};
        snprintf(p->id[vae], sizeof p->id[vae], "s%d.vae", s);
        snprintf(p->id[dit], sizeof p->id[dit], "s%d.dit", s);
        p->after[s][0] = vae;
        p->cascade[vae] = (weft_placed_cascade){
            {.id = p->id[vae], .device = rank, .degree = 1, .start = s, .seconds = 1},
            s,
            WEFT_CASCADE_VAE,
            WEFT_SP_NONE};
        p->cascade[dit] = (weft_placed_cascade){{.id = p->id[dit],
                                                 .device = s == 1 ? rank : rank + 1,
                                                 .degree = s == 1 ? 2 : 1,
                                                 .start = 10 + s,
                                                 .seconds = 1,
                                                 .after = p->after[s],
                                                 .after_count = 1},
                                                s,
                                                WEFT_CASCADE_DIT,
                                                WEFT_SP_NONE};
        p->all.samples++;
        p->all.cascades += 2;
    }
    cr_assert_eq(weft_placed_check(&p->all, 2, "ordered"), WEFT_OK, "%s", weft_error_message());
}

/* Clocks of ranks that differ, and ranks that begin at different times, change no order. */
Test(cascade_run, executed_times_are_of_one_clock)
{
    enum { PAIR = 2 };
    static made_plan plan[STEPS];
    const weft_model model = model_of(small);
    ticks shared = {0};
    job jobs[PAIR];
    for (int i = 0; i < STEPS; i++)
        make_ordered(&plan[i], i);
    for (int r = 0; r < PAIR; r++)
        jobs[r] = (job){.ticks = &shared,
                        .plan = plan,
                        .model = &model,
                        .store = weft_store_create(),
                        .ranks = PAIR,
                        .rank = r,
                        .deadline = 60};
    run_all(jobs, PAIR);
    for (int r = 0; r < PAIR; r++)
        cr_expect_str_empty(jobs[r].error, "rank %d: %s", r, jobs[r].error);
    end(jobs, PAIR);
}

/* Whenever a rank dies, all others end within the deadline and say which it was. */
static void kill_one(bool dispatched)
{
    static made_plan plan[STEPS], executed[STEPS];
    const weft_model model = model_of(small);
    for (int dies = LIVES + 1; dies < PHASES; dies++) {
        enum { FEW = 4, VICTIM = 2 };
        job jobs[FEW];
        for (int i = 0; i < STEPS; i++)
            make_plan(&plan[i], weft_seed_mix(9, (uint64_t)i), i, FEW);
        for (int i = 0; i < STEPS; i++)
            plan[i].all.late = dispatched;
        for (int r = 0; r < FEW; r++)
            jobs[r] = (job){.plan = plan,
                            .model = &model,
                            .store = weft_store_create(),
                            .ranks = FEW,
                            .rank = r,
                            .executed = dispatched ? executed : NULL,
                            .deadline = 3,
                            .dies = r == VICTIM ? dies : LIVES};
        run_all(jobs, FEW);
        for (int r = 0; r < FEW; r++) {
            cr_expect(strstr(jobs[r].error, r == VICTIM ? "killed" : "rank 2"),
                      "phase %d, rank %d: %s", dies, r, jobs[r].error);
            cr_expect_eq(jobs[r].loss[STEPS - 1], 0, "phase %d, rank %d: it went on", dies, r);
        }
        end(jobs, FEW);
    }
}

Test(cascade_run, a_killed_rank_is_named)
{
    kill_one(false);
}

Test(cascade_run, a_killed_rank_is_named_with_late_dispatch)
{
    kill_one(true);
}

/* Units of one clip that were made from two samples: a rank replaced a sample that it could not
 * decode, and another rank decoded it. */
Test(cascade_run, units_of_two_samples_are_refused)
{
    enum { CLIPS = 2, UNITS = 3, FLOATS = 5 };
    const int64_t large = ((int64_t)1 << 53) + 1; /* neither f32 nor f64 has this integer */
    const weft_cascade_row row = {.units = UNITS, .floats = FLOATS};
    unsigned char data[CLIPS * UNITS * (sizeof(int64_t) + FLOATS * sizeof(float))] = {0};
    weft_received_latents received = {.rows = {data, UNITS, FLOATS}, .read = {1, 2}};
    int64_t sample = 0;
    cr_assert_eq(CLIPS * UNITS * weft_latent_unit_bytes(&row), (int64_t)sizeof data);
    for (int64_t c = 0; c < CLIPS; c++)
        for (int64_t u = 0; u < UNITS; u++)
            weft_latent_rows_set_sample(&received.rows, c, u, large + c);
    for (int64_t c = 0; c < CLIPS; c++)
        for (int64_t u = 0; u < UNITS; u++)
            for (int64_t i = 0; i < FLOATS; i++)
                weft_latent_rows_unit(&received.rows, c, u)[i] = -1;
    for (int64_t c = 0; c < CLIPS; c++) {
        cr_expect_eq(weft_received_latents_sample(&received, c, &sample), WEFT_OK);
        cr_expect_eq(sample, large + c);
    }
    weft_latent_rows_set_sample(&received.rows, 1, 0, 7); /* not read */
    cr_expect_eq(weft_received_latents_sample(&received, 1, &sample), WEFT_OK);
    weft_latent_rows_set_sample(&received.rows, 1, 2, large);
    cr_expect_eq(weft_received_latents_sample(&received, 1, &sample), WEFT_E_IO);
    cr_expect_eq(weft_error_class(), WEFT_MSG_FILE_IO);
    cr_expect_eq(weft_received_latents_sample(&received, 0, &sample), WEFT_OK);
}
