#include "fuzz_corpus.h"

#include "base/fs.h"
#include "base/rng.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MUTATIONS = 400 };

/* One to four changes: flips, overwrites, cuts, repeats. */
static void mutate(weft_rng *rng, weft_buf *b)
{
    static const uint64_t nasty[] = {0,     1,          127,        255,       256,
                                     65535, 1ull << 31, 1ull << 32, INT64_MAX, UINT64_MAX};
    for (uint64_t n = 1 + weft_rng_below(rng, 4); n > 0 && b->len > 0; n--) {
        const int64_t at = (int64_t)weft_rng_below(rng, (uint64_t)b->len);
        const int64_t left = b->len - at;
        switch (weft_rng_below(rng, 5)) {
        case 0: b->data[at] = (char)(b->data[at] ^ (1 << weft_rng_below(rng, 8))); break;
        case 1: b->data[at] = "0123456789{}[]\",:-eE\n\t\\\377"[weft_rng_below(rng, 24)]; break;
        case 2: {
            const uint64_t value = nasty[weft_rng_below(rng, sizeof nasty / sizeof *nasty)];
            memcpy(b->data + at, &value, (size_t)(left < 8 ? left : 8));
            break;
        }
        case 3: b->len = at; break;
        default: {
            const int64_t from = (int64_t)weft_rng_below(rng, (uint64_t)b->len);
            const int64_t bytes = b->len - from < left ? b->len - from : left;
            memmove(b->data + at, b->data + from, (size_t)bytes);
        }
        }
    }
}

void fuzz_corpus_run(const char *name, int (*target)(const uint8_t *, size_t))
{
    char folder[512];
    const char *source = getenv("SRC");
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", source ? source : ".", name);
    setenv("WEFT_LOG", "error", 1);
    weft_names names = {0};
    cr_assert_eq(weft_list_dir(folder, false, &names), WEFT_OK, "%s", weft_error_message());
    cr_assert_gt(names.count, 1);
    target((const uint8_t *)"", 0);
    weft_rng rng = weft_rng_make(1, WEFT_RNG_TEST);
    for (int64_t i = 0; i < names.count; i++) {
        char *path = weft_path_join(folder, names.name[i]), *data;
        int64_t bytes;
        cr_assert_eq(weft_file_read(path, 1 << 20, &data, &bytes), WEFT_OK);
        target((const uint8_t *)data, (size_t)bytes);
        for (int m = 0; m < MUTATIONS; m++) {
            weft_buf b = {0};
            weft_buf_append(&b, data, bytes);
            mutate(&rng, &b);
            /* the exact size on the heap, so that a sanitizer detects a read of one byte past the
             * end */
            uint8_t *exact = malloc((size_t)b.len + !b.len);
            memcpy(exact, b.data ? b.data : "", (size_t)b.len);
            target(exact, (size_t)b.len);
            free(exact);
            weft_buf_free(&b);
        }
        weft_free(data);
        weft_free(path);
    }
    weft_names_free(&names);
}
