#include "train/checkpoint/run_file.h"

#include "base/fs.h"
#include "base/hex.h"
#include "plan/plan_checksum.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 600 };

static weft_status path_of(const char *out, const weft_run_file *file, char path[PATH_BYTES])
{
    return snprintf(path, PATH_BYTES, "%s/%s", out, file->name) < PATH_BYTES
               ? WEFT_OK
               : weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = out),
                            "the path is longer than 570 bytes");
}

weft_status weft_run_file_load(const char *out, const weft_run_file *file,
                               weft_run_file_reader *read, void *to)
{
    char path[PATH_BYTES];
    json_t *json = NULL;
    WEFT_TRY(path_of(out, file, path));
    if (!weft_path_exists(path))
        return WEFT_OK;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_json_load(path, &json));
    WEFT_GO(weft_plan_verify_checksum(json, file->format, path));
    WEFT_GO(read(json, path, to));
out:
    json_decref(json);
    return weft_error_add(weft_error_at(status, WEFT_AT(.file = path)), "%s", file->remedy);
}

weft_status weft_run_file_save(const char *out, const weft_run_file *file, json_t *json)
{
    char path[PATH_BYTES];
    WEFT_TRY(path_of(out, file, path));
    WEFT_TRY(weft_plan_add_checksum(json, file->format));
    return weft_json_save(path, json);
}

json_t *weft_hash_text(uint64_t hash)
{
    char text[WEFT_HEX_BYTES];
    return json_string(weft_hex_print(hash, text));
}

bool weft_hash_parse(const json_t *text, uint64_t *hash)
{
    return weft_hex_parse(json_string_value(text), hash);
}
