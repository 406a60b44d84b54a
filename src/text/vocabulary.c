#include "text/vocabulary.h"

#include "base/memory.h"
#include "text/normalise.h"

#include <string.h>

enum { MAX_ID = 1 << 22 };

static uint64_t hash_of(const char *text, int64_t length)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a: pieces are short */
    for (int64_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static weft_status widen(weft_vocabulary *v, int64_t count)
{
    int64_t capacity = v->capacity ? v->capacity : 1024;
    while (capacity < count)
        capacity *= 2;
    if (capacity > v->capacity) {
        char **piece = weft_realloc(v->piece, capacity * (int64_t)sizeof *piece);
        v->piece = piece ? piece : v->piece;
        int *length = weft_realloc(v->length, capacity * (int64_t)sizeof *length);
        v->length = length ? length : v->length;
        float *score = weft_realloc(v->score, capacity * (int64_t)sizeof *score);
        v->score = score ? score : v->score;
        bool *matches = weft_realloc(v->matches, capacity * (int64_t)sizeof *matches);
        v->matches = matches ? matches : v->matches;
        bool *whole = weft_realloc(v->whole, capacity * (int64_t)sizeof *whole);
        v->whole = whole ? whole : v->whole;
        WEFT_TRY(WEFT_ALLOCATED(piece && length && score && matches && whole, "a vocabulary"));
        v->capacity = capacity;
    }
    for (; v->count < count; v->count++) {
        v->piece[v->count] = NULL;
        v->length[v->count] = 0;
        v->score[v->count] = 0;
        v->matches[v->count] = v->whole[v->count] = false;
    }
    return WEFT_OK;
}

weft_status weft_vocabulary_add(weft_vocabulary *v, int32_t id, const char *piece, int length,
                                float score)
{
    if (id < 0 || id >= MAX_ID)
        return weft_error(WEFT_MSG_TOKENIZER_INVALID, WEFT_AT(WEFT_NUMBER(id)),
                          "token %d is not from 0 to %d", id, MAX_ID - 1);
    WEFT_TRY(widen(v, (int64_t)id + 1 > v->count ? (int64_t)id + 1 : v->count));
    char *copy;
    WEFT_TRY(WEFT_NEW(copy, (int64_t)length + 1, "a vocabulary"));
    memcpy(copy, piece, (size_t)length);
    weft_free(v->piece[id]);
    v->piece[id] = copy;
    v->length[id] = length;
    v->score[id] = score;
    v->matches[id] = true;
    v->longest = length > v->longest ? length : v->longest;
    return WEFT_OK;
}

weft_status weft_vocabulary_index(weft_vocabulary *v)
{
    v->slots = 16;
    while (v->slots < 2 * v->count)
        v->slots *= 2;
    weft_free(v->slot);
    WEFT_TRY(WEFT_NEW(v->slot, v->slots, "a vocabulary"));
    memset(v->slot, 0xff, (size_t)v->slots * sizeof *v->slot);
    for (int64_t id = 0; id < v->count; id++) {
        if (!v->piece[id] || weft_vocabulary_find(v, v->piece[id], v->length[id]) >= 0)
            continue;
        uint64_t at = hash_of(v->piece[id], v->length[id]);
        while (v->slot[at & (uint64_t)(v->slots - 1)] >= 0)
            at++;
        v->slot[at & (uint64_t)(v->slots - 1)] = (int32_t)id;
    }
    return WEFT_OK;
}

int32_t weft_vocabulary_find(const weft_vocabulary *v, const char *piece, int64_t length)
{
    for (uint64_t at = hash_of(piece, length);; at++) {
        const int32_t id = v->slot[at & (uint64_t)(v->slots - 1)];
        if (id < 0 || (v->length[id] == length && !memcmp(v->piece[id], piece, (size_t)length)))
            return id;
    }
}

void weft_vocabulary_free(weft_vocabulary *v)
{
    for (int64_t i = 0; i < v->count; i++)
        weft_free(v->piece[i]);
    weft_free(v->piece);
    weft_free(v->length);
    weft_free(v->score);
    weft_free(v->matches);
    weft_free(v->whole);
    weft_free(v->slot);
    *v = (weft_vocabulary){0};
}

weft_status weft_ids_add(weft_ids *ids, int32_t id)
{
    WEFT_TRY(weft_grow((void **)&ids->id, ids->count, &ids->capacity, sizeof *ids->id));
    ids->id[ids->count++] = id;
    return WEFT_OK;
}

/* ---- unigram -------------------------------------------------------------------------------- */

/* The best way to the place where a node stands. */
typedef struct node {
    double score;
    int64_t from; /* -1: no way yet */
    int32_t id;
} node;

static int letter_bytes(const char *text, int64_t left)
{
    const unsigned char c = (unsigned char)*text;
    const int n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return n < left ? n : (int)left;
}

static void offer(const weft_unigram *u, node *best, int64_t from, int64_t to, double score,
                  int32_t id)
{
    double sum = best[from].score + score;
    if (!u->add_in_f64)
        sum = (double)((float)best[from].score + (float)score);
    if (best[to].from >= 0 && !(sum > best[to].score))
        return;
    best[to] = (node){sum, from, id};
}

static void viterbi(const weft_vocabulary *v, const weft_unigram *u, const char *text,
                    int64_t length, node *best)
{
    for (int64_t at = 0; at < length;) {
        const int letter = letter_bytes(text + at, length - at);
        bool single = false;
        for (int n = 1; n <= v->longest && at + n <= length; n++) {
            const int32_t id = weft_vocabulary_find(v, text + at, n);
            if (id < 0 || !v->matches[id])
                continue;
            const float score =
                v->whole[id] ? (float)((double)((float)n * u->best_score) - 0.1) : v->score[id];
            offer(u, best, at, at + n, (double)score, id);
            single |= n == letter;
        }
        if (!single)
            offer(u, best, at, at + letter, (double)u->unknown_score, u->unknown);
        at += letter;
    }
}

static weft_status add_unknown(const weft_unigram *u, const char *text, int64_t length,
                               bool *last_unknown, weft_ids *out)
{
    bool all = u->bytes;
    for (int64_t i = 0; i < length && all; i++)
        all = u->byte_id[(unsigned char)text[i]] >= 0;
    for (int64_t i = 0; i < length && all; i++)
        WEFT_TRY(weft_ids_add(out, u->byte_id[(unsigned char)text[i]]));
    if (!all && !*last_unknown)
        WEFT_TRY(weft_ids_add(out, u->unknown));
    *last_unknown = !all;
    return WEFT_OK;
}

weft_status weft_unigram_cut(const weft_vocabulary *v, const weft_unigram *u, const char *text,
                             int64_t length, weft_ids *out)
{
    node *best = weft_calloc(length + 1, sizeof *best);
    int64_t *stop = weft_calloc(length + 1, sizeof *stop);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(best && stop, "a text"));
    for (int64_t i = 1; i <= length; i++)
        best[i].from = -1;
    viterbi(v, u, text, length, best);
    for (int64_t to = length; to > 0; to = best[to].from)
        stop[best[to].from] = to;
    bool unknown = false;
    for (int64_t at = 0; at < length; at = stop[at]) {
        const int32_t id = best[stop[at]].id;
        if (id == u->unknown) {
            WEFT_GO(add_unknown(u, text + at, stop[at] - at, &unknown, out));
        } else {
            WEFT_GO(weft_ids_add(out, id));
            unknown = false;
        }
    }
out:
    weft_free(best);
    weft_free(stop);
    return status;
}

