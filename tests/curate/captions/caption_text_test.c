#include "curate/captions/caption_text.h"

#include <criterion/criterion.h>
#include <string.h>

static const weft_captions_config structured = {.prompt = "", .strip_openings = true};
static const weft_captions_config plain = {
    .prompt = "", .format = WEFT_CAPTION_TEXT, .strip_openings = true};

Test(caption_text, stock_openings_are_removed)
{
    static const char *const cases[][2] = {
        {"The video shows a dog.", "A dog."},
        {"the video depicts: a dog", "A dog"},
        {"In this video, the camera moves", "The camera moves"},
        {"In this clip, the video shows a dog", "A dog"},
        {"This short video captures, a dog", "A dog"},
        {"A dog. The video shows a cat.", "A dog. The video shows a cat."},
        {"The videographer shows a dog", "The videographer shows a dog"},
        {"The video showstopper", "The video showstopper"},
        {"a dog", "a dog"},
        {"The video shows", "The video shows"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = weft_caption_strip_opening(cases[i][0]);
        cr_assert_str_eq(text, cases[i][1]);
        weft_free(text);
    }
}

#define REST                                                                                       \
    "\"scene\": \"s\", \"subject\": \"s\", \"motion\": \"m\", \"background\": \"b\", "             \
    "\"style\": \"s\", \"camera\": \"c\", \"light\": \"l\""

Test(caption_text, structured_replies)
{
    static const struct {
        const char *reply, *caption, *why;
    } cases[] = {
        {"{\"summary\": \"The video shows a dog\", " REST "}", "A dog", NULL},
        {"```json\n{\"summary\": \" A dog \", " REST "}\n```", "A dog", NULL},
        {"Here it is: {\"summary\": \"A dog\", \"more\": {\"a\": 1}, " REST "}. Bye", "A dog",
         NULL},
        {"A dog.", NULL, "not a JSON object"},
        {"{\"summary\": \"A dog\", " REST, NULL, "not a JSON object"},
        {"[1]", NULL, "not a JSON object"},
        {"{\"summary\": \"\", " REST "}", NULL, "empty: summary"},
        {"{\"summary\": 3, " REST "}", NULL, "summary"},
        {"{\"summary\": \"A dog\", \"scene\": \"s\"}", NULL,
         "subject, motion, background, style, camera, light"},
        {"", NULL, "not a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *caption = NULL;
        weft_buf why = {0};
        const bool valid = weft_caption_parse(&structured, cases[i].reply, &caption, &why);
        cr_assert_eq(valid, cases[i].caption != NULL, "%s", cases[i].reply);
        if (valid) {
            cr_assert_str_eq(json_string_value(json_object_get(caption, "caption")),
                             cases[i].caption);
            cr_assert_eq(json_object_size(json_object_get(caption, "fields")), 7);
        } else {
            cr_assert(strstr(why.data, cases[i].why), "%s: %s", cases[i].reply, why.data);
        }
        json_decref(caption);
        weft_buf_free(&why);
    }
}

Test(caption_text, text_replies)
{
    json_t *caption = NULL;
    weft_buf why = {0};
    cr_assert(weft_caption_parse(&plain, " This video shows a cat.\n", &caption, &why));
    cr_assert_str_eq(json_string_value(json_object_get(caption, "caption")), "A cat.");
    json_decref(caption);
    cr_assert_not(weft_caption_parse(&plain, " \n", &caption, &why));
    cr_assert_not_null(why.data);
    weft_buf_free(&why);
}
