/* Indexes, storage, order: what opening a set reads and keeps, and what damage between opening and
 * reading costs. */
#include "base/fs.h"
#include "data/dataset.h"
#include "data/loader_items.h"
#include "data/loader_report.h"
#include "data/sample_order.h"
#include "data/shard_file.h"
#include "data/shard_write.h"
#include "format/tar/tar.h"
#include "format/tar/tar_write.h"
#include "format/tensors/npy.h"
#include "video/writer.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/weft-dataset-XXXXXX";

static void setup(void)
{
    cr_assert(mkdtemp(root));
}

static void teardown(void)
{
    (void)!weft_remove_tree(root);
}

static void add(weft_tar_writer *w, int shard, int sample, const char *suffix, const char *text)
{
    char name[64];
    snprintf(name, sizeof name, "s%04d_%04d.%s", shard, sample, suffix);
    cr_assert_eq(weft_tar_add(w, name, text, (int64_t)strlen(text)), WEFT_OK);
}

static const char meta[] = "{\"frames\": 9, \"width\": 64, \"height\": 64, \"fps\": 24}";

/* Samples of three tiny parts. */
static void make_shards(int shards, int samples)
{
    char path[128];
    for (int i = 0; i < shards; i++) {
        weft_tar_writer *w;
        snprintf(path, sizeof path, "%s/train-%06d.tar", root, i);
        cr_assert_eq(weft_tar_create(path, &w), WEFT_OK);
        for (int k = 0; k < samples; k++) {
            add(w, i, k, "json", meta);
            add(w, i, k, "mp4", "no video");
            add(w, i, k, "txt", k % 2 ? "a caption\n" : "");
        }
        cr_assert_eq(weft_tar_finish(w, NULL, NULL), WEFT_OK);
        weft_tar_free(w);
    }
}

static weft_dataset *open_set(void)
{
    weft_dataset *ds;
    cr_assert_eq(weft_dataset_open(root, "train", false, &ds), WEFT_OK, "%s", weft_error_message());
    return ds;
}

static int64_t index_bytes(int shards)
{
    int64_t sum = 0;
    for (int i = 0; i < shards; i++) {
        char path[128];
        struct stat st;
        snprintf(path, sizeof path, "%s/train-%06d.tar.index", root, i);
        cr_assert_eq(stat(path, &st), 0, "%s", path);
        sum += st.st_size;
    }
    return sum;
}

/* If shards have index files, opening reads the indexes only and makes a few allocations per shard.
 * Less than 280 bytes per sample remain allocated, including the lists of a loader. */
