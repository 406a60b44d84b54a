#include "draw/html.h"

#include "base/config.h"
#include "base/fs.h"

#include <string.h>
#include <strings.h>

static void put(weft_buf *page, const char *text)
{
    weft_buf_append(page, text, (int64_t)strlen(text));
}

void weft_html_begin(weft_buf *page, const char *title)
{
    put(page, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    weft_xml_escape(page, title);
    put(page,
        "</title>\n<style>\n"
        ":root{color-scheme:light dark}\n"
        "body{font:15px/1.5 system-ui,sans-serif;max-width:1120px;margin:2em auto;padding:0 1em}\n"
        "h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em}\n"
        "table{border-collapse:collapse;margin:1em 0}\n"
        "td,th{padding:.25em .8em;border-bottom:1px solid #8884;text-align:left}\n"
        "td.n{text-align:right;font-variant-numeric:tabular-nums}\n"
        ".figures{display:inline-flex;gap:.5em;margin:0 1.5em 1em 0;vertical-align:top}\n"
        "figure{margin:0;max-width:100%}figcaption{font-size:.8em;max-width:21em}\n"
        "img,video,svg{max-width:100%;height:auto}img,video{image-rendering:pixelated}\n"
        ".plot{display:inline-block;width:49%;min-width:24em}\n"
        "</style></head><body>\n<h1>");
    weft_xml_escape(page, title);
    put(page, "</h1>\n");
}

static void element(weft_buf *page, const char *tag, const char *text)
{
    weft_buf_printf(page, "<%s>", tag);
    weft_xml_escape(page, text);
    weft_buf_printf(page, "</%s>\n", tag);
}

void weft_html_heading(weft_buf *page, const char *text)
{
    element(page, "h2", text);
}

/* Returns true if the text starts as a number: "12", "-0.5", "3e4", "98 %", "1.2 s". */
static bool looks_numeric(const char *text)
{
    char word[32] = "";
    const size_t length = strcspn(text, " %");
    if (length == 0 || length >= sizeof word)
        return false;
    memcpy(word, text, length);
    double value;
    return weft_parse_f64(word, &value);
}

void weft_html_table(weft_buf *page, const char *const *head, const char *const *cell, int rows,
                     int columns)
{
    put(page, "<table>\n");
    for (int c = 0; head && c < columns; c++) {
        put(page, c == 0 ? "<tr><th>" : "<th>");
        weft_xml_escape(page, head[c]);
        put(page, c + 1 < columns ? "</th>" : "</th></tr>\n");
    }
    for (int i = 0; i < rows * columns; i++) {
        const char *text = cell[i] ? cell[i] : "";
        put(page, i % columns == 0 ? "<tr>" : "");
        put(page, looks_numeric(text) ? "<td class=\"n\">" : "<td>");
        weft_xml_escape(page, text);
        put(page, (i + 1) % columns ? "</td>" : "</td></tr>\n");
    }
    put(page, "</table>\n");
}

void weft_html_svg(weft_buf *page, const weft_buf *svg)
{
    put(page, "<figure class=\"plot\">");
    page->failed = page->failed || svg->failed;
    weft_buf_append(page, svg->data ? svg->data : "", svg->len);
    put(page, "</figure>\n");
}

void weft_html_figures_begin(weft_buf *page)
{
    put(page, "<div class=\"figures\">\n");
}

void weft_html_figures_end(weft_buf *page)
{
    put(page, "</div>\n");
}

/* Appends <figure><TAG src="data:TYPE;base64,..."> with a caption below. */
static void embed(weft_buf *page, const char *tag, const char *type, const void *data,
                  int64_t bytes, int64_t width, const char *caption)
{
    weft_buf_printf(page, "<figure><%s", tag);
    if (width > 0)
        weft_buf_printf(page, " width=\"%" PRId64 "\"", width);
    weft_buf_printf(page, " src=\"data:%s;base64,", type);
    weft_base64(page, data, bytes);
    put(page, strcmp(tag, "img") ? "\"></video>" : "\" alt=\"\">");
    if (caption)
        element(page, "figcaption", caption);
    put(page, "</figure>\n");
}

void weft_html_png(weft_buf *page, const void *png, int64_t bytes, int64_t width,
                   const char *caption)
{
    embed(page, "img", "image/png", png, bytes, width, caption);
}

static const char *const video_tag = "video autoplay loop muted playsinline";

void weft_html_mp4(weft_buf *page, const void *mp4, int64_t bytes, int64_t width,
                   const char *caption)
{
    embed(page, video_tag, "video/mp4", mp4, bytes, width, caption);
}

/* Sets the media type of a file by its extension, and whether it is a video. */
static weft_status type_of(const char *path, const char **type, bool *video)
{
    static const struct {
        const char *extension, *type;
        bool video;
    } known[] = {{"png", "image/png", false},   {"jpg", "image/jpeg", false},
                 {"jpeg", "image/jpeg", false}, {"gif", "image/gif", false},
                 {"mp4", "video/mp4", true},    {"webm", "video/webm", true}};
    for (int i = 0; i < WEFT_COUNT(known); i++) {
        if (strcasecmp(weft_path_extension(path), known[i].extension))
            continue;
        *type = known[i].type;
        *video = known[i].video;
        return WEFT_OK;
    }
    return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = path),
                      "a page cannot embed this kind of file. Use png, jpg, gif, mp4 or webm.");
}

weft_status weft_html_file(weft_buf *page, const char *path, int64_t width, const char *caption)
{
    const char *type;
    bool video;
    weft_map map;
    WEFT_TRY(type_of(path, &type, &video));
    WEFT_TRY(weft_map_open(path, &map));
    embed(page, video ? video_tag : "img", type, map.data, map.bytes, width, caption);
    weft_map_close(&map);
    return weft_buf_check(page);
}

weft_status weft_html_media(weft_buf *page, const char *path)
{
    const char *type;
    bool video;
    weft_map map;
    WEFT_TRY(type_of(path, &type, &video));
    WEFT_TRY(weft_map_open(path, &map));
    weft_buf_printf(page, "<%s src=\"data:%s;base64,",
                    video ? "video muted playsinline preload=\"auto\"" : "img alt=\"\"", type);
    weft_base64(page, map.data, map.bytes);
    put(page, video ? "\"></video>" : "\">");
    weft_map_close(&map);
    return weft_buf_check(page);
}

void weft_html_end(weft_buf *page)
{
    put(page, "</body></html>\n");
}

void weft_base64(weft_buf *out, const void *data, int64_t bytes)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    char block[4096];
    int fill = 0;
    for (int64_t i = 0; i < bytes; i += 3) {
        const int left = bytes - i < 3 ? (int)(bytes - i) : 3;
        const unsigned v = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) |
                           (left > 2 ? p[i + 2] : 0);
        block[fill++] = digit[v >> 18];
        block[fill++] = digit[v >> 12 & 63];
        block[fill++] = left > 1 ? digit[v >> 6 & 63] : '=';
        block[fill++] = left > 2 ? digit[v & 63] : '=';
        if (fill == sizeof block) {
            weft_buf_append(out, block, fill);
            fill = 0;
        }
    }
    weft_buf_append(out, block, fill);
}
