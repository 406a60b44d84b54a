#include "curate/duplicates/near_duplicates.h"

#include "base/memory.h"
#include "curate/duplicates/partial_candidates.h"
#include "curate/duplicates/partial_match.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BANDS = 64, MAX_BAND_BITS = 26, MAX_MASKS = 1 << 20 };

/* Split of the 256 bits into bands: bit p belongs to band p % bands, so that each band covers all
 * frequencies. A band's radius is its number of bits that may differ. The sum of radii + 1 is bits
 * + 1, so that hashes within `bits` agree in one band. */
typedef struct split {
    int bands, radius[MAX_BANDS];
} split;

typedef struct entry {
    uint32_t shot;
    uint32_t frame;
} entry;

typedef struct search {
    const weft_near_shot *shot;
    int64_t shots;
    weft_phash_limits limits;
    double share;
    split split;
    entry *entry; /* hashes of all shots, without repetitions */
    int64_t entries;
    uint32_t *start, *order; /* entries of the current band by key */
    uint32_t *mask;          /* bits of a key that may differ */
    int64_t masks;
    uint32_t *met;  /* by shot: 1 + the shot that last looked it up */
    uint64_t *pair; /* later shot << 32 | earlier one */
    int64_t pairs, pair_capacity, unique;
    const weft_near_limits *wanted;
    weft_near_pair *part; /* candidates for partial duplicates, sorted like the pairs */
    int64_t parts;
    weft_thumbnail *thumbnail[2]; /* [0] later shot, [1] earlier shot */
} search;

static int band_bits(int bands, int band)
{
    return (WEFT_PHASH_BITS - band + bands - 1) / bands;
}

static double binomials(int n, int k)
{
    double sum = 0, term = 1;
    for (int i = 0; i <= k && i <= n; i++) {
        sum += term;
        term *= (double)(n - i) / (i + 1);
    }
    return sum;
}

static void make_split(int bands, int bits, split *s)
{
    s->bands = bands;
    for (int i = 0; i < bands; i++)
        s->radius[i] = (bits + 1) / bands - 1 + (i >= bands - (bits + 1) % bands);
}

/* Split with the least work per looked-up frame: tried keys, and entries found under the keys.
 * `work` is in units of frame comparisons. */
static split best_split(int bits, int64_t entries, double *work)
{
    split best = {0};
    *work = HUGE_VAL;
    for (int bands = (WEFT_PHASH_BITS + MAX_BAND_BITS - 1) / MAX_BAND_BITS; bands <= MAX_BANDS;
         bands++) {
        split s;
        double sum = 0;
        make_split(bands, bits, &s);
        for (int i = 0; i < bands; i++) {
            const int width = band_bits(bands, i);
            const double keys = s.radius[i] < 0 ? 0 : binomials(width, s.radius[i]);
            /* each band's table is built once more; keys are cheaper than entries, which are
             * at random addresses */
            sum += keys > MAX_MASKS ? HUGE_VAL
                                    : keys * (1 + 3 * (double)entries / ldexp(1, width)) +
                                          ldexp(1, width) / (double)(entries + 1);
        }
        if (sum < *work) {
            *work = sum;
            best = s;
        }
    }
    return best;
}

static uint32_t key_of(const weft_phash *hash, int bands, int band)
{
    uint32_t key = 0;
    for (int p = band, i = 0; p < WEFT_PHASH_BITS; p += bands, i++)
        key |= (uint32_t)(hash->word[p / 64] >> (p % 64) & 1) << i;
    return key;
}

static const weft_phash *hash_of(const search *s, const entry *e)
{
    return &s->shot[e->shot].hash[e->frame];
}

static weft_status list_entries(search *s)
{
    int64_t capacity = 0;
    for (int64_t i = 0; i < s->shots; i++)
        capacity += s->shot[i].hashes;
    if (capacity >= UINT32_MAX || s->shots >= UINT32_MAX)
        return weft_error(WEFT_MSG_VIDEO_UNSUPPORTED, WEFT_NOWHERE,
                          "the search for near-duplicates is limited to %u hashes", UINT32_MAX);
    s->entry = weft_calloc(capacity + 1, sizeof *s->entry);
    s->order = weft_calloc(capacity + 1, sizeof *s->order);
    s->met = weft_calloc(s->shots + 1, sizeof *s->met);
    if (!s->entry || !s->order || !s->met)
        return weft_no_memory("%" PRId64 " hashes of the search for near-duplicates", capacity);
    for (int64_t i = 0; i < s->shots; i++)
        for (int64_t t = 0; t < s->shot[i].hashes; t++)
            if (t == 0 ||
                memcmp(&s->shot[i].hash[t], &s->shot[i].hash[t - 1], sizeof(weft_phash)) != 0)
                s->entry[s->entries++] = (entry){(uint32_t)i, (uint32_t)t};
    return WEFT_OK;
}

