#include "train/estimate/activation_plan.h"

#include "comm/comm_world.h"
#include "train/checkpoint/run_file.h"
#include "transform/memory/saved_activations.h"

#include <string.h>

static const char *const policy_keys[] = {
    [WEFT_ACTIVATION_RECOMPUTE] = "recompute", [WEFT_ACTIVATION_OFFLOAD] = "offload"};

void weft_stored_activations_free(weft_stored_activations *plan)
{
    for (int64_t i = 0; i < plan->train_stages; i++)
        weft_free(plan->train_stage[i].activations.row);
    weft_free(plan->train_stage);
    *plan = (weft_stored_activations){0};
}

static const weft_run_file plan_file = {
    .name = "activation-plan.json",
    .format = WEFT_ACTIVATION_PLAN_FORMAT,
    .remedy = "Remove the file, and the run plans its activations again"};

/* ---- reading -------------------------------------------------------------------------------- */

static weft_status read_activations(const json_t *train_stage, const char *path, int64_t index,
                                    weft_activation_plan *activations)
{
    size_t most = 1;
    for (int f = WEFT_ACTIVATION_RECOMPUTE; f <= WEFT_ACTIVATION_OFFLOAD; f++)
        most += json_array_size(json_object_get(train_stage, policy_keys[f]));
    WEFT_TRY(WEFT_NEW(activations->row, (int64_t)most, "the activation plan"));
    for (int f = WEFT_ACTIVATION_RECOMPUTE; f <= WEFT_ACTIVATION_OFFLOAD; f++) {
        const json_t *list = json_object_get(train_stage, policy_keys[f]);
        if (!json_is_array(list))
            return weft_error(WEFT_MSG_JSON_VALUE,
                              WEFT_AT(.file = path, .key = weft_message_key((char[64]){0},
                                                                            "stages.%" PRId64 ".%s",
                                                                            index, policy_keys[f])),
                              "the value is not a list of nodes");
        for (size_t i = 0; i < json_array_size(list); i++) {
            struct weft_activation_policy_row *row = &activations->row[activations->count++];
            row->policy = (weft_activation_policy)f;
            if (!weft_hash_parse(json_array_get(list, i), &row->key))
                return weft_error(WEFT_MSG_JSON_VALUE,
                                  WEFT_AT(.file = path, .key = weft_message_key(
                                                            (char[64]){0}, "stages.%" PRId64 ".%s",
                                                            index, policy_keys[f])),
                                  "a node is not a hash of 16 digits");
        }
    }
    weft_activation_plan_sort(activations);
    for (int64_t i = 1; i < activations->count; i++)
        if (activations->row[i - 1].key == activations->row[i].key)
            return weft_error(WEFT_MSG_JSON_VALUE,
                              WEFT_AT(.file = path, .key = weft_message_key(
                                                        (char[64]){0}, "stages.%" PRId64, index)),
                              "node %016" PRIx64 " is listed twice", activations->row[i].key);
    return WEFT_OK;
}

static weft_status read_train_stages(const json_t *json, const char *path, void *to)
{
    weft_stored_activations *plan = to;
    const json_t *train_stages = json_object_get(json, "stages");
    const int64_t count = (int64_t)json_array_size(train_stages);
    WEFT_TRY(WEFT_NEW(plan->train_stage, count + 1, "the activation plan"));
    for (int64_t i = 0; i < count; i++) {
        const json_t *train_stage = json_array_get(train_stages, (size_t)i);
        plan->train_stages = i + 1;
        if (!weft_hash_parse(json_object_get(train_stage, "inputs"), &plan->train_stage[i].inputs))
            return weft_error(
                WEFT_MSG_JSON_VALUE,
                WEFT_AT(.file = path,
                        .key = weft_message_key((char[64]){0}, "stages.%" PRId64 ".inputs", i)),
                "the value is not a hash of 16 digits");
        WEFT_TRY(read_activations(train_stage, path, i, &plan->train_stage[i].activations));
    }
    return WEFT_OK;
}

weft_status weft_stored_activations_load(const char *out, weft_stored_activations *plan)
{
    *plan = (weft_stored_activations){0};
    const weft_status_code status = weft_run_file_load(out, &plan_file, read_train_stages, plan);
    if (status != WEFT_OK)
        weft_stored_activations_free(plan);
    return status;
}

/* ---- sharing -------------------------------------------------------------------------------- */

