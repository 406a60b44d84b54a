#include "text/byte_tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Ids: padding, end and unknown, then the bytes, then the special tokens of the config. */
enum { END = 1, FIRST_BYTE = 3, AFTER_BYTES = FIRST_BYTE + 256, MAX_ID = 1 << 24 };

bool weft_tokenizer_is_byt5(const char *path)
{
    json_t *json = NULL;
    if (weft_tokenizer_load_config(path, &json) != WEFT_OK) {
        weft_error_clear();
        return false;
    }
    const char *name = json_string_value(json_object_get(json, "tokenizer_class"));
    const bool is = name && !strcmp(name, "ByT5Tokenizer");
    json_decref(json);
    return is;
}

static weft_status add_special(weft_tokenizer *t, const char *key, const json_t *token)
{
    const char *text;
    char *end;
    const long id = strtol(key, &end, 10);
    WEFT_TRY(weft_json_get_string(token, "content", t->file, &text));
    if (*end || id < 0 || id > MAX_ID || (id >= FIRST_BYTE && id < AFTER_BYTES))
        return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                          WEFT_AT(.file = t->file, .key = "added_tokens_decoder", .value = key),
                          "the token \"%.80s\" has the id %.20s, which is not free", text, key);
    WEFT_TRY(weft_tokenizer_add(t, text, (int32_t)id));
    t->added[t->added_count - 1].strips = json_is_true(json_object_get(token, "lstrip")) &&
                                          json_is_true(json_object_get(token, "rstrip"));
    return WEFT_OK;
}

weft_status weft_tokenizer_read_byt5(weft_tokenizer *t)
{
    json_t *json = NULL;
    const char *key;
    json_t *token;
    WEFT_TRY(weft_tokenizer_load_config(t->file, &json));
    weft_status_code status = WEFT_OK;
    for (int byte = 0; byte < 256; byte++)
        WEFT_GO(weft_vocabulary_add(&t->vocabulary, FIRST_BYTE + byte, &(char){(char)byte}, 1, 0));
    json_object_foreach(json_object_get(json, "added_tokens_decoder"), key, token)
    {
        WEFT_GO(add_special(t, key, token));
    }
    t->form = WEFT_TOKENIZER_BYT5;
    t->back[t->backs++] = END;
out:
    json_decref(json);
    return status;
}

weft_status weft_byt5_cut(const char *text, int64_t length, weft_ids *out)
{
    for (int64_t i = 0; i < length; i++)
        WEFT_TRY(weft_ids_add(out, FIRST_BYTE + (unsigned char)text[i]));
    return WEFT_OK;
}
