#include "report/pair_page.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/rng.h"
#include "draw/html.h"
#include "draw/svg.h"

#include <stdio.h>
#include <string.h>

extern const unsigned char weft_pair_page_document[]; /* pair_page.html, ends with a zero byte */

static void put(weft_buf *page, const char *text)
{
    weft_buf_append(page, text, (int64_t)strlen(text));
}

/* Appends JSON as the value of an attribute. */
static weft_status put_json(weft_buf *page, const char *attribute, json_t *value)
{
    char *text = weft_json_line(value);
    json_decref(value);
    WEFT_TRY(WEFT_ALLOCATED(text, "the page of pairs"));
    weft_buf_printf(page, " %s=\"", attribute);
    weft_xml_escape(page, text);
    put(page, "\"");
    weft_free(text);
    return WEFT_OK;
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Appends a cell: a number, a text, or nothing. */
static void put_cell(weft_buf *page, const json_t *value)
{
    if (json_is_integer(value)) {
        weft_buf_printf(page, "<td class=\"n\">%" JSON_INTEGER_FORMAT "</td>",
                        json_integer_value(value));
        return;
    }
    if (json_is_real(value)) {
        weft_buf_printf(page, "<td class=\"n\">%.5g</td>", json_real_value(value));
        return;
    }
    put(page, "<td>");
    weft_xml_escape(page, json_is_string(value) ? json_string_value(value) : "");
    put(page, "</td>");
}

/* Appends a row if either model has the member. */
static void put_row(weft_buf *page, const char *title, const char *key, const json_t *const of[2])
{
    const json_t *value[2] = {json_object_get(of[0], key), json_object_get(of[1], key)};
    if (!value[0] && !value[1])
        return;
    weft_buf_printf(page, "<tr><td>%s</td>", title);
    put_cell(page, value[0]);
    put_cell(page, value[1]);
    put(page, "</tr>\n");
}

static void begin_table(weft_buf *page, const weft_pair_page *o)
{
    put(page, "<table class=\"facts\"><tr><th></th><th>");
    weft_xml_escape(page, o->name[0]);
    put(page, "</th><th>");
    weft_xml_escape(page, o->name[1]);
    put(page, "</th></tr>\n");
}

static void put_scores(weft_buf *page, const json_t *const of[2])
{
    static const char *const figures[][2] = {{"flicker", "flicker"},
                                             {"motion smoothness", "motion_smoothness"},
                                             {"CLIP score", "clip_score"},
                                             {"background consistency", "background_consistency"},
                                             {"subject consistency", "subject_consistency"}};
    for (int i = 0; i < WEFT_COUNT(figures); i++)
        put_row(page, figures[i][0], figures[i][1], of);
}

static void put_settings(weft_buf *page, const json_t *const of[2])
{
    static const char *const settings[] = {"seed", "negative", "frames",  "height",   "width",
                                           "fps",  "steps",    "sampler", "guidance", "file"};
    for (int i = 0; i < WEFT_COUNT(settings); i++)
        put_row(page, settings[i], settings[i], of);
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Returns the members that the script needs. `swapped`: the second model is on the left. */
static json_t *fact_of(const weft_video_pair *p, bool swapped)
{
    const json_t *a = p->line[0];
    const char *prompt = weft_video_pair_prompt(p);
    json_t *seed = json_object_get(a, "seed"), *fps = json_object_get(a, "fps");
    return json_pack("{s:s, s:O?, s:O?, s:O, s:O, s:s}", "prompt", prompt ? prompt : "", "seed",
                     seed, "fps", fps, "file", json_object_get(a, "file"), "other_file",
                     json_object_get(p->line[1], "file"), "order", swapped ? "ba" : "ab");
}

static weft_status put_pair(weft_buf *page, const weft_pair_page *o, int64_t index)
{
    static const char *const votes[][2] = {
        {"left", "left is better (1)"}, {"right", "right is better (2)"}, {"tie", "equal (0)"}};
    const weft_video_pair *p = &o->pairs->pair[index];
    const bool swapped =
        o->blind && weft_random_uniform(o->seed, WEFT_RNG_PLAN, (uint64_t)index) < 0.5f;
    const char *prompt = weft_video_pair_prompt(p);
    put(page, "<section class=\"pair\"");
    WEFT_TRY(put_json(page, "data-pair", fact_of(p, swapped)));
    weft_buf_printf(page, "><h2>%" PRId64 ". ", index + 1);
    weft_xml_escape(page, prompt ? prompt : weft_path_base(p->path[0]));
    put(page, "</h2>\n<div class=\"videos\">\n");
    for (int place = 0; place < 2; place++) {
        const int side = swapped ? 1 - place : place;
        put(page, "<figure>");
        WEFT_TRY(weft_html_media(page, p->path[side]));
        put(page, "<figcaption class=\"model\">");
        weft_xml_escape(page, o->name[side]);
        put(page, "</figcaption></figure>\n");
    }
    put(page, "</div>\n");
    for (int i = 0; i < WEFT_COUNT(votes); i++)
        weft_buf_printf(page, "<button type=\"button\" data-vote=\"%s\">%s</button>\n", votes[i][0],
                        votes[i][1]);
    const json_t *const line[2] = {p->line[0], p->line[1]};
    const json_t *const score[2] = {
        json_array_get(json_object_get(o->scores[0], "each"), (size_t)index),
        json_array_get(json_object_get(o->scores[1], "each"), (size_t)index)};
    begin_table(page, o);
    put_settings(page, line);
    put_scores(page, score);
    put(page, "</table></section>\n");
    return WEFT_OK;
}

/* Digits of data-id. The browser keeps the votes of a page by this id. */
enum { ID_DIGITS = 16 };

/* Appends the body's start: state, keys and means. *id_at: offset of the digits of data-id. */
static weft_status put_head(weft_buf *page, const weft_pair_page *o, int64_t *id_at)
{
    weft_buf_printf(page, "<body%s data-id=\"", o->blind ? " class=\"blind\"" : "");
    *id_at = page->len;
    weft_buf_printf(page, "%0*d\"", ID_DIGITS, 0);
    WEFT_TRY(put_json(page, "data-models", json_pack("[s, s]", o->name[0], o->name[1])));
    put(page, "><header><span id=\"state\"></span>\n"
              "<button id=\"play\" type=\"button\">pause</button>\n"
              "<button id=\"save\" type=\"button\">save votes</button>\n"
              "<button id=\"reveal\" type=\"button\">show models and end voting</button><br>\n"
              "<kbd>j</kbd> <kbd>k</kbd> next and previous pair, <kbd>space</kbd> play or pause, "
              "<kbd>&larr;</kbd> <kbd>&rarr;</kbd> one frame, <kbd>r</kbd> begin again, "
              "<kbd>1</kbd> <kbd>2</kbd> <kbd>0</kbd> left, right, equal, <kbd>s</kbd> save votes"
              "</header>\n<h1>Pairs of videos</h1>\n");
    begin_table(page, o);
    weft_buf_printf(page, "<tr><td>pairs</td><td class=\"n\">%" PRId64 "</td><td></td></tr>\n",
                    o->pairs->count);
    put_scores(page, o->scores);
    put(page, "</table>\n");
    return WEFT_OK;
}

/* Sets data-id to the hash of the page with its videos, so that no other page gets its votes. */
static void set_id(weft_buf *page, int64_t at)
{
    char text[ID_DIGITS + 1];
    snprintf(text, sizeof text, "%016" PRIx64, XXH3_64bits(page->data, (size_t)page->len));
    memcpy(page->data + at, text, ID_DIGITS);
}

weft_status weft_pair_page_write(const weft_pair_page *o, const char *path)
{
    static const char body[] = "<body>", mark[] = "<!--PAIRS-->";
    const char *document = (const char *)weft_pair_page_document;
    const char *at_body = strstr(document, body), *at_mark = strstr(document, mark);
    weft_buf page = {0};
    int64_t id_at;
    weft_status_code status = WEFT_OK;
    weft_buf_append(&page, document, at_body - document);
    WEFT_GO(put_head(&page, o, &id_at));
    for (int64_t i = 0; i < o->pairs->count; i++)
        WEFT_GO(put_pair(&page, o, i));
    put(&page, at_mark + strlen(mark));
    WEFT_GO(weft_buf_check(&page));
    set_id(&page, id_at);
    status = weft_file_write_atomic(path, page.data, page.len);
out:
    weft_buf_free(&page);
    return status;
}
