/* Checkpoints are written in shards through a small staging memory, by one rank or by several.
 * Damage of every kind, retained and removed checkpoints, tensor shards, and the format of the
 * first release. All bitwise. */
#include "base/fs.h"
#include "base/log.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "format/tensors/safetensors.h"
#include "graph/graph.h"
#include "train/checkpoint/checkpoint.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64];

static void begin(void)
{
    strcpy(root, "/tmp/weft-checkpoint-XXXXXX");
    cr_assert(mkdtemp(root));
}

static void end(void)
{
    cr_assert_eq(weft_remove_tree(root), WEFT_OK);
}

TestSuite(checkpoint, .init = begin, .fini = end);

static void add(weft_store *store, const char *name, weft_shape shape, int seed)
{
    weft_tensor *t;
    cr_assert_eq(weft_store_add(store, name, WEFT_F32, shape, &t), WEFT_OK);
    for (int64_t i = 0; i < weft_shape_count(&shape); i++)
        ((float *)t->data)[i] = (float)(seed * 1000 + i);
}

/* A model "m" of three parameters with moments; with `seed` 0 all is as it was before loading. */
static weft_store *make_store(int seed)
{
    weft_store *s = weft_store_create();
    add(s, "m.a", WEFT_SHAPE(33, 17), seed * 1);
    add(s, "m.b", WEFT_SHAPE(5), seed * 2);
    add(s, "m.c", WEFT_SHAPE(3, 4, 5), seed * 3);
    add(s, "adamw.m.m.a", WEFT_SHAPE(33, 17), seed * 4);
    add(s, "adamw.v.m.a", WEFT_SHAPE(33, 17), seed * 5);
    add(s, "ema.m.c", WEFT_SHAPE(3, 4, 5), seed * 6);
    return s;
}

static bool same(weft_store *a, weft_store *b)
{
    for (int64_t i = 0; i < weft_store_count(a); i++) {
        const weft_tensor *x = weft_store_at(a, i), *y = weft_store_find(b, x->name);
        if (!y || memcmp(x->data, y->data, (size_t)weft_shape_count(&x->shape) * 4) != 0)
            return false;
    }
    return true;
}

typedef struct rank {
    weft_store *store;
    weft_comm *comm;
    int64_t staging, shard_bytes, keep;
    json_t *config;
    weft_checkpoints *c;
} rank;

static void open_rank(rank *r)
{
    r->config = json_pack("{s:s}", "_class_name", "M");
    const weft_checkpoint_spec spec = {.run = root,
                                       .store = r->store,
                                       .comm = r->comm,
                                       .part = {{"m", "model", r->config}},
                                       .parts = 1,
                                       .config_yaml = "what: m\n",
                                       .keep_latest = r->keep ? r->keep : 9,
                                       .staging = r->staging,
                                       .shard_bytes = r->shard_bytes};
    cr_assert_eq(weft_checkpoints_open(&spec, &r->c), WEFT_OK, "%s", weft_error_message());
}

static void close_rank(rank *r)
{
    weft_checkpoints_close(r->c, false);
    json_decref(r->config);
    weft_store_free(r->store);
}

static void save(rank *r, int64_t step)
{
    json_t *state = json_pack("{s:I, s:I}", "step", (json_int_t)step, "accepted", (json_int_t)35);
    cr_assert_eq(weft_checkpoints_save(r->c, step, state), WEFT_OK, "%s", weft_error_message());
}

/* One rank saves `steps` checkpoints in sequence. */
static void save_steps(int64_t keep, int count, const int64_t *step)
{
    rank r = {.store = make_store(1), .keep = keep};
    open_rank(&r);
    for (int i = 0; i < count; i++) {
        save(&r, step[i]);
        cr_assert_eq(weft_checkpoints_wait(r.c), WEFT_OK, "%s", weft_error_message());
    }
    close_rank(&r);
}

static weft_status_code load(int64_t *step, char message[2000])
{
    rank r = {.store = make_store(0)};
    weft_store *expected = make_store(1);
    json_t *state;
    char path[512];
    open_rank(&r);
    const weft_status_code status = weft_checkpoints_load(r.c, &state, path);
    snprintf(message, 2000, "%s", status == WEFT_OK ? "" : weft_error_message());
    *step = state ? weft_checkpoints_last(r.c) : -1;
    if (state)
        cr_assert(same(r.store, expected), "the tensors are not those that were saved");
    json_decref(state);
    weft_store_free(expected);
    close_rank(&r);
    return status;
}

