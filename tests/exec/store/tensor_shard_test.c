/* Tensor shards: initial values, files of complete tensors and files of shards, on meshes of
 * simulated ranks compared with one rank. All bitwise. */
#include "exec/store/shard_files.h"

#include "base/convert.h"
#include "base/fs.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "exec/store/weights.h"
#include "format/tensors/safetensors.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 8, SEED = 11 };

/* Two linear layers, a moment for each parameter, split as the axes of the mesh say. */
static weft_graph *whole_graph(void)
{
    const weft_init normal = {WEFT_INIT_NORMAL, 0.5};
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(6, 5)),
                     a = weft_param(g, "net.a.weight", WEFT_F32, WEFT_SHAPE(7, 5), normal),
                     b = weft_param(g, "net.b.weight", WEFT_BF16, WEFT_SHAPE(4, 7), normal),
                     c = weft_param(g, "net.b.bias", WEFT_F32, WEFT_SHAPE(4), normal);
    const weft_value h =
        weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, a, WEFT_NONE}, 3, &(weft_attr_linear){0});
    weft_output(g, "y",
                weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){h, weft_cast(g, b, WEFT_F32), c}, 3,
                          &(weft_attr_linear){0}));
    return g;
}

#define S(d)                                                                                       \
    {                                                                                              \
        WEFT_S, d                                                                                  \
    }
static const weft_recipe_row rows[] = {
    {"batch.*", "dp", S(0)},
    {"batch.*", "fsdp", S(0)},
    {"net.a.weight", "tp", S(0)},
    {"net.b.weight", "tp", S(1)},
    {"net.*.weight", "fsdp", S(0), .gather = true},
    {"net.*.bias", "fsdp", S(0), .gather = true},
};
static const weft_recipe recipe = {"test", rows, sizeof rows / sizeof *rows};

typedef struct rank_job {
    weft_mesh mesh;
    int rank, ranks;
    weft_comm *comm;
    weft_graph *graph;
    weft_store *store;
    const char *folder;
    char error[300];
} rank_job;

static void add_moment(weft_graph *g, const char *param, const char *moment)
{
    weft_state_like(g, moment, weft_graph_find(g, param), 0, -1, (weft_init){WEFT_INIT_UNIFORM, 2});
}

static weft_status make(rank_job *j)
{
    weft_graph *whole = whole_graph();
    WEFT_TRY(weft_graph_check(whole));
    WEFT_TRY(weft_pass_shard(whole, &j->mesh, j->rank, &recipe, &j->graph));
    weft_graph_free(whole);
    add_moment(j->graph, "net.a.weight", "adamw.a");
    add_moment(j->graph, "net.b.weight", "adamw.b");
    add_moment(j->graph, "net.b.bias", "adamw.c");
    WEFT_TRY(weft_graph_check(j->graph));
    j->store = weft_store_create();
    return weft_store_init(j->store, j->graph, SEED);
}

typedef weft_status_code (*job)(rank_job *j);

typedef struct call {
    rank_job *j;
    job run;
} call;

static void *call_main(void *user)
{
    call *c = user;
    if (c->run(c->j) != WEFT_OK)
        snprintf(c->j->error, sizeof c->j->error, "%s", weft_error_message());
    return NULL;
}

