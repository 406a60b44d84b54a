#include "text/tokenizer.h"

#include "text/tokenizer_internal.h"

#include "base/fs.h"
#include "base/json.h"
#include "text/byte_tokenizer.h"
#include "text/spiece.h"
#include "text/tokenizer_json.h"
#include "text/wordpiece.h"

#include <stdio.h>
#include <string.h>

static const char bar[] = "\xe2\x96\x81"; /* U+2581, SentencePiece's blank */

/* ---- opening -------------------------------------------------------------------------------- */

weft_status weft_tokenizer_add(weft_tokenizer *t, const char *text, int32_t id)
{
    const int64_t length = (int64_t)strlen(text);
    if (!length)
        return WEFT_OK;
    WEFT_TRY(weft_grow((void **)&t->added, t->added_count, &t->added_capacity, sizeof *t->added));
    weft_added *a = &t->added[t->added_count++];
    *a = (weft_added){weft_strdup(text), length, id, false};
    WEFT_TRY(WEFT_ALLOCATED(a->text, "%s", t->file));
    t->added_first[(unsigned char)text[0]] = true;
    return weft_vocabulary_add(&t->vocabulary, id, text, (int)length, 0);
}

/* The file in `folder` that is read; "" (heap): none. */
static weft_status find_file(const char *folder, char **file)
{
    static const char *const names[] = {"tokenizer.json", "spiece.model", "vocab.json", "vocab.txt",
                                        "tokenizer_config.json"};
    *file = NULL;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        char *path = weft_path_join(folder, names[i]);
        WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
        if (weft_path_exists(path) && (i < 4 || weft_tokenizer_is_byt5(path))) {
            *file = path;
            return WEFT_OK;
        }
        weft_free(path);
    }
    return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = folder),
                      "the folder has no tokenizer.json, spiece.model, vocab.txt or vocab.json "
                      "with merges.txt; a pipeline has them in its folder tokenizer");
}

static weft_status folder_of(const char *file, char **folder)
{
    const char *slash = strrchr(file, '/');
    *folder = weft_strdup(slash ? file : ".");
    WEFT_TRY(WEFT_ALLOCATED(*folder, "a path"));
    if (slash)
        (*folder)[slash - file] = 0;
    return WEFT_OK;
}

weft_status weft_tokenizer_load_config(const char *path, json_t **json)
{
    char *text;
    int64_t bytes;
    json_error_t error;
    WEFT_TRY(weft_file_read(path, 1 << 26, &text, &bytes));
    *json = json_loadb(text, (size_t)bytes, JSON_DECODE_INT_AS_REAL, &error);
    weft_free(text);
    return *json ? WEFT_OK
                 : weft_error(WEFT_MSG_JSON_SYNTAX, WEFT_AT(.file = path, .line = error.line),
                              "not valid JSON at column %d: %s", error.column, error.text);
}

/* Reads vocab.json with merges.txt: Qwen 2's if tokenizer_config.json of the folder names the
 * class, else CLIP's. */
static weft_status read_pairs(weft_tokenizer *t, const char *folder)
{
    char *path = weft_path_join(folder, "tokenizer_config.json");
    json_t *config = NULL;
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    weft_status_code status = WEFT_OK;
    if (weft_path_exists(path))
        WEFT_GO(weft_tokenizer_load_config(path, &config));
    const char *name = json_string_value(json_object_get(config, "tokenizer_class"));
    WEFT_GO(name && !strncmp(name, "Qwen2Tokenizer", 14)
                ? weft_tokenizer_read_qwen(t, folder, config)
                : weft_tokenizer_read_clip(t, folder));
out:
    json_decref(config);
    weft_free(path);
    return status;
}

static weft_status read_file(weft_tokenizer *t)
{
    const char *slash = strrchr(t->file, '/'), *name = slash ? slash + 1 : t->file;
    if (!strcmp(weft_path_extension(name), "model"))
        return weft_tokenizer_read_spiece(t);
    if (!strcmp(name, "tokenizer_config.json"))
        return weft_tokenizer_read_byt5(t);
    const bool words = !strcmp(weft_path_extension(name), "txt");
    if (strcmp(name, "vocab.json") && !words)
        return weft_tokenizer_read_json(t);
    char *folder;
    WEFT_TRY(folder_of(t->file, &folder));
    const weft_status_code status =
        words ? weft_tokenizer_read_words(t, folder) : read_pairs(t, folder);
    weft_free(folder);
    return status;
}

