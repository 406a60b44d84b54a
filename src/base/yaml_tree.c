#include "base/yaml_tree.h"

#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { MAX_DEPTH = 64, MAX_NODES = 20000, MAX_BRACKETS = 1000 };

typedef struct reader {
    weft_arena *arena;
    yaml_document_t *document;
    const char *name;
    bool fixed_location;
    int nodes;
} reader;

static weft_status out_of_memory(const char *name)
{
    return weft_no_memory("%s: the config", name);
}

static const char *location_of(reader *r, yaml_mark_t mark)
{
    if (r->fixed_location)
        return r->name;
    return weft_arena_printf(r->arena, "%s:%zu", r->name, mark.line + 1);
}

weft_status weft_yaml_new(weft_arena *arena, weft_yaml_kind kind, const char *where,
                          weft_yaml_node **node)
{
    weft_yaml_node *made = weft_arena_alloc(arena, sizeof *made);
    if (!made || !where)
        return out_of_memory(where ? where : "config");
    made->kind = kind;
    made->where = where;
    *node = made;
    return WEFT_OK;
}

weft_yaml_node *weft_yaml_find(const weft_yaml_node *map, const char *key)
{
    for (int64_t i = 0; i < map->count; i++) {
        if (!strcmp(map->key[i], key))
            return map->child[i];
    }
    return NULL;
}

static void *copy_longer(weft_arena *arena, const void *old, int64_t count, int64_t element_bytes)
{
    char *longer = weft_arena_alloc(arena, (count + 1) * element_bytes);
    if (longer && count > 0)
        memcpy(longer, old, (size_t)(count * element_bytes));
    return longer;
}

/* Copies the arrays instead of keeping a capacity, as overrides are few. */
weft_status weft_yaml_append(weft_arena *arena, weft_yaml_node *parent, const char *key,
                             const char *key_where, weft_yaml_node *child)
{
    int64_t n = parent->count;
    weft_yaml_node **children = copy_longer(arena, parent->child, n, sizeof *children);
    WEFT_TRY(WEFT_ALLOCATED(children, "%s: the config", child->where));
    children[n] = child;
    if (parent->kind == WEFT_YAML_MAP) {
        const char **keys = copy_longer(arena, parent->key, n, sizeof *keys);
        const char **wheres = copy_longer(arena, parent->key_where, n, sizeof *wheres);
        char *own_key = weft_arena_strdup(arena, key);
        WEFT_TRY(WEFT_ALLOCATED(keys && wheres && own_key, "%s: the config", child->where));
        keys[n] = own_key;
        wheres[n] = key_where;
        parent->key = keys;
        parent->key_where = wheres;
    }
    parent->child = children;
    parent->count = n + 1;
    return WEFT_OK;
}

static bool is_null_text(const yaml_node_t *node)
{
    if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    const char *text = (const char *)node->data.scalar.value;
    return !text[0] || !strcmp(text, "~") || !strcasecmp(text, "null");
}

static weft_status convert(reader *r, int index, int depth, weft_yaml_node **out);

static weft_status convert_scalar(reader *r, const yaml_node_t *node, weft_yaml_node *made)
{
    const char *text = (const char *)node->data.scalar.value;
    if (strlen(text) != node->data.scalar.length)
        return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = made->where),
                          "the text has a NUL character");
    if (is_null_text(node))
        return WEFT_OK;
    made->kind = WEFT_YAML_SCALAR;
    made->quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    made->text = weft_arena_strdup(r->arena, text);
    return WEFT_ALLOCATED(made->text, "%s: the config", r->name);
}

static weft_status convert_list(reader *r, const yaml_node_t *node, int depth, weft_yaml_node *made)
{
    const yaml_node_item_t *item = node->data.sequence.items.start;
    int64_t count = node->data.sequence.items.top - item;
    made->kind = WEFT_YAML_LIST;
    WEFT_TRY(WEFT_ARENA_NEW(r->arena, made->child, count + 1, "%s: the config", r->name));
    for (int64_t i = 0; i < count; i++)
        WEFT_TRY(convert(r, item[i], depth + 1, &made->child[i]));
    made->count = count;
    return WEFT_OK;
}

static weft_status convert_map(reader *r, const yaml_node_t *node, int depth, weft_yaml_node *made)
{
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    int64_t count = node->data.mapping.pairs.top - pair;
    made->kind = WEFT_YAML_MAP;
    made->child = weft_arena_calloc(r->arena, count + 1, sizeof *made->child);
    made->key = weft_arena_calloc(r->arena, count + 1, sizeof *made->key);
    made->key_where = weft_arena_calloc(r->arena, count + 1, sizeof *made->key_where);
    if (!made->child || !made->key || !made->key_where)
        return out_of_memory(r->name);
    for (int64_t i = 0; i < count; i++) {
        const yaml_node_t *key = yaml_document_get_node(r->document, pair[i].key);
        const char *where = location_of(r, key->start_mark);
        WEFT_TRY(WEFT_ALLOCATED(where, "%s: the config", r->name));
        if (key->type != YAML_SCALAR_NODE)
            return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = where),
                              "a key must be a plain word");
        const char *text = (const char *)key->data.scalar.value;
        for (int64_t j = 0; j < i; j++) {
            if (!strcmp(made->key[j], text))
                return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = where, .key = text),
                                  "this key is set twice, first at %s", made->key_where[j]);
        }
        made->key[i] = weft_arena_strdup(r->arena, text);
        made->key_where[i] = where;
        WEFT_TRY(WEFT_ALLOCATED(made->key[i], "%s: the config", r->name));
        WEFT_TRY(convert(r, pair[i].value, depth + 1, &made->child[i]));
    }
    made->count = count;
    return WEFT_OK;
}

