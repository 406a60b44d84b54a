/* BERT's tokenizer: words and punctuation, each split from the left into the longest pieces of the
 * vocabulary. A piece that continues a word begins with "##".
 *
 *   "Unhappily, \u732b!" -> un ##happi ##ly | , | \u732b | ! */
#include "text/wordpiece.h"

#include "base/fs.h"
#include "text/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LETTERS = 100 }; /* letters of a word; a longer word becomes one unknown token */

/* The longest piece at the beginning of `text`; -1: none. */
static int32_t longest(const weft_tokenizer *t, bool goes_on, const char *text, int64_t length,
                       int64_t *taken)
{
    char piece[4 * MOST_LETTERS + 3] = "##";
    const int64_t front = goes_on ? 2 : 0;
    for (int64_t n = length; n > 0; n--) {
        memcpy(piece + front, text, (size_t)n);
        const int32_t id = weft_vocabulary_find(&t->vocabulary, piece, front + n);
        *taken = n;
        if (id >= 0)
            return id;
    }
    return -1;
}

static weft_status cut_word(const weft_tokenizer *t, const char *word, int64_t length,
                            weft_ids *out)
{
    const int64_t before = out->count;
    int64_t letters = 0, n;
    for (int64_t at = 0; at < length; at += n, letters++)
        weft_text_next(word + at, length - at, &n);
    for (int64_t at = 0, taken; letters <= MOST_LETTERS && at < length; at += taken) {
        const int32_t id = longest(t, at > 0, word + at, length - at, &taken);
        if (id < 0) {
            letters = MOST_LETTERS + 1;
            break;
        }
        WEFT_TRY(weft_ids_add(out, id));
    }
    if (letters <= MOST_LETTERS)
        return WEFT_OK;
    out->count = before;
    return weft_ids_add(out, t->bpe.unknown);
}

weft_status weft_wordpiece_cut(const weft_tokenizer *t, const char *text, int64_t length,
                               weft_ids *out)
{
    int64_t from = 0, n;
    for (int64_t at = 0; at <= length; at += n) {
        const int32_t c = at < length ? weft_text_next(text + at, length - at, &n) : ' ';
        const bool space = weft_is_space(c), sign = !space && weft_is_sign(c);
        if (at == length)
            n = 1;
        if (!space && !sign)
            continue;
        if (at > from)
            WEFT_TRY(cut_word(t, text + from, at - from, out));
        if (sign)
            WEFT_TRY(cut_word(t, text + at, n, out));
        from = at + n;
    }
    return WEFT_OK;
}

/* ---- vocab.txt ------------------------------------------------------------------------------ */

static weft_status find_special(weft_tokenizer *t, const char *name, int32_t *id)
{
    *id = weft_vocabulary_find(&t->vocabulary, name, (int64_t)strlen(name));
    if (*id < 0)
        return weft_error(WEFT_MSG_TOKENIZER_INVALID, WEFT_AT(.file = t->file, .value = name),
                          "the vocabulary has no \"%s\", so it is not BERT's", name);
    return weft_tokenizer_add(t, name, *id);
}

/* Reads the case options of tokenizer_config.json, if present. */
static weft_status read_case(weft_tokenizer *t, const char *folder)
{
    char *path = weft_path_join(folder, "tokenizer_config.json");
    json_t *json = NULL;
    weft_status_code status = WEFT_ALLOCATED(path, "a path");
    if (path && weft_path_exists(path))
        status = weft_tokenizer_load_config(path, &json);
    t->lower = !json_is_false(json_object_get(json, "do_lower_case"));
    const json_t *strip = json_object_get(json, "strip_accents");
    t->strip = json_is_boolean(strip) ? json_is_true(strip) : t->lower;
    t->chinese = !json_is_false(json_object_get(json, "tokenize_chinese_chars"));
    json_decref(json);
    weft_free(path);
    return status;
}

weft_status weft_tokenizer_read_words(weft_tokenizer *t, const char *folder)
{
    static const char *const special[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
    char *text;
    int64_t bytes;
    int32_t id = 0, found[5];
    WEFT_TRY(weft_file_read(t->file, 1 << 28, &text, &bytes));
    weft_status_code status = WEFT_OK;
    for (char *line = text, *next; *line; line = next, id++) {
        const size_t length = strcspn(line, "\n");
        next = line + length + (line[length] != 0);
        line[length] = 0;
        line[strcspn(line, "\r")] = 0;
        if (id >= 1 << 24)
            WEFT_GO(weft_error(WEFT_MSG_TOKENIZER_INVALID, WEFT_AT(.file = t->file, .line = id + 1),
                               "the file has more than %d lines", 1 << 24));
        else
            WEFT_GO(weft_vocabulary_add(&t->vocabulary, id, line, (int)strlen(line), 0));
    }
    WEFT_GO(weft_vocabulary_index(&t->vocabulary));
    for (int i = 0; i < 5; i++)
        WEFT_GO(find_special(t, special[i], &found[i]));
out:
    weft_free(text);
    WEFT_TRY(status);
    t->form = WEFT_TOKENIZER_WORDS;
    t->bpe.unknown = found[0];
    t->front[t->fronts++] = found[1];
    t->back[t->backs++] = found[2];
    WEFT_TRY(read_case(t, folder));
    return weft_vocabulary_index(&t->vocabulary);
}
