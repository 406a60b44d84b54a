#include "parity/parity_all.h"

#include "base/fs.h"
#include "base/log.h"
#include "parity/parity.h"

#include <stdlib.h>
#include <string.h>

const weft_parity_measure *weft_parity_largest(const weft_parity_record *record, int first)
{
    const weft_parity_measure *largest = NULL;
    for (int i = first; i < record->measures; i++) {
        const weft_parity_measure *m = &record->measure[i];
        if (!largest || weft_parity_is_larger(m->worst / m->limit, largest->worst / largest->limit))
            largest = m;
    }
    return largest;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Adds folder/PREFIX*.json. */
static weft_status add_files(const char *folder, const char *prefix, weft_parity_table *table)
{
    weft_names names = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_list_dir(folder, false, &names));
    weft_parity_row *grown =
        weft_realloc(table->row, (table->rows + names.count + 1) * (int64_t)sizeof *table->row);
    WEFT_GO(WEFT_ALLOCATED(grown, "%" PRId64 " golden files", names.count));
    table->row = grown;
    for (int64_t i = 0; i < names.count; i++) {
        if (strcmp(weft_path_extension(names.name[i]), "json") ||
            strncmp(names.name[i], prefix, strlen(prefix)))
            continue;
        char *path = weft_path_join(folder, names.name[i]);
        WEFT_GO(WEFT_ALLOCATED(path, "%s", names.name[i]));
        table->row[table->rows++] = (weft_parity_row){.file = path};
    }
out:
    weft_names_free(&names);
    return status;
}

/* Adds the cases of the models in `folder`, which are in its sub-folders. */
static weft_status add_pipelines(const char *folder, weft_parity_table *table)
{
    weft_names names = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_list_dir(folder, false, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *model = weft_path_join(folder, names.name[i]);
        status = !model                    ? weft_no_memory("%s", names.name[i])
                 : weft_path_is_dir(model) ? add_files(model, "asked", table)
                                           : WEFT_OK;
        weft_free(model);
        WEFT_GO(status);
    }
out:
    weft_names_free(&names);
    return status;
}

static weft_status add_folder(const char *folder, weft_parity_table *table)
{
    const int64_t before = table->rows;
    char *pipelines = weft_path_join(folder, "pipelines");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(pipelines, "%s", folder));
    WEFT_GO(add_files(folder, "asked", table)); /* the folder of one pipeline */
    if (table->rows > before)
        goto out;
    WEFT_GO(add_files(folder, "", table));
    if (weft_path_is_dir(pipelines))
        WEFT_GO(add_pipelines(pipelines, table));
    else if (table->rows == before)
        WEFT_GO(add_pipelines(folder, table));
    if (table->rows == before)
        WEFT_GO(weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = folder),
                           "the folder has no golden file; one is NAME.json, in most cases with "
                           "NAME.safetensors"));
out:
    weft_free(pipelines);
    return status;
}

/* The name of a row: the file, and for pipelines its folder, too. */
const char *weft_parity_row_name(const weft_parity_row *row)
{
    const char *base = weft_path_base(row->file), *name = base;
    const bool pipeline = row->record.kind && !strcmp(row->record.kind, "pipeline");
    if (!pipeline || base == row->file)
        return base;
    for (name--; name > row->file && name[-1] != '/'; name--)
        ;
    return name;
}

static weft_status compare_row(const weft_parity_request *request, weft_parity_row *row)
{
    weft_parity_request own = *request;
    own.json = row->file;
    if (weft_parity_compare(&own, &row->record) == WEFT_OK)
        return WEFT_OK;
    row->result = row->record.needs ? WEFT_PARITY_SKIPPED : WEFT_PARITY_FAILED;
    row->reason = weft_strdup(weft_error_message());
    return WEFT_ALLOCATED(row->reason, "the result of %s", row->file);
}

/* ---- groups --------------------------------------------------------------------------------- */

static const char *group_of(const weft_parity_row *row)
{
    const weft_parity_record *r = &row->record;
    const char *class_name = r->class_name[0] ? r->class_name : "no class";
    return r->family ? r->family : class_name;
}

static void add_to_group(const weft_parity_row *row, weft_parity_table *table)
{
    int64_t i = 0;
    const char *name = group_of(row);
    while (i < table->groups && strcmp(table->group[i].name, name) != 0)
        i++;
    weft_parity_group *g = &table->group[i];
    if (i == table->groups)
        table->group[table->groups++] = (weft_parity_group){.name = name};
    g->count[row->result]++;
    g->seconds += row->record.seconds;
    const weft_parity_measure *largest = weft_parity_largest(&row->record, 0);
    if (largest && weft_parity_is_larger(largest->worst / largest->limit, g->worst))
        g->worst = largest->worst / largest->limit;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weft_parity_group *)a)->name, ((const weft_parity_group *)b)->name);
}

static weft_status make_groups(weft_parity_table *table)
{
    WEFT_TRY(WEFT_NEW(table->group, table->rows + 1, "the summary"));
    for (int64_t i = 0; i < table->rows; i++) {
        add_to_group(&table->row[i], table);
        table->count[table->row[i].result]++;
    }
    qsort(table->group, (size_t)table->groups, sizeof *table->group, by_name);
    return WEFT_OK;
}

/* ---- all ------------------------------------------------------------------------------------ */

weft_status weft_parity_run_all(const char *const *folder, int folders,
                                const weft_parity_request *request, weft_parity_table *table)
{
    weft_progress progress;
    for (int i = 0; i < folders; i++)
        WEFT_TRY(add_folder(folder[i], table));
    weft_progress_begin(&progress, "parity", table->rows, 0);
    for (int64_t i = 0; i < table->rows; i++) {
        weft_progress_update(&progress, i, weft_path_base(table->row[i].file));
        WEFT_TRY(compare_row(request, &table->row[i]));
    }
    weft_progress_end(&progress, table->rows, "");
    return make_groups(table);
}

void weft_parity_table_free(weft_parity_table *table)
{
    for (int64_t i = 0; i < table->rows; i++) {
        weft_free(table->row[i].file);
        weft_free(table->row[i].reason);
    }
    weft_free(table->row);
    weft_free(table->group);
    *table = (weft_parity_table){0};
}
