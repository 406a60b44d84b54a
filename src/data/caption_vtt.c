#include "data/caption_vtt.h"

#include "base/status.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Cuts the next line out of *at; NULL: the end. */
static char *next_line(char **at)
{
    char *line = *at;
    if (!*line)
        return NULL;
    const size_t length = strcspn(line, "\r\n");
    char *end = line + length;
    *at = end + (*end == '\r' && end[1] == '\n') + (*end != '\0');
    *end = '\0';
    return line;
}

/* Reads "[hours:]minutes:seconds.milliseconds" and advances *at. False: another text. */
static bool read_time(const char **at, double *seconds)
{
    double part[3];
    int parts = 0;
    const char *text = *at;
    while (parts < 3) {
        char *end;
        if (!isdigit((unsigned char)*text))
            return false;
        part[parts++] = strtod(text, &end);
        text = end;
        if (*text != ':')
            break;
        text++;
    }
    if (parts < 2)
        return false;
    *seconds = part[parts - 1] + 60 * part[parts - 2] + (parts == 3 ? 3600 * part[0] : 0);
    *at = text;
    return true;
}

/* Reads "START --> END settings". */
static bool read_span(const char *line, double *start, double *end)
{
    line += strspn(line, " \t");
    if (!read_time(&line, start))
        return false;
    line += strspn(line, " \t");
    if (strncmp(line, "-->", 3) != 0)
        return false;
    line += 3;
    line += strspn(line, " \t");
    return read_time(&line, end) && *end > *start;
}

/* Appends a line of a cue without tags, with its character references as characters. */
static void add_text(weft_buf *out, const char *line)
{
    static const struct {
        const char *name, *text;
    } references[] = {{"&amp;", "&"},  {"&lt;", "<"}, {"&gt;", ">"},
                      {"&nbsp;", " "}, {"&lrm;", ""}, {"&rlm;", ""}};
    if (out->len)
        weft_buf_append(out, " ", 1);
    while (*line) {
        size_t taken = 1;
        const char *text = line;
        size_t length = 1;
        if (*line == '<' && strchr(line, '>')) {
            taken = (size_t)(strchr(line, '>') - line) + 1;
            length = 0;
        }
        for (size_t i = 0; *line == '&' && i < sizeof references / sizeof *references; i++)
            if (!strncmp(line, references[i].name, strlen(references[i].name))) {
                taken = strlen(references[i].name);
                text = references[i].text;
                length = strlen(text);
            }
        weft_buf_append(out, text, (int64_t)length);
        line += taken;
    }
}

/* Reads the lines of a cue up to a blank one. */
static weft_status add_cue(weft_caption_vtt *vtt, double start, double end, char **at)
{
    weft_buf text = {0};
    char *line;
    while ((line = next_line(at)) && line[strspn(line, " \t")])
        add_text(&text, line);
    WEFT_TRY(weft_buf_check(&text));
    if (!text.len) {
        weft_buf_free(&text);
        return WEFT_OK;
    }
    const weft_status_code status =
        weft_grow((void **)&vtt->cue, vtt->cues, &vtt->capacity, sizeof *vtt->cue);
    if (status != WEFT_OK) {
        weft_buf_free(&text);
        return status;
    }
    vtt->cue[vtt->cues++] = (weft_caption_cue){start, end, text.data};
    return WEFT_OK;
}

weft_status weft_caption_vtt_parse(char *text, weft_caption_vtt *vtt, weft_buf *why)
{
    char *line = next_line(&text);
    if (!line || strncmp(line, "WEBVTT", 6) != 0) {
        weft_buf_printf(why, "does not begin with WEBVTT");
        return WEFT_OK;
    }
    while ((line = next_line(&text))) {
        double start, end;
        if (read_span(line, &start, &end))
            WEFT_TRY(add_cue(vtt, start, end, &text));
        else if (strstr(line, "-->") && !why->len)
            weft_buf_printf(why, "\"%.60s\" is not the span of a cue", line);
    }
    if (!vtt->cues && !why->len)
        weft_buf_printf(why, "has no cue with a text");
    return WEFT_OK;
}

void weft_caption_vtt_free(weft_caption_vtt *vtt)
{
    for (int64_t i = 0; i < vtt->cues; i++)
        weft_free(vtt->cue[i].text);
    weft_free(vtt->cue);
    *vtt = (weft_caption_vtt){0};
}

void weft_caption_vtt_join(const weft_caption_vtt *vtt, double start, double end, weft_buf *caption)
{
    for (int64_t i = 0; i < vtt->cues; i++) {
        const weft_caption_cue *c = &vtt->cue[i];
        const double shared = fmin(c->end, end) - fmax(c->start, start);
        if (shared < (c->end - c->start) / 2 && shared < (end - start) / 2)
            continue;
        if (shared > 0)
            weft_buf_printf(caption, "%s%s", caption->len ? " " : "", c->text);
    }
}
