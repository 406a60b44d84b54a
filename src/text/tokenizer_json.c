/* Reads tokenizer.json, and vocab.json with merges.txt of CLIP and Qwen 2. A feature that is not
 * supported is an error with its name. */
#include "text/tokenizer_json.h"

#include "base/fs.h"
#include "base/json.h"
#include "text/tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const clip_pattern =
    "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|"
    "[^\\s\\p{L}\\p{N}]+";
static const char *const bytes_pattern[2] =
    {/* 0: up to three digits per piece, 1: one digit per piece */
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

static const char *const cases_pattern =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const char *type_of(const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    return type ? type : "";
}

static weft_status refuse(const weft_tokenizer *t, const char *part, const char *what)
{
    return weft_error(WEFT_MSG_TEXT_ENCODER_UNSUPPORTED,
                      WEFT_AT(.file = t->file, .key = part, .value = what),
                      "\"%.120s\" is not supported; weft reads the tokenizers of T5, UMT5, CLIP, "
                      "BERT, Llama 3, Qwen 2, Mistral and Gemma",
                      what);
}

/* The step of this type in a list of steps or as the only one. */
static const json_t *step_of(const json_t *json, const char *list, const char *type)
{
    if (!strcmp(type_of(json), type))
        return json;
    const json_t *steps = json_object_get(json, list);
    for (size_t i = 0; i < json_array_size(steps); i++)
        if (!strcmp(type_of(json_array_get(steps, i)), type))
            return json_array_get(steps, i);
    return NULL;
}

/* Rejects steps that `types` (ends with NULL) does not list: they would change the tokens. */
static weft_status check_steps(const weft_tokenizer *t, const char *part, const json_t *json,
                               const char *list, const char *const *types)
{
    const json_t *steps = json_object_get(json, list);
    for (size_t i = 0; i < json_array_size(steps); i++)
        WEFT_TRY(check_steps(t, part, json_array_get(steps, i), list, types));
    if (!json_is_object(json) || json_is_array(steps))
        return WEFT_OK;
    while (*types && strcmp(*types, type_of(json)) != 0)
        types++;
    return *types ? WEFT_OK : refuse(t, part, type_of(json));
}

static weft_status check_forms(const weft_tokenizer *t, const json_t *json)
{
    static const char *const normalizers[][5] = {
        [WEFT_TOKENIZER_UNIGRAM] = {"Precompiled", "Strip", "Replace"},
        [WEFT_TOKENIZER_BYTES] = {"NFC"},
        [WEFT_TOKENIZER_CLIP] = {"NFC", "Replace", "Lowercase"},
        [WEFT_TOKENIZER_WORDS] = {"BertNormalizer"},
        [WEFT_TOKENIZER_GEMMA] = {"Replace"}};
    static const char *const pre_tokenizers[][3] = {
        [WEFT_TOKENIZER_UNIGRAM] = {"WhitespaceSplit", "Metaspace"},
        [WEFT_TOKENIZER_BYTES] = {"Split", "ByteLevel"},
        [WEFT_TOKENIZER_CLIP] = {"Split", "ByteLevel"},
        [WEFT_TOKENIZER_WORDS] = {"BertPreTokenizer"},
        [WEFT_TOKENIZER_GEMMA] = {"Split"}};
    WEFT_TRY(check_steps(t, "normalizer", json_object_get(json, "normalizer"), "normalizers",
                         normalizers[t->form]));
    return check_steps(t, "pre_tokenizer", json_object_get(json, "pre_tokenizer"), "pretokenizers",
                       pre_tokenizers[t->form]);
}

static weft_status read_added(weft_tokenizer *t, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *text;
        int64_t id;
        WEFT_TRY(weft_json_get_string(one, "content", t->file, &text));
        WEFT_TRY(weft_json_get_i64(one, "id", t->file, &id));
        if (id < 0 || id > 1 << 24)
            return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                              WEFT_AT(.file = t->file, .key = "added_tokens", WEFT_NUMBER(id)),
                              "the token \"%.80s\" has the id %" PRId64, text, id);
        if (json_is_true(json_object_get(one, "lstrip")) ||
            json_is_true(json_object_get(one, "rstrip")) ||
            json_is_true(json_object_get(one, "single_word")))
            return refuse(t, "added_tokens", "lstrip, rstrip or single_word");
        WEFT_TRY(weft_tokenizer_add(t, text, (int32_t)id));
    }
    return WEFT_OK;
}

