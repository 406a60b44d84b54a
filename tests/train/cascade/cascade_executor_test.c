/* Random iterations of cascades on 2 to 8 ranks, as threads, compared with one rank that trains the
 * same samples in sequence with the steps of `weft train` (train_step.h). Groups are nested,
 * disjoint and overlapping.
 *
 *   close    loss, every gradient and, after 10 iterations, all weights, to 1e-5 of one rank: the
 *            order of summation differs
 *   bitwise  the same plans again; the replay of the plan that late dispatch executed
 *   equal    transferred bytes are the minimum, counted here unit by unit; units without tokens of
 *            a rank have other values there */
#include "cascade_jobs.h"

#include "base/rng.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"
#include "kernel/cpu/table.h"

#include <criterion/criterion.h>
#include <math.h>

/* ---- one rank, sample after sample ----------------------------------------------------------- */

static weft_status make_alone(cascade_job *j, weft_step *work, weft_step *last)
{
    weft_exec_config place = {.backend = &weft_backend_cpu, .kind = WEFT_STEP_GRADIENTS};
    const weft_graph *graph[BUCKETS];
    for (int b = 0; b < BUCKETS; b++) {
        weft_graph *g;
        WEFT_TRY(cascade_graph_make(j->model, b, &g));
        WEFT_TRY(weft_step_make(g, &cascade_adamw, &place, j->store, 7, &work[b]));
        graph[b] = work[b].graph;
    }
    place.kind = WEFT_STEP_UPDATE;
    return weft_step_make(weft_optimizer_update(graph, BUCKETS, &cascade_adamw), &cascade_adamw,
                          &place, j->store, 7, last);
}