Test(dataset, opening_reads_indexes_alone, .init = setup, .fini = teardown)
{
    enum { SHARDS = 8, SAMPLES = 700 };
    make_shards(SHARDS, SAMPLES);
    weft_dataset *ds = open_set();
    cr_assert_eq(weft_storage_get_counts(weft_dataset_storage(ds)).puts, SHARDS);
    weft_dataset_close(ds);
    const int64_t before = weft_alloc_count();
    ds = open_set();
    const int64_t allocations = weft_alloc_count() - before;
    const weft_storage_counts c = weft_storage_get_counts(weft_dataset_storage(ds));
    cr_assert_eq(weft_dataset_count(ds), SHARDS * SAMPLES);
    cr_assert_eq(c.puts, 0);
    cr_assert_eq(c.reads, SHARDS);
    cr_assert_eq(c.facts, 2 * SHARDS); /* of a shard and its index */
    cr_assert_eq(c.bytes_read, index_bytes(SHARDS));
    cr_assert(allocations < 20 * SHARDS, "%" PRId64 " allocations for %d shards", allocations,
              SHARDS);
    weft_bucket bucket = {1, 9, 64, 64};
    weft_loader *l;
    const weft_loader_config config = {
        .shards = root, .split = "train", .buckets = {1, &bucket}, .threads = 1, .prefetch = 1};
    cr_assert_eq(weft_loader_open(&config, 0, 1, NULL, 0, &l), WEFT_OK, "%s", weft_error_message());
    const double each = (double)weft_loader_resident(l) / (SHARDS * SAMPLES);
    cr_assert(each > 100 && each < 280, "%.1f bytes a sample", each);
    weft_loader_close(l);
    weft_part_bytes text = {0};
    const weft_sample *s = weft_dataset_at(ds, 3 * SAMPLES + 7);
    cr_assert_str_eq(s->key, "s0003_0007");
    cr_assert(s->captioned && !weft_dataset_at(ds, 3 * SAMPLES + 6)->captioned);
    cr_assert(s->frames == 9 && s->width == 64 && s->height == 64 && s->fps == 24);
    cr_assert_eq(weft_dataset_caption(ds, s, true, &text), WEFT_OK);
    cr_assert_str_eq(text.data, "a caption");
    cr_assert_eq(weft_dataset_caption(ds, weft_dataset_at(ds, 6), true, &text), WEFT_OK);
    cr_assert_str_eq(text.data, "");
    weft_free(text.data);
    weft_dataset_close(ds);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* A set has more shards than a process may have files or maps. */
Test(dataset, more_shards_than_open_files, .init = setup, .fini = teardown)
{
    enum { SHARDS = 2 * WEFT_STORAGE_OPEN_FILES };
    make_shards(SHARDS, 2);
    const int before = open_descriptors();
    weft_dataset *ds = open_set();
    weft_part_bytes bytes = {0};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < weft_dataset_count(ds); i++) {
            const weft_sample *s = weft_dataset_at(ds, i);
            cr_assert_eq(weft_dataset_read(ds, s, weft_sample_video(s), true, &bytes), WEFT_OK);
            cr_assert_str_eq(bytes.data, "no video");
        }
    cr_assert_leq(open_descriptors(), before + WEFT_STORAGE_OPEN_FILES);
    weft_free(bytes.data);
    weft_dataset_close(ds);
    cr_assert_eq(open_descriptors(), before);
}

/* If a name was replaced by another file, that file is read, although the old one was open. */
Test(storage, a_file_that_is_replaced, .init = setup, .fini = teardown)
{
    weft_storage *storage;
    char text[4];
    cr_assert_eq(weft_storage_open(root, &storage), WEFT_OK);
    for (int i = 0; i < 3; i++) {
        const char *words[] = {"one", "two", "six"};
        cr_assert_eq(weft_storage_put(storage, "a/b", words[i], 4), WEFT_OK);
        cr_assert_eq(weft_storage_read(storage, "a/b", 0, 4, text), WEFT_OK);
        cr_assert_str_eq(text, words[i]);
    }
    cr_assert_eq(weft_storage_remove(storage, "a/b"), WEFT_OK);
    cr_assert_eq(weft_storage_read(storage, "a/b", 0, 4, text), WEFT_E_NOT_FOUND);
    weft_storage_close(storage);
    cr_assert_eq(weft_storage_open("gs://bucket/set", &storage), WEFT_E_UNSUPPORTED);
}

static void spoil(const char *name, int64_t at, int bytes)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "r+b");
    cr_assert(f);
    for (int i = 0; i < bytes; i++) {
        fseek(f, at + i, SEEK_SET);
        const int c = fgetc(f);
        fseek(f, at + i, SEEK_SET);
        fputc(c ^ 0x55, f);
    }
    fclose(f);
}

/* A damaged index, one of another shard, none that can be written: the set opens all the same. */
Test(dataset, indexes_that_do_not_fit, .init = setup, .fini = teardown)
{
    char path[160];
    make_shards(3, 4);
    weft_dataset_close(open_set());
    spoil("train-000000.tar.index", 120, 1);
    snprintf(path, sizeof path, "%s/train-000001.tar.index", root);
    cr_assert_eq(weft_remove_tree(path), WEFT_OK);
    cr_assert_eq(mkdir(path, 0777), 0); /* nothing can be written here */
    make_shards(1, 4);                  /* the same members, written at another time */
    weft_dataset *ds = open_set();
    cr_assert_eq(weft_dataset_count(ds), 12);
    weft_dataset_close(ds);
    make_shards(1, 5);
    ds = open_set();
    cr_assert_eq(weft_dataset_count(ds), 13);
    weft_dataset_close(ds);
}

