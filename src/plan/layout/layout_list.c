#include "plan/layout/layout_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- order ----------------------------------------------------------------------------------- */

static int class_of(const weft_layout_score *s)
{
    return s->fits ? 0 : s->legal ? 1 : 2;
}

int weft_layout_compare(const weft_layout_score *a, const weft_layout_score *b)
{
    if (class_of(a) != class_of(b))
        return class_of(a) - class_of(b);
    if (a->fits && a->seconds != b->seconds)
        return a->seconds < b->seconds ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return 0;
}

static int by_cost(const void *left, const void *right)
{
    const weft_layout_candidate *a = left, *b = right;
    const int order = weft_layout_compare(&a->score, &b->score);
    return order ? order : strcmp(a->name, b->name); /* qsort does not preserve the search order */
}

static weft_status grow(weft_layout_list *list)
{
    if (list->count < list->capacity)
        return WEFT_OK;
    const int64_t capacity = list->capacity ? 2 * list->capacity : 64;
    weft_layout_candidate *more;
    WEFT_TRY(WEFT_ARENA_NEW(list->arena, more, capacity, "%" PRId64 " layouts", capacity));
    if (list->count)
        memcpy(more, list->item, (size_t)list->count * sizeof *more);
    list->item = more;
    list->capacity = capacity;
    return WEFT_OK;
}

weft_status weft_layout_list_add(weft_layout_list *list, const weft_layout_candidate *candidate)
{
    WEFT_TRY(grow(list));
    weft_layout_candidate *to = &list->item[list->count];
    *to = *candidate;
    to->name = weft_arena_strdup(list->arena, candidate->name);
    to->why = candidate->why ? weft_arena_strdup(list->arena, candidate->why) : NULL;
    WEFT_TRY(WEFT_ALLOCATED(to->name && (to->why || !candidate->why), "a layout"));
    if (candidate->cause) {
        double *cause;
        WEFT_TRY(WEFT_ARENA_NEW(list->arena, cause, list->causes, "a layout"));
        memcpy(cause, candidate->cause, (size_t)list->causes * sizeof *cause);
        to->cause = cause;
    }
    list->count++;
    list->fitting += candidate->score.fits;
    list->legal += candidate->score.legal;
    return WEFT_OK;
}

weft_status weft_layout_list_add_estimate(weft_layout_list *list, weft_layout_candidate candidate,
                                          weft_buf *name)
{
    weft_buf why = {0};
    weft_status_code status = WEFT_OK;
    if (candidate.why)
        weft_buf_printf(&why, "%s: %s", candidate.score.legal ? "does not fit" : "not possible",
                        candidate.why);
    WEFT_GO(weft_buf_check(name));
    WEFT_GO(weft_buf_check(&why));
    candidate.name = name->data;
    candidate.why = why.len ? why.data : NULL;
    WEFT_GO(weft_layout_list_add(list, &candidate));
out:
    weft_buf_free(name);
    weft_buf_free(&why);
    return status;
}

void weft_layout_list_sort(weft_layout_list *list)
{
    if (list->count)
        qsort(list->item, (size_t)list->count, sizeof *list->item, by_cost);
}

void weft_layout_list_prefer(weft_layout_list *list, int64_t index)
{
    const weft_layout_candidate chosen = list->item[index];
    memmove(&list->item[1], &list->item[0], (size_t)index * sizeof *list->item);
    list->item[0] = chosen;
}

/* ---- text ------------------------------------------------------------------------------------ */

void weft_layout_list_explain(const weft_layout_list *list, int64_t index, weft_buf *out)
{
    const weft_layout_candidate *best = &list->item[0], *c = &list->item[index];
    const double ratio = c->score.seconds / best->score.seconds;
    char text[32];
    int most = 0;
    double more = -INFINITY;
    if (c->why) {
        weft_buf_printf(out, "%s", c->why);
        return;
    }
    if (index == 0 || !c->cause || !best->cause)
        return;
    if (ratio < 1 - 1e-9) {
        weft_buf_printf(out, "%.1f %% faster, but less simple", 100 * (1 - ratio));
        return;
    }
    if (ratio <= 1 + 1e-9) {
        weft_buf_printf(out, "as fast; the best comes first in the order of degrees");
        return;
    }
    for (int k = 0; k < list->causes; k++)
        if (c->cause[k] - best->cause[k] > more) {
            more = c->cause[k] - best->cause[k];
            most = k;
        }
    weft_buf_printf(out, "%.1f %% slower: %s more for %s", 100 * (ratio - 1),
                    weft_format_seconds(more, text), list->cause[most]);
}

int64_t weft_layout_list_shown(const weft_layout_list *list, bool explain)
{
    enum { SHOWN = 10 };
    if (explain)
        return list->count;
    return list->fitting < SHOWN ? list->fitting : SHOWN;
}

void weft_layout_list_print(const weft_layout_list *list, const weft_layout_table *table,
                            int64_t first, int64_t end, bool explain, weft_buf *out)
{
    weft_buf_printf(out, "  %s\n", table->head);
    for (int64_t i = first; i < end && i < list->count; i++) {
        const weft_layout_candidate *c = &list->item[i];
        weft_buf why = {0};
        weft_buf_printf(out, "  %-*s ", table->width, c->name);
        table->row(c, out);
        if (explain)
            weft_layout_list_explain(list, i, &why);
        if (table->inline_why)
            weft_buf_printf(out, "  %s", why.len ? why.data : "");
        weft_buf_printf(out, "\n");
        if (!table->inline_why && why.len)
            weft_buf_printf(out, "      %s\n", why.data);
        if (explain && table->detail)
            table->detail(c, out);
        weft_buf_free(&why);
    }
}

void weft_layout_list_summary(const weft_layout_list *list, int ranks, weft_buf *out)
{
    weft_buf_printf(out,
                    "%" PRId64 " layouts of %d ranks estimated in %.1f s: %" PRId64 " fit, %" PRId64
                    " do not fit, %" PRId64 " are not possible",
                    list->count, ranks, list->seconds, list->fitting, list->legal - list->fitting,
                    list->count - list->legal);
}

weft_status weft_layout_list_infeasible(const weft_layout_list *list, int ranks,
                                        const weft_message_fields *at)
{
    const weft_layout_candidate *nearest = list->count ? &list->item[0] : NULL;
    weft_message_fields fields = at ? *at : (weft_message_fields){0};
    const weft_message_detail details[] = {
        WEFT_DETAIL("ranks", ranks), WEFT_WORD("nearest", nearest ? nearest->name : ""), {NULL}};
    fields.details = details;
    return weft_error(
        WEFT_MSG_PLAN_INFEASIBLE, &fields, "no layout of %d ranks is %s; the nearest, %s: %s",
        ranks, list->legal ? "within the memory limit" : "legal", nearest ? nearest->name : "none",
        nearest && nearest->why ? nearest->why : "?");
}
