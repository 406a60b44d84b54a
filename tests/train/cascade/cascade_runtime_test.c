/* A training stage in cascades, from latents in a shard and captions that the transformer's text
 * encoder encodes. Three ranks have the losses and gradient norms of one (1e-5) and use the same
 * batches of the loader. */
#include "../../ranks_of.h"
#include "train/cascade/cascade_runtime.h"

#include "base/rng.h"
#include "comm/comm_fake.h"
#include "data/loader_report.h"
#include "data/shard_file.h"
#include "exec/execute.h"
#include "format/tensors/npy.h"
#include "storage/storage.h"
#include "train/latents/latent_cache.h"
#include "train/step/stage_programs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, STEPS = 4, SAMPLES = 3, BUCKETS = 2, LONG = 7, SHORT = 5, CHANNELS = 4 };

static const char config[] =
    "out: none\n"
    "autoencoder:\n"
    "  class: AutoencoderKLWan\n"
    "  config: {base_dim: 4, dim_mult: [1, 1, 2, 2], num_res_blocks: 1, z_dim: 4}\n"
    "data: {path: none}\n"
    "transformer:\n"
    "  class: WanTransformer3DModel\n"
    "  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, "
    "freq_dim: 32}\n"
    "text_encoders:\n"
    "  - class: WeftBytesEncoder\n"
    "    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}\n"
    "stages:\n"
    "  - {steps: 4, gradient_accumulation_steps: 3, lr: 1e-3,\n"
    "     buckets: [{batch: 2, frames: 9, height: 32, width: 32},"
    " {batch: 3, frames: 1, height: 32, width: 32}]}\n";

/* ---- latents
 * ----------------------------------------------------------------------------------- */

static weft_status add(weft_shard_file *file, int index, int64_t frames)
{
    const int64_t dim[] = {frames, 4, 4, CHANNELS}, count = frames * 16 * CHANNELS;
    char key[32], caption[32];
    float *x = weft_alloc(count * (int64_t)sizeof *x);
    weft_buf npy = {0};
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)weft_random_normal((uint64_t)index, WEFT_RNG_TEST, (uint64_t)i);
    snprintf(key, sizeof key, "clip-%02d", index);
    snprintf(caption, sizeof caption, "clip number %d", index);
    weft_npy_format(WEFT_F32, 4, dim, x, &npy);
    weft_status_code status = weft_shard_file_add(file, key, WEFT_LATENT_PART, npy.data, npy.len);
    if (status == WEFT_OK)
        status = weft_shard_file_add(file, key, "txt", caption, (int64_t)strlen(caption));
    weft_buf_free(&npy);
    weft_free(x);
    return status;
}

static void write_latents(const char *folder)
{
    weft_storage *storage;
    weft_shard_file *file;
    cr_assert_eq(weft_storage_open(folder, &storage), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_shard_file_create(storage, "train-000000.tar", &file), WEFT_OK);
    for (int i = 0; i < LONG + SHORT; i++)
        cr_assert_eq(add(file, i, i < LONG ? 3 : 1), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_shard_file_finish(file, NULL, NULL), WEFT_OK);
    weft_shard_file_free(file);
    weft_storage_close(storage);
}

static weft_status open_loader(const char *folder, int rank, int ranks, weft_loader **loader)
{
    static const weft_item_range none[BUCKETS];
    weft_bucket bucket[BUCKETS] = {{2, 3, 4, 4}, {3, 1, 4, 4}};
    const weft_loader_config c = {.shards = folder,
                                  .buckets = {BUCKETS, bucket},
                                  .own = none,
                                  .threads = 1,
                                  .prefetch = 1,
                                  .seed = 3,
                                  .caption_dropout = 0.2};
    return weft_loader_open(&c, rank, ranks, WEFT_LATENT_PART, CHANNELS, loader);
}

/* ---- one run
 * ----------------------------------------------------------------------------------- */

typedef struct job {
    const weft_run *run;
    const weft_run_models *models;
    const char *folder;
    weft_comm *comm;
    int ranks;
    double loss[STEPS], norm[STEPS];
} job;

/* One rank has each sample alone. Three ranks: a pair and one, all three, and one. */
static const int32_t group[SAMPLES][RANKS] = {{2, 0}, {1, 2, 0}, {1}};
static const int64_t degree[SAMPLES] = {2, 3, 1};
static const char *const id[SAMPLES] = {"s0.dit", "s1.dit", "s2.dit"};

static weft_status look(weft_loader *loader, int64_t step, int ranks, weft_item (*item)[8],
                        weft_placed_iteration *plan)
{
    static const double weight[BUCKETS] = {3, 1};
    double all = 0;
    plan->step = step;
    plan->samples = plan->cascades = SAMPLES;
    for (int i = 0; i < SAMPLES; i++) {
        weft_placed_sample *s = &plan->sample[i];
        *s = (weft_placed_sample){.batch = step * SAMPLES + i, .item = item[i]};
        WEFT_TRY(weft_loader_peek(loader, i, &s->bucket, item[i], &s->clips));
        all += s->weight = weight[s->bucket] * (double)s->clips;
        plan->cascade[i] =
            (weft_placed_cascade){.at = {.id = id[i],
                                         .device = ranks == 1 ? &group[0][1] : group[i],
                                         .degree = ranks == 1 ? 1 : degree[i],
                                         .start = i},
                                  .sample = i,
                                  .module = WEFT_CASCADE_DIT};
    }
    for (int i = 0; i < SAMPLES; i++)
        plan->sample[i].weight /= all;
    return weft_placed_check(plan, ranks, "by hand");
}

