/* weft parity of tokenizers: ids of every string, by every file that the golden file names. */
#include "base/fs.h"
#include "cli/parity.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

static bool is_tokenizer(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && !strcmp(name, "tokenizer golden");
}

static void judge_ids(weft_parity *p, const char *key, const char *text, const json_t *expected,
                      const int32_t *id, int64_t count)
{
    bool same = (int64_t)json_array_size(expected) == count;
    for (int64_t i = 0; i < count && same; i++)
        same = json_integer_value(json_array_get(expected, (size_t)i)) == id[i];
    p->compared++;
    p->failures += !same;
    if (same && !p->verbose)
        return;
    printf("  %-18s \"%.60s\"%s\n", key, text, same ? "" : "  FAIL");
    if (same)
        return;
    printf("    theirs");
    for (size_t i = 0; i < json_array_size(expected); i++)
        printf(" %lld", (long long)json_integer_value(json_array_get(expected, i)));
    printf("\n    ours  ");
    for (int64_t i = 0; i < count; i++)
        printf(" %d", id[i]);
    printf("\n");
}

static weft_status compare_text(weft_parity *p, const weft_tokenizer *t, const char *key,
                                const json_t *given, const json_t *expected, int64_t most, bool pad)
{
    const char *text = json_string_value(given);
    int32_t *id;
    int64_t count;
    WEFT_TRY(weft_tokenizer_encode(t, text, (int64_t)json_string_length(given), most, &id, &count,
                                   NULL));
    if (pad && count && most >= count) { /* CLIP pads with its end token */
        int32_t *padded = weft_realloc(id, most * (int64_t)sizeof *id);
        if (!padded) {
            weft_free(id);
            return weft_fail(WEFT_E_MEMORY, "out of memory for %lld tokens", (long long)most);
        }
        id = padded;
        for (const int32_t end = id[count - 1]; count < most;)
            id[count++] = end;
    }
    judge_ids(p, key, text, expected, id, count);
    weft_free(id);
    return WEFT_OK;
}

/* The lists of a case that this file's tokenizer makes: SentencePiece's, or "ids",
 * "ids_tokenizer_json", "truncated_N" and "padded_N". What a cleaned prompt gives
 * ("ids_openai") is of the cleaning. */
static weft_status compare_case(weft_parity *p, const weft_tokenizer *t, bool spiece,
                                const json_t *one)
{
    const json_t *text = json_object_get(one, "text");
    const char *key;
    json_t *value;
    if (!json_is_string(text))
        return weft_fail(WEFT_E_FORMAT, "%s: a case without \"text\"", p->config_file);
    json_object_foreach((json_t *)one, key, value)
    {
        long long most = 0;
        const bool pad = sscanf(key, "padded_%lld", &most) == 1;
        if (!json_is_array(value) || !strcmp(key, "ids_openai") ||
            spiece != !strcmp(key, "ids_sentencepiece"))
            continue;
        if (!pad && sscanf(key, "truncated_%lld", &most) != 1)
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
    WEFT_TRY(weft_tokenizer_open(path, &t));
    weft_status_code status = WEFT_OK;
    const int before = p->compared, failures = p->failures;
    for (size_t i = 0; i < json_array_size(cases) && status == WEFT_OK; i++)
        status = compare_case(p, t, spiece, json_array_get(cases, i));
    printf("%s: %d texts, %d differ\n", path, p->compared - before, p->failures - failures);
    weft_tokenizer_close(t);
    return status;
}

static weft_status compare_tokenizer(weft_parity *p)
{
    const json_t *files = json_object_get(p->json, "files");
    const char *slash = strrchr(p->config_file, '/');
    if (!json_array_size(files))
        return weft_fail(WEFT_E_FORMAT, "%s: no \"files\" of a tokenizer", p->config_file);
    for (size_t i = 0; i < json_array_size(files); i++) {
        char path[2048];
        const char *file = json_string_value(json_array_get(files, i));
        if (!file || !strcmp(weft_path_extension(file), "txt"))
            continue; /* is read with the file beside it */
        snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - p->config_file) : 0,
                 p->config_file, file);
        WEFT_TRY(compare_file(p, path));
    }
    return p->compared ? WEFT_OK
                       : weft_fail(WEFT_E_FORMAT, "%s: no case that its files tell the ids of",
                                   p->config_file);
}

const weft_parity_kind weft_parity_tokenizer = {"tokenizer", is_tokenizer, compare_tokenizer,
                                                .alone = true};
