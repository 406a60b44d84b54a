/* The synthetic data set is deterministic, complete and readable, and lists exactly the
 * combinations that it holds out. */
#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "curate/synth.h"
#include "video/clip.h"
#include "video/reader.h"
#include "video/shape_reader.h"
#include "video/shapes.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const weft_synth_options small = {.shots = 30,
                                         .radius = 10,
                                         .size = 64,
                                         .min_frames = 18,
                                         .max_frames = 24,
                                         .fps = 24,
                                         .max_per_video = 6,
                                         .single_share = 0.2,
                                         .gradual_share = 0.3,
                                         .held_out = 8,
                                         .held_out_clips = 1,
                                         .seed = 5,
                                         .quiet = true};

static char *joined(const char *dir, const char *format, const char *name)
{
    weft_buf path = {0};
    weft_buf_printf(&path, "%s/", dir);
    weft_buf_printf(&path, format, name);
    return path.data;
}

static char *make_set(const weft_synth_options *options, const char *suffix,
                      weft_synth_report *report)
{
    weft_buf dir = {0};
    weft_buf_printf(&dir, "/tmp/weft-synth-%d-%s", (int)getpid(), suffix);
    cr_assert_eq(weft_remove_tree(dir.data), WEFT_OK);
    cr_assert_eq(weft_synth_write(dir.data, options, report), WEFT_OK, "%s", weft_error_message());
    return dir.data;
}

/* The words that the pixels of frames [start, start + count) show. */
static weft_shape_words read_words(const char *path, int64_t start, int64_t count)
{
    uint8_t *rgb = weft_alloc((start + count) * 64 * 64 * 3);
    const weft_clip_request q = {.frames = start + count, .height = 64, .width = 64};
    cr_assert_eq(weft_clip_read_u8(path, &q, rgb), WEFT_OK, "%s", weft_error_message());
    weft_shape_reading reading;
    cr_assert_eq(weft_shape_read(rgb + start * 64 * 64 * 3, count, 64, 64, &reading), WEFT_OK);
    weft_free(rgb);
    return reading.words;
}

Test(synth, files_say_what_they_show)
{
    weft_synth_report report;
    char *dir = make_set(&small, "set", &report);
    char *train = joined(dir, "%s", "train");
    weft_names names = {0};
    cr_assert_eq(report.shots, 30);
    cr_assert_eq(weft_list_dir(train, false, &names), WEFT_OK);
    bool held[WEFT_SHAPE_ALL];
    cr_assert_eq(weft_synth_hold_out(small.held_out, -1, small.seed, held), WEFT_OK);
    int64_t shots = 0, right = 0;
    for (int64_t i = 0; i < names.count; i++) {
        char *path = joined(train, "%s", names.name[i]);
        char *video = weft_strdup(path);
        strcpy(strrchr(video, '.'), ".mp4");
        if (strcmp(weft_path_extension(path), "txt") == 0) {
            char *text;
            int64_t bytes;
            cr_assert_eq(weft_file_read(path, 1000, &text, &bytes), WEFT_OK);
            const int want = weft_shape_combination(weft_shape_parse(text));
            cr_assert_not(held[want], "%s is held out", text);
            right += weft_shape_combination(read_words(video, 0, 18)) == want;
            shots++;
            weft_free(text);
        } else if (strcmp(weft_path_extension(path), "json") == 0) {
            json_t *root, *shot;
            size_t k;
            cr_assert_eq(weft_json_load(path, &root), WEFT_OK);
            json_array_foreach(json_object_get(root, "shots"), k, shot)
            {
                const int want = weft_shape_combination(
                    weft_shape_parse(json_string_value(json_object_get(shot, "caption"))));
                cr_assert_not(held[want]);
                const int64_t start = json_integer_value(json_object_get(shot, "start"));
                const int64_t end = json_integer_value(json_object_get(shot, "end"));
                cr_assert_geq(end - start + 1, 18);
                right += weft_shape_combination(read_words(video, start, end - start + 1)) == want;
                shots++;
            }
            json_decref(root);
        }
        weft_free(video);
        weft_free(path);
    }
    cr_assert_eq(shots, 30);
    cr_assert_geq(right, 30, "%d of 30 shots show the shape of their caption", (int)right);
    cr_assert_eq(weft_synth_write(dir, &small, &report), WEFT_E_ARG,
                 "an earlier set is not mixed in");
    weft_names_free(&names);
    cr_assert_eq(weft_remove_tree(dir), WEFT_OK);
    weft_free(train);
    weft_free(dir);
}