/* ---- byte pairs ----------------------------------------------------------------------------- */

weft_status weft_bpe_reserve(weft_bpe *b, int64_t merges)
{
    b->slots = 16;
    while (b->slots < 2 * merges)
        b->slots *= 2;
    WEFT_TRY(WEFT_NEW(b->merge, b->slots, "%" PRId64 " merges", merges));
    for (int64_t i = 0; i < b->slots; i++)
        b->merge[i].pair = -1;
    return WEFT_OK;
}

static weft_merge *merge_at(const weft_bpe *b, int32_t left, int32_t right)
{
    const int64_t pair = (int64_t)left << 32 | right;
    uint64_t at = (uint64_t)pair * 0x9e3779b97f4a7c15u >> 20;
    for (;; at++) {
        weft_merge *m = &b->merge[at & (uint64_t)(b->slots - 1)];
        if (m->pair == pair || m->pair < 0)
            return m;
    }
}

void weft_bpe_add(weft_bpe *b, int32_t left, int32_t right, int32_t rank, int32_t made)
{
    weft_merge *m = merge_at(b, left, right);
    if (m->pair < 0 && 2 * ++b->count > b->slots)
        return; /* more than were reserved for */
    *m = (weft_merge){(int64_t)left << 32 | right, rank, made};
}

