/* Data sets of several sources: the items of every epoch, their order, resuming, limits and prompt
 * prefixes. The samples are small arrays, so that nothing is decoded. */
#include "base/fs.h"
#include "base/hash.h"
#include "base/rng.h"
#include "data/loader_order.h"
#include "data/loader_report.h"
#include "data/shard_file.h"
#include "format/tensors/npy.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WEB = 23, ART = 7, SMALL = 3, ALL = WEB + ART + SMALL };
static const int64_t counts[] = {WEB, ART, SMALL};
static const char *const names[] = {"web", "art", "small"};

static char root[] = "/tmp/weft-blend-XXXXXX";
static char place[3][64];
static weft_bucket buckets[1] = {{5, 1, 1, 1}};

/* Samples k000, k001 ... with the caption "NAME k" in shards of five. The keys of all sources are
 * alike, as are the names of their shards. */
static void write_source(int source)
{
    weft_storage *storage;
    weft_shard_file *file = NULL;
    snprintf(place[source], sizeof place[source], "%s/%s", root, names[source]);
    cr_assert_eq(weft_make_dirs(place[source]), WEFT_OK);
    cr_assert_eq(weft_storage_open(place[source], &storage), WEFT_OK);
    for (int64_t i = 0; i < counts[source]; i++) {
        char name[64];
        weft_buf array = {0};
        const float value = (float)(100 * source + i);
        if (i % 5 == 0) {
            snprintf(name, sizeof name, "train-%06d.tar", (int)(i / 5));
            cr_assert_eq(weft_shard_file_create(storage, name, &file), WEFT_OK);
        }
        weft_npy_format(WEFT_F32, 4, (int64_t[]){1, 1, 1, 1}, &value, &array);
        snprintf(name, sizeof name, "k%03d", (int)i);
        cr_assert_eq(weft_shard_file_add(file, name, "x.npy", array.data, array.len), WEFT_OK);
        weft_buf_free(&array);
        char text[64];
        snprintf(text, sizeof text, "%s %d", names[source], (int)i);
        cr_assert_eq(weft_shard_file_add(file, name, "txt", text, (int64_t)strlen(text)), WEFT_OK);
        if (i % 5 == 4 || i == counts[source] - 1) {
            cr_assert_eq(weft_shard_file_finish(file, NULL, NULL), WEFT_OK);
            weft_shard_file_free(file);
        }
    }
    weft_storage_close(storage);
}

static void setup(void)
{
    cr_assert(mkdtemp(root));
    for (int s = 0; s < 3; s++)
        write_source(s);
}

static void teardown(void)
{
    cr_assert_eq(weft_remove_tree(root), WEFT_OK);
}
TestSuite(blend, .init = setup, .fini = teardown);

static weft_data_source three[3];
static const double weights[] = {0.4, 2.5, 1};
static const int64_t items[] = {9, 18, 3}; /* round(weight * count) */

static weft_loader_config config_of(int blend)
{
    for (int s = 0; s < 3; s++)
        three[s] = (weft_data_source){.name = "",
                                      .path = place[s],
                                      .split = "",
                                      .weight = weights[s],
                                      .prompt_prefix = s == 1 ? "painting, " : ""};
    return (weft_loader_config){.sources = {3, three},
                                .split = "train",
                                .blend = blend,
                                .buckets = {1, buckets},
                                .seed = 11,
                                .threads = 1,
                                .prefetch = 1};
}

static weft_loader *open_as(const weft_loader_config *config, int rank, int ranks)
{
    weft_loader *loader = NULL;
    cr_assert_eq(weft_loader_open(config, rank, ranks, "x.npy", 1, &loader), WEFT_OK, "%s",
                 weft_error_message());
    return loader;
}

/* The source of a value, and the index of its sample in the source. */
static int source_of(float value, int *sample)
{
    *sample = (int)value % 100;
    return (int)value / 100;
}

/* Counts of the samples of the next `batches` batches. A caption belongs to its value, and no two
 * items of a sample have one number of an epoch. */