static bool exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/checkpoints/%s", root, name);
    return weft_path_exists(path);
}

/* Byte `at` of a file (from the end if negative) becomes another one. */
static void damage(const char *name, long at)
{
    char path[256];
    snprintf(path, sizeof path, "%s/checkpoints/%s", root, name);
    FILE *file = fopen(path, "r+b");
    cr_assert(file, "%s", path);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    const int byte = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(byte ^ 1, file);
    fclose(file);
}

Test(checkpoint, more_than_a_shard_through_a_staging_smaller_than_a_tensor)
{
    rank r = {.store = make_store(1), .staging = 1000, .shard_bytes = 3000};
    char message[2000];
    int64_t step;
    open_rank(&r);
    save(&r, 3);
    for (int64_t i = 0; i < weft_store_count(r.store); i++) { /* training continues */
        weft_tensor *t = weft_store_at(r.store, i);
        memset(t->data, 0xff, (size_t)weft_shape_count(&t->shape) * 4);
    }
    close_rank(&r);
    cr_assert(exists("step-00000003/optimizer-00002-of-00002.safetensors"), "not in shards");
    cr_assert_eq(load(&step, message), WEFT_OK, "%s", message);
    cr_assert_eq(step, 3);
}

/* ---- several ranks ------------------------------------------------------------------------- */

static void *save_as_rank(void *user)
{
    rank *r = user;
    open_rank(r);
    save(r, 7);
    (void)!weft_checkpoints_wait(r->c);
    (void)!weft_comm_barrier(r->comm);
    close_rank(r);
    return NULL;
}

static void *load_as_rank(void *user)
{
    rank *r = user;
    weft_store *expected = make_store(1);
    json_t *state;
    char path[512];
    open_rank(r);
    cr_assert_eq(weft_checkpoints_load(r->c, &state, path), WEFT_OK, "%s", weft_error_message());
    cr_assert(state && same(r->store, expected));
    json_decref(state);
    weft_store_free(expected);
    close_rank(r);
    return NULL;
}

static void on_ranks(int ranks, int seed, void *(*run)(void *))
{
    weft_comm *comm[8];
    rank r[8] = {0};
    pthread_t thread[8];
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int i = 0; i < ranks; i++) {
        r[i] = (rank){.store = make_store(seed), .comm = comm[i], .staging = 500};
        for (int64_t k = 0; k < weft_store_count(r[i].store); k++) {
            weft_store_at(r[i].store, k)->replica = i;
            weft_store_at(r[i].store, k)->replicas = ranks;
        }
        pthread_create(&thread[i], NULL, run, &r[i]);
    }
    for (int i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < ranks; i++)
        weft_comm_free(comm[i]);
}

Test(checkpoint, ranks_write_each_part_once_and_any_number_reads)
{
    char path[256], message[2000];
    int64_t step, bytes = 0;
    on_ranks(3, 1, save_as_rank);
    weft_names names = {0};
    snprintf(path, sizeof path, "%s/checkpoints/step-00000007", root);
    cr_assert_eq(weft_list_dir(path, true, &names), WEFT_OK);
    int writers[3] = {0};
    for (int64_t i = 0; i < names.count; i++) {
        weft_tensors *file;
        const char *at = strstr(names.name[i], "-rank-0000");
        if (!at)
            continue;
        writers[at[10] - '0']++;
        char *full = weft_path_join(path, names.name[i]);
        cr_assert_eq(weft_tensors_open(full, &file), WEFT_OK);
        for (int64_t k = 0; k < weft_tensors_count(file); k++)
            bytes += weft_tensors_at(file, k)->bytes;
        weft_tensors_close(file);
        weft_free(full);
    }
    weft_names_free(&names);
    cr_assert_eq(bytes, (3 * 33 * 17 + 5 + 2 * 60) * 4, "%" PRId64 " bytes in the files", bytes);
    cr_assert(writers[0] && writers[1] && writers[2], "a rank wrote nothing");
    cr_assert(!exists("step-00000007/note-00001.json"), "a note stayed");
    cr_assert_eq(load(&step, message), WEFT_OK, "%s", message);
    cr_assert_eq(step, 7);
    on_ranks(2, 0, load_as_rank);
    damage("step-00000007/optimizer-rank-00001-of-00003.safetensors", -1);
    cr_assert_eq(load(&step, message), WEFT_E_FORMAT);
}

