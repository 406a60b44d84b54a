#include "storage/s3_xml.h"

#include "base/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the tag at `at`, after '<', has this name. */
static bool is_tag(const char *at, const char *name, size_t length)
{
    return !strncmp(at, name, length) &&
           (at[length] == '>' || at[length] == '/' || isspace((unsigned char)at[length]));
}

const char *weft_xml_find(const char *from, const char *name, int64_t *bytes)
{
    const size_t length = strlen(name);
    for (const char *at = from ? strchr(from, '<') : NULL; at; at = strchr(at + 1, '<')) {
        if (!is_tag(at + 1, name, length))
            continue;
        const char *start = strchr(at, '>');
        if (!start)
            return NULL;
        start++;
        *bytes = 0;
        if (start[-2] == '/') /* an empty element */
            return start;
        for (const char *end = strstr(start, "</"); end; end = strstr(end + 2, "</"))
            if (is_tag(end + 2, name, length)) {
                *bytes = end - start;
                return start;
            }
        return NULL;
    }
    return NULL;
}

static void add_code_point(weft_buf *to, unsigned long code)
{
    char utf8[4];
    int n = 0;
    if (code < 0x80) {
        utf8[n++] = (char)code;
    } else if (code < 0x800) {
        utf8[n++] = (char)(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            utf8[n++] = (char)(0xe0 | code >> 12);
        } else {
            utf8[n++] = (char)(0xf0 | (code >> 18 & 7));
            utf8[n++] = (char)(0x80 | (code >> 12 & 0x3f));
        }
        utf8[n++] = (char)(0x80 | (code >> 6 & 0x3f));
    }
    if (code >= 0x80)
        utf8[n++] = (char)(0x80 | (code & 0x3f));
    weft_buf_append(to, utf8, n);
}

/* Appends the entity at text, which begins with '&'. Returns its bytes; 0: it is not an entity. */
static int64_t add_entity(weft_buf *to, const char *text, int64_t bytes)
{
    static const struct {
        const char *name, *value;
    } entities[] = {
        {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&quot;", "\""}, {"&apos;", "'"}};
    for (int i = 0; i < WEFT_COUNT(entities); i++) {
        const int64_t length = (int64_t)strlen(entities[i].name);
        if (length <= bytes && !strncmp(text, entities[i].name, (size_t)length)) {
            weft_buf_append(to, entities[i].value, 1);
            return length;
        }
    }
    if (bytes > 3 && text[1] == '#') {
        const bool hex = text[2] == 'x';
        char *end;
        const unsigned long code = strtoul(text + (hex ? 3 : 2), &end, hex ? 16 : 10);
        if (*end == ';' && end - text < bytes && code > 0 && code < 0x110000) {
            add_code_point(to, code);
            return end - text + 1;
        }
    }
    return 0;
}

void weft_xml_decode(weft_buf *to, const char *text, int64_t bytes)
{
    for (int64_t i = 0; i < bytes;) {
        const int64_t used = text[i] == '&' ? add_entity(to, text + i, bytes - i) : 0;
        if (!used)
            weft_buf_append(to, text + i, 1);
        i += used ? used : 1;
    }
}

int64_t weft_uri_decode(char *text, int64_t bytes)
{
    int64_t to = 0;
    for (int64_t i = 0; i < bytes; to++) {
        if (text[i] == '%' && i + 2 < bytes && isxdigit((unsigned char)text[i + 1]) &&
            isxdigit((unsigned char)text[i + 2])) {
            const char hex[3] = {text[i + 1], text[i + 2], 0};
            text[to] = (char)strtol(hex, NULL, 16);
            i += 3;
        } else {
            text[to] = text[i] == '+' ? ' ' : text[i];
            i++;
        }
    }
    text[to] = 0;
    return to;
}

const char *weft_xml_text(const char *xml, const char *name, char *text, int64_t size)
{
    weft_buf decoded = {0};
    int64_t bytes;
    const char *content = weft_xml_find(xml, name, &bytes);
    if (content)
        weft_xml_decode(&decoded, content, bytes);
    snprintf(text, (size_t)size, "%s", decoded.data && !decoded.failed ? decoded.data : "");
    weft_buf_free(&decoded);
    return text;
}