static weft_status add_around(weft_tokenizer *t, int32_t *list, int *count, int64_t id)
{
    if (*count == WEFT_MAX_AROUND || id < 0 || id > 1 << 24)
        return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                          WEFT_AT(.file = t->file, .key = "post_processor", WEFT_NUMBER(id)),
                          "the token id %" PRId64
                          " is outside its range, or more than %d tokens are added",
                          id, WEFT_MAX_AROUND);
    list[(*count)++] = (int32_t)id;
    return WEFT_OK;
}

static weft_status read_template(weft_tokenizer *t, const json_t *json)
{
    const json_t *single = json_object_get(json, "single"),
                 *tokens = json_object_get(json, "special_tokens");
    bool after = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *one = json_array_get(single, i),
                     *special = json_object_get(one, "SpecialToken");
        after |= json_object_get(one, "Sequence") != NULL;
        if (!special)
            continue;
        const char *name;
        WEFT_TRY(weft_json_get_string(special, "id", t->file, &name));
        const json_t *ids = json_object_get(json_object_get(tokens, name), "ids");
        if (!json_array_size(ids))
            return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                              WEFT_AT(.file = t->file, .key = "post_processor", .value = name),
                              "\"%.80s\" has no id", name);
        for (size_t k = 0; k < json_array_size(ids); k++)
            WEFT_TRY(add_around(t, after ? t->back : t->front, after ? &t->backs : &t->fronts,
                                json_integer_value(json_array_get(ids, k))));
    }
    return WEFT_OK;
}

static weft_status read_around(weft_tokenizer *t, const json_t *json)
{
    const json_t *template = step_of(json, "processors", "TemplateProcessing"),
                 *roberta = step_of(json, "processors", "RobertaProcessing"),
                 *bert = step_of(json, "processors", "BertProcessing");
    roberta = roberta ? roberta : bert;
    if (template)
        return read_template(t, template);
    if (roberta) {
        WEFT_TRY(
            add_around(t, t->front, &t->fronts,
                       json_integer_value(json_array_get(json_object_get(roberta, "cls"), 1))));
        return add_around(t, t->back, &t->backs,
                          json_integer_value(json_array_get(json_object_get(roberta, "sep"), 1)));
    }
    if (json_is_object(json) && !step_of(json, "processors", "ByteLevel"))
        return refuse(t, "post_processor", type_of(json));
    return WEFT_OK;
}

/* ---- unigram -------------------------------------------------------------------------------- */

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static weft_status read_map(weft_tokenizer *t, const json_t *normaliser)
{
    const json_t *step = step_of(normaliser, "normalizers", "Precompiled");
    const char *text = json_string_value(json_object_get(step, "precompiled_charsmap"));
    if (!text)
        return weft_error(
            WEFT_MSG_TOKENIZER_INVALID, WEFT_AT(.file = t->file, .key = "precompiled_charsmap"),
            "the character map of the normalizer Precompiled is missing; download the file again");
    unsigned char *bytes = weft_alloc((int64_t)strlen(text) + 4);
    WEFT_TRY(WEFT_ALLOCATED(bytes, "%s", t->file));
    int64_t size = 0;
    uint32_t bits = 0;
    int held = 0;
    for (; *text && base64_digit(*text) >= 0; text++) {
        bits = bits << 6 | (uint32_t)base64_digit(*text);
        held += 6;
        if (held >= 8) {
            held -= 8;
            bytes[size++] = (unsigned char)(bits >> held);
        }
    }
    const weft_status_code status = weft_charsmap_read(bytes, size, t->file, &t->map);
    weft_free(bytes);
    return status;
}

