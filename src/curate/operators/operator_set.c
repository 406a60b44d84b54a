#include "curate/operators/operator_set.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/memory.h"
#include "storage/input_copy.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char *const facts_names[WEFT_FACTS] = {"motion",  "sharpness", "brightness", "frames",
                                                    "seconds", "fps",       "width",      "height"};

/* ---- checks of the config ------------------------------------------------------------------ */

static const char *key_of(char key[64], int i, const char *name)
{
    return weft_message_key(key, "operators.%d.%s", i, name);
}

static weft_status check_name(const weft_operator_set *set, int i, const char *name)
{
    static const char *const words[] = {"and", "or",  "not",  "min",   "max",
                                        "abs", "log", "sqrt", "decode"};
    char key[64];
    bool valid = isalpha((unsigned char)name[0]) && strlen(name) < 32;
    for (const char *c = name; *c; c++)
        valid = valid && (isalnum((unsigned char)*c) || *c == '_') && (unsigned char)*c < 128;
    if (!valid)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = key_of(key, i, "name"), .value = name),
            "'%s' is not a name; use a letter, then letters, digits and _, up to 31", name);
    for (int k = 0; k < WEFT_COUNT(words); k++)
        if (strcmp(words[k], name) == 0)
            return weft_error(WEFT_MSG_CONFIG_VALUE,
                              WEFT_AT(.key = key_of(key, i, "name"), .value = name),
                              "'%s' is a word of expressions; use another name", name);
    for (int k = 0; k < WEFT_FACTS + i; k++)
        if (strcmp(set->names[k], name) == 0)
            return weft_error(WEFT_MSG_CONFIG_VALUE,
                              WEFT_AT(.key = key_of(key, i, "name"), .value = name),
                              "another score is named '%s'; use another name", name);
    return WEFT_OK;
}

/* The kind of an operator, by the one key that defines it. */
static weft_status find_kind(const weft_operator_config *c, int i, weft_operator_kind *kind)
{
    const bool has[] = {c->expression[0] != 0, c->measure != WEFT_MEASURE_NONE,
                        c->process.count > 0,  c->onnx[0] != 0,
                        c->aesthetics[0] != 0, c->text[0] != 0};
    int count = 0;
    for (int k = 0; k < WEFT_COUNT(has); k++)
        if (has[k]) {
            *kind = (weft_operator_kind)k;
            count++;
        }
    char key[64];
    if (count == 1)
        return WEFT_OK;
    return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                      WEFT_AT(.key = key_of(key, i, "name"), .value = c->name, WEFT_NUMBER(count)),
                      "the operator '%s' has %d of the keys expression, measure, process, onnx, "
                      "aesthetics and text; give exactly one",
                      c->name, count);
}

static weft_status check_program(const weft_operator_config *c, int i)
{
    const char *program = c->process.item[0];
    char path[4096], key[64];
    if (weft_program_find(program, path))
        return WEFT_OK;
    return weft_error(WEFT_MSG_CONFIG_VALUE,
                      WEFT_AT(.key = key_of(key, i, "process"), .value = program),
                      "no program '%s' can be run; give its path, and the arguments as further "
                      "items of the list",
                      program);
}

static weft_status check_limits(const weft_operator_config *c, const weft_operator *op, int i)
{
    const weft_operator_tier *tier = c->tiers.item;
    const bool limits =
        c->min != WEFT_OPERATOR_NO_MIN || c->max != WEFT_OPERATOR_NO_MAX || c->tiers.count > 0;
    char key[64];
    if (op->expression && weft_expression_is_condition(op->expression) && limits)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = key_of(key, i, "expression")),
                          "the expression is a condition and has no min, max or tiers; compare "
                          "inside the expression");
    for (int64_t t = -1; t < c->tiers.count; t++) {
        const double min = t < 0 ? c->min : tier[t].min, max = t < 0 ? c->max : tier[t].max;
        if (min > max)
            return weft_error(
                WEFT_MSG_CONFIG_CONFLICT,
                WEFT_AT(.key = key_of(key, i, t < 0 ? "min" : "tiers"), WEFT_NUMBER(min)),
                "the minimum %g is above the maximum %g", min, max);
    }
    return WEFT_OK;
}

static weft_status check_model(const weft_operator_config *c, int i)
{
    char key[64];
    if (c->mean.count != 3 || c->std.count != 3)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.key = key_of(key, i, c->mean.count != 3 ? "mean" : "std")),
                          "the list needs three numbers: red, green, blue");
    if (access(c->onnx, R_OK) != 0)
        return weft_error_errno(WEFT_AT(.file = c->onnx, .key = key_of(key, i, "onnx")),
                                "cannot read the model");
    return WEFT_OK;
}

