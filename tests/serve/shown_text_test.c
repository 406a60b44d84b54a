/* Texts of answers: whole characters, and words that are paths. */
#include "serve/shown_text.h"

#include <criterion/criterion.h>

#include "base/utf8.h"

#include <string.h>

Test(shown_text, a_copy_ends_at_a_character)
{
    static const char text[] = "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1, 2, 3, 4, 1 bytes */
    char copy[16];
    for (size_t size = 1; size <= sizeof text; size++) {
        const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
        weft_shown_text_copy(copy, size, text);
        cr_assert(weft_utf8_valid(copy), "%zu", size);
        cr_assert_eq(strlen(copy), ends[size - 1], "%zu: %zu bytes", size, strlen(copy));
        cr_assert(!strncmp(copy, text, strlen(copy)));
    }
}

Test(shown_text, bytes_that_are_not_utf8_are_replaced)
{
    char copy[16];
    weft_shown_text_copy(copy, sizeof copy, "a\xff\xc3z");
    cr_assert_str_eq(copy, "a??z");
    weft_shown_text_copy(copy, sizeof copy, "ab\xe2\x82"); /* cut before */
    cr_assert_str_eq(copy, "ab");
    weft_shown_text_copy(copy, sizeof copy, "ab\x80");
    cr_assert_str_eq(copy, "ab?");
}

Test(shown_text, paths_are_words_that_begin_as_paths)
{
    static const char *const paths[] = {
        "/tmp/x",   "cannot read '/tmp/x'", "at (/a)", "x=/a", "./a is absent", "see ../a", "~/a",
        "file:///a"};
    static const char *const texts[] = {"",
                                        "3 GiB/s",
                                        "Wan-AI/Wan2.1-T2V is not served",
                                        "\"up/down\" is not a sampler",
                                        "1 / 2",
                                        "16/9",
                                        "ü/x"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        cr_assert(weft_shown_text_has_path(paths[i]), "%s", paths[i]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        cr_assert(!weft_shown_text_has_path(texts[i]), "%s", texts[i]);
}