static weft_status read_unigram(weft_tokenizer *t, const json_t *json, const json_t *model)
{
    const json_t *vocabulary = json_object_get(model, "vocab"),
                 *space =
                     step_of(json_object_get(json, "pre_tokenizer"), "pretokenizers", "Metaspace");
    int64_t unknown;
    t->form = WEFT_TOKENIZER_UNIGRAM;
    if (!space)
        return refuse(t, "pre_tokenizer", type_of(json_object_get(json, "pre_tokenizer")));
    const char *scheme = json_string_value(json_object_get(space, "prepend_scheme"));
    const json_t *prefix = json_object_get(space, "add_prefix_space");
    t->dummy_prefix = !(scheme && !strcmp(scheme, "never")) && !json_is_false(prefix);
    if (scheme && !strcmp(scheme, "first"))
        return refuse(t, "prepend_scheme", scheme);
    WEFT_TRY(read_map(t, json_object_get(json, "normalizer")));
    WEFT_TRY(weft_json_get_i64(model, "unk_id", t->file, &unknown));
    t->unigram = (weft_unigram){.unknown = (int32_t)unknown,
                                .unknown_score = 1e30f,
                                .add_in_f64 = true,
                                .bytes = json_is_true(json_object_get(model, "byte_fallback"))};
    memset(t->unigram.byte_id, 0xff, sizeof t->unigram.byte_id);
    if (unknown < 0 || unknown >= (int64_t)json_array_size(vocabulary))
        return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                          WEFT_AT(.file = t->file, .key = "unk_id", WEFT_NUMBER(unknown)),
                          "%" PRId64 " is outside the vocabulary of %zu pieces", unknown,
                          json_array_size(vocabulary));
    for (size_t i = 0; i < json_array_size(vocabulary); i++) {
        const json_t *one = json_array_get(vocabulary, i), *text = json_array_get(one, 0);
        const float score = (float)json_number_value(json_array_get(one, 1));
        unsigned value;
        if (!json_is_string(text) || !json_is_number(json_array_get(one, 1)))
            return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                              WEFT_AT(.file = t->file, .key = "vocab", WEFT_NUMBER(i)),
                              "piece %zu is not a list of a text and a score", i);
        WEFT_TRY(weft_vocabulary_add(&t->vocabulary, (int32_t)i, json_string_value(text),
                                     (int)json_string_length(text), score));
        if (sscanf(json_string_value(text), "<0x%2X>", &value) == 1)
            t->unigram.byte_id[value & 255] = (int32_t)i;
        t->unigram.unknown_score =
            score < t->unigram.unknown_score ? score : t->unigram.unknown_score;
    }
    t->unigram.unknown_score -= 10;
    return WEFT_OK;
}

/* ---- byte pairs ----------------------------------------------------------------------------- */

static weft_status read_vocabulary(weft_tokenizer *t, const json_t *vocabulary)
{
    const char *piece;
    json_t *id;
    json_object_foreach((json_t *)vocabulary, piece, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > 1 << 24)
            return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                              WEFT_AT(.file = t->file, .key = "vocab", .value = piece),
                              "piece \"%.80s\" has no id", piece);
        WEFT_TRY(weft_vocabulary_add(&t->vocabulary, (int32_t)json_integer_value(id), piece,
                                     (int)strlen(piece), 0));
    }
    if (!json_object_size(vocabulary))
        return weft_error(WEFT_MSG_TOKENIZER_INVALID, WEFT_AT(.file = t->file, .key = "vocab"),
                          "the file has no vocabulary");
    return weft_vocabulary_index(&t->vocabulary);
}

static weft_status add_merge(weft_tokenizer *t, const char *left, int64_t left_bytes,
                             const char *right, int64_t right_bytes, int32_t rank)
{
    const weft_vocabulary *v = &t->vocabulary;
    weft_buf both = {0};
    weft_buf_append(&both, left, left_bytes);
    weft_buf_append(&both, right, right_bytes);
    const int32_t a = weft_vocabulary_find(v, left, left_bytes),
                  b = weft_vocabulary_find(v, right, right_bytes),
                  made = both.data ? weft_vocabulary_find(v, both.data, both.len) : -1;
    weft_buf_free(&both);
    if (a < 0 || b < 0 || made < 0)
        return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                          WEFT_AT(.file = t->file, .key = "merges", WEFT_NUMBER(rank + 1)),
                          "merge %d, \"%.*s %.*s\", has pieces that are not in the vocabulary",
                          rank + 1, (int)left_bytes, left, (int)right_bytes, right);
    weft_bpe_add(&t->bpe, a, b, rank, made);
    return WEFT_OK;
}