/* ---- clips --------------------------------------------------------------------------------- */

enum { CLIPS = 12, SIDE = 32, FRAMES = 5 };
static char shards[128];

/* One shard and more of grey clips, by weft shard. */
static void make_clips(int64_t per_shard)
{
    char path[256];
    snprintf(shards, sizeof shards, "%s/shards", root);
    float *clip = malloc(sizeof(float) * FRAMES * SIDE * SIDE * 3);
    snprintf(path, sizeof path, "%s/curated/clips", root);
    cr_assert_eq(weft_make_dirs(path), WEFT_OK);
    for (int i = 0; i < CLIPS; i++) {
        for (int k = 0; k < FRAMES * SIDE * SIDE * 3; k++)
            clip[k] = -0.9f + 0.15f * (float)i + 0.05f * (float)(k / 3 % 7);
        snprintf(path, sizeof path, "%s/curated/clips/c%02d.mp4", root, i);
        const weft_video_writer_options options = {
            .width = SIDE, .height = SIDE, .fps = 8, .preset = "ultrafast"};
        cr_assert_eq(weft_video_write_clip(path, clip, FRAMES, false, &options), WEFT_OK);
        char text[160];
        snprintf(path, sizeof path, "%s/curated/metas/c%02d.json", root, i);
        snprintf(text, sizeof text,
                 "{\"caption\":\"grey %d\",\"frames\":%d,\"fps\":8,\"width\":%d,\"height\":%d%s}",
                 i, FRAMES, SIDE, SIDE, i == 5 ? ",\"damaged\":true" : "");
        cr_assert_eq(weft_make_parent(path), WEFT_OK);
        cr_assert_eq(weft_file_write_atomic(path, text, (int64_t)strlen(text)), WEFT_OK);
    }
    free(clip);
    const weft_shard_config config = {.max_samples = per_shard, .max_bytes = 1 << 24};
    weft_shard_report report;
    snprintf(path, sizeof path, "%s/curated", root);
    cr_assert_eq(weft_shard_run(&config, path, shards, &report), WEFT_OK, "%s",
                 weft_error_message());
}

static weft_bucket bucket = {3, FRAMES, SIDE, SIDE};

static weft_loader_config config_of(void)
{
    return (weft_loader_config){.shards = shards,
                                .split = "train",
                                .buckets = {1, &bucket},
                                .seed = 4,
                                .threads = 2,
                                .prefetch = 2,
                                .verify = true};
}

static weft_loader *open_loader(const weft_loader_config *config, int rank, int ranks)
{
    weft_loader *l;
    cr_assert_eq(weft_loader_open(config, rank, ranks, NULL, 0, &l), WEFT_OK, "%s",
                 weft_error_message());
    return l;
}

static void run_steps(weft_loader *l, int steps)
{
    weft_batch batch;
    for (int s = 0; s < steps; s++)
        cr_assert_eq(weft_loader_next(l, &batch), WEFT_OK, "%s", weft_error_message());
}

static int64_t all_samples(const weft_loader_report *r)
{
    int64_t sum = 0;
    for (int i = 0; i < WEFT_SAMPLE_OUTCOMES; i++)
        sum += r->samples[i];
    return sum;
}

/* Sets the time of change to a second after the present one: a file system's clock may be coarse.
 * */
