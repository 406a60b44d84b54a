/* Reads model configs by their family's table, with defaults and limits, and writes them. */
#include "model/config_fields.h"

#include "base/config.h"
#include "base/json_foreign.h"
#include "model/family.h"
#include "model/transformers_fields.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *weft_config_locations_of(const weft_config_locations *locations, const char *key)
{
    for (int64_t i = 0; i < locations->count; i++)
        if (!strcmp(locations->key[i], key))
            return locations->key_where[i];
    return locations->where;
}

weft_status weft_check_axes(const weft_config_locations *locations, const char *key,
                            const int64_t axes[3], int64_t head_dim)
{
    const bool even = axes[0] % 2 == 0 && axes[1] % 2 == 0 && axes[2] % 2 == 0;
    if (!even || axes[0] + axes[1] + axes[2] != head_dim)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, key, axes[0] + axes[1] + axes[2]),
            "%" PRId64 ", %" PRId64 ", %" PRId64
            " are not three even numbers with the sum \"attention_head_dim\" %" PRId64,
            axes[0], axes[1], axes[2], head_dim);
    return WEFT_OK;
}

weft_status weft_check_levels(const weft_config_locations *locations, const int64_t *width,
                              int64_t levels, int64_t least, int64_t groups)
{
    const char *where = weft_config_locations_of(locations, "block_out_channels");
    if (levels < least)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = "block_out_channels", WEFT_NUMBER(levels)),
                          "%" PRId64 " levels; at least %" PRId64 " are needed", levels, least);
    for (int64_t i = 0; i < levels; i++)
        if (width[i] % groups)
            return weft_error(
                WEFT_MSG_MODEL_CONFIG,
                WEFT_AT(.file = where, .key = "block_out_channels", WEFT_NUMBER(width[i])),
                "%" PRId64 " is not a multiple of \"norm_num_groups\" %" PRId64, width[i], groups);
    return WEFT_OK;
}

weft_status weft_check_cross(const weft_config_locations *locations, int64_t cross, int64_t width)
{
    if (cross != width)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "cross_attention_dim", cross),
            "%" PRId64 " differs from the model's width %" PRId64 ", to which texts are projected",
            cross, width);
    return WEFT_OK;
}

weft_status weft_check_grouped_heads(const weft_config_locations *locations, int64_t heads,
                                     int64_t key_heads, int64_t head_dim)
{
    if (heads % key_heads)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "num_key_value_heads", key_heads),
            "%" PRId64 " does not divide the %" PRId64 " attention heads", key_heads, heads);
    if (head_dim % 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "head_dim", head_dim),
                          "%" PRId64 " is not even, which rotary embedding needs", head_dim);
    return WEFT_OK;
}

static bool is_list(const weft_field *f)
{
    return f->type == WEFT_FIELD_I64S || f->type == WEFT_FIELD_F64S ||
           f->type == WEFT_FIELD_BOOLS || f->type == WEFT_FIELD_WORDS;
}

static bool may_be_null(const weft_field *f)
{
    return (f->type == WEFT_FIELD_I64 || f->type == WEFT_FIELD_F64) && f->fallback &&
           !strcmp(f->fallback, "null");
}

static const char *word_of(const weft_field *f)
{
    switch (f->type) {
    case WEFT_FIELD_F64:
    case WEFT_FIELD_F64S: return "number";
    case WEFT_FIELD_BOOL:
    case WEFT_FIELD_BOOLS: return "boolean";
    case WEFT_FIELD_WORDS: return "word";
    case WEFT_FIELD_PART: return "object";
    default: return "integer";
    }
}

const char *weft_field_name(const weft_field *f, char name[WEFT_FIELD_NAME])
{
    snprintf(name, WEFT_FIELD_NAME, "%s%s%s", f->object ? f->object : "", f->object ? "." : "",
             f->key);
    return name;
}

static weft_status wrong_type(const weft_field *f, const char *where, const json_t *value)
{
    char *text = weft_json_line(value), name[WEFT_FIELD_NAME];
    const weft_status_code status =
        weft_error(WEFT_MSG_MODEL_CONFIG,
                   WEFT_AT(.file = where, .key = weft_field_name(f, name), .value = text),
                   "%.80s is not a%s %s", text ? text : "?", strchr("io", word_of(f)[0]) ? "n" : "",
                   word_of(f));
    weft_free(text);
    return status;
}

