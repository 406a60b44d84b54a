/* When what lies elsewhere is fetched: as early as `room` bytes allow, just before the node at
 * which what was fetched before it is in use.
 *
 *   readers   . . . a . . b c . . . d         room for two
 *   starts    a b . . c . . d . . . .         c when a is in use, d when b is */
#include "pass/rewrite.h"

#include <stdlib.h>

static int by_reader(const void *a, const void *b)
{
    const weft_need *x = a, *y = b;
    const int order = (x->reader > y->reader) - (x->reader < y->reader);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

/* needs[old .. k) are back or on their way, and not in use yet. */
void weft_needs_start(weft_need *needs, int64_t count, int32_t begin, int64_t *room)
{
    int64_t ahead = 0, old = 0, most = 0;
    int32_t at = begin;
    qsort(needs, (size_t)count, sizeof *needs, by_reader);
    for (int64_t k = 0; k < count; k++)
        most = needs[k].bytes > most ? needs[k].bytes : most;
    *room = *room ? *room : 2 * most;
    for (int64_t k = 0; k < count; k++) {
        while (old < k && (ahead + needs[k].bytes > *room || needs[old].reader <= at)) {
            at = needs[old].reader > at ? needs[old].reader : at;
            ahead -= needs[old++].bytes;
        }
        needs[k].start = at;
        ahead += needs[k].bytes;
    }
}