static void make_younger(const char *name)
{
    char path[192];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", root, name);
    cr_assert_eq(stat(path, &st), 0);
    const struct timespec times[2] = {st.st_atim, {st.st_mtim.tv_sec + 1, st.st_mtim.tv_nsec}};
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A byte in the middle of a clip's data: with checksums the sample is dropped and counted, and the
 * index of the shard, whose time of change is another now, keeps them. */
Test(loader_reading, changed_bytes_are_found, .init = setup, .fini = teardown)
{
    make_clips(1000);
    weft_dataset *ds;
    cr_assert_eq(weft_dataset_open(shards, "trai", false, &ds), WEFT_E_NOT_FOUND,
                 "a part of a name");
    cr_assert_eq(weft_dataset_open(shards, "train", true, &ds), WEFT_OK);
    const weft_part_data *video = weft_sample_video(weft_dataset_at(ds, 2));
    const int64_t at = video->at + video->bytes / 2;
    cr_assert_neq(video->sum, 0);
    weft_dataset_close(ds);
    spoil("shards/train-000000.tar", at, 3);
    make_younger("shards/train-000000.tar");
    const weft_loader_config config = config_of();
    weft_loader *l = open_loader(&config, 0, 1);
    run_steps(l, 8);
    const weft_loader_report r = weft_loader_get_report(l);
    cr_assert_eq(r.samples[WEFT_SAMPLE_CORRUPT], 1);
    cr_assert_eq(r.samples[WEFT_SAMPLE_DAMAGED], 1);
    cr_assert_eq(r.samples[WEFT_SAMPLE_USED], CLIPS - 2);
    cr_assert_eq(all_samples(&r), CLIPS);
    cr_assert_eq(weft_loader_outcome(l, 2), WEFT_SAMPLE_CORRUPT);
    cr_assert_gt(r.replaced, 0);
    weft_loader_close(l);
}

static void copy_index(char *to, int64_t *bytes)
{
    char path[256], *text;
    snprintf(path, sizeof path, "%s/train-000000.tar.index", shards);
    cr_assert_eq(weft_file_read(path, 1 << 20, &text, bytes), WEFT_OK);
    memcpy(to, text, (size_t)*bytes);
    weft_free(text);
}

/* The index of a shard that weft shard wrote: damaged, it is restored to the same bytes, so that a
 * run resumes with the same data. If the shard has other bytes as well, changed samples cannot be
 * found, which is an error. */
Test(loader_reading, damaged_index_is_restored, .init = setup, .fini = teardown)
{
    static char before[1 << 20], after[1 << 20];
    int64_t bytes, restored;
    weft_dataset *ds;
    make_clips(1000);
    copy_index(before, &bytes);
    cr_assert_eq(weft_dataset_open(shards, "train", false, &ds), WEFT_OK);
    const uint64_t fingerprint = weft_dataset_fingerprint(ds);
    weft_dataset_close(ds);
    spoil("shards/train-000000.tar.index", bytes / 2, 1);
    cr_assert_eq(weft_dataset_open(shards, "train", false, &ds), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_dataset_fingerprint(ds), fingerprint);
    const int64_t at = weft_sample_video(weft_dataset_at(ds, 2))->at;
    weft_dataset_close(ds);
    copy_index(after, &restored);
    cr_assert(restored == bytes && !memcmp(before, after, (size_t)bytes));
    spoil("shards/train-000000.tar.index", bytes / 2, 1);
    spoil("shards/train-000000.tar", at + 20, 3);
    cr_assert_eq(weft_dataset_open(shards, "train", false, &ds), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SHARD_DAMAGED);
}

/* The name of a bucket is not the name of a shard. */
Test(dataset, places_of_shards)
{
    static const char *const shard[] = {"a.tar", "s3://b/a.tar", "s3://b.tar/x/a.tar",
                                        "s3://b/{0..9}.tar", "https://h/a.tar"},
                             *const folder[] = {"s3://bucket.tar", "s3://b.tar/", "s3://b.tar/x",
                                                "s3://b/a.tar/",   "s3://b",      "clips"};
    for (size_t i = 0; i < sizeof shard / sizeof *shard; i++)
        cr_expect(weft_dataset_names_shards(shard[i]), "%s", shard[i]);
    for (size_t i = 0; i < sizeof folder / sizeof *folder; i++)
        cr_expect(!weft_dataset_names_shards(folder[i]), "%s", folder[i]);
}

/* f32 parts are read directly into the batch. The values are bitwise those that were written. A
 * changed byte in a header, or in a body longer than one hashed piece, drops the sample. */
Test(loader_reading, latents_are_checked_where_they_lie, .init = setup, .fini = teardown)
{
    enum { SAMPLES = 5, SIDES = 96, FLOATS = 4 * SIDES * SIDES * 4 };
    float *value = malloc(sizeof *value * FLOATS);
    weft_storage *storage;
    weft_shard_file *f;
    cr_assert_eq(weft_storage_open(root, &storage), WEFT_OK);
    cr_assert_eq(weft_shard_file_create(storage, "train-000000.tar", &f), WEFT_OK);
    for (int k = 0; k < SAMPLES; k++) {
        weft_buf npy = {0};
        char key[8];
        snprintf(key, sizeof key, "s%d", k);
        for (int i = 0; i < FLOATS; i++)
            value[i] = (float)(i + k);
        weft_npy_format(WEFT_F32, 4, (int64_t[]){4, SIDES, SIDES, 4}, value, &npy);
        cr_assert_eq(weft_shard_file_add(f, key, "latent.npy", npy.data, npy.len), WEFT_OK);
        weft_buf_free(&npy);
    }
    cr_assert_eq(weft_shard_file_finish(f, NULL, NULL), WEFT_OK);
    weft_shard_file_free(f);
    weft_storage_close(storage);
    weft_dataset *ds = open_set();
    const weft_part_data *body = weft_dataset_at(ds, 1)->part, *head = weft_dataset_at(ds, 3)->part;
    const int64_t at = body->at + body->bytes - 5000, header = head->at + 14,
                  last = weft_dataset_at(ds, 4)->part->at;
    weft_dataset_close(ds);
    weft_bucket size = {1, 4, SIDES, SIDES};
    const weft_loader_config config = {
        .shards = root, .split = "train", .buckets = {1, &size}, .threads = 1, .verify = true};
    weft_loader *l;
    weft_batch batch;
    cr_assert_eq(weft_loader_open(&config, 0, 1, "latent.npy", 4, &l), WEFT_OK, "%s",
                 weft_error_message());
    spoil("train-000000.tar", at, 1);
    spoil("train-000000.tar", header, 1);
    for (int step = 0; step < 3 * SAMPLES; step++) {
        cr_assert_eq(weft_loader_next(l, &batch), WEFT_OK, "%s", weft_error_message());
        for (int i = 0; i < FLOATS; i++)
            cr_assert_eq(batch.part[i], (float)(i + batch.sample[0]), "sample %" PRId64 ", %d",
                         batch.sample[0], i);
    }
    const weft_loader_report r = weft_loader_get_report(l);
    cr_assert_eq(r.samples[WEFT_SAMPLE_CORRUPT], 2);
    cr_assert_eq(r.samples[WEFT_SAMPLE_USED], SAMPLES - 2);
    cr_assert_eq(weft_loader_outcome(l, 1), WEFT_SAMPLE_CORRUPT);
    cr_assert_eq(weft_loader_outcome(l, 3), WEFT_SAMPLE_CORRUPT);
    weft_loader_close(l);
    /* a lost member does not affect the checksums of others */
    spoil("train-000000.tar", last - 512, 100);
    cr_assert_eq(weft_loader_open(&config, 0, 1, "latent.npy", 4, &l), WEFT_OK);
    for (int step = 0; step < 3 * SAMPLES; step++)
        cr_assert_eq(weft_loader_next(l, &batch), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_loader_get_report(l).damaged_shards, 1);
    cr_assert_eq(weft_loader_get_report(l).samples[WEFT_SAMPLE_CORRUPT], 1);
    cr_assert_eq(weft_loader_get_report(l).samples[WEFT_SAMPLE_UNREADABLE], 1); /* its header */
    cr_assert_eq(weft_loader_get_report(l).samples[WEFT_SAMPLE_USED], SAMPLES - 3);
    weft_loader_close(l);
    free(value);
}

/* The shard is truncated while the loader has it open: samples after the end are dropped and counted. */
Test(loader_reading, a_shard_cut_while_it_is_read, .init = setup, .fini = teardown)
{
    char path[256];
    struct stat st;
    make_clips(6);
    const weft_loader_config config = config_of();
    weft_loader *l = open_loader(&config, 0, 1);
    run_steps(l, 1);
    snprintf(path, sizeof path, "%s/train-000001.tar", shards);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(truncate(path, st.st_size / 2), 0);
    run_steps(l, 16);
    const weft_loader_report r = weft_loader_get_report(l);
    cr_assert_geq(r.samples[WEFT_SAMPLE_CORRUPT], 2);
    cr_assert_leq(r.samples[WEFT_SAMPLE_CORRUPT], 4);
    cr_assert_eq(all_samples(&r), CLIPS);
    weft_loader_close(l);
}

/* ---- order --------------------------------------------------------------------------------- */

static uint64_t id_of(const void *user, int64_t sample)
{
    (void)user;
    return (uint64_t)sample * 7919 + 13;
}

static uint64_t shard_of(const void *user, int64_t sample)
{
    (void)user;
    return (uint64_t)sample / 10 * 104729 + 5;
}

/* 100 shards of 10 samples, window 30: all samples once, and reading goes through few shards. */
Test(order, shards_and_a_window)
{
    enum { COUNT = 1000, WINDOW = 30 };
    const weft_order_facts facts = {.id = id_of, .shard = shard_of};
    static weft_order_item item[2][COUNT];
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int i = 0; i < COUNT; i++)
            item[epoch][i].sample = i;
        weft_order_shuffle(item[epoch], COUNT, WINDOW, 3, (uint64_t)epoch, &facts);
        int first[COUNT / 10], last[COUNT / 10], seen[COUNT] = {0}, moved = 0;
        for (int i = 0; i < COUNT / 10; i++)
            first[i] = COUNT;
        for (int i = 0; i < COUNT; i++) {
            const int sample = (int)item[epoch][i].sample, shard = sample / 10;
            cr_assert_eq(seen[sample]++, 0);
            first[shard] = i < first[shard] ? i : first[shard];
            last[shard] = i;
            moved += i > 0 && sample != (int)item[epoch][i - 1].sample + 1;
        }
        for (int i = 0; i < COUNT / 10; i++)
            cr_assert(last[i] - first[i] < 10 + 2 * WINDOW, "shard %d: %d .. %d", i, first[i],
                      last[i]);
        cr_assert_gt(moved, COUNT * 8 / 10);
        /* ten samples of a shard, each moved by 0 to WINDOW places */
        double spread = 0;
        for (int i = 0; i < COUNT / 10; i++)
            spread += (double)(last[i] - first[i]) / (COUNT / 10);
        cr_assert(spread > 0.7 * WINDOW && spread < 1.3 * WINDOW, "%g places", spread);
    }
    int same = 0;
    for (int i = 0; i < COUNT; i++)
        same += item[0][i].sample == item[1][i].sample;
    cr_assert_lt(same, COUNT / 20);
}

