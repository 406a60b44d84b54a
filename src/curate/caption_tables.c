#include "curate/caption_tables.h"

#include "base/compare.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_caption_tables_read(const weft_curate_plan *p, weft_caption_tables *t)
{
    for (int64_t i = 0; i < p->sources; i++) {
        const weft_curate_source *s = &p->source[i];
        if (s->kind != WEFT_SOURCE_KIND_TABLE)
            continue;
        WEFT_TRY(weft_grow((void **)&t->table, t->tables, &t->capacity, sizeof *t->table));
        weft_caption_table *table = &t->table[t->tables++];
        *table = (weft_caption_table){.source = s,
                                      .folder = (size_t)(weft_path_base(s->name) - s->name)};
        WEFT_TRY(weft_caption_csv_read(weft_curate_caption_path(s), &table->csv));
    }
    return WEFT_OK;
}

void weft_caption_tables_free(weft_caption_tables *t)
{
    for (int64_t i = 0; i < t->tables; i++)
        weft_caption_csv_free(&t->table[i].csv);
    weft_free(t->table);
    *t = (weft_caption_tables){0};
}

const char *weft_caption_tables_find(const weft_caption_tables *t, const char *name)
{
    const char *found = NULL;
    size_t nearest = 0;
    for (int64_t i = 0; i < t->tables; i++) {
        const weft_caption_table *table = &t->table[i];
        if (strncmp(name, table->source->name, table->folder) != 0 ||
            (found && table->folder < nearest))
            continue;
        const char *caption = weft_caption_csv_find(&table->csv, name + table->folder);
        if (!caption)
            continue;
        found = caption;
        nearest = table->folder;
    }
    return found;
}

void weft_caption_table_why(const weft_caption_table *t, const weft_names *names, weft_buf *why)
{
    int64_t lost = 0, first = 0;
    if (t->csv.why.len)
        weft_buf_printf(why, "%s", t->csv.why.data);
    for (int64_t i = 0; i < t->csv.rows; i++) {
        weft_buf name = {0};
        weft_buf_printf(&name, "%.*s%s", (int)t->folder, t->source->name, t->csv.row[i].file);
        const bool known = name.data && names->count &&
                           bsearch(&name.data, names->name, (size_t)names->count,
                                   sizeof *names->name, weft_compare_text);
        if (!known && !lost++)
            first = i;
        weft_buf_free(&name);
    }
    if (lost)
        weft_buf_printf(why,
                        "%s%" PRId64 " of %" PRId64
                        " rows name no video, the first in line %" PRId64 ": %.80s",
                        why->len ? "; " : "", lost, t->csv.rows, t->csv.row[first].line,
                        t->csv.row[first].file);
}