/* `run` on every rank of the mesh, each in a thread. */
static int on_ranks(const char *mesh, const char *folder, job run, rank_job *j)
{
    weft_comm *comm[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    call calls[MAX_RANKS];
    weft_mesh m;
    cr_assert_eq(weft_mesh_parse(mesh, &m), WEFT_OK);
    const int ranks = weft_mesh_ranks(&m);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        j[r] = (rank_job){.mesh = m, .rank = r, .ranks = ranks, .comm = comm[r], .folder = folder};
        calls[r] = (call){&j[r], run};
        pthread_create(&thread[r], NULL, call_main, &calls[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        weft_comm_free(comm[r]);
        cr_assert_str_empty(j[r].error, "%s, rank %d: %s", mesh, r, j[r].error);
    }
    return ranks;
}

static void release(rank_job *j, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        weft_store_free(j[r].store);
        weft_graph_free(j[r].graph);
    }
}

/* Every rank's tensors are the slices of `one`'s, and each element has one writer. */
static void expect_slices(const rank_job *one, const rank_job *many, int ranks, const char *mesh)
{
    for (int64_t i = 0; i < weft_store_count(one->store); i++) {
        const weft_tensor *all = weft_store_at(one->store, i);
        const weft_box whole = weft_box_whole(&all->shape);
        int64_t written = 0;
        for (int r = 0; r < ranks; r++) {
            const weft_tensor *part = weft_store_find(many[r].store, all->name);
            const int64_t count = weft_shape_count(&part->shape);
            const weft_box box = weft_box_of(part);
            char *slice = malloc((size_t)(count * 8 + 1));
            cr_assert(weft_box_inside(&box, &all->shape), "%s, rank %d: %s", mesh, r, all->name);
            cr_expect(weft_shape_equal(&part->whole, &all->shape));
            cr_expect_eq(weft_box_copy(&box, slice, all->dtype, &whole, all->data, all->dtype),
                         count);
            cr_expect_eq(memcmp(slice, part->data, (size_t)(count * weft_dtype_bytes(all->dtype))),
                         0, "%s, rank %d: %s is not the slice", mesh, r, all->name);
            written += weft_tensor_is_writer(part) ? count : 0;
            free(slice);
        }
        cr_expect_eq(written, weft_shape_count(&all->shape), "%s: %s is written %" PRId64 " times",
                     mesh, all->name, written);
    }
}

/* All writes of this rank fit into the staging memory: it is filled first, then drained. */
static weft_status_code parts_save(weft_store *store, const char *prefix, const char *folder,
                                   const char *stem, int rank, int ranks)
{
    const weft_part_set set = {.folder = "", .stem = stem, .prefix = prefix};
    const weft_part_writer writer = {.rank = rank, .ranks = ranks};
    weft_part_stream *stream;
    WEFT_TRY(weft_part_stream_create(store, &set, 1, &writer, &stream));
    cr_assert_eq(weft_part_stream_feed(stream), WEFT_OK);
    const weft_status_code status = weft_part_stream_drain(stream, folder);
    weft_part_stream_free(stream);
    return status;
}

static weft_status_code parts_load(weft_store *store, const char *prefix, const char *folder,
                                   const char *stem)
{
    const weft_part_set set = {.folder = "", .stem = stem, .prefix = prefix};
    return weft_part_set_load(store, &set, folder);
}

static const char *const meshes[] = {"fsdp=3", "tp=2",        "dp=2,tp=2",
                                     "dp=3",   "fsdp=2,tp=2", "dp=2,fsdp=2,tp=2"};
enum { MESHES = sizeof meshes / sizeof *meshes };

static weft_status_code just_make(rank_job *j)
{
    return make(j);
}

Test(part, initial_values_are_slices_of_one_ranks)
{
    rank_job one, many[MAX_RANKS];
    on_ranks("dp=1", NULL, just_make, &one);
    for (int m = 0; m < MESHES; m++) {
        const int ranks = on_ranks(meshes[m], NULL, just_make, many);
        expect_slices(&one, many, ranks, meshes[m]);
        release(many, ranks);
    }
    release(&one, 1);
}

/* Writes complete tensors and shards, clears the store, and reads complete tensors. */
static weft_status_code save_and_load(rank_job *j)
{
    WEFT_TRY(make(j));
    WEFT_TRY(
        weft_weights_save(j->store, j->comm, j->graph, "net.", j->folder, "model", WEFT_F32, 0));
    WEFT_TRY(parts_save(j->store, "adamw.", j->folder, "optimizer", j->rank, j->ranks));
    WEFT_TRY(weft_comm_barrier(j->comm));
    for (int64_t i = 0; i < weft_store_count(j->store); i++) {
        weft_tensor *t = weft_store_at(j->store, i);
        memset(t->data, 0, (size_t)(weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype)));
    }
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(j->folder, &file));
    WEFT_TRY(weft_weights_load(j->store, j->graph, "net.", file, false));
    return parts_load(j->store, "adamw.", j->folder, "optimizer");
}

static char *fresh_folder(char path[64])
{
    snprintf(path, 64, "/tmp/weft_part_XXXXXX");
    cr_assert_not_null(mkdtemp(path));
    return path;
}

