#include "cli/parity_output.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REASON = 240 }; /* characters of a reason below the table; JSON has all */

static const char *const result_names[] = {"passed", "failed", "skipped"};

void weft_parity_print_record(const char *file, const weft_parity_record *record, weft_buf *out)
{
    weft_buf_printf(out, "%s: %s, ", file, record->kind ? record->kind : "unknown");
    for (int i = 0; i < record->measures; i++)
        weft_buf_printf(out, "%sof %s %.2e (limit %.0e), ", i ? "" : "largest relative error ",
                        record->measure[i].of, record->measure[i].worst, record->measure[i].limit);
    weft_buf_printf(out, "%d comparisons, %d failed\n", record->compared, record->failures);
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Writes "1.2e-06 (1e-05)": the error and its limit. */
static const char *error_text(const weft_parity_measure *m, char text[32])
{
    snprintf(text, 32, "-");
    if (m)
        snprintf(text, 32, "%.1e (%.0e)", m->worst, m->limit);
    return text;
}

static int longest(int width, const char *text)
{
    return (int)strlen(text) > width ? (int)strlen(text) : width;
}

static void print_rows(const weft_parity_table *table, weft_buf *out)
{
    int file = 4, class_name = 5;
    for (int64_t i = 0; i < table->rows; i++) {
        file = longest(file, weft_parity_row_name(&table->row[i]));
        class_name = longest(class_name, table->row[i].record.class_name);
    }
    weft_buf_printf(out, "%-*s  %-*s  %-15s  %-17s  %-17s  %7s  result\n", file, "file", class_name,
                    "class", "compared", "outputs (limit)", "gradients (limit)", "seconds");
    for (int64_t i = 0; i < table->rows; i++) {
        const weft_parity_row *row = &table->row[i];
        const weft_parity_record *r = &row->record;
        char outputs[32], gradients[32];
        weft_buf_printf(out, "%-*s  %-*s  %-15s  %-17s  %-17s  %7.2f  %s\n", file,
                        weft_parity_row_name(row), class_name,
                        r->class_name[0] ? r->class_name : "-", r->kind ? r->kind : "-",
                        error_text(r->measures ? &r->measure[0] : NULL, outputs),
                        error_text(weft_parity_largest(r, 1), gradients), r->seconds,
                        result_names[row->result]);
    }
}

static void print_groups(const weft_parity_table *table, weft_buf *out)
{
    int name = 6;
    for (int64_t i = 0; i < table->groups; i++)
        name = longest(name, table->group[i].name);
    weft_buf_printf(out, "\n%-*s  %5s  %6s  %6s  %8s  %14s  %7s\n", name, "family", "files",
                    "passed", "failed", "skipped", "error / limit", "seconds");
    for (int64_t i = 0; i < table->groups; i++) {
        const weft_parity_group *g = &table->group[i];
        const int64_t *n = g->count;
        weft_buf_printf(
            out, "%-*s  %5" PRId64 "  %6" PRId64 "  %6" PRId64 "  %8" PRId64 "  %14.3g  %7.2f\n",
            name, g->name, n[0] + n[1] + n[2], n[WEFT_PARITY_PASSED], n[WEFT_PARITY_FAILED],
            n[WEFT_PARITY_SKIPPED], g->worst, g->seconds);
    }
}

/* Prints the files that did not pass with the reason. */
static void print_reasons(const weft_parity_table *table, weft_buf *out)
{
    for (int64_t i = 0; i < table->rows; i++) {
        const weft_parity_row *row = &table->row[i];
        if (!row->reason)
            continue;
        const bool cut = strlen(row->reason) > REASON;
        weft_buf_printf(out, "\n%s: %s\n  %.*s%s\n", row->file, result_names[row->result], REASON,
                        row->reason, cut ? " ..." : "");
        if (row->record.first[0])
            weft_buf_printf(out, "  first: %s\n", row->record.first);
    }
}

void weft_parity_print_table(const weft_parity_table *table, weft_buf *out)
{
    print_rows(table, out);
    print_groups(table, out);
    print_reasons(table, out);
    weft_buf_printf(
        out, "\n%" PRId64 " files: %" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped\n",
        table->rows, table->count[WEFT_PARITY_PASSED], table->count[WEFT_PARITY_FAILED],
        table->count[WEFT_PARITY_SKIPPED]);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* JSON has no NaN: an error that is not finite is null. */
static json_t *number_json(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* Names of files, and texts that were cut, may have bytes that are not UTF-8: JSON has "%E9". */
static json_t *text_json(const char *text)
{
    char *valid = text ? weft_utf8_escape(text) : NULL;
    json_t *json = valid ? json_string(valid) : text ? NULL : json_null();
    weft_free(valid);
    return json;
}

json_t *weft_parity_record_json(const char *file, const weft_parity_record *record,
                                weft_parity_result result, const char *reason)
{
    json_t *errors = json_array();
    for (int i = 0; i < record->measures; i++)
        json_array_append_new(errors, json_pack("{s:s, s:o, s:f}", "of", record->measure[i].of,
                                                "largest", number_json(record->measure[i].worst),
                                                "limit", record->measure[i].limit));
    return json_pack("{s:o, s:o, s:s?, s:s?, s:o, s:i, s:i, s:o, s:f, s:s, s:o}", "file",
                     text_json(file), "class", text_json(record->class_name), "family",
                     record->family, "kind", record->kind, "errors", errors, "comparisons",
                     record->compared, "failures", record->failures, "first_failure",
                     text_json(record->first[0] ? record->first : NULL), "seconds", record->seconds,
                     "result", result_names[result], "reason", text_json(reason));
}

json_t *weft_parity_table_json(const weft_parity_table *table)
{
    json_t *files = json_array(), *families = json_array();
    for (int64_t i = 0; i < table->rows; i++) {
        const weft_parity_row *row = &table->row[i];
        json_array_append_new(
            files, weft_parity_record_json(row->file, &row->record, row->result, row->reason));
    }
    for (int64_t i = 0; i < table->groups; i++) {
        const weft_parity_group *g = &table->group[i];
        json_array_append_new(
            families, json_pack("{s:o, s:I, s:I, s:I, s:o, s:f}", "family", text_json(g->name),
                                "passed", (json_int_t)g->count[WEFT_PARITY_PASSED], "failed",
                                (json_int_t)g->count[WEFT_PARITY_FAILED], "skipped",
                                (json_int_t)g->count[WEFT_PARITY_SKIPPED], "largest_share_of_limit",
                                number_json(g->worst), "seconds", g->seconds));
    }
    return json_pack("{s:s, s:o, s:o, s:I, s:I, s:I}", "format", "weft.parity/1", "files", files,
                     "families", families, "passed", (json_int_t)table->count[WEFT_PARITY_PASSED],
                     "failed", (json_int_t)table->count[WEFT_PARITY_FAILED], "skipped",
                     (json_int_t)table->count[WEFT_PARITY_SKIPPED]);
}