static void count_items(weft_loader *loader, int64_t batches, int64_t count[3][WEB])
{
    static bool seen[3][WEB][4096];
    memset(seen, 0, sizeof seen);
    for (int64_t b = 0; b < batches; b++) {
        weft_batch batch;
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
        for (int64_t i = 0; i < batch.count; i++) {
            int k;
            const int s = source_of(batch.part[i], &k);
            char caption[64];
            snprintf(caption, sizeof caption, "%s%s %d", s == 1 ? "painting, " : "", names[s], k);
            cr_assert_str_eq(batch.caption[i], caption);
            cr_assert(batch.epoch[i] < 4096 && !seen[s][k][batch.epoch[i]],
                      "%s: twice with epoch %" PRId64, caption, batch.epoch[i]);
            seen[s][k][batch.epoch[i]] = true;
            count[s][k]++;
        }
    }
}

/* Every epoch has round(weight * count) items of a source, and the samples of a source differ by at
 * most one after every epoch. Epochs are 30 items: 6 batches. */
Test(blend, weights_are_exact_in_every_epoch)
{
    const weft_loader_config config = config_of(WEFT_BLEND_EXACT);
    weft_loader *loader = open_as(&config, 0, 1);
    int64_t count[3][WEB] = {{0}};
    cr_assert_eq(weft_loader_bucket_samples(loader, 0), 30);
    for (int64_t epoch = 1; epoch <= 40; epoch++) {
        count_items(loader, 6, count);
        for (int s = 0; s < 3; s++) {
            int64_t sum = 0, least = count[s][0], most = count[s][0];
            for (int k = 0; k < counts[s]; k++) {
                sum += count[s][k];
                least = count[s][k] < least ? count[s][k] : least;
                most = count[s][k] > most ? count[s][k] : most;
            }
            cr_assert_eq(sum, epoch * items[s]);
            cr_assert_leq(most - least, 1, "%s in epoch %d", names[s], (int)epoch);
        }
    }
    weft_loader_close(loader);
}

/* Drawn sources: an epoch has 30 items, and the sums over 300 epochs are within five standard
 * deviations of the expected ones. Epochs differ. */
Test(blend, drawn_sources_have_the_shares_of_their_weights)
{
    enum { EPOCHS = 300 };
    const weft_loader_config config = config_of(WEFT_BLEND_SAMPLED);
    weft_loader *loader = open_as(&config, 0, 1);
    int64_t sum[3] = {0};
    bool differs = false;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        int64_t here[3][WEB] = {{0}};
        count_items(loader, 6, here);
        for (int s = 0; s < 3; s++) {
            int64_t own = 0;
            for (int k = 0; k < counts[s]; k++)
                own += here[s][k];
            differs |= own != items[s];
            sum[s] += own;
        }
    }
    cr_assert(differs);
    for (int s = 0; s < 3; s++) {
        const double p = (double)items[s] / 30, wanted = 30 * p * EPOCHS,
                     off = (double)sum[s] - wanted;
        cr_assert(off * off < 25 * wanted * (1 - p), "%s: %d items, expected %g", names[s],
                  (int)sum[s], wanted);
    }
    weft_loader_close(loader);
}

/* Three ranks together have the items of one rank, and a state of one rank resumes on three. */
static void resume_on_three(int blend)
{
    const weft_loader_config config = config_of(blend);
    weft_loader *one = open_as(&config, 0, 1), *part[3];
    weft_batch whole, own;
    for (int b = 0; b < 17; b++)
        cr_assert_eq(weft_loader_next(one, &whole), WEFT_OK);
    json_t *state = weft_loader_state(one);
    for (int r = 0; r < 3; r++) {
        part[r] = open_as(&config, r, 3);
        cr_assert_eq(weft_loader_restore(part[r], state, "state"), WEFT_OK, "%s",
                     weft_error_message());
    }
    for (int b = 0; b < 20; b++) {
        int64_t at = 0;
        cr_assert_eq(weft_loader_next(one, &whole), WEFT_OK);
        for (int r = 0; r < 3; r++) {
            cr_assert_eq(weft_loader_next(part[r], &own), WEFT_OK);
            for (int64_t i = 0; i < own.count; i++, at++) {
                cr_assert_eq(own.id[i], whole.id[at]);
                cr_assert_eq(own.epoch[i], whole.epoch[at]);
                cr_assert_str_eq(own.caption[i], whole.caption[at]);
            }
        }
        cr_assert_eq(at, whole.count);
    }
    three[0].weight = 0.8; /* another order, so the state is refused */
    weft_loader *other = open_as(&config, 0, 1);
    cr_assert_eq(weft_loader_restore(other, state, "state"), WEFT_E_CONFIG);
    weft_loader_close(other);
    json_decref(state);
    weft_loader_close(one);
    for (int r = 0; r < 3; r++)
        weft_loader_close(part[r]);
}