static void set(const weft_step *step, const char *name, double value)
{
    *(float *)weft_program_input(step->program, name)->data = (float)value;
}

static weft_status run_step(job *j, weft_cascade_stage *stage, weft_loader *loader, int i)
{
    weft_placed_sample sample[SAMPLES];
    weft_placed_cascade cascade[SAMPLES];
    weft_cascade_timing of[SAMPLES];
    weft_item item[SAMPLES][8];
    weft_placed_iteration plan = {.sample = sample, .cascade = cascade};
    weft_iteration_done done = {.cascade = of};
    weft_step *update;
    WEFT_TRY(look(loader, i, j->ranks, item, &plan));
    WEFT_TRY(weft_cascade_stage_step(stage, &plan, &done));
    WEFT_TRY(weft_cascade_run_bind_update(weft_cascade_stage_run(stage), &update));
    set(update, "optimizer.lr", 1e-3);
    set(update, "optimizer.step", i + 1);
    set(update, "optimizer.loss_limit", 1e9);
    set(update, "optimizer.norm_limit", 1e9);
    WEFT_TRY(weft_program_run(update->program));
    j->loss[i] = weft_step_scalar(update, "loss");
    j->norm[i] = weft_step_scalar(update, "grad_norm");
    return WEFT_OK;
}

static weft_status_code train(void *user)
{
    job *j = user;
    weft_exec_config place = weft_exec_config_of(j->run, j->models);
    weft_store *store = weft_store_create();
    weft_tokenizer_set spelling = {0};
    weft_cascade_stage *stage = NULL;
    weft_loader *loader = NULL;
    const weft_step *alone;
    weft_status_code status = WEFT_OK;
    place.comm = j->comm;
    if (j->ranks > 1)
        place.mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", j->ranks}}};
    const weft_cascade_stage_setup setup = {.run = j->run,
                                            .models = j->models,
                                            .train_stage = j->run->train_stages.item,
                                            .exec = &place,
                                            .store = store,
                                            .tokenizers = &spelling};
    WEFT_GO(weft_tokenizer_set_open(&j->models->text, &spelling));
    WEFT_GO(weft_cascade_stage_open(&setup, &stage));
    WEFT_GO(weft_cascade_run_alone(weft_cascade_stage_run(stage), 1, &alone));
    cr_assert_eq(alone->weight, 3 * 4 * 4 * CHANNELS,
                 "the number of elements in the mean of a batch's loss");
    cr_assert_eq(weft_cascade_stage_row(stage, 0, WEFT_CASCADE_VAE).floats, 0,
                 "latents are cached");
    WEFT_GO(open_loader(j->folder, weft_comm_rank(j->comm), j->ranks, &loader));
    WEFT_GO(weft_cascade_stage_begin(stage, loader, NULL));
    for (int i = 0; i < STEPS; i++)
        WEFT_GO(run_step(j, stage, loader, i));
    cr_expect_eq(weft_loader_get_report(loader).wanted, 0, "a prefetched item was not used");
out:
    weft_cascade_stage_close(stage);
    weft_loader_close(loader);
    weft_tokenizer_set_close(&spelling);
    weft_store_free(store);
    return status;
}

static void run(const job *like, int ranks, job *jobs)
{
    weft_comm *comm[RANKS];
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = *like;
        jobs[r].comm = comm[r];
        jobs[r].ranks = ranks;
    }
    run_ranks("cascades", ranks, comm, train, jobs, sizeof *jobs);
}

Test(cascade_stage, three_ranks_are_one)
{
    char folder[] = "/tmp/weft_cascade_stage_XXXXXX", command[96];
    weft_arena *arena = weft_arena_create();
    weft_run settings;
    weft_run_models models;
    job one, many[RANKS];
    cr_assert(mkdtemp(folder) != NULL);
    write_latents(folder);
    cr_assert_eq(weft_config_parse(arena, config, sizeof config - 1, "test.yaml", NULL, 0,
                                   &weft_run_section, &settings),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_run_models_read(&settings, "test.yaml", &models), WEFT_OK, "%s",
                 weft_error_message());
    const job like = {.run = &settings, .models = &models, .folder = folder};
    run(&like, 1, &one);
    run(&like, RANKS, many);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < STEPS; i++) {
            cr_expect(fabs(many[r].loss[i] - one.loss[i]) <= 1e-5 * one.loss[i],
                      "rank %d, step %d: loss %.9g, not %.9g", r, i, many[r].loss[i], one.loss[i]);
            cr_expect(fabs(many[r].norm[i] - one.norm[i]) <= 1e-5 * one.norm[i],
                      "rank %d, step %d: norm %.9g, not %.9g", r, i, many[r].norm[i], one.norm[i]);
            cr_expect(!i || one.loss[i] != one.loss[i - 1]);
        }
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    weft_arena_free(arena);
}
