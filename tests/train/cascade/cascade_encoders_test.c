/* Clips of an encoder cascade, split over the ranks of its group.
 *
 *   equal    one member encodes each unit of each clip, and the largest share is that of the best
 *            of all assignments and cuts of the clips
 *   close    latents of parts on 2, 3 and 5 ranks are those of one rank to 1e-5: kernels use other
 *            algorithms for fewer frames
 *   bitwise  the repeated run
 *   a killed rank is named by the ranks that wait for it */
#include "train/cascade/cascade_encoders.h"

#include "../../model_of.h"
#include "base/rng.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "kernel/cpu/table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { RANKS = 5 };

/* ---- shares
 * ------------------------------------------------------------------------------------ */

static int64_t best(int64_t pieces, int64_t clips, int64_t degree)
{
    int64_t least = INT64_MAX;
    for (int64_t g = 1; g <= clips; g++)
        for (int64_t t = 1; t <= pieces && g * t <= degree; t++) {
            const int64_t work = ((clips + g - 1) / g) * ((pieces + t - 1) / t);
            least = work < least ? work : least;
        }
    return least;
}

static void check_shares(const weft_cascade_row *row, int64_t clips, int64_t degree)
{
    int made[8][32] = {{0}};
    const int64_t pieces = row->piece && row->units > row->piece ? row->units / row->piece : 1;
    int64_t most = 0;
    for (int64_t m = 0; m < degree; m++) {
        const weft_cascade_share s = weft_cascade_share_of(row, clips, degree, m);
        for (int64_t c = 0; c < s.clips.count; c++)
            for (int64_t u = 0; u < s.units.count; u++)
                made[s.clips.first + c][s.units.first + u]++;
        cr_assert(!s.clips.count || s.units.count > 0,
                  "%" PRId64 " units, %" PRId64 " clips, member %" PRId64 " of %" PRId64,
                  row->units, clips, m, degree);
        if (s.clips.count && row->piece) /* at borders of pieces */
            cr_assert_eq((row->units - s.units.first - s.units.count) % row->piece, 0);
        const int64_t own =
            s.clips.count * (pieces == 1 ? 1 : (s.units.count + row->piece - 1) / row->piece);
        most = own > most ? own : most;
    }
    for (int64_t c = 0; c < clips; c++)
        for (int64_t u = 0; u < row->units; u++)
            cr_assert_eq(made[c][u], 1,
                         "%" PRId64 " units in pieces of %" PRId64 ", %" PRId64
                         " clips, degree %" PRId64,
                         row->units, row->piece, clips, degree);
    /* the first chunk may be longer than the others by the remainder */
    cr_assert(most <= best(pieces, clips, degree) + (row->piece > 1) * clips);
}

Test(cascade_encode, every_unit_is_made_once_and_the_work_is_even)
{
    for (int64_t piece = 0; piece <= 2; piece++)
        for (int64_t units = 1; units <= 9; units++)
            for (int64_t clips = 1; clips <= 5; clips++)
                for (int64_t degree = 1; degree <= 9; degree++)
                    check_shares(&(weft_cascade_row){units, 1, piece}, clips, degree);
}

/* ---- latents
 * ----------------------------------------------------------------------------------- */

typedef struct setup {
    const char *config;
    int64_t latents, height, width; /* latent frames; pixels */
} setup;

/* clang-format off */
static const setup setups[] = {
    {"{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"z_dim\":2,\"dim_mult\":[1,2,2],"
     "\"num_res_blocks\":1,\"temperal_downsample\":[true,true]}", 5, 8, 12},
    {"{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"z_dim\":2,\"dim_mult\":[1,2,2],"
     "\"num_res_blocks\":2,\"temperal_downsample\":[false,true]}", 2, 8, 12},
    {"{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":2,\"decoder_base_dim\":3,\"z_dim\":2,"
     "\"dim_mult\":[2,2,2],\"num_res_blocks\":1,\"temperal_downsample\":[false,true],"
     "\"is_residual\":true,\"in_channels\":12,\"out_channels\":12,\"patch_size\":2}", 4, 8, 16},
    {"{\"_class_name\":\"AutoencoderKL\",\"block_out_channels\":[2,4],\"norm_num_groups\":2,"
     "\"latent_channels\":2}", 7, 4, 6},
    {"{\"_class_name\":\"AutoencoderKLCogVideoX\",\"block_out_channels\":[2,2,4],"
     "\"norm_num_groups\":2,\"latent_channels\":2,\"layers_per_block\":1}", 7, 4, 8},
};
/* clang-format on */

typedef struct job {
    const setup *s;
    weft_comm *comm; /* NULL: one rank */
    int ranks, rank;
    bool dies;      /* before it runs */
    float *latents; /* of all units; its own are filled */
    int64_t floats; /* of a unit */
    weft_cascade_share share;
    char error[400];
} job;

static weft_bucket bucket_of(const job *j, const weft_model *model)
{
    const weft_grid grid = weft_model_grid(model);
    return (weft_bucket){1, weft_grid_frames(&grid, j->s->latents), j->s->height, j->s->width};
}

/* This rank's frames: a function of the pixel in the complete clip. */
static void fill(const job *j, const weft_model *model, weft_tensor *video)
{
    const weft_grid grid = weft_model_grid(model);
    const weft_item_range frames = weft_encoder_frames(&grid, j->share.units);
    const int64_t count = weft_shape_count(&video->shape), frame = count / frames.count;
    for (int64_t i = 0; i < count; i++)
        ((float *)video->data)[i] =
            (float)(0.5 *
                    weft_random_normal(7, WEFT_RNG_TEST, (uint64_t)(frames.first * frame + i)));
}

