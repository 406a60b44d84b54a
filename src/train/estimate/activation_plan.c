#include "train/activation_plan.h"

#include "base/fs.h"
#include "plan/seal_file.h"
#include "train/made_of.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const fate_keys[] = {
    [WEFT_FATE_AGAIN] = "recompute", [WEFT_FATE_AWAY] = "offload"};

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for the activation plan");
}

void weft_activation_plan_free(weft_activation_plan *plan)
{
    for (int64_t i = 0; i < plan->stages; i++)
        weft_free(plan->stage[i].fates.row);
    weft_free(plan->stage);
    *plan = (weft_activation_plan){0};
}

static weft_status path_of(const char *out, char path[600])
{
    return snprintf(path, 600, "%s/activation-plan.json", out) < 600
               ? WEFT_OK
               : weft_fail(WEFT_E_ARG, "%s: the path is longer than 570 bytes", out);
}

static int by_key(const void *a, const void *b)
{
    const struct weft_fate_row *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* 16 hexadecimal digits. */
static bool parse_hash(const json_t *text, uint64_t *hash)
{
    const char *digits = json_string_value(text);
    char *end;
    if (!digits || strlen(digits) != 16 || strspn(digits, "0123456789abcdef") != 16)
        return false;
    *hash = strtoull(digits, &end, 16);
    return *end == 0;
}

static weft_status read_fates(const json_t *stage, const char *where, weft_fates *fates)
{
    size_t most = 1;
    for (int f = WEFT_FATE_AGAIN; f <= WEFT_FATE_AWAY; f++)
        most += json_array_size(json_object_get(stage, fate_keys[f]));
    fates->row = weft_alloc((int64_t)most * (int64_t)sizeof *fates->row);
    if (!fates->row)
        return no_memory();
    for (int f = WEFT_FATE_AGAIN; f <= WEFT_FATE_AWAY; f++) {
        const json_t *list = json_object_get(stage, fate_keys[f]);
        if (!json_is_array(list))
            return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" is not a list of nodes", where,
                             fate_keys[f]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            struct weft_fate_row *row = &fates->row[fates->count++];
            row->fate = (weft_fate)f;
            if (!parse_hash(json_array_get(list, i), &row->key))
                return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" has a node that is not 16 digits",
                                 where, fate_keys[f]);
        }
    }
    qsort(fates->row, (size_t)fates->count, sizeof *fates->row, by_key);
    for (int64_t i = 1; i < fates->count; i++)
        if (fates->row[i - 1].key == fates->row[i].key)
            return weft_fail(WEFT_E_FORMAT, "%s: node %016llx is listed twice", where,
                             (unsigned long long)fates->row[i].key);
    return WEFT_OK;
}

static weft_status read_stages(const json_t *json, const char *path, weft_activation_plan *plan)
{
    const json_t *stages = json_object_get(json, "stages");
    const int64_t count = (int64_t)json_array_size(stages);
    plan->stage = weft_alloc((count + 1) * (int64_t)sizeof *plan->stage);
    if (!plan->stage)
        return no_memory();
    for (int64_t i = 0; i < count; i++) {
        const json_t *stage = json_array_get(stages, (size_t)i);
        char where[640];
        snprintf(where, sizeof where, "%s: stage %lld", path, (long long)i);
        plan->stages = i + 1;
        if (!parse_hash(json_object_get(stage, "inputs"), &plan->stage[i].inputs))
            return weft_fail(WEFT_E_FORMAT, "%s: \"inputs\" is not a hash of 16 digits", where);
        WEFT_TRY(read_fates(stage, where, &plan->stage[i].fates));
    }
    return WEFT_OK;
}

weft_status weft_activation_plan_load(const char *out, weft_activation_plan *plan)
{
    char path[600];
    json_t *json = NULL;
    *plan = (weft_activation_plan){0};
    WEFT_TRY(path_of(out, path));
    if (!weft_path_exists(path))
        return WEFT_OK;
    weft_status_code status = weft_json_load(path, &json);
    if (status == WEFT_OK)
        status = weft_plan_seal_check(json, WEFT_ACTIVATION_PLAN_FORMAT, path);
    if (status == WEFT_OK)
        status = read_stages(json, path, plan);
    json_decref(json);
    if (status == WEFT_OK)
        return WEFT_OK;
    weft_activation_plan_free(plan);
    return weft_fail_context(status, "activation plan of the run (remove the file to plan again)");
}

/* ---- sharing -------------------------------------------------------------------------------- */