/* ---- meshes -------------------------------------------------------------------------------- */

/* Rank `index` of `ranks` over which tensors are split: "m.a" and its moments along dim 0, the rest
 * along no dim. Values are those of make_store(seed). */
static weft_store *make_split(int seed, int index, int ranks)
{
    weft_store *whole = make_store(seed), *s = weft_store_create();
    for (int64_t i = 0; i < weft_store_count(whole); i++) {
        const weft_tensor *t = weft_store_at(whole, i);
        weft_tensor like = *t, *own;
        int64_t start = 0, count = 0, row = weft_shape_count(&t->shape) / t->shape.dim[0];
        if (strstr(t->name, "m.a")) {
            weft_part(t->shape.dim[0], ranks, index, &start, &count);
            like.shape.dim[0] = count;
            like.start[0] = start;
        } else {
            like.replica = index;
            like.replicas = ranks;
        }
        cr_assert_eq(weft_store_add_like(s, &like, &own), WEFT_OK);
        memcpy(own->data, (float *)t->data + start * row,
               (size_t)weft_shape_count(&own->shape) * 4);
    }
    weft_store_free(whole);
    return s;
}

typedef struct split_job {
    rank r;
    int index, ranks;
    int64_t load, save; /* steps */
} split_job;

static void *load_and_save(void *user)
{
    split_job *j = user;
    json_t *state = NULL;
    char path[512];
    weft_store *expected = make_split(1, j->index, j->ranks);
    j->r.store = make_split(j->load ? 0 : 1, j->index, j->ranks);
    open_rank(&j->r);
    if (j->load) {
        cr_assert_eq(weft_checkpoints_load(j->r.c, &state, path), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert(state && same(j->r.store, expected), "%d of %d ranks", j->index, j->ranks);
        json_decref(state);
    }
    save(&j->r, j->save);
    (void)!weft_checkpoints_wait(j->r.c);
    (void)!weft_comm_barrier(j->r.comm);
    weft_store_free(expected);
    close_rank(&j->r);
    return NULL;
}

static void on_mesh(int ranks, int64_t from, int64_t to)
{
    weft_comm *comm[8];
    split_job job[8] = {0};
    pthread_t thread[8];
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int i = 0; i < ranks; i++) {
        job[i] = (split_job){.r = {.comm = comm[i], .staging = 700},
                             .index = i,
                             .ranks = ranks,
                             .load = from,
                             .save = to};
        pthread_create(&thread[i], NULL, load_and_save, &job[i]);
    }
    for (int i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < ranks; i++)
        weft_comm_free(comm[i]);
}

/* Written in halves, read and written in thirds, read whole; no file has a part under the whole
 * name. */
Test(checkpoint, any_mesh_goes_on_from_any_other)
{
    char message[2000], path[256];
    int64_t step;
    weft_tensors *file;
    on_mesh(2, 0, 4);
    snprintf(path, sizeof path,
             "%s/checkpoints/step-00000004/m/model-rank-00001-of-00002.safetensors", root);
    cr_assert_eq(weft_tensors_open(path, &file), WEFT_OK, "%s", weft_error_message());
    cr_assert(weft_tensors_find(file, "a[17:33/33,0:17/17]") && !weft_tensors_find(file, "a"));
    weft_tensors_close(file);
    on_mesh(3, 4, 8);
    cr_assert_eq(load(&step, message), WEFT_OK, "%s", message);
    cr_assert_eq(step, 8);
    on_mesh(1, 8, 12);
    on_mesh(2, 12, 16);
}

/* ---- damage -------------------------------------------------------------------------------- */

