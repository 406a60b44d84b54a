#include "curate/captions/caption_text.h"

#include "base/config.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

const char *const weft_caption_fields[WEFT_CAPTION_FIELDS] = {
    "summary", "scene", "subject", "motion", "background", "style", "camera", "light"};

const char *weft_caption_prompt(const weft_captions_config *c)
{
    if (c->prompt[0])
        return c->prompt;
    if (c->format == WEFT_CAPTION_TEXT)
        return "These are frames of a video clip, in order of time. Describe the clip in one "
               "paragraph: subjects, motion, background, style, camera and light. Describe only "
               "visible content.";
    return "These are frames of a video clip, in order of time. Reply with one JSON object and no "
           "other text. Its members are texts:\n"
           "summary: the clip and the motion of its subject in one or two sentences\n"
           "scene: composition of the scene\n"
           "subject: appearance of the subjects\n"
           "motion: how the subjects move\n"
           "background: surroundings\n"
           "style: visual style, such as cinematic or documentary\n"
           "camera: shot type, angle and movement of the camera\n"
           "light: light conditions\n"
           "Describe only visible content.";
}

json_t *weft_caption_schema(void)
{
    json_t *properties = json_object(), *required = json_array();
    for (int i = 0; i < WEFT_CAPTION_FIELDS; i++) {
        json_object_set_new(properties, weft_caption_fields[i],
                            json_pack("{s:s}", "type", "string"));
        json_array_append_new(required, json_string(weft_caption_fields[i]));
    }
    return json_pack("{s:s,s:{s:s,s:b,s:{s:s,s:o,s:o,s:b}}}", "type", "json_schema", "json_schema",
                     "name", "caption", "strict", 1, "schema", "type", "object", "properties",
                     properties, "required", required, "additionalProperties", 0);
}

/* ---- openings ------------------------------------------------------------------------------ */

/* Openings: subject and verb. Longer ones first. */
static const char *const subjects[] = {
    "this video clip", "the video clip",    "this short video", "the short video", "the footage",
    "this footage",    "the video",         "this video",       "the clip",        "this clip",
    "the scene",       "this scene",        "the image",        "the frames",      "these frames",
    "the sequence",    "the camera footage"};
static const char *const verbs[] = {
    "depicts",  "shows",  "showcases", "features",    "captures",   "presents",    "portrays",
    "displays", "depict", "show",      "begins with", "opens with", "starts with", "is about"};
static const char *const inside[] = {"in this video clip", "in the video clip", "in this video",
                                     "in the video",       "in this clip",      "in the clip",
                                     "in this scene",      "in the scene"};

/* Bytes of `text` that are `words`, as whole words of any case; 0: others. */
static size_t starts_with(const char *text, const char *words)
{
    const size_t n = strlen(words);
    return strncasecmp(text, words, n) == 0 && !isalnum((unsigned char)text[n]) ? n : 0;
}

static const char *after_blanks(const char *text)
{
    while (isspace((unsigned char)*text) || *text == ',' || *text == ':')
        text++;
    return text;
}

/* The text after one opening; `text` itself: it has none. */
static const char *after_opening(const char *text)
{
    for (int i = 0; i < WEFT_COUNT(inside); i++) {
        const size_t n = starts_with(text, inside[i]);
        if (n)
            return after_blanks(text + n);
    }
    for (int i = 0; i < WEFT_COUNT(subjects); i++) {
        const size_t n = starts_with(text, subjects[i]);
        if (!n)
            continue;
        const char *verb = after_blanks(text + n);
        for (int k = 0; k < WEFT_COUNT(verbs); k++) {
            const size_t m = starts_with(verb, verbs[k]);
            if (m)
                return after_blanks(verb + m);
        }
    }
    return text;
}

char *weft_caption_strip_opening(const char *caption)
{
    const char *text = after_blanks(caption), *next = after_opening(text);
    const bool stripped = next != text;
    for (; next != text && *next; next = after_opening(text))
        text = next;
    /* an opening alone is a caption without content, but it is all there is */
    char *copy = weft_strdup(*next ? text : caption);
    if (copy && *next && stripped)
        copy[0] = (char)toupper((unsigned char)copy[0]);
    return copy;
}

/* ---- replies ------------------------------------------------------------------------------- */

/* The object in a reply: from its first '{' to its last '}'. */
static json_t *object_in(const char *reply)
{
    const char *from = strchr(reply, '{'), *to = strrchr(reply, '}');
    json_t *object = NULL;
    if (!from || !to || to < from ||
        weft_json_parse(from, to + 1 - from, "reply", &object) != WEFT_OK)
        return NULL;
    if (!json_is_object(object)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Text without blanks at its ends; NULL: out of memory. */
static char *trimmed(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *copy = weft_strdup(text);
    size_t n = copy ? strlen(copy) : 0;
    while (n && isspace((unsigned char)copy[n - 1]))
        copy[--n] = 0;
    return copy;
}

static void set_caption(const weft_captions_config *c, const char *text, json_t *to)
{
    char *stripped = c->strip_openings ? weft_caption_strip_opening(text) : weft_strdup(text);
    json_object_set_new(to, "caption", json_string(stripped ? stripped : text));
    weft_free(stripped);
}

static bool parse_structured(const weft_captions_config *c, const char *reply, json_t *caption,
                             weft_buf *why)
{
    json_t *object = object_in(reply), *fields = json_object();
    if (!object)
        weft_buf_printf(why, "the reply is not a JSON object");
    for (int i = 0; object && i < WEFT_CAPTION_FIELDS; i++) {
        const char *value = json_string_value(json_object_get(object, weft_caption_fields[i]));
        char *text = value ? trimmed(value) : NULL;
        if (text && text[0])
            json_object_set_new(fields, weft_caption_fields[i], json_string(text));
        else
            weft_buf_printf(why, "%s%s", why->len ? ", " : "these members are missing or empty: ",
                            weft_caption_fields[i]);
        weft_free(text);
    }
    if (why->len == 0)
        set_caption(c, json_string_value(json_object_get(fields, "summary")), caption);
    json_object_del(fields, "summary");
    json_object_set_new(caption, "fields", fields);
    json_decref(object);
    return why->len == 0;
}

bool weft_caption_parse(const weft_captions_config *c, const char *reply, json_t **out,
                        weft_buf *why)
{
    json_t *caption = json_object();
    bool valid = false;
    if (c->format == WEFT_CAPTION_STRUCTURED) {
        valid = parse_structured(c, reply, caption, why);
    } else {
        char *text = trimmed(reply);
        valid = text && text[0];
        if (valid)
            set_caption(c, text, caption);
        else
            weft_buf_printf(why, "the reply is empty");
        weft_free(text);
    }
    if (valid)
        *out = caption;
    else
        json_decref(caption);
    return valid;
}
