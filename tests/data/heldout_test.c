#include "base/fs.h"
#include "data/heldout.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/weft-split-XXXXXX";
static char in[64], out[64];

static void setup(void)
{
    cr_assert(mkdtemp(root));
    snprintf(in, sizeof in, "%s/in", root);
    snprintf(out, sizeof out, "%s/out", root);
    cr_assert_eq(weft_make_dirs(in), WEFT_OK);
    cr_assert_eq(weft_make_dirs(out), WEFT_OK);
}

static void teardown(void)
{
    cr_assert_eq(weft_remove_tree(root), WEFT_OK);
}

static void choose_in(const char *folder, double share, weft_split_clip *clip, int64_t count)
{
    const weft_split_request q = {.in = in, .out = folder, .share = share};
    cr_assert_eq(weft_split_choose(&q, clip, count), WEFT_OK, "%s", weft_error_message());
}

static void choose(double share, weft_split_clip *clip, int64_t count)
{
    choose_in(out, share, clip, count);
}

static int64_t held_out(const weft_split_clip *clip, int64_t count)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += clip[i].heldout;
    return sum;
}

/* Source videos are added one at a time, each with a smaller hash than the one before. A video that
 * was held out because no other existed stays held out, in the same folder of shards and in a new
 * one. */
Test(split, held_out_clips_stay_so_when_sources_are_added, .init = setup, .fini = teardown)
{
    weft_split_clip clip[5];
    const char *const names[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++)
        clip[i] = (weft_split_clip){.id = names[i],
                                    .source = names[i],
                                    .first = -1,
                                    .last = -1,
                                    .draw = 0.9 - 0.1 * i,
                                    .own_draw = 0.5};
    choose(0.05, clip, 2);
    cr_assert(!clip[0].heldout && clip[1].heldout);
    for (int n = 3; n <= 5; n++) {
        choose(0.05, clip, n);
        cr_assert(clip[1].heldout, "with %d sources", n);
        cr_assert_eq(held_out(clip, n), 1);
    }
    char other[80];
    snprintf(other, sizeof other, "%s/other", root);
    cr_assert_eq(weft_make_dirs(other), WEFT_OK);
    choose_in(other, 0.05, clip, 5);
    cr_assert(clip[1].heldout && held_out(clip, 5) == 1);
    /* one of the two remaining sources is held out; after the third returns, both are */
    weft_split_clip fewer[] = {clip[0], clip[2]};
    choose(0.05, fewer, 2);
    cr_assert(!fewer[0].heldout && fewer[1].heldout);
    choose(0.05, clip, 5);
    cr_assert(clip[1].heldout && clip[2].heldout && held_out(clip, 5) == 2);
    /* a larger share adds sources, a smaller one chooses again */
    choose(0.65, clip, 5);
    cr_assert(clip[1].heldout && clip[2].heldout && clip[3].heldout && clip[4].heldout);
    choose(0.01, clip, 5);
    cr_assert(clip[4].heldout && held_out(clip, 5) == 1);
}

/* Clips of a single source are split separately. They stay on their side when another source is added,
 * and held-out frames stay held out when the source is cut again. */
Test(split, clips_of_the_only_source_stay_on_their_side, .init = setup, .fini = teardown)
{
    weft_split_clip clip[] = {
        {.id = "a0", .source = "a", .first = 0, .last = 99, .draw = 0.5, .own_draw = 0.7},
        {.id = "a1", .source = "a", .first = 100, .last = 199, .draw = 0.5, .own_draw = 0.2},
        {.id = "a2", .source = "a", .first = 200, .last = 299, .draw = 0.5, .own_draw = 0.6},
        {.id = "b0", .source = "b", .first = 0, .last = 99, .draw = 0.1, .own_draw = 0.1}};
    choose(0.05, clip, 3);
    cr_assert(!clip[0].heldout && clip[1].heldout && !clip[2].heldout);
    choose(0.05, clip, 4);
    cr_assert(clip[1].heldout && held_out(clip, 4) == 1);
    weft_split_clip anew[] = {
        {.id = "n0", .source = "a", .first = 0, .last = 149, .draw = 0.5, .own_draw = 0.9},
        {.id = "n1", .source = "a", .first = 150, .last = 220, .draw = 0.5, .own_draw = 0.9},
        {.id = "n2", .source = "a", .first = 221, .last = 299, .draw = 0.5, .own_draw = 0.9},
        clip[3]};
    choose(0.05, anew, 4);
    cr_assert(anew[0].heldout && anew[1].heldout && !anew[2].heldout && !anew[3].heldout);
}

