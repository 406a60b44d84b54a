/* Cascades that depend on other cascades, and killed ranks.
 *
 *   order    executed times, on clocks that differ by rank
 *   killed   all other ranks exit and name the killed rank
 *   covers   the smallest set of representatives
 *   units    a clip that was encoded from two samples is refused */
#include "cascade_jobs.h"

#include "base/rng.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* The smallest sets, found by trying all sets. */
Test(cascade_run, no_set_of_representatives_is_smaller)
{
    for (int trial = 0; trial < 200; trial++) {
        cascade_plan p;
        weft_rank_cover cover;
        const int ranks = 2 + trial % (RANKS - 1);
        int least = ranks;
        cascade_plan_make(&p, (uint64_t)(1000 + trial), 0, ranks);
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
static void make_ordered(cascade_plan *p, int64_t step)
{
    static const int32_t rank[] = {0, 1};
    *p = (cascade_plan){.all = {.step = step, .sample = p->sample, .cascade = p->cascade}};
    for (int s = 0; s < 3; s++) {
        const int32_t vae = (int32_t)p->all.cascades, dit = vae + 1;
        p->sample[s] = (weft_placed_sample){.batch = 10 * step + s,
                                            .bucket = 1,
                                            .clips = cascade_bucket[1].batch,
                                            .weight = 1.0 / 3};
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
    static cascade_plan plan[STEPS];
    const weft_model model = model_of(cascade_small_model);
    cascade_ticks shared = {0};
    cascade_job jobs[PAIR];
    for (int i = 0; i < STEPS; i++)
        make_ordered(&plan[i], i);
    for (int r = 0; r < PAIR; r++)
        jobs[r] = (cascade_job){.ticks = &shared,
                                .plan = plan,
                                .model = &model,
                                .store = weft_store_create(),
                                .ranks = PAIR,
                                .rank = r,
                                .deadline = 60};
    cascade_run_all(jobs, PAIR);
    for (int r = 0; r < PAIR; r++)
        cr_expect_str_empty(jobs[r].error, "rank %d: %s", r, jobs[r].error);
    cascade_jobs_end(jobs, PAIR);
}

/* Whenever a rank dies, all others end and name it. No timeout ends them: one that a slow machine
 * exceeds could name a rank that lives. */
static void kill_one(bool dispatched)
{
    static cascade_plan plan[STEPS], executed[STEPS];
    const weft_model model = model_of(cascade_small_model);
    for (int dies = LIVES + 1; dies < PHASES; dies++) {
        enum { FEW = 4, VICTIM = 2 };
        cascade_job jobs[FEW];
        for (int i = 0; i < STEPS; i++)
            cascade_plan_make(&plan[i], weft_seed_mix(9, (uint64_t)i), i, FEW);
        for (int i = 0; i < STEPS; i++)
            plan[i].all.late = dispatched;
        for (int r = 0; r < FEW; r++)
            jobs[r] = (cascade_job){.plan = plan,
                                    .model = &model,
                                    .store = weft_store_create(),
                                    .ranks = FEW,
                                    .rank = r,
                                    .executed = dispatched ? executed : NULL,
                                    .deadline = 1e9,
                                    .dies = r == VICTIM ? dies : LIVES};
        cascade_run_all(jobs, FEW);
        for (int r = 0; r < FEW; r++) {
            cr_expect(strstr(jobs[r].error, r == VICTIM ? "killed" : "rank 2"),
                      "phase %d, rank %d: %s", dies, r, jobs[r].error);
            cr_expect_eq(jobs[r].loss[STEPS - 1], 0, "phase %d, rank %d: the rank continued", dies,
                         r);
        }
        cascade_jobs_end(jobs, FEW);
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