/* Printable bytes map to themselves, the others to characters from U+0100 on. */
int weft_bpe_letter(unsigned char byte, char out[4])
{
    int code = byte;
    if (byte <= 32)
        code = 256 + byte;
    else if (byte >= 127 && byte <= 160)
        code = 256 + 33 + byte - 127;
    else if (byte == 173)
        code = 256 + 33 + 34;
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

/* A pair of neighbours that can be merged. */
typedef struct candidate {
    int32_t rank, made;
    int64_t left, right; /* their places */
    int32_t left_id, right_id;
} candidate;

/* A text while its pairs are merged: a list of symbols, and a heap of candidates. */
typedef struct merging {
    int32_t *symbol; /* -1: merged into the symbol before */
    int64_t *next, *before;
    candidate *heap;
    int64_t size;
} merging;

/* The lowest rank is first; of equal ranks the leftmost one. */
static bool precedes(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void push_pair(const weft_bpe *b, merging *m, int64_t left, int64_t right)
{
    if (left < 0 || right < 0)
        return;
    const weft_merge *found = merge_at(b, m->symbol[left], m->symbol[right]);
    if (found->pair < 0)
        return;
    const candidate made = {found->rank, found->made,     left,
                            right,       m->symbol[left], m->symbol[right]};
    int64_t at = m->size++;
    for (int64_t up; at > 0 && precedes(&made, &m->heap[up = (at - 1) / 2]); at = up)
        m->heap[at] = m->heap[up];
    m->heap[at] = made;
}

static candidate pop_pair(merging *m)
{
    const candidate top = m->heap[0], last = m->heap[--m->size];
    int64_t at = 0;
    for (int64_t down; (down = 2 * at + 1) < m->size; at = down) {
        down += down + 1 < m->size && precedes(&m->heap[down + 1], &m->heap[down]);
        if (!precedes(&m->heap[down], &last))
            break;
        m->heap[at] = m->heap[down];
    }
    m->heap[at] = last;
    return top;
}

/* Merges the leftmost pair of lowest rank until no pair has a rank, in time n log n: a Gemma text
 * is one piece. Returns the number of symbols that are left. */
static weft_status merge_all(const weft_bpe *b, int32_t *symbol, int64_t *count)
{
    const int64_t n = *count;
    merging m = {.symbol = symbol};
    weft_status_code status = WEFT_OK;
    if (n < 2 || !b->slots)
        return WEFT_OK;
    m.next = weft_alloc(2 * n * (int64_t)sizeof *m.next);
    m.heap = weft_alloc(3 * n * (int64_t)sizeof *m.heap); /* a merge removes one and adds two */
    WEFT_GO(WEFT_ALLOCATED(m.next && m.heap, "a text of %" PRId64 " symbols", n));
    m.before = m.next + n;
    for (int64_t i = 0; i < n; i++) {
        m.next[i] = i + 1 < n ? i + 1 : -1;
        m.before[i] = i - 1;
    }
    for (int64_t i = 0; i + 1 < n; i++)
        push_pair(b, &m, i, i + 1);
    while (m.size) {
        const candidate top = pop_pair(&m);
        if (symbol[top.left] != top.left_id || symbol[top.right] != top.right_id ||
            m.next[top.left] != top.right)
            continue; /* one of the two was merged since */
        symbol[top.left] = top.made;
        symbol[top.right] = -1;
        m.next[top.left] = m.next[top.right];
        if (m.next[top.left] >= 0)
            m.before[m.next[top.left]] = top.left;
        push_pair(b, &m, m.before[top.left], top.left);
        push_pair(b, &m, top.left, m.next[top.left]);
    }
    *count = 0;
    for (int64_t i = 0; i < n; i++)
        if (symbol[i] >= 0)
            symbol[(*count)++] = symbol[i];
out:
    weft_free(m.next);
    weft_free(m.heap);
    return status;
}

/* Splits UTF-8 into the symbols of its characters, or of their bytes. */
static int64_t split_characters(const weft_vocabulary *v, const weft_bpe *b, const char *text,
                                int64_t length, int32_t *symbol)
{
    int64_t count = 0;
    for (int64_t at = 0, n; at < length; at += n) {
        weft_text_next(text + at, length - at, &n);
        const int32_t id = weft_vocabulary_find(v, text + at, n);
        if (id >= 0)
            symbol[count++] = id;
        for (int64_t i = 0; i < n && id < 0; i++)
            symbol[count++] = b->byte_id[(unsigned char)text[at + i]];
    }
    return count;
}

weft_status weft_bpe_cut(const weft_vocabulary *v, const weft_bpe *b, const char *bytes,
                         int64_t length, weft_ids *out)
{
    const int64_t tail = (int64_t)strlen(b->suffix);
    char *text = weft_alloc(2 * length + tail + 1);
    int32_t *symbol = weft_calloc(length + 1, sizeof *symbol);
    weft_status_code status = WEFT_OK;
    int64_t size = 0, count = 0;
    WEFT_GO(WEFT_ALLOCATED(text && symbol, "a text"));
    if (b->characters)
        count = split_characters(v, b, bytes, length, symbol);
    for (int64_t i = 0; i < length && !b->characters; i++) {
        const int64_t from = size;
        size += weft_bpe_letter((unsigned char)bytes[i], text + size);
        if (i == length - 1) {
            memcpy(text + size, b->suffix, (size_t)tail);
            size += tail;
        }
        const int32_t id = weft_vocabulary_find(v, text + from, size - from);
        if (id >= 0 || b->unknown >= 0)
            symbol[count++] = id >= 0 ? id : b->unknown;
    }
    const int32_t all = !b->whole_first ? -1
                        : b->characters ? weft_vocabulary_find(v, bytes, length)
                                        : weft_vocabulary_find(v, text, size);
    if (all >= 0 && length) {
        symbol[0] = all;
        count = 1;
    } else {
        WEFT_GO(merge_all(b, symbol, &count));
    }
    for (int64_t i = 0; i < count; i++)
        WEFT_GO(weft_ids_add(out, symbol[i]));
out:
    weft_free(text);
    weft_free(symbol);
    return status;
}
