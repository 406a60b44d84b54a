#include "data/loader_packing.h"

#include "data/loader_decode.h"
#include "data/loader_internal.h"

#include <string.h>

static const weft_key packing_keys[] = {
    {"tokens", WEFT_KEY_I64, offsetof(weft_row_packing, tokens), "0", "tokens",
     "tokens of a row, for samples of any bucket; at least as many as the largest bucket has. 0: a "
     "batch has samples of one bucket",
     .min = 0, .max = 1 << 30},
    {"rows", WEFT_KEY_I64, offsetof(weft_row_packing, rows), "1", "rows",
     "rows per batch over all ranks, a multiple of the ranks that divide the batch", .min = 1,
     .max = 65536},
    {"max_samples", WEFT_KEY_I64, offsetof(weft_row_packing, samples), "16", "samples",
     "maximum number of samples in a row; a row has the text tokens of this number", .min = 1,
     .max = 4096},
    {"window", WEFT_KEY_I64, offsetof(weft_row_packing, window), "128", "samples",
     "samples from which rows are filled; more leave less padding", .min = 1, .max = 65536},
};
const weft_section weft_row_packing_section = {
    "packing",
    "samples of all buckets in rows of tokens, for a transformer",
    sizeof(weft_row_packing),
    packing_keys,
    WEFT_COUNT(packing_keys),
    .single = "tokens"};

weft_status weft_pack_window_create(const weft_row_packing *packing, weft_pack_window *window)
{
    window->count = 0;
    return WEFT_NEW(window->item, packing->window, "%" PRId64 " samples to pack", packing->window);
}

void weft_pack_window_free(weft_pack_window *window)
{
    weft_free(window->item);
    *window = (weft_pack_window){0};
}

void weft_pack_window_copy(weft_pack_window *to, const weft_pack_window *from)
{
    memcpy(to->item, from->item, (size_t)from->count * sizeof *from->item);
    to->count = from->count;
}

static void fill_window(const weft_loader *l, int64_t *taken, weft_pack_window *w)
{
    while (w->count < l->config.packing.window) {
        const int b = weft_order_turn(l->turns.share, l->turns.batch, l->queues, taken);
        w->item[w->count++] = weft_loader_item_at(l, b, taken[b] - 1);
    }
}

/* Returns the largest item that fits into `left` tokens, the oldest of equal ones; -1: none. */
static int64_t best_fit(const weft_loader *l, const weft_pack_window *w, int64_t left)
{
    int64_t best = -1, most = 0;
    for (int64_t i = 0; i < w->count; i++) {
        const int64_t tokens = l->queue[w->item[i].bucket].tokens;
        if (tokens <= left && tokens > most) {
            best = i;
            most = tokens;
        }
    }
    return best;
}

/* Moves item `at` of the window to the row. Returns its tokens. */
static int64_t take_item(const weft_loader *l, weft_pack_window *w, int64_t at, weft_item *row)
{
    *row = w->item[at];
    w->count--;
    memmove(&w->item[at], &w->item[at + 1], (size_t)(w->count - at) * sizeof *w->item);
    return l->queue[row->bucket].tokens;
}

weft_status weft_pack_rows_create(weft_loader *l)
{
    weft_row_chooser *c = &l->row_chooser;
    WEFT_TRY(WEFT_NEW(c->tokens, l->queues, "a row of samples"));
    WEFT_TRY(WEFT_NEW(c->available, l->queues, "a row of samples"));
    WEFT_TRY(WEFT_NEW(c->chosen, l->queues, "a row of samples"));
    for (int i = 0; i < l->queues; i++)
        c->tokens[i] = l->queue[i].tokens;
    return weft_row_fill_create(c->tokens, l->queues, l->config.packing.tokens,
                                l->config.packing.samples, &c->fill);
}

void weft_pack_rows_free(weft_loader *l)
{
    weft_row_fill_free(&l->row_chooser.fill);
    weft_free(l->row_chooser.tokens);
    weft_free(l->row_chooser.available);
    weft_free(l->row_chooser.chosen);
}

/* Chooses how many samples of each bucket fill `left` tokens. A row with as many samples
 * as the mean row of the window leaves a window of the same mixture. */
static bool choose_samples(weft_loader *l, const weft_pack_window *w, int64_t left, int64_t places)
{
    weft_row_chooser *c = &l->row_chooser;
    int64_t tokens = 0;
    memset(c->available, 0, (size_t)l->queues * sizeof *c->available);
    for (int64_t i = 0; i < w->count; i++) {
        c->available[w->item[i].bucket]++;
        tokens += c->tokens[w->item[i].bucket];
    }
    const int64_t wanted = tokens ? (left * w->count + tokens / 2) / tokens : 0;
    return weft_row_fill_choose(&c->fill, c->available, left, places, wanted,
                                l->config.packing.tokens / 100, c->chosen);
}