weft_status weft_stored_activations_share(weft_stored_activations *plan, weft_comm *comm,
                                          weft_status_code read)
{
    int64_t head[2] = {read, plan->train_stages};
    if (!comm || weft_comm_ranks(comm) == 1)
        return read;
    const bool is_rank0 = weft_comm_rank(comm) == 0;
    WEFT_TRY(weft_comm_broadcast(comm, head, sizeof head, 0));
    if (head[0] != WEFT_OK)
        return is_rank0 ? read : (weft_error_clear(), (weft_status_code)head[0]); /* rank 0 logs */
    if (!is_rank0) {
        *plan = (weft_stored_activations){.train_stage =
                                              weft_calloc(head[1] + 1, sizeof *plan->train_stage),
                                          .train_stages = head[1]};
        WEFT_TRY(WEFT_ALLOCATED(plan->train_stage, "the activation plan"));
    }
    for (int64_t i = 0; i < head[1]; i++) {
        weft_stored_activations_stage *s = &plan->train_stage[i];
        uint64_t own[2] = {s->inputs, (uint64_t)s->activations.count};
        WEFT_TRY(weft_comm_broadcast(comm, own, sizeof own, 0));
        const int64_t bytes = (int64_t)own[1] * (int64_t)sizeof *s->activations.row;
        if (!is_rank0) {
            s->inputs = own[0];
            s->activations =
                (weft_activation_plan){.row = weft_alloc(bytes + 1), .count = (int64_t)own[1]};
            WEFT_TRY(WEFT_ALLOCATED(s->activations.row, "the activation plan"));
        }
        if (bytes)
            WEFT_TRY(weft_comm_broadcast(comm, s->activations.row, bytes, 0));
    }
    return WEFT_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* NULL: out of memory. */
static json_t *write_train_stage(const weft_stored_activations_stage *s)
{
    json_t *lists[] = {
        [WEFT_ACTIVATION_RECOMPUTE] = json_array(), [WEFT_ACTIVATION_OFFLOAD] = json_array()};
    bool bad = false;
    for (int64_t i = 0; i < s->activations.count; i++)
        bad |= json_array_append_new(lists[s->activations.row[i].policy],
                                     weft_hash_text(s->activations.row[i].key));
    json_t *train_stage =
        json_pack("{s:o, s:o, s:o}", "inputs", weft_hash_text(s->inputs), "recompute",
                  lists[WEFT_ACTIVATION_RECOMPUTE], "offload", lists[WEFT_ACTIVATION_OFFLOAD]);
    if (!bad)
        return train_stage;
    json_decref(train_stage);
    return NULL;
}

weft_status weft_stored_activations_save(const char *out, const weft_stored_activations *plan)
{
    json_t *train_stages = json_array();
    bool bad = false;
    for (int64_t i = 0; i < plan->train_stages; i++)
        bad |= json_array_append_new(train_stages, write_train_stage(&plan->train_stage[i]));
    json_t *json = json_pack("{s:o}", "stages", train_stages);
    const weft_status_code status = bad || !json ? weft_no_memory("the activation plan")
                                                 : weft_run_file_save(out, &plan_file, json);
    json_decref(json);
    return status;
}

/* ---- training stages ------------------------------------------------------------------------ */

const weft_activation_plan *weft_stored_activations_find(const weft_stored_activations *plan,
                                                         int64_t index, uint64_t inputs)
{
    return plan && index < plan->train_stages && plan->train_stage[index].inputs == inputs
               ? &plan->train_stage[index].activations
               : NULL;
}

static bool same(const weft_activation_plan *a, const weft_activation_plan *b)
{
    if (a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (a->row[i].key != b->row[i].key || a->row[i].policy != b->row[i].policy)
            return false;
    return true;
}

static weft_status resize(weft_stored_activations *plan, int64_t train_stages)
{
    if (plan->train_stages == train_stages)
        return WEFT_OK;
    weft_stored_activations_stage *all;
    WEFT_TRY(WEFT_NEW(all, train_stages + 1, "the activation plan"));
    for (int64_t i = 0; i < plan->train_stages; i++) {
        if (i < train_stages)
            all[i] = plan->train_stage[i];
        else
            weft_free(plan->train_stage[i].activations.row);
    }
    weft_free(plan->train_stage);
    *plan = (weft_stored_activations){all, train_stages, true};
    return WEFT_OK;
}

weft_status weft_stored_activations_set(weft_stored_activations *plan, int64_t index,
                                        int64_t train_stages, uint64_t inputs,
                                        const weft_activation_plan *activations)
{
    WEFT_TRY(resize(plan, train_stages));
    weft_stored_activations_stage *s = &plan->train_stage[index];
    if (s->inputs == inputs && same(&s->activations, activations))
        return WEFT_OK;
    const int64_t bytes = activations->count * (int64_t)sizeof *activations->row;
    struct weft_activation_policy_row *row = weft_alloc(bytes + 1);
    WEFT_TRY(WEFT_ALLOCATED(row, "the activation plan"));
    if (bytes)
        memcpy(row, activations->row, (size_t)bytes);
    weft_free(s->activations.row);
    *s = (weft_stored_activations_stage){inputs, {row, activations->count}};
    plan->changed = true;
    return WEFT_OK;
}
