/* Sections of a video and their histories, compared with lists made by hand. */
#include "model/video_sections.h"

#include <criterion/criterion.h>
#include <string.h>

/* Five sections of 3 frames from the last to the first: frames 13 to 15 first. */
static const weft_video_sections backward = {.count = 5, .frames = 3};
static const weft_video_sections forward = {.count = 5, .frames = 3, .forward = true};

static void expect_sources(const weft_video_sections *s, int64_t at, int scale, bool last,
                           const int64_t *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        cr_expect_eq(weft_video_section_source(s, at, scale, i, last), want[i],
                     "section %d, scale %d, frame %d", (int)at, scale, (int)i);
}

Test(video_sections, order)
{
    for (int64_t i = 0; i < 5; i++) {
        cr_expect_eq(weft_video_section_first(&backward, i), 13 - 3 * i);
        cr_expect_eq(weft_video_section_first(&forward, i), 1 + 3 * i);
    }
}

Test(video_sections, history_after_a_section)
{
    expect_sources(&backward, 0, 0, false, (int64_t[]){0, WEFT_HISTORY_ZEROS}, 2);
    expect_sources(&backward, 0, 0, true, (int64_t[]){0, WEFT_HISTORY_LAST_IMAGE}, 2);
    expect_sources(&backward, 1, 0, true, (int64_t[]){0, 13}, 2);
    expect_sources(&backward, 1, 1, true, (int64_t[]){14, 15}, 2);
    expect_sources(&backward, 2, 2, false, (int64_t[]){13, 14, 15, WEFT_HISTORY_ZEROS}, 4);
}

Test(video_sections, history_before_a_section)
{
    expect_sources(&forward, 0, 0, false, (int64_t[]){0, 0}, 2);
    expect_sources(&forward, 0, 1, false, (int64_t[]){WEFT_HISTORY_ZEROS, WEFT_HISTORY_ZEROS}, 2);
    expect_sources(&forward, 1, 0, false, (int64_t[]){0, 3}, 2);
    expect_sources(&forward, 1, 1, false, (int64_t[]){1, 2}, 2);
    cr_expect_eq(weft_video_section_source(&forward, 1, 2, 15, false), 0);
    cr_expect_eq(weft_video_section_source(&forward, 1, 2, 14, false), WEFT_HISTORY_ZEROS);
}

Test(video_sections, time_positions)
{
    /* more than four sections: at most three between the image and a section, then two */
    static const int64_t between[] = {3, 2, 2, 1, 0};
    for (int64_t i = 0; i < 5; i++) {
        const int64_t first = 1 + 3 * between[i];
        cr_expect_eq(weft_video_section_index(&backward, i, 2), first + 2);
        cr_expect_eq(weft_video_section_history_index(&backward, i, 0, 0), 0);
        cr_expect_eq(weft_video_section_history_index(&backward, i, 0, 1), first + 3);
        cr_expect_eq(weft_video_section_history_index(&backward, i, 1, 0), first + 4);
        cr_expect_eq(weft_video_section_history_index(&backward, i, 2, 15), first + 21);
        cr_expect_eq(weft_video_section_index(&forward, i, 0), 20);
    }
    cr_expect_eq(weft_video_section_history_index(&forward, 0, 2, 0), 1);
    cr_expect_eq(weft_video_section_history_index(&forward, 0, 1, 0), 17);
    cr_expect_eq(weft_video_section_history_index(&forward, 0, 0, 1), 19);
}

/* Sections after given frames: an image, or two frames and an image. */
Test(video_sections, history_with_frames_before_the_video)
{
    const weft_video_sections none = {.count = 3, .frames = 3, .forward = true, .precedes = true};
    weft_video_sections given = none;
    given.image = true;
    given.given = 2;
    for (int64_t i = 0; i < 3; i++)
        cr_expect_eq(weft_video_section_first(&none, i), 3 * i);
    expect_sources(&none, 0, 0, false, (int64_t[]){WEFT_HISTORY_ZEROS, WEFT_HISTORY_ZEROS}, 2);
    expect_sources(&none, 1, 0, false, (int64_t[]){0, 2}, 2);
    expect_sources(&none, 1, 1, false, (int64_t[]){0, 1}, 2);
    expect_sources(&given, 0, 0, false, (int64_t[]){WEFT_HISTORY_IMAGE, WEFT_HISTORY_GIVEN}, 2);
    expect_sources(&given, 0, 1, false, (int64_t[]){WEFT_HISTORY_ZEROS, WEFT_HISTORY_GIVEN - 1}, 2);
    expect_sources(&given, 1, 1, false, (int64_t[]){0, 1}, 2);
    cr_expect_eq(weft_video_section_source(&given, 1, 2, 15, false), WEFT_HISTORY_GIVEN);
    cr_expect_eq(weft_video_section_source(&given, 1, 2, 14, false), WEFT_HISTORY_GIVEN - 1);
    cr_expect_eq(weft_video_section_source(&given, 1, 2, 13, false), WEFT_HISTORY_ZEROS);
    cr_expect_eq(weft_video_section_index(&none, 1, 0), 20);
    cr_expect_eq(weft_video_section_history_index(&none, 1, 0, 0), 0);
    cr_expect_eq(weft_video_section_history_index(&none, 1, 0, 1), 19);
    cr_expect_eq(weft_video_section_history_index(&none, 1, 2, 0), 1);
}

Test(video_sections, of_a_trained_model)
{
    const char *const good = "{\"window\": 16, \"sections\": \"forward\"}";
    weft_trained_sections trained = {0};
    json_t *settings;
    cr_assert_eq(weft_json_parse(good, (int64_t)strlen(good), "weft.json", &settings), WEFT_OK);
    cr_expect_eq(weft_trained_sections_read(settings, "weft.json", &trained), WEFT_OK);
    cr_expect_eq(trained.window, 16);
    cr_expect(trained.forward);
    cr_expect_eq(weft_trained_sections_read(NULL, "weft.json", &trained), WEFT_OK);
    cr_expect_eq(trained.window, 0);
    cr_expect_not(trained.forward);
    json_object_set_new(settings, "window", json_integer(-4));
    cr_expect_neq(weft_trained_sections_read(settings, "weft.json", &trained), WEFT_OK);
    cr_expect(strstr(weft_error_message(), "at least one frame"), "%s", weft_error_message());
    weft_error_clear();
    json_decref(settings);
}