static void expect_equal_files(const char *a, const char *b, const char *name)
{
    char x[200], y[200];
    weft_map one, other;
    snprintf(x, sizeof x, "%s/%s", a, name);
    snprintf(y, sizeof y, "%s/%s", b, name);
    cr_assert_eq(weft_map_open(x, &one), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_map_open(y, &other), WEFT_OK, "%s", weft_error_message());
    cr_expect(one.bytes == other.bytes && !memcmp(one.data, other.data, (size_t)one.bytes),
              "%s and %s differ", x, y);
    weft_map_close(&one);
    weft_map_close(&other);
}

/* Reads the files that another mesh wrote. */
static weft_status_code load_only(rank_job *j)
{
    WEFT_TRY(make(j));
    for (int64_t i = 0; i < weft_store_count(j->store); i++) {
        weft_tensor *t = weft_store_at(j->store, i);
        memset(t->data, 0, (size_t)(weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype)));
    }
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(j->folder, &file));
    WEFT_TRY(weft_weights_load(j->store, j->graph, "net.", file, false));
    return parts_load(j->store, "adamw.", j->folder, "optimizer");
}

Test(part, files_are_the_same_on_any_mesh_and_read_by_any)
{
    char alone[64], folder[64];
    rank_job one, many[MAX_RANKS], again[MAX_RANKS];
    on_ranks("dp=1", fresh_folder(alone), save_and_load, &one);
    for (int m = 0; m < MESHES; m++) {
        const int ranks = on_ranks(meshes[m], fresh_folder(folder), save_and_load, many);
        expect_slices(&one, many, ranks, meshes[m]);
        expect_equal_files(alone, folder, "model.safetensors");
        for (int o = 0; o < 3; o++) {
            const char *other = o == 0 ? "dp=1" : meshes[(m + o) % MESHES];
            const int readers = on_ranks(other, folder, load_only, again);
            expect_slices(&one, again, readers, other);
            release(again, readers);
        }
        release(many, ranks);
        cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
    }
    release(&one, 1);
    cr_expect_eq(weft_remove_tree(alone), WEFT_OK);
}

/* No file stores a shard under the name of a complete tensor, and each shard is stored once. */
static weft_status_code save_parts(rank_job *j)
{
    WEFT_TRY(make(j));
    return parts_save(j->store, "", j->folder, "all", j->rank, j->ranks);
}