/* Reads `value` as an index in the field's words. */
static weft_status read_word(const weft_field *f, const char *where, const json_t *value,
                             int64_t *which)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    weft_buf known = {0};
    WEFT_TRY(WEFT_ALLOCATED(text, "%s", where));
    int64_t found = -1;
    for (int64_t i = 0; f->words[i]; i++) {
        weft_buf_printf(&known, "%s%s", i ? ", " : "", f->words[i]);
        if (!strcmp(text, f->words[i]))
            found = i;
    }
    const weft_status_code status =
        found >= 0
            ? WEFT_OK
            : weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                         WEFT_AT(.file = where, .key = f->key, .value = text),
                         "%.80s is not supported; known: %s", text, known.data ? known.data : "?");
    if (found >= 0)
        *which = found;
    weft_buf_free(&known);
    free(text);
    return status;
}

/* Reads a scalar, or item `index` of a list (-1: scalar). */
static weft_status read_item(const weft_field *f, const char *where, const json_t *value,
                             int64_t index, void *to)
{
    char field[WEFT_FIELD_NAME], name[WEFT_FIELD_NAME + 24];
    weft_field_name(f, field);
    snprintf(name, sizeof name, index < 0 ? "%s" : "%s.%" PRId64, field, index);
    if (f->type == WEFT_FIELD_WORDS)
        return read_word(f, where, value, to);
    if (f->type == WEFT_FIELD_BOOL || f->type == WEFT_FIELD_BOOLS) {
        if (!json_is_boolean(value))
            return wrong_type(f, where, value);
        *(bool *)to = json_is_true(value);
        return WEFT_OK;
    }
    const double number = json_number_value(value);
    const bool whole = f->type == WEFT_FIELD_I64 || f->type == WEFT_FIELD_I64S;
    if (!json_is_number(value) || (whole && number != floor(number)))
        return wrong_type(f, where, value);
    if ((f->min != 0 || f->max != 0) && !(number >= f->min && number <= f->max))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = name, WEFT_NUMBER(number)),
                          "%.15g is not from %.15g to %.15g", number, f->min, f->max);
    if (whole)
        *(int64_t *)to = json_is_integer(value) ? json_integer_value(value) : (int64_t)number;
    else
        *(double *)to = number;
    return WEFT_OK;
}

static size_t item_bytes(const weft_field *f)
{
    return f->type == WEFT_FIELD_BOOLS ? sizeof(bool) : 8;
}

int64_t weft_three(const void *config)
{
    (void)config;
    return 3;
}

static int64_t length_of(const weft_field *f, const void *config)
{
    const int64_t length = f->length(config);
    return length < 0 ? 0 : length > f->capacity ? f->capacity : length;
}

static weft_status read_list(const weft_field *f, const char *where, const json_t *value,
                             void *config)
{
    int64_t least = 0, most = f->capacity;
    if (f->length)
        least = most = length_of(f, config);
    const bool alone = f->spread && !json_is_array(value);
    const int64_t count = alone ? least : (int64_t)json_array_size(value);
    if ((!json_is_array(value) && !alone) || count < least || count > most) {
        char range[48];
        snprintf(range, sizeof range, least == most ? "%" PRId64 : "%" PRId64 " to %" PRId64, least,
                 most);
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = f->key, WEFT_NUMBER(count)),
                          "a list of %s %ss is needed", range, word_of(f));
    }
    for (int64_t i = 0; i < count; i++)
        WEFT_TRY(read_item(f, where, alone ? value : json_array_get(value, (size_t)i), i,
                           (char *)config + f->offset + (size_t)i * item_bytes(f)));
    if (!f->length)
        *(int64_t *)((char *)config + f->count) = count;
    return WEFT_OK;
}

/* The field of this key, without its object; NULL: none. */
static const weft_field *find_field(const weft_family *family, const char *key)
{
    for (int i = 0; i < family->fields; i++)
        if (!strcmp(family->field[i].key, key))
            return &family->field[i];
    return NULL;
}

