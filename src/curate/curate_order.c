#include "curate/curate_order.h"

#include "curate/curate_bucket.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/memory.h"
#include "curate/curate_folder.h"
#include "curate/operators/shot_scorer.h"

#include <math.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { ENOUGH_SHOTS = 50 };

/* Sums over records. */
typedef struct measured {
    double seconds[WEFT_MOST_OPERATORS], decode; /* of all scores */
    int64_t scored[WEFT_MOST_OPERATORS];
    int64_t judged[WEFT_MOST_OPERATORS], passed[WEFT_MOST_OPERATORS]; /* each operator alone */
    int64_t input[WEFT_MOST_OPERATORS], output[WEFT_MOST_OPERATORS], failed[WEFT_MOST_OPERATORS];
    int64_t shots; /* that the limits accept */
} measured;

/* The operator that rejected a shot; -1: none, or a limit rejected the shot before. */
static bool seen_by_operators(const weft_operator_set *set, const json_t *shot)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(shot, "reject"), "operator"));
    bool seen = !name || strcmp(name, "duplicate") == 0 || strcmp(name, "caption") == 0 ||
                strcmp(name, "similar") == 0 || strcmp(name, "cluster") == 0;
    for (int i = 0; i < set->count && !seen; i++)
        seen = strcmp(set->op[i].config->name, name) == 0;
    return seen && !json_is_true(json_object_get(shot, "gap"));
}

static void measure_shot(const weft_operator_set *set, json_t *all, const json_t *shot, measured *m)
{
    double facts[WEFT_FACTS];
    weft_shot_decision d;
    uint32_t judged;
    const json_t *scores = weft_shot_scores_of(all, shot);
    weft_shot_facts(shot, facts);
    weft_operator_set_decide(set, facts, scores, &d);
    m->shots++;
    for (int k = 0; k < d.reached; k++) {
        const int i = set->order[k];
        m->input[i]++;
        m->output[i] += i != d.by;
    }
    const uint32_t rejected = weft_operator_set_rejections(set, facts, scores, &judged);
    for (int i = 0; i < set->count; i++) {
        m->judged[i] += judged >> i & 1;
        m->passed[i] += (judged & ~rejected) >> i & 1;
        m->failed[i] +=
            json_object_get(json_object_get(scores, set->op[i].config->name), "failed") != NULL;
    }
}

static void measure(const weft_curate_plan *p, measured *m)
{
    *m = (measured){0};
    for (int64_t k = 0; k < p->sources; k++) {
        const weft_curate_source *s = &p->source[k];
        size_t n;
        json_t *shot;
        if (!s->record || !s->scores || json_object_get(s->record, "reject"))
            continue;
        json_array_foreach(json_object_get(s->record, "shots"), n,
                           shot) if (seen_by_operators(p->operators, shot))
            measure_shot(p->operators, s->scores, shot, m);
        const json_t *seconds = json_object_get(s->scores, "seconds"),
                     *scored = json_object_get(s->scores, "scored");
        m->decode += json_number_value(json_object_get(seconds, "decode"));
        for (int i = 0; i < p->operators->count; i++) {
            const char *name = p->operators->op[i].config->name;
            m->seconds[i] += json_number_value(json_object_get(seconds, name));
            m->scored[i] += (int64_t)json_number_value(json_object_get(scored, name));
        }
    }
}

/* A hash of the operators with their limits: another one needs another order. */
static void sign(const weft_curate_plan *p, char signature[WEFT_HEX_BYTES])
{
    weft_buf text = {0};
    weft_buf_printf(&text, "%d", p->config->operator_order);
    for (int i = 0; i < p->operators->count; i++) {
        const weft_operator *op = &p->operators->op[i];
        const weft_operator_config *c = op->config;
        const weft_operator_tier *tier = c->tiers.item;
        weft_buf_printf(&text, "\n%s %s %s %a %a %d", c->name, op->definition, c->expression,
                        c->min, c->max, c->keep_failed);
        for (int64_t t = 0; t < c->tiers.count; t++)
            weft_buf_printf(&text, " %" PRId64 " %a %a", tier[t].min_side, tier[t].min,
                            tier[t].max);
    }
    weft_hex_print(XXH3_64bits(text.data, (size_t)text.len), signature);
    weft_buf_free(&text);
}

/* Takes the order of a record; false: of other operators. */
static bool take_order(weft_curate_plan *p, json_t *record)
{
    char signature[WEFT_HEX_BYTES];
    weft_operator_set *set = p->operators;
    const json_t *order = json_object_get(record, "order");
    const char *signed_as = json_string_value(json_object_get(record, "signature"));
    int found[WEFT_MOST_OPERATORS], count = 0;
    sign(p, signature);
    if (!signed_as || strcmp(signed_as, signature) != 0 ||
        json_array_size(order) != (size_t)set->count)
        return false;
    for (size_t k = 0; k < json_array_size(order); k++)
        for (int i = 0; i < set->count; i++) {
            const char *name = json_string_value(json_array_get(order, k));
            if (name && strcmp(name, set->op[i].config->name) == 0)
                found[count++] = i;
        }
    if (count != set->count)
        return false;
    memcpy(set->order, found, (size_t)count * sizeof *found);
    json_decref(p->prices);
    p->prices = json_incref(record);
    p->ordered = true;
    return true;
}

