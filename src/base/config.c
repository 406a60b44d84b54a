#include "base/config.h"

#include "base/fs.h"
#include "base/utf8.h"
#include "base/yaml_tree.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_CONFIG_BYTES = 16 << 20 };

/* ---- numbers and names --------------------------------------------------------------------- */

bool weft_parse_f64(const char *text, double *out)
{
    char *end;
    if (!text[0] || isspace((unsigned char)text[0]))
        return false;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return false;
    *out = value;
    return true;
}

/* The factor of "k", "MiB", ...; 0 if it is none. */
static double suffix_factor(const char *suffix)
{
    static const char letters[] = "kmgt";
    if (!suffix[0])
        return 1;
    if (!strcasecmp(suffix, "b"))
        return 1;
    const char *letter = strchr(letters, tolower((unsigned char)suffix[0]));
    if (!letter)
        return 0;
    bool binary = suffix[1] == 'i';
    const char *rest = suffix + 1 + binary;
    if (rest[0] && (strcasecmp(rest, "b") || rest[1]))
        return 0;
    return pow(binary ? 1024 : 1000, (double)(letter - letters + 1));
}

bool weft_parse_i64(const char *text, int64_t *out)
{
    char *end;
    if (!text[0] || isspace((unsigned char)text[0]))
        return false;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (end != text && !*end && errno == 0) { /* exact, also beyond 2^53 */
        *out = whole;
        return true;
    }
    if (strpbrk(text, "xXpPnN")) /* strtod would read hexadecimal, inf and nan */
        return false;
    double value = strtod(text, &end);
    double factor = end == text ? 0 : suffix_factor(*end == ' ' ? end + 1 : end);
    value *= factor;
    if (factor > 1) /* "77.3MiB": as sizes are told */
        value = trunc(value);
    if (factor == 0 || !isfinite(value) || value != floor(value) || fabs(value) >= 0x1p63)
        return false;
    *out = (int64_t)value;
    return true;
}

/* Edit distance with transpositions; gives up (returns 100) on very long words. */
static int edit_distance(const char *a, const char *b)
{
    enum { MAX = 48 };
    int rows[3][MAX + 1];
    int la = (int)strlen(a), lb = (int)strlen(b);
    if (la > MAX || lb > MAX)
        return 100;
    for (int j = 0; j <= lb; j++)
        rows[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *now = rows[i % 3], *before = rows[(i + 2) % 3], *older = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);
            int best = before[j - 1] + (ca != cb);
            if (before[j] + 1 < best)
                best = before[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2]) && older[j - 2] + 1 < best)
                best = older[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[la % 3][lb];
}