static weft_status train_alone(cascade_job *j)
{
    static const weft_received_latents none[WEFT_CASCADE_MODULES];
    weft_step work[BUCKETS] = {0}, last = {0};
    weft_status_code status = make_alone(j, work, &last);
    if (status == WEFT_OK)
        cr_assert_eq(weft_step_begin_averages(j->store), WEFT_OK);
    for (int i = 0; i < STEPS && status == WEFT_OK; i++) {
        const weft_placed_iteration *p = &j->plan[i].all;
        for (int32_t c = 0; c < p->cascades && status == WEFT_OK; c++) {
            const weft_placed_sample *s = &p->sample[p->cascade[c].sample];
            if (p->cascade[c].module != WEFT_CASCADE_DIT)
                continue;
            WEFT_TRY(cascade_fill(NULL, p, c, &work[s->bucket], none));
            cascade_set(&work[s->bucket], "optimizer.weight", s->weight);
            status = weft_program_run(work[s->bucket].program);
        }
        if (status == WEFT_OK)
            status = cascade_update(j, &last, i);
    }
    for (int b = 0; b < BUCKETS; b++)
        weft_step_free(&work[b]);
    weft_step_free(&last);
    return status;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* The gradient with the largest error: the error of the sum over ranks, relative to the norm. A
 * single element may have a larger relative error, because its backward cancels. */
static double gradient_distance(const cascade_job *many, int ranks, int step, weft_store *whole,
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
                sum += many[r].zero > 0
                           ? term
                           : term / ranks; /* else each rank has the complete gradient */
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

static bool same_bits(const cascade_job *a, const cascade_job *b)
{
    for (int64_t t = 0; t < weft_store_count(a->store); t++) {
        const weft_tensor *x = weft_store_at(a->store, t), *y = weft_store_find(b->store, x->name);
        if (memcmp(x->data, y->data, (size_t)weft_shape_count(&x->shape) * sizeof(float)))
            return false;
    }
    return !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm);
}

/* The rank that encodes this unit of a clip. */
static int maker_of(const weft_placed_cascade *from, int bucket_of, int64_t clips, int64_t clip,
                    int64_t unit)
{
    const weft_cascade_row row = cascade_row_of(NULL, bucket_of, from->module);
    int rank = -1;
    for (int64_t m = 0; m < from->at.degree; m++) {
        const weft_cascade_share s = weft_cascade_share_of(&row, clips, from->at.degree, m);
        if (clip >= s.clips.first && clip < s.clips.first + s.clips.count &&
            unit >= s.units.first && unit < s.units.first + s.units.count)
            rank = from->at.device[m];
    }
    return rank;
}

/* Whether tokens of this part are in the unit (a frame). A part without tokens reads the first. */
static bool reads_unit(int bucket_of, int64_t parts, int64_t part, int64_t unit)
{
    const weft_bucket *b = &cascade_bucket[bucket_of];
    const weft_item_range read =
        weft_latent_units_read(b->frames, b->height * b->width, parts, part);
    return unit >= read.first && unit < read.first + read.count;
}

/* The minimum of transferred bytes: units with tokens of a rank that another rank encoded. */
static int64_t least_bytes(const cascade_plan *p, int rank, int64_t *in_place)
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
                    const weft_cascade_row row = cascade_row_of(NULL, s->bucket, from->module);
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

static void compare_handed(const cascade_job *many, int ranks)
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
    static cascade_plan plan[STEPS];
    static cascade_job many[RANKS], again[RANKS];
    const weft_model model = model_of(cascade_small_model);
    cascade_job alone = {.plan = plan, .model = &model, .store = weft_store_create(), .ranks = 1};
    for (int i = 0; i < STEPS; i++)
        cascade_plan_make(&plan[i], weft_seed_mix(seed, (uint64_t)i), i, ranks);
    cr_assert_eq(train_alone(&alone), WEFT_OK, "%s", weft_error_message());
    cascade_job like = {.plan = plan, .model = &model, .ranks = ranks, .zero = zero};
    cascade_run_ranks(&like, many);
    /* no unused program is kept; the start of the reductions does not change the results */
    like.cache = 1;
    like.late = true;
    cascade_run_ranks(&like, again);
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
    cascade_jobs_end(many, ranks);
    cascade_jobs_end(again, ranks);
    cascade_jobs_end(&alone, 1);
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
    static cascade_plan plan[STEPS], executed[STEPS];
    static cascade_job many[RANKS], again[RANKS];
    const weft_model model = model_of(cascade_small_model);
    cascade_job alone = {.plan = plan, .model = &model, .store = weft_store_create(), .ranks = 1};
    for (int i = 0; i < STEPS; i++) {
        cascade_plan_make(&plan[i], weft_seed_mix(seed, (uint64_t)i), i, ranks);
        plan[i].all.late = i % 5 != 4;
    }
    cr_assert_eq(train_alone(&alone), WEFT_OK, "%s", weft_error_message());
    for (int r = 0; r < ranks; r++)
        many[r] = (cascade_job){.plan = plan,
                                .executed = executed,
                                .model = &model,
                                .store = weft_store_create(),
                                .ranks = ranks,
                                .rank = r,
                                .zero = zero,
                                .deadline = 60};
    cascade_run_all(many, ranks);
    for (int i = 0; i < STEPS; i++)
        cr_assert_eq(weft_placed_check(&executed[i].all, ranks, "executed"), WEFT_OK, "%s",
                     weft_error_message());
    const cascade_job like = {.plan = executed, .model = &model, .ranks = ranks, .zero = zero};
    cascade_run_ranks(&like, again);
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
    cascade_jobs_end(many, ranks);
    cascade_jobs_end(again, ranks);
    cascade_jobs_end(&alone, 1);
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

/* Rank 1 has two denoisers in sequence. Rank 0 has a short one and then encodes a sample of the next
 * step, before which it reduces its gradients. */
static void make_encoder_last(cascade_plan *p, int64_t step)
{
    static const int32_t rank[] = {0, 1, 1, 0};
    static const double start[] = {0, 0, 5, 1}, seconds[] = {1, 5, 5, 30};
    *p = (cascade_plan){.all = {.step = step,
                                .sample = p->sample,
                                .samples = 4,
                                .cascade = p->cascade,
                                .cascades = 4,
                                .makespan = 31,
                                .late = true}};
    for (int s = 0; s < 4; s++) {
        const weft_cascade_module module = s < 3 ? WEFT_CASCADE_DIT : WEFT_CASCADE_VAE;
        p->sample[s] = (weft_placed_sample){.batch = 10 * step + s,
                                            .bucket = s,
                                            .clips = cascade_bucket[s].batch,
                                            .weight = s < 3 ? 1.0 / 3 : 0,
                                            .ahead = s == 3};
        snprintf(p->id[s], sizeof p->id[s], "s%d.%s", s, weft_cascade_module_name(module));
        p->device[s][0] = rank[s];
        p->cascade[s] = (weft_placed_cascade){.at = {.id = p->id[s],
                                                     .device = p->device[s],
                                                     .degree = 1,
                                                     .start = start[s],
                                                     .seconds = seconds[s]},
                                              .sample = s,
                                              .module = module};
    }
    cr_assert_eq(weft_placed_check(&p->all, 2, "encoder"), WEFT_OK, "%s", weft_error_message());
}

/* Reductions that begin before the encoders and reductions after all cascades give bitwise identical
 * results: the executed plans are replayed with the latter. */
Test(cascade_run, reductions_before_encoders_of_the_next_step_change_no_bit)
{
    enum { PAIR = 2 };
    static cascade_plan plan[STEPS], executed[STEPS];
    static cascade_job many[PAIR], again[PAIR];
    const weft_model model = model_of(cascade_small_model);
    for (int i = 0; i < STEPS; i++)
        make_encoder_last(&plan[i], i);
    for (int r = 0; r < PAIR; r++)
        many[r] = (cascade_job){.plan = plan,
                                .executed = executed,
                                .model = &model,
                                .store = weft_store_create(),
                                .ranks = PAIR,
                                .rank = r,
                                .deadline = 60};
    cascade_run_all(many, PAIR);
    const cascade_job like = {.plan = executed, .model = &model, .ranks = PAIR, .late = true};
    cascade_run_ranks(&like, again);
    for (int r = 0; r < PAIR; r++) {
        cr_expect_str_empty(many[r].error, "rank %d: %s", r, many[r].error);
        cr_expect(same_bits(&many[r], &again[r]), "rank %d: other bits", r);
    }
    cascade_jobs_end(many, PAIR);
    cascade_jobs_end(again, PAIR);
}

/* Reductions by representatives: each rank has all reduced gradients before the update. */
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