Test(blend, exact_resumes_on_another_number_of_ranks)
{
    resume_on_three(WEFT_BLEND_EXACT);
}

Test(blend, sampled_resumes_on_another_number_of_ranks)
{
    resume_on_three(WEFT_BLEND_SAMPLED);
}

/* A limited source has the same samples with any seed; the report counts the other ones. */
Test(blend, limits_and_the_report)
{
    weft_loader_config config = config_of(WEFT_BLEND_EXACT);
    int64_t first[3][WEB] = {{0}};
    for (int64_t seed = 1; seed <= 2; seed++) {
        three[0].limit = 4;
        config.seed = seed;
        weft_loader *loader = open_as(&config, 0, 1);
        int64_t count[3][WEB] = {{0}}, used = 0;
        count_items(loader, 60, count);
        for (int k = 0; k < WEB; k++) {
            used += count[0][k] > 0;
            cr_assert(seed == 1 || !count[0][k] == !first[0][k], "sample %d", k);
        }
        cr_assert_eq(used, 4);
        memcpy(first, count, sizeof first);
        const weft_data_source_report web = weft_loader_source_report(loader, 0),
                                      art = weft_loader_source_report(loader, 1);
        cr_assert(web.all == WEB && web.used == 4 && web.limited == WEB - 4 && web.items == 2);
        cr_assert(art.all == ART && art.used == ART && art.items == 18 && art.repeated == 11);
        const weft_loader_report r = weft_loader_get_report(loader);
        cr_assert(r.all_samples == ALL && r.samples[WEFT_SAMPLE_LIMITED] == WEB - 4);
        json_t *json = weft_loader_report_json(loader);
        const json_t *listed = json_array_get(json_object_get(json, "sources"), 1);
        cr_assert_str_eq(json_string_value(json_object_get(listed, "name")), "art");
        cr_assert_eq(json_integer_value(json_object_get(listed, "repeated")), 11);
        json_decref(json);
        weft_loader_close(loader);
    }
}

/* A shard that was written from a list has keys NAME/KEY, which name the sources. */
Test(blend, shards_of_keys_that_name_their_sources)
{
    weft_storage *storage;
    weft_shard_file *file;
    char folder[64];
    snprintf(folder, sizeof folder, "%s/cache", root);
    cr_assert_eq(weft_make_dirs(folder), WEFT_OK);
    cr_assert_eq(weft_storage_open(folder, &storage), WEFT_OK);
    cr_assert_eq(weft_shard_file_create(storage, "all.tar", &file), WEFT_OK);
    for (int64_t i = 0; i < ALL; i++) { /* sources alternate */
        const int s = (int)(i % 3);
        char key[64], text[64];
        weft_buf array = {0};
        if (i / 3 >= counts[s])
            continue;
        const float value = (float)(100 * s + i / 3);
        snprintf(key, sizeof key, "%s/k%03d", names[s], (int)(i / 3));
        snprintf(text, sizeof text, "%s %d", names[s], (int)(i / 3));
        weft_npy_format(WEFT_F32, 4, (int64_t[]){1, 1, 1, 1}, &value, &array);
        cr_assert_eq(weft_shard_file_add(file, key, "x.npy", array.data, array.len), WEFT_OK);
        cr_assert_eq(weft_shard_file_add(file, key, "txt", text, (int64_t)strlen(text)), WEFT_OK);
        weft_buf_free(&array);
    }
    cr_assert_eq(weft_shard_file_finish(file, NULL, NULL), WEFT_OK);
    weft_shard_file_free(file);
    weft_storage_close(storage);
    weft_loader_config config = config_of(WEFT_BLEND_EXACT);
    config.shards = folder;
    config.split = NULL;
    weft_loader *loader = open_as(&config, 0, 1);
    int64_t count[3][WEB] = {{0}};
    count_items(loader, 12, count);
    cr_assert_eq(weft_loader_source_report(loader, 1).items, 18);
    weft_loader_close(loader);
    three[1].name = "paintings"; /* no source has the key art/k000 */
    cr_assert_eq(weft_loader_open(&config, 0, 1, "x.npy", 1, &loader), WEFT_E_FORMAT);
}

