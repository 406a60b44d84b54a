#include "train/cascade/cascade_dry_run.h"

#include "comm/comm_fake.h"
#include "estimate/training/layout_estimate.h"
#include "kernel/virtual/virtual.h"
#include "train/cascade/cascade_trainer.h"
#include "train/estimate/process_memory.h"

typedef struct dry {
    const weft_run *run;
    const char *path;
    weft_run_models models;
    weft_exec_config exec;
    weft_store *store; /* tensors without values */
    weft_tokenizer_set tokenizers;
    weft_arena *arena;
    weft_cluster cluster;
    char cluster_name[512];
    int iterations;
    weft_process_memory process;
    weft_progress progress; /* counts iterations */
    weft_buf *svg, *out;
} dry;

/* Opens a loader of the stage's batches by pixel size, in the order of a run with samples_from:
 * pixels. */
static weft_status open_loader(const dry *d, const weft_train_stage *train_stage, int64_t index,
                               weft_loader **loader)
{
    const weft_run_data *data = &d->run->data;
    const int buckets = weft_train_stage_bucket_count(train_stage);
    weft_bucket *size = weft_calloc(buckets + 1, sizeof *size);
    weft_item_range *own = weft_calloc(buckets + 1, sizeof *own);
    bool *image = weft_alloc(buckets + 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(size && own && image, "the dry run"));
    for (int i = 0; i < buckets; i++) {
        size[i] = *weft_train_stage_bucket(train_stage, i);
        image[i] = size[i].frames == 1;
    }
    const weft_loader_config config = {
        .shards = data->path,
        .split = data->split[0] ? data->split : NULL,
        .sources = data->sources,
        .blend = data->blend,
        .buckets = {buckets, size},
        .own = own,
        .clip_seconds = data->clip_seconds,
        .fps = data->fps,
        .threads = 1,
        .prefetch = 1,
        .seed = (int64_t)(weft_seed_mix((uint64_t)d->run->seed, (uint64_t)index) >> 1),
        .image = train_stage->images >= 0 ? image : NULL,
        .images = train_stage->images,
        .last_images = train_stage->last_images,
        .image_batches =
            train_stage->last_images >= 0 ? train_stage->steps * train_stage->accumulate : 0,
        .shuffle = data->samples_from == WEFT_FROM_PIXELS ? data->shuffle : 0,
        .verify = data->verify};
    WEFT_GO(weft_loader_open(&config, 0, 1, NULL, 0, loader));
out:
    weft_free(size);
    weft_free(own);
    weft_free(image);
    return status;
}

static weft_status plan_train_stage(dry *d, int64_t index)
{
    const weft_train_stage *train_stage =
        (const weft_train_stage *)d->run->train_stages.item + index;
    weft_cascade_train *train = NULL;
    weft_loader *loader = NULL;
    const weft_cascade_train_setup setup = {.run = d->run,
                                            .path = d->path,
                                            .models = &d->models,
                                            .exec = &d->exec,
                                            .store = d->store,
                                            .tokenizers = &d->tokenizers,
                                            .train_stage_index = index,
                                            .cluster = &d->cluster,
                                            .cluster_name = d->cluster_name};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_cascade_train_open(&setup, &train));
    WEFT_GO(open_loader(d, train_stage, index, &loader));
    WEFT_GO(weft_cascade_train_estimate(
        train, loader, weft_process_memory_sum(d->process) + weft_store_bytes(d->store),
        d->iterations, &d->progress, index ? NULL : d->svg, d->out));
out:
    weft_loader_close(loader);
    weft_cascade_train_free(train);
    return status;
}

static weft_status plan_all(dry *d, int ranks)
{
    const weft_run *run = d->run;
    WEFT_TRY(weft_run_check(run, d->path));
    if (!weft_run_cascades(run))
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = d->path, .key = "parallel.cascades"),
                          "--dry-run prints plans of parallel.cascades, which this run does not "
                          "have; `weft inspect graph %s` prints the memory and operations of the "
                          "model, `weft plan layout --run-config %s` plans a layout",
                          d->path, d->path);
    d->arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(d->arena, "the dry run"));
    WEFT_TRY(weft_cascade_cluster(d->arena, run, d->path, &d->cluster, d->cluster_name));
    ranks = ranks ? ranks : (int)weft_cluster_devices(&d->cluster);
    WEFT_TRY(weft_cascades_check(&run->cascades, &run->parallel, ranks, d->path));
    WEFT_TRY(weft_run_models_read(run, d->path, &d->models));
    WEFT_TRY(weft_process_memory_measure(run, NULL, ranks, &d->process));
    d->exec = weft_exec_config_of(run, &d->models);
    WEFT_TRY(weft_parallel_mesh(&run->parallel, ranks, d->path, &d->exec.mesh));
    WEFT_TRY(weft_comm_open_single(ranks, 0, &d->exec.comm));
    d->store = weft_store_create_on(&weft_device_virtual);
    WEFT_TRY(WEFT_ALLOCATED(d->store, "the dry run"));
    const int64_t iterations = run->train_stages.count * d->iterations;
    weft_progress_begin_late(&d->progress, "dry run", iterations);
    for (int64_t i = 0; i < run->train_stages.count; i++)
        WEFT_TRY(plan_train_stage(d, i));
    weft_progress_end(&d->progress, iterations, "iterations");
    return weft_buf_check(d->out);
}

weft_status weft_cascade_dry_run(const weft_run *run, const char *path, int ranks, int iterations,
                                 weft_buf *svg, weft_buf *out)
{
    dry d = {.run = run, .path = path, .iterations = iterations, .svg = svg, .out = out};
    const weft_status_code status = plan_all(&d, ranks);
    weft_store_free(d.store);
    weft_comm_free(d.exec.comm);
    weft_arena_free(d.arena);
    return status;
}