const char *weft_nearest_name(const char *word, const char *const *names, int count)
{
    const char *nearest = NULL;
    int length = (int)strlen(word), best = (length + 2) / 4; /* farther is not "near" */
    for (int i = 0; i < count; i++) {
        int distance = edit_distance(word, names[i]);
        /* "frame" for "frames_per_clip": what was typed begins the name */
        if (length >= 3 && !strncasecmp(word, names[i], (size_t)length) && distance > best)
            distance = best;
        /* "shift" for "flow_shift": the name is a part of the word */
        if (strlen(names[i]) >= 4 && strcasestr(word, names[i]) && distance > best)
            distance = best;
        if (distance < best || (distance == best && !nearest)) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

/* ---- tables -------------------------------------------------------------------------------- */

static const weft_key *find_key(const weft_section *section, const char *name, size_t length)
{
    for (int i = 0; i < section->key_count; i++) {
        const char *key = section->keys[i].name;
        const char *also = section->keys[i].also;
        if ((strlen(key) == length && !memcmp(key, name, length)) ||
            (also && strlen(also) == length && !memcmp(also, name, length)))
            return &section->keys[i];
    }
    return NULL;
}

/* Writes the dotted path of the first key with this name anywhere below; true if there is one. */
static bool find_elsewhere(const weft_section *section, const char *name, const char *prefix,
                           char path[256])
{
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        char here[256];
        if (key->type == WEFT_KEY_GONE)
            continue;
        snprintf(here, sizeof here, "%s%s", prefix, key->name);
        if (!strcmp(key->name, name)) {
            memcpy(path, here, sizeof here);
            return true;
        }
        if (key->section && strlen(here) < sizeof here - 8) {
            strcat(here, key->type == WEFT_KEY_SECTION_LIST ? ".0." : ".");
            if (find_elsewhere(key->section, name, here, path))
                return true;
        }
    }
    return false;
}

static weft_status unknown_key(const weft_section *root, const weft_section *section,
                               const char *where, const char *path, const char *name)
{
    const char *names[256];
    int count = 0;
    for (int i = 0; i < section->key_count && count < 256; i++)
        if (section->keys[i].type != WEFT_KEY_GONE)
            names[count++] = section->keys[i].name;
    char place[320] = "at the top level";
    if (path[0])
        snprintf(place, sizeof place, "in '%s'", path);
    char elsewhere[256]; /* the right name at the wrong level beats a similar one */
    const char *near = elsewhere;
    if (!find_elsewhere(root, name, "", elsewhere))
        near = weft_nearest_name(name, names, count);
    if (near)
        return weft_fail(WEFT_E_CONFIG, "%s: unknown key '%.80s' %s (did you mean '%s'?)", where,
                         name, place, near);
    weft_buf known = {0};
    for (int i = 0; i < count; i++)
        weft_buf_printf(&known, "%s%s", i ? ", " : "", names[i]);
    weft_status_code status = weft_fail(WEFT_E_CONFIG, "%s: unknown key '%.80s' %s (known: %s)",
                                        where, name, place, known.data ? known.data : "none");
    weft_buf_free(&known);
    return status;
}

/* An old key. */
static weft_status gone_key(const char *where, const char *path, const weft_key *key)
{
    return weft_fail(WEFT_E_CONFIG, "%s: '%s%s%s' is no key any more: %s", where, path,
                     path[0] ? "." : "", key->name, key->help);
}

/* ---- values -------------------------------------------------------------------------------- */

typedef struct loader {
    weft_arena *arena;   /* of the caller: what the struct points at */
    weft_arena *scratch; /* the trees */
    const char *name;    /* of the file */
    const weft_section *root;
} loader;

static bool is_list_type(weft_key_type type)
{
    return type == WEFT_KEY_I64_LIST || type == WEFT_KEY_F64_LIST || type == WEFT_KEY_STRING_LIST;
}

/* What a scalar of this key (or one item of its list) may be: "an integer from 1 to 9 (steps)". */
static void describe_expected(const weft_key *key, weft_buf *out)
{
    switch (key->type) {
    case WEFT_KEY_BOOL: weft_buf_printf(out, "true or false"); return;
    case WEFT_KEY_ENUM:
        weft_buf_printf(out, "one of ");
        for (int i = 0; key->choices[i]; i++)
            weft_buf_printf(out, "%s%s", i ? ", " : "", key->choices[i]);
        return;
    case WEFT_KEY_STRING:
    case WEFT_KEY_STRING_LIST: weft_buf_printf(out, "a text"); return;
    case WEFT_KEY_SECTION:
    case WEFT_KEY_SECTION_LIST:
    case WEFT_KEY_TREE:
    case WEFT_KEY_GONE: weft_buf_printf(out, "a mapping of keys to values"); return;
    case WEFT_KEY_I64:
    case WEFT_KEY_I64_LIST: weft_buf_printf(out, "an integer"); break;
    case WEFT_KEY_F64:
    case WEFT_KEY_F64_LIST: weft_buf_printf(out, "a number"); break;
    }
    if (key->min != 0 || key->max != 0)
        weft_buf_printf(out, " from %.15g to %.15g", key->min, key->max);
    if (key->unit && key->unit[0])
        weft_buf_printf(out, " (%s)", key->unit);
    if (key->zero)
        weft_buf_printf(out, ", or %s", key->zero);
}

/* `item`: the node stands where an item of the key's list is expected, not the list. */
static weft_status bad_value(const weft_yaml_node *node, const weft_key *key, const char *path,
                             bool item)
{
    weft_buf expected = {0};
    if (!item && (is_list_type(key->type) || key->type == WEFT_KEY_SECTION_LIST))
        weft_buf_printf(&expected, "a list, each item ");
    describe_expected(key, &expected);
    if ((key->type == WEFT_KEY_I64 || key->type == WEFT_KEY_I64_LIST) && key->unit &&
        !strcmp(key->unit, "bytes"))
        weft_buf_printf(&expected, ", such as 6GiB or 500MB");
    const char *text = expected.data ? expected.data : "another type";
    weft_status_code status;
    if (node->kind == WEFT_YAML_SCALAR)
        status = weft_fail(WEFT_E_CONFIG, "%s: %s: '%.80s' is not %s", node->where, path,
                           node->text, text);
    else
        status = weft_fail(WEFT_E_CONFIG, "%s: %s: %s is given, expected is %s", node->where, path,
                           node->kind == WEFT_YAML_LIST  ? "a list"
                           : node->kind == WEFT_YAML_MAP ? "a mapping"
                                                         : "nothing",
                           text);
    weft_buf_free(&expected);
    return status;
}

static bool in_range(const weft_key *key, double value)
{
    if (key->min == 0 && key->max == 0)
        return true;
    return value >= key->min && value <= key->max;
}

static bool parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (int i = 0; i < 3; i++) {
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *out = !strcasecmp(text, yes[i]);
            return true;
        }
    }
    return false;
}

