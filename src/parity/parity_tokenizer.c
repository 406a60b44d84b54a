/* weft parity of tokenizers: compares the ids of every string with every tokenizer file that the
 * golden file names, and the cleaned prompts. */
#include "parity/parity_tokenizer.h"

#include "base/fs.h"
#include "parity/parity.h"
#include "text/clean.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

static bool is_tokenizer(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && !strcmp(name, "tokenizer golden");
}

static void compare_ids(weft_parity *p, const char *key, const char *text, const json_t *expected,
                        const int32_t *id, int64_t count)
{
    bool same = (int64_t)json_array_size(expected) == count;
    for (int64_t i = 0; i < count && same; i++)
        same = json_integer_value(json_array_get(expected, (size_t)i)) == id[i];
    weft_parity_count(p, key, !same);
    if (same && !p->verbose)
        return;
    weft_parity_say(p, "  %-18s \"%.60s\"%s", key, text, same ? "" : "  FAIL");
    if (same)
        return;
    weft_buf theirs = {0}, ours = {0};
    for (size_t i = 0; i < json_array_size(expected); i++)
        weft_buf_printf(&theirs, " %" JSON_INTEGER_FORMAT,
                        json_integer_value(json_array_get(expected, i)));
    for (int64_t i = 0; i < count; i++)
        weft_buf_printf(&ours, " %d", id[i]);
    weft_parity_say(p, "    theirs%s\n    ours  %s", theirs.data ? theirs.data : "",
                    ours.data ? ours.data : "");
    weft_buf_free(&theirs);
    weft_buf_free(&ours);
}

static weft_status compare_text(weft_parity *p, const weft_tokenizer *t, const char *key,
                                const json_t *input, const json_t *expected, int64_t most, bool pad)
{
    const char *text = json_string_value(input);
    int32_t *id;
    int64_t count;
    WEFT_TRY(weft_tokenizer_encode(t, text, (int64_t)json_string_length(input), most, &id, &count,
                                   NULL));
    if (pad && count && most >= count) { /* CLIP pads with its end token */
        int32_t *padded = weft_realloc(id, most * (int64_t)sizeof *id);
        if (!padded) {
            weft_free(id);
            return weft_no_memory("%" PRId64 " tokens", most);
        }
        id = padded;
        for (const int32_t end = id[count - 1]; count < most;)
            id[count++] = end;
    }
    compare_ids(p, key, text, expected, id, count);
    weft_free(id);
    return WEFT_OK;
}

/* Compares a cleaned prompt (CLIP as OpenAI published it). */
static weft_status compare_cleaned(weft_parity *p, const weft_tokenizer *t, const json_t *input,
                                   const json_t *expected)
{
    weft_buf clean = {0};
    json_t *text = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_text_clean_prompt(json_string_value(input), (int64_t)json_string_length(input),
                                   true, &clean));
    text = json_stringn(clean.data ? clean.data : "", (size_t)clean.len);
    WEFT_GO(WEFT_ALLOCATED(text, "the comparison"));
    WEFT_GO(compare_text(p, t, "ids_openai", text, expected, 0, false));
out:
    json_decref(text);
    weft_buf_free(&clean);
    return status;
}

/* The lists of a case that this file's tokenizer makes: SentencePiece's, or "ids",
 * "ids_tokenizer_json", "ids_openai", "truncated_N" and "padded_N". */
static weft_status compare_case(weft_parity *p, const weft_tokenizer *t, bool spiece,
                                const json_t *one)
{
    const json_t *text = json_object_get(one, "text");
    const char *key;
    json_t *value;
    if (!json_is_string(text))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->config_file, .key = "text"),
                          "a case has no text");
    json_object_foreach((json_t *)one, key, value)
    {
        int64_t most = 0;
        const bool pad = sscanf(key, "padded_%" SCNd64, &most) == 1;
        if (!json_is_array(value) || spiece != !strcmp(key, "ids_sentencepiece"))
            continue;
        if (!strcmp(key, "ids_openai")) {
            WEFT_TRY(compare_cleaned(p, t, text, value));
            continue;
        }
        if (!pad && sscanf(key, "truncated_%" SCNd64, &most) != 1)
            most = 0;
        WEFT_TRY(compare_text(p, t, key, text, value, most, pad));
    }
    return WEFT_OK;
}

