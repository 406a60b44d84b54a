/* Choices of elements of a row by their values: top_p and top_share (graph/op.h). A block takes one
 * row after another. Elements are compared as integers of their order. */
#include "kernel/cuda/kernels/simt.h"

/* Larger for larger elements, equal for 0 and -0. Neither 0 nor NO_ELEMENT, which NaN has. */
#define NO_ELEMENT 0xffffffffu

DEV uint32_t key_of(float x)
{
    const uint32_t bits = float_bits(x == 0 ? 0.0f : x);
    return x != x ? NO_ELEMENT : bits >> 31 ? ~bits : bits | 0x80000000u;
}

DEV float element_of(uint32_t key)
{
    return bits_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

/* Every thread gets the sum over the block. `shared` has 32 elements. */
DEV uint32_t block_count(uint32_t n, uint32_t *shared)
{
    for (uint32_t step = 16; step > 0; step >>= 1)
        n += warp_read_bits(n, LANE ^ step);
    if (LANE == 0)
        shared[THREAD(0) / 32] = n;
    block_barrier();
    n = 0;
    for (int w = 0; w < CHOICE_THREADS / 32; w++)
        n += shared[w];
    block_barrier();
    return n;
}

/* The number of keys that are at least `key`. */
DEV uint32_t count_from(const uint32_t *keys, int32_t count, uint32_t key, uint32_t *shared)
{
    uint32_t n = 0;
    for (int32_t i = (int32_t)THREAD(0); i < count; i += CHOICE_THREADS)
        n += keys[i] >= key;
    return block_count(n, shared);
}

/* The bounds of a choice: elements above `key`, and of the equal ones [from, to) by index. */
typedef struct bounds {
    uint32_t key, from, to;
} bounds;

/* Writes the choice of a row. */
DEV void mark_row(const choice_args *a, int64_t row, bounds b, uint32_t *shared)
{
    uint32_t taken = 0;
    for (int32_t base = 0; base < a->columns; base += CHOICE_THREADS) {
        const int32_t i = base + (int32_t)THREAD(0);
        const int64_t at = row * a->columns + i;
        const uint32_t key = i < a->columns ? key_of(load_float(a->x, at)) : NO_ELEMENT;
        const uint32_t equal = warp_ballot(key == b.key);
        if (LANE == 0)
            shared[THREAD(0) / 32] = count_bits(equal);
        block_barrier();
        uint32_t before = taken + count_bits(equal & ((1u << LANE) - 1u));
        for (uint32_t w = 0; w < CHOICE_THREADS / 32; w++) {
            before += w < THREAD(0) / 32 ? shared[w] : 0u;
            taken += shared[w];
        }
        block_barrier();
        const int is = key != NO_ELEMENT &&
                       (key > b.key || (key == b.key && before >= b.from && before < b.to));
        if (i < a->columns)
            a->out[at] = is ? 1.0f : 0.0f;
    }
}

/* Sorts the keys of a row in ascending order (Batcher's bitonic sort). */
DEV void sort_keys(uint32_t *keys, int32_t places)
{
    for (int32_t run = 2; run <= places; run *= 2)
        for (int32_t apart = run / 2; apart > 0; apart /= 2) {
            for (int32_t i = (int32_t)THREAD(0); i < places / 2; i += CHOICE_THREADS) {
                const int32_t low = 2 * i - (i & (apart - 1)), high = low + apart;
                const uint32_t x = keys[low], y = keys[high];
                if ((x > y) == !(low & run)) {
                    keys[low] = y;
                    keys[high] = x;
                }
            }
            block_barrier();
        }
}

/* The first place where the sum from place 0 on is at least `least`; `columns`: none. One thread
 * adds, in the order of the definition. */
DEV int32_t place_of_sum(const uint32_t *keys, int32_t columns, double least)
{
    double sum = 0;
    for (int32_t i = 0; i < columns && keys[i] != NO_ELEMENT; i++) {
        sum += (double)element_of(keys[i]);
        if (sum >= least)
            return i;
    }
    return columns;
}

/* Sums are not negative from the first one on that is at least `limit`, which is not negative: all
 * later elements are chosen. */
WEFT_KERNEL(weft_top_p, choice_args, CHOICE_THREADS)
{
    WEFT_SHARED(uint32_t, shared_keys, CHOICE_SHARED);
    WEFT_SHARED(uint32_t, shared, 32);
    WEFT_SHARED(int32_t, place, 1);
    uint32_t *keys = a.space ? a.space + (int64_t)BLOCK(0) * a.places : shared_keys;
    for (int64_t row = BLOCK(0); row < a.rows; row += BLOCKS(0)) {
        for (int32_t i = (int32_t)THREAD(0); i < a.places; i += CHOICE_THREADS)
            keys[i] =
                i < a.columns ? key_of(load_float(a.x, row * a.columns + i)) : NO_ELEMENT;
        block_barrier();
        sort_keys(keys, a.places);
        if (THREAD(0) == 0)
            *place = place_of_sum(keys, a.columns, a.limit);
        block_barrier();
        bounds b = {NO_ELEMENT, 0, 0};
        if (*place < a.columns) {
            const uint32_t key = keys[*place],
                           less = (uint32_t)a.places - count_from(keys, a.places, key, shared);
            b.key = key;
            b.from = (uint32_t)*place - less;
            b.to = (uint32_t)a.columns;
        }
        mark_row(&a, row, b, shared);
    }
}

/* Elements from here on are counted (graph/op.h). */
#define HIDDEN_BELOW -1e29f

/* The count-th largest key has its bits found from the highest on. */
WEFT_KERNEL(weft_top_share, choice_args, CHOICE_THREADS)
{
    WEFT_SHARED(uint32_t, shared_keys, CHOICE_SHARED);
    WEFT_SHARED(uint32_t, shared, 32);
    uint32_t *keys = a.space ? a.space + (int64_t)BLOCK(0) * a.places : shared_keys;
    for (int64_t row = BLOCK(0); row < a.rows; row += BLOCKS(0)) {
        for (int32_t i = (int32_t)THREAD(0); i < a.columns; i += CHOICE_THREADS) {
            const float x = load_float(a.x, row * a.columns + i);
            keys[i] = x >= HIDDEN_BELOW ? key_of(x) : 0u;
        }
        block_barrier();
        const uint32_t seen = count_from(keys, a.columns, 1, shared);
        const int64_t share = (int64_t)(a.limit * (double)seen);
        const uint32_t count = share > 1 ? (uint32_t)share : 1u;
        bounds b = {0, 0, count};
        for (uint32_t bit = 0x80000000u; bit; bit >>= 1)
            if (seen && count_from(keys, a.columns, b.key | bit, shared) >= count)
                b.key |= bit;
        if (seen)
            b.to = count - count_from(keys, a.columns, b.key + 1, shared);
        else
            b.key = NO_ELEMENT;
        mark_row(&a, row, b, shared);
    }
}
