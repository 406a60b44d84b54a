#include "data/caption_csv.h"

#include "base/fs.h"
#include "base/status.h"
#include "base/utf8.h"
#include "data/index.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_BYTES = 256 << 20, MOST_FIELDS = 256 };

/* Position in the table. Fields are cut out in place. */
typedef struct reader {
    char *at, *end;
    int64_t line; /* of `at` */
    bool open;    /* a quote has no end */
} reader;

/* Reads the next field. Returns false at the end of the record, whose last field it was. */
static bool next_field(reader *r, char **field)
{
    char *to = r->at;
    *field = to;
    bool quoted = r->at < r->end && *r->at == '"';
    r->at += quoted;
    while (r->at < r->end) {
        const char c = *r->at;
        if (quoted && c == '"' && r->at + 1 < r->end && r->at[1] == '"') {
            r->at++;
        } else if (quoted && c == '"') {
            quoted = false;
            r->at++;
            continue;
        } else if (!quoted && (c == ',' || c == '\n')) {
            break;
        }
        r->line += c == '\n';
        *to++ = *r->at++;
    }
    r->open |= quoted;
    const bool more = r->at < r->end && *r->at == ',';
    r->line += r->at < r->end && *r->at == '\n';
    if (!more && to > *field && to[-1] == '\r')
        to--;
    r->at += r->at < r->end;
    *to = '\0';
    return more;
}

/* Reads a record and sets the two fields of the columns; NULL: the record is too short. */
static void next_record(reader *r, const int column[2], char *value[2])
{
    bool more = true;
    value[0] = value[1] = NULL;
    for (int i = 0; more; i++) {
        char *field;
        more = next_field(r, &field);
        for (int k = 0; k < 2; k++)
            if (i == column[k])
                value[k] = field;
    }
}

/* Finds the columns "file" and "caption". */
static bool read_header(reader *r, int column[2])
{
    static const char *const names[2] = {"file", "caption"};
    bool more = r->at < r->end;
    column[0] = column[1] = -1;
    for (int i = 0; more && i < MOST_FIELDS; i++) {
        char *field;
        more = next_field(r, &field);
        for (int k = 0; k < 2; k++)
            if (!strcasecmp(field, names[k]))
                column[k] = i;
    }
    return column[0] >= 0 && column[1] >= 0;
}

static int by_file(const void *a, const void *b)
{
    const weft_caption_row *x = a, *y = b;
    const int order = strcmp(x->file, y->file);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static weft_status add_row(weft_caption_csv *csv, char *const value[2], int64_t line)
{
    WEFT_TRY(weft_grow((void **)&csv->row, csv->rows, &csv->capacity, sizeof *csv->row));
    weft_caption_row *row = &csv->row[csv->rows];
    *row = (weft_caption_row){weft_strdup(value[0]), weft_strdup(value[1]), line};
    csv->rows++;
    return WEFT_ALLOCATED(row->file && row->caption, "a table of captions");
}

static void note(weft_caption_csv *csv, int64_t line, const char *what, const char *value)
{
    if (!csv->why.len)
        weft_buf_printf(&csv->why, "line %" PRId64 " %s%.80s", line, what, value);
}

static weft_status read_rows(reader *r, const int column[2], weft_caption_csv *csv)
{
    while (r->at < r->end) {
        char *value[2];
        const int64_t line = r->line;
        next_record(r, column, value);
        const bool blank = value[0] && !value[0][0] && !value[1];
        if (value[1])
            value[1][weft_caption_clean(value[1], (int64_t)strlen(value[1]))] = '\0';
        if (!blank && (!value[0] || !value[1] || !value[0][0]))
            note(csv, line, "has no file or no caption", "");
        else if (value[1] && value[1][0])
            WEFT_TRY(add_row(csv, value, line));
    }
    if (r->open)
        note(csv, r->line, "ends inside a quoted field", "");
    return WEFT_OK;
}

/* Keeps the first of several rows of a file. */
static void drop_repeated(weft_caption_csv *csv)
{
    int64_t kept = 0;
    if (csv->rows)
        qsort(csv->row, (size_t)csv->rows, sizeof *csv->row, by_file);
    for (int64_t i = 0; i < csv->rows; i++) {
        if (kept && !strcmp(csv->row[kept - 1].file, csv->row[i].file)) {
            note(csv, csv->row[i].line, "repeats the file ", csv->row[i].file);
            weft_free(csv->row[i].file);
            weft_free(csv->row[i].caption);
            continue;
        }
        csv->row[kept++] = csv->row[i];
    }
    csv->rows = kept;
}

weft_status weft_caption_csv_parse(char *data, int64_t bytes, weft_caption_csv *csv)
{
    int column[2];
    *csv = (weft_caption_csv){0};
    const bool marked = bytes >= 3 && !memcmp(data, "\xef\xbb\xbf", 3);
    reader r = {.at = data + (marked ? 3 : 0), .end = data + bytes, .line = 1};
    if (memchr(data, 0, (size_t)bytes) || !weft_utf8_valid(data))
        weft_buf_printf(&csv->why, "is not UTF-8");
    else if (!read_header(&r, column))
        weft_buf_printf(&csv->why, "has no columns \"file\" and \"caption\" in its first line");
    else
        WEFT_TRY(read_rows(&r, column, csv));
    drop_repeated(csv);
    return WEFT_OK;
}

weft_status weft_caption_csv_read(const char *path, weft_caption_csv *csv)
{
    char *data = NULL;
    int64_t bytes = 0;
    *csv = (weft_caption_csv){0};
    weft_status_code status = weft_file_read(path, MOST_BYTES, &data, &bytes);
    if (status == WEFT_E_MEMORY)
        return status;
    if (status != WEFT_OK) {
        weft_buf_printf(&csv->why, "%s", weft_error_message());
        return WEFT_OK;
    }
    status = weft_caption_csv_parse(data, bytes, csv);
    weft_free(data);
    return status;
}

void weft_caption_csv_free(weft_caption_csv *csv)
{
    for (int64_t i = 0; i < csv->rows; i++) {
        weft_free(csv->row[i].file);
        weft_free(csv->row[i].caption);
    }
    weft_free(csv->row);
    weft_buf_free(&csv->why);
    *csv = (weft_caption_csv){0};
}

static int compare_file(const void *file, const void *row)
{
    return strcmp(file, ((const weft_caption_row *)row)->file);
}

const char *weft_caption_csv_find(const weft_caption_csv *csv, const char *file)
{
    const weft_caption_row *found =
        csv->rows ? bsearch(file, csv->row, (size_t)csv->rows, sizeof *csv->row, compare_file)
                  : NULL;
    return found ? found->caption : NULL;
}
