/* Configs as JSON Schema, from the tables that also make the parser and the help.
 *
 *   {"lr", WEFT_KEY_F64, ..., "1e-4", "", "learning rate", .min = 0, .max = 1}
 *   "lr": {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "null"}],
 *          "default": 1e-4, "description": "learning rate"}
 *
 * jansson reports a NULL value as a member that cannot be set, so that a lack of memory needs no
 * check of its own: `failed` remembers it. */
#include "base/config_schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
    bool failed; /* out of memory */
} writer;

static json_t *section_schema(writer *w, const weft_section *section);

static void set(writer *w, json_t *object, const char *key, json_t *value)
{
    w->failed = w->failed || json_object_set_new(object, key, value) != 0;
}

static void append(writer *w, json_t *array, json_t *value)
{
    w->failed = w->failed || json_array_append_new(array, value) != 0;
}

static json_t *of_type(writer *w, const char *type)
{
    json_t *schema = json_object();
    set(w, schema, "type", json_string(type));
    return schema;
}

/* ---- values --------------------------------------------------------------------------------- */

static json_t *number(double value)
{
    return value == floor(value) && fabs(value) < 0x1p53 ? json_integer((json_int_t)value)
                                                         : json_real(value);
}

/* "auto" as itself; a choice that YAML reads as a number or a truth value also as such. */
static void append_choice(writer *w, json_t *values, const char *choice)
{
    double value;
    append(w, values, json_string(choice));
    if (weft_parse_f64(choice, &value))
        append(w, values, number(value));
    if (!strcmp(choice, "true") || !strcmp(choice, "false"))
        append(w, values, json_boolean(choice[0] == 't'));
}

static json_t *choices_schema(writer *w, const weft_key *key)
{
    json_t *schema = json_object(), *values = json_array();
    for (int i = 0; key->choices[i]; i++)
        append_choice(w, values, key->choices[i]);
    for (const char *at = key->also_values; at && *at; at += strspn(at, " ")) {
        char word[64] = "";
        const size_t length = strcspn(at, "=");
        if (length < sizeof word)
            memcpy(word, at, length);
        append_choice(w, values, word);
        at += strcspn(at, " ");
    }
    set(w, schema, "enum", values);
    return schema;
}

static json_t *bool_schema(writer *w)
{
    static const char *const words[] = {"yes", "no", "on", "off"};
    json_t *schema = json_object(), *values = json_array();
    append(w, values, json_true());
    append(w, values, json_false());
    for (int i = 0; i < WEFT_COUNT(words); i++)
        append(w, values, json_string(words[i]));
    set(w, schema, "enum", values);
    return schema;
}

static json_t *range_schema(writer *w, const weft_key *key, const char *type)
{
    json_t *schema = of_type(w, type);
    if (key->min != 0 || key->max != 0) {
        set(w, schema, "minimum", number(key->min));
        set(w, schema, "maximum", number(key->max));
    }
    return schema;
}

/* A key that accepts one of several forms is an anyOf. */
static json_t *either(writer *w, json_t *first, json_t *second)
{
    json_t *schema = json_object(), *forms = json_array();
    append(w, forms, first);
    append(w, forms, second);
    set(w, schema, "anyOf", forms);
    return schema;
}

static json_t *integer_schema(writer *w, const weft_key *key)
{
    json_t *text = of_type(w, "string");
    char pattern[128];
    const char *word = key->zero ? key->zero : key->flag_word;
    snprintf(pattern, sizeof pattern, "^[-+]?[0-9.]+([eE][0-9]+)? ?([kKMGT]i?)?B?$%s%s%s",
             word ? "|^" : "", word ? word : "", word ? "$" : "");
    set(w, text, "pattern", json_string(pattern));
    return either(w, range_schema(w, key, "integer"), text);
}

static json_t *real_schema(writer *w, const weft_key *key)
{
    json_t *text = of_type(w, "string");
    set(w, text, "pattern", json_string("^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$"));
    return either(w, range_schema(w, key, "number"), text);
}

static json_t *text_schema(writer *w)
{
    json_t *schema = json_object(), *types = json_array();
    append(w, types, json_string("string"));
    append(w, types, json_string("number"));
    append(w, types, json_string("boolean"));
    set(w, schema, "type", types);
    return schema;
}

static json_t *list_of(writer *w, json_t *item)
{
    json_t *schema = of_type(w, "array");
    set(w, schema, "items", item);
    return schema;
}

/* The key that a single value in place of the section sets. */
static const weft_key *single_key(const weft_section *section)
{
    for (int i = 0; section->single && i < section->key_count; i++)
        if (!strcmp(section->keys[i].name, section->single))
            return &section->keys[i];
    return NULL;
}

static json_t *value_schema(writer *w, const weft_key *key);

static json_t *nested_schema(writer *w, const weft_section *section)
{
    const weft_key *single = single_key(section);
    json_t *schema = section_schema(w, section);
    return single ? either(w, schema, value_schema(w, single)) : schema;
}