Test(part, names_in_files_tell_what_part_they_hold)
{
    char folder[64];
    rank_job many[MAX_RANKS];
    weft_names names = {0};
    int64_t bytes = 0, whole_bytes = 0, named = 0;
    const int ranks = on_ranks("dp=2,tp=2", fresh_folder(folder), save_parts, many);
    for (int64_t i = 0; i < weft_store_count(many[0].store); i++) {
        const weft_tensor *t = weft_store_at(many[0].store, i);
        whole_bytes += weft_shape_count(&t->whole) * weft_dtype_bytes(t->dtype);
    }
    cr_assert_eq(weft_list_dir(folder, false, &names), WEFT_OK);
    cr_expect(names.count > 2, "ranks that hold copies share the writing");
    for (int64_t i = 0; i < names.count; i++) {
        weft_tensors *file;
        char *path = weft_path_join(folder, names.name[i]);
        cr_assert_eq(weft_tensors_open(path, &file), WEFT_OK, "%s", weft_error_message());
        named += weft_tensors_find(file, "net.a.weight[0:4/7,0:5/5]") != NULL;
        named += weft_tensors_find(file, "net.b.bias") != NULL;
        cr_expect_null(weft_tensors_find(file, "net.a.weight"));
        for (int64_t t = 0; t < weft_tensors_count(file); t++)
            bytes += weft_tensors_at(file, t)->bytes;
        weft_tensors_close(file);
        weft_free(path);
    }
    cr_expect_eq(named, 2);
    cr_expect_eq(bytes, whole_bytes);
    weft_names_free(&names);
    release(many, ranks);
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

/* Fills `store` with initial values of `seed`, then net.a from the folder, if it is named. */
static weft_status_code fill_and_load(rank_job *j, weft_store *store, const char *folder,
                                      uint64_t seed)
{
    weft_tensors *file;
    WEFT_TRY(WEFT_ALLOCATED(store, "a store"));
    WEFT_TRY(weft_store_init(store, j->graph, seed));
    if (!folder)
        return WEFT_OK;
    WEFT_TRY(weft_tensors_open(folder, &file));
    return weft_weights_load(store, j->graph, "net.a.", file, false);
}

static int64_t bytes_of(const weft_tensor *t)
{
    return weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}

static bool is_zero(const weft_tensor *t)
{
    const unsigned char *data = t->data;
    for (int64_t i = 0; i < bytes_of(t); i++)
        if (data[i])
            return false;
    return true;
}

/* Compares deferred draws with immediate ones: net.a from a file, net.b drawn by name. */
static weft_status_code defer_and_load(rank_job *j)
{
    weft_store *other = weft_store_create(), *store = weft_store_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(make(j));
    WEFT_GO(fill_and_load(j, other, NULL, SEED + 1));
    WEFT_GO(weft_weights_save(other, j->comm, j->graph, "net.a.", j->folder, "model", WEFT_F32, 0));
    WEFT_GO(weft_comm_barrier(j->comm));
    WEFT_GO(WEFT_ALLOCATED(store, "a store"));
    weft_store_defer_draws(store);
    WEFT_GO(fill_and_load(j, store, j->folder, SEED));
    cr_expect(is_zero(weft_store_find(store, "net.b.weight")), "drawn early");
    cr_expect(is_zero(weft_store_find(store, "net.b.bias")), "drawn early");
    cr_expect(!is_zero(weft_store_find(store, "adamw.a")), "a state is not deferred");
    WEFT_GO(weft_store_draw_deferred(store, "net.b.w"));
    cr_expect(is_zero(weft_store_find(store, "net.b.bias")), "of another name");
    WEFT_GO(weft_store_draw_deferred(store, ""));
    WEFT_GO(fill_and_load(j, j->store, j->folder, SEED));
    for (int64_t i = 0; i < weft_store_count(j->store); i++) {
        const weft_tensor *a = weft_store_at(j->store, i), *b = weft_store_find(store, a->name);
        cr_expect_eq(memcmp(a->data, b->data, (size_t)bytes_of(a)), 0, "rank %d: %s", j->rank,
                     a->name);
    }
out:
    weft_store_free(other);
    weft_store_free(store);
    return status;
}

Test(part, deferred_initial_values_are_drawn_unless_a_file_has_them)
{
    char folder[64];
    rank_job many[MAX_RANKS];
    for (int m = -1; m < MESHES; m++) {
        const int ranks =
            on_ranks(m < 0 ? "dp=1" : meshes[m], fresh_folder(folder), defer_and_load, many);
        release(many, ranks);
        cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
    }
}

/* Reserved params are not drawn: params whose initial value is 1 stay 0, and a state has its own
 * value. A param of another type in the store is an error. */
Test(part, reserved_params_have_no_initial_values)
{
    const weft_shape shape = WEFT_SHAPE(3, 5);
    const weft_init ones = {WEFT_INIT_FILL, 1};
    weft_graph *g = weft_graph_create(), *other = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_output(g, "w", weft_param(g, "net.weight", WEFT_F32, shape, ones));
    weft_output(g, "s", weft_state(g, "count", WEFT_F32, shape, ones));
    weft_output(other, "w", weft_param(other, "net.weight", WEFT_BF16, shape, ones));
    cr_assert_eq(weft_weights_reserve(store, g), WEFT_OK, "%s", weft_error_message());
    cr_expect_null(weft_store_find(store, "count"));
    cr_assert_eq(weft_weights_prepare(store, g), WEFT_OK, "%s", weft_error_message());
    const float *weight = weft_store_find(store, "net.weight")->data,
                *count = weft_store_find(store, "count")->data;
    for (int i = 0; i < 15; i++) {
        cr_expect_eq(weight[i], 0);
        cr_expect_eq(count[i], 1);
    }
    cr_expect_neq(weft_weights_reserve(store, other), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_TENSOR_SHAPE);
    weft_store_free(store);
    weft_graph_free(g);
    weft_graph_free(other);
}

Test(part, damage_is_named)
{
    char folder[64], path[128];
    rank_job many[MAX_RANKS];
    const int ranks = on_ranks("fsdp=3", fresh_folder(folder), save_parts, many);
    weft_store *store = many[1].store;
    cr_expect_eq(
        weft_weights_save(store, NULL, many[1].graph, "net.", folder, "model", WEFT_F32, 0),
        WEFT_E_ARG, "a part under a whole name");
    cr_expect_eq(parts_load(store, "net.", folder, "all"), WEFT_E_FORMAT);
    cr_expect_eq(weft_error_class(), WEFT_MSG_TENSOR_NAMES, "%s", weft_error_message());
    cr_expect(strstr(weft_error_text(), "adamw.a"), "unknown: %s", weft_error_message());
    cr_expect_eq(parts_load(store, "", folder, "al"), WEFT_E_NOT_FOUND);
    cr_expect_eq(parts_save(store, "", folder, "all", 5, 7), WEFT_OK);
    cr_expect_eq(parts_load(store, "", folder, "all"), WEFT_E_FORMAT);
    cr_expect_eq(weft_error_class(), WEFT_MSG_CHECKPOINT_DAMAGED, "%s", weft_error_message());
    snprintf(path, sizeof path, "%s/all-rank-00005-of-00007.safetensors", folder);
    cr_expect_eq(remove(path), 0);
    cr_expect_eq(parts_load(store, "", folder, "all"), WEFT_OK, "%s", weft_error_message());
    snprintf(path, sizeof path, "%s/all-rank-00001-of-00003.safetensors", folder);
    cr_expect_eq(remove(path), 0);
    cr_expect_eq(parts_load(store, "", folder, "all"), WEFT_E_FORMAT);
    cr_expect_eq(weft_error_class(), WEFT_MSG_TENSOR_MISSING, "%s", weft_error_message());
    cr_expect(strstr(weft_error_text(), "net.a.weight"), "%s", weft_error_message());
    release(many, ranks);
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK);
}