/* Reads "pad_token" and "padding_side" of a config in the tokenizer's folder. The token is a
 * string, or an object with a "content". */
static weft_status read_padding(weft_tokenizer *t, const char *folder, const char *name)
{
    char *path = weft_path_join(folder, name);
    json_t *json = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    if (weft_path_exists(path))
        WEFT_GO(weft_tokenizer_load_config(path, &json));
    const json_t *pad = json_object_get(json, "pad_token");
    const char *side = json_string_value(json_object_get(json, "padding_side"));
    t->pads_left |= side && !strcmp(side, "left");
    const char *text =
        json_string_value(json_is_object(pad) ? json_object_get(pad, "content") : pad);
    if (text) {
        t->pad = weft_vocabulary_find(&t->vocabulary, text, (int64_t)strlen(text));
        if (t->pad < 0)
            WEFT_GO(weft_error(WEFT_MSG_TOKENIZER_INVALID,
                               WEFT_AT(.file = path, .key = "pad_token", .value = text),
                               "\"%.60s\" is not in %s", text, t->file));
    }
out:
    json_decref(json);
    weft_free(path);
    return status;
}

static weft_status find_padding(weft_tokenizer *t)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    char *folder;
    WEFT_TRY(folder_of(t->file, &folder));
    weft_status_code status = WEFT_OK;
    t->pad = -1;
    for (int i = 0; i < 2 && t->pad < 0; i++)
        WEFT_GO(read_padding(t, folder, files[i]));
out:
    weft_free(folder);
    if (t->pad < 0)
        t->pad = t->form == WEFT_TOKENIZER_WORDS ? weft_vocabulary_find(&t->vocabulary, "[PAD]", 5)
                                                 : weft_vocabulary_find(&t->vocabulary, "<pad>", 5);
    if (t->pad < 0)
        t->pad = t->form == WEFT_TOKENIZER_CLIP && t->backs ? t->back[0] : 0;
    return status;
}

weft_status weft_tokenizer_open(const char *path, weft_tokenizer **tokenizer)
{
    weft_tokenizer *t = weft_alloc(sizeof *t);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(t, "%s: a tokenizer", path));
    t->bpe = (weft_bpe){.unknown = -1, .suffix = ""};
    if (weft_path_is_dir(path))
        WEFT_GO(find_file(path, &t->file));
    else
        t->file = weft_strdup(path);
    WEFT_GO(t->file ? read_file(t) : weft_no_memory("%s", path));
    WEFT_GO(weft_vocabulary_index(&t->vocabulary));
    WEFT_GO(find_padding(t));
    *tokenizer = t;
out:
    if (status != WEFT_OK)
        weft_tokenizer_close(t);
    return status;
}

void weft_tokenizer_close(weft_tokenizer *t)
{
    if (!t)
        return;
    for (int64_t i = 0; i < t->added_count; i++)
        weft_free(t->added[i].text);
    weft_free(t->added);
    weft_vocabulary_free(&t->vocabulary);
    weft_charsmap_free(&t->map);
    weft_free(t->bpe.merge);
    weft_free(t->file);
    weft_free(t);
}

const char *weft_tokenizer_piece(const weft_tokenizer *t, int32_t id)
{
    const bool known = id >= 0 && id < t->vocabulary.count && t->vocabulary.piece[id];
    return known ? t->vocabulary.piece[id] : "";
}

bool weft_tokenizer_pads_left(const weft_tokenizer *t)
{
    return t->pads_left;
}

const char *weft_tokenizer_first(const weft_tokenizer *t)
{
    return t->fronts ? weft_tokenizer_piece(t, t->front[0]) : "";
}

int32_t weft_tokenizer_padding(const weft_tokenizer *t)
{
    return t->pad;
}

int64_t weft_tokenizer_size(const weft_tokenizer *t)
{
    return t->vocabulary.count;
}

const char *weft_tokenizer_class(const weft_tokenizer *t)
{
    return t->form == WEFT_TOKENIZER_CLIP                   ? "CLIPTokenizer"
           : t->form == WEFT_TOKENIZER_WORDS                ? "BertTokenizerFast"
           : t->form == WEFT_TOKENIZER_BYT5                 ? "ByT5Tokenizer"
           : t->form == WEFT_TOKENIZER_GEMMA                ? "GemmaTokenizerFast"
           : t->form != WEFT_TOKENIZER_BYTES                ? "T5TokenizerFast"
           : t->compose /* Qwen's, before it cuts a text */ ? "Qwen2TokenizerFast"
                                                            : "PreTrainedTokenizerFast";
}