/* Sorts the entries by their keys in the band, and lists the masks of keys that are near. */
static weft_status index_band(search *s, int band)
{
    const int width = band_bits(s->split.bands, band), radius = s->split.radius[band];
    const int64_t keys = (int64_t)1 << width;
    uint32_t *key = weft_calloc(s->entries + 1, sizeof *key);
    weft_free(s->start);
    weft_free(s->mask);
    s->start = weft_calloc(keys + 2, sizeof *s->start);
    s->mask = weft_calloc((int64_t)binomials(width, radius) + 1, sizeof *s->mask);
    if (!key || !s->start || !s->mask) {
        weft_free(key);
        return weft_no_memory("the index of the search for near-duplicates");
    }
    for (int64_t i = 0; i < s->entries; i++) {
        key[i] = key_of(hash_of(s, &s->entry[i]), s->split.bands, band);
        s->start[key[i] + 2]++;
    }
    for (int64_t k = 2; k <= keys + 1; k++)
        s->start[k] += s->start[k - 1];
    /* start[k + 1] advances from the start of k to the start of k + 1 */
    for (int64_t i = 0; i < s->entries; i++)
        s->order[s->start[key[i] + 1]++] = (uint32_t)i;
    weft_free(key);
    s->masks = 0;
    s->mask[s->masks++] = 0;
    for (int64_t from = 0, done = 0, r = 1; r <= radius; r++, from = done) {
        /* masks of r - 1 bits are in from .. done; each gets one more bit above its highest */
        done = s->masks;
        for (int64_t i = from; i < done; i++)
            for (int b = s->mask[i] ? 32 - __builtin_clz(s->mask[i]) : 0; b < width; b++)
                s->mask[s->masks++] = s->mask[i] | (uint32_t)1 << b;
    }
    return WEFT_OK;
}

static weft_status add_pair(search *s, int64_t a, int64_t b)
{
    WEFT_TRY(weft_grow((void **)&s->pair, s->pairs, &s->pair_capacity, sizeof *s->pair));
    s->pair[s->pairs++] = a > b ? (uint64_t)a << 32 | (uint64_t)b : (uint64_t)b << 32 | (uint64_t)a;
    return WEFT_OK;
}

/* True if weft_phash_overlap searches shot q's frames in shot j. */
static bool looks_in(const search *s, int64_t q, int64_t j)
{
    const int64_t a = s->shot[q].hashes, b = s->shot[j].hashes;
    return a < b || (a == b && j < q);
}

static weft_status look_up(search *s, int64_t q, const weft_phash *hash, int band)
{
    const uint32_t key = key_of(hash, s->split.bands, band);
    for (int64_t m = 0; m < s->masks; m++) {
        if (m + 8 < s->masks)
            __builtin_prefetch(&s->start[key ^ s->mask[m + 8]]);
        const uint32_t at = key ^ s->mask[m];
        for (uint32_t i = s->start[at]; i < s->start[at + 1]; i++) {
            const entry *e = &s->entry[s->order[i]];
            if (s->met[e->shot] == (uint32_t)q + 1 || !looks_in(s, q, e->shot) ||
                !weft_phash_same(hash, hash_of(s, e), s->limits))
                continue;
            s->met[e->shot] = (uint32_t)q + 1;
            WEFT_TRY(add_pair(s, q, e->shot));
        }
    }
    return WEFT_OK;
}

/* Number of frames to look up, of `samples`, so that at least one has a match: the allowed misses
 * plus one. */
static int64_t samples_to_look_up(double share, int64_t samples)
{
    int64_t needed = (int64_t)fmax(ceil(share * (double)samples) - 1, 0);
    while (needed < samples && (double)needed / (double)samples < share)
        needed++;
    return needed == 0 ? 0 : samples - needed + 1;
}

static void sort_pairs(search *s)
{
    if (s->pairs > 1)
        qsort(s->pair, (size_t)s->pairs, sizeof *s->pair, weft_near_ascending);
    int64_t kept = 0;
    for (int64_t i = 0; i < s->pairs; i++)
        if (i == 0 || s->pair[i] != s->pair[i - 1])
            s->pair[kept++] = s->pair[i];
    s->pairs = s->unique = kept;
}

