#include "plan/plan_checksum.h"

#include "base/hex.h"
#include "base/id_hash.h"

#include <stdlib.h>
#include <string.h>

/* Hashes all members except "id", in the order of their names. */
static weft_status hash_of(const json_t *plan, char text[20])
{
    json_t *copy = json_copy((json_t *)plan);
    json_object_del(copy, "id");
    char *line =
        copy ? json_dumps(copy, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(copy);
    WEFT_TRY(WEFT_ALLOCATED(line, "a plan's id"));
    weft_hex_print(weft_id_mix(WEFT_ID_BEGIN, line, strlen(line)), text);
    free(line);
    return WEFT_OK;
}

weft_status weft_plan_add_checksum(json_t *plan, const char *format)
{
    char id[20];
    if (json_object_set_new(plan, "format", json_string(format)) ||
        json_object_set_new(plan, "weft", json_string(WEFT_VERSION)))
        return weft_no_memory("a plan");
    WEFT_TRY(hash_of(plan, id));
    return json_object_set_new(plan, "id", json_string(id)) ? weft_no_memory("a plan") : WEFT_OK;
}

weft_status weft_plan_verify_checksum(const json_t *plan, const char *format, const char *where)
{
    const char *has, *id;
    char own[20];
    WEFT_TRY(weft_json_get_string_or(plan, "format", where, "", &has));
    if (strcmp(has, format))
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = where, .key = "format", .value = has),
                          "the format is \"%.40s\", not \"%s\"; plan again with this version (%s)",
                          has, format, WEFT_VERSION);
    WEFT_TRY(weft_json_get_string_or(plan, "id", where, "", &id));
    WEFT_TRY(hash_of(plan, own));
    if (strcmp(id, own))
        return weft_error(
            WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where, .key = "id", .value = id),
            "the plan was edited: its id is %.20s, the id of its content %s; plan again instead",
            id[0] ? id : "missing", own);
    return WEFT_OK;
}
