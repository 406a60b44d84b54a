#include "storage/s3_xml.h"

#include "base/config.h"
#include "base/hex.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdio.h>
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
    uint32_t code;
    const int64_t n = 1 + weft_character_reference(text + 1, bytes - 1, &code);
    if (n > 1 && n < bytes && text[n] == ';' && code > 0 && code < 0x110000) {
        weft_utf8_append(to, code);
        return n + 1;
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
        const int high = text[i] == '%' && i + 2 < bytes ? weft_hex_digit(text[i + 1]) : -1,
                  low = high < 0 ? -1 : weft_hex_digit(text[i + 2]);
        if (low >= 0) {
            text[to] = (char)(16 * high + low);
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

/* The first element, after declarations; NULL: the text ends before it. */
static const char *find_root(const char *xml)
{
    while (xml && (xml[1] == '?' || xml[1] == '!')) {
        xml = strchr(xml, '>');
        xml = xml ? strchr(xml, '<') : NULL;
    }
    return xml;
}

bool weft_xml_is_cut(const char *xml)
{
    static const char space[] = " \t\r\n";
    if (!xml || xml[strspn(xml, space)] != '<')
        return false;
    const char *root = find_root(xml + strspn(xml, space));
    if (!root)
        return true;
    const size_t name = strcspn(root + 1, "/> \t\r\n");
    size_t end = strlen(root);
    while (end && isspace((unsigned char)root[end - 1]))
        end--;
    if (end > 2 && strchr(root, '>') == root + end - 1 && root[end - 2] == '/')
        return false;
    const char *tag = end >= 2 * name + 5 ? root + end - name - 3 : "";
    return strncmp(tag, "</", 2) != 0 || strncmp(tag + 2, root + 1, name) != 0 ||
           tag[name + 2] != '>';
}