/* A shuffle window: each sample once per epoch on 1, 2 and 3 ranks, and exact after a stop. */
Test(loader_reading, windows_over_ranks_and_resumes, .init = setup, .fini = teardown)
{
    enum { EPOCHS = 4, USED = CLIPS - 1 };
    make_clips(2);
    weft_loader_config config = config_of();
    config.shuffle = 4;
    int seen[EPOCHS + 1][CLIPS] = {0};
    json_t *state = NULL;
    int64_t total = 0;
    for (int ranks = 1; total < EPOCHS * USED; ranks = ranks % 3 + 1) {
        weft_loader *l[3];
        for (int r = 0; r < ranks; r++) {
            l[r] = open_loader(&config, r, ranks);
            if (state)
                cr_assert_eq(weft_loader_restore(l[r], state, "state"), WEFT_OK);
        }
        for (int k = 0; k < 3; k++)
            for (int r = 0; r < ranks; r++) {
                weft_batch b;
                cr_assert_eq(weft_loader_next(l[r], &b), WEFT_OK);
                for (int64_t i = 0; i < b.count; i++) {
                    if (b.epoch[i] < EPOCHS)
                        seen[b.epoch[i]][b.sample[i]]++;
                    cr_assert_eq(b.sequence_index[i], total + i);
                }
                total += b.count;
            }
        json_decref(state);
        state = weft_loader_state(l[0]);
        for (int r = 0; r < ranks; r++)
            weft_loader_close(l[r]);
    }
    for (int e = 0; e < EPOCHS; e++)
        for (int c = 0; c < CLIPS; c++) {
            weft_dataset *ds;
            cr_assert_eq(weft_dataset_open(shards, "train", true, &ds), WEFT_OK);
            cr_assert_eq(seen[e][c], !weft_dataset_at(ds, c)->damaged, "epoch %d, clip %d: %d", e,
                         c, seen[e][c]);
            weft_dataset_close(ds);
        }
    config.shuffle = 5; /* another order: the state does not fit */
    weft_loader *other = open_loader(&config, 0, 1);
    cr_assert_eq(weft_loader_restore(other, state, "state"), WEFT_E_CONFIG);
    weft_loader_close(other);
    json_decref(state);
}