/* Sets the default of a list. With a required length, uses the first items of a list, or repeats a
 * single value. */
static weft_status list_default(const weft_field *f, const json_t *value, void *config)
{
    if (!f->length)
        return read_list(f, "built-in default", value, config);
    const int64_t length = length_of(f, config);
    for (int64_t i = 0; i < length; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, (size_t)i) : value;
        if (item)
            WEFT_TRY(read_item(f, "built-in default", item, i,
                               (char *)config + f->offset + (size_t)i * item_bytes(f)));
    }
    return WEFT_OK;
}

static weft_status read_default(const weft_family *family, const weft_field *f, void *config)
{
    if (!f->fallback) { /* computed from the fields above */
        *(int64_t *)((char *)config + f->offset) = f->length(config);
        return WEFT_OK;
    }
    if (f->fallback[0] == '=') {
        const weft_field *other = find_field(family, f->fallback + 1);
        memcpy((char *)config + f->offset, (const char *)config + other->offset, sizeof(int64_t));
        return WEFT_OK;
    }
    if (may_be_null(f)) {
        memset((char *)config + f->offset, 0, 8);
        return WEFT_OK;
    }
    json_t *value = json_loads(f->fallback, JSON_DECODE_ANY, NULL);
    WEFT_TRY(WEFT_ALLOCATED(value, "the default of \"%s\"", f->key));
    const weft_status_code status =
        is_list(f) ? list_default(f, value, config)
                   : read_item(f, "built-in default", value, -1, (char *)config + f->offset);
    json_decref(value);
    return status;
}

/* Like json_equal, but 0 equals 0.0. */
static bool same_json(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

static weft_status check_fixed(const weft_field *f, const char *where, const json_t *value)
{
    json_t *known = json_loads(f->fallback, JSON_DECODE_ANY, NULL);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const weft_status_code status =
        !known || !text ? weft_no_memory("%s", where)
        : same_json(value, known)
            ? WEFT_OK
            : weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                         WEFT_AT(.file = where, .key = f->key, .value = text),
                         "%s is not supported; only %s is", text, f->fallback);
    json_decref(known);
    free(text);
    return status;
}

/* Returns the value at "object.key", with any number of objects, before the next '|' of `path`. */
static const json_t *value_at(const json_t *json, const char *path)
{
    const char *end = path + strcspn(path, "|");
    while (json && path < end) {
        char key[64];
        const size_t length = strcspn(path, ".|");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        json = json_object_get(json, key);
        path += length + (path + length < end);
    }
    return json;
}

/* Returns the value of a field, from its own key or from the locations in `also`. */
static const json_t *value_of(const weft_field *f, const json_t *json)
{
    const json_t *value = json_object_get(json, f->key);
    for (const char *at = f->also; at && (!value || json_is_null(value));) {
        value = value_at(json, at);
        at = strchr(at, '|');
        at += at != NULL;
    }
    return value;
}

static json_t *write_each(const weft_field *f, const void *config)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < f->length(config); i++)
        json_array_append_new(list, json_loads(f->fallback, JSON_DECODE_ANY, NULL));
    return list;
}

static weft_status check_each(const weft_field *f, const char *where, const json_t *value,
                              const void *config)
{
    const bool alone = f->spread && !json_is_array(value);
    json_t *known = alone ? json_loads(f->fallback, JSON_DECODE_ANY, NULL) : write_each(f, config);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const weft_status_code status =
        !known || !text ? weft_no_memory("%s", where)
        : json_equal(known, value)
            ? WEFT_OK
            : weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                         WEFT_AT(.file = where, .key = f->key, .value = text),
                         "%.200s is not supported; only a list of %" PRId64 " times %s is", text,
                         f->length(config), f->fallback);
    json_decref(known);
    free(text);
    return status;
}

/* Reads the config of a nested model. If the config is absent, all its fields have their
 * defaults. */
