#include "curate/sidecar.h"

#include "base/fs.h"
#include "base/status.h"
#include "base/utf8.h"

#include <ctype.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20 };

/* Skips a byte order mark; a UTF-16 mark is reported in `why`. */
static const char *after_mark(const char *data, int64_t bytes, weft_buf *why)
{
    const unsigned char *d = (const unsigned char *)data;
    if (bytes >= 2 && ((d[0] == 0xff && d[1] == 0xfe) || (d[0] == 0xfe && d[1] == 0xff)))
        weft_buf_printf(why, "is UTF-16; save it as UTF-8");
    return bytes >= 3 && d[0] == 0xef && d[1] == 0xbb && d[2] == 0xbf ? data + 3 : data;
}

static void read_text(const char *data, int64_t bytes, weft_sidecar *out)
{
    const char *text = after_mark(data, bytes, &out->why);
    int64_t length = bytes - (text - data);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    if (out->why.len > 0)
        return;
    if (memchr(text, 0, (size_t)length))
        weft_buf_printf(&out->why, "is not text: it contains a NUL byte");
    else if (length == 0)
        weft_buf_printf(&out->why, "is empty");
    else if (!weft_utf8_valid(text))
        weft_buf_printf(&out->why, "is not UTF-8");
    else if ((out->text = weft_strdup(text)))
        out->text[length] = 0;
}

/* True for text. A value that is neither text nor absent is reported in `why`. */
static bool has_text(const json_t *object, const char *where, weft_buf *why)
{
    const json_t *caption = json_object_get(object, "caption");
    if (!caption || json_is_string(caption))
        return caption && json_string_length(caption) > 0;
    char *shown = json_dumps(caption, JSON_ENCODE_ANY | JSON_COMPACT);
    if (why->len == 0)
        weft_buf_printf(why, "%s\"caption\" is %.60s, not text", where, shown ? shown : "no text");
    weft_free(shown);
    return false;
}

static void read_json(const char *path, const char *data, int64_t bytes, weft_sidecar *out)
{
    const char *text = after_mark(data, bytes, &out->why);
    if (out->why.len > 0)
        return;
    if (weft_json_parse(text, bytes - (text - data), path, &out->json) != WEFT_OK) {
        weft_buf_printf(&out->why, "%s", weft_error_message());
        return;
    }
    const json_t *shots = json_object_get(out->json, "shots");
    bool any = has_text(out->json, "", &out->why);
    size_t i;
    json_t *shot;
    json_array_foreach(shots, i, shot)
    {
        char where[40];
        snprintf(where, sizeof where, "shots[%zu]: ", i);
        any |= has_text(shot, where, &out->why);
    }
    if (!json_is_object(out->json))
        weft_buf_printf(&out->why, "is not a JSON object");
    else if (!any && out->why.len == 0)
        weft_buf_printf(&out->why, "has neither a \"caption\" nor \"shots\" with captions");
}

static void read_vtt(char *data, int64_t bytes, weft_sidecar *out)
{
    const char *text = after_mark(data, bytes, &out->why);
    if (out->why.len > 0)
        return;
    if (memchr(text, 0, (size_t)(bytes - (text - data))) || !weft_utf8_valid(text))
        weft_buf_printf(&out->why, "is not UTF-8");
    else if (weft_caption_vtt_parse(data + (text - data), &out->cues, &out->why) != WEFT_OK)
        weft_buf_printf(&out->why, "%s", weft_error_message());
}

void weft_sidecar_read(const char *path, weft_sidecar *out)
{
    char *data = NULL;
    int64_t bytes = 0;
    *out = (weft_sidecar){0};
    if (weft_file_read(path, MOST_BYTES, &data, &bytes) != WEFT_OK)
        weft_buf_printf(&out->why, "%s", weft_error_message());
    else if (strcasecmp(weft_path_extension(path), "json") == 0)
        read_json(path, data, bytes, out);
    else if (strcasecmp(weft_path_extension(path), "vtt") == 0)
        read_vtt(data, bytes, out);
    else
        read_text(data, bytes, out);
    weft_free(data);
}

void weft_sidecar_free(weft_sidecar *s)
{
    json_decref(s->json);
    weft_free(s->text);
    weft_caption_vtt_free(&s->cues);
    weft_buf_free(&s->why);
    *s = (weft_sidecar){0};
}

static const char *text_or_null(const json_t *object)
{
    const char *text = json_string_value(json_object_get(object, "caption"));
    return text && *text ? text : NULL;
}

void weft_sidecar_join_cues(const weft_sidecar *s, double start, double end, weft_buf *caption)
{
    weft_caption_vtt_join(&s->cues, start, end, caption);
}

const char *weft_sidecar_caption(const weft_sidecar *s, int64_t start, int64_t end)
{
    const char *caption = s->text ? s->text : text_or_null(s->json);
    int64_t most = (end - start + 2) / 2;
    size_t i;
    json_t *shot;
    json_array_foreach(json_object_get(s->json, "shots"), i, shot)
    {
        const int64_t a = json_integer_value(json_object_get(shot, "start"));
        const int64_t b = json_integer_value(json_object_get(shot, "end"));
        const int64_t shared = (b < end ? b : end) - (a > start ? a : start) + 1;
        if (shared >= most && text_or_null(shot)) {
            most = shared;
            caption = text_or_null(shot);
        }
    }
    return caption;
}