/* One scalar of `key` (an item, if the key is a list) into *slot. */
static weft_status read_scalar(loader *l, const weft_yaml_node *node, const weft_key *key,
                               const char *path, void *slot)
{
    bool good = false;
    if (node->kind != WEFT_YAML_SCALAR)
        return bad_value(node, key, path, true);
    switch (key->type) {
    case WEFT_KEY_BOOL: good = parse_bool(node->text, slot); break;
    case WEFT_KEY_I64:
    case WEFT_KEY_I64_LIST: {
        int64_t value = 0;
        good = (key->zero && !strcmp(node->text, key->zero)) ||
               (weft_parse_i64(node->text, &value) && in_range(key, (double)value));
        *(int64_t *)slot = value;
        break;
    }
    case WEFT_KEY_F64:
    case WEFT_KEY_F64_LIST: {
        double value = 0;
        good = weft_parse_f64(node->text, &value) && in_range(key, value);
        *(double *)slot = value;
        break;
    }
    case WEFT_KEY_ENUM:
        for (int i = 0; key->choices[i]; i++) {
            if (!strcmp(node->text, key->choices[i])) {
                *(int *)slot = i;
                good = true;
            }
        }
        break;
    case WEFT_KEY_STRING:
    case WEFT_KEY_STRING_LIST: {
        const char *copy = weft_arena_strdup(l->arena, node->text);
        if (!copy)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory for the config", node->where);
        *(const char **)slot = copy;
        good = true;
        break;
    }
    case WEFT_KEY_SECTION:
    case WEFT_KEY_SECTION_LIST:
    case WEFT_KEY_TREE:
    case WEFT_KEY_GONE: break;
    }
    return good ? WEFT_OK : bad_value(node, key, path, true);
}

static int64_t item_bytes(const weft_key *key)
{
    switch (key->type) {
    case WEFT_KEY_I64_LIST: return sizeof(int64_t);
    case WEFT_KEY_F64_LIST: return sizeof(double);
    case WEFT_KEY_STRING_LIST: return sizeof(const char *);
    default: return (int64_t)key->section->bytes;
    }
}

static weft_status read_section(loader *l, weft_yaml_node *node, const weft_section *section,
                                const char *path, char *out);

/* A list of scalars or of sections. All list structs are {int64_t count; pointer item}. */
static weft_status read_list(loader *l, const weft_yaml_node *node, const weft_key *key,
                             const char *path, void *slot)
{
    int64_t size = item_bytes(key);
    if (node->kind == WEFT_YAML_SCALAR && key->type == WEFT_KEY_STRING_LIST) { /* a list of one */
        weft_string_list *one = slot;
        one->item = weft_arena_alloc(l->arena, size);
        if (!one->item)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory for the config", node->where);
        one->count = 1;
        return read_scalar(l, node, key, path, (void *)one->item);
    }
    if (node->kind != WEFT_YAML_LIST)
        return bad_value(node, key, path, false);
    char *items = weft_arena_alloc(l->arena, (node->count + 1) * size);
    if (!items)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory for the config", node->where);
    for (int64_t i = 0; i < node->count; i++) {
        const char *item_path = weft_arena_printf(l->scratch, "%s.%lld", path, (long long)i);
        if (!item_path)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory for the config", node->where);
        if (key->type == WEFT_KEY_SECTION_LIST) {
            if (node->child[i]->kind != WEFT_YAML_MAP)
                return bad_value(node->child[i], key, item_path, true);
            WEFT_TRY(read_section(l, node->child[i], key->section, item_path, items + i * size));
        } else {
            WEFT_TRY(read_scalar(l, node->child[i], key, item_path, items + i * size));
        }
    }
    weft_section_list *list = slot;
    list->count = node->count;
    list->item = items;
    return WEFT_OK;
}