static weft_status check_file(const char *path, int i, const char *name)
{
    char key[64];
    return access(path, R_OK) == 0
               ? WEFT_OK
               : weft_error_errno(WEFT_AT(.file = path, .key = key_of(key, i, name)),
                                  "cannot read the file");
}

/* Bits of the operators before `i` that crop bands of text. */
static uint32_t croppers(const weft_operator_set *set, int i)
{
    uint32_t bits = 0;
    for (int k = 0; k < i; k++)
        if (set->op[k].kind == WEFT_OPERATOR_TEXT && set->op[k].config->crop > 0)
            bits |= (uint32_t)1 << k;
    return bits;
}

static weft_status check_crop(weft_operator_set *set, int i)
{
    weft_operator *op = &set->op[i];
    const weft_operator_config *c = op->config;
    char key[64];
    if (c->crop > 0 && op->kind != WEFT_OPERATOR_TEXT)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = key_of(key, i, "crop")),
                          "only an operator with `text` can crop");
    if (!c->after_crop)
        return WEFT_OK;
    if (op->kind != WEFT_OPERATOR_MEASURE && op->kind != WEFT_OPERATOR_PROCESS &&
        op->kind != WEFT_OPERATOR_ONNX)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = key_of(key, i, "after_crop")),
                          "only an operator with measure, process or onnx sees cropped frames");
    op->after = croppers(set, i);
    return op->after
               ? WEFT_OK
               : weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = key_of(key, i, "after_crop")),
                            "no operator before '%s' has the keys text and crop", c->name);
}

/* Path, size and time of a file, or the version of a copy. */
static void add_file(weft_buf *text, const char *path)
{
    struct stat st = {0};
    const char *version = weft_input_copy_version(path);
    if (version)
        weft_buf_printf(text, " %s", version);
    else if (stat(path, &st) == 0)
        weft_buf_printf(text, " %s %lld %lld", path, (long long)st.st_size, (long long)st.st_mtime);
}

/* A hash of the keys that scores depend on, not of limits. */
static void define(const weft_operator_set *set, weft_operator *op)
{
    const weft_operator_config *c = op->config;
    weft_buf text = {0};
    weft_buf_printf(&text, "%d %d %" PRId64 " %" PRId64, op->kind, c->measure, c->frames, c->side);
    for (int64_t k = 0; k < c->process.count; k++)
        weft_buf_printf(&text, " %zu:%s", strlen(c->process.item[k]), c->process.item[k]);
    if (op->kind == WEFT_OPERATOR_ONNX) {
        add_file(&text, c->onnx);
        weft_buf_printf(&text, " %" PRId64, c->output);
    }
    if (op->kind == WEFT_OPERATOR_AESTHETICS)
        add_file(&text, c->aesthetics);
    if (op->kind == WEFT_OPERATOR_TEXT)
        add_file(&text, c->text);
    if (c->crop > 0)
        weft_buf_printf(&text, " crop %g", c->crop);
    for (int k = 0; c->after_crop && k < WEFT_MOST_OPERATORS; k++)
        if (op->after >> k & 1)
            weft_buf_printf(&text, " %s", set->op[k].definition);
    for (int64_t k = 0; k < 3 && op->kind == WEFT_OPERATOR_ONNX; k++)
        weft_buf_printf(&text, " %g %g", c->mean.item[k], c->std.item[k]);
    weft_hex_print(XXH3_64bits(text.data, (size_t)text.len), op->definition);
    weft_buf_free(&text);
}

static weft_status open_operator(weft_operator_set *set, const weft_operator_config *c)
{
    const int i = set->count;
    weft_operator *op = &set->op[i];
    char key[64];
    WEFT_TRY(check_name(set, i, c->name));
    *op = (weft_operator){.config = c};
    WEFT_TRY(find_kind(c, i, &op->kind));
    if (op->kind == WEFT_OPERATOR_EXPRESSION) {
        WEFT_TRY(weft_expression_parse(c->expression, key_of(key, i, "expression"), set->names,
                                       WEFT_FACTS + i, &op->expression));
        op->after = (uint32_t)(weft_expression_names(op->expression) >> WEFT_FACTS);
    }
    set->names[WEFT_FACTS + i] = c->name;
    set->order[i] = i;
    set->count++; /* from here on, close frees the expression */
    if (op->kind == WEFT_OPERATOR_PROCESS)
        WEFT_TRY(check_program(c, i));
    if (op->kind == WEFT_OPERATOR_ONNX)
        WEFT_TRY(check_model(c, i));
    if (op->kind == WEFT_OPERATOR_AESTHETICS)
        WEFT_TRY(check_file(c->aesthetics, i, "aesthetics"));
    if (op->kind == WEFT_OPERATOR_TEXT)
        WEFT_TRY(check_file(c->text, i, "text"));
    WEFT_TRY(check_crop(set, i));
    define(set, op);
    return check_limits(c, op, i);
}