bool weft_tokenizer_is_file(const char *name)
{
    static const char *const names[] = {"tokenizer.json",
                                        "spiece.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.txt"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* Appends the bytes of a byte-level piece, one for each of its letters. */
static void append_letters(const char *piece, const char *suffix, weft_buf *out)
{
    const size_t tail = strlen(suffix);
    for (size_t left; (left = strlen(piece)) > 0;) {
        int found = 0;
        if (tail && left == tail && !strcmp(piece, suffix)) {
            weft_buf_append(out, " ", 1);
            return;
        }
        for (int byte = 0; byte < 256 && !found; byte++) {
            char letter[4];
            const int n = weft_bpe_letter((unsigned char)byte, letter);
            if (left < (size_t)n || memcmp(piece, letter, (size_t)n) != 0)
                continue;
            weft_buf_append(out, &(char){(char)byte}, 1);
            found = n;
        }
        if (!found)
            weft_buf_append(out, piece, 1);
        piece += found ? found : 1;
    }
}

void weft_tokenizer_text(const weft_tokenizer *t, const int32_t *id, int64_t count, weft_buf *out)
{
    weft_buf raw = {0};
    unsigned byte = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *piece = weft_tokenizer_piece(t, id[i]);
        if (t->form == WEFT_TOKENIZER_CLIP || t->form == WEFT_TOKENIZER_BYTES) {
            append_letters(piece, t->bpe.suffix, &raw);
            continue;
        }
        if (t->form == WEFT_TOKENIZER_WORDS) {
            const bool goes_on = !strncmp(piece, "##", 2) && piece[2];
            weft_buf_printf(&raw, "%s%s", goes_on || i == 0 ? "" : " ", piece + (goes_on ? 2 : 0));
            continue;
        }
        const bool is_byte = t->form == WEFT_TOKENIZER_GEMMA && strlen(piece) == 6 &&
                             sscanf(piece, "<0x%2X>", &byte) == 1;
        if (is_byte)
            weft_buf_append(&raw, &(char){(char)byte}, 1);
        for (; *piece && !is_byte; piece += strncmp(piece, bar, 3) ? 1 : 3) {
            const bool blank = !strncmp(piece, bar, 3);
            weft_buf_append(&raw, blank ? " " : piece, 1);
        }
    }
    weft_text_repair(raw.data ? raw.data : "", raw.len, out);
    out->failed |= raw.failed;
    weft_buf_free(&raw);
}

/* ---- SentencePiece -------------------------------------------------------------------------- */

/* Returns the normalised form of the next part of the text and sets *taken to its bytes: a piece
 * that is never split, a part that the map replaces, or one unchanged letter. */
static const char *next_part(const weft_tokenizer *t, const char *at, int64_t left, int64_t *taken,
                             int64_t *length)
{
    const weft_vocabulary *v = &t->vocabulary;
    for (int64_t n = left < v->longest ? left : v->longest; n > 0; n--) {
        const int32_t id = weft_vocabulary_find(v, at, n);
        if (id >= 0 && v->whole[id]) {
            *taken = *length = n;
            return at;
        }
    }
    const char *made = weft_charsmap_find(&t->map, at, left, false, taken);
    if (made) {
        *length = (int64_t)strlen(made);
        return made;
    }
    weft_text_next(at, left, taken);
    *length = *taken;
    return at;
}

static void append_escaped(const weft_tokenizer *t, const char *part, int64_t length, weft_buf *out)
{
    for (int64_t i = 0; i < length; i++) {
        const bool blank = part[i] == ' ' && t->escape_spaces;
        weft_buf_append(out, blank ? bar : part + i, blank ? 3 : 1);
    }
}

static void normalise_spiece(const weft_tokenizer *t, const char *text, int64_t length,
                             weft_buf *out)
{
    int64_t at = 0, taken, size;
    bool after_space = t->remove_spaces, begun = false;
    weft_buf_append(out, "", 0);
    while (at < length) {
        const char *part = next_part(t, text + at, length - at, &taken, &size);
        at += taken;
        if (!begun && t->remove_spaces && size == 1 && *part == ' ')
            continue;
        if (!begun && t->dummy_prefix)
            append_escaped(t, " ", 1, out);
        begun = true;
        for (; after_space && size && *part == ' '; size--)
            part++;
        append_escaped(t, part, size, out);
        if (size)
            after_space = part[size - 1] == ' ';
        after_space &= t->remove_spaces;
    }
    const int64_t tail = t->escape_spaces ? 3 : 1;
    while (t->remove_spaces && out->len >= tail &&
           !memcmp(out->data + out->len - tail, t->escape_spaces ? bar : " ", (size_t)tail))
        out->len -= tail;
}

/* ---- tokenizer.json, unigram ---------------------------------------------------------------- */

static void strip_right(weft_buf *text)
{
    int64_t end = 0;
    for (int64_t at = 0, n; at < text->len; at += n) {
        const int32_t c = weft_text_next(text->data + at, text->len - at, &n);
        if (!weft_is_space(c))
            end = at + n;
    }
    text->len = end;
}

/* Replaces each run of blanks by one bar, and adds a bar at the front. */
static void add_bars(const weft_tokenizer *t, const weft_buf *text, weft_buf *out)
{
    weft_buf_append(out, "", 0);
    const bool barred =
        text->len && (text->data[0] == ' ' || (text->len >= 3 && !memcmp(text->data, bar, 3)));
    if (text->len && t->dummy_prefix && !barred)
        weft_buf_append(out, bar, 3);
    for (int64_t i = 0; i < text->len; i++) {
        if (text->data[i] != ' ')
            weft_buf_append(out, text->data + i, 1);
        else if (i == 0 || text->data[i - 1] != ' ')
            weft_buf_append(out, bar, 3);
    }
}

/* Splits the text before each bar. */
static weft_status cut_words(const weft_tokenizer *t, const weft_buf *text, weft_ids *out)
{
    for (int64_t from = 0, to; from < text->len; from = to) {
        to = from + 1;
        while (to < text->len && (to + 3 > text->len || memcmp(text->data + to, bar, 3)))
            to++;
        WEFT_TRY(weft_unigram_cut(&t->vocabulary, &t->unigram, text->data + from, to - from, out));
    }
    return WEFT_OK;
}

/* ---- byte pairs ----------------------------------------------------------------------------- */

typedef struct letters {
    const char *text;
    int64_t length;
} letters;

static int32_t code_at(const letters *l, int64_t at, int64_t *bytes)
{
    *bytes = 0;
    return at < l->length ? weft_text_next(l->text + at, l->length - at, bytes) : -1;
}

/* The end of the run of letters of this kind at `at`, of at most `most` letters. */
static int64_t run_of(const letters *l, int64_t at, bool (*is)(int32_t c), int64_t most)
{
    int64_t n;
    for (; most > 0 && is(code_at(l, at, &n)); most--)
        at += n;
    return at;
}

static bool is_other(int32_t c)
{
    return c >= 0 && !weft_is_space(c) && !weft_is_letter(c) && !weft_is_number(c);
}

static bool is_line_end(int32_t c)
{
    return c == '\r' || c == '\n';
}

/* Bytes of a contraction ('s 't 're 've 'm 'll 'd) at `at`; 0 without one. With `any_case` the long
 * s counts as an s. */
static int64_t contraction(const letters *l, int64_t at, bool any_case)
{
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (at >= l->length || l->text[at] != '\'')
        return 0;
    for (int i = 0; i < 7; i++) {
        int64_t offset = at + 1, n;
        const char *end = ends[i];
        for (; *end; end++, offset += n) {
            int32_t c = code_at(l, offset, &n);
            if (any_case && c >= 'A' && c <= 'Z')
                c += 'a' - 'A';
            if (any_case && c == 0x17f)
                c = 's';
            if (c != *end)
                break;
        }
        if (!*end)
            return offset - at;
    }
    return 0;
}

/* The end of the piece at `at` by CLIP's pattern; `at`: no piece begins there. */
static int64_t clip_piece(const letters *l, int64_t at)
{
    const int64_t short_form = contraction(l, at, false);
    if (short_form)
        return at + short_form;
    int64_t to = run_of(l, at, weft_is_letter, INT64_MAX);
    to = to > at ? to : run_of(l, at, weft_is_number, 1);
    return to > at ? to : run_of(l, at, is_other, INT64_MAX);
}

static bool is_slash_or_end(int32_t c)
{
    return is_line_end(c) || c == '/';
}

/* The end of a word that ends with lower case: upper* lower+, with the longest possible start.
 * `at`: none. */
static int64_t lower_word(const letters *l, int64_t at)
{
    int64_t n, last = at;
    const int64_t upper = run_of(l, at, weft_is_upper, INT64_MAX),
                  to = run_of(l, upper, weft_is_lower, INT64_MAX);
    if (to > upper)
        return to;
    for (int64_t i = at; i < upper; i += n) /* give letters back that are both */
        if (weft_is_lower(code_at(l, i, &n)))
            last = i + n;
    return last;
}

/* upper+ lower* */
static int64_t upper_word(const letters *l, int64_t at)
{
    const int64_t upper = run_of(l, at, weft_is_upper, INT64_MAX);
    return upper > at ? run_of(l, upper, weft_is_lower, INT64_MAX) : at;
}

/* The end of a word by Tekken's pattern, with or without the sign before it; `at`: none. */
static int64_t cased_word(const letters *l, int64_t at)
{
    int64_t n;
    const int32_t c = code_at(l, at, &n);
    const bool leads = !is_line_end(c) && !weft_is_letter(c) && !weft_is_number(c);
    const int64_t word = leads ? at + n : at;
    int64_t to = lower_word(l, word);
    if (to > word || (to = lower_word(l, at)) > at || (to = upper_word(l, word)) > word)
        return to;
    return upper_word(l, at);
}

/* The end of the piece at `at` by the pattern of Llama 3 and Qwen 2, alternatives in order:
 *   's ... | not (line end, letter, number)? letters | numbers | ' '? others line ends |
 *   spaces line ends | spaces but the one before a word | spaces
 * With `cases`, words are cased_word's and slashes are like line ends after others. */
static int64_t bytes_piece(const letters *l, int64_t at, int digits, bool cases)
{
    int64_t n, to;
    const int64_t short_form = cases ? 0 : contraction(l, at, true);
    const int32_t c = code_at(l, at, &n);
    if (short_form)
        return at + short_form;
    const bool leads = !is_line_end(c) && !weft_is_letter(c) && !weft_is_number(c);
    const int64_t word = leads ? at + n : at;
    if (cases && (to = cased_word(l, at)) > at)
        return to;
    if (!cases && (to = run_of(l, word, weft_is_letter, INT64_MAX)) > word)
        return to;
    if ((to = run_of(l, at, weft_is_number, digits)) > at)
        return to;
    const int64_t sign = c == ' ' ? at + 1 : at;
    if ((to = run_of(l, sign, is_other, INT64_MAX)) > sign)
        return run_of(l, to, cases ? is_slash_or_end : is_line_end, INT64_MAX);
    int64_t line = at, last = at;
    for (to = at; weft_is_space(code_at(l, to, &n)); to += n) {
        last = to;
        if (is_line_end(l->text[to]))
            line = to + 1;
    }
    if (line > at)
        return line;
    return to < l->length && last > at ? last : to;
}

static weft_status cut_pairs(const weft_tokenizer *t, const weft_buf *text, weft_ids *out)
{
    const letters l = {text->data, text->len};
    for (int64_t at = 0, to, n; at < l.length; at = to) {
        to = t->form == WEFT_TOKENIZER_CLIP ? clip_piece(&l, at)
                                            : bytes_piece(&l, at, t->digits, t->cases);
        if (to > at) {
            WEFT_TRY(weft_bpe_cut(&t->vocabulary, &t->bpe, l.text + at, to - at, out));
        } else { /* white space, which CLIP drops */
            code_at(&l, at, &n);
            to = at + (n ? n : 1);
        }
    }
    return WEFT_OK;
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* A stretch of text without added tokens. */
static weft_status cut_plain(const weft_tokenizer *t, const char *text, int64_t length,
                             weft_ids *out)
{
    weft_buf first = {0}, then = {0};
    weft_status_code status = WEFT_OK;
    weft_buf_append(&first, "", 0);
    if (t->form == WEFT_TOKENIZER_SPIECE) {
        normalise_spiece(t, text, length, &first);
        WEFT_GO(weft_unigram_cut(&t->vocabulary, &t->unigram, first.data, first.len, out));
    } else if (t->form == WEFT_TOKENIZER_UNIGRAM) {
        WEFT_GO(weft_charsmap_apply(&t->map, text, length, &first));
        strip_right(&first);
        add_bars(t, &first, &then);
        WEFT_GO(weft_buf_check(&then));
        WEFT_GO(cut_words(t, &then, out));
    } else if (t->form == WEFT_TOKENIZER_BYT5) {
        WEFT_GO(weft_byt5_cut(text, length, out));
    } else if (t->form == WEFT_TOKENIZER_GEMMA) {
        for (int64_t i = 0; i < length; i++)
            weft_buf_append(&first, text[i] == ' ' ? bar : text + i, text[i] == ' ' ? 3 : 1);
        WEFT_GO(weft_buf_check(&first));
        WEFT_GO(weft_bpe_cut(&t->vocabulary, &t->bpe, first.data, first.len, out));
    } else if (t->form == WEFT_TOKENIZER_WORDS) {
        WEFT_GO(weft_text_words(text, length, t->lower, t->strip, t->chinese, &first));
        WEFT_GO(weft_wordpiece_cut(t, first.data, first.len, out));
    } else {
        weft_buf_append(&first, text, length);
        if (t->form == WEFT_TOKENIZER_CLIP || t->compose)
            WEFT_GO(weft_text_compose(&first));
        if (t->form == WEFT_TOKENIZER_CLIP)
            weft_text_lower(first.data, first.len, &then);
        WEFT_GO(weft_buf_check(&then));
        WEFT_GO(cut_pairs(t, t->form == WEFT_TOKENIZER_CLIP ? &then : &first, out));
    }
    status = weft_buf_check(&first);
out:
    weft_buf_free(&first);
    weft_buf_free(&then);
    return status;
}

/* The longest added token at `text`; NULL: none. */
static const weft_added *added_at(const weft_tokenizer *t, const char *text, int64_t left)
{
    const weft_added *best = NULL;
    if (!t->added_first[(unsigned char)text[0]])
        return NULL; /* Gemma 3 has 6,415 added tokens */
    for (int64_t i = 0; i < t->added_count; i++) {
        const weft_added *a = &t->added[i];
        if (a->length <= left && !memcmp(a->text, text, (size_t)a->length) &&
            (!best || a->length > best->length))
            best = a;
    }
    return best;
}

static weft_status cut_text(const weft_tokenizer *t, const char *text, int64_t length,
                            weft_ids *out)
{
    int64_t from = 0;
    for (int64_t at = 0; at < length;) {
        const weft_added *a = added_at(t, text + at, length - at);
        if (!a) {
            at++;
            continue;
        }
        int64_t to = at;
        while (a->strips && to > from && strchr(" \t\n\v\f\r", text[to - 1]))
            to--;
        WEFT_TRY(cut_plain(t, text + from, to - from, out));
        WEFT_TRY(weft_ids_add(out, a->id));
        at += a->length;
        while (a->strips && at < length && text[at] && strchr(" \t\n\v\f\r", text[at]))
            at++;
        from = at;
    }
    return cut_plain(t, text + from, length - from, out);
}

weft_status weft_tokenizer_encode(const weft_tokenizer *t, const char *text, int64_t length,
                                  int64_t most, int32_t **id, int64_t *count, int64_t *cut)
{
    weft_ids ids = {0};
    weft_buf repaired = {0};
    weft_status_code status = WEFT_OK;
    int64_t left_out = 0;
    weft_text_repair(text, length, &repaired);
    WEFT_GO(weft_buf_check(&repaired));
    for (int i = 0; i < t->fronts; i++)
        WEFT_GO(weft_ids_add(&ids, t->front[i]));
    if (repaired.len)
        WEFT_GO(cut_text(t, repaired.data, repaired.len, &ids));
    if (most > 0 && ids.count + t->backs > most) {
        const int64_t kept = most > t->fronts + t->backs ? most - t->backs : t->fronts;
        left_out = ids.count - kept;
        ids.count = kept;
    }
    for (int i = 0; i < t->backs; i++)
        WEFT_GO(weft_ids_add(&ids, t->back[i]));
    *id = ids.id;
    *count = ids.count;
    if (cut)
        *cut = left_out;
    ids.id = NULL;
out:
    weft_free(ids.id);
    weft_buf_free(&repaired);
    return status;
}