static weft_status read_record(weft_curate_plan *p, const char *path)
{
    json_t *record = NULL;
    if (!weft_path_exists(path))
        return WEFT_OK;
    if (weft_json_load(path, &record) == WEFT_OK) /* a damaged one is decided again */
        (void)take_order(p, record);
    json_decref(record);
    return WEFT_OK;
}

weft_status weft_curate_order_read(weft_curate_plan *p)
{
    p->ordered = p->config->operator_order == WEFT_OPERATOR_ORDER_FIXED;
    if (p->ordered)
        return WEFT_OK;
    char *path = weft_path_join(p->out, "state/operators.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "the operators"));
    const weft_status_code status = read_record(p, path);
    weft_free(path);
    return status;
}

/* Orders the operators, and describes the prices. */
static weft_status order_by_price(weft_curate_plan *p, const measured *m, json_t *record)
{
    weft_operator_set *set = p->operators;
    weft_operator_price price[WEFT_MOST_OPERATORS];
    char signature[WEFT_HEX_BYTES];
    weft_buf text = {0};
    for (int i = 0; i < set->count; i++)
        /* one shot of each kind more: a small sample does not prove that all shots pass */
        price[i] =
            (weft_operator_price){.cost = m->scored[i] ? m->seconds[i] / (double)m->scored[i] : 0,
                                  .pass = ((double)m->passed[i] + 1) / ((double)m->judged[i] + 2),
                                  .after = set->op[i].after};
    WEFT_TRY(weft_operator_order_find(price, set->count, set->order));
    json_t *prices = json_object(), *order = json_array();
    for (int k = 0; k < set->count; k++) {
        const int i = set->order[k];
        const char *name = set->op[i].config->name;
        json_array_append_new(order, json_string(name));
        json_object_set_new(prices, name,
                            json_pack("{s:f,s:f}", "cost", price[i].cost, "pass", price[i].pass));
        weft_buf_printf(&text, "%s%s %.3g s", k ? ", " : "", name,
                        weft_operator_price_of(&price[i]));
    }
    sign(p, signature);
    json_object_set_new(record, "signature", json_string(signature));
    json_object_set_new(record, "order", order);
    json_object_set_new(record, "prices", prices);
    json_object_set_new(record, "shots", json_integer(m->shots));
    weft_notice(WEFT_MSG_OPERATOR_ORDER, WEFT_AT(.file = p->out, WEFT_NUMBER(m->shots)),
                "operators by price per rejected shot, of %" PRId64 " shots: %s", m->shots,
                text.data ? text.data : "");
    weft_buf_free(&text);
    return WEFT_OK;
}

weft_status weft_curate_order_decide(weft_curate_plan *p, bool force)
{
    measured m;
    int lock = -1;
    json_t *record = NULL;
    char *path = NULL;
    weft_status_code status = WEFT_OK;
    measure(p, &m);
    if (p->ordered || m.shots == 0 || (!force && m.shots < ENOUGH_SHOTS))
        return WEFT_OK;
    WEFT_GO(
        WEFT_ALLOCATED((path = weft_path_join(p->out, "state/operators.json")), "the operators"));
    WEFT_GO(weft_curate_lock_settings(p->out, &lock));
    WEFT_GO(read_record(p, path));
    if (!p->ordered) {
        WEFT_GO(WEFT_ALLOCATED((record = json_object()), "the operators"));
        WEFT_GO(order_by_price(p, &m, record));
        WEFT_GO(weft_json_save(path, record));
        WEFT_GO(weft_curate_bucket_send(p, path));
        (void)take_order(p, record);
    }
out:
    if (lock >= 0)
        close(lock);
    json_decref(record);
    weft_free(path);
    return status;
}

/* ---- the table ----------------------------------------------------------------------------- */

json_t *weft_curate_order_table(const weft_curate_plan *p)
{
    static const char *const kinds[] = {"expression", "measure",    "process",
                                        "onnx",       "aesthetics", "text"};
    measured m;
    json_t *rows = json_array();
    if (!p->operators) {
        json_decref(rows);
        return NULL;
    }
    measure(p, &m);
    for (int k = 0; k < p->operators->count; k++) {
        const int i = p->operators->order[k];
        const weft_operator *op = &p->operators->op[i];
        const double cost = m.scored[i] ? m.seconds[i] / (double)m.scored[i] : 0,
                     pass = m.input[i] ? (double)m.output[i] / (double)m.input[i] : 1;
        const weft_operator_price price = {cost, pass, 0};
        json_array_append_new(
            rows, json_pack("{s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:o}", "name", op->config->name,
                            "kind", kinds[op->kind], "input", (json_int_t)m.input[i], "output",
                            (json_int_t)m.output[i], "failed", (json_int_t)m.failed[i], "pass",
                            pass, "seconds", m.seconds[i], "seconds_per_shot", cost, "price",
                            weft_json_finite(weft_operator_price_of(&price))));
    }
    return json_pack("{s:s,s:I,s:f,s:o}", "order",
                     p->config->operator_order == WEFT_OPERATOR_ORDER_FIXED ? "fixed" : "price",
                     "shots", (json_int_t)m.shots, "decode_seconds", m.decode, "operators", rows);
}
