#include "curate/captions/caption_append.h"

#include "curate/captions/caption_text.h"

#include <string.h>

enum { NAME_LENGTH = 32, DECIMALS = 2, MOST_DECIMALS = 6 };

static const char *const measured[] = {"motion_score", "sharpness_score", "brightness_score"};

/* A value in braces. */
typedef struct value {
    char name[NAME_LENGTH];
    int decimals;
    bool has_decimals;
} value;

/* Reads "NAME}" or "NAME:D}". Returns the text after the brace; NULL: another form. */
static const char *read_value(const char *text, value *v)
{
    const char *end = strchr(text, '}');
    const size_t all = end ? (size_t)(end - text) : 0, name = end ? strcspn(text, ":}") : 0;
    *v = (value){.decimals = DECIMALS, .has_decimals = name < all};
    if (name == 0 || name >= sizeof v->name)
        return NULL;
    memcpy(v->name, text, name);
    if (!v->has_decimals)
        return end + 1;
    v->decimals = text[name + 1] - '0';
    return all == name + 2 && v->decimals >= 0 && v->decimals <= MOST_DECIMALS ? end + 1 : NULL;
}

/* ---- the config ---------------------------------------------------------------------------- */

static bool is_field(const weft_captions_config *c, const char *name)
{
    for (int i = 1; i < WEFT_CAPTION_FIELDS; i++) /* the summary is the caption */
        if (strcmp(weft_caption_fields[i], name) == 0)
            return c->format == WEFT_CAPTION_STRUCTURED;
    return false;
}

static bool is_score(const char *name, const char *const *operators, int64_t count)
{
    for (int i = 0; i < WEFT_COUNT(measured); i++)
        if (strcmp(measured[i], name) == 0)
            return true;
    for (int64_t i = 0; i < count; i++)
        if (strcmp(operators[i], name) == 0)
            return true;
    return false;
}

static weft_status check_text(const weft_captions_config *c, int64_t i, const char *text,
                              const char *const *operators, int64_t count)
{
    char key[64];
    value v;
    weft_message_key(key, "captions.append.%d", (int)i);
    for (const char *at = strpbrk(text, "{}"); at; at = strpbrk(at, "{}")) {
        const char *next = *at == '{' ? read_value(at + 1, &v) : NULL;
        if (!next)
            return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = key, .value = at),
                              "a brace encloses no value; write {NAME}, or {NAME:2} for a score "
                              "with two decimals");
        const bool field = is_field(c, v.name);
        if (!field && !is_score(v.name, operators, count))
            return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = key, .value = v.name),
                              "'%s' is not a field of a structured reply and not a score; use one "
                              "of the seven fields, motion_score, sharpness_score, "
                              "brightness_score or an operator",
                              v.name);
        if (field && v.has_decimals)
            return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = key, .value = v.name),
                              "the field '%s' is a text and has no decimals; write {%s}", v.name,
                              v.name);
        at = next;
    }
    return WEFT_OK;
}

weft_status weft_caption_append_check(const weft_captions_config *c, const char *const *operators,
                                      int64_t count)
{
    for (int64_t i = 0; i < c->append.count; i++)
        WEFT_TRY(check_text(c, i, c->append.item[i], operators, count));
    return WEFT_OK;
}

/* ---- texts --------------------------------------------------------------------------------- */

/* Adds a value to `text`. False: the value does not exist. */
static bool add_value(const value *v, const json_t *fields, const json_t *meta, weft_buf *text)
{
    const char *field = json_string_value(json_object_get(fields, v->name));
    if (field) {
        weft_buf_printf(text, "%s", field);
        return true;
    }
    const json_t *score = json_object_get(json_object_get(meta, "operator_scores"), v->name);
    if (!json_is_number(score))
        score = is_score(v->name, NULL, 0) ? json_object_get(meta, v->name) : NULL;
    if (!json_is_number(score))
        return false;
    weft_buf_printf(text, "%.*f", v->decimals, json_number_value(score));
    return true;
}

/* Fills in the values of a text. False: one does not exist. */
static bool fill(const char *from, const json_t *fields, const json_t *meta, weft_buf *text)
{
    value v;
    while (from && *from) {
        const size_t plain = strcspn(from, "{");
        weft_buf_append(text, from, (int64_t)plain);
        from += plain;
        if (!*from)
            break;
        from = read_value(from + 1, &v);
        if (!from || !add_value(&v, fields, meta, text))
            return false;
    }
    return text->len > 0;
}

void weft_caption_append(const weft_captions_config *c, const json_t *fields, const json_t *meta,
                         weft_buf *caption)
{
    for (int64_t i = 0; i < c->append.count; i++) {
        weft_buf text = {0};
        if (fill(c->append.item[i], fields, meta, &text) && text.data)
            weft_buf_printf(caption, "%s%s", caption->len ? " " : "", text.data);
        weft_buf_free(&text);
    }
}