static weft_status read_merges(weft_tokenizer *t, const json_t *merges)
{
    WEFT_TRY(weft_bpe_reserve(&t->bpe, (int64_t)json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *one = json_array_get(merges, i);
        const char *left = json_string_value(json_is_array(one) ? json_array_get(one, 0) : one),
                   *right = json_string_value(json_array_get(one, 1));
        const char *blank = left && !right ? strchr(left, ' ') : NULL;
        if (!left || (!right && !blank))
            return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                              WEFT_AT(.file = t->file, .key = "merges", WEFT_NUMBER(i + 1)),
                              "merge %zu is not a pair", i + 1);
        const int64_t bytes = blank ? blank - left : (int64_t)strlen(left);
        right = blank ? blank + 1 : right;
        WEFT_TRY(add_merge(t, left, bytes, right, (int64_t)strlen(right), (int32_t)i));
    }
    return WEFT_OK;
}

static weft_status read_split(weft_tokenizer *t, const json_t *json)
{
    const json_t *split = step_of(json_object_get(json, "pre_tokenizer"), "pretokenizers", "Split");
    const char *pattern =
        json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    const json_t *normaliser = json_object_get(json, "normalizer");
    t->form = WEFT_TOKENIZER_BYTES;
    t->compose = step_of(normaliser, "normalizers", "NFC") != NULL;
    if (!pattern)
        return refuse(t, "pre_tokenizer", type_of(json_object_get(json, "pre_tokenizer")));
    if (!strcmp(pattern, clip_pattern))
        t->form = WEFT_TOKENIZER_CLIP;
    else if (!strcmp(pattern, bytes_pattern[0]) || !strcmp(pattern, bytes_pattern[1]))
        t->digits = strcmp(pattern, bytes_pattern[0]) ? 1 : 3;
    else if (!strcmp(pattern, cases_pattern))
        t->digits = t->cases = true;
    else
        return refuse(t, "pre_tokenizer", pattern);
    if (t->form == WEFT_TOKENIZER_BYTES && json_is_object(normaliser) && !t->compose)
        return refuse(t, "normalizer", type_of(normaliser));
    return WEFT_OK;
}

static weft_status read_pairs(weft_tokenizer *t, const json_t *json, const json_t *model)
{
    const char *suffix = json_string_value(json_object_get(model, "end_of_word_suffix")),
               *unknown = json_string_value(json_object_get(model, "unk_token"));
    WEFT_TRY(read_split(t, json));
    if (suffix && suffix[0] && strcmp(suffix, "</w>"))
        return refuse(t, "end_of_word_suffix", suffix);
    t->bpe.suffix = suffix && suffix[0] ? "</w>" : "";
    t->bpe.whole_first = json_is_true(json_object_get(model, "ignore_merges"));
    WEFT_TRY(read_vocabulary(t, json_object_get(model, "vocab")));
    t->bpe.unknown =
        unknown ? weft_vocabulary_find(&t->vocabulary, unknown, (int64_t)strlen(unknown)) : -1;
    return read_merges(t, json_object_get(model, "merges"));
}

/* ---- Gemma's pieces ------------------------------------------------------------------------- */

/* Whether blanks become bars before a text is split, as in Gemma's files. */
static bool has_bars(const json_t *json)
{
    const json_t *normaliser = json_object_get(json, "normalizer");
    const char *made = json_string_value(json_object_get(normaliser, "content")),
               *blank = json_string_value(
                   json_object_get(json_object_get(normaliser, "pattern"), "String"));
    return !strcmp(type_of(normaliser), "Replace") && made && blank &&
           !strcmp(made, "\xe2\x96\x81") && !strcmp(blank, " ");
}

