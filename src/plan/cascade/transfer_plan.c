#include "plan/cascade/transfer_plan.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ceiling(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

static int64_t pieces_of(const weft_cascade_row *row)
{
    return row->piece && row->units > row->piece ? row->units / row->piece : 1;
}

/* Returns the units before piece `index`. */
static int64_t units_before(const weft_cascade_row *row, int64_t index)
{
    return index ? row->units - (pieces_of(row) - index) * row->piece : 0;
}

weft_cascade_share weft_cascade_share_of(const weft_cascade_row *row, int64_t clips, int64_t degree,
                                         int64_t member)
{
    const int64_t pieces = pieces_of(row);
    int64_t groups = 1, parts = 1, least = INT64_MAX, first, count;
    for (int64_t t = 1; t <= smaller(pieces, degree); t++) {
        const int64_t g = smaller(degree / t, clips), work = ceiling(clips, g) * ceiling(pieces, t);
        if (work < least) { /* fewer parts needed more work, so no part is empty */
            least = work;
            groups = g;
            parts = t;
        }
    }
    weft_cascade_share s = {.part = (int)(member % parts), .parts = (int)parts};
    if (member >= groups * parts)
        return s;
    weft_part(clips, (int)groups, (int)(member / parts), &s.clips.first, &s.clips.count);
    weft_part(pieces, s.parts, s.part, &first, &count);
    s.units.first = units_before(row, first);
    s.units.count =
        (first + count < pieces ? units_before(row, first + count) : row->units) - s.units.first;
    return s;
}

int weft_cascade_shares(weft_sp_method method, int64_t clips, int64_t degree)
{
    int64_t a = clips, b = degree;
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return method == WEFT_SP_NONE ? (int)a : 1;
}

static weft_item_range part_of(int64_t clips, int64_t parts, int64_t index)
{
    weft_item_range own;
    weft_part(clips, (int)parts, (int)index, &own.first, &own.count);
    return own;
}

weft_item_range weft_latent_units_read(int64_t units, int64_t tokens, int64_t parts, int64_t part)
{
    const weft_item_range own = part_of(units * tokens, parts, part);
    const int64_t first = own.first / tokens;
    return own.count ? (weft_item_range){first, (own.first + own.count - 1) / tokens - first + 1}
                     : (weft_item_range){0, 1};
}

/* Returns the clips of member `index` of a consumer. */
static weft_item_range needs(weft_sp_method method, int64_t clips, int64_t degree, int64_t index)
{
    const int shares = weft_cascade_shares(method, clips, degree);
    return part_of(clips, shares, index / (degree / shares));
}

static weft_item_range common(weft_item_range a, weft_item_range b)
{
    const int64_t first = a.first > b.first ? a.first : b.first, end_a = a.first + a.count,
                  end_b = b.first + b.count, end = end_a < end_b ? end_a : end_b;
    return (weft_item_range){first, end > first ? end - first : 0};
}

int64_t weft_latent_sends_list(const weft_assigned *producer, const weft_assigned *consumer,
                               weft_sp_method method, const weft_cascade_row *row,
                               const weft_item_range *read, int64_t clips, weft_latent_send *sends)
{
    const weft_item_range all = {0, row->units};
    int64_t count = 0;
    for (int64_t i = 0; i < producer->degree; i++) {
        const weft_cascade_share s = weft_cascade_share_of(row, clips, producer->degree, i);
        for (int64_t k = 0; k < consumer->degree; k++) {
            weft_item_range rest = common(s.clips, needs(method, clips, consumer->degree, k));
            const weft_item_range units = common(s.units, read ? read[k] : all);
            while (units.count && rest.count) { /* complete rows are contiguous */
                const int64_t now = units.count == row->units ? rest.count : 1;
                sends[count++] = (weft_latent_send){
                    producer->device[i], consumer->device[k], {rest.first, now}, units};
                rest.first += now;
                rest.count -= now;
            }
        }
    }
    return count;
}
