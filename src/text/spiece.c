/* SentencePiece's model file: a protocol buffer.
 *
 *   ModelProto { 1: piece*, 2: trainer { 3: kind, 35: byte fallback },
 *                3: normaliser { 2: map of characters, 3: dummy prefix, 4: remove spaces,
 *                                5: escape spaces } }
 *   piece { 1: text, 2: score (f32), 3: type } */
#include "text/spiece.h"

#include "base/fs.h"
#include "text/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { KIND_UNIGRAM = 1 };

typedef struct field {
    int64_t number;
    uint64_t value;            /* value of a number field */
    const unsigned char *data; /* content of a bytes field */
    int64_t size;
} field;

static bool read_number(const unsigned char **at, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        const unsigned char c = *(*at)++;
        *value |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return true;
    }
    return false;
}

/* False at the end, or with *bad where a field does not fit. */
static bool next_field(const unsigned char **at, const unsigned char *end, field *f, bool *bad)
{
    uint64_t key;
    if (*at == end)
        return false;
    *bad = true;
    if (!read_number(at, end, &key))
        return false;
    *f = (field){.number = (int64_t)(key >> 3)};
    switch (key & 7) {
    case 0:
        if (!read_number(at, end, &f->value))
            return false;
        break;
    case 2:
        if (!read_number(at, end, &f->value))
            return false;
        f->size = (int64_t)f->value;
        break;
    case 1: f->size = 8; break;
    case 5: f->size = 4; break;
    default: return false;
    }
    if (f->size < 0 || f->size > end - *at)
        return false;
    f->data = *at;
    *at += f->size;
    *bad = false;
    return true;
}

static weft_status damaged(const weft_tokenizer *t)
{
    return weft_error(
        WEFT_MSG_TOKENIZER_INVALID, WEFT_AT(.file = t->file),
        "the file is not a SentencePiece model, or it is truncated; download it again");
}

static weft_status read_piece(weft_tokenizer *t, const field *whole, int32_t id)
{
    const unsigned char *at = whole->data, *end = at + whole->size;
    field f, text = {0};
    float score = 0;
    uint64_t type = NORMAL;
    bool bad = false;
    while (next_field(&at, end, &f, &bad)) {
        if (f.number == 1)
            text = f;
        else if (f.number == 2 && f.size == 4)
            memcpy(&score, f.data, 4);
        else if (f.number == 3)
            type = f.value;
    }
    if (bad || !text.data || text.size > 1 << 16)
        return damaged(t);
    weft_vocabulary *v = &t->vocabulary;
    WEFT_TRY(weft_vocabulary_add(v, id, (const char *)text.data, (int)text.size, score));
    v->matches[id] = type == NORMAL || type == USER_DEFINED;
    v->whole[id] = type == USER_DEFINED;
    unsigned value;
    if (type == UNKNOWN)
        t->unigram.unknown = id;
    if (type == BYTE && sscanf(v->piece[id], "<0x%2X>", &value) == 1)
        t->unigram.byte_id[value & 255] = id;
    if (type == CONTROL && !strcmp(v->piece[id], "</s>") && !t->backs)
        t->back[t->backs++] = id;
    if (type != NORMAL)
        return WEFT_OK;
    t->unigram.best_score = score > t->unigram.best_score ? score : t->unigram.best_score;
    t->unigram.unknown_score = score < t->unigram.unknown_score ? score : t->unigram.unknown_score;
    return WEFT_OK;
}

static weft_status read_trainer(weft_tokenizer *t, const field *whole)
{
    const unsigned char *at = whole->data, *end = at + whole->size;
    field f;
    uint64_t kind = KIND_UNIGRAM, suffix = 0;
    bool bad = false;
    while (next_field(&at, end, &f, &bad)) {
        kind = f.number == 3 ? f.value : kind;
        suffix = f.number == 24 ? f.value : suffix;
        if (f.number == 35)
            t->unigram.bytes = f.value != 0;
    }
    if (bad)
        return damaged(t);
    if (kind != KIND_UNIGRAM || suffix)
        return weft_error(WEFT_MSG_TEXT_ENCODER_UNSUPPORTED,
                          WEFT_AT(.file = t->file, .key = "model_type", WEFT_NUMBER(kind)),
                          "SentencePiece models of kind %" PRIu64
                          "%s are not supported; only unigram models are",
                          kind, suffix ? " with white space as suffix" : "");
    return WEFT_OK;
}

static weft_status read_normaliser(weft_tokenizer *t, const field *whole)
{
    const unsigned char *at = whole->data, *end = at + whole->size;
    field f, map = {0};
    bool bad = false;
    while (next_field(&at, end, &f, &bad)) {
        if (f.number == 2)
            map = f;
        else if (f.number == 3)
            t->dummy_prefix = f.value != 0;
        else if (f.number == 4)
            t->remove_spaces = f.value != 0;
        else if (f.number == 5)
            t->escape_spaces = f.value != 0;
    }
    if (bad)
        return damaged(t);
    weft_charsmap_free(&t->map);
    return weft_charsmap_read(map.data, map.size, t->file, &t->map);
}

static weft_status read_model(weft_tokenizer *t, const unsigned char *at, int64_t bytes)
{
    const unsigned char *end = at + bytes;
    field f;
    int32_t pieces = 0;
    bool bad = false;
    while (next_field(&at, end, &f, &bad)) {
        if (f.number == 1)
            WEFT_TRY(read_piece(t, &f, pieces++));
        else if (f.number == 2)
            WEFT_TRY(read_trainer(t, &f));
        else if (f.number == 3)
            WEFT_TRY(read_normaliser(t, &f));
    }
    if (bad || !pieces || t->unigram.unknown < 0 || !(t->unigram.unknown_score < 1e30f))
        return damaged(t);
    t->unigram.unknown_score -= 10;
    return weft_vocabulary_index(&t->vocabulary);
}

weft_status weft_tokenizer_read_spiece(weft_tokenizer *t)
{
    char *data;
    int64_t bytes;
    WEFT_TRY(weft_file_read(t->file, 1 << 28, &data, &bytes));
    t->form = WEFT_TOKENIZER_SPIECE;
    t->dummy_prefix = t->remove_spaces = t->escape_spaces = true;
    t->unigram = (weft_unigram){.unknown = -1, .unknown_score = 1e30f, .best_score = -1e30f};
    memset(t->unigram.byte_id, 0xff, sizeof t->unigram.byte_id);
    const weft_status_code status = read_model(t, (const unsigned char *)data, bytes);
    weft_free(data);
    return status;
}
