/* Runs jobs of cascades on threads. */
#include "cascade_jobs.h"

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
#include <stdio.h>

const weft_bucket cascade_bucket[BUCKETS] = {
    {2, 3, 5, 7}, {1, 2, 3, 4}, {3, 1, 4, 5}, {4, 2, 2, 3}};

const char cascade_small_model[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":5,"
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8,"
    "\"ffn_dim\":22,\"num_layers\":2,\"patch_size\":[1,1,1],\"rope_max_seq_len\":16}";

weft_status cascade_graph_make(const weft_model *model, int b, weft_graph **out)
{
    weft_graph *g = weft_graph_create();
    const weft_bucket *s = &cascade_bucket[b];
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

/* ---- data: a function of the sample and the element ------------------------------------------ */

static const char *const names[] = {"batch.latents", "batch.timestep", "batch.text",
                                    "batch.target"};

static int64_t row_floats(int b, int input)
{
    const weft_bucket *s = &cascade_bucket[b];
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

weft_status cascade_fill(void *user, const weft_placed_iteration *plan, int32_t index,
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

/* Latent frames are encoded separately, except for the last bucket, which is encoded at once. */
weft_cascade_row cascade_row_of(void *user, int b, weft_cascade_module module)
{
    const bool vae = module == WEFT_CASCADE_VAE;
    const int64_t units = vae ? cascade_bucket[b].frames : 1;
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
    const weft_cascade_row row = cascade_row_of(user, s->bucket, c->module);
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

/* ---- random plans ---------------------------------------------------------------------------- */

static int draw(uint64_t *seed, int below)
{
    *seed = weft_seed_mix(*seed, 1);
    return (int)(*seed >> 33) % below;
}

static weft_placed_cascade *add(cascade_plan *p, uint64_t *seed, int sample,
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

void cascade_plan_make(cascade_plan *p, uint64_t seed, int64_t step, int ranks)
{
    double all = 0;
    *p = (cascade_plan){.all = {.step = step, .sample = p->sample, .cascade = p->cascade}};
    p->all.samples = 3 + draw(&seed, SAMPLES - 2);
    for (int s = 0; s < p->all.samples; s++) {
        const int b = draw(&seed, BUCKETS);
        p->sample[s] = (weft_placed_sample){.batch = 100 * step + s,
                                            .bucket = b,
                                            .clips = cascade_bucket[b].batch,
                                            .weight = 1 + s};
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

/* ---- one run --------------------------------------------------------------------------------- */

const weft_optimizer_config cascade_adamw = {.beta1 = 0.9,
                                             .beta2 = 0.99,
                                             .eps =
                                                 1e-3, /* else a step hides the gradient's size */
                                             .weight_decay = 0.01,
                                             .clip_norm = 0.5,
                                             .ema_decay = 0.9};

void cascade_set(const weft_step *step, const char *name, double value)
{
    *(float *)weft_program_input(step->program, name)->data = (float)value;
}

static weft_status keep_gradients(cascade_job *j, int step)
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

weft_status cascade_update(cascade_job *j, const weft_step *step, int i)
{
    WEFT_TRY(keep_gradients(j, i));
    cascade_set(step, "optimizer.lr", 1e-3);
    cascade_set(step, "optimizer.step", i + 1);
    cascade_set(step, "optimizer.loss_limit", 1e9);
    cascade_set(step, "optimizer.norm_limit", 1e9);
    WEFT_TRY(weft_program_run(step->program));
    j->loss[i] = weft_step_scalar(step, "loss");
    j->norm[i] = weft_step_scalar(step, "grad_norm");
    return WEFT_OK;
}

static weft_status die_at(cascade_job *j, int phase)
{
    if (j->dies != phase)
        return WEFT_OK;
    weft_comm_fake_kill(j->comm);
    return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "killed");
}

static weft_status make_graph(void *user, int b, weft_graph **out)
{
    return cascade_graph_make(((const cascade_job *)user)->model, b, out);
}

static weft_status fill_or_die(void *user, const weft_placed_iteration *plan, int32_t index,
                               const weft_step *step,
                               const weft_received_latents handed[WEFT_CASCADE_MODULES])
{
    WEFT_TRY(die_at(user, DIES_AT_INPUTS));
    return cascade_fill(user, plan, index, step, handed);
}

static weft_status encode_or_die(void *user, const weft_placed_iteration *plan, int32_t index,
                                 const weft_cascade_share *share, weft_group *group,
                                 const weft_latent_rows *rows)
{
    cascade_job *j = user;
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
    cascade_job *j = user;
    return (double)atomic_fetch_add(&j->ticks->now, 1) + 5e7 * j->rank;
}

/* The rank that does not encode is late. */
static void wait_encoded(cascade_job *j, int step)
{
    while (j->ticks && j->rank && step && atomic_load(&j->ticks->encoded) <= step)
        sched_yield();
}

/* No cascade begins before the end of the cascades that it reads, within the clock's error. */
static weft_status check_order(cascade_job *j, const weft_cascade_run *run,
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
                      "step %" PRId64 ": %s begins at %g, its inputs are complete at %g",
                      plan->step, at->id, e.start[c], e.end[at->after[a]]);
    }
    weft_iteration_timing_free(&e);
    return WEFT_OK;
}

static void keep_plan(const cascade_plan *planned, const weft_placed_iteration *executed,
                      cascade_plan *out)
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

static weft_status run_cascades(cascade_job *j, const weft_exec_config *place)
{
    int64_t clips[BUCKETS];
    for (int b = 0; b < BUCKETS; b++)
        clips[b] = cascade_bucket[b].batch;
    const weft_cascade_setup setup = {
        .comm = j->comm,
        .store = j->store,
        .exec = place,
        .optimizer = &cascade_adamw,
        .context = WEFT_SP_ULYSSES,
        .representative = j->zero < 0,
        .late_reduce = j->late,
        .late_dispatch = j->executed != NULL,
        .seed = 7,
        .buckets = BUCKETS,
        .clips = clips,
        .cache_bytes = j->cache,
        .clock = {j->ticks ? tick : NULL, j},
        .calls = {j, make_graph, fill_or_die, cascade_row_of, encode_or_die}};
    weft_cascade_timing cascade[3 * SAMPLES];
    weft_iteration_done done = {.cascade = cascade};
    weft_cascade_run *run;
    weft_step *step;
    WEFT_TRY(weft_cascade_run_create(&setup, &run));
    cr_assert_eq(weft_step_begin_averages(j->store), WEFT_OK);
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
            status = cascade_update(j, step, i);
    }
    j->counts = weft_cascade_run_counts(run);
    weft_cascade_run_free(run);
    return status;
}

static weft_status train(cascade_job *j)
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
    cascade_job *j = user;
    if (train(j) != WEFT_OK)
        snprintf(j->error, sizeof j->error, "%s", weft_error_message());
    return NULL;
}

void cascade_run_all(cascade_job *jobs, int ranks)
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

void cascade_run_ranks(const cascade_job *like, cascade_job *jobs)
{
    for (int r = 0; r < like->ranks; r++) {
        jobs[r] = *like;
        jobs[r].store = weft_store_create();
        jobs[r].rank = r;
        jobs[r].deadline = 60;
    }
    cascade_run_all(jobs, like->ranks);
    for (int r = 0; r < like->ranks; r++)
        cr_assert_str_empty(jobs[r].error, "rank %d of %d: %s", r, like->ranks, jobs[r].error);
}

void cascade_jobs_end(cascade_job *jobs, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < STEPS; i++)
            weft_store_free(jobs[r].grad[i]);
        weft_store_free(jobs[r].store);
    }
}