static weft_status search_band(search *s, int band)
{
    WEFT_TRY(index_band(s, band));
    memset(s->met, 0, (size_t)s->shots * sizeof *s->met);
    for (int64_t q = 0; q < s->shots; q++) {
        const weft_near_shot *shot = &s->shot[q];
        const int64_t count = samples_to_look_up(s->share, (shot->hashes + WEFT_PHASH_STRIDE - 1) /
                                                               WEFT_PHASH_STRIDE);
        for (int64_t i = 0; i < count; i++) {
            const weft_phash *hash = &shot->hash[i * WEFT_PHASH_STRIDE];
            if (i > 0 && memcmp(hash, hash - WEFT_PHASH_STRIDE, sizeof *hash) == 0)
                continue;
            const weft_phash mirrored = weft_phash_mirror(hash);
            WEFT_TRY(look_up(s, q, hash, band));
            if (s->wanted->mirrored)
                WEFT_TRY(look_up(s, q, &mirrored, band));
        }
        if (s->pairs > 2 * s->unique + (1 << 20))
            sort_pairs(s);
    }
    sort_pairs(s);
    return WEFT_OK;
}

static weft_status all_pairs(search *s)
{
    for (int64_t i = 0; i < s->shots; i++)
        for (int64_t k = 0; k < i; k++)
            WEFT_TRY(add_pair(s, i, k));
    return WEFT_OK;
}

static double overlap(const search *s, int64_t i, int64_t k, const weft_phash *mirrored)
{
    const weft_near_shot *a = &s->shot[i], *b = &s->shot[k];
    const double same = weft_phash_overlap(a->hash, a->hashes, b->hash, b->hashes, s->limits);
    return s->wanted->mirrored
               ? fmax(same, weft_phash_overlap(mirrored, a->hashes, b->hash, b->hashes, s->limits))
               : same;
}

/* Compares two shots by thumbnails; those of the first are loaded. The map with the best fit
 * decides: under another map, a shape may hide its colour. */
static weft_status compare_parts(const search *s, int64_t i, int64_t k, weft_parts_match *best)
{
    weft_parts_map maps[WEFT_PARTS_MAPS];
    weft_parts a = *s->shot[i].parts, b = *s->shot[k].parts;
    const int count = weft_parts_maps(&a, &b, maps);
    double most = 0;
    *best = (weft_parts_match){0};
    if (count == 0)
        return WEFT_OK;
    WEFT_TRY(s->wanted->read_thumbnails(s->wanted->user, k, s->thumbnail[1]));
    a.thumbnail = s->thumbnail[0];
    b.thumbnail = s->thumbnail[1];
    for (int m = 0; m < count; m++) {
        if (maps[m].mirrored && !s->wanted->mirrored)
            continue;
        const weft_parts_match match = weft_parts_compare(&a, &b, &maps[m]);
        const double fit = match.common * match.moving * maps[m].inliers;
        if (match.share >= s->share && match.common >= s->wanted->parts &&
            match.moving >= s->wanted->parts && fit > most) {
            *best = match;
            most = fit;
        }
    }
    if (best->colour > s->limits.colour)
        *best = (weft_parts_match){0};
    return WEFT_OK;
}

typedef struct coverage {
    double hashes, most;
    weft_near_result *result;
} coverage;

static void add_coverage(const search *s, int64_t i, int64_t k, double share,
                         const weft_parts_match *match, coverage *c)
{
    const int64_t own = s->shot[i].hashes, other = s->shot[k].hashes;
    const double part = share * (double)(own < other ? own : other);
    c->hashes += part;
    if (part > c->most) {
        c->most = part;
        *c->result = (weft_near_result){.of = k, .in_parts = match != NULL};
        if (match)
            c->result->match = *match;
    }
    c->result->share = fmin(c->hashes / (double)own, 1);
}