Test(checkpoint, none_is_whole)
{
    char message[2000];
    int64_t step;
    save_steps(9, 2, (int64_t[]){5, 10});
    damage("step-00000010/optimizer.safetensors", -1);
    cr_assert_eq(load(&step, message), WEFT_OK, "%s", message);
    cr_assert_eq(step, 5, "the one before a damaged one");
    damage("step-00000005/m/model.safetensors", -1);
    cr_assert_eq(load(&step, message), WEFT_E_FORMAT,
                 "started from step 0 although checkpoints exist");
    cr_assert_eq(weft_error_class(), WEFT_MSG_CHECKPOINT_DAMAGED, "%s", message);
    cr_assert_eq(weft_error_fields()->number, 2);
    cr_assert(strstr(message, "step-00000010/optimizer.safetensors: damaged") &&
                  strstr(message, "step-00000005/m/model.safetensors: damaged"),
              "%s", message);
}

Test(checkpoint, state_has_a_checksum)
{
    char path[256], message[2000], *text;
    int64_t step, bytes;
    save_steps(9, 1, (int64_t[]){5});
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005/state.json", root);
    cr_assert_eq(weft_file_read(path, 1 << 20, &text, &bytes), WEFT_OK);
    char *at = strstr(text, "35");
    cr_assert(at);
    *at = '2'; /* 35 -> 25 */
    cr_assert_eq(weft_file_write_atomic(path, text, bytes), WEFT_OK);
    weft_free(text);
    cr_assert_eq(load(&step, message), WEFT_E_FORMAT);
    cr_assert(strstr(message, "state.json: damaged"), "%s", message);
}

Test(checkpoint, a_half_removed_one_is_damaged)
{
    char path[256], message[2000];
    int64_t step;
    save_steps(9, 2, (int64_t[]){5, 10});
    snprintf(path, sizeof path, "%s/checkpoints/step-00000010/ema.safetensors", root);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(load(&step, message), WEFT_OK);
    cr_assert_eq(step, 5);
}

/* ---- pruning ------------------------------------------------------------------------------- */

Test(checkpoint, damaged_ones_are_not_counted_and_stay)
{
    char path[256];
    save_steps(9, 3, (int64_t[]){5, 10, 99});
    damage("step-00000099/optimizer.safetensors", -1); /* the newest by name */
    save_steps(2, 1, (int64_t[]){15});
    cr_assert(exists("step-00000015") && exists("step-00000010"), "a good one was removed");
    cr_assert(!exists("step-00000005"), "more checkpoints than keep_latest are retained");
    cr_assert(exists("step-00000099"), "a checkpoint that was not verified was removed");
    /* files of killed writers and of killed removals */
    snprintf(path, sizeof path, "%s/checkpoints/.step-00000017/m", root);
    cr_assert_eq(weft_make_dirs(path), WEFT_OK);
    snprintf(path, sizeof path, "%s/checkpoints/.gone-step-00000003/m", root);
    cr_assert_eq(weft_make_dirs(path), WEFT_OK);
    snprintf(path, sizeof path, "%s/checkpoints/step-mine", root);
    cr_assert_eq(weft_make_dirs(path), WEFT_OK);
    save_steps(1, 1, (int64_t[]){20});
    cr_assert(!exists(".step-00000017") && !exists(".gone-step-00000003"));
    cr_assert(exists("step-mine"), "a folder that weft did not write was removed");
    cr_assert(exists("step-00000020") && !exists("step-00000015") && !exists("step-00000010"));
}

/* ---- the first release --------------------------------------------------------------------- */

static void add_all(weft_store *store, const char *folder, const char *file, const char *prefix)
{
    weft_tensors *tensors;
    char path[400], name[400];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    cr_assert_eq(weft_tensors_open(path, &tensors), WEFT_OK, "%s", weft_error_message());
    for (int64_t i = 0; i < weft_tensors_count(tensors); i++) {
        const weft_stored_tensor *s = weft_tensors_at(tensors, i);
        snprintf(name, sizeof name, "%s%s", prefix, s->name);
        add(store, name, weft_shape_of(s->rank, s->dim), 0);
    }
    weft_tensors_close(tensors);
}