weft_status weft_operator_set_open(const weft_section_list *list, weft_operator_set **out)
{
    const weft_operator_config *c = list->item;
    weft_operator_set *set;
    if (list->count > WEFT_MOST_OPERATORS)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.key = "operators", WEFT_NUMBER(list->count)),
                          "%" PRId64 " operators are more than %d; join conditions in expressions",
                          list->count, WEFT_MOST_OPERATORS);
    WEFT_TRY(WEFT_NEW(set, 1, "the operators"));
    memcpy(set->names, facts_names, sizeof facts_names);
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < list->count; i++)
        WEFT_GO(open_operator(set, &c[i]));
out:
    if (status != WEFT_OK) {
        weft_operator_set_close(set);
        return status;
    }
    *out = set;
    return WEFT_OK;
}

void weft_operator_set_close(weft_operator_set *set)
{
    for (int i = 0; set && i < set->count; i++)
        weft_expression_free(set->op[i].expression);
    weft_free(set);
}

/* ---- decisions ----------------------------------------------------------------------------- */

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

void weft_shot_facts(const json_t *shot, double facts[WEFT_FACTS])
{
    const json_t *scores = json_object_get(shot, "scores"),
                 *area = json_object_get(shot, "picture");
    facts[WEFT_FACT_MOTION] = number(scores, "motion");
    facts[WEFT_FACT_SHARPNESS] = number(scores, "sharpness");
    facts[WEFT_FACT_BRIGHTNESS] = number(scores, "brightness");
    facts[WEFT_FACT_FRAMES] = number(shot, "end") - number(shot, "start") + 1;
    facts[WEFT_FACT_SECONDS] = number(shot, "end_seconds") - number(shot, "start_seconds");
    facts[WEFT_FACT_FPS] = number(shot, "fps");
    facts[WEFT_FACT_WIDTH] = json_number_value(json_array_get(area, 2));
    facts[WEFT_FACT_HEIGHT] = json_number_value(json_array_get(area, 3));
}

json_t *weft_operator_set_crop(const weft_operator_set *set, const json_t *shot,
                               const json_t *scores)
{
    double low = 0, high = 1;
    int64_t area[4];
    char name[48];
    for (int i = 0; i < set->count; i++) {
        snprintf(name, sizeof name, "%s.rows", set->op[i].config->name);
        const json_t *rows = json_object_get(scores, name);
        if (set->op[i].config->crop <= 0 || json_array_size(rows) != 2)
            continue;
        low = fmax(low, json_number_value(json_array_get(rows, 0)));
        high = fmin(high, json_number_value(json_array_get(rows, 1)));
    }
    if (low <= 0 && high >= 1)
        return NULL;
    for (size_t k = 0; k < 4; k++)
        area[k] = json_integer_value(json_array_get(json_object_get(shot, "picture"), k));
    const int64_t top = (int64_t)ceil(low * (double)area[3]),
                  bottom = (int64_t)floor(high * (double)area[3]);
    return bottom > top ? json_pack("[I,I,I,I]", (json_int_t)area[0], (json_int_t)(area[1] + top),
                                    (json_int_t)area[2], (json_int_t)(bottom - top))
                        : NULL;
}

/* Values of all operators: recorded, or of expressions over recorded ones. Missing and failed ones
 * are NaN. */
static void take_values(const weft_operator_set *set, const double facts[WEFT_FACTS],
                        const json_t *scores, double value[WEFT_FACTS + WEFT_MOST_OPERATORS],
                        uint32_t *missing)
{
    *missing = 0;
    memcpy(value, facts, WEFT_FACTS * sizeof *value);
    for (int i = 0; i < set->count; i++) { /* an expression names earlier operators only */
        const weft_operator *op = &set->op[i];
        const json_t *score = json_object_get(scores, op->config->name);
        double *own = &value[WEFT_FACTS + i];
        if (op->expression) {
            *own = weft_expression_evaluate(op->expression, value);
            if (isnan(*own) && (op->after & *missing))
                *missing |= (uint32_t)1 << i;
            continue;
        }
        *own = json_is_number(score) ? json_number_value(score) : NAN;
        if (!score)
            *missing |= (uint32_t)1 << i;
    }
}