static weft_status read_part(const weft_field *f, const char *where, const json_t *value,
                             const weft_config_locations *locations, void *config)
{
    const weft_family *part = f->part;
    if (f->fallback && (!value || json_is_null(value))) {
        memset(config, 0, part->config_bytes);
        return WEFT_OK;
    }
    json_t *none = json_object();
    const json_t *from = value && !json_is_null(value) ? value : none;
    const char *type = json_string_value(json_object_get(from, "model_type"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(none, "%s", where));
    if (!json_is_object(from))
        WEFT_GO(wrong_type(f, where, from));
    if (type && part->model_type && strcmp(type, part->model_type) != 0)
        WEFT_GO(weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                           WEFT_AT(.file = where, .key = f->key, .value = type),
                           "a %.80s is not supported; only a %s is (\"model_type\": \"%s\")", type,
                           part->class_name, part->model_type));
    WEFT_GO(weft_fields_read(
        part, from, &(weft_config_locations){.where = where, .strict = locations->strict}, config));
out:
    json_decref(none);
    return weft_error_add(status, "The value belongs to the object \"%s\".", f->key);
}

static weft_status read_field(const weft_family *family, const weft_field *f, const json_t *json,
                              const weft_config_locations *locations, void *config)
{
    const json_t *value = value_of(f, json);
    const bool inside = f->object && !json_object_get(json, f->key);
    const char *where = weft_config_locations_of(locations, inside ? f->object : f->key);
    const bool present = value && !json_is_null(value);
    switch (f->type) {
    case WEFT_FIELD_PART: return read_part(f, where, value, locations, (char *)config + f->offset);
    case WEFT_FIELD_IGNORED: return WEFT_OK;
    case WEFT_FIELD_EACH: return present ? check_each(f, where, value, config) : WEFT_OK;
    case WEFT_FIELD_FIXED: return present ? check_fixed(f, where, value) : WEFT_OK;
    case WEFT_FIELD_DERIVED:
        if (present && (double)f->length(config) != json_number_value(value))
            return weft_error(
                WEFT_MSG_MODEL_CONFIG,
                WEFT_AT(.file = where, .key = f->key, WEFT_NUMBER(json_number_value(value))),
                "%.15g is not %" PRId64 ", which follows from the other fields",
                json_number_value(value), f->length(config));
        return WEFT_OK;
    case WEFT_FIELD_WORD:
        *(int64_t *)((char *)config + f->offset) = 0;
        for (int64_t i = 0; f->fallback && f->words[i]; i++)
            if (!strcmp(f->words[i], f->fallback))
                *(int64_t *)((char *)config + f->offset) = i;
        return value ? read_word(f, where, value, (int64_t *)((char *)config + f->offset))
                     : WEFT_OK;
    default: break;
    }
    if (!present)
        return read_default(family, f, config);
    return is_list(f) ? read_list(f, where, value, config)
                      : read_item(f, where, value, -1, (char *)config + f->offset);
}

/* ---- fields outside the table --------------------------------------------------------------- */

/* Returns true if a field of the table reads `key`: its own key, or an object or key in `also`. */
static bool reads_key(const weft_family *family, const char *key)
{
    const size_t length = strlen(key);
    for (int i = 0; i < family->fields; i++) {
        if (!strcmp(family->field[i].key, key))
            return true;
        for (const char *at = family->field[i].also; at; at = strchr(at, '|')) {
            at += *at == '|';
            if (strcspn(at, "|") >= length && !strncmp(at, key, length) && strchr("|.", at[length]))
                return true;
        }
    }
    return false;
}

static const weft_unused_field *find_unused(const weft_unused_field *list, const char *key)
{
    for (; list && list->key; list++)
        if (!strcmp(list->key, key))
            return list;
    return NULL;
}

static bool accepts_value(const weft_unused_field *u, const json_t *value, const json_t *only)
{
    if (!u->each || !json_is_array(value))
        return same_json(value, only);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!same_json(json_array_get(value, i), only))
            return false;
    return true;
}

