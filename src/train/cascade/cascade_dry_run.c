#include "train/cascade_dry.h"

#include "kernel/virtual/virtual.h"
#include "train/cascade_train.h"
#include "train/layout_price.h"
#include "train/run_memory.h"

typedef struct dry {
    const weft_run *run;
    const char *path;
    weft_run_models models;
    weft_place_of_run place;
    weft_store *store; /* of tensors without values */
    weft_spelling spelling;
    int iterations;
    int64_t process;
    weft_buf *svg, *out;
} dry;

static weft_status ranks_of(const weft_run *run, int *ranks)
{
    weft_cluster cluster;
    char name[512];
    weft_arena *arena = weft_arena_create();
    if (*ranks || !arena) {
        weft_arena_free(arena);
        return *ranks ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    }
    const weft_status_code status = weft_cascade_cluster(arena, run, &cluster, name);
    if (status == WEFT_OK)
        *ranks = (int)weft_cluster_devices(&cluster);
    weft_arena_free(arena);
    return status;
}

/* The stage's batches by their sizes in pixels, in the order of a run from pixels. */
static weft_status open_loader(const dry *d, const weft_stage *stage, int64_t index,
                               weft_loader **loader)
{
    const weft_run_data *data = &d->run->data;
    const int buckets = weft_stage_bucket_count(stage);
    weft_bucket *size = weft_alloc((buckets + 1) * (int64_t)sizeof *size);
    weft_item_range *own = weft_alloc((buckets + 1) * (int64_t)sizeof *own);
    bool *image = weft_alloc(buckets + 1);
    weft_status_code status =
        size && own && image ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int i = 0; i < buckets && status == WEFT_OK; i++) {
        size[i] = *weft_stage_bucket(stage, i);
        image[i] = size[i].frames == 1;
    }
    const weft_loader_config config = {
        .shards = data->path,
        .split = data->split[0] ? data->split : NULL,
        .buckets = {buckets, size},
        .own = own,
        .fps = data->fps,
        .threads = 1,
        .prefetch = 1,
        .seed = (int64_t)(weft_seed_mix((uint64_t)d->run->seed, (uint64_t)index) >> 1),
        .image = stage->images >= 0 ? image : NULL,
        .images = stage->images,
        .shuffle = data->samples_from == WEFT_FROM_PIXELS ? data->shuffle : 0,
        .verify = data->verify};
    if (status == WEFT_OK)
        status = weft_loader_open(&config, 0, 1, NULL, 0, loader);
    weft_free(size);
    weft_free(own);
    weft_free(image);
    return status;
}

static weft_status plan_stage(dry *d, int64_t index)
{
    const weft_stage *stage = (const weft_stage *)d->run->stages.item + index;
    weft_cascade_train *train = NULL;
    weft_loader *loader = NULL;
    const weft_cascade_train_setup setup = {.run = d->run,
                                            .path = d->path,
                                            .models = &d->models,
                                            .place = &d->place,
                                            .store = d->store,
                                            .spelling = &d->spelling,
                                            .stage = index};
    weft_status_code status = weft_cascade_train_open(&setup, &train);
    if (status == WEFT_OK)
        status = open_loader(d, stage, index, &loader);
    if (status == WEFT_OK)
        status = weft_cascade_train_foresee(train, loader,
                                            d->process + weft_store_bytes(d->store) +
                                                weft_run_first_use(d->run, NULL),
                                            d->iterations, index ? NULL : d->svg, d->out);
    weft_loader_close(loader);
    weft_cascade_train_free(train);
    return status;
}

static weft_status plan_all(dry *d, int ranks)
{
    const weft_run *run = d->run;
    WEFT_TRY(weft_run_check(run, d->path));
    if (!weft_run_cascades(run))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: --dry-run prints plans of parallel.cascades, and the run has none; "
                         "`weft inspect graph %s` tells what it takes, `weft plan layout --for %s` "
                         "how it may be laid out",
                         d->path, d->path, d->path);
    WEFT_TRY(ranks_of(run, &ranks));
    WEFT_TRY(weft_cascades_check(&run->cascades, &run->parallel, ranks, d->path));
    WEFT_TRY(weft_run_models_read(run, d->path, &d->models));
    d->process = weft_memory_resident();
    d->place = weft_place_by(run, &d->models);
    WEFT_TRY(weft_parallel_mesh(&run->parallel, ranks, d->path, &d->place.mesh));
    WEFT_TRY(weft_comm_open_fake_alone(ranks, 0, &d->place.comm));
    d->store = weft_store_create_on(&weft_device_virtual);
    if (!d->store)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < run->stages.count; i++)
        WEFT_TRY(plan_stage(d, i));
    return weft_buf_check(d->out);
}

weft_status weft_cascade_dry_run(const weft_run *run, const char *path, int ranks, int iterations,
                                 weft_buf *svg, weft_buf *out)
{
    dry d = {.run = run, .path = path, .iterations = iterations, .svg = svg, .out = out};
    const weft_status_code status = plan_all(&d, ranks);
    weft_store_free(d.store);
    weft_comm_free(d.place.comm);
    return status;
}