/* A node as JSON text. */
static void put_json(const weft_yaml_node *node, weft_buf *out)
{
    int64_t whole;
    double number;
    switch (node->kind) {
    case WEFT_YAML_NULL: weft_buf_printf(out, "null"); return;
    case WEFT_YAML_SCALAR:
        if (!node->quoted && weft_parse_i64(node->text, &whole))
            weft_buf_printf(out, "%lld", (long long)whole);
        else if (!node->quoted && weft_parse_f64(node->text, &number))
            weft_buf_printf(out, "%.17g", number);
        else if (!node->quoted && (!strcmp(node->text, "true") || !strcmp(node->text, "false")))
            weft_buf_printf(out, "%s", node->text);
        else
            weft_config_put_string(out, node->text);
        return;
    case WEFT_YAML_LIST:
    case WEFT_YAML_MAP: break;
    }
    const bool map = node->kind == WEFT_YAML_MAP;
    weft_buf_printf(out, map ? "{" : "[");
    for (int64_t i = 0; i < node->count; i++) {
        weft_buf_printf(out, i ? ", " : "");
        if (map) {
            weft_config_put_string(out, node->key[i]);
            weft_buf_printf(out, ": ");
        }
        put_json(node->child[i], out);
    }
    weft_buf_printf(out, map ? "}" : "]");
}

static weft_status read_tree(loader *l, const weft_yaml_node *node, const weft_key *key,
                             const char *path, weft_config_tree *tree)
{
    if (node->kind != WEFT_YAML_MAP)
        return bad_value(node, key, path, false);
    weft_buf json = {0};
    put_json(node, &json);
    const weft_status_code status = weft_buf_check(&json);
    const int64_t bytes = (node->count + 1) * (int64_t)sizeof(const char *);
    const char **keys = weft_arena_alloc(l->arena, bytes);
    const char **wheres = weft_arena_alloc(l->arena, bytes);
    *tree = (weft_config_tree){.json = status == WEFT_OK ? weft_arena_strdup(l->arena, json.data)
                                                         : NULL,
                               .where = weft_arena_strdup(l->arena, node->where),
                               .count = node->count,
                               .key = keys,
                               .key_where = wheres};
    weft_buf_free(&json);
    for (int64_t i = 0; i < node->count && keys && wheres; i++) {
        keys[i] = weft_arena_strdup(l->arena, node->key[i]);
        wheres[i] = weft_arena_strdup(l->arena, node->key_where[i]);
        if (!keys[i] || !wheres[i])
            tree->json = NULL;
    }
    if (!tree->json || !tree->where || !keys || !wheres)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory for the config", node->where);
    return WEFT_OK;
}

/* The default of a key as a node. */
static weft_status fallback_node(loader *l, const weft_key *key, weft_yaml_node **out)
{
    if (is_list_type(key->type))
        return weft_yaml_parse(l->scratch, key->fallback, (int64_t)strlen(key->fallback),
                               "built-in default", true, out);
    WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_SCALAR, "built-in default", out));
    (*out)->text = key->fallback;
    return WEFT_OK;
}

/* "ring" as {kind: ring}. */
static weft_status open_single(loader *l, const weft_section *section, weft_yaml_node **node)
{
    weft_yaml_node *value = *node, *map;
    WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_MAP, value->where, &map));
    WEFT_TRY(weft_yaml_append(l->scratch, map, section->single, value->where, value));
    *node = map;
    return WEFT_OK;
}