static weft_status convert(reader *r, int index, int depth, weft_yaml_node **out)
{
    const yaml_node_t *node = yaml_document_get_node(r->document, index);
    const char *where = location_of(r, node->start_mark);
    WEFT_TRY(WEFT_ALLOCATED(where, "%s: the config", r->name));
    if (depth > MAX_DEPTH)
        return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = where),
                          "nested deeper than %d levels (an alias inside itself?)", MAX_DEPTH);
    if (++r->nodes > MAX_NODES)
        return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = where),
                          "more than %d values (aliases that multiply?)", MAX_NODES);
    weft_yaml_node *made;
    WEFT_TRY(weft_yaml_new(r->arena, WEFT_YAML_NULL, where, &made));
    if (node->type == YAML_SCALAR_NODE)
        WEFT_TRY(convert_scalar(r, node, made));
    else if (node->type == YAML_SEQUENCE_NODE)
        WEFT_TRY(convert_list(r, node, depth, made));
    else
        WEFT_TRY(convert_map(r, node, depth, made));
    *out = made;
    return WEFT_OK;
}

/* The usual reason for a scanner's complaint, which does not name it. */
static bool indented_by_tab(const char *text, int64_t bytes, size_t line)
{
    const char *end = text + bytes;
    for (; line > 0 && text < end; text++)
        line -= *text == '\n';
    while (text < end && *text == ' ')
        text++;
    return text < end && *text == '\t';
}

static weft_status parser_error(const yaml_parser_t *parser, const char *text, int64_t bytes,
                                const char *name, bool fixed_location)
{
    const char *problem = parser->problem ? parser->problem : "not readable as YAML";
    if (parser->error == YAML_MEMORY_ERROR)
        return out_of_memory(name);
    size_t line =
        parser->error == YAML_READER_ERROR ? parser->mark.line : parser->problem_mark.line;
    if (fixed_location)
        return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = name), "not valid YAML: %s",
                          problem);
    if (text && indented_by_tab(text, bytes, line))
        return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = name, .line = (int64_t)line + 1),
                          "not valid YAML: the line is indented with a tab; use spaces");
    return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = name, .line = (int64_t)line + 1),
                      "not valid YAML: %s%s%s", problem, parser->context ? ", " : "",
                      parser->context ? parser->context : "");
}

/* Limits open brackets: the time of libyaml's scanner grows with their square, and 100,000 open
  * brackets take half a minute. Brackets in strings count too, so the limit is far above the needs
  * of a config. */
static weft_status check_brackets(const char *text, int64_t bytes, const char *name)
{
    int64_t depth = 0, line = 1;
    for (int64_t i = 0; i < bytes; i++) {
        line += text[i] == '\n';
        if (text[i] == '[' || text[i] == '{')
            depth++;
        else if ((text[i] == ']' || text[i] == '}') && depth > 0)
            depth--;
        if (depth > MAX_BRACKETS)
            return weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = name, .line = line),
                              "nested deeper than %d levels", MAX_DEPTH);
    }
    return WEFT_OK;
}

weft_status weft_yaml_parse(weft_arena *arena, const char *text, int64_t bytes, const char *name,
                            bool fixed_location, weft_yaml_node **root)
{
    weft_status_code status = WEFT_OK;
    yaml_parser_t parser;
    yaml_document_t document, second;
    WEFT_TRY(check_brackets(text, bytes, name));
    WEFT_TRY(WEFT_ALLOCATED(yaml_parser_initialize(&parser), "%s: the config", name));
    yaml_parser_set_input_string(&parser, (const unsigned char *)(text ? text : ""), (size_t)bytes);
    if (!yaml_parser_load(&parser, &document)) {
        status = parser_error(&parser, text, bytes, name, fixed_location);
        yaml_parser_delete(&parser);
        return status;
    }
    reader r = {
        .arena = arena, .document = &document, .name = name, .fixed_location = fixed_location};
    if (!yaml_document_get_root_node(&document)) {
        const char *where = fixed_location ? name : weft_arena_printf(arena, "%s:1", name);
        WEFT_GO(weft_yaml_new(arena, WEFT_YAML_NULL, where, root));
        goto out;
    }
    if (!yaml_parser_load(&parser, &second)) {
        status = parser_error(&parser, text, bytes, name, fixed_location);
        goto out;
    }
    const yaml_node_t *more = yaml_document_get_root_node(&second);
    if (more)
        status = weft_error(WEFT_MSG_CONFIG_SYNTAX,
                            WEFT_AT(.file = name, .line = (int64_t)more->start_mark.line + 1),
                            "a second document ('---') begins here; a config is one document");
    yaml_document_delete(&second);
    WEFT_GO(status);
    WEFT_GO(convert(&r, 1, 0, root));
out:
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return status;
}