static int by_rank(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* Keys, order and fingerprint of a single path are computed here from their definitions. */
Test(blend, a_single_path_has_its_own_keys_and_order)
{
    weft_loader_config config = config_of(WEFT_BLEND_EXACT);
    config.sources = (weft_section_list){0};
    config.shards = place[0];
    weft_loader *loader = open_as(&config, 0, 1);
    uint64_t order[WEB][2], sum = 0;
    weft_batch batch;
    int64_t at = 0;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        const uint64_t base = weft_seed_mix(weft_seed_mix(11, WEFT_RNG_SHUFFLE), epoch);
        for (int i = 0; i < WEB; i++) {
            char key[16];
            const int length = snprintf(key, sizeof key, "k%03d", i);
            order[i][1] = XXH3_64bits(key, (size_t)length);
            order[i][0] = weft_seed_mix(base, order[i][1]);
        }
        qsort(order, WEB, sizeof *order, by_rank);
        for (int i = 0; i < WEB; i++, at++) {
            if (at % 5 == 0)
                cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK);
            cr_assert_eq(batch.id[at % 5], order[i][1]);
            cr_assert_eq(batch.epoch[at % 5], (int64_t)epoch);
        }
    }
    for (int i = 0; i < WEB; i++)
        sum += weft_seed_mix(0, order[i][1]);
    json_t *state = weft_loader_state(loader);
    char wanted[32];
    snprintf(wanted, sizeof wanted, "%016" PRIx64, weft_seed_mix(weft_seed_mix(0, 5), sum));
    cr_assert_str_eq(json_string_value(json_object_get(state, "samples")), wanted);
    json_decref(state);
    weft_loader_close(loader);
}

/* A window reads few shards at a time also with copies, and has all items. */
Test(blend, a_shuffle_buffer_keeps_the_weights)
{
    weft_loader_config config = config_of(WEFT_BLEND_EXACT);
    config.shuffle = 8;
    weft_loader *loader = open_as(&config, 0, 1);
    int64_t count[3][WEB] = {{0}}, sum[3] = {0};
    count_items(loader, 6, count);
    for (int s = 0; s < 3; s++)
        for (int k = 0; k < counts[s]; k++)
            sum[s] += count[s][k];
    for (int s = 0; s < 3; s++)
        cr_assert_eq(sum[s], items[s]);
    weft_loader_close(loader);
}

Test(blend, wrong_lists_are_refused)
{
    weft_loader_config config = config_of(WEFT_BLEND_EXACT);
    weft_loader *loader;
    cr_assert_eq(weft_data_sources_check(&config.sources, "run.yaml", "data.path"), WEFT_OK);
    three[2].name = "web";
    cr_assert_eq(weft_data_sources_check(&config.sources, "run.yaml", "data.path"), WEFT_E_CONFIG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_CONFIG_CONFLICT);
    three[2].name = "a/b";
    cr_assert_eq(weft_data_sources_check(&config.sources, "run.yaml", "data.path"), WEFT_E_CONFIG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_CONFIG_VALUE);
    config = config_of(WEFT_BLEND_EXACT);
    three[1].path = "/nowhere";
    cr_assert_neq(weft_loader_open(&config, 0, 1, "x.npy", 1, &loader), WEFT_OK);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SHARDS_NOT_FOUND);
    cr_assert(strstr(weft_error_message(), "source nowhere"), "%s", weft_error_message());
    config = config_of(WEFT_BLEND_EXACT);
    for (int s = 0; s < 3; s++)
        three[s].weight = 0.01;
    cr_assert_neq(weft_loader_open(&config, 0, 1, "x.npy", 1, &loader), WEFT_OK);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SAMPLES_NONE);
}

/* ---- shares of buckets --------------------------------------------------------------------- */

static const weft_bucket shapes[3] = {{4, 1, 1, 1}, {3, 2, 1, 1}, {2, 3, 1, 1}};