static weft_status read_pieces(weft_tokenizer *t, const json_t *json, const json_t *model)
{
    const json_t *splits = json_object_get(json, "pre_tokenizer");
    const char *blank =
        json_string_value(json_object_get(json_object_get(splits, "pattern"), "String"));
    t->form = WEFT_TOKENIZER_GEMMA;
    /* a split at blanks finds none: they are bars */
    if (json_is_object(splits) && (strcmp(type_of(splits), "Split") || !blank || *blank != ' '))
        return refuse(t, "pre_tokenizer", type_of(splits));
    if (!json_is_true(json_object_get(model, "byte_fallback")))
        return refuse(t, "byte_fallback", "false");
    WEFT_TRY(read_vocabulary(t, json_object_get(model, "vocab")));
    t->bpe.characters = true;
    t->bpe.whole_first = json_is_true(json_object_get(model, "ignore_merges"));
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        t->bpe.byte_id[i] = weft_vocabulary_find(&t->vocabulary, name, 6);
        if (t->bpe.byte_id[i] < 0)
            return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                              WEFT_AT(.file = t->file, .key = "vocab", .value = name),
                              "the vocabulary has no token %s for a byte", name);
    }
    return read_merges(t, json_object_get(model, "merges"));
}

/* ---- BERT's words --------------------------------------------------------------------------- */

static weft_status read_words(weft_tokenizer *t, const json_t *json, const json_t *model)
{
    const json_t *normaliser = json_object_get(json, "normalizer"),
                 *strip = json_object_get(normaliser, "strip_accents");
    const char *unknown = json_string_value(json_object_get(model, "unk_token")),
               *prefix = json_string_value(json_object_get(model, "continuing_subword_prefix"));
    const char *splits = type_of(json_object_get(json, "pre_tokenizer"));
    t->form = WEFT_TOKENIZER_WORDS;
    if (strcmp(type_of(normaliser), "BertNormalizer"))
        return refuse(t, "normalizer", type_of(normaliser));
    if (strcmp(splits, "BertPreTokenizer"))
        return refuse(t, "pre_tokenizer", splits);
    if (!prefix || strcmp(prefix, "##"))
        return refuse(t, "continuing_subword_prefix", prefix ? prefix : "");
    t->lower = !json_is_false(json_object_get(normaliser, "lowercase"));
    t->strip = json_is_boolean(strip) ? json_is_true(strip) : t->lower;
    t->chinese = !json_is_false(json_object_get(normaliser, "handle_chinese_chars"));
    WEFT_TRY(read_vocabulary(t, json_object_get(model, "vocab")));
    t->bpe.unknown =
        unknown ? weft_vocabulary_find(&t->vocabulary, unknown, (int64_t)strlen(unknown)) : -1;
    return t->bpe.unknown >= 0
               ? WEFT_OK
               : weft_error(WEFT_MSG_TOKENIZER_INVALID,
                            WEFT_AT(.file = t->file, .key = "unk_token", .value = unknown),
                            "the token for unknown words is missing");
}

weft_status weft_tokenizer_read_json(weft_tokenizer *t)
{
    json_t *json;
    WEFT_TRY(weft_json_load(t->file, &json));
    const json_t *model = json_object_get(json, "model");
    const char *type = type_of(model);
    weft_status_code status;
    if (!strcmp(type, "Unigram"))
        WEFT_GO(read_unigram(t, json, model));
    else if (!strcmp(type, "WordPiece"))
        WEFT_GO(read_words(t, json, model));
    else if (!strcmp(type, "BPE") && has_bars(json))
        WEFT_GO(read_pieces(t, json, model));
    else if (!strcmp(type, "BPE") || json_object_get(model, "merges"))
        WEFT_GO(read_pairs(t, json, model));
    else
        WEFT_GO(type[0] ? refuse(t, "model", type)
                        : weft_error(WEFT_MSG_TOKENIZER_INVALID,
                                     WEFT_AT(.file = t->file, .key = "model"),
                                     "the file has no model of a tokenizer"));
    WEFT_GO(check_forms(t, json));
    WEFT_GO(read_added(t, json_object_get(json, "added_tokens")));
    WEFT_GO(read_around(t, json_object_get(json, "post_processor")));
    WEFT_GO(weft_vocabulary_index(&t->vocabulary));
out:
    json_decref(json);
    return status;
}

/* ---- two files ------------------------------------------------------------------------------ */

