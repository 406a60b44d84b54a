/* JSON files of a storage. */
#ifndef WEFT_STORAGE_STORAGE_JSON_H
#define WEFT_STORAGE_STORAGE_JSON_H

#include "base/json.h"
#include "storage/storage.h"

/* The caller owns *json. WEFT_E_NOT_FOUND: no such file. Messages name the file with the path of
 * the storage. */
weft_status weft_storage_json_load(weft_storage *storage, const char *name, json_t **json);
/* Reads without the cache of the machine, for a file that changes often. */
weft_status weft_storage_json_load_uncached(weft_storage *storage, const char *name, json_t **json);
/* Atomic; indent 1, keys in insertion order, newline at the end. */
weft_status weft_storage_json_save(weft_storage *storage, const char *name, const json_t *json);

#endif