/* Against a loop over elements; boxes that overlap partly, not at all, or in single elements. */
Test(part, boxes_meet_where_both_are)
{
    uint64_t state = 5;
    for (int round = 0; round < 500; round++) {
        weft_box box[2] = {{.shape.rank = 3}, {.shape.rank = 3}};
        float from[216], to[216], expected[216];
        for (int b = 0; b < 2; b++)
            for (int d = 0; d < 3; d++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                box[b].start[d] = (int64_t)(state >> 33) % 4;
                box[b].shape.dim[d] = (int64_t)(state >> 40) % 7;
            }
        int64_t met = 0, at = 0;
        for (int i = 0; i < 216; i++)
            from[i] = (float)i, to[i] = expected[i] = -1;
        for (int64_t x = 0; x < box[0].shape.dim[0]; x++)
            for (int64_t y = 0; y < box[0].shape.dim[1]; y++)
                for (int64_t z = 0; z < box[0].shape.dim[2]; z++, at++) {
                    const int64_t i[3] = {x + box[0].start[0] - box[1].start[0],
                                          y + box[0].start[1] - box[1].start[1],
                                          z + box[0].start[2] - box[1].start[2]};
                    bool inside = true;
                    for (int d = 0; d < 3; d++)
                        inside = inside && i[d] >= 0 && i[d] < box[1].shape.dim[d];
                    if (!inside)
                        continue;
                    expected[at] =
                        (float)((i[0] * box[1].shape.dim[1] + i[1]) * box[1].shape.dim[2] + i[2]);
                    met++;
                }
        cr_assert_eq(weft_box_copy(&box[0], to, WEFT_F32, &box[1], from, WEFT_F32), met);
        cr_assert_eq(memcmp(to, expected, sizeof to), 0);
    }
}

Test(part, a_box_is_inside_when_both_of_its_ends_are)
{
    const weft_shape whole = WEFT_SHAPE(6, 4);
    const struct {
        int64_t start, length;
        bool inside;
    } cases[] = {{0, 6, true},  {2, 4, true},   {6, 0, true},   {2, 5, false},
                 {6, 1, false}, {-1, 3, false}, {0, -1, false}, {0, 7, false}};
    for (int i = 0; i < 8; i++) {
        const weft_box box = {.start = {cases[i].start, 1},
                              .shape = WEFT_SHAPE(cases[i].length, 3)};
        cr_expect_eq(weft_box_inside(&box, &whole), cases[i].inside, "row %d", i);
    }
    const weft_box flat = {.shape = WEFT_SHAPE(6)};
    cr_expect_not(weft_box_inside(&flat, &whole), "another rank");
}
