#include "base/message.h"

#include "base/json.h"
#include "base/memory.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *id, *cause, *remedy;
    weft_status_code status;
} classes[WEFT_MSG_COUNT] = {
    [WEFT_MSG_NONE] = {"", "", "", WEFT_OK},
#define WEFT_E_OK WEFT_OK
#define MESSAGE(symbol, name, code, why, what)                                                     \
    [WEFT_MSG_##symbol] = {name, why, what, WEFT_E_##code},
#include "base/message_classes.def"
#undef MESSAGE
#undef WEFT_E_OK
};

static const struct {
    const char *id;
    weft_message_class kind;
} former[] = {
#define FORMER(name, symbol) {name, WEFT_MSG_##symbol},
#include "base/message_former.def"
#undef FORMER
};

const char *weft_message_id(weft_message_class kind)
{
    return classes[kind].id;
}

weft_message_class weft_message_find(const char *id)
{
    for (int i = 1; i < WEFT_MSG_COUNT; i++) {
        if (!strcmp(classes[i].id, id))
            return (weft_message_class)i;
    }
    for (size_t i = 0; i < sizeof former / sizeof *former; i++) {
        if (!strcmp(former[i].id, id))
            return former[i].kind;
    }
    return WEFT_MSG_NONE;
}

const char *weft_message_cause(weft_message_class kind)
{
    return classes[kind].cause;
}

const char *weft_message_remedy(weft_message_class kind)
{
    return classes[kind].remedy;
}

int weft_message_status(weft_message_class kind)
{
    return (int)classes[kind].status;
}

/* Returns the bytes of `file` before a ":LINE" at its end and sets *line. Without one: all bytes
 * and line 0. */
static int split_line(const char *file, int64_t *line)
{
    const size_t length = strlen(file);
    size_t digits = length;
    while (digits > 0 && isdigit((unsigned char)file[digits - 1]))
        digits--;
    *line = 0;
    if (digits == length || digits < 2 || file[digits - 1] != ':' || length - digits > 9)
        return (int)length;
    *line = atoll(file + digits);
    return (int)digits - 1;
}

const char *weft_message_key(char key[64], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(key, 64, fmt, args);
    va_end(args);
    return key;
}

const char *weft_message_location(const weft_message_fields *at, char *location, int64_t size)
{
    int64_t used = 0;
    location[0] = '\0';
    if (at && at->file && at->file[0]) {
        char line[24] = "";
        if (at->line > 0)
            snprintf(line, sizeof line, ":%" PRId64, at->line);
        used = snprintf(location, (size_t)size, "%s%s: ", at->file, line);
    }
    if (at && at->key && at->key[0] && used < size)
        snprintf(location + used, (size_t)(size - used), "%s: ", at->key);
    return location;
}

static void set_text(json_t *object, const char *key, const char *text)
{
    json_t *value = json_string(text);
    if (!value) { /* bytes that are not UTF-8 */
        char clean[4096];
        size_t i = 0;
        for (; text[i] && i < sizeof clean - 1; i++)
            clean[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
        clean[i] = '\0';
        value = json_string(clean);
    }
    json_object_set_new(object, key, value);
}

static void set_fields(json_t *object, const weft_message_fields *at)
{
    if (at->file && at->file[0]) {
        int64_t line = at->line;
        const int length = line > 0 ? (int)strlen(at->file) : split_line(at->file, &line);
        char file[4096];
        snprintf(file, sizeof file, "%.*s", length, at->file);
        set_text(object, "file", file);
        if (line > 0)
            json_object_set_new(object, "line", json_integer(line));
    }
    if (at->key && at->key[0])
        set_text(object, "key", at->key);
    if (at->value)
        set_text(object, "value", at->value);
    else if (at->has_number)
        json_object_set_new(object, "value", json_real(at->number));
    if (at->has_rank)
        json_object_set_new(object, "rank", json_integer(at->rank));
    if (!at->details || !at->details->name)
        return;
    json_t *details = json_object();
    for (const weft_message_detail *d = at->details; d->name; d++) {
        if (d->text)
            set_text(details, d->name, d->text);
        else
            json_object_set_new(details, d->name, json_real(d->number));
    }
    json_object_set_new(object, "details", details);
}

char *weft_message_json(const char *level, const char *verb, weft_message_class kind,
                        const weft_message_fields *at, const char *text)
{
    json_t *object = json_object();
    if (!object)
        return NULL;
    set_text(object, "level", level);
    if (verb)
        set_text(object, "verb", verb);
    if (kind != WEFT_MSG_NONE)
        set_text(object, "id", weft_message_id(kind));
    if (at)
        set_fields(object, at);
    set_text(object, "message", text);
    char *line = weft_json_line(object);
    json_decref(object);
    return line;
}

bool weft_message_as_json(void)
{
    const char *format = getenv("WEFT_LOG_FORMAT");
    return format && !strcmp(format, "json");
}