Test(synth, the_same_seed_gives_the_same_files)
{
    weft_synth_options o = small;
    o.shots = 8;
    o.held_out_clips = 0;
    weft_synth_report report;
    char *a = make_set(&o, "a", &report), *b = make_set(&o, "b", &report);
    weft_names names = {0};
    cr_assert_eq(weft_list_dir(a, true, &names), WEFT_OK);
    cr_assert_gt(names.count, 6);
    for (int64_t i = 0; i < names.count; i++) {
        char *pa = joined(a, "%s", names.name[i]), *pb = joined(b, "%s", names.name[i]);
        char *da, *db;
        int64_t na, nb;
        cr_assert_eq(weft_file_read(pa, 1 << 24, &da, &na), WEFT_OK);
        cr_assert_eq(weft_file_read(pb, 1 << 24, &db, &nb), WEFT_OK);
        cr_assert_eq(na, nb, "%s", names.name[i]);
        cr_assert_eq(memcmp(da, db, (size_t)na), 0, "%s", names.name[i]);
        weft_free(da);
        weft_free(db);
        weft_free(pa);
        weft_free(pb);
    }
    weft_names_free(&names);
    cr_assert_eq(weft_remove_tree(a), WEFT_OK);
    cr_assert_eq(weft_remove_tree(b), WEFT_OK);
    weft_free(a);
    weft_free(b);
}

Test(synth, every_pair_of_words_stays_in_training)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        bool held[WEFT_SHAPE_ALL];
        cr_assert_eq(weft_synth_hold_out(8, -1, seed, held), WEFT_OK);
        int count = 0;
        for (int i = 0; i < 48; i++)
            count += held[i];
        cr_assert_eq(count, 8);
        for (int c = 0; c < 4; c++)
            for (int d = 0; d < 4; d++) {
                bool shown = false;
                for (int s = 0; s < 3; s++)
                    shown |= !held[weft_shape_combination((weft_shape_words){c, s, d})];
                cr_assert(shown);
            }
        /* the losses are spread: no pair of words lacks two of its third words */
        for (int i = 0; i < 48; i++)
            for (int j = 0; j < i; j++) {
                const weft_shape_words a = weft_shape_words_of(i), b = weft_shape_words_of(j);
                const int same =
                    (a.colour == b.colour) + (a.shape == b.shape) + (a.direction == b.direction);
                cr_assert(!held[i] || !held[j] || same < 2, "seed %d: %d and %d", (int)seed, i, j);
            }
    }
    bool held[WEFT_SHAPE_ALL];
    cr_assert_eq(weft_synth_hold_out(47, -1, 1, held), WEFT_E_ARG);
}

/* A set to adapt a model with: one colour that the others do not have. */
Test(synth, a_set_of_one_colour)
{
    weft_synth_options o = small;
    o.shots = 12;
    o.colour = "purple";
    o.held_out = 3;
    weft_synth_report report;
    char *dir = make_set(&o, "purple", &report), *path = joined(dir, "%s", "heldout.json");
    json_t *root, *one;
    cr_assert_eq(weft_json_load(path, &root), WEFT_OK);
    cr_assert_eq(json_array_size(json_object_get(root, "held_out")), 3);
    cr_assert_eq(json_array_size(json_object_get(root, "training")), 9);
    size_t i;
    json_array_foreach(json_object_get(root, "training"), i, one)
        cr_assert_str_eq(json_string_value(json_object_get(one, "colour")), "purple");
    char *video = joined(dir, "%s", "heldout/h000.mp4");
    cr_assert_eq(read_words(video, 0, 18).colour, weft_shape_colour("purple"));
    o.colour = "violet";
    cr_assert_eq(weft_synth_write(dir, &o, &report), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_ARGUMENT_INVALID, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->value, "violet");
    cr_assert(strstr(weft_error_text(), "red, green, blue, yellow, purple"));
    json_decref(root);
    weft_free(video);
    weft_free(path);
    cr_assert_eq(weft_remove_tree(dir), WEFT_OK);
    weft_free(dir);
}