static weft_status read_key(loader *l, const weft_yaml_node *section_node, const weft_key *key,
                            const char *path, void *slot)
{
    weft_yaml_node *node = section_node ? weft_yaml_find(section_node, key->name) : NULL;
    if (node && node->kind == WEFT_YAML_NULL)
        node = NULL;
    if (key->type == WEFT_KEY_SECTION) {
        if (node && node->kind == WEFT_YAML_SCALAR && key->section->single)
            WEFT_TRY(open_single(l, key->section, &node));
        if (node && node->kind != WEFT_YAML_MAP)
            return bad_value(node, key, path, false);
        return read_section(l, node, key->section, path, slot);
    }
    if (key->type == WEFT_KEY_GONE)
        return WEFT_OK;
    if (!node && (key->type == WEFT_KEY_SECTION_LIST || key->type == WEFT_KEY_TREE))
        return WEFT_OK; /* zeroed: none */
    if (key->type == WEFT_KEY_TREE)
        return read_tree(l, node, key, path, slot);
    if (!node && !key->fallback)
        return weft_fail(WEFT_E_CONFIG, "%s: missing key '%s': %s",
                         section_node ? section_node->where : l->name, path, key->help);
    if (!node)
        WEFT_TRY(fallback_node(l, key, &node));
    if (is_list_type(key->type) || key->type == WEFT_KEY_SECTION_LIST)
        return read_list(l, node, key, path, slot);
    return read_scalar(l, node, key, path, slot);
}

/* Keys that were written by their other names get those of the table. */
static weft_status rename_keys(const weft_section *section, weft_yaml_node *map)
{
    for (int64_t i = 0; i < map->count; i++) {
        const weft_key *key = find_key(section, map->key[i], strlen(map->key[i]));
        if (!key || !strcmp(key->name, map->key[i]))
            continue;
        if (weft_yaml_find(map, key->name))
            return weft_fail(WEFT_E_CONFIG, "%s: '%s' and '%s' are two names of one key: write one",
                             map->key_where[i], key->also, key->name);
        map->key[i] = key->name;
    }
    return WEFT_OK;
}

/* `node` NULL: all defaults. */
static weft_status read_section(loader *l, weft_yaml_node *node, const weft_section *section,
                                const char *path, char *out)
{
    if (node)
        WEFT_TRY(rename_keys(section, node));
    for (int64_t i = 0; node && i < node->count; i++) {
        const weft_key *key = find_key(section, node->key[i], strlen(node->key[i]));
        if (!key)
            return unknown_key(l->root, section, node->key_where[i], path, node->key[i]);
        if (key->type == WEFT_KEY_GONE)
            return gone_key(node->key_where[i], path, key);
    }
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        const char *key_path =
            weft_arena_printf(l->scratch, "%s%s%s", path, path[0] ? "." : "", key->name);
        if (!key_path)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory for the config", key->name);
        WEFT_TRY(read_key(l, node, key, key_path, out + key->offset));
    }
    return WEFT_OK;
}

/* ---- overrides ----------------------------------------------------------------------------- */

/* Sets parent[key] (a map) to `child`, in place of what is there. */
static weft_status set_member(loader *l, weft_yaml_node *map, const char *key,
                              weft_yaml_node *child)
{
    for (int64_t i = 0; i < map->count; i++) {
        if (!strcmp(map->key[i], key)) {
            map->child[i] = child;
            map->key_where[i] = child->where;
            return WEFT_OK;
        }
    }
    return weft_yaml_append(l->scratch, map, key, child->where, child);
}

/* The list or map under `key` of `map`, made (from the default of a list of scalars) if absent. */
static weft_status open_member(loader *l, weft_yaml_node *map, const weft_key *key,
                               const char *where, weft_yaml_node **out)
{
    bool section = key->type == WEFT_KEY_SECTION;
    weft_yaml_node *node = weft_yaml_find(map, key->name);
    if (node && node->kind == (section ? WEFT_YAML_MAP : WEFT_YAML_LIST)) {
        *out = node;
        return WEFT_OK;
    }
    if (node && node->kind != WEFT_YAML_NULL)
        return bad_value(node, key, key->name, false);
    if (is_list_type(key->type) && key->fallback)
        WEFT_TRY(fallback_node(l, key, &node));
    else
        WEFT_TRY(weft_yaml_new(l->scratch, section ? WEFT_YAML_MAP : WEFT_YAML_LIST, where, &node));
    WEFT_TRY(set_member(l, map, key->name, node));
    *out = node;
    return WEFT_OK;
}