static weft_status check_unused(const weft_family *family, const weft_unused_field *u,
                                const json_t *value, const char *where, const void *config)
{
    const char *only = u->implied ? u->implied(config) : u->only;
    if (!only || (json_is_null(value) && u->each))
        return WEFT_OK;
    json_t *known = json_loads(only, JSON_DECODE_ANY, NULL);
    char *text = weft_json_line(value);
    const weft_status_code status =
        !known || !text ? weft_no_memory("%s", where)
        : accepts_value(u, value, known)
            ? WEFT_OK
            : weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                         WEFT_AT(.file = where, .key = u->key, .value = text),
                         "%.80s is not supported for %s; only %s is", text, family->class_name,
                         only);
    json_decref(known);
    weft_free(text);
    return status;
}

/* Whether fields of weft's own configs are in the object `key`. */
static bool is_object(const weft_family *family, const char *key)
{
    for (int i = 0; i < family->fields; i++)
        if (family->field[i].object && !strcmp(family->field[i].object, key))
            return true;
    return false;
}

/* Rejects a field of weft's own configs, "key" or "object.key". The error names the most similar
 * field, otherwise all fields. */
static weft_status refuse_own(const weft_family *family, const char *key, const char *where)
{
    char own[256][WEFT_FIELD_NAME];
    const char *names[256] = {0};
    const int count = family->fields < 256 ? family->fields : 256;
    for (int i = 0; i < count; i++)
        names[i] = weft_field_name(&family->field[i], own[i]);
    const char *near = weft_nearest_name(key, names, count);
    weft_buf known = {0};
    for (int i = 0; i < count && !near; i++)
        weft_buf_printf(&known, "%s%s", i ? ", " : "; known are ", names[i]);
    const weft_status_code status = weft_error(
        WEFT_MSG_CONFIG_UNKNOWN_KEY, WEFT_AT(.file = where, .key = key),
        "%s has no such field%s%s%s", family->class_name, near ? "; did you mean \"" : "",
        near         ? near
        : known.data ? known.data
                     : "",
        near ? "\"?" : "");
    weft_buf_free(&known);
    return status;
}

static weft_status check_key(const weft_family *family, const char *key, const json_t *value,
                             const weft_config_locations *locations, const void *config)
{
    const char *where = weft_config_locations_of(locations, key);
    if (locations->strict)
        return find_field(family, key) || key[0] == '_' ? WEFT_OK : refuse_own(family, key, where);
    const bool transformers = family->library && !strcmp(family->library, "transformers");
    const weft_unused_field *u = find_unused(family->unused, key);
    u = u || !transformers ? u : find_unused(weft_transformers_unused, key);
    if (u)
        return check_unused(family, u, value, where, config);
    /* another field may change the model in an unsupported way */
    return reads_key(family, key) || key[0] == '_'
               ? WEFT_OK
               : weft_json_refuse_foreign(family->class_name, key, value, where,
                                          WEFT_MSG_MODEL_CONFIG_UNSUPPORTED);
}

/* Checks the keys of an object of weft's own config. */
static weft_status check_own_object(const weft_family *family, const char *object,
                                    const json_t *inside, const char *where)
{
    const char *key;
    json_t *value;
    if (!json_is_object(inside))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = where, .key = object),
                          "a mapping of fields is needed");
    json_object_foreach((json_t *)inside, key, value)
    {
        char path[WEFT_FIELD_NAME], name[WEFT_FIELD_NAME];
        bool known = false;
        snprintf(path, sizeof path, "%.60s.%.60s", object, key);
        for (int i = 0; i < family->fields && !known; i++)
            known = !strcmp(weft_field_name(&family->field[i], name), path);
        if (!known)
            return refuse_own(family, path, where);
    }
    return WEFT_OK;
}

/* Checks the keys of the objects that `also` of a field names, and of the objects inside. */
static weft_status check_inner(const weft_family *family, const char *object, const json_t *inside,
                               const weft_config_locations *locations, const void *config)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)inside, key, value)
    {
        char path[160];
        snprintf(path, sizeof path, "%.70s.%.80s", object, key);
        if (!reads_key(family, path))
            WEFT_TRY(check_key(family, path, value, locations, config));
        else if (json_is_object(value))
            WEFT_TRY(check_inner(family, path, value, locations, config));
    }
    return WEFT_OK;
}

