#include "storage/storage_json.h"

#include <stdlib.h>
#include <string.h>

static weft_status load(weft_storage *storage, const char *name, bool cached, json_t **json)
{
    weft_storage_facts facts;
    char *text = NULL, *path = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_storage_facts_of(storage, name, &facts));
    WEFT_GO(WEFT_NEW(text, facts.bytes + 1, "%s", name));
    path = weft_path_join(weft_storage_root(storage), name);
    WEFT_GO(WEFT_ALLOCATED(path, "%s", name));
    WEFT_GO(cached ? weft_storage_read(storage, name, 0, facts.bytes, text)
                   : weft_storage_read_uncached(storage, name, 0, facts.bytes, text));
    status = weft_json_parse(text, facts.bytes, path, json);
out:
    weft_free(path);
    weft_free(text);
    return status;
}

weft_status weft_storage_json_load(weft_storage *storage, const char *name, json_t **json)
{
    return load(storage, name, true, json);
}

weft_status weft_storage_json_load_uncached(weft_storage *storage, const char *name, json_t **json)
{
    return load(storage, name, false, json);
}

weft_status weft_storage_json_save(weft_storage *storage, const char *name, const json_t *json)
{
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    WEFT_TRY(WEFT_ALLOCATED(text, "%s", name));
    const size_t len = strlen(text);
    text[len] = '\n'; /* over the NUL: the length is passed on */
    const weft_status_code status = weft_storage_put(storage, name, text, (int64_t)len + 1);
    free(text);
    return status;
}
