#include "train/monitor/data_report.h"

#include "base/log.h"
#include "comm/comm_world.h"

#include <stdio.h>
#include <string.h>

weft_status weft_data_report_merge(weft_comm *comm, weft_loader *l)
{
    enum { CHUNK = 4096 };
    static const weft_sample_outcome late[] = {WEFT_SAMPLE_UNDECODABLE, WEFT_SAMPLE_CORRUPT};
    double bad[CHUNK];
    const int64_t count = weft_dataset_count(weft_loader_dataset(l));
    for (int k = 0; k < 2; k++)
        for (int64_t first = 0; first < count; first += CHUNK) {
            const int64_t n = count - first < CHUNK ? count - first : CHUNK;
            for (int64_t i = 0; i < n; i++)
                bad[i] = weft_loader_outcome(l, first + i) == late[k];
            WEFT_TRY(weft_comm_sum(comm, bad, (int)n));
            for (int64_t i = 0; i < n; i++)
                if (bad[i] > 0)
                    weft_loader_set_outcome(l, first + i, late[k]);
        }
    return WEFT_OK;
}

static void print_lines(const json_t *lines, const char *title)
{
    for (size_t i = 0; i < json_array_size(lines); i++)
        weft_notice(WEFT_MSG_DATA_REPORT, WEFT_AT(.key = title), "%s",
                    json_string_value(json_array_get(lines, i)));
}

weft_status weft_data_report_reads(weft_comm *comm, const weft_loader *l, json_t **read)
{
    const int ranks = weft_comm_ranks(comm);
    const int64_t own = weft_loader_read_bytes(l);
    int64_t *all;
    WEFT_TRY(WEFT_NEW(all, ranks, "the bytes of %d ranks", ranks));
    json_t *list = json_array();
    const weft_status_code status = weft_comm_all_gather(comm, &own, sizeof own, all);
    for (int r = 0; r < ranks; r++)
        json_array_append_new(list, json_integer(all[r]));
    weft_free(all);
    *read = json_pack("{s:o}", "read_bytes", list);
    return status;
}

weft_status weft_data_report_make(const weft_loader *l, const char *title, json_t *more,
                                  json_t **out)
{
    weft_buf text = {0};
    json_t *lines = json_array(), *report = weft_loader_report_json(l);
    weft_loader_format_report(l, &text);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&text));
    if (!lines || !report)
        WEFT_GO(weft_no_memory("the data report"));
    for (char *at = text.data, *end; (end = strchr(at, '\n')); at = end + 1)
        json_array_append_new(lines, json_stringn(at, (size_t)(end - at)));
    print_lines(lines, title);
    json_object_set(report, "summary", lines);
    json_object_update(report, more);
    *out = json_incref(report);
out:
    json_decref(report);
    json_decref(lines);
    weft_buf_free(&text);
    return status;
}

void weft_data_report_print(const json_t *report, const char *title)
{
    print_lines(json_object_get(report, "summary"), title);
}

/* ---- metrics ------------------------------------------------------------------------------- */

void weft_source_metrics_free(weft_source_metrics *m)
{
    weft_free(m->metric);
    weft_free(m->name);
    weft_free(m->before);
    *m = (weft_source_metrics){0};
}

weft_status weft_source_metrics_begin(const weft_loader *l, weft_source_metrics *m)
{
    const weft_section_list *sources = weft_loader_sources(l);
    weft_source_metrics_free(m);
    if (!sources)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(m->metric, sources->count, "metrics of sources"));
    WEFT_TRY(WEFT_NEW(m->name, sources->count, "metrics of sources"));
    WEFT_TRY(WEFT_NEW(m->before, sources->count, "metrics of sources"));
    m->count = (int)sources->count;
    for (int i = 0; i < m->count; i++) {
        char name[WEFT_SOURCE_NAME_BYTES];
        weft_data_source_name((const weft_data_source *)sources->item + i, name);
        snprintf(m->name[i], sizeof m->name[i], "samples/%s", name);
        m->metric[i].name = m->name[i];
        m->before[i] = weft_loader_source_items(l, i);
    }
    return WEFT_OK;
}

void weft_source_metrics_update(const weft_loader *l, weft_source_metrics *m)
{
    for (int i = 0; i < m->count; i++) {
        const int64_t now = weft_loader_source_items(l, i);
        m->metric[i].value = (double)(now - m->before[i]);
        m->before[i] = now;
    }
}