static json_t *value_schema(writer *w, const weft_key *key)
{
    switch (key->type) {
    case WEFT_KEY_BOOL: return bool_schema(w);
    case WEFT_KEY_I64: return integer_schema(w, key);
    case WEFT_KEY_F64: return real_schema(w, key);
    case WEFT_KEY_STRING: return text_schema(w);
    case WEFT_KEY_ENUM: return choices_schema(w, key);
    case WEFT_KEY_I64_LIST: return list_of(w, integer_schema(w, key));
    case WEFT_KEY_F64_LIST: return list_of(w, real_schema(w, key));
    case WEFT_KEY_STRING_LIST: return either(w, list_of(w, text_schema(w)), text_schema(w));
    case WEFT_KEY_SECTION: return nested_schema(w, key->section);
    case WEFT_KEY_SECTION_LIST: return list_of(w, nested_schema(w, key->section));
    case WEFT_KEY_TREE: return of_type(w, "object");
    case WEFT_KEY_GONE:
    case WEFT_KEY_MOVED: break;
    }
    return json_object();
}

/* ---- keys ----------------------------------------------------------------------------------- */

static const weft_key *find(const weft_section *section, const char *name)
{
    for (int i = 0; i < section->key_count; i++)
        if (!strcmp(section->keys[i].name, name))
            return &section->keys[i];
    return NULL;
}

/* Numbers and lists of a default are JSON; all else is text. */
static json_t *default_value(const weft_key *key)
{
    json_t *value = NULL;
    if (key->type != WEFT_KEY_STRING && key->type != WEFT_KEY_ENUM)
        value = json_loads(key->fallback, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(key->fallback);
}

static void describe(writer *w, const weft_key *key, json_t *schema)
{
    const char *help = key->help && key->help[0] ? key->help : NULL;
    if (!help && key->section)
        help = key->section->help;
    if (help && key->unit && key->unit[0])
        set(w, schema, "description", json_sprintf("%s (%s)", help, key->unit));
    else if (help)
        set(w, schema, "description", json_string(help));
    if (key->fallback && !key->section && (key->fallback[0] || key->type == WEFT_KEY_STRING))
        set(w, schema, "default", default_value(key));
}

/* `key: null` is the default. */
static json_t *key_schema(writer *w, const weft_section *section, const weft_key *key)
{
    const weft_key *list = key->list ? find(section, key->list) : NULL;
    json_t *schema = either(w, value_schema(w, key), of_type(w, "null"));
    if (list)
        append(w, json_object_get(schema, "anyOf"), value_schema(w, list));
    describe(w, key, schema);
    return schema;
}

/* Sets a copy of `schema` for each of the words of `names`. */
static void set_also(writer *w, json_t *properties, const char *names, json_t *schema,
                     bool deprecated)
{
    for (const char *at = names; at && *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        json_t *copy = json_deep_copy(schema);
        if (deprecated)
            set(w, copy, "deprecated", json_true());
        w->failed = w->failed || json_object_setn_new(properties, at, length, copy) != 0;
        at += length;
    }
}

/* Whether a file must set the key, or a key below it. */
static bool is_required(const weft_key *key)
{
    if (key->type == WEFT_KEY_SECTION) {
        for (int i = 0; i < key->section->key_count; i++)
            if (is_required(&key->section->keys[i]))
                return true;
        return false;
    }
    return !key->fallback && key->type != WEFT_KEY_SECTION_LIST && key->type != WEFT_KEY_TREE &&
           key->type != WEFT_KEY_GONE && key->type != WEFT_KEY_MOVED;
}

static json_t *required_name(writer *w, const char *name, size_t length)
{
    json_t *schema = json_object(), *names = json_array();
    append(w, names, json_stringn(name, length));
    set(w, schema, "required", names);
    return schema;
}

/* The key by one of its names, or the list that replaces it. */
static json_t *required_schema(writer *w, const weft_key *key)
{
    const char *const lists[] = {key->name, key->also, key->earlier, key->list};
    json_t *schema = json_object(), *forms = json_array();
    for (int k = 0; k < WEFT_COUNT(lists); k++)
        for (const char *at = lists[k]; at && *at; at += strspn(at, " ")) {
            const size_t length = strcspn(at, " ");
            append(w, forms, required_name(w, at, length));
            at += length;
        }
    set(w, schema, "anyOf", forms);
    return schema;
}

static json_t *section_schema(writer *w, const weft_section *section)
{
    json_t *schema = of_type(w, "object"), *properties = json_object(), *required = json_array();
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        if (key->type == WEFT_KEY_GONE)
            continue;
        json_t *value = key_schema(w, section, key);
        if (key->type == WEFT_KEY_MOVED)
            set(w, value, "deprecated", json_true());
        set_also(w, properties, key->also, value, false);
        set_also(w, properties, key->earlier, value, true);
        set(w, properties, key->name, value);
        if (is_required(key))
            append(w, required, required_schema(w, key));
    }
    set(w, schema, "additionalProperties", json_false());
    set(w, schema, "properties", properties);
    if (json_array_size(required))
        set(w, schema, "allOf", required);
    else
        json_decref(required);
    return schema;
}

weft_status weft_config_schema(const weft_section *root, json_t **schema)
{
    writer w = {0};
    json_t *out = json_object(), *body = section_schema(&w, root);
    set(&w, out, "$schema", json_string("http://json-schema.org/draft-07/schema#"));
    set(&w, out, "title", json_sprintf("weft %s", root->name));
    set(&w, out, "description", json_string(root->help));
    w.failed = w.failed || json_object_update(out, body) != 0;
    json_decref(body);
    if (w.failed) {
        json_decref(out);
        return weft_no_memory("a schema");
    }
    *schema = out;
    return WEFT_OK;
}