/* Index `word` of a list: an item, or one past the end. */
static weft_status list_index(const weft_yaml_node *list, const char *where, const char *path,
                              const char *word, int64_t *index)
{
    char *end;
    long long value = strtoll(word, &end, 10);
    if (!isdigit((unsigned char)word[0]) || *end)
        return weft_fail(WEFT_E_CONFIG, "%s: '%s' is a list: '%s' must be an index from 0", where,
                         path, word);
    if (value > list->count)
        return weft_fail(WEFT_E_CONFIG, "%s: index %lld is past the end of '%s', which has %lld",
                         where, value, path, (long long)list->count);
    *index = value;
    return WEFT_OK;
}

static weft_status set_item(loader *l, weft_yaml_node *list, int64_t index, weft_yaml_node *child)
{
    if (index == list->count)
        return weft_yaml_append(l->scratch, list, NULL, NULL, child);
    list->child[index] = child;
    return WEFT_OK;
}

/* The value of an override. A text is taken as it stands: "--set prompt=a: b" is no mapping. */
static weft_status override_value(loader *l, const weft_key *key, bool item, const char *where,
                                  const char *text, weft_yaml_node **value)
{
    if (key->type != WEFT_KEY_STRING && !(item && key->type == WEFT_KEY_STRING_LIST))
        return weft_yaml_parse(l->scratch, text, (int64_t)strlen(text), where, true, value);
    WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_SCALAR, where, value));
    (*value)->text = text;
    return WEFT_OK;
}

/* The rest of a path, "word.more", below map[name], which no table describes: maps are made where
 * there are none, items of lists can be set. */
static weft_status set_in_tree(loader *l, weft_yaml_node *map, const char *name, char *word,
                               char **save, const char *where, const char *text)
{
    weft_yaml_node *node = weft_yaml_find(map, name), *value;
    if (!node || node->kind == WEFT_YAML_NULL) {
        WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_MAP, where, &node));
        WEFT_TRY(set_member(l, map, name, node));
    }
    for (;;) {
        char *next = strtok_r(NULL, ".", save);
        int64_t index = 0;
        weft_yaml_node *below = NULL;
        if (node->kind == WEFT_YAML_LIST)
            WEFT_TRY(list_index(node, where, name, word, &index));
        else if (node->kind != WEFT_YAML_MAP)
            return weft_fail(WEFT_E_CONFIG, "%s: '%s' is a single value, it has no '%.80s'", where,
                             name, word);
        if (!next) {
            WEFT_TRY(weft_yaml_parse(l->scratch, text, (int64_t)strlen(text), where, true, &value));
            return node->kind == WEFT_YAML_LIST ? set_item(l, node, index, value)
                                                : set_member(l, node, word, value);
        }
        if (node->kind == WEFT_YAML_MAP)
            below = weft_yaml_find(node, word);
        else if (index < node->count)
            below = node->child[index];
        if (!below) {
            WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_MAP, where, &below));
            WEFT_TRY(node->kind == WEFT_YAML_LIST ? set_item(l, node, index, below)
                                                  : set_member(l, node, word, below));
        }
        name = word;
        word = next;
        node = below;
    }
}