/* Announced samples are those that follow, with the same pixels. With more items in a batch than
 * samples, every item of a step has a place of its own. */
Test(loader_reading, looking_ahead, .init = setup, .fini = teardown)
{
    make_clips(5);
    weft_bucket large = {2 * CLIPS + 1, FRAMES, SIDE, SIDE};
    weft_loader_config config = config_of();
    config.buckets = (weft_section_list){1, &large};
    config.random_crop = config.random_start = true;
    weft_loader *l = open_loader(&config, 0, 1);
    static weft_item item[2 * CLIPS + 1], later[2 * CLIPS + 1];
    int64_t count;
    const int64_t floats = FRAMES * SIDE * SIDE * 3;
    weft_loaded_item taken = {0};
    float *pixels = malloc((size_t)floats * 4);
    int in;
    cr_assert_eq(weft_loader_peek(l, 2, &in, later, &count), WEFT_OK);
    for (int s = 0; s < 3; s++) {
        weft_batch b;
        cr_assert_eq(weft_loader_peek(l, 0, &in, item, &count), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert_eq(weft_loader_next(l, &b), WEFT_OK);
        cr_assert(count == b.count && in == b.bucket);
        for (int64_t i = 0; i < count; i++) {
            const weft_item *one = s == 2 ? &later[i] : &item[i];
            cr_assert(one->sample == b.sample[i] && one->epoch == b.epoch[i] &&
                      one->sequence_index == b.sequence_index[i] && one->bucket == b.bucket);
            for (int64_t k = 0; k < i; k++)
                cr_assert_neq(b.sequence_index[i], b.sequence_index[k]);
        }
        cr_assert_eq(weft_loader_load_item(l, &item[4], pixels, NULL, &taken), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert_eq(memcmp(pixels, b.video + 4 * floats, (size_t)floats * 4), 0);
        cr_assert(taken.id == b.id[4] && !taken.replaced);
        cr_assert_str_eq(taken.caption, b.caption[4]);
        /* same result if it is decoded before or when it is requested */
        const weft_item wanted[3] = {item[0], item[3], item[4]};
        cr_assert_eq(weft_loader_prefetch_items(l, wanted, 3), WEFT_OK);
        while (s < 2 && weft_loader_get_report(l).early < 3 + s)
            usleep(1000);
        for (int k = 2; k >= 0; k -= 2) {
            const int64_t at = k ? 4 : 0;
            memset(pixels, 0, (size_t)floats * 4);
            cr_assert_eq(weft_loader_load_item(l, &wanted[k], pixels, NULL, &taken), WEFT_OK);
            cr_assert_eq(memcmp(pixels, b.video + at * floats, (size_t)floats * 4), 0);
            cr_assert(taken.id == b.id[at] && taken.sample == b.sample[at]);
            cr_assert_str_eq(taken.caption, b.caption[at]);
        }
        cr_assert_eq(weft_loader_get_report(l).wanted, s + 1, "one of each step is left");
    }
    weft_free(taken.text.data);
    free(pixels);
    weft_loader_close(l);
}