/* Twelve samples of one frame, six of two and six of three. */
static void write_shapes(char folder[64])
{
    weft_storage *storage;
    weft_shard_file *file;
    const float values[3] = {0};
    snprintf(folder, 64, "%s/shapes", root);
    cr_assert_eq(weft_make_dirs(folder), WEFT_OK);
    cr_assert_eq(weft_storage_open(folder, &storage), WEFT_OK);
    cr_assert_eq(weft_shard_file_create(storage, "train-000000.tar", &file), WEFT_OK);
    for (int i = 0; i < 24; i++) {
        char key[16];
        weft_buf array = {0};
        snprintf(key, sizeof key, "k%02d", i);
        weft_npy_format(WEFT_F32, 4,
                        (int64_t[]){i < 12   ? 1
                                    : i < 18 ? 2
                                             : 3,
                                    1, 1, 1},
                        values, &array);
        cr_assert_eq(weft_shard_file_add(file, key, "x.npy", array.data, array.len), WEFT_OK);
        weft_buf_free(&array);
    }
    cr_assert_eq(weft_shard_file_finish(file, NULL, NULL), WEFT_OK);
    weft_shard_file_free(file);
    weft_storage_close(storage);
}

static weft_loader_config shapes_config(const char *folder, const weft_bucket *three_shapes)
{
    return (weft_loader_config){.shards = folder,
                                .split = "train",
                                .buckets = {3, (void *)(uintptr_t)three_shapes},
                                .seed = 4,
                                .threads = 1,
                                .prefetch = 2};
}

/* Adds the samples of the next batches by bucket. */
static void take(weft_loader *loader, int64_t batches, int64_t taken[3])
{
    weft_batch batch;
    for (int64_t i = 0; i < batches; i++) {
        cr_assert_eq(weft_loader_next(loader, &batch), WEFT_OK, "%s", weft_error_message());
        taken[batch.bucket] += batch.count;
    }
}

/* A bucket with a share of one half has it; the other two divide the rest by their samples. */
Test(blend, shares_of_buckets)
{
    char folder[64];
    weft_bucket own[3];
    int64_t taken[3] = {0};
    write_shapes(folder);
    memcpy(own, shapes, sizeof own);
    own[2].share = 0.5;
    const weft_loader_config config = shapes_config(folder, own);
    weft_loader *loader = open_as(&config, 0, 1);
    take(loader, 400, taken);
    const double all = (double)(taken[0] + taken[1] + taken[2]);
    cr_assert_float_eq((double)taken[2] / all, 0.5, 0.01);
    cr_assert_float_eq((double)taken[0] / all, 0.5 * 12 / 18, 0.01);
    weft_loader_close(loader);
}

/* The share of images falls from 0.8 to 0.2 in 300 batches: 60 batches in a row have their mean
 * share, within two batches. A state resumes with the same buckets, and the buckets
 * of later batches are known ahead. */
Test(blend, the_share_of_images_changes_linearly)
{
    enum { BATCHES = 300, STRETCH = 60 };
    static const bool image[3] = {true, false, false};
    char folder[64];
    write_shapes(folder);
    weft_loader_config config = shapes_config(folder, shapes);
    config.image = image;
    config.images = 0.8;
    config.last_images = 0.2;
    config.image_batches = BATCHES;
    weft_loader *loader = open_as(&config, 0, 1), *again = open_as(&config, 0, 1);
    for (int64_t first = 0; first < BATCHES; first += STRETCH) {
        int64_t taken[3] = {0}, after[3] = {0};
        json_t *state = weft_loader_state(loader);
        char *text = json_dumps(state, 0);
        json_decref(state);
        state = json_loads(text, 0, NULL);
        free(text);
        take(again, 7, after); /* elsewhere */
        cr_assert_eq(weft_loader_restore(again, state, "state"), WEFT_OK, "%s",
                     weft_error_message());
        json_decref(state);
        for (int64_t i = 0; i < STRETCH; i++) {
            int64_t one[3] = {0}, other[3] = {0}, most;
            int next;
            weft_item item[4];
            cr_assert_eq(weft_loader_peek(again, 0, &next, item, &most), WEFT_OK);
            take(loader, 1, one);
            take(again, 1, other);
            cr_assert_eq(memcmp(one, other, sizeof one), 0);
            cr_assert_gt(one[next], 0);
            for (int b = 0; b < 3; b++)
                taken[b] += one[b];
        }
        const double all = (double)(taken[0] + taken[1] + taken[2]),
                     middle = ((double)first + 0.5 * STRETCH) / BATCHES, share = 0.8 - 0.6 * middle;
        cr_assert_float_eq((double)taken[0], share * all, 8, "from %d: %d of %g", (int)first,
                           (int)taken[0], all);
        cr_assert_float_eq((double)taken[1], (double)taken[2], 6);
    }
    weft_loader_close(loader);
    weft_loader_close(again);
}