weft_status weft_activation_plan_share(weft_activation_plan *plan, weft_comm *comm,
                                       weft_status_code read)
{
    int64_t head[2] = {read, plan->stages};
    if (!comm || weft_comm_ranks(comm) == 1)
        return read;
    const bool leader = weft_comm_rank(comm) == 0;
    WEFT_TRY(weft_comm_broadcast(comm, head, sizeof head, 0));
    if (head[0] != WEFT_OK)
        return leader ? read : weft_fail(WEFT_E_CANCELLED, "%s", "");
    if (!leader) {
        *plan = (weft_activation_plan){
            .stage = weft_alloc((head[1] + 1) * (int64_t)sizeof *plan->stage), .stages = head[1]};
        if (!plan->stage)
            return no_memory();
    }
    for (int64_t i = 0; i < head[1]; i++) {
        weft_activation_stage *s = &plan->stage[i];
        uint64_t own[2] = {s->inputs, (uint64_t)s->fates.count};
        WEFT_TRY(weft_comm_broadcast(comm, own, sizeof own, 0));
        const int64_t bytes = (int64_t)own[1] * (int64_t)sizeof *s->fates.row;
        if (!leader) {
            s->inputs = own[0];
            s->fates = (weft_fates){.row = weft_alloc(bytes + 1), .count = (int64_t)own[1]};
            if (!s->fates.row)
                return no_memory();
        }
        if (bytes)
            WEFT_TRY(weft_comm_broadcast(comm, s->fates.row, bytes, 0));
    }
    return WEFT_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* NULL: out of memory. */
static json_t *write_stage(const weft_activation_stage *s)
{
    json_t *lists[] = {[WEFT_FATE_AGAIN] = json_array(), [WEFT_FATE_AWAY] = json_array()};
    bool bad = false;
    for (int64_t i = 0; i < s->fates.count; i++)
        bad |=
            json_array_append_new(lists[s->fates.row[i].fate], weft_hash_text(s->fates.row[i].key));
    json_t *stage = json_pack("{s:o, s:o, s:o}", "inputs", weft_hash_text(s->inputs), "recompute",
                              lists[WEFT_FATE_AGAIN], "offload", lists[WEFT_FATE_AWAY]);
    if (!bad)
        return stage;
    json_decref(stage);
    return NULL;
}

weft_status weft_activation_plan_save(const char *out, const weft_activation_plan *plan)
{
    char path[600];
    WEFT_TRY(path_of(out, path));
    json_t *stages = json_array();
    bool bad = false;
    for (int64_t i = 0; i < plan->stages; i++)
        bad |= json_array_append_new(stages, write_stage(&plan->stage[i]));
    json_t *json = json_pack("{s:o}", "stages", stages);
    weft_status_code status =
        bad || !json ? no_memory() : weft_plan_seal(json, WEFT_ACTIVATION_PLAN_FORMAT);
    if (status == WEFT_OK)
        status = weft_json_save(path, json);
    json_decref(json);
    return status;
}

/* ---- stages --------------------------------------------------------------------------------- */

const weft_fates *weft_activation_plan_find(const weft_activation_plan *plan, int64_t index,
                                            uint64_t inputs)
{
    return plan && index < plan->stages && plan->stage[index].inputs == inputs
               ? &plan->stage[index].fates
               : NULL;
}

static bool same(const weft_fates *a, const weft_fates *b)
{
    if (a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (a->row[i].key != b->row[i].key || a->row[i].fate != b->row[i].fate)
            return false;
    return true;
}

static weft_status resize(weft_activation_plan *plan, int64_t stages)
{
    if (plan->stages == stages)
        return WEFT_OK;
    weft_activation_stage *all = weft_alloc((stages + 1) * (int64_t)sizeof *all);
    if (!all)
        return no_memory();
    for (int64_t i = 0; i < plan->stages; i++) {
        if (i < stages)
            all[i] = plan->stage[i];
        else
            weft_free(plan->stage[i].fates.row);
    }
    weft_free(plan->stage);
    *plan = (weft_activation_plan){all, stages, true};
    return WEFT_OK;
}

weft_status weft_activation_plan_set(weft_activation_plan *plan, int64_t index, int64_t stages,
                                     uint64_t inputs, const weft_fates *fates)
{
    WEFT_TRY(resize(plan, stages));
    weft_activation_stage *s = &plan->stage[index];
    if (s->inputs == inputs && same(&s->fates, fates))
        return WEFT_OK;
    const int64_t bytes = fates->count * (int64_t)sizeof *fates->row;
    struct weft_fate_row *row = weft_alloc(bytes + 1);
    if (!row)
        return no_memory();
    if (bytes)
        memcpy(row, fates->row, (size_t)bytes);
    weft_free(s->fates.row);
    *s = (weft_activation_stage){inputs, {row, fates->count}};
    plan->changed = true;
    return WEFT_OK;
}