static void find_limits(const weft_operator_config *c, const double facts[WEFT_FACTS], double *min,
                        double *max)
{
    const weft_operator_tier *tier = c->tiers.item;
    const double side = fmin(facts[WEFT_FACT_WIDTH], facts[WEFT_FACT_HEIGHT]);
    int64_t best = -1;
    *min = c->min;
    *max = c->max;
    for (int64_t i = 0; i < c->tiers.count; i++)
        if ((double)tier[i].min_side <= side && tier[i].min_side > best) {
            best = tier[i].min_side;
            *min = tier[i].min;
            *max = tier[i].max;
        }
}

/* Whether an operator rejects a shot by its value. */
static bool rejects(const weft_operator *op, const double facts[WEFT_FACTS], const json_t *score,
                    double value, weft_shot_decision *d)
{
    double min, max;
    const weft_operator_config *c = op->config;
    if (isnan(value)) {
        const char *why = json_string_value(json_object_get(score, "failed"));
        if (!why)
            why = "the expression has no value: a score failed, or the result is undefined";
        d->failed = true;
        d->value = d->limit = 0;
        snprintf(d->reason, sizeof d->reason, "no score: %s", why);
        return !c->keep_failed;
    }
    d->failed = false;
    d->value = value;
    if (op->expression && weft_expression_is_condition(op->expression)) {
        d->limit = 1;
        snprintf(d->reason, sizeof d->reason, "not %.380s", c->expression);
        return value == 0;
    }
    find_limits(c, facts, &min, &max);
    d->limit = value < min ? min : max;
    snprintf(d->reason, sizeof d->reason, "the score is too %s", value < min ? "low" : "high");
    return value < min || value > max;
}

void weft_operator_set_decide(const weft_operator_set *set, const double facts[WEFT_FACTS],
                              const json_t *scores, weft_shot_decision *out)
{
    double value[WEFT_FACTS + WEFT_MOST_OPERATORS];
    uint32_t lacks;
    int missing = -1;
    take_values(set, facts, scores, value, &lacks);
    *out = (weft_shot_decision){.by = -1, .missing = -1};
    for (int k = 0; k < set->count; k++) {
        const int i = set->order[k];
        const weft_operator *op = &set->op[i];
        if (lacks >> i & 1) {
            missing = missing < 0 && !op->expression ? i : missing;
            continue;
        }
        out->reached = k + 1;
        if (rejects(op, facts, json_object_get(scores, op->config->name), value[WEFT_FACTS + i],
                    out)) {
            out->by = i;
            return;
        }
    }
    out->failed = false;
    out->missing = missing;
}

uint32_t weft_operator_set_rejections(const weft_operator_set *set, const double facts[WEFT_FACTS],
                                      const json_t *scores, uint32_t *judged)
{
    double value[WEFT_FACTS + WEFT_MOST_OPERATORS];
    uint32_t lacks, rejected = 0;
    weft_shot_decision d;
    take_values(set, facts, scores, value, &lacks);
    for (int i = 0; i < set->count; i++)
        if (!(lacks >> i & 1) &&
            rejects(&set->op[i], facts, json_object_get(scores, set->op[i].config->name),
                    value[WEFT_FACTS + i], &d))
            rejected |= (uint32_t)1 << i;
    *judged = (((uint32_t)1 << set->count) - 1) & ~lacks;
    return rejected;
}

json_t *weft_operator_set_scores(const weft_operator_set *set, const double facts[WEFT_FACTS],
                                 const json_t *scores)
{
    double value[WEFT_FACTS + WEFT_MOST_OPERATORS];
    uint32_t lacks;
    if (set->count == 0)
        return NULL;
    take_values(set, facts, scores, value, &lacks);
    json_t *out = json_object();
    int by_name[WEFT_MOST_OPERATORS]; /* the order of the list changes no metadata */
    for (int i = 0; i < set->count; i++) {
        int k = i;
        for (; k > 0 && strcmp(set->op[by_name[k - 1]].config->name, set->op[i].config->name) > 0;
             k--)
            by_name[k] = by_name[k - 1];
        by_name[k] = i;
    }
    for (int k = 0; k < set->count; k++) {
        const int i = by_name[k];
        const char *name = set->op[i].config->name;
        if (isfinite(value[WEFT_FACTS + i]))
            json_object_set_new(out, name, json_real(value[WEFT_FACTS + i]));
        else if (json_object_get(json_object_get(scores, name), "failed"))
            json_object_set(out, name, json_object_get(scores, name));
    }
    return out;
}