static weft_status compare_file(weft_parity *p, const char *path)
{
    weft_tokenizer *t;
    const bool spiece = !strcmp(weft_path_extension(path), "model");
    const json_t *cases = json_object_get(p->json, "cases");
    const int before = p->record.compared, failures = p->record.failures;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_tokenizer_open(path, &t));
    for (size_t i = 0; i < json_array_size(cases); i++)
        WEFT_GO(compare_case(p, t, spiece, json_array_get(cases, i)));
out:
    weft_parity_say(p, "%s: %d texts, %d differ", path, p->record.compared - before,
                    p->record.failures - failures);
    weft_tokenizer_close(t);
    return status;
}

static weft_status compare_tokenizer(weft_parity *p)
{
    const json_t *files = json_object_get(p->json, "files");
    const char *slash = strrchr(p->config_file, '/');
    if (!json_array_size(files))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->config_file, .key = "files"),
                          "the list of the tokenizer's files is missing or empty");
    for (size_t i = 0; i < json_array_size(files); i++) {
        char path[2048];
        const char *file = json_string_value(json_array_get(files, i));
        if (!file || !strcmp(weft_path_base(file), "merges.txt"))
            continue; /* is read with its companion file */
        snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - p->config_file) : 0,
                 p->config_file, file);
        WEFT_TRY(compare_file(p, path));
    }
    return p->record.compared ? WEFT_OK
                              : weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->config_file),
                                           "no case has ids for one of the tokenizer's files");
}

const weft_parity_kind weft_parity_tokenizer = {"tokenizer", is_tokenizer, compare_tokenizer,
                                                .alone = true};

/* ---- cleaning ------------------------------------------------------------------------------- */

static bool is_cleaning(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && !strcmp(name, "prompt cleaning golden");
}

static weft_status compare_clean(weft_parity *p, const char *key, const json_t *one, bool repair)
{
    const json_t *text = json_object_get(one, "text"), *expected = json_object_get(one, key);
    weft_buf clean = {0};
    if (!json_is_string(text))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->config_file, .key = "text"),
                          "a case has no text");
    if (!json_is_string(expected))
        return WEFT_OK;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_text_clean_prompt(json_string_value(text), (int64_t)json_string_length(text),
                                   repair, &clean));
    const bool same =
        clean.len == (int64_t)json_string_length(expected) &&
        !memcmp(clean.data ? clean.data : "", json_string_value(expected), (size_t)clean.len);
    weft_parity_count(p, key, !same);
    if (!same || p->verbose)
        weft_parity_say(p, "  %-26s \"%.60s\"%s", key, json_string_value(text),
                        same ? "" : "  FAIL");
    if (!same)
        weft_parity_say(p, "    theirs \"%s\"\n    ours   \"%s\"", json_string_value(expected),
                        clean.data ? clean.data : "");
out:
    weft_buf_free(&clean);
    return status;
}

static weft_status compare_cleaning(weft_parity *p)
{
    const json_t *cases = json_object_get(p->json, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        WEFT_TRY(compare_clean(p, "prompt_clean", one, true));
        WEFT_TRY(compare_clean(p, "prompt_clean_without_ftfy", one, false));
    }
    return p->record.compared ? WEFT_OK
                              : weft_error(WEFT_MSG_FORMAT_DAMAGED,
                                           WEFT_AT(.file = p->config_file, .key = "cases"),
                                           "the list of cases is missing or empty");
}

const weft_parity_kind weft_parity_cleaning = {"prompt cleaning", is_cleaning, compare_cleaning,
                                               .alone = true};