/* Walks "a.b.0.c" down the tree and the tables together, and puts `text` at its end. */
static weft_status set_path(loader *l, weft_yaml_node *node, char *path, const char *where,
                            const char *text)
{
    weft_yaml_node *value;
    const weft_section *section = l->root;
    char done[320] = "";
    for (char *save, *word = strtok_r(path, ".", &save);;) {
        WEFT_TRY(rename_keys(section, node));
        const weft_key *key = find_key(section, word, strlen(word));
        if (!key)
            return unknown_key(l->root, section, where, done, word);
        if (key->type == WEFT_KEY_GONE)
            return gone_key(where, done, key);
        snprintf(done + strlen(done), sizeof done - strlen(done), "%s%s", done[0] ? "." : "", word);
        word = strtok_r(NULL, ".", &save);
        if (!word) {
            WEFT_TRY(override_value(l, key, false, where, text, &value));
            return set_member(l, node, key->name, value);
        }
        if (key->type == WEFT_KEY_TREE)
            return set_in_tree(l, node, key->name, word, &save, where, text);
        bool list = is_list_type(key->type) || key->type == WEFT_KEY_SECTION_LIST;
        if (!list && key->type != WEFT_KEY_SECTION)
            return weft_fail(WEFT_E_CONFIG, "%s: '%s' is a single value, it has no '%.80s'", where,
                             done, word);
        WEFT_TRY(open_member(l, node, key, where, &node));
        section = key->section;
        if (!list)
            continue;
        int64_t index = 0;
        WEFT_TRY(list_index(node, where, done, word, &index));
        snprintf(done + strlen(done), sizeof done - strlen(done), ".%s", word);
        word = strtok_r(NULL, ".", &save);
        if (!word) {
            WEFT_TRY(override_value(l, key, true, where, text, &value));
            return set_item(l, node, index, value);
        }
        if (!section)
            return weft_fail(WEFT_E_CONFIG, "%s: '%s' is a single value, it has no '%.80s'", where,
                             done, word);
        if (index == node->count) {
            weft_yaml_node *item;
            WEFT_TRY(weft_yaml_new(l->scratch, WEFT_YAML_MAP, where, &item));
            WEFT_TRY(set_item(l, node, index, item));
        }
        node = node->child[index];
        if (node->kind != WEFT_YAML_MAP)
            return bad_value(node, key, done, true);
    }
}

static weft_status apply_override(loader *l, weft_yaml_node *root, const char *text)
{
    const char *equals = strchr(text, '=');
    const char *option = strncmp(l->name, "--", 2) ? "--set" : l->name;
    const char *where = weft_arena_printf(l->scratch, "%s %.120s", option, text);
    char *path = weft_arena_strdup(l->scratch, text);
    if (!where || !path)
        return weft_fail(WEFT_E_MEMORY, "%s %.120s: out of memory", option, text);
    if (!equals || equals == text || text[0] == '.' || equals[-1] == '.' || strlen(text) > 4000)
        return weft_fail(WEFT_E_CONFIG, "%s: expected is KEY=VALUE", where);
    if (!weft_utf8_valid(text))
        return weft_fail(WEFT_E_CONFIG, "%s: not UTF-8, as configs are", where);
    path[equals - text] = 0;
    if (strstr(path, ".."))
        return weft_fail(WEFT_E_CONFIG, "%s: an empty name between two dots", where);
    return set_path(l, root, path, where, equals + 1);
}

/* ---- entry points -------------------------------------------------------------------------- */

weft_status weft_config_parse(weft_arena *arena, const char *text, int64_t bytes, const char *name,
                              const char *const *overrides, int override_count,
                              const weft_section *root, void *out)
{
    weft_status_code status = WEFT_OK;
    loader l = {.arena = arena, .scratch = weft_arena_create(), .name = name, .root = root};
    void *made = weft_alloc((int64_t)root->bytes);
    weft_yaml_node *tree;
    if (!l.scratch || !made) {
        status = weft_fail(WEFT_E_MEMORY, "%s: out of memory for the config", name);
        goto out;
    }
    WEFT_GO(weft_yaml_parse(l.scratch, text, bytes, name, false, &tree));
    if (tree->kind == WEFT_YAML_NULL)
        tree->kind = WEFT_YAML_MAP;
    if (tree->kind != WEFT_YAML_MAP) {
        status = weft_fail(WEFT_E_CONFIG, "%s: not a config: expected are lines like 'key: value'",
                           tree->where);
        goto out;
    }
    for (int i = 0; i < override_count; i++)
        WEFT_GO(apply_override(&l, tree, overrides[i]));
    WEFT_GO(read_section(&l, tree, root, "", made));
    memcpy(out, made, root->bytes);
out:
    weft_free(made);
    weft_arena_free(l.scratch);
    return status;
}

weft_status weft_config_load(weft_arena *arena, const char *path, const char *const *overrides,
                             int override_count, const weft_section *root, void *out)
{
    char *text = NULL;
    int64_t bytes = 0;
    if (path)
        WEFT_TRY(weft_file_read(path, MAX_CONFIG_BYTES, &text, &bytes));
    weft_status_code status =
        weft_config_parse(arena, text ? text : "", bytes, path ? path : "config", overrides,
                          override_count, root, out);
    weft_free(text);
    return status;
}
