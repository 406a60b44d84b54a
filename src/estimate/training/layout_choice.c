#include "estimate/training/layout_choice.h"

#include "base/config_text.h"
#include "base/id_hash.h"
#include "estimate/training/layout_file.h"
#include "train/checkpoint/run_file.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *key;
    size_t offset;
} overlap_keys[] = {{"time", offsetof(weft_comm_overlap, time)},
                    {"space", offsetof(weft_comm_overlap, space)},
                    {"lift_time", offsetof(weft_comm_overlap, lift_time)},
                    {"lift_space", offsetof(weft_comm_overlap, lift_space)},
                    {"heads", offsetof(weft_comm_overlap, heads)},
                    {"chunks", offsetof(weft_comm_overlap, chunks)}};

static const weft_run_file choice_file = {
    .name = "layout-choice.json",
    .format = WEFT_LAYOUT_CHOICE_FORMAT,
    .remedy = "Remove the file, and the run chooses its layout again"};

/* ---- inputs --------------------------------------------------------------------------------- */

weft_status weft_settled_inputs(const weft_run *run, const weft_run_models *models, int ranks,
                                uint64_t *inputs)
{
    bool is_auto;
    const weft_string_list patterns = weft_run_recomputes(run, &is_auto);
    const int64_t number[] = {run->memory.limit, run->precision, run->grad_reduce_dtype};
    weft_buf text = {0};
    uint64_t work, id = WEFT_ID_BEGIN;
    WEFT_TRY(weft_layout_work_id(run, models, ranks, &work));
    weft_config_dump_earlier(&weft_parallel_section, &run->parallel, &text);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&text));
    id = weft_id_mix(id, text.data, (size_t)text.len);
out:
    weft_buf_free(&text);
    id = weft_id_mix(weft_id_mix(id, &work, sizeof work), number, sizeof number);
    for (int64_t i = 0; i < patterns.count; i++)
        id = weft_id_mix(id, patterns.item[i], strlen(patterns.item[i]) + 1);
    *inputs = id ? id : 1;
    return status;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* A whole number from 0 on. */
static weft_status read_number(const json_t *json, const char *part, const char *key,
                               const char *path, int64_t *out)
{
    const json_t *value = json_object_get(json_object_get(json, part), key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return weft_error(
            WEFT_MSG_JSON_VALUE,
            WEFT_AT(.file = path, .key = weft_message_key((char[64]){0}, "%s.%s", part, key)),
            "the value is not an integer of at least 0");
    *out = json_integer_value(value);
    return WEFT_OK;
}

static weft_status read_choice(const json_t *json, const char *path, void *to)
{
    weft_settled *c = to;
    int64_t kind;
    if (!weft_hash_parse(json_object_get(json, "inputs"), &c->inputs))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "inputs"),
                          "the value is not a hash of 16 digits");
    WEFT_TRY(read_number(json, "context", "kind", path, &kind));
    c->context.kind = (int)kind;
    WEFT_TRY(read_number(json, "context", "ulysses", path, &c->context.ulysses));
    WEFT_TRY(read_number(json, "context", "ring", path, &c->context.ring));
    WEFT_TRY(read_number(json, "slices", "kind", path, &kind));
    c->overlap.kind = (int)kind;
    for (int i = 0; i < WEFT_COUNT(overlap_keys); i++)
        WEFT_TRY(read_number(json, "slices", overlap_keys[i].key, path,
                             (int64_t *)((char *)&c->overlap + overlap_keys[i].offset)));
    return WEFT_OK;
}

weft_status weft_settled_load(const char *out, weft_settled *choice)
{
    *choice = (weft_settled){0};
    return weft_run_file_load(out, &choice_file, read_choice, choice);
}

weft_status weft_settled_save(const char *out, const weft_settled *c)
{
    json_t *overlap = json_pack("{s:i}", "kind", c->overlap.kind);
    for (int i = 0; i < WEFT_COUNT(overlap_keys); i++)
        json_object_set_new(
            overlap, overlap_keys[i].key,
            json_integer(*(const int64_t *)((const char *)&c->overlap + overlap_keys[i].offset)));
    json_t *json =
        json_pack("{s:o, s:{s:i, s:I, s:I}, s:o}", "inputs", weft_hash_text(c->inputs), "context",
                  "kind", c->context.kind, "ulysses", (json_int_t)c->context.ulysses, "ring",
                  (json_int_t)c->context.ring, "slices", overlap);
    const weft_status_code status = json ? weft_run_file_save(out, &choice_file, json)
                                         : weft_no_memory("the layout choice of the run");
    json_decref(json);
    return status;
}