static weft_status check_keys(const weft_family *family, const json_t *json,
                              const weft_config_locations *locations, const void *config)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json, key, value)
    {
        const weft_field *f = find_field(family, key);
        if (!f && locations->strict && is_object(family, key))
            WEFT_TRY(
                check_own_object(family, key, value, weft_config_locations_of(locations, key)));
        else if (!f)
            WEFT_TRY(check_key(family, key, value, locations, config));
        if (!f && !locations->strict && json_is_object(value) && reads_key(family, key))
            WEFT_TRY(check_inner(family, key, value, locations, config));
    }
    return WEFT_OK;
}

weft_status weft_fields_read(const weft_family *family, const json_t *json,
                             const weft_config_locations *locations, void *config)
{
    if (locations->strict)
        WEFT_TRY(check_keys(family, json, locations, config));
    for (int i = 0; i < family->fields; i++)
        WEFT_TRY(read_field(family, &family->field[i], json, locations, config));
    if (!locations->strict)
        WEFT_TRY(check_keys(family, json, locations, config));
    return family->check ? family->check(config, locations) : WEFT_OK;
}

static json_t *write_item(const weft_field *f, const void *from)
{
    switch (f->type) {
    case WEFT_FIELD_WORDS:
        return json_loads(f->words[*(const int64_t *)from], JSON_DECODE_ANY, NULL);
    case WEFT_FIELD_BOOL:
    case WEFT_FIELD_BOOLS: return json_boolean(*(const bool *)from);
    case WEFT_FIELD_F64:
    case WEFT_FIELD_F64S: return json_real(*(const double *)from);
    default: return json_integer(*(const int64_t *)from);
    }
}

/* Writes the config of a nested model: of transformers with its "model_type", of diffusers with its
 * "_class_name". */
static json_t *write_part(const weft_field *f, const void *config)
{
    const weft_family *part = f->part;
    if (f->fallback && *(const int64_t *)config == 0)
        return json_null();
    json_t *json = weft_fields_write(part, config);
    if (!part->model_type)
        return json;
    json_object_del(json, "_class_name");
    json_object_set_new(json, "model_type", json_string(part->model_type));
    return json;
}

static json_t *write_field(const weft_field *f, const void *config)
{
    const char *from = (const char *)config + f->offset;
    if (f->type == WEFT_FIELD_PART)
        return write_part(f, from);
    if (f->type == WEFT_FIELD_FIXED || f->type == WEFT_FIELD_IGNORED)
        return json_loads(f->fallback, JSON_DECODE_ANY, NULL);
    if (f->type == WEFT_FIELD_EACH)
        return write_each(f, config);
    if (f->type == WEFT_FIELD_WORD)
        return json_loads(f->words[*(const int64_t *)from], JSON_DECODE_ANY, NULL);
    if (f->type == WEFT_FIELD_DERIVED)
        return json_integer(f->length(config));
    if (may_be_null(f) &&
        (f->type == WEFT_FIELD_F64 ? *(const double *)from == 0 : *(const int64_t *)from == 0))
        return json_null();
    if (!is_list(f))
        return write_item(f, from);
    json_t *array = json_array();
    const int64_t count =
        f->length ? length_of(f, config) : *(const int64_t *)((const char *)config + f->count);
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(array, write_item(f, from + (size_t)i * item_bytes(f)));
    return array;
}

/* Adds a field that belongs to an object of the config. */
static void write_inside(const weft_field *f, const void *config, json_t *json)
{
    const char *from = (const char *)config + f->offset;
    json_t *object = json_object_get(json, f->object);
    if (f->type == WEFT_FIELD_F64 ? *(const double *)from == 0 : *(const int64_t *)from == 0)
        return;
    if (!object) {
        object = json_object();
        json_object_set_new(json, f->object, object);
    }
    json_object_set_new(object, f->key, write_field(f, config));
}

json_t *weft_fields_write(const weft_family *family, const void *config)
{
    json_t *json = json_object();
    if (json_object_set_new(json, "_class_name", json_string(family->class_name))) {
        json_decref(json);
        return NULL;
    }
    for (int i = 0; i < family->fields; i++)
        if (family->field[i].object)
            write_inside(&family->field[i], config, json);
        else
            json_object_set_new(json, family->field[i].key, write_field(&family->field[i], config));
    return json;
}