/* The better copy of a held-out source is held out too, also if the copy was removed. */
Test(split, a_copy_of_held_out_footage_is_held_out, .init = setup, .fini = teardown)
{
    const weft_split_copy copy[] = {{"b", "x", 0.8}, {"c", "a", 0.01}, {"c", "y", 0.7}};
    weft_split_clip clip[] = {
        {.id = "b", .source = "b", .first = -1, .last = -1, .draw = 0.5, .own_draw = 0.5},
        {.id = "c", .source = "c", .first = -1, .last = -1, .draw = 0.9, .own_draw = 0.5}};
    weft_split_request q = {.in = in, .out = out, .share = 0.05, .copy = copy, .copies = 3};
    cr_assert_eq(weft_split_choose(&q, clip, 2), WEFT_OK);
    cr_assert(!clip[0].heldout && clip[1].heldout);
    q.copies = 0;
    cr_assert_eq(weft_split_choose(&q, clip, 2), WEFT_OK);
    cr_assert(!clip[0].heldout && clip[1].heldout);
}

Test(split, a_damaged_memory_is_an_error, .init = setup, .fini = teardown)
{
    weft_split_clip clip[] = {{.id = "b", .source = "b"}, {.id = "c", .source = "c"}};
    const weft_split_request q = {.in = in, .out = out, .share = 0.05};
    char path[80];
    snprintf(path, sizeof path, "%s/split.json", in);
    cr_assert_eq(weft_file_write_atomic(path, "{\"splits\": [", 12), WEFT_OK);
    cr_assert_eq(weft_split_choose(&q, clip, 2), WEFT_E_FORMAT);
    cr_assert(strstr(weft_error_message(), "split.json"), "%s", weft_error_message());
}

/* A file that was edited or is of a later version: its held-out clips are not known either. */
Test(split, a_memory_of_another_form_is_an_error, .init = setup, .fini = teardown)
{
#define ENTRY "{\"version\": 1, \"splits\": [{\"seed\": 0, \"heldout\": 0.05, "
    static const struct {
        const char *text, *says;
    } files[] = {
        {"[]", "version"},
        {"{}", "version"},
        {"{\"version\": 2, \"splits\": []}", "version"},
        {"{\"version\": 1, \"splits\": {}}", "splits"},
        {"{\"version\": 1, \"splits\": [7]}", "seed"},
        {"{\"version\": 1, \"splits\": [{\"heldout\": 0.05}]}", "seed"},
        {ENTRY "\"sources\": [\"b\"], \"clips\": {}}]}", "sources"},
        {ENTRY "\"sources\": {}}]}", "clips"},
        {ENTRY "\"sources\": {}, \"clips\": {\"b\": {\"id\": \"x\"}}}]}", "clips"},
        {ENTRY "\"sources\": {}, \"clips\": {\"b\": [{\"frames\": [0, 1]}]}}]}", "frames"},
    };
    weft_split_clip clip[] = {{.id = "b", .source = "b"}, {.id = "c", .source = "c"}};
    const weft_split_request q = {.in = in, .out = out, .share = 0.05};
    char path[80];
    snprintf(path, sizeof path, "%s/split.json", out);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const int64_t length = (int64_t)strlen(files[i].text);
        char *there;
        int64_t bytes;
        cr_assert_eq(weft_file_write_atomic(path, files[i].text, length), WEFT_OK);
        cr_expect_eq(weft_split_choose(&q, clip, 2), WEFT_E_FORMAT, "%s", files[i].text);
        cr_expect_eq(weft_error_class(), WEFT_MSG_JSON_VALUE, "%s: %s", files[i].text,
                     weft_error_message());
        cr_expect_str_eq(weft_error_fields()->file, path);
        cr_expect(strstr(weft_error_message(), files[i].says) &&
                      strstr(weft_error_text(), "remove it"),
                  "%s: %s", files[i].text, weft_error_message());
        cr_assert_eq(weft_file_read(path, 1 << 16, &there, &bytes), WEFT_OK);
        cr_expect(bytes == length && !memcmp(there, files[i].text, (size_t)bytes),
                  "%s is overwritten", files[i].text);
        free(there);
    }
}