/* Decides one shot: compares its pairs by complete frames, then the remaining ones by parts. */
static weft_status decide_one(const search *s, int64_t i, int64_t *at, int64_t *part_at,
                              const weft_phash *mirrored, weft_near_result *result)
{
    weft_near_result found = {.of = -1};
    coverage c = {.result = &found};
    bool has_thumbnails = false, done = false;
    for (;;) {
        const bool whole = *at < s->pairs && (int64_t)(s->pair[*at] >> 32) == i,
                   part = *part_at < s->parts && s->part[*part_at].later == i;
        const int64_t by_frames = whole ? (int64_t)(s->pair[*at] & UINT32_MAX) : INT64_MAX,
                      by_parts = part ? s->part[*part_at].earlier : INT64_MAX,
                      k = by_frames < by_parts ? by_frames : by_parts;
        double share = 0;
        if (!whole && !part)
            break;
        *at += by_frames == k;
        *part_at += by_parts == k;
        if (done || result[k].of >= 0)
            continue;
        if (by_frames == k)
            share = overlap(s, i, k, mirrored);
        if (share >= s->share) {
            add_coverage(s, i, k, share, NULL, &c);
        } else if (by_parts == k) {
            weft_parts_match match;
            if (!has_thumbnails)
                WEFT_TRY(s->wanted->read_thumbnails(s->wanted->user, i, s->thumbnail[0]));
            has_thumbnails = true;
            WEFT_TRY(compare_parts(s, i, k, &match));
            if (match.share > 0)
                add_coverage(s, i, k, match.share, &match, &c);
        }
        done = c.hashes > 0 && c.hashes >= s->share * (double)s->shot[i].hashes;
    }
    result[i] = done ? found : (weft_near_result){.of = -1};
    return WEFT_OK;
}

/* Decides with the found pairs, sorted by the later and then the earlier shot, as with all
 * pairs. */
static weft_status decide(search *s, weft_near_result *result)
{
    int64_t at = 0, part_at = 0, longest = 0, most_thumbnails = 0;
    for (int64_t i = 0; i < s->shots; i++) {
        const weft_parts *parts = s->shot[i].parts;
        longest = s->shot[i].hashes > longest ? s->shot[i].hashes : longest;
        most_thumbnails =
            parts && parts->thumbnails > most_thumbnails ? parts->thumbnails : most_thumbnails;
    }
    weft_phash *mirrored = weft_calloc(longest + 1, sizeof *mirrored);
    for (int k = 0; k < 2; k++)
        s->thumbnail[k] = weft_calloc(most_thumbnails + 1, sizeof **s->thumbnail);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(mirrored && s->thumbnail[0] && s->thumbnail[1],
                           "the search for near-duplicates"));
    for (int64_t i = 0; i < s->shots; i++) {
        if (at < s->pairs && (int64_t)(s->pair[at] >> 32) == i)
            for (int64_t t = 0; t < s->shot[i].hashes; t++)
                mirrored[t] = weft_phash_mirror(&s->shot[i].hash[t]);
        WEFT_GO(decide_one(s, i, &at, &part_at, mirrored, result));
    }
out:
    weft_free(mirrored);
    return status;
}

static weft_status find_parts(search *s)
{
    const weft_parts **list;
    WEFT_TRY(WEFT_NEW(list, s->shots + 1, "the search for near-duplicates"));
    for (int64_t i = 0; i < s->shots; i++)
        list[i] = s->shot[i].parts;
    const weft_status_code status = weft_near_parts(list, s->shots, &s->part, &s->parts);
    weft_free(list);
    return status;
}

weft_status weft_near_duplicates_find(const weft_near_shot *shots, int64_t count,
                                      const weft_near_limits *limits, weft_near_result *result,
                                      int64_t *pairs)
{
    search s = {.shot = shots,
                .shots = count,
                .limits = limits->frames,
                .share = limits->share,
                .wanted = limits};
    double work;
    weft_status_code status = WEFT_OK;
    if (limits->parts > 0)
        WEFT_GO(find_parts(&s));
    WEFT_GO(list_entries(&s));
    s.split = best_split(s.limits.bits, s.entries, &work);
    /* the limit is so wide, or shots so few, that lookup saves no work */
    if (work > (double)s.entries) {
        WEFT_GO(all_pairs(&s));
    } else {
        for (int band = 0; band < s.split.bands; band++)
            if (s.split.radius[band] >= 0)
                WEFT_GO(search_band(&s, band));
    }
    status = decide(&s, result);
    if (pairs)
        *pairs = s.pairs + s.parts;
out:
    weft_free(s.entry);
    weft_free(s.start);
    weft_free(s.order);
    weft_free(s.mask);
    weft_free(s.met);
    weft_free(s.pair);
    weft_free(s.part);
    weft_free(s.thumbnail[0]);
    weft_free(s.thumbnail[1]);
    return status;
}