static weft_status read_lines(weft_tokenizer *t, const char *path, char *text)
{
    int64_t lines = 0;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    WEFT_TRY(weft_bpe_reserve(&t->bpe, lines + 1));
    int32_t rank = 0;
    for (char *line = text, *next; *line; line = next) {
        const size_t length = strcspn(line, "\n");
        next = line + length + (line[length] != 0);
        line[length] = 0;
        line[strcspn(line, "\r")] = 0;
        char *blank = strchr(line, ' ');
        if (!line[0] || !strncmp(line, "#version", 8))
            continue;
        if (!blank)
            return weft_error(WEFT_MSG_TOKENIZER_INVALID, WEFT_AT(.file = path, .value = line),
                              "the line \"%.80s\" is not a pair", line);
        WEFT_TRY(add_merge(t, line, blank - line, blank + 1, (int64_t)strlen(blank + 1), rank++));
    }
    return WEFT_OK;
}

/* Reads the vocabulary in vocab.json and the merges in merges.txt. */
static weft_status read_two_files(weft_tokenizer *t, const char *folder)
{
    json_t *json = NULL;
    char *path = weft_path_join(folder, "merges.txt"), *text = NULL;
    int64_t bytes;
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_json_load(t->file, &json));
    WEFT_GO(read_vocabulary(t, json));
    WEFT_GO(weft_file_read(path, 1 << 28, &text, &bytes));
    WEFT_GO(read_lines(t, path, text));
out:
    json_decref(json);
    weft_free(path);
    weft_free(text);
    return status;
}

weft_status weft_tokenizer_read_clip(weft_tokenizer *t, const char *folder)
{
    static const char *const names[2] = {"<|startoftext|>", "<|endoftext|>"};
    WEFT_TRY(read_two_files(t, folder));
    t->form = WEFT_TOKENIZER_CLIP;
    t->bpe.suffix = "</w>";
    for (int i = 0; i < 2; i++) {
        const int32_t id =
            weft_vocabulary_find(&t->vocabulary, names[i], (int64_t)strlen(names[i]));
        if (id < 0)
            return weft_error(WEFT_MSG_TEXT_ENCODER_UNSUPPORTED,
                              WEFT_AT(.file = t->file, .value = names[i]),
                              "the vocabulary has no \"%s\", so it is not CLIP's; give the "
                              "model's tokenizer.json",
                              names[i]);
        if (i == 0)
            t->front[t->fronts++] = id;
        else
            t->back[t->backs++] = id;
        t->bpe.unknown = id;
        WEFT_TRY(weft_tokenizer_add(t, names[i], id));
    }
    return WEFT_OK;
}

/* The tokens of an object from ids to tokens, as a list with "id" (new). */
static weft_status list_added(const weft_tokenizer *t, const json_t *by_id, json_t **list)
{
    const char *number;
    json_t *one;
    *list = json_array();
    WEFT_TRY(WEFT_ALLOCATED(*list, "%s", t->file));
    json_object_foreach((json_t *)by_id, number, one)
    {
        json_t *own = json_copy(one);
        char *end;
        const long id = strtol(number, &end, 10);
        if (json_object_set_new(own, "id", json_integer(*end ? -1 : id)) ||
            json_array_append(*list, own)) {
            json_decref(own);
            return weft_no_memory("%s", t->file);
        }
        json_decref(own);
    }
    return WEFT_OK;
}

weft_status weft_tokenizer_read_qwen(weft_tokenizer *t, const char *folder, const json_t *config)
{
    const json_t *added = json_object_get(config, "added_tokens_decoder");
    json_t *list = NULL;
    if (!json_is_object(added))
        return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                          WEFT_AT(.file = t->file, .key = "added_tokens_decoder"),
                          "tokenizer_config.json next to this file does not have the special "
                          "tokens; download the folder again");
    WEFT_TRY(read_two_files(t, folder));
    t->form = WEFT_TOKENIZER_BYTES;
    t->digits = 1;
    t->compose = true;
    weft_status_code status = WEFT_OK;
    WEFT_GO(list_added(t, added, &list));
    WEFT_GO(read_added(t, list));
    WEFT_GO(weft_vocabulary_index(&t->vocabulary));
out:
    json_decref(list);
    return status;
}