Test(checkpoint, of_the_first_release)
{
    static const char golden[] = "tests/golden/first_release";
    char command[400], path[512];
    snprintf(command, sizeof command,
             "mkdir %s/checkpoints && cp -r %s/step-00000004 %s/checkpoints", root, golden, root);
    cr_assert_eq(system(command), 0);
    weft_store *store = weft_store_create();
    const char *folder = "tests/golden/first_release/step-00000004";
    add_all(store, folder, "transformer/diffusion_pytorch_model.safetensors", "transformer.");
    add_all(store, folder, "text_encoder/model.safetensors", "text_encoder.");
    add_all(store, folder, "optimizer.safetensors", "");
    add_all(store, folder, "ema.safetensors", "");
    const weft_checkpoint_spec spec = {
        .run = root,
        .store = store,
        .part = {{"transformer", "diffusion_pytorch_model", NULL}, {"text_encoder", "model", NULL}},
        .parts = 2,
        .config_yaml = "",
        .keep_latest = 2};
    weft_checkpoints *c;
    json_t *state;
    cr_assert_eq(weft_checkpoints_open(&spec, &c), WEFT_OK);
    cr_assert_eq(weft_checkpoints_load(c, &state, path), WEFT_OK, "%s", weft_error_message());
    cr_assert(state && json_integer_value(json_object_get(state, "step")) == 4);
    const weft_tensor *t = weft_store_find(store, "ema.transformer.proj_out.weight");
    weft_tensors *file;
    snprintf(command, sizeof command, "%s/ema.safetensors", folder);
    cr_assert_eq(weft_tensors_open(command, &file), WEFT_OK);
    const weft_stored_tensor *s = weft_tensors_find(file, "ema.transformer.proj_out.weight");
    cr_assert(t && s && s->bytes && !memcmp(t->data, s->data, (size_t)s->bytes));
    weft_tensors_close(file);
    json_decref(state);
    weft_checkpoints_close(c, false);
    weft_store_free(store);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Bytes of this process that are not file-backed. */
static int64_t anonymous(void)
{
    char line[256];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && kib < 0 && fgets(line, sizeof line, file))
        (void)!sscanf(line, "RssAnon: %lld kB", &kib);
    if (file)
        fclose(file);
    return kib * 1024;
}

typedef struct watch {
    pthread_t thread;
    atomic_bool stop;
    int64_t before, most;
} watch;

static void *look(void *user)
{
    watch *w = user;
    while (!atomic_load(&w->stop)) {
        const int64_t now = anonymous();
        w->most = now > w->most ? now : w->most;
        usleep(500);
    }
    return NULL;
}

static void watch_begin(watch *w)
{
    atomic_store(&w->stop, false);
    w->before = w->most = anonymous();
    cr_assert_eq(pthread_create(&w->thread, NULL, look, w), 0);
}

/* The peak of bytes, minus the bytes before. */
static int64_t watch_end(watch *w)
{
    atomic_store(&w->stop, true);
    pthread_join(w->thread, NULL);
    return w->most - w->before;
}

/* A store much larger than its staging memory: saving needs the staging memory and no other copy,
 * and reading into an existing store needs nothing. WEFT_TEST_STORE_MIB: size of a larger store,
 * for runs by hand. */
Test(checkpoint, memory_of_saving_and_reading_is_bounded_by_the_staging)
{
    enum { MIB = 1 << 20, TENSORS = 6, SLACK = 12 * MIB }; /* less than a tensor of 16 MiB */
    const char *asked = getenv("WEFT_TEST_STORE_MIB");
    const int64_t mib = asked ? atoll(asked) : 96, staging = 4 * MIB;
    char name[40], path[512], text[2][32];
    json_t *state = NULL;
    watch w = {0};
    rank r = {.store = weft_store_create(), .staging = staging, .shard_bytes = mib * MIB / 4};
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, i < 2 ? "m.%d" : "adamw.m.m.%d", i);
        add(r.store, name, WEFT_SHAPE(mib * MIB / 4 / TENSORS), i + 1);
    }
    open_rank(&r);
    watch_begin(&w);
    save(&r, 1);
    cr_assert_eq(weft_checkpoints_wait(r.c), WEFT_OK, "%s", weft_error_message());
    const int64_t saving = watch_end(&w);
    watch_begin(&w);
    cr_assert_eq(weft_checkpoints_load(r.c, &state, path), WEFT_OK, "%s", weft_error_message());
    const int64_t reading = watch_end(&w);
    fprintf(stderr,
            "a store of %" PRId64 " MiB with a staging of 4 MiB: %s more while saving, %s while "
            "reading\n",
            mib, weft_format_bytes(saving, text[0]), weft_format_bytes(reading, text[1]));
    cr_expect_leq(saving, staging + SLACK);
    cr_expect_leq(reading, SLACK);
    json_decref(state);
    close_rank(&r);
}