int64_t weft_pack_row(weft_loader *l, int64_t *taken, weft_pack_window *w, weft_item *row)
{
    const int64_t places = l->config.packing.samples;
    int64_t *chosen = l->row_chooser.chosen, count = 1;
    fill_window(l, taken, w);
    int64_t left = l->config.packing.tokens - take_item(l, w, 0, row);
    if (choose_samples(l, w, left, places - 1))
        for (int64_t i = 0; i < w->count;) {
            if (chosen[w->item[i].bucket]-- > 0)
                left -= take_item(l, w, i, &row[count++]);
            else
                i++;
        }
    while (count < places) { /* samples that fill the window again may fit */
        fill_window(l, taken, w);
        const int64_t at = best_fit(l, w, left);
        if (at < 0)
            break;
        left -= take_item(l, w, at, &row[count++]);
    }
    return count;
}

/* Adds a row of this rank to its slot. */
static void add_row(weft_loader *l, weft_loader_slot *s, int64_t row, const weft_item *item,
                    int64_t count)
{
    int64_t token = 0;
    for (int64_t i = 0; i < count; i++) {
        const weft_loader_queue *q = &l->queue[item[i].bucket];
        const weft_packed_item *last = s->count ? &s->packed[s->count - 1] : NULL;
        s->packed[s->count] =
            (weft_packed_item){.bucket = item[i].bucket,
                               .row = row,
                               .token = token,
                               .at = last ? last->at + l->queue[last->bucket].item_floats : 0,
                               .size = {q->size.frames, q->size.height, q->size.width}};
        weft_loader_set_item(l, s, s->count++, &item[i]);
        token += q->tokens;
    }
}

void weft_loader_plan_rows(weft_loader *l, weft_loader_slot *s)
{
    const weft_item_range own = l->queue[0].own;
    weft_item *row = l->packed_row;
    s->bucket = 0;
    s->count = s->first = 0;
    s->all_samples = s->all_tokens = 0;
    s->status = WEFT_OK;
    if (l->config.sources.count)
        memset(s->by_source, 0, (size_t)l->config.sources.count * sizeof *s->by_source);
    for (int64_t r = 0; r < l->config.packing.rows; r++) {
        const int64_t count =
            weft_pack_row(l, l->position.planned, &l->position.planned_window, row);
        if (r == own.first)
            s->first = s->all_samples;
        if (r >= own.first && r < own.first + own.count)
            add_row(l, s, r - own.first, row, count);
        s->all_samples += count;
        for (int64_t i = 0; i < count; i++) {
            s->all_tokens += l->queue[row[i].bucket].tokens;
            if (l->config.sources.count)
                s->by_source[weft_dataset_at(l->dataset, row[i].sample)->source]++;
        }
    }
    weft_loader_set_part(l, s, l->position.plan_step);
    memcpy(s->taken_after, l->position.planned, (size_t)l->queues * sizeof *s->taken_after);
    weft_pack_window_copy(&s->window_after, &l->position.planned_window);
}

weft_status weft_loader_peek_tokens(weft_loader *l, int64_t batches, int64_t *tokens)
{
    weft_pack_window window = {0};
    int64_t *taken = NULL;
    weft_item *row = NULL;
    weft_status_code status = weft_pack_window_create(&l->config.packing, &window);
    WEFT_GO(WEFT_NEW(taken, l->queues, "a look ahead"));
    WEFT_GO(WEFT_NEW(row, l->config.packing.samples, "a look ahead"));
    *tokens = 0;
    pthread_mutex_lock(&l->threads.lock);
    memcpy(taken, l->position.returned, (size_t)l->queues * sizeof *taken);
    weft_pack_window_copy(&window, &l->position.returned_window);
    for (int64_t i = 0; i < batches * l->config.packing.rows; i++) {
        const int64_t count = weft_pack_row(l, taken, &window, row);
        for (int64_t k = 0; k < count; k++)
            *tokens += l->queue[row[k].bucket].tokens;
    }
    pthread_mutex_unlock(&l->threads.lock);
out:
    weft_pack_window_free(&window);
    weft_free(taken);
    weft_free(row);
    return status;
}

json_t *weft_pack_window_write(const weft_pack_window *w)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < w->count; i++)
        json_array_append_new(
            list, json_pack("[i, I]", w->item[i].bucket, (json_int_t)w->item[i].sequence_index));
    return list;
}

weft_status weft_pack_window_read(const weft_loader *l, const json_t *state, const int64_t *taken,
                                  const char *where, weft_pack_window *w)
{
    const int64_t count = (int64_t)json_array_size(state);
    w->count = 0;
    for (int64_t i = 0; i < count; i++) {
        int bucket = -1;
        json_int_t index = -1;
        json_t *item = json_array_get(state, (size_t)i);
        if (count > l->config.packing.window || json_unpack(item, "[i, I]", &bucket, &index) ||
            bucket < 0 || bucket >= l->queues || index < 0 || index >= taken[bucket])
            return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED,
                              WEFT_AT(.file = where, .key = "waiting", WEFT_NUMBER(i)),
                              "sample %" PRId64 " of the %" PRId64
                              " that wait for a row is not a bucket and a number of its samples",
                              i, count);
        w->item[w->count++] = weft_loader_item_at(l, bucket, index);
    }
    return WEFT_OK;
}