static weft_status encode(job *j)
{
    const weft_model model = model_of(j->s->config);
    const weft_grid grid = weft_model_grid(&model);
    const weft_bucket bucket = bucket_of(j, &model);
    const weft_cascade_row row = {j->s->latents, 1, grid.piece};
    weft_exec_config place = {.backend = &weft_backend_cpu};
    weft_store *store = weft_store_create();
    weft_group *group = NULL;
    weft_step step = {0};
    int member[RANKS];
    weft_status_code status = WEFT_OK;
    j->share = weft_cascade_share_of(&row, 1, j->ranks, j->rank);
    for (int r = 0; r < RANKS; r++)
        member[r] = r;
    if (j->share.clips.count && j->share.parts > 1)
        WEFT_GO(weft_comm_group(j->comm, member, j->share.parts, &group));
    if (!j->share.clips.count)
        goto out;
    weft_encoder_part_setup(&place, j->share.part, j->share.parts);
    WEFT_GO(weft_step_plan(weft_encoder_part(&model, &bucket, &j->share), NULL, &place, &step));
    WEFT_GO(weft_store_init(store, step.graph, 5));
    WEFT_GO(weft_program_bind(step.program, store, group));
    fill(j, &model, weft_program_input(step.program, "batch.video"));
    if (j->dies) {
        weft_comm_fake_kill(j->comm);
        WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "killed"));
    }
    WEFT_GO(weft_program_run(step.program));
    const weft_tensor *out = weft_program_output(step.program, "latents");
    const int64_t count = weft_shape_count(&out->shape);
    j->floats = count / j->share.units.count;
    j->latents = weft_alloc(j->s->latents * j->floats * (int64_t)sizeof *j->latents);
    memcpy(j->latents + j->share.units.first * j->floats, out->data,
           (size_t)count * sizeof *j->latents);
out:
    weft_step_free(&step);
    weft_store_free(store);
    return status;
}

static void *run_rank(void *user)
{
    job *j = user;
    if (encode(j) != WEFT_OK)
        snprintf(j->error, sizeof j->error, "%s", weft_error_message());
    return NULL;
}

static void run(const setup *s, int ranks, int victim, job *jobs)
{
    weft_comm *comm[RANKS];
    pthread_t thread[RANKS];
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job){.s = s, .comm = comm[r], .ranks = ranks, .rank = r, .dies = r == victim};
        weft_comm_set_deadline(comm[r], 1e9); /* no timeout: only the death ends the others */
        pthread_create(&thread[r], NULL, run_rank, &jobs[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++)
        weft_comm_free(comm[r]);
}

static double distance(const job *one, const job *many, int ranks, int64_t *units)
{
    double off = 0, norm = 0;
    for (int r = 0; r < ranks; r++) {
        const weft_item_range own = many[r].share.units;
        if (!many[r].share.clips.count)
            continue;
        cr_assert_eq(many[r].floats, one->floats);
        *units += own.count;
        for (int64_t i = own.first * one->floats; i < (own.first + own.count) * one->floats; i++) {
            off += pow((double)many[r].latents[i] - (double)one->latents[i], 2);
            norm += pow((double)one->latents[i], 2);
        }
    }
    return sqrt(off / norm);
}

static void drop(job *jobs, int ranks)
{
    for (int r = 0; r < ranks; r++)
        weft_free(jobs[r].latents);
}

static void check(const setup *s, int ranks)
{
    job one = {.s = s, .ranks = 1}, many[RANKS], again[RANKS];
    int64_t units = 0;
    run_rank(&one);
    cr_assert_str_empty(one.error, "%s", one.error);
    run(s, ranks, -1, many);
    run(s, ranks, -1, again);
    for (int r = 0; r < ranks; r++) {
        const weft_item_range own = many[r].share.units;
        cr_assert_str_empty(many[r].error, "%.40s: rank %d of %d: %s", s->config + 16, r, ranks,
                            many[r].error);
        cr_expect(!many[r].latents || !memcmp(many[r].latents + own.first * one.floats,
                                              again[r].latents + own.first * one.floats,
                                              (size_t)(own.count * one.floats) * sizeof(float)),
                  "rank %d of %d: other bits the second time", r, ranks);
    }
    const double off = distance(&one, many, ranks, &units);
    cr_expect_eq(units, s->latents);
    cr_expect(off <= 1e-5, "%.40s on %d ranks: latents are off by %g", s->config + 16, ranks, off);
    cr_expect(many[0].share.parts > 1);
    drop(&one, 1);
    drop(many, ranks);
    drop(again, ranks);
}

Test(cascade_encode, parts_are_the_whole)
{
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        check(&setups[i], 2);
        check(&setups[i], 3);
        check(&setups[i], 5);
    }
}

Test(cascade_encode, a_rank_that_dies_is_named)
{
    job jobs[RANKS];
    run(&setups[0], 3, 1, jobs);
    cr_expect(strstr(jobs[1].error, "killed"), "%s", jobs[1].error);
    cr_expect(strstr(jobs[2].error, "rank 1"), "%s", jobs[2].error);
    drop(jobs, 3);
}
